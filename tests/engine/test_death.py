"""The bot dies at any moment and is started again: nothing is lost, nothing is done twice."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from aiohttp import web

from sandbox.driver import CONNECTION_ERROR
from sandbox.faults import Hang, LateCommit
from sandbox.scenarios import CallbackPlan
from sandbox.slack_objects import Message
from tests.modes import on_both_engines, on_sqlite_alone
from tests.processes import LiveWorld
from tests.tcp import connected


@pytest.fixture
async def live(tmp_path: Path, engine: None) -> AsyncIterator[LiveWorld]:  # noqa: ARG001 - chosen by it
    async with LiveWorld(tmp_path).running() as live:
        yield live


@pytest.fixture
async def polling(tmp_path: Path, engine: None) -> AsyncIterator[LiveWorld]:  # noqa: ARG001 - chosen by it
    """A world in which the service cannot reach the bot."""
    world = LiveWorld(tmp_path)
    world.callbacks = False
    async with world.running() as live:
        yield live


def first_let_it_be_made(live: LiveWorld, *moments: str) -> None:
    """At these moments wait until the video's id is stored: a create call is not to be cut off."""

    async def wait(moment: str, _: str) -> None:
        if moment in moments:
            await live.wait_until(lambda: "before read" in live.moments)

    live.on_moment = wait


def first_let_it_be_posted(live: LiveWorld) -> None:
    """Create the video only once its card is posted, which is then edited to say so."""

    async def wait(moment: str, _: str) -> None:
        if moment == "before create":
            await live.wait_until(lambda: "after card" in live.moments)

    live.on_moment = wait


async def expect_one_reply(live: LiveWorld, word: str = "Ready") -> Message:
    """Wait for the end; return the closing reply, which is the only other post beside the card."""
    await live.wait_until(lambda: live.card_says(word) and live.replies())
    await live.stop_when_idle()
    [reply] = live.replies()
    assert reply.pings == {live.ana.user.id}
    assert live.posts() == 2
    return reply


STEPS = ["card", "edit", "read", "last read", "last edit", "reply"]


@on_both_engines
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("phase", ["before", "after"])
async def test_a_video_gets_one_reply_wherever_the_bot_dies(
    phase: str, step: str, live: LiveWorld
) -> None:
    live.kill_at = f"{phase} {step}"
    if step == "edit":
        first_let_it_be_posted(live)
    else:
        first_let_it_be_made(live, "before card", "after card")
    await live.request_video()
    await live.restart_killed_bot()
    reply = await expect_one_reply(live)
    assert "Hello, world." in reply.text
    assert live.created_count() == 1


@on_sqlite_alone
@pytest.mark.parametrize("end", ["kill", "terminate"])
async def test_an_edit_that_slack_does_after_the_bot_died_is_not_the_last_one(
    end: str, live: LiveWorld
) -> None:
    late_edit = LateCommit(timedelta(seconds=1.5), hang=True)
    first_let_it_be_posted(live)
    live.slack.faults.next("chat.update", late_edit)
    await live.request_video()
    await live.wait_until(lambda: live.created_count() and live.edits())
    await (live.bot.kill() if end == "kill" else live.bot.terminate())
    [video] = live.service.videos
    live.end_video(video)
    live.timings = replace(live.timings, post_hold=timedelta(seconds=2))
    await live.start_bot()

    await live.wait_until(lambda: live.edits() == live.edits_done() and live.replies())
    await expect_one_reply(live)


@pytest.mark.parametrize("step", ["last read", "last edit", "reply"])
@pytest.mark.parametrize("phase", ["before", "after"])
async def test_a_failure_gets_one_reply_wherever_the_bot_dies(
    phase: str, step: str, live: LiveWorld
) -> None:
    live.end_video = partial(live.service.fail, reason="The face is hidden")
    live.kill_at = f"{phase} {step}"
    await live.request_video()
    await live.restart_killed_bot()
    reply = await expect_one_reply(live, "Failed")
    assert "The face is hidden" in reply.text
    assert live.created_count() == 1


