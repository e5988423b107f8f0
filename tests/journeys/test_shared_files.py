"""Files in the thread of a reply: a long transcript, and a video whose host is listed."""

import asyncio
import tempfile
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from bot.timings import Timings
from sandbox import player
from sandbox.faults import CannedResponse, Fault, Hang, LateCommit, Reset
from sandbox.player import DOWNLOAD
from sandbox.scenarios import Echo, Scenario
from sandbox.slack import FILE_CONTENT, Call
from sandbox.slack_objects import Message
from tests.modes import bot_with, on_both_engines
from tests.world import REPLICA, World

pytestmark = bot_with(MAX_SCRIPT="20000")

LONG = "A sentence with an é and a 🎬. " * 400 + "The end."
GET_URL, COMPLETE = "files.getUploadURLExternal", "files.completeUploadExternal"
LOST: list[Fault] = [
    Reset(done=True),
    CannedResponse(503, "<html>Bad gateway</html>", done=True),
    CannedResponse(200, {"ok": False, "error": "file_update_failed"}, done=True),
]
RATE_LIMITED = CannedResponse(429, {"ok": False, "error": "ratelimited"}, {"Retry-After": "20"})
NOT_DONE: list[Fault] = [Reset(), RATE_LIMITED]


def refusal(code: str) -> CannedResponse:
    return CannedResponse(200, {"ok": False, "error": code})


async def asks(world: World, script: str = LONG, channel: str = "studio", name: str = "") -> None:
    """Submit the form with a script in a file."""
    form = await world.open_form(world.ana, channel=channel)
    file = world.slack.upload("ana", "script.txt", script.encode())
    typed = {"replica_id": REPLICA, "script_file": [file["id"]], "video_name": name or None}
    await world.after(form.send(typed))


def shared(world: World) -> list[Message]:
    """Return the messages with which the bot shared a file, anywhere."""
    return [each for each in world.posts() if each.files]


def one_file(world: World, before: int = 0) -> Message:
    """Return the message with the file, which is below the reply in the card's thread."""
    card, reply, file = world.posts()[before:]
    assert [card.thread_ts, reply.thread_ts, file.thread_ts] == [None, card.ts, card.ts]
    assert "is ready" in reply.text
    return file


def content(world: World, message: Message) -> str:
    [file] = message.files
    return world.slack.files[str(file["id"])].content.decode()


def searches(world: World, message: Message) -> list[Call]:
    """Return the calls that asked where the file of a message is."""
    [file] = message.files
    return [each for each in world.calls("files.info") if each.arguments["file"] == file["id"]]


async def test_a_long_transcript_follows_the_reply_as_a_file_with_the_name_of_the_video(
    world: World,
) -> None:
    await world.after(asks(world, name="Q3 report / draft"), minutes=5)
    file = one_file(world)
    assert content(world, file) == LONG
    assert file.text == "Here's the whole transcript."
    assert [each["name"] for each in file.files] == ["Q3 report - draft.txt"]
    assert [each["title"] for each in file.files] == ["Q3 report - draft.txt"]
    # Nothing is said twice, and nobody is told twice.
    assert not file.pings
    assert not searches(world, file)
    before = len(world.slack.calls)
    await world.advance(days=1)
    assert len(world.slack.calls) == before


async def test_the_file_is_whole_where_the_service_shows_a_script_in_another_form(
    world: World,
) -> None:
    for echo in Echo:
        world.service.next_video(Scenario(echo=echo))
        await world.after(asks(world), minutes=10)
        last = shared(world)[-1].files[0]["id"]
        assert world.slack.files[last].content.decode() == LONG, echo
    assert len(shared(world)) == len(Echo)


async def test_the_file_goes_where_the_reply_went(world: World) -> None:
    await asks(world)
    world.slack.faults.next("chat.postMessage", refusal("restricted_action"))
    await world.advance(minutes=5)
    dm = world.slack.dm(world.ana.user.id)
    [reply] = world.slack.messages(dm.id)
    [file] = world.slack.thread(dm.id, reply.ts)
    assert content(world, file) == LONG


async def test_a_step_of_an_upload_without_an_answer_makes_no_second_file(
    world: World, subtests: pytest.Subtests
) -> None:
    for fault in [*LOST, *NOT_DONE]:
        for step in [GET_URL, FILE_CONTENT, COMPLETE]:
            with subtests.test(fault=fault, step=step):
                before = len(world.posts())
                await asks(world)
                world.slack.faults.next(step, fault)
                await world.advance(minutes=10)
                assert content(world, one_file(world, before)) == LONG


async def test_a_file_follows_a_reply_whose_post_got_no_answer(world: World) -> None:
    await asks(world)
    world.slack.faults.next("chat.postMessage", Reset(done=True))
    await world.advance(minutes=10)
    assert content(world, one_file(world)) == LONG


