"""Every message arrives, once, whatever Slack answers."""

import asyncio
from datetime import timedelta

import pytest

from bot.timings import Timings
from sandbox.block_kit import Json
from sandbox.faults import CannedResponse, Fault, LateCommit, Reset
from sandbox.scenarios import CallbackPlan
from sandbox.slack import Call
from sandbox.slack_objects import Message
from tests.modes import on_both_engines
from tests.world import REPLICA, World

HISTORY = {"channels:history", "groups:history", "im:history"}
LOST: list[Fault] = [
    Reset(done=True),
    CannedResponse(503, "<html>Bad gateway</html>", done=True),
    CannedResponse(200, {"ok": False, "error": "internal_error"}, done=True),
    CannedResponse(200, "{", done=True),
]
NOT_DONE: list[Fault] = [
    Reset(),
    CannedResponse(500, "<html>Oops</html>"),
    CannedResponse(200, {"ok": False, "error": "fatal_error"}),
]


def _refusal(code: str) -> CannedResponse:
    return CannedResponse(200, {"ok": False, "error": code})


async def _submits(world: World, channel: str = "studio") -> None:
    form = await (
        world.open_form_and_remove_bot(world.ana)
        if channel == "vault"
        else world.open_form(world.ana, channel=channel)
    )
    await world.after(form.send({"replica_id": REPLICA, "script": "Hello."}))


def _card_and_reply(world: World, channel: str = "studio") -> tuple[Message, Message]:
    """Return the two messages that one video is allowed to make."""
    [card] = world.slack.messages(channel)
    [reply] = world.replies(card)
    assert world.posts() == [card, reply]
    assert "Ready" in card.text
    assert "is ready" in reply.text
    return card, reply


@pytest.mark.parametrize("fault", LOST + NOT_DONE)
async def test_a_card_whose_post_got_no_answer_is_searched_for_before_it_is_posted_again(
    world: World, fault: Fault
) -> None:
    world.slack.faults.next("chat.postMessage", fault)
    await world.after(_submits(world), seconds=29)
    assert len(world.calls("chat.postMessage")) == 1, "it waits before it looks"

    await world.advance(minutes=5)

    _card_and_reply(world)


@pytest.mark.parametrize("fault", NOT_DONE)
async def test_without_the_history_scopes_a_card_that_did_not_arrive_is_posted_after_a_wait(
    world: World, fault: Fault
) -> None:
    world.slack.scopes -= HISTORY
    world.slack.faults.next("chat.postMessage", fault)
    await world.after(_submits(world), seconds=29)
    assert not world.posts()

    await world.advance(minutes=5)

    _card_and_reply(world)


@pytest.mark.parametrize("fault", LOST + NOT_DONE)
async def test_a_reply_whose_post_got_no_answer_is_posted_once(
    world: World, fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    await _submits(world)
    world.slack.faults.next("chat.postMessage", fault)

    await world.advance(minutes=5)

    _card_and_reply(world)
    assert "a step failed" not in caplog.messages, "no step failed unexpectedly"


async def test_a_message_about_another_job_is_not_mistaken_for_the_lost_one(world: World) -> None:
    other = await world.request_video(world.ben, {"script": "Hello."})
    world.slack.faults.next("chat.postMessage", Reset())
    await _submits(world)

    await world.advance(minutes=5)

    cards = world.slack.messages("studio")
    assert [len(world.replies(card)) for card in cards] == [1, 1]
    assert cards[0].ts == other.ts


@pytest.mark.parametrize("message", [1, 2], ids=["card", "reply"])
async def test_a_bot_that_is_cut_off_in_the_middle_of_a_post_does_not_post_twice(
    quiet: World, message: int
) -> None:
    quiet.timings = Timings(jitter=0, stop_timeout=timedelta(0))
    posted, never = asyncio.Event(), asyncio.Event()

    async def hold_back(when: str, method: str, _: object) -> None:
        if (when, method) == ("after", "chat.postMessage") and len(quiet.posts()) == message:
            posted.set()
            await never.wait()

    async with quiet.running_bot(callbacks=False):
        form = await quiet.open_form(quiet.ana)
        if message == 1:
            quiet.slack.on_request = hold_back
        await form.submit({"replica_id": REPLICA, "script": "Hello."})
        if message == 2:
            await quiet.advance(seconds=5)
            quiet.slack.on_request = hold_back
            [video_id] = quiet.service.videos
            quiet.service.finish(video_id)
            quiet.clock.set(quiet.clock.now() + timedelta(seconds=10))
        await posted.wait()
        # Only the post is cut off, not the create call beside it.
        known, made = quiet.bot.store.jobs.fetch_by_remote_id, quiet.service.videos
        while not await known("video", next(iter(made), "")):  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0)
    quiet.slack.on_request = None

    async with quiet.running_bot(callbacks=False):
        await quiet.advance(minutes=5)

    _card_and_reply(quiet)


