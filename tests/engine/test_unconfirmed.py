"""A create call whose answer was lost: no job is paid for twice, and each gets an answer."""

import asyncio
import json
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from bot.kinds import Kind
from bot.timings import Timings
from sandbox.driver import Modal
from sandbox.faults import CannedResponse, Fault, LateCommit, Reset
from sandbox.scenarios import CallbackPlan, Echo, Scenario
from sandbox.service_limits import RateLimit
from sandbox.slack_objects import Message
from sandbox.video_service import Operation
from tests.modes import on_both_engines
from tests.world import REPLICA, World, number_of

AGAIN = "Create again"
SILENT = CallbackPlan(times=0)


async def _gives_id(world: World, card: Message, remote_id: str, *, warned: bool = False) -> Modal:
    """Type an id; ``warned``: it cannot be verified, and the warning is confirmed."""
    await world.ana.click(world.question(card), "I found it")
    form = world.ana.form
    await form.submit({"remote_id": remote_id})
    if warned:
        assert "I can't tell" in str(form.view.body)
        await form.submit({})
    await world.settle()
    return form


async def _until_created(world: World, form: Modal) -> None:
    """Send a form off, and return while the service's answer is still on its way."""
    created, never = asyncio.Event(), asyncio.Event()

    async def hold_back(when: str, operation: str, _: str) -> None:
        if (when, operation) == ("after", "create_video"):
            created.set()
            await never.wait()

    world.service.on_request = hold_back
    await form.submit({"replica_id": REPLICA, "script": "Hello, world."})
    await created.wait()
    world.service.on_request = None


@pytest.mark.parametrize(
    "fault",
    [
        Reset(done=True),
        CannedResponse(200, {"status": "queued"}, done=True),
        LateCommit(timedelta(seconds=40)),
    ],
)
async def test_a_lost_create_answer_is_reconciled_by_a_callback(world: World, fault: Fault) -> None:
    world.service.faults.next("create_video", fault)
    card = await world.request_video(world.ana)
    assert "Checking" in world.now(card).text

    await world.advance(minutes=5)

    [reply] = world.replies(card)
    assert "is ready" in reply.text
    assert world.posts() == [world.now(card), reply]
    assert len(world.requests_for("create_video")) == 1
    assert not world.ephemerals(world.ana), "no question was needed"


@on_both_engines
async def test_a_callback_cannot_claim_the_video_of_another_job(world: World) -> None:
    asking = await world.loses_create(made=False)
    theirs = await world.after(world.request_video(world.ben), minutes=5)
    [video_id] = world.service.videos
    assert len(world.replies(theirs)) == 1

    await world.after(_calls_back(world, 0, video_id), minutes=5)

    assert world.now(asking) == asking
    assert not world.replies(asking)
    assert len(world.replies(theirs)) == 1


async def test_a_callback_that_names_a_video_with_another_script_is_ignored(world: World) -> None:
    asking = await world.loses_create(made=False)
    other = await world.make_by_hand("Something else.")

    await world.after(_calls_back(world, 0, other), minutes=5)

    assert world.now(asking) == asking
    assert not world.replies(asking)