@pytest.mark.parametrize("post", ["card", "reply"])
@pytest.mark.parametrize("phase", ["before", "after"])
async def test_a_bot_that_dies_during_the_search_for_its_post_posts_it_once(
    phase: str, post: str, live: LiveWorld
) -> None:
    live.kill_at = f"after {post}"
    first_let_it_be_made(live, "after card")
    await live.request_video()
    await live.wait_until(lambda: not live.kill_at)
    live.kill_at = f"{phase} search"
    await live.start_bot()
    await live.restart_killed_bot()
    await expect_one_reply(live)


@on_both_engines
@pytest.mark.parametrize("phase", ["before", "after"])
async def test_an_interrupted_create_call_is_asked_about_and_never_repeated_by_itself(
    phase: str, polling: LiveWorld
) -> None:
    polling.kill_at = f"{phase} create"
    await polling.request_video()
    await polling.restart_killed_bot()
    await polling.wait_until(lambda: polling.card_says("Needs an answer"))
    assert polling.moments.count("before create") == 1
    assert await polling.bot.terminate() == 0
    assert polling.posts() == 1


@pytest.mark.parametrize("phase", ["before", "after"])
async def test_the_person_is_asked_once_wherever_the_bot_dies(
    phase: str, polling: LiveWorld
) -> None:
    polling.kill_at = "before create"
    await polling.request_video()
    await polling.wait_until(lambda: not polling.kill_at)
    polling.kill_at = f"{phase} question"
    await polling.start_bot()
    await polling.restart_killed_bot()
    await polling.wait_until(polling.questions)
    [question] = polling.questions()
    await polling.ana.click(question, "Cancel request")
    await expect_one_reply(polling, "Cancelled")
    [settled] = polling.questions()
    assert "cancelled the request" in settled.text


async def test_an_interrupted_create_call_is_reconciled_by_an_earlier_callback(
    live: LiveWorld,
) -> None:
    live.service.callback_plan = CallbackPlan(early=True)
    live.kill_at = "after create"
    await live.request_video()
    await live.restart_killed_bot()
    await expect_one_reply(live)
    assert live.created_count() == 1
    assert len(live.service.callbacks) == 1


def reads_first_after(live: LiveWorld, wait: timedelta) -> None:
    schedule = replace(live.timings.minutes, first_interval=wait, max_interval=wait)
    live.timings = replace(live.timings, minutes=schedule)


@pytest.fixture
async def rarely_reading(tmp_path: Path, engine: None) -> AsyncIterator[LiveWorld]:  # noqa: ARG001 - chosen by it
    """A world in which only a callback has a video read soon."""
    world = LiveWorld(tmp_path)
    reads_first_after(world, timedelta(minutes=30))
    async with world.running() as live:
        yield live


@on_both_engines
async def test_an_answered_callback_is_kept_when_the_bot_dies(rarely_reading: LiveWorld) -> None:
    live = rarely_reading
    live.kill_at = "after callback"
    await live.request_video()
    await live.wait_until(lambda: live.card_says("Rendering"))
    [video_id] = live.service.videos
    live.service.finish(video_id)
    await live.restart_killed_bot()
    await expect_one_reply(live)


async def test_polling_makes_up_for_a_callback_to_a_dead_bot(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path)
    reads_first_after(world, timedelta(milliseconds=400))
    async with world.running() as live:
        live.kill_at = "before callback"
        await live.request_video()
        await live.wait_until(lambda: live.card_says("Rendering"))
        [video_id] = live.service.videos
        live.service.finish(video_id)
        await live.restart_killed_bot()
        await expect_one_reply(live)
        assert [callback.status for callback in live.service.callbacks] == [503]


@on_both_engines
@pytest.mark.parametrize("phase", ["before", "after"])
async def test_an_unanswered_form_is_submitted_again_and_makes_one_video(
    phase: str, live: LiveWorld
) -> None:
    live.kill_at = f"{phase} submission"
    first_let_it_be_made(live, "after submission")
    form = await live.request_video()
    assert form.notice == CONNECTION_ERROR
    await live.restart_killed_bot()
    await form.send()
    await expect_one_reply(live)
    assert live.created_count() == 1


TEN = {
    "Words of the first.": "before card",
    "Words of the second.": "after card",
    "Words of the third.": "before create",
    "Words of the fourth.": "after create",
    "Words of the fifth.": "before read",
    "Words of the sixth.": "before last read",
    "Words of the seventh.": "after last read",
    "Words of the eighth.": "before last edit",
    "Words of the ninth.": "before reply",
    "Words of the tenth.": "after reply",
}


