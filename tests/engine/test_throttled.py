"""A service that answers 429 for one id: only its own requests go behind those of others."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from bot.model import Request
from sandbox.driver import Person
from sandbox.scenarios import CallbackPlan
from sandbox.slack_objects import Message
from tests.world import REPLICA, World

ODD = "r-odd"


@pytest.fixture
async def odd(quiet_world: World) -> World:
    """A world with the default jitter, in which creates with one replica are throttled."""
    world = quiet_world
    world.service.add_replica(ODD, "Odd")
    world.service.callback_plan = CallbackPlan(times=0)
    world.timings = replace(world.timings, jitter=0.1)
    return world


async def ask(world: World, person: Person, replica_id: str) -> Message:
    """Ask for a video, and return its card."""
    return await world.request_video(person, {"replica_id": replica_id})


async def send_at_once(world: World, person: Person, count: int) -> None:
    """Have several requests stored before the first of them is tried."""
    channel, now = world.slack.channel("studio").id, world.clock.now()
    params = {"replica_id": ODD, "script": "Me"}
    requests = [Request(f"V{n}", "video", params, person.user.id, channel) for n in range(count)]
    await asyncio.gather(*(world.bot.store.jobs.submit(each, now) for each in requests))
    await world.settle()


@pytest.mark.parametrize("wait", [timedelta(seconds=30), timedelta(hours=1), timedelta(hours=5)])
async def test_the_next_try_after_a_rate_limit_is_that_of_another_person(
    odd: World, wait: timedelta
) -> None:
    world = odd
    world.service.limits.throttled[ODD] = wait
    async with world.running_bot():
        for _ in range(3):
            await ask(world, world.ana, ODD)
        await world.advance(seconds=1)
        await ask(world, world.ben, REPLICA)
        await world.advance(seconds=wait.total_seconds() + 1)
        assert world.created_count() == 1


async def test_one_persons_throttled_requests_do_not_go_before_a_later_one_of_somebody_else(
    odd: World,
) -> None:
    world = odd
    world.service.limits.throttled[ODD] = timedelta(hours=1)
    async with world.running_bot():
        # All at once: the turns of those that were not tried yet come before Ben's.
        await send_at_once(world, world.ana, 10)
        await world.advance(minutes=55)
        await ask(world, world.ben, REPLICA)
        await world.advance(minutes=6)
        assert world.created_count() == 1


async def test_a_throttled_read_does_not_go_before_all_others_for_ever(odd: World) -> None:
    world = odd
    async with world.running_bot(callbacks=False):
        await ask(world, world.ana, REPLICA)
        world.service.limits.throttled[next(iter(world.service.videos))] = timedelta(hours=1)
        card = await ask(world, world.ben, REPLICA)
        for _ in range(8):
            await world.advance(hours=1)
        assert world.replies(card)
