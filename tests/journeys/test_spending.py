"""What people had created, by month: as limits count it, and after everything else is deleted."""

from datetime import datetime, timedelta

from bot.store import MonthSpending, PersonSpending
from sandbox.faults import CannedResponse, Reset
from sandbox.scenarios import CallbackPlan
from tests.modes import on_both_engines
from tests.world import World

MINUTE = " ".join(["word"] * 150)


async def spent(world: World, moment: datetime) -> MonthSpending:
    return await world.bot.store.limits.fetch_spending(moment)


@on_both_engines
async def test_sums_count_what_may_have_cost_money_and_outlive_the_jobs(
    quiet_world: World,
) -> None:
    world = quiet_world
    begun = world.clock.now()
    ana, ben = world.ana.user.id, world.ben.user.id
    async with world.running_bot():
        await world.request_video(world.ana, {"script": f"{MINUTE} {MINUTE}"})
        await world.request_replica(world.ben)
        await world.advance(minutes=5)
        # One that the service refuses costs nothing; one without an answer may have.
        world.service.faults.next("create_video", CannedResponse(400, {"error": "no"}))
        await world.request_video(world.ana, {"script": "Refused."})
        await world.advance(minutes=5)
        world.service.callback_plan = CallbackPlan(times=0)
        world.service.faults.next("create_video", Reset(done=True))
        asking = await world.request_video(world.ana, {"script": MINUTE})
        await world.advance(minutes=16)
        await world.ana.click(world.question(asking), "Create again")
        await world.advance(minutes=5)
        expected = [
            PersonSpending(ana, 3, 0, timedelta(minutes=4)),
            PersonSpending(ben, 0, 1, timedelta(0)),
        ]
        sums = await spent(world, begun)
        assert sums.people == expected
        assert sums.total == PersonSpending("", 3, 1, timedelta(minutes=4))
        assert sums.since == begun.replace(day=1, hour=0, minute=0, second=0, microsecond=0)

        later = begun + timedelta(days=31)
        assert (await spent(world, later)).people == []
    await world.advance(days=31)
    async with world.running_bot():
        await world.request_video(world.ben, {"script": MINUTE})
        await world.advance(minutes=5)
        next_month = [PersonSpending(ben, 1, 0, timedelta(minutes=1))]
        assert (await spent(world, later)).people == next_month

    await world.advance(days=400)
    for _ in range(2):  # nothing is counted twice
        async with world.running_bot():
            await world.settle()
            assert world.query("SELECT id FROM jobs") == []
            assert world.query("SELECT id FROM attempts") == []
            assert (await spent(world, begun)).people == expected
            assert (await spent(world, later)).people == next_month