async def test_a_file_whose_sharing_got_no_answer_is_looked_for_before_it_is_shared_again(
    world: World,
) -> None:
    await asks(world)
    world.slack.faults.next(COMPLETE, Reset(done=True))
    await world.advance(minutes=10)
    assert len(searches(world, one_file(world))) == 1
    assert [len(world.calls(each)) for each in (GET_URL, COMPLETE)] == [1, 1]


async def test_what_is_at_slack_is_not_sent_again_where_slack_refuses_it_and_asks_to_wait(
    world: World,
) -> None:
    await asks(world)
    world.slack.faults.next(COMPLETE, refusal("file_not_found"))
    world.slack.faults.next("files.info", RATE_LIMITED)
    await world.advance(minutes=10)
    assert content(world, one_file(world)) == LONG
    assert len(world.calls(GET_URL)) == 1


async def test_a_file_that_slack_shares_late_is_shared_once(world: World) -> None:
    world.slack.share_delay = timedelta(seconds=200)
    await asks(world)
    world.slack.faults.next(COMPLETE, Reset(done=True))
    await world.advance(minutes=20)
    one_file(world)


async def test_an_upload_that_slack_discarded_meanwhile_is_begun_again(world: World) -> None:
    await asks(world)
    world.slack.faults.next(COMPLETE, CannedResponse(500, ""))
    await world.advance(seconds=140)
    assert world.calls(COMPLETE)
    world.slack.uploads.clear()
    await world.advance(minutes=10)
    assert content(world, one_file(world)) == LONG
    assert len(world.calls(GET_URL)) == 2


async def test_a_file_that_a_person_deleted_is_not_shared_again(world: World) -> None:
    await asks(world)
    world.slack.faults.next(COMPLETE, Reset(done=True))
    world.slack.faults.next("files.info", refusal("file_deleted"))
    await world.advance(minutes=10)
    assert len(world.calls(COMPLETE)) == 1


@on_both_engines
@pytest.mark.parametrize("step", [GET_URL, FILE_CONTENT, COMPLETE, "files.info"])
async def test_a_bot_that_ends_in_the_middle_of_an_upload_shares_one_file(
    step: str, quiet: World
) -> None:
    async with quiet.running_bot(MAX_SCRIPT="20000"):
        await quiet.settle()
        await asks(quiet)
        quiet.slack.faults.next(COMPLETE, *[Reset(done=True)] * (step == "files.info"))
        for each in (GET_URL, FILE_CONTENT, COMPLETE, "files.info"):
            if each == step:
                quiet.slack.faults.next(step, Reset(done=True))
        await quiet.advance(minutes=2)
    async with quiet.running_bot(MAX_SCRIPT="20000"):
        await quiet.advance(minutes=10)
    one_file(quiet)


async def test_a_bot_that_is_cut_off_while_it_shares_a_file_shares_no_second_one(
    quiet: World,
) -> None:
    quiet.timings = Timings(jitter=0, stop_timeout=timedelta(0))
    sharing, never = asyncio.Event(), asyncio.Event()

    async def hold_back(when: str, method: str, _: object) -> None:
        if (when, method) == ("after", COMPLETE):
            sharing.set()
            await never.wait()

    async with quiet.running_bot(callbacks=False, MAX_SCRIPT="20000"):
        await quiet.settle()
        await asks(quiet)
        quiet.slack.on_request = hold_back
        [video_id] = quiet.service.videos
        quiet.service.finish(video_id)
        quiet.clock.set(quiet.clock.now() + timedelta(minutes=5))
        await sharing.wait()
    quiet.slack.on_request = None
    async with quiet.running_bot(callbacks=False, MAX_SCRIPT="20000"):
        await quiet.advance(minutes=10)
    one_file(quiet)
    assert len(quiet.calls(GET_URL)) == 1


async def test_the_content_goes_to_no_host_but_slacks(world: World) -> None:
    await asks(world)
    # The same place under another name of its host.
    link = world.slack.url.replace("127.0.0.1", "localhost")
    said = {"ok": True, "upload_url": f"{link}/upload/v1/secret", "file_id": "F000000001"}
    world.slack.faults.next(GET_URL, CannedResponse(200, said))
    await world.advance(minutes=10)
    assert len(world.calls(FILE_CONTENT)) == 1
    one_file(world)


@pytest.mark.parametrize("missing", ["files:write", "files:read"])
async def test_without_the_scopes_the_reply_says_where_the_transcript_is(
    missing: str, quiet: World
) -> None:
    async with quiet.running_bot(MAX_SCRIPT="20000"):
        await quiet.settle()
        await asks(quiet)
    quiet.slack.scopes.discard(missing)
    async with quiet.running_bot(MAX_SCRIPT="20000"):
        await quiet.advance(minutes=10)
    _, reply = quiet.posts()
    assert "The rest is under *Details*" in reply.text
    assert not quiet.calls(GET_URL)


