"""Fixtures: a world in which the bot runs."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests import canary
from tests.world import World

pytest_plugins = ["tests.browser"]

# Goes on looking for examples that break something: ``pytest --hypothesis-profile=long``.
settings.register_profile(
    "long", max_examples=500, stateful_step_count=40, deadline=None, print_blob=True
)


@pytest.fixture(autouse=True)
def _nothing_secret_is_logged() -> Iterator[None]:
    """Whatever a test does, the log holds no secret and nothing that people wrote."""
    with canary.listening():
        yield


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
