"""Two copies of the bot as processes on one PostgreSQL database: one dies, or is replaced."""

import asyncio
import os
import signal
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from bot.clock import SystemClock
from tests.bot_process import BotProcess
from tests.processes import QUICK, LiveWorld

LEASE = timedelta(seconds=1)


@pytest.fixture
def world(tmp_path: Path) -> LiveWorld:
    world = LiveWorld(tmp_path)
    world.on_postgres = True
    world.timings = replace(QUICK, lease=LEASE, drain=timedelta(hours=1))
    return world


async def test_what_a_copy_was_doing_when_it_died_another_does_once_its_lease_ends(
    world: LiveWorld,
) -> None:
    async with world.running():
        survivors: list[BotProcess] = []
        ends: list[int] = []
        leases = "SELECT max(due_at) AS end FROM {} WHERE claimed = 1"

        async def start_another(moment: str, _about: str) -> None:
            """Start the other copy when the first one has claimed what it will never do."""
            if moment == world.kill_at:
                # Before the other copy claims anything.
                found = [world.query(leases.format(table)) for table in ("jobs", "deliveries")]
                ends.extend(row["end"] for [row] in found if row["end"] is not None)
                survivors.append(world.spawn_bot())
                await survivors[0].wait_until_listening()

        # The card is posted, and its answer is lost; the video is rendering.
        world.kill_at = "after card"
        world.on_moment = start_another
        await world.request_video()
        await world.wait_until(lambda: not world.kill_at)
        assert await world.bot.wait() < 0
        died_at = SystemClock().now()
        world.bot = survivors[0]
        assert ends
        for end in ends:
            assert end / 1000 - died_at.timestamp() <= LEASE.total_seconds()
        await world.wait_until(lambda: world.card_says("Ready") and world.replies())
        assert (world.created_count(), len(world.replies()), world.posts()) == (1, 1, 2)


async def test_a_copy_that_is_asked_to_end_says_not_ready_and_answers_requests_meanwhile(
    world: LiveWorld,
) -> None:
    async with world.running():
        os.kill(world.bot.pid, signal.SIGTERM)
        ready = f"http://127.0.0.1:{world.port}/readyz"
        async with asyncio.timeout(30):
            while True:
                async with world.slack.session.get(ready) as answer:
                    if answer.status == 503:
                        break
        form = await world.request_video()
        assert not form.is_open
        assert world.query("SELECT count(*) AS jobs FROM jobs") == [{"jobs": 1}]
        assert world.created_count() == 0, "that is for the others to do"
