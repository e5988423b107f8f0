"""Requests go before background work."""

import asyncio
from datetime import timedelta

from tests.world import REPLICA, World

LONG = timedelta(minutes=1)
SHORT = timedelta(milliseconds=50)


async def submit_video(world: World) -> None:
    form = await world.open_form(world.ana)
    await form.submit({"replica_id": REPLICA, "script": "Hello."})
    assert not form.is_open


async def test_nothing_is_created_or_posted_while_requests_follow_each_other(
    quiet_world: World,
) -> None:
    world = quiet_world
    world.pauses = {"request_pause": LONG, "max_request_delay": LONG}
    async with world.running_bot() as bot:
        await submit_video(world)
        for _ in range(50):
            assert (await world.ben.command("/video", "help")).ok
        assert (world.created_count(), world.posts()) == (0, [])
        found = await bot.store.jobs.list_for_user(world.ana.user.id, "video", 1)
        assert [job.attempts for job in found] == [0]


async def test_a_stop_does_not_wait_until_no_more_requests_come(quiet_world: World) -> None:
    world = quiet_world
    world.pauses = {"request_pause": LONG, "max_request_delay": LONG}
    async with asyncio.timeout(LONG.total_seconds() / 2), world.running_bot():
        await submit_video(world)
        # The worker wakes up for the job, and waits.
        await asyncio.sleep(0)


async def test_requests_delay_background_work_only_for_a_while(quiet_world: World) -> None:
    world = quiet_world
    world.pauses = {"request_pause": LONG, "max_request_delay": SHORT}
    async with world.running_bot():
        await submit_video(world)
        await world.settle()
        assert (world.created_count(), len(world.posts())) == (1, 1)


async def test_a_request_that_waits_for_slack_delays_nothing(quiet_world: World) -> None:
    world = quiet_world
    world.pauses = {"request_pause": SHORT, "max_request_delay": LONG}
    opening, released = asyncio.Event(), asyncio.Event()

    async def hold(when: str, method: str, _: object) -> None:
        if (when, method) == ("before", "views.open") and world.ben.modal is None:
            opening.set()
            await released.wait()

    async with world.running_bot():
        form = await world.open_form(world.ana)
        world.slack.on_request = hold
        waiting = asyncio.ensure_future(world.ben.command("/video"))  # noqa: TID251 - awaited
        await opening.wait()
        await form.submit({"replica_id": REPLICA, "script": "Hello."})
        await world.settle()
        assert (world.created_count(), len(world.posts())) == (1, 1)
        released.set()
        await waiting
