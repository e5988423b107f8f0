"""Videos from the form to the closing reply."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import timedelta

import aiohttp
import pytest

from bot.timings import Timings
from sandbox.faults import CannedResponse
from sandbox.scenarios import MISSING, CallbackPlan, Scenario
from sandbox.slack import Call
from tests.modes import in_both_modes, on_both_engines
from tests.world import REPLICA, World

HOUR = timedelta(hours=1)


@pytest.fixture
async def unread_world(quiet: World) -> AsyncIterator[World]:
    """A world whose bot reads a video only once an hour, unless a callback wakes it."""
    usual = Timings(jitter=0)
    schedule = replace(usual.minutes, first_interval=HOUR, max_interval=HOUR)
    quiet.timings = replace(usual, minutes=schedule)
    async with quiet.running_bot():
        yield quiet


def _the_video(world: World) -> str:
    [video_id] = world.service.videos
    return video_id


async def test_a_card_is_not_edited_because_the_service_signs_a_link_again(world: World) -> None:
    card = await world.request_video(world.ana)
    [video_id] = world.service.videos
    edits = []
    for poll in range(4):
        body = {
            "video_id": video_id,
            "status": "generating",
            "status_details": f"Step {poll}",
            "hosted_url": f"https://videos.example.com/{video_id}?signature={poll}",
        }
        world.service.faults.clear()
        world.service.faults.always("read_video", CannedResponse(200, body))
        await world.advance(minutes=2)
        edits.append(len(world.calls("chat.update")))
    assert len(set(edits)) == 1

    world.service.faults.clear()
    await world.advance(minutes=5)
    assert f"/watch/{video_id}|Watch>" in world.now(card).text


@on_both_engines
@in_both_modes
async def test_a_ready_video_gets_one_reply_in_the_thread(world: World) -> None:
    card = await world.request_video(world.ana, {"video_name": "Greeting"})
    assert "Greeting" in card.text

    await world.advance(minutes=5)

    [video] = world.service.videos.values()
    [reply] = world.replies(card)
    assert world.ana.user.id in reply.pings
    assert f"/watch/{video.video_id}" in reply.text
    assert "Hello, world." in reply.text
    assert "Ready" in world.now(card).text
    assert world.posts() == [world.now(card), reply]
    assert world.created_count() == 1


@on_both_engines
async def test_a_hundred_callbacks_at_once_bring_one_reply(unread_world: World) -> None:
    world = unread_world
    world.service.callback_plan = CallbackPlan(times=0)
    card = await world.after(world.request_video(world.ana), minutes=5)
    assert not world.replies(card)

    await asyncio.gather(*(world.service.call_back(_the_video(world)) for _ in range(100)))
    await world.advance(seconds=10)

    assert len(world.replies(card)) == 1
    assert len(world.requests_for("read_video")) < 5


async def test_a_callback_with_an_unknown_token_gets_the_same_answer_and_changes_nothing(
    unread_world: World,
) -> None:
    world = unread_world
    world.service.callback_plan = CallbackPlan(times=0)
    card = await world.after(world.request_video(world.ana), minutes=5)
    video = world.service.videos[_the_video(world)]
    body = {"video_id": video.video_id, "status": "ready"}
    assert video.callback_url is not None
    unknown = video.callback_url.rpartition("/")[0] + "/no-such-token"

    answers = []
    for url in (unknown, video.callback_url):
        async with world.slack.session.post(url, json=body) as answer:
            answers.append((answer.status, await answer.text()))
        await world.settle()
        if url == unknown:
            assert not world.replies(card)
            assert not world.requests_for("read_video")

    assert answers[0] == answers[1]
    assert len(world.replies(card)) == 1


@pytest.mark.parametrize(
    "said",
    [
        {"hosted_url": None, "download_url": None, "stream_url": None, "data": None},
        {"hosted_url": "", "download_url": MISSING, "data": {}, "status_details": 7},
        {"hosted_url": 5, "download_url": "javascript:alert(1)", "created_at": None, "new": [1]},
    ],
)
async def test_a_ready_video_without_a_link_still_gets_a_reply(
    world: World, said: Mapping[str, object]
) -> None:
    world.service.next_video(Scenario(overrides=said))
    card = await world.request_video(world.ana)

    await world.advance(minutes=5)

    [reply] = world.replies(card)
    assert "is ready" in reply.text
    assert "without a link" in reply.text
    assert "Hello, world." in reply.text
    assert "Ready" in world.now(card).text


async def test_polling_goes_on_after_answers_without_a_status(world: World) -> None:
    said: dict[str, object] = {"status": None}
    world.service.next_video(Scenario(overrides=said))
    card = await world.after(world.request_video(world.ana), minutes=5)
    assert world.posts() == [world.now(card)]

    said.clear()
    await world.advance(minutes=10)

    assert len(world.replies(card)) == 1


async def test_a_refused_key_is_reported_in_the_thread_and_logged_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    refused = CannedResponse(401, {"message": "Invalid API key"})
    for operation in ("create_video", "read_video"):
        world.service.faults.always(operation, refused)
    card = await world.request_video(world.ana)

    [reply] = world.replies(card)
    assert "I've lost access to the video service." in reply.text
    assert "You weren't charged." in reply.text

    form = await world.submit_form(world.ben, {"replica_id": REPLICA, "script": "Keep this."})
    assert "lost access to the video service" in form.errors["replica_id"]
    assert form.values["script"] == "Keep this."
    assert len(world.requests_for("create_video")) == 1
    assert world.posts() == [world.now(card), reply]
    refusals = [each for each in caplog.records if "refuses new work" in each.message]
    assert len(refusals) == 1


@on_both_engines
async def test_a_job_that_was_held_back_before_its_create_call_has_no_attempt(quiet: World) -> None:
    async with quiet.running_bot():
        quiet.service.out_of_credit = True
        await quiet.request_video(quiet.ana)
        forms = [await quiet.open_form(person, "Hello.") for person in (quiet.ana, quiet.ben)]
        await asyncio.gather(*(form.submit({"replica_id": REPLICA}) for form in forms))
        await quiet.settle()

        jobs = quiet.query("SELECT attempts FROM jobs")
        outcomes = [row["outcome"] for row in quiet.query("SELECT outcome FROM attempts")]
    calls = len(quiet.requests_for("create_video"))
    assert sum(job["attempts"] for job in jobs) == len(outcomes) == calls < 4
    assert None not in outcomes


@on_both_engines
async def test_a_restarted_bot_goes_on_where_it_was(quiet: World) -> None:
    async with quiet.running_bot():
        card = await quiet.after(quiet.request_video(quiet.ana), minutes=1)
    await quiet.advance(minutes=10)
    assert not quiet.replies(card)

    async with quiet.running_bot():
        await quiet.advance(minutes=2)

    [reply] = quiet.replies(card)
    assert "is ready" in reply.text
    assert "Ready" in quiet.now(card).text
    assert quiet.posts() == [quiet.now(card), reply]
    assert quiet.created_count() == 1


def sent(world: World) -> list[Call]:
    """Return the calls that send something."""
    return [
        call
        for call in world.slack.calls
        if call.method.startswith(("chat.", "views.", "conversations."))
    ]


async def readiness(world: World) -> tuple[int, str]:
    """Return the status of /readyz, and what it says of Slack."""
    url = world.slack.request_url.removesuffix("/slack/events") + "/readyz"
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, headers=world.operator) as answer,
    ):
        return answer.status, (await answer.json())["checks"]["slack"]["reason"]


@on_both_engines
async def test_an_uninstalled_app_sends_nothing_and_keeps_everything(quiet: World) -> None:
    async with quiet.running_bot():
        await quiet.ana.open_home()
        await quiet.after(quiet.request_video(quiet.ana), seconds=10)
        assert await readiness(quiet) == (200, "")
        quiet.slack.auth_error = "account_inactive"
        await quiet.advance(minutes=2)
        before = len(sent(quiet))
        await quiet.advance(minutes=30)
        assert len(sent(quiet)) == before
        status, reason = await readiness(quiet)
        assert status == 503, "nothing that it accepts could be answered"
        assert reason.startswith("Slack refuses SLACK_BOT_TOKEN (account_inactive): install")
    # After a start without a working token, what was sent first is refused, and nothing else sent.
    async with quiet.running_bot():
        await quiet.advance(minutes=5)
        assert len(sent(quiet)) <= before + 2
    quiet.slack.auth_error = None
    async with quiet.running_bot():
        await quiet.advance(minutes=1)
        assert await readiness(quiet) == (200, "")
        card, reply = quiet.posts()
    assert reply.thread_ts == card.ts
    assert "is ready" in reply.text


async def test_a_reinstalled_app_goes_on_without_a_restart(world: World) -> None:
    card = await world.request_video(world.ana)
    world.slack.auth_error = "token_revoked"
    await world.advance(minutes=20)
    assert world.replies(card) == []
    world.slack.auth_error = None
    await world.advance(minutes=2)
    assert "is ready" in world.replies(card)[0].text
