"""Requests go before background work."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.engine.test_turns import MANY, held_back, send_many
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


@contextlib.asynccontextmanager
async def requests_waiting(world: World, count: int) -> AsyncIterator[None]:
    """Have requests of Ben's wait for an answer meanwhile: Slack opens no form for them."""
    waiting, all_wait, released = 0, asyncio.Event(), asyncio.Event()

    async def hold(when: str, method: str, _: object) -> None:
        nonlocal waiting
        if (when, method) == ("before", "views.open"):
            waiting += 1
            if waiting == count:
                all_wait.set()
            await released.wait()

    world.slack.on_request = hold
    requests = asyncio.gather(*(world.ben.command("/video") for _ in range(count)))
    try:
        await all_wait.wait()
        yield
    finally:
        released.set()
        await requests
        world.slack.on_request = None


async def test_a_request_that_waits_for_slack_delays_others_work_only_for_a_while(
    quiet_world: World,
) -> None:
    world = quiet_world
    world.pauses = {"request_pause": LONG, "max_request_delay": SHORT}
    async with world.running_bot():
        form = await world.open_form(world.ana)
        async with requests_waiting(world, 1):
            await form.submit({"replica_id": REPLICA, "script": "Hello."})
            await world.settle()
            assert (world.created_count(), len(world.posts())) == (1, 1)


@pytest.mark.parametrize(("requests", "begun"), [(1, 16), (2, 8), (40, 4)])
async def test_the_more_requests_wait_the_fewer_steps_begin_at_a_time(
    requests: int, begun: int, quiet_world: World
) -> None:
    world = quiet_world
    world.timings = replace(world.timings, view_timeout=LONG)
    # From one claim to the next, while requests wait.
    world.pauses = {"request_pause": SHORT, "max_request_delay": timedelta(seconds=2)}
    async with world.running_bot(callbacks=False):
        await send_many(world, world.ana)
        await world.settle()
        async with requests_waiting(world, requests):
            with held_back(world, "read_video") as gate:
                world.clock.set(world.clock.now() + timedelta(minutes=1))
                await gate.until("read_video", begun)
                assert (await world.ana.command("/video", "help")).ok
                assert gate.arrived["read_video"] == begun
        await world.settle()


async def test_however_many_requests_wait_all_work_is_done(quiet_world: World) -> None:
    world = quiet_world
    world.timings = replace(world.timings, view_timeout=LONG)
    world.pauses = {"request_pause": LONG, "max_request_delay": timedelta(milliseconds=5)}
    async with world.running_bot(callbacks=False):
        await send_many(world, world.ana)
        async with requests_waiting(world, 70):
            await world.settle()
            assert (world.created_count(), len(world.posts())) == (MANY, MANY)
