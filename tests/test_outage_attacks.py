"""Outages that are not like others: what the gates of the video service must not get wrong."""

import asyncio
from datetime import timedelta
from typing import Final

import pytest

from sandbox.driver import Person
from sandbox.faults import CannedResponse, Fault, Hang
from sandbox.video_service import CREATES
from tests.modes import on_both_engines
from tests.test_service_outage import (
    BROKEN,
    DOWN,
    GOOD,
    TIMINGS,
    ask,
    ask_often,
    asked_about,
    bot_at_work,
    sent,
)
from tests.world import REPLICA, World

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


async def test_a_service_that_answers_502_to_unknown_ids_is_not_down(quiet_world: World) -> None:
    world = quiet_world
    world.timings = TIMINGS
    world.service.unknown_id_status = 502
    async with world.running_bot(callbacks=False):
        await ask_often(world, 5)
        await world.advance(minutes=10)
        assert world.created_count() == 5
