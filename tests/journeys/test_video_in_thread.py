"""A finished video is a file in its thread that plays in Slack, once; its link is always there."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from sandbox import player
from sandbox.faults import CannedResponse, Hang, LateCommit
from sandbox.player import DOWNLOAD
from sandbox.scenarios import Scenario
from sandbox.slack import FILE_CONTENT
from sandbox.slack_objects import Message
from tests.journeys.test_transcript_file import COMPLETE, shared
from tests.world import World

MP4: Final = (Path(player.__file__).parent / "clip" / "clip.mp4").read_bytes()
HERE: Final = "127.0.0.1"


@pytest.fixture
async def shown(quiet_world: World) -> AsyncIterator[World]:
    """A world in which videos are shown in Slack."""
    async with quiet_world.running_bot(MEDIA_HOSTS=HERE):
        await quiet_world.settle()
        yield quiet_world


async def makes_a_video(world: World, channel: str = "studio", minutes: float = 10) -> None:
    """Ask for a video, and wait until all is done."""
    await world.request_video(world.ana, channel=channel)
    await world.advance(minutes=minutes)


def one_video(world: World) -> Message:
    """Return the message with the video, which is below the reply in the card's thread."""
    card, reply, file = world.posts()
    assert [card.thread_ts, reply.thread_ts, file.thread_ts] == [None, card.ts, card.ts]
    assert reply.pings == {world.ana.user.id}
    [about] = file.files
    assert world.slack.files[str(about["id"])].content == MP4
    return file


def replies_with_links(world: World) -> list[Message]:
    return [each for each in world.posts() if "is ready" in each.text and "|Download>" in each.text]


def only_the_link(world: World) -> None:
    """Check that the reply has its link and mentions who asked, and that no file is there."""
    _, reply = world.posts()
    assert reply.pings == {world.ana.user.id}
    assert "|Download>" in reply.text
    assert not world.slack.uploads


async def test_a_finished_video_is_in_the_thread_below_the_reply_with_its_link(
    shown: World,
) -> None:
    world = shown
    await world.request_video(world.ana, {"video_name": "Q3 report / draft"})
    await world.advance(minutes=10)
    file = one_video(world)
    assert file.text == "Here's the video."
    assert not file.pings
    [about] = file.files
    assert (about["name"], about["title"]) == ("Q3 report - draft.mp4", "Q3 report - draft.mp4")
    assert (about["mimetype"], about["filetype"]) == ("video/mp4", "mp4")
    _, reply, _ = world.posts()
    assert "|Watch>" in reply.text
    assert "|Download>" in reply.text
    # What is done is done.
    before = len(world.slack.calls), len(world.service.downloads.paths)
    await world.advance(days=1)
    assert (len(world.slack.calls), len(world.service.downloads.paths)) == before


async def test_a_trained_replica_is_previewed_in_its_thread(shown: World) -> None:
    world = shown
    await world.request_replica(world.ana, {"replica_name": "Anna"})
    await world.advance(hours=12)
    file = one_video(world)
    assert file.text == "Here's a preview of the replica."
    assert [each["name"] for each in file.files] == ["Anna.mp4"]


async def test_no_video_is_fetched_without_hosts_or_the_scope_or_for_a_failure(
    quiet_world: World,
) -> None:
    world = quiet_world
    async with world.running_bot():
        await world.settle()
        await makes_a_video(world)
        only_the_link(world)
    async with world.running_bot(MEDIA_HOSTS=HERE):
        await world.settle()
        world.service.next_video(Scenario(end="error", reason="No."))
        await makes_a_video(world)
    world.slack.scopes.discard("files:write")
    async with world.running_bot(MEDIA_HOSTS=HERE):
        await world.settle()
        await makes_a_video(world)
    assert not shared(world)
    assert not world.service.downloads.paths


