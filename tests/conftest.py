"""Fixtures: a world in which the bot runs."""

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests import canary
from tests.world import MEMORY, World

pytest_plugins = ["tests.browser"]

# Goes on looking for examples that break something: ``pytest --hypothesis-profile=long``.
settings.register_profile(
    "long", max_examples=500, stateful_step_count=40, deadline=None, print_blob=True
)


def pytest_xdist_auto_num_workers() -> int:
    """Have one more than there are cores: whatever waits in real time leaves one idle."""
    return (os.cpu_count() or 1) + 1


@pytest.fixture(autouse=True)
def _nothing_secret_is_logged() -> Iterator[None]:
    """Whatever a test does, the log holds no secret and nothing that people wrote."""
    with canary.listening():
        yield


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory: where the bot is not killed, nothing is gained by waiting for a disk."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        yield Path(folder)


@pytest.fixture
async def quiet_world(memory: Path) -> AsyncIterator[World]:
    """A world whose bot is not started yet."""
    world = World(memory)
    async with world.running_sandbox():
        yield world


@pytest.fixture
async def world(quiet_world: World) -> AsyncIterator[World]:
    """A world whose bot runs, with callbacks and polling."""
    async with quiet_world.running_bot():
        yield quiet_world
