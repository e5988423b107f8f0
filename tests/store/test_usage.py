"""What is counted: in the day in which it was asked for, and given back there, once."""

from datetime import timedelta
from typing import Final

import pytest

from bot.store.database import Query
from sandbox.faults import CannedResponse, Reset
from sandbox.scenarios import CallbackPlan, Scenario
from tests.databases import usage_differences_in
from tests.journeys.test_limits import BUSY, VALUES
from tests.modes import on_both_engines, on_sqlite_alone
from tests.world import World, number_of

AGAIN: Final = "Create again"
REFUSAL = CannedResponse(400, {"message": "no"})
TODAY, TOMORROW, MONTH = "2026-03-02", "2026-03-03", "2026-03"


def used(world: World, who: str = "") -> dict[str, int]:
    """Return how much is counted of a person, or of all, by day and month."""
    assert usage_differences_in(world.address) == []
    rows = world.query("SELECT period, videos + trainings AS n FROM usage WHERE who = :w", w=who)
    return {row["period"]: row["n"] for row in rows if row["n"]}


async def calls_back(world: World) -> None:
    """Have the service say what the first create call has made."""
    await world.after(world.service.call_back(next(iter(world.service.videos))))


@on_both_engines
async def test_what_was_counted_yesterday_and_is_refused_today_is_given_back_yesterday(
    quiet: World,
) -> None:
    quiet.service.faults.always("create_video", BUSY)
    async with quiet.running_bot(MAX_PER_USER_PER_DAY="1"):
        await quiet.request_video(quiet.ana)
        await quiet.after(quiet.request_video(quiet.ben), hours=1)
        quiet.clock.set(quiet.clock.now() + timedelta(hours=15))
        await quiet.settle()
        assert used(quiet) == {TODAY: 2, MONTH: 2}
        quiet.service.faults.clear()
        quiet.service.faults.next("create_video", REFUSAL)
        quiet.clock.set(quiet.clock.now() + timedelta(hours=1))
        await quiet.settle()
        await quiet.advance(minutes=10)
        ended = [each for each in (quiet.ana, quiet.ben) if not used(quiet, each.user.id)]
        assert len(ended) == 1, "the one that was refused"
        assert used(quiet) == {TODAY: 1, MONTH: 1}
        await quiet.request_video(ended[0])
        assert used(quiet) == {TODAY: 1, TOMORROW: 1, MONTH: 2}


@on_both_engines
async def test_what_a_limit_refuses_is_not_counted(quiet: World) -> None:
    async with quiet.running_bot(MAX_OPEN_PER_USER="1"):
        await quiet.request_video(quiet.ana)
    async with quiet.running_bot(MAX_OPEN_PER_USER="1"):  # which remembers nobody's requests
        form = await quiet.submit_form(quiet.ana, VALUES)
        assert form.errors
        assert used(quiet) == {TODAY: 1, MONTH: 1}


@on_both_engines
async def test_create_again_counts_again_and_is_given_back_alone(world: World) -> None:
    card = await world.loses_create()
    world.clock.set(world.clock.now() + timedelta(hours=16))
    await world.settle()
    assert used(world) == {TODAY: 1, MONTH: 1}
    world.service.faults.next("create_video", REFUSAL)
    await world.after(world.ana.click(world.question(card), AGAIN))
    assert world.replies(card)
    assert used(world) == {TODAY: 1, MONTH: 1}, "the first call may have cost money"
    assert used(world, world.ana.user.id) == {TODAY: 1, MONTH: 1}


@on_both_engines
async def test_what_an_earlier_call_has_made_gives_back_the_count_of_the_next(world: World) -> None:
    card = await world.loses_create()
    world.service.faults.always("create_video", BUSY)
    world.clock.set(world.clock.now() + timedelta(hours=16))
    await world.settle()
    await world.after(world.ana.click(world.question(card), AGAIN))
    assert used(world) == {TODAY: 1, TOMORROW: 1, MONTH: 2}
    await world.after(calls_back(world), minutes=20)
    assert "is ready" in world.replies(card)[-1].text
    assert used(world) == {TODAY: 1, MONTH: 1}


@pytest.mark.parametrize("answer", [429, 400])
async def test_a_call_that_made_something_counts_although_its_answer_said_that_it_had_not(
    quiet: World, answer: int
) -> None:
    quiet.service.callback_plan = CallbackPlan(times=0)
    quiet.service.faults.next("create_video", CannedResponse(answer, {"message": "no"}, done=True))
    quiet.service.faults.always("create_video", BUSY)
    async with quiet.running_bot():
        await quiet.request_video(quiet.ana)
        assert used(quiet) == ({} if answer == 400 else {TODAY: 1, MONTH: 1})
        await quiet.after(calls_back(quiet), minutes=20)
        assert used(quiet) == {TODAY: 1, MONTH: 1}


