"""Fixtures: a world in which the bot runs."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.world import World


@pytest.fixture
async def quiet_world(tmp_path: Path) -> AsyncIterator[World]:
    """A world whose bot is not started yet."""
    world = World(tmp_path)
    async with world.sandbox_runs():
        yield world


@pytest.fixture
async def world(quiet_world: World) -> AsyncIterator[World]:
    """A world whose bot runs, with callbacks and polling."""
    async with quiet_world.bot_runs():
        yield quiet_world