@on_both_engines
async def test_ten_videos_that_the_bot_dies_with_at_ten_steps_all_end(live: LiveWorld) -> None:
    held: set[str] = set()
    dead = asyncio.Event()

    async def hold(moment: str, about: str) -> None:
        for script, its in TEN.items():
            if its == moment and script in about and not dead.is_set():
                held.add(script)
                await dead.wait()
                raise web.HTTPServiceUnavailable

    live.on_moment = hold
    for script in TEN:
        await live.request_video(script)
    await live.wait_until(lambda: held == TEN.keys())
    await live.bot.kill()
    dead.set()
    unknown, *known = sorted(TEN, key=lambda script: TEN[script] != "before create")
    [cut_off] = [v for v in live.service.videos.values() if TEN[v.script] == "after create"]

    await live.start_bot()
    live.service.finish(cut_off.video_id)
    await live.wait_until(
        lambda: all(live.card_says("Ready", each) and live.replies(each) for each in known)
    )
    await live.wait_until(lambda: live.card_says("Checking", unknown))

    assert await live.bot.terminate() == 0
    assert live.replies(unknown) == []
    assert [live.created_count(script) for script in TEN] == [int(s != unknown) for s in TEN]
    assert [len(live.replies(script)) for script in known] == [1] * 9
    assert live.posts() == 10 + 9


async def test_a_graceful_stop_is_quick_and_loses_nothing(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    world = LiveWorld(tmp_path)
    world.timings = replace(world.timings, stop_timeout=timedelta(seconds=5))
    async with world.running() as live:
        live.service.faults.next("create_video", Hang(done=True))
        live.slack.faults.next("chat.postMessage", Hang(done=True))
        await live.request_video()
        await live.wait_until(lambda: {"after card", "after create"} <= set(live.moments))
        async with half_a_request(live):
            begun = loop.time()
            assert await live.bot.terminate() == 0
            # Steps under way get their five seconds while a request that is being answered has
            # three: one after the other would take eight.
            assert 5 <= loop.time() - begun < 7.9

        await live.start_bot()
        await live.wait_until(lambda: live.card_says("Checking"))
        [video_id] = live.service.videos
        live.service.finish(video_id)
        await expect_one_reply(live)
        assert live.created_count() == 1


@contextlib.asynccontextmanager
async def half_a_request(live: LiveWorld) -> AsyncIterator[None]:
    """Send the bot a request that never comes to its end, and whose arrival it has confirmed."""
    async with connected(live.port) as (reader, writer):
        writer.write(
            b"POST /callbacks/half HTTP/1.1\r\nHost: bot\r\nContent-Length: 100\r\n"
            b"Expect: 100-continue\r\n\r\nhalf"
        )
        assert await reader.readline() == b"HTTP/1.1 100 Continue\r\n"
        yield


@on_sqlite_alone
async def test_a_second_bot_on_the_same_database_ends_with_a_reason(live: LiveWorld) -> None:
    second = live.spawn_bot()
    assert (
        "in use by another process: only one bot may run on a database"
        in await second.startup_error()
    )
    assert await second.wait() == 1
    await live.request_video()
    await expect_one_reply(live)


# What is before a call that carries nothing over is as after the one that goes before it.
MOMENTS = ["after upload url", "after upload", "before sharing", "after sharing", "after file info"]


async def test_a_video_is_in_its_thread_once_although_the_bot_dies_at_each_step(
    tmp_path: Path,
) -> None:
    world = LiveWorld(tmp_path)
    world.settings = {"MEDIA_HOSTS": "127.0.0.1"}
    first, *others = MOMENTS
    async with world.running() as live:
        live.kill_at = first
        await live.request_video()
        for moment in (*others, ""):
            await live.wait_until(lambda: not live.kill_at)
            assert await live.bot.wait() < 0
            live.kill_at = moment
            await live.start_bot()
        await live.wait_until(lambda: any(each.files for each in live.replies()))
        await live.stop_when_idle()
        reply, video = live.replies()
        assert reply.pings == {live.ana.user.id}
        assert "|Download>" in reply.text
        assert [each["filetype"] for each in video.files] == ["mp4"]
        assert live.posts() == 2