async def test_a_post_that_slack_holds_back_waits_as_long_as_it_asks(world: World) -> None:
    began = world.clock.now()
    limit = CannedResponse(429, {"ok": False, "error": "ratelimited"}, {"Retry-After": "20"})
    world.slack.faults.next("chat.postMessage", limit)
    await _submits(world)
    await world.after(_submits(world), seconds=19)
    assert len(world.calls("chat.postMessage")) == 1, "the second knows of it"
    await _submits(world, "lobby")
    assert len(world.slack.messages("lobby")) == 1, "another channel is not held back"

    await world.advance(minutes=5)

    assert world.calls("chat.postMessage")[2].at - began == timedelta(seconds=20)
    for card in [*world.slack.messages("studio"), *world.slack.messages("lobby")]:
        assert len(world.replies(card)) == 1
    assert len(world.posts()) == 6


async def test_a_reply_that_its_channel_refuses_is_sent_as_a_direct_message(world: World) -> None:
    await _submits(world)
    world.slack.channel("studio").is_archived = True

    await world.advance(minutes=5)

    [card] = world.slack.messages("studio")
    [reply] = world.slack.messages(world.slack.dm(world.ana.user.id).id)
    assert not world.replies(card)
    assert world.posts() == [card, reply]
    assert "is ready" in reply.text
    assert f"<#{card.channel}>" in reply.text


@pytest.mark.parametrize(
    "said", [{"ok": False, "error": "internal_error"}, {"ok": True, "channel": {"id": None}}]
)
async def test_a_conversation_that_can_never_be_opened_does_not_hold_the_answer_back(
    world: World, said: object
) -> None:
    await _submits(world)
    world.slack.faults.next("chat.postMessage", _refusal("is_archived"))
    world.slack.faults.always("conversations.open", CannedResponse(200, said))

    await world.advance(minutes=10)

    [reply] = world.slack.messages(world.slack.dm(world.ana.user.id).id)
    assert "is ready" in reply.text


