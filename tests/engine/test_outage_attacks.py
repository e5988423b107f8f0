"""Outages that are not like others: what the gates of the video service must not get wrong."""

import asyncio
from typing import Final

import pytest

from sandbox.faults import CannedResponse
from tests.engine.test_service_outage import (
    DOWN,
    GOOD,
    MADE,
    TIMINGS,
    ask,
    ask_at_once,
    ask_often,
    asked_about,
    bot_at_work,
    sent,
)
from tests.modes import on_both_engines
from tests.world import World

pytestmark = on_both_engines

NEUTRAL: Final = "/v2/videos/is-anyone-there"


def outage_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what the log says about the service: that it is down, or back."""
    return [each.message for each in caplog.records if "video service is" in each.message]


async def test_a_service_that_fails_for_unknown_ids_is_not_read_without_pause(
    quiet_world: World,
) -> None:
    world, reads = quiet_world, 0
    world.timings = TIMINGS
    world.service.unknown_id_status = 500

    async def count(phase: str, _operation: str, path: str) -> None:
        nonlocal reads
        if (phase, path) == ("before", NEUTRAL):
            reads += 1
            if reads > 20:  # so that the test ends
                world.service.unknown_id_status = 400

    world.service.on_request = count
    async with world.running_bot(callbacks=False):
        await world.settle()
        assert reads <= 2


async def test_a_service_that_answers_502_to_unknown_ids_is_not_down(
    quiet_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = quiet_world
    world.timings = TIMINGS
    world.service.unknown_id_status = 502
    async with world.running_bot(callbacks=False):
        await ask_often(world, 5)
        await world.advance(minutes=10)
        assert world.created_count() == 5
    assert outage_lines(caplog) == ["the video service is down", "the video service is back"]


async def test_a_403_is_an_answer_where_unknown_ids_answer_500(quiet_world: World) -> None:
    world = quiet_world
    world.service.unknown_id_status = 500
    world.service.add_replica(GOOD, "Good")
    async with bot_at_work(world):
        world.service.limits.forbidden.add(GOOD)
        await ask(world, world.ana, GOOD)
        await world.advance(minutes=10)
        card = world.slack.messages("studio")[-1]
        assert world.replies(card), "the person is told"
        assert sent(world, MADE) <= 2


async def test_several_broken_replicas_are_no_outage(
    quiet_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world, broken = quiet_world, [f"r-broken-{each}" for each in range(4)]
    for each in broken:
        world.service.add_replica(each, each)
    world.service.limits.broken.update(broken)
    async with bot_at_work(world):
        await ask_often(world, 100, broken, people=4)
        for _ in range(60):
            await ask(world, world.ana)
            await world.advance(seconds=10)
        assert asked_about(world) <= len(broken) * (4 + 8)
    # One may be seen where another fails within a minute of the one before, and never again for
    # those: its beginning and its end are a line each.
    assert len(outage_lines(caplog)) <= 2 * (len(broken) - 1)


async def test_a_wait_that_a_read_is_asked_for_hides_no_outage(quiet_world: World) -> None:
    world = quiet_world
    async with bot_at_work(world):
        limited = CannedResponse(429, headers={"Retry-After": "300"})
        world.service.answer_all(limited, ["read_video"])
        await world.advance(seconds=15)
        world.service.answer_all(DOWN)
        await ask_often(world, 50)
        await world.advance(minutes=10)
        assert sent(world, MADE) <= 4


async def test_a_429_during_an_outage_is_not_its_end(quiet_world: World) -> None:
    world = quiet_world
    async with bot_at_work(world):
        world.service.answer_all(DOWN)
        await ask_often(world, 50)
        await world.advance(seconds=30)
        for _ in range(10):
            limited = CannedResponse(429, headers={"Retry-After": "30"})
            world.service.faults.next("read_video", limited)
            await world.advance(minutes=1)
        assert sent(world, MADE) <= 4


async def test_after_trouble_nobody_is_let_in_before_the_calls_under_way_are_answered(
    quiet_world: World,
) -> None:
    world = quiet_world
    for each in range(10):
        world.service.add_replica(f"r-{each}", f"Replica {each}")
    failing = asyncio.Event()

    async def fail_late(phase: str, operation: str, _path: str) -> None:
        if (phase, operation) == ("before", "create_video") and sent(world, MADE) > 1:
            await failing.wait()

    async with bot_at_work(world):
        world.service.on_request = fail_late
        world.service.limits.broken.update(f"r-{each}" for each in range(10))
        await ask_at_once(world, 40, [f"r-{each}" for each in range(10)])
        async with asyncio.timeout(20):
            while sent(world, MADE) < 4 or asked_about(world) < 1:  # noqa: ASYNC110 - of both sides
                await asyncio.sleep(0.01)
        failing.set()
        await world.settle()
        assert sent(world, MADE) == 4