@on_both_engines
async def test_a_request_that_may_have_cost_money_keeps_counting_whoever_ends_it(
    world: World,
) -> None:
    cancelled = await world.loses_create()
    await world.ana.click(world.question(cancelled), "Cancel request")
    await world.loses_create()
    stopped = await world.after(world.request_video(world.ana), seconds=30)
    await world.ana.click(world.now(stopped), "Stop waiting")
    for _ in range(3):  # nobody answers the question, which is asked again
        world.clock.set(world.clock.now() + timedelta(days=4))
        await world.settle()
    await world.advance(minutes=2)
    assert {row["state"] for row in world.query("SELECT state FROM jobs")} == {"failed"}
    assert used(world) == {MONTH: 3}, "days are forgotten"


async def test_what_was_never_sent_is_given_back(quiet: World) -> None:
    quiet.service.faults.always("create_video", BUSY)
    async with quiet.running_bot():
        await quiet.request_video(quiet.ana, {"script": "Words " * 300})
        assert used(quiet) == {TODAY: 1, MONTH: 1}
        quiet.clock.set(quiet.clock.now() + timedelta(days=2))
        await quiet.settle()
        await quiet.advance(minutes=2)
        assert used(quiet) == {}
        assert quiet.query("SELECT DISTINCT spoken_ms FROM usage") == [{"spoken_ms": 0}]


def audit(world: World) -> list[tuple[str, str, str, str, str]]:
    """Return who did what: action, person, job, kind and detail."""
    rows = world.query("SELECT * FROM audit ORDER BY at, id")
    people = {each.user.id: each.user.name for each in (world.ana, world.ben)}
    return [
        (row["action"], people[row["user_id"]], row["job_id"], row["kind"], row["detail"])
        for row in rows
    ]


@on_both_engines
async def test_all_that_people_do_is_recorded_once_and_forgotten_in_time(quiet: World) -> None:
    ana, ben = quiet.ana.user.name, quiet.ben.user.name
    async with quiet.running_bot(ADMIN_USERS=quiet.ben.user.id, RETENTION_DAYS="30"):
        quiet.service.next_video(Scenario(end="error", reason="The replica is shy."))
        first = await quiet.after(quiet.request_video(quiet.ana, {"script": "One."}), minutes=5)
        await quiet.ana.click(quiet.now(first), "Edit and retry")
        assert quiet.ana.modal is not None
        await quiet.after(quiet.ana.modal.submit({"script": "Two."}))
        assert audit(quiet) == [], "their rows say who asked for them"

        # What a person does about a create call without an answer, each twice: it counts once.
        asking = await quiet.loses_create(script="Three.")
        question = quiet.question(asking)
        quiet.service.faults.next("create_video", Reset(done=True))
        for _ in range(2):
            await quiet.ben.click(question, AGAIN)
        await quiet.advance(minutes=16)
        [made, _] = [
            each.video_id for each in quiet.service.videos.values() if each.script == "Three."
        ]
        await quiet.ana.click(quiet.question(asking), "I found it")
        assert quiet.ana.modal is not None
        await quiet.after(quiet.ana.modal.submit({"remote_id": made}))
        cancelled = await quiet.loses_create(script="Four.")
        question = quiet.question(cancelled)
        for _ in range(2):
            await quiet.ana.click(question, "Cancel request")
        stopped = await quiet.after(quiet.request_video(quiet.ana, {"script": "Five."}), seconds=30)
        for _ in range(2):
            await quiet.ben.click(quiet.now(stopped), "Stop waiting")
        expected = [
            ("created_again", ben, number_of(asking), "video", ""),
            ("found", ana, number_of(asking), "video", made),
            ("cancelled", ana, number_of(cancelled), "video", ""),
            ("stopped", ben, number_of(stopped), "video", ""),
        ]
        assert audit(quiet) == expected

        await quiet.advance(minutes=10)
        assert audit(quiet) == expected
        assert "Five." not in str(audit(quiet))

    await quiet.advance(days=31)
    async with quiet.running_bot(RETENTION_DAYS="30"):
        await quiet.settle()
        assert audit(quiet) == [(*row[:4], "") for row in expected]
    await quiet.advance(days=90)
    async with quiet.running_bot(RETENTION_DAYS="30"):
        await quiet.settle()
        assert audit(quiet) == []


@on_sqlite_alone
async def test_what_cannot_be_recorded_is_not_done(world: World) -> None:
    card = await world.after(world.request_video(world.ana), seconds=30)
    refusal = "BEFORE INSERT ON main.audit BEGIN SELECT RAISE(ABORT, 'no room'); END"
    await world.bot.store.database.run(
        lambda tx: tx.all(Query(f"CREATE TEMP TRIGGER refusal {refusal}"))
    )

    await world.after(world.ana.click(world.now(card), "Stop waiting"))

    assert [job["state"] for job in world.query("SELECT state FROM jobs")] == ["running"]
    await world.advance(minutes=10)
    assert "is ready" in world.replies(card)[0].text