async def test_an_undeliverable_message_is_given_up_and_the_job_still_ends(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.slack.faults.always("chat.postMessage", _refusal("channel_not_found"))
    await world.after(_submits(world), days=1)

    assert not world.posts()
    assert any("posted nowhere" in record.message for record in caplog.records)
    answer = await world.ana.command("/video", "list")
    assert "Ready" in answer.shown.text


async def test_a_reply_arrives_though_its_card_could_be_posted_nowhere(quiet: World) -> None:
    world = quiet
    world.timings = Timings(jitter=0, recheck_down=timedelta(minutes=10))
    world.service.callback_plan = CallbackPlan(times=0)
    world.service.faults.always("read_video", CannedResponse(503))
    world.slack.faults.always("chat.postMessage", _refusal("channel_not_found"))
    async with world.running_bot():
        await world.after(_submits(world), hours=8)
        world.slack.faults.clear()
        world.service.faults.clear()
        await world.advance(hours=2)

    [reply] = world.posts()
    assert reply.channel == world.slack.dm("ana").id
    assert "is ready" in reply.text


async def test_while_the_workspace_accepts_nothing_every_message_is_kept(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    form = await world.open_form(world.ana)
    world.slack.auth_error = "token_revoked"
    await world.after(form.submit({"replica_id": REPLICA, "script": "Hello."}), hours=1)
    assert not world.posts()
    assert len(world.calls("chat.postMessage")) <= 61
    logged = [each for each in caplog.records if "accepts nothing from this app" in each.message]
    assert len(logged) == 1

    world.slack.auth_error = None
    await world.advance(minutes=3)

    _card_and_reply(world)


async def test_a_message_that_is_accepted_ends_the_pause_after_one_that_was_not(
    quiet: World, caplog: pytest.LogCaptureFixture
) -> None:
    reached, refused = asyncio.Event(), asyncio.Event()

    async def hold_back(when: str, method: str, _: Json) -> None:
        if (when, method) == ("before", "chat.postMessage"):
            reached.set()
            await refused.wait()

    async with quiet.running_bot():
        quiet.slack.on_request = hold_back
        await quiet.submit_form(quiet.ana, {"replica_id": REPLICA, "script": "Held back."})
        await reached.wait()
        quiet.slack.faults.next("chat.postMessage", _refusal("no_permission"))
        form = await quiet.open_form(quiet.ben, channel="lobby")
        await form.submit({"replica_id": REPLICA, "script": "Refused."})
        async with asyncio.timeout(30):
            while "Slack accepts nothing from this app" not in caplog.messages:
                await quiet.bot.store.database.check()
        refused.set()
        await quiet.settle()
        await quiet.after(_submits(quiet), seconds=5)
        assert sum(not each.thread_ts for each in quiet.posts()) == 2, "the third waits no minute"


async def test_a_message_whose_blocks_are_refused_is_sent_as_text(world: World) -> None:
    world.slack.faults.next("chat.postMessage", _refusal("invalid_blocks"))
    await _submits(world)
    [card] = world.slack.messages("studio")
    assert card.blocks == []
    assert card.text.startswith("Hello.\n*Rendering*")

    await world.advance(minutes=5)

    card, reply = _card_and_reply(world)
    assert card.blocks == []
    assert reply.blocks


@pytest.mark.parametrize(
    "code", ["invalid_metadata_schema", "metadata_must_be_sent_from_app", "metadata_too_large"]
)
async def test_a_message_whose_metadata_are_refused_is_posted_whole_without_them(
    world: World, code: str
) -> None:
    world.slack.faults.next("chat.postMessage", _refusal(code))
    await world.after(_submits(world), minutes=5)

    card, reply = _card_and_reply(world)
    assert card.blocks
    assert reply.blocks
    carried = ["metadata" in call.arguments for call in world.calls("chat.postMessage")]
    assert carried == [True, False, True], "the others can be found if their answer is lost"


@pytest.mark.parametrize(
    "fault",
    [
        Reset(done=True),
        CannedResponse(429, {"ok": False, "error": "ratelimited"}, {"Retry-After": "30"}),
        _refusal("invalid_blocks"),
        _refusal("moon_phase_wrong"),
        _refusal("metadata_too_large"),
    ],
)
async def test_a_failed_edit_is_repeated_until_it_succeeds(world: World, fault: Fault) -> None:
    await _submits(world)
    world.slack.faults.next("chat.update", fault, fault)

    await world.advance(minutes=10)

    _card_and_reply(world)


@pytest.mark.parametrize("code", ["moon_phase_wrong", "error_42"])
async def test_an_edit_that_is_refused_for_an_unknown_reason_is_given_up_with_an_error(
    world: World, caplog: pytest.LogCaptureFixture, code: str
) -> None:
    await world.after(_submits(world), seconds=5)
    [card] = world.posts()
    world.slack.faults.always("chat.update", _refusal(code))
    await world.advance(minutes=10)

    assert world.now(card) == card
    edits = len(world.calls("chat.update"))
    await world.advance(hours=5)
    assert len(world.calls("chat.update")) == edits
    given_up = [each for each in caplog.records if "an edit was given up" in each.message]
    assert {each.levelname for each in given_up} == {"ERROR"}


@on_both_engines
async def test_waiting_edits_collapse_into_the_newest(world: World) -> None:
    await _submits(world)
    before = len(world.calls("chat.update"))
    limit = CannedResponse(429, {"ok": False, "error": "ratelimited"}, {"Retry-After": "600"})
    world.slack.faults.next("chat.update", limit)

    await world.advance(minutes=20)

    assert len(world.calls("chat.update")) - before == 2
    _card_and_reply(world)


async def test_a_deleted_card_does_not_hold_the_answer_back(world: World) -> None:
    await _submits(world)
    [card] = world.slack.messages("studio")
    world.slack.delete(card)

    await world.advance(minutes=5)

    [reply] = world.posts()
    assert reply.channel == world.slack.dm(world.ana.user.id).id
    assert "is ready" in reply.text
    calls = len(world.slack.calls)
    await world.advance(days=1)
    assert len(world.slack.calls) == calls


async def test_an_edit_that_slack_does_late_does_not_undo_the_next_one(world: World) -> None:
    world.creates_slowly()
    await world.request_video(world.ana)
    world.slack.faults.next("chat.update", LateCommit(timedelta(seconds=10)))
    await world.advance(seconds=2)
    [video_id] = world.service.videos
    world.service.finish(video_id)
    await world.advance(minutes=5)
    [card] = world.slack.messages("studio")
    assert "Ready" in card.text


JOBS = 40


async def _requests(paced: World, channel: str = "studio", script: str = "Hello.") -> None:
    form = await paced.open_form(paced.ana, channel=channel)
    await form.send({"replica_id": REPLICA, "script": script})


async def _requests_many(paced: World) -> None:
    """Request videos, none of which is ready before all of them are requested."""
    for number in range(JOBS):
        await _requests(paced, script=f"Number {number}.")
    await paced.settle()


def _refused(calls: list[Call]) -> list[Call]:
    return [call for call in calls if not call.ok]


@pytest.fixture
def paced(world: World) -> World:
    world.slack.rate_limits = True
    return world


async def test_after_a_refusal_posts_follow_one_at_a_time_and_in_order(paced: World) -> None:
    await _requests_many(paced)
    first = len(_refused(paced.calls("chat.postMessage")))

    await paced.advance(minutes=10)

    calls = paced.calls("chat.postMessage")
    assert len(paced.posts()) == 2 * JOBS
    assert first <= 8, "only a few posts are made at once into one channel"
    assert len(_refused(calls)) * 10 < len(paced.posts())
    texts = [message.text for message in paced.slack.messages("studio")]
    late = [text.partition("Number ")[2].partition(".")[0] for text in texts][8:]
    assert late == sorted(late, key=int)


async def test_a_held_back_edit_holds_back_all_edits_and_no_post(paced: World) -> None:
    limit = CannedResponse(429, {"ok": False, "error": "ratelimited"}, {"Retry-After": "30"})
    paced.slack.faults.next("chat.update", limit)
    paced.creates_slowly()
    await _requests(paced)
    await paced.advance(seconds=2)
    assert len(paced.calls("chat.update")) == 1

    paced.creates_slowly()
    await _requests(paced, "lobby")
    await paced.advance(seconds=29)
    assert len(paced.calls("chat.update")) == 1, "the other channel's card waits too"
    assert len(paced.slack.messages("lobby")) == 1

    await paced.advance(seconds=1.1)
    assert len(paced.calls("chat.update")) == 2, "one call shows whether the limit is over"
    await paced.advance(minutes=5)
    assert "Ready" in paced.slack.messages("studio")[0].text
    assert "Ready" in paced.slack.messages("lobby")[0].text
