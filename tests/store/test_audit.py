"""The audit: who did what, stored with what it does, and forgotten as jobs are."""

from typing import Final

from bot.store.database import Query
from sandbox.faults import Reset
from sandbox.scenarios import CallbackPlan, Scenario
from sandbox.slack_objects import Message
from tests.modes import on_both_engines, on_sqlite_alone
from tests.world import World, number_of

AGAIN: Final = "Create again"


def audit(world: World) -> list[tuple[str, str, str, str, str]]:
    """Return who did what: action, person, job, kind and detail."""
    rows = world.query("SELECT * FROM audit ORDER BY at, id")
    people = {each.user.id: each.user.name for each in (world.ana, world.ben)}
    return [
        (row["action"], people[row["user_id"]], row["job_id"], row["kind"], row["detail"])
        for row in rows
    ]


async def lost(world: World, script: str) -> Message:
    """Return the card of a video whose create call has no answer, and has made one."""
    world.service.callback_plan = CallbackPlan(times=0)
    world.service.faults.next("create_video", Reset(done=True))
    card = await world.request_video(world.ana, {"script": script})
    await world.advance(minutes=16)
    return world.now(card)


@on_both_engines
async def test_all_that_people_do_is_recorded_once_and_forgotten_in_time(
    quiet_world: World,
) -> None:
    world = quiet_world
    ana, ben = world.ana.user.name, world.ben.user.name
    async with world.running_bot(ADMIN_USERS=world.ben.user.id, RETENTION_DAYS="30"):
        world.service.next_video(Scenario(end="error", reason="The replica is shy."))
        first = await world.request_video(world.ana, {"script": "One."})
        await world.advance(minutes=5)
        await world.ana.click(world.now(first), "Edit and retry")
        assert world.ana.modal is not None
        await world.ana.modal.submit({"script": "Two."})
        await world.settle()
        assert audit(world) == [], "their rows say who asked for them"

        # What a person does about a create call without an answer, each twice: it counts once.
        asking = await lost(world, "Three.")
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
        await world.ana.modal.submit({"remote_id": made})
        await world.settle()
        cancelled = await lost(world, "Four.")
        question = world.question(cancelled)
        for _ in range(2):
            await world.ana.click(question, "Cancel request")
        stopped = await world.request_video(world.ana, {"script": "Five."})
        await world.advance(seconds=30)
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
    card = await world.request_video(world.ana)
    await world.advance(seconds=30)
    refusal = "BEFORE INSERT ON main.audit BEGIN SELECT RAISE(ABORT, 'no room'); END"
    await world.bot.store.database.run(
        lambda tx: tx.all(Query(f"CREATE TEMP TRIGGER refusal {refusal}"))
    )

    await world.ana.click(world.now(card), "Stop waiting")
    await world.settle()

    assert [job["state"] for job in world.query("SELECT state FROM jobs")] == ["running"]
    await world.advance(minutes=10)
    assert "is ready" in world.replies(card)[0].text