async def test_no_reply_waits_for_a_video_and_at_most_four_are_fetched_at_a_time(
    quiet_world: World,
) -> None:
    world, replied = quiet_world, asyncio.Event()
    world.timings = replace(world.timings, stop_timeout=timedelta(0))
    world.service.faults.always(DOWNLOAD, Hang())

    def note(_: object) -> None:
        if len(replies_with_links(world)) == 9:
            replied.set()

    async with world.running_bot(callbacks=False, MEDIA_HOSTS=HERE):
        await world.settle()
        for _ in range(9):
            await world.request_video(world.ana)
        for video in world.service.videos:
            world.service.finish(video)
        leave = world.slack.subscribe(note)
        world.clock.set(world.clock.now() + timedelta(minutes=5))
        await replied.wait()
        leave()
        assert len(world.service.downloads.paths) <= 4
    world.service.faults.clear()
    # The bot was stopped in the middle of it.
    async with world.running_bot(callbacks=False, MEDIA_HOSTS=HERE):
        await world.advance(minutes=10)
    assert len(shared(world)) == 9


# ── Answers that are lost, and a bot that dies ────────────────────────────────────────────────────


@pytest.mark.parametrize("delay", [45, 200])
async def test_a_video_that_slack_shares_late_is_shared_once(delay: int, shown: World) -> None:
    world = shown
    world.slack.share_delay = timedelta(seconds=delay)
    world.slack.faults.next(COMPLETE, LateCommit(timedelta(seconds=20)))
    await makes_a_video(world, minutes=30)
    one_video(world)
    assert len(world.service.downloads.paths) == 1


# ── What Slack refuses ────────────────────────────────────────────────────────────────────────────


async def test_where_the_bot_is_no_member_there_is_the_link(shown: World) -> None:
    world = shown
    for channel in ("lobby", "lobby", "studio"):
        await makes_a_video(world, channel)
    assert [each.channel for each in shared(world)] == [world.slack.channel("studio").id]
    assert [call.error for call in world.calls(COMPLETE)] == ["not_in_channel", None]
    assert len(replies_with_links(world)) == 3


# ── A host that is down ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("down_for", [timedelta(seconds=45), timedelta(minutes=25)])
async def test_videos_whose_host_is_down_come_into_their_threads_once_it_is_back(
    down_for: timedelta, shown: World
) -> None:
    world = shown
    world.service.faults.always(DOWNLOAD, CannedResponse(503, "<html>Deploying</html>"))
    for _ in range(10):
        await world.request_video(world.ana)
    while len(replies_with_links(world)) < 10:
        await world.advance(seconds=1)
    await world.advance(seconds=down_for.total_seconds())
    assert not shared(world)
    world.service.faults.clear()
    await world.advance(minutes=6)
    assert len(shared(world)) == 10
    assert len({each.thread_ts for each in shared(world)}) == 10


async def test_a_video_whose_host_stays_down_is_given_up_after_half_an_hour(
    shown: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = shown
    world.service.faults.always(DOWNLOAD, CannedResponse(503, ""))
    await makes_a_video(world, minutes=25)
    assert "a file is not shared" not in caplog.text
    await world.advance(minutes=10)
    assert "a file is not shared" in caplog.text
    asked = len(world.service.downloads.paths)
    assert asked == 13
    await world.advance(days=1)
    assert len(world.service.downloads.paths) == asked
    only_the_link(world)


# ── The disk ──────────────────────────────────────────────────────────────────────────────────────


async def test_nothing_is_left_on_the_disk_and_a_full_one_leaves_the_link(
    quiet_world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, seen = quiet_world, list[list[Path]]()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()

    async def look(_: str, method: str, __: object) -> None:
        if method == FILE_CONTENT:
            seen.append([*(tmp_path / "temporary").iterdir()])

    world.slack.on_request = look
    async with world.running_bot(MEDIA_HOSTS=HERE):
        await world.settle()
        await makes_a_video(world)
        one_video(world)
        # No other process sees it, so that none is left when the bot is killed.
        assert seen == [[], []]
        (tmp_path / "temporary").rmdir()
        await makes_a_video(world)
    assert len(shared(world)) == 1
    assert len(replies_with_links(world)) == 2
