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
    quiet_world: World,
) -> None:
    world = quiet_world
    world.service.faults.always("create_video", BUSY)
    async with world.running_bot(MAX_PER_USER_PER_DAY="1"):
        await world.request_video(world.ana)
        await world.after(world.request_video(world.ben), hours=1)
        world.clock.set(world.clock.now() + timedelta(hours=15))
        await world.settle()
        assert used(world) == {TODAY: 2, MONTH: 2}
        world.service.faults.clear()
        world.service.faults.next("create_video", REFUSAL)
        world.clock.set(world.clock.now() + timedelta(hours=1))
        await world.settle()
        await world.advance(minutes=10)
        ended = [each for each in (world.ana, world.ben) if not used(world, each.user.id)]
        assert len(ended) == 1, "the one that was refused"
        assert used(world) == {TODAY: 1, MONTH: 1}
        await world.request_video(ended[0])
        assert used(world) == {TODAY: 1, TOMORROW: 1, MONTH: 2}


@on_both_engines
async def test_what_a_limit_refuses_is_not_counted(quiet_world: World) -> None:
    world = quiet_world
    async with world.running_bot(MAX_OPEN_PER_USER="1"):
        await world.request_video(world.ana)
    async with world.running_bot(MAX_OPEN_PER_USER="1"):  # which remembers nobody's requests
        form = await world.open_form(world.ana)
        await form.submit(VALUES)
        assert form.errors
        assert used(world) == {TODAY: 1, MONTH: 1}


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
    quiet_world: World, answer: int
) -> None:
    world = quiet_world
    world.service.callback_plan = CallbackPlan(times=0)
    world.service.faults.next("create_video", CannedResponse(answer, {"message": "no"}, done=True))
    world.service.faults.always("create_video", BUSY)
    async with world.running_bot():
        await world.request_video(world.ana)
        assert used(world) == ({} if answer == 400 else {TODAY: 1, MONTH: 1})
        await world.after(calls_back(world), minutes=20)
        assert used(world) == {TODAY: 1, MONTH: 1}


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


async def test_what_was_never_sent_is_given_back(quiet_world: World) -> None:
    world = quiet_world
    world.service.faults.always("create_video", BUSY)
    async with world.running_bot():
        await world.request_video(world.ana, {"script": "Words " * 300})
        assert used(world) == {TODAY: 1, MONTH: 1}
        world.clock.set(world.clock.now() + timedelta(days=2))
        await world.settle()
        await world.advance(minutes=2)
        assert used(world) == {}
        assert world.query("SELECT DISTINCT spoken_ms FROM usage") == [{"spoken_ms": 0}]


def audit(world: World) -> list[tuple[str, str, str, str, str]]:
    """Return who did what: action, person, job, kind and detail."""
    rows = world.query("SELECT * FROM audit ORDER BY at, id")
    people = {each.user.id: each.user.name for each in (world.ana, world.ben)}
    return [
        (row["action"], people[row["user_id"]], row["job_id"], row["kind"], row["detail"])
        for row in rows
    ]


@on_both_engines
async def test_all_that_people_do_is_recorded_once_and_forgotten_in_time(
    quiet_world: World,
) -> None:
    world = quiet_world
    ana, ben = world.ana.user.name, world.ben.user.name
    async with world.running_bot(ADMIN_USERS=world.ben.user.id, RETENTION_DAYS="30"):
        world.service.next_video(Scenario(end="error", reason="The replica is shy."))
        first = await world.after(world.request_video(world.ana, {"script": "One."}), minutes=5)
        await world.ana.click(world.now(first), "Edit and retry")
        assert world.ana.modal is not None
        await world.after(world.ana.modal.submit({"script": "Two."}))
        assert audit(world) == [], "their rows say who asked for them"

        # What a person does about a create call without an answer, each twice: it counts once.
        asking = await world.loses_create(script="Three.")
        question = world.question(asking)
        world.service.faults.next("create_video", Reset(done=True))
        for _ in range(2):
            await world.ben.click(question, AGAIN)
        await world.advance(minutes=16)
        [made, _] = [
            each.video_id for each in world.service.videos.values() if each.script == "Three."
        ]
        await world.ana.click(world.question(asking), "I found it")
        assert world.ana.modal is not None
        await world.after(world.ana.modal.submit({"remote_id": made}))
        cancelled = await world.loses_create(script="Four.")
        question = world.question(cancelled)
        for _ in range(2):
            await world.ana.click(question, "Cancel request")
        stopped = await world.after(world.request_video(world.ana, {"script": "Five."}), seconds=30)
        for _ in range(2):
            await world.ben.click(world.now(stopped), "Stop waiting")
        expected = [
            ("created_again", ben, number_of(asking), "video", ""),
            ("found", ana, number_of(asking), "video", made),
            ("cancelled", ana, number_of(cancelled), "video", ""),
            ("stopped", ben, number_of(stopped), "video", ""),
        ]
        assert audit(world) == expected

        await world.advance(minutes=10)
        assert audit(world) == expected
        assert "Five." not in str(audit(world))

    await world.advance(days=31)
    async with world.running_bot(RETENTION_DAYS="30"):
        await world.settle()
        assert audit(world) == [(*row[:4], "") for row in expected]
    await world.advance(days=90)
    async with world.running_bot(RETENTION_DAYS="30"):
        await world.settle()
        assert audit(world) == []


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
