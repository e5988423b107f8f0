"""Health and figures asked for by strangers, as often as they like: it costs next to nothing."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import aiohttp
import pytest

from bot.timings import Timings
from tests.modes import on_sqlite_alone
from tests.web.test_metrics import Scrape, scrape
from tests.world import World


@pytest.fixture
async def world(quiet_world: World) -> AsyncIterator[World]:
    """A world whose bot answers from its last look for as long as it does outside of tests."""
    quiet_world.pauses = {**quiet_world.pauses, "report_max_age": Timings().report_max_age}
    async with quiet_world.running_bot():
        await quiet_world.settle()
        yield quiet_world


async def flood(world: World, path: str) -> set[bytes]:
    """Ask 200 times, as fast as it goes; return the different answers."""
    url = f"http://127.0.0.1:{world.bot.port}{path}"
    async with aiohttp.ClientSession() as session:

        async def ask() -> bytes:
            async with session.get(url, headers=world.operator) as answer:
                return await answer.read()

        said: set[bytes] = set()
        for _ in range(4):
            said |= set(await asyncio.gather(*(ask() for _ in range(50))))
        return said


async def durable_commits(world: World) -> float:
    """Return how many transactions waited for the disk until now."""
    await world.advance(seconds=1)
    said: Scrape = await scrape(world)
    return said.value("replica_bot_commit_seconds_count", durable="yes")


async def test_many_who_ask_within_a_second_share_one_look_and_one_write(world: World) -> None:
    before = await durable_commits(world)
    await world.advance(seconds=1)
    calls = len(world.slack.calls), len(world.service.requests)
    assert len(await flood(world, "/readyz")) == 1
    assert len(await flood(world, "/metrics")) == 1
    assert (len(world.slack.calls), len(world.service.requests)) == calls
    # One for the flood and one for this look.
    assert await durable_commits(world) - before <= 2


@on_sqlite_alone
async def test_a_report_is_new_after_a_second_and_when_the_clock_was_set_back(
    world: World,
) -> None:
    [before] = await flood(world, "/readyz")
    world.database.unlink()
    assert await flood(world, "/readyz") == {before}
    world.clock.set(world.clock.now() - timedelta(hours=1))
    [after] = await flood(world, "/readyz")
    assert b"nothing can be stored" in after


async def test_a_bot_that_is_asked_to_end_says_so_at_once(world: World) -> None:
    [before] = await flood(world, "/readyz")
    assert b'"ready": true' in before
    await world.bot.drain(timedelta(0))
    [after] = await flood(world, "/readyz")
    assert b"the bot is stopping" in after