async def test_a_callback_clears_up_a_create_answer_that_named_the_video_of_another_job(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.request_video(world.ben)
    [taken] = world.service.videos
    world.service.faults.next("create_video", CannedResponse(200, {"video_id": taken}, done=True))

    card = await world.request_video(world.ana)
    assert "Checking" in world.now(card).text
    await world.advance(minutes=5)

    assert "is ready" in world.replies(card)[0].text
    assert not world.ephemerals(world.ana), "no question was needed"
    assert "a create call was interrupted" not in caplog.messages
    assert "what a create call made could not be bound to it" in caplog.messages


async def test_the_person_is_asked_when_nothing_is_known_of_a_create_call(world: World) -> None:
    world.service.faults.next("create_video", Reset())
    card = await world.after(world.request_video(world.ana), minutes=14)
    assert "Checking" in world.now(card).text
    assert not world.questions(card)

    await world.advance(minutes=2)

    assert "Needs an answer" in world.now(card).text
    assert world.posts() == [world.now(card), world.question(card)]
    assert len(world.requests_for("create_video")) == 1


async def test_a_wrong_id_is_refused_under_its_field(world: World) -> None:
    asking = await world.loses_create(made=False)
    theirs = await world.request_video(world.ben)
    [taken] = world.service.videos
    other = await world.make_by_hand("Something else.")

    form = await _gives_id(world, asking, other)
    assert "isn't the right one" in form.errors["remote_id"]
    for wrong, sentence in (
        (taken, f"belongs to request {number_of(theirs)}"),
        ("v-nobody", "Invalid video_id"),
        ("two words", "only the ID"),
        ("  ", "only the ID"),
    ):
        await form.submit({"remote_id": wrong})
        assert sentence in form.errors["remote_id"]
        assert form.values["remote_id"] == wrong

    await world.advance(minutes=5)
    assert world.now(asking) == asking
    assert not world.replies(asking)
    assert len(world.replies(theirs)) == 1


async def test_an_id_that_cannot_be_read_now_is_checked_later(
    world: World, subtests: pytest.Subtests
) -> None:
    asking = await world.loses_create(made=True)
    [video_id] = world.service.videos
    for status in (401, 403, 422, 503):
        with subtests.test(status=status):
            world.service.faults.always("read_video", CannedResponse(status, {"message": "No"}))
            await world.ana.click(world.question(asking), "I found it")
            form = world.ana.form
            await form.submit({"remote_id": video_id})
            assert "I can't tell" in str(form.view.body)
    warned = world.ana.form
    await world.after(warned.send({}), minutes=1)
    assert not world.replies(asking)
    world.service.faults.clear()
    await world.advance(minutes=10)

    assert len(world.replies(asking)) == 1
    assert len(world.requests_for("create_video")) == 1


async def test_a_wrong_id_that_is_checked_later_is_not_adopted(world: World) -> None:
    asking = await world.loses_create(made=False)
    other = await world.make_by_hand("Something else.")
    world.service.down = True
    await _gives_id(world, asking, other, warned=True)
    world.service.down = False

    await world.advance(minutes=10)

    assert not world.replies(asking)
    assert "Needs an answer" in world.now(asking).text


async def test_an_id_from_the_person_does_not_replace_one_that_a_callback_named(
    world: World,
) -> None:
    asking = await world.loses_create(made=True)
    [video_id] = world.service.videos
    other = await world.make_by_hand("Something else.")
    world.service.down = True
    await _calls_back(world, 0, video_id)

    form = await _gives_id(world, asking, other, warned=True)
    assert "ID is being checked" in form.errors["remote_id"]
    await form.submit({"remote_id": video_id})
    await form.submit({})
    assert not form.is_open, "it is the same"
    world.service.down = False
    await world.advance(minutes=10)

    assert f"/watch/{video_id}" in world.reply(asking).text


async def test_create_again_warns_of_the_cost_and_makes_one_more_create_call(world: World) -> None:
    asking = await world.loses_create(made=False)

    answer = await world.ana.click(world.question(asking), AGAIN)
    assert answer.dialog is not None
    assert "you'll pay twice" in answer.dialog
    await world.advance(minutes=5)

    [reply] = world.replies(asking)
    assert "is ready" in reply.text
    first, second = (request.body for request in world.requests_for("create_video"))
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert first.pop("callback_url") != second.pop("callback_url")
    assert first == second
    assert world.posts() == [world.now(asking), *world.questions(asking), reply]


@on_both_engines
async def test_an_id_named_before_create_again_prevents_a_second_video(world: World) -> None:
    asking = await world.loses_create(made=True)
    [video_id] = world.service.videos
    world.service.down = True
    await world.after(world.service.call_back(video_id))
    world.service.down = False

    await world.after(world.ana.click(world.question(asking), AGAIN), minutes=5)

    assert len(world.replies(asking)) == 1
    assert len(world.requests_for("create_video")) == 1


@pytest.mark.parametrize("wait", [timedelta(seconds=30), timedelta(minutes=10)])
async def test_an_orphaned_video_of_an_earlier_attempt_is_shown_on_the_card(
    world: World, wait: timedelta
) -> None:
    asking = await world.loses_create(made=True)
    [first] = world.service.videos
    await world.ana.click(world.question(asking), AGAIN)
    await world.advance(seconds=wait.total_seconds())

    await world.after(world.service.call_back(first), minutes=10)

    [reply] = world.replies(asking)
    assert first not in reply.text
    card = world.now(asking)
    assert "An earlier try worked too. You may be charged" in card.text
    assert first in str(await world.details(world.ana, card))
    assert "Ready" in card.text
    assert world.posts() == [card, *world.questions(card), reply]
    await world.after(world.service.call_back(first), minutes=5)
    assert world.posts() == [card, *world.questions(card), reply]


async def test_a_video_found_after_its_request_was_cancelled_is_shown_on_the_card(
    world: World,
) -> None:
    asking = await world.loses_create(made=True)
    [video_id] = world.service.videos
    await world.after(world.ana.click(world.question(asking), "Cancel request"), minutes=1)

    await world.after(world.service.call_back(video_id), minutes=1)

    card = world.now(asking)
    assert video_id in str(await world.details(world.ana, card))
    assert len(world.replies(asking)) == 1
    assert len(world.posts()) == 3


async def _calls_back(world: World, attempt: int, video_id: str) -> None:
    creates = [each for each in world.service.requests if each.operation == "create_video"]
    body = creates[attempt].body
    assert isinstance(body, dict)
    async with world.slack.session.post(
        body["callback_url"], json={"video_id": video_id}
    ) as response:
        assert response.status == 200
    await world.settle()


async def test_an_unanswered_question_ends_the_job_and_creates_nothing(quiet: World) -> None:
    quarter = timedelta(minutes=15)
    quiet.timings = Timings(jitter=0, ask_again_after=quarter, close_after=2 * quarter)
    async with quiet.running_bot():
        asking = await quiet.after(quiet.loses_create(made=False), minutes=20)
        assert len(quiet.questions(asking)) == 2
        await quiet.advance(minutes=30)

    assert "No answer in a week." in quiet.reply(asking).text
    assert len(quiet.requests_for("create_video")) == 1


@on_both_engines
async def test_an_attempt_is_stored_before_its_create_call(quiet: World) -> None:
    quiet.timings = Timings(jitter=0, stop_timeout=timedelta(0))
    async with quiet.running_bot(callbacks=False):
        form = await quiet.open_form(quiet.ana)
        await _until_created(quiet, form)

    async with quiet.running_bot(callbacks=False):
        await quiet.advance(minutes=5)

    assert len(quiet.requests_for("create_video")) == 1
    [card, _] = quiet.posts()
    assert "Needs an answer" in card.text


async def _storm(world: World, moment: str) -> None:
    """Have every read accompanied by callbacks with the job's own token."""
    body = world.requests_for("create_video")[-1].body
    assert isinstance(body, dict)
    url, video_id = body["callback_url"], next(iter(world.service.videos))

    async def call_back(phase: str, operation: Operation, _: str) -> None:
        if (phase, operation) == (moment, "read_video"):
            for _each in range(2):
                async with world.slack.session.post(
                    url, data=json.dumps({"video_id": video_id})
                ) as answer:
                    assert answer.status == 200

    world.service.on_request = call_back


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_storm_of_callbacks_during_each_read_does_not_discard_what_was_read(
    world: World, moment: str
) -> None:
    world.service.next_video(
        Scenario(end="never", statuses=("queued", "polishing"), callback_plan=SILENT)
    )
    card = await world.request_video(world.ana)
    await _storm(world, moment)
    await world.service.call_back(next(iter(world.service.videos)))

    await world.advance(minutes=16)

    [job] = await world.bot.store.jobs.list_for_user(world.ana.user.id, "video", 9)
    assert job.snapshot is not None
    assert job.snapshot.status
    assert job.late
    assert "longer than usual" in world.now(card).text


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_storm_of_callbacks_does_not_keep_a_lost_video_from_being_found(
    world: World, moment: str
) -> None:
    world.service.next_video(Scenario(echo=Echo.NO_DATA, callback_plan=SILENT))
    world.service.faults.next("create_video", Reset(done=True))
    card = await world.request_video(world.ana)
    await _storm(world, moment)
    await world.after(world.service.call_back(next(iter(world.service.videos))))
    assert "Checking" not in world.now(card).text

    await world.advance(minutes=5)

    assert "is ready" in world.replies(card)[0].text
    assert world.created_count() == 1


async def test_a_callback_after_a_read_has_begun_leads_to_another_read(world: World) -> None:
    """The end came after the service had answered, and the callback before that was stored."""
    world.service.next_video(Scenario(end="never", callback_plan=SILENT))
    card = await world.after(world.request_video(world.ana), minutes=10)
    [video_id] = world.service.videos
    ended_at: datetime | None = None

    async def end(phase: str, operation: Operation, _: str) -> None:
        nonlocal ended_at
        if (phase, operation) == ("after", "read_video") and ended_at is None:
            ended_at = world.clock.now()
            world.service.finish(video_id)
            await world.service.call_back(video_id)

    world.service.on_request = end
    await world.advance(minutes=3)

    assert ended_at is not None
    assert "is ready" in world.replies(card)[0].text
    assert world.requests_for("read_video")[-1].at - ended_at <= timedelta(seconds=2)


@pytest.mark.parametrize("operation", ["create_video", "read_video"])
async def test_an_answer_that_asks_to_come_again_ends_no_job(world: World, operation: str) -> None:
    world.service.callback_plan = SILENT
    world.service.faults.next(operation, *[CannedResponse(408, {"error": "Not now"})] * 3)
    card = await world.after(world.request_video(world.ana), minutes=15)

    assert "is ready" in world.replies(card)[0].text
    assert world.created_count() == 1


HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
# The default of two weeks would only take longer.
ONE_DAY = Timings(jitter=0, minutes=replace(Timings().minutes, give_up_after=24 * HOUR))


async def _never_ends(world: World) -> Message:
    world.service.next_video(Scenario(end="never"))
    return await world.request_video(world.ana)


def _gaps(world: World) -> list[timedelta]:
    """Return the times between two reads."""
    return [later.at - earlier.at for earlier, later in pairwise(world.requests_for("read_video"))]


async def test_a_video_is_polled_less_often_the_older_it_is(world: World) -> None:
    await _never_ends(world)

    await world.advance(hours=2)

    gaps = _gaps(world)
    assert gaps == sorted(gaps)
    assert gaps[0] < timedelta(seconds=15)
    assert gaps[-1] == 2 * MINUTE
    assert len(gaps) < 90


async def test_an_overdue_video_is_polled_hourly_and_can_be_checked_at_once(world: World) -> None:
    card = await world.after(_never_ends(world), hours=3, minutes=5)
    overdue = world.now(card)
    assert "Overdue" in overdue.text
    before = len(world.requests_for("read_video"))
    await world.advance(hours=4)
    assert len(world.requests_for("read_video")) - before == 4

    await world.after(world.ana.click(overdue, "Check now"))

    assert len(world.requests_for("read_video")) - before == 5
    [shown] = world.ephemerals(world.ana)
    assert "Checking now" in shown
    assert world.posts() == [overdue]


async def test_a_video_that_never_ends_times_out(quiet: World) -> None:
    quiet.timings = ONE_DAY
    async with quiet.running_bot():
        card = await quiet.after(_never_ends(quiet), hours=23)
        assert not quiet.replies(card)

        await quiet.advance(hours=2)

        [reply] = quiet.replies(card)
        assert "didn't finish" in reply.text
        assert "Failed" in quiet.now(card).text
        assert quiet.posts() == [quiet.now(card), reply]
        reads = len(quiet.requests_for("read_video"))
        await quiet.advance(days=1)
        assert len(quiet.requests_for("read_video")) == reads


async def test_a_video_times_out_when_the_service_stays_unavailable(quiet: World) -> None:
    quiet.timings = replace(ONE_DAY, max_retry_interval=HOUR, recheck_down=HOUR)
    async with quiet.running_bot():
        card = await _never_ends(quiet)
        quiet.service.down = True
        await quiet.advance(minutes=2)
        assert "can't check this right now" in quiet.now(card).text
        await quiet.advance(days=1, hours=2)

    assert len(quiet.replies(card)) == 1


async def test_a_read_waits_as_long_as_the_service_asks(world: World) -> None:
    card = await world.request_video(world.ana)
    world.service.callback_plan = CallbackPlan(times=0)
    began = world.clock.now()
    wait = timedelta(minutes=7)
    world.service.rate_limited = RateLimit(began + wait, retry_after=wait)

    await world.advance(minutes=6)
    # The callback causes a read in between, which gives the same answer.
    reads = len(world.requests_for("read_video"))
    assert reads <= 2
    assert not world.replies(card)
    await world.advance(minutes=10)

    assert len(world.replies(card)) == 1
    assert len(world.requests_for("read_video")) == reads + 1


async def test_a_job_whose_step_failed_goes_on_when_its_lease_ends(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        monkeypatch.undo()
        raise LookupError

    world.service.callback_plan = CallbackPlan(times=0)
    card = await world.request_video(world.ana)
    monkeypatch.setattr(Kind, "read", fails)
    await world.advance(minutes=5)

    assert "a step failed" in caplog.messages
    assert "is ready" in world.reply(card).text