@pytest.mark.parametrize(
    ("code", "step"), [("missing_scope", GET_URL), ("file_uploads_disabled", COMPLETE)]
)
async def test_what_a_workspace_refuses_is_tried_again_after_an_hour(
    step: str, code: str, world: World
) -> None:
    world.slack.faults.always(step, refusal(code))
    await world.after(asks(world), minutes=10)
    world.slack.change_channel("vault", with_bot=True)
    await world.after(asks(world, channel="vault"), minutes=10)
    assert len(world.calls(GET_URL)) == 1
    assert [bool(each.files) for each in world.posts()] == [False] * 4
    world.slack.faults.clear()
    await world.advance(hours=1)
    assert not shared(world), "what was given up is not begun again"
    await world.after(asks(world), minutes=10)
    assert len(shared(world)) == 1


async def test_a_host_for_contents_that_is_never_reached_is_given_up(world: World) -> None:
    world.slack.faults.always(FILE_CONTENT, CannedResponse(403, "Blocked by the proxy"))
    await world.after(asks(world), hours=2)
    assert len(world.posts()) == 2
    assert len(world.calls(FILE_CONTENT)) < 20


MP4: Final = (Path(player.__file__).parent / "clip" / "clip.mp4").read_bytes()
HERE: Final = "127.0.0.1"


async def makes_a_video(world: World, channel: str = "studio", minutes: float = 10) -> None:
    """Ask for a video, and wait until all is done."""
    await world.after(world.request_video(world.ana, channel=channel), minutes=minutes)


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


@bot_with(MEDIA_HOSTS=HERE)
async def test_a_finished_video_is_in_the_thread_below_the_reply_with_its_link(
    world: World,
) -> None:
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


@bot_with(MEDIA_HOSTS=HERE)
async def test_a_trained_replica_is_previewed_in_its_thread(world: World) -> None:
    await world.after(world.request_replica(world.ana, {"replica_name": "Anna"}), hours=12)
    file = one_video(world)
    assert file.text == "Here's a preview of the replica."
    assert [each["name"] for each in file.files] == ["Anna.mp4"]


async def test_no_video_is_fetched_without_hosts_or_the_scope_or_for_a_failure(
    quiet: World,
) -> None:
    async with quiet.running_bot():
        await quiet.settle()
        await makes_a_video(quiet)
        only_the_link(quiet)
    async with quiet.running_bot(MEDIA_HOSTS=HERE):
        await quiet.settle()
        quiet.service.next_video(Scenario(end="error", reason="No."))
        await makes_a_video(quiet)
    quiet.slack.scopes.discard("files:write")
    async with quiet.running_bot(MEDIA_HOSTS=HERE):
        await quiet.settle()
        await makes_a_video(quiet)
    assert not shared(quiet)
    assert not quiet.service.downloads.paths


async def test_no_reply_waits_for_a_video_and_at_most_four_are_fetched_at_a_time(
    quiet: World,
) -> None:
    world, replied = quiet, asyncio.Event()
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


@pytest.mark.parametrize("delay", [45, 200])
@bot_with(MEDIA_HOSTS=HERE)
async def test_a_video_that_slack_shares_late_is_shared_once(delay: int, world: World) -> None:
    world.slack.share_delay = timedelta(seconds=delay)
    world.slack.faults.next(COMPLETE, LateCommit(timedelta(seconds=20)))
    await makes_a_video(world, minutes=30)
    one_video(world)
    assert len(world.service.downloads.paths) == 1


@bot_with(MEDIA_HOSTS=HERE)
async def test_where_the_bot_is_no_member_there_is_the_link(world: World) -> None:
    for channel in ("lobby", "lobby", "studio"):
        await makes_a_video(world, channel)
    assert [each.channel for each in shared(world)] == [world.slack.channel("studio").id]
    assert [call.error for call in world.calls(COMPLETE)] == ["not_in_channel", None]
    assert len(replies_with_links(world)) == 3


@pytest.mark.parametrize("down_for", [timedelta(seconds=45), timedelta(minutes=25)])
@bot_with(MEDIA_HOSTS=HERE)
async def test_videos_whose_host_is_down_come_into_their_threads_once_it_is_back(
    down_for: timedelta, world: World
) -> None:
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


@bot_with(MEDIA_HOSTS=HERE)
async def test_a_video_whose_host_stays_down_is_given_up_after_half_an_hour(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
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


async def test_nothing_is_left_on_the_disk_and_a_full_one_leaves_the_link(
    quiet: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, seen = quiet, list[list[Path]]()
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
