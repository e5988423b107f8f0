"""Fixtures: a world in which the bot runs."""

import gc
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path

import pytest
from aiohttp import web_app
from hypothesis import settings

from sandbox.clock import ManualClock
from tests import leaks
from tests.databases import Address, HasDatabase
from tests.modes import (
    HTTP,
    POSTGRES,
    SOCKET_MODE,
    SQLITE,
    bot_with,
    in_both_modes,
    on_both_engines,
    on_sqlite_alone,
)
from tests.postgres import database_url, empty_database_url, share_server
from tests.world import MEMORY, World

pytest_plugins = ["tests.browser", "tests.invalid_input"]

# How long an example takes in real time says how busy the machine is.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
# A longer search for failing examples: ``pytest --hypothesis-profile=long``.
settings.register_profile(
    "long", max_examples=500, stateful_step_count=40, deadline=None, print_blob=True
)


def pytest_xdist_auto_num_workers() -> int:
    """Run two workers for each core, as tests in real time and of processes leave it idle."""
    return 2 * (os.cpu_count() or 1)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that runs every world on PostgreSQL."""
    parser.addoption("--database", choices=["sqlite", "postgres"], default="sqlite")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marks of the tests."""
    config.addinivalue_line("markers", f"{in_both_modes.name}: over HTTP and in Socket Mode")
    config.addinivalue_line("markers", "slow: takes ten seconds or more; begins first")
    config.addinivalue_line("markers", f"{on_both_engines.name}: on SQLite and on PostgreSQL")
    config.addinivalue_line("markers", f"{on_sqlite_alone.name}: never on PostgreSQL")
    config.addinivalue_line("markers", f"{bot_with.name}: the settings of the world's bot")
    # Where this runs in the background, Ctrl-C may be ignored, and by all that the tests start too.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)  # after they were shuffled
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run slow tests first: one that began last would leave the other cores idle at the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Spare the garbage collector all tests and libraries: they stay for as long as this runs."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_runtest_logfinish() -> None:
    """Forget the test's servers: aiohttp keeps the last 1,024 handlers, with all they refer to."""
    web_app._cached_build_middleware.cache_clear()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests that are marked so in several ways: each differs from the first in one."""

    def is_marked(mark: pytest.MarkDecorator) -> bool:
        return metafunc.definition.get_closest_marker(mark.name) is not None

    ways = [SOCKET_MODE] if is_marked(in_both_modes) else []
    # With the option, the first way is on PostgreSQL.
    engines = [POSTGRES] if is_marked(on_both_engines) and not _all_on_postgres(metafunc) else []
    if "quiet" in metafunc.fixturenames and ways + engines:
        metafunc.parametrize("quiet", [HTTP, *ways, *engines], indirect=True)
    if "engine" in metafunc.fixturenames and engines:
        metafunc.parametrize("engine", [SQLITE, *engines], indirect=True)


def _all_on_postgres(of: pytest.Metafunc | pytest.Item) -> bool:
    return bool(of.config.getoption("database") == "postgres")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Choose the engine of the worlds that say nothing about it."""
    is_about_files = item.get_closest_marker(on_sqlite_alone.name) is not None
    HasDatabase.on_postgres = _all_on_postgres(item) and not is_about_files


@pytest.fixture
def clock() -> ManualClock:
    """Return a clock that stands still until it is moved."""
    return ManualClock()


@pytest.fixture
def empty_url() -> Iterator[str]:
    """Return the URL of a PostgreSQL database without tables."""
    with empty_database_url() as url:
        yield url


@pytest.fixture(scope="session", autouse=True)
def _one_postgres_server(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Have all workers use one server, which the first test that needs it starts."""
    folder = tmp_path_factory.getbasetemp()
    share_server(folder.parent if hasattr(pytestconfig, "workerinput") else folder)


@pytest.fixture(autouse=True)
def _nothing_secret_is_logged() -> Iterator[None]:
    """Require of each test that the log holds no secret and no user content."""
    with leaks.log_recorded():
        yield


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory, for tests that need no real disk."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        yield Path(folder)


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """Return the URL of a database with empty tables."""
    with database_url() as url:
        yield url


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> None:
    """Choose the engine of what the test uses; see ``tests.modes``."""
    if getattr(request, "param", None) == POSTGRES:
        HasDatabase.on_postgres = True


@pytest.fixture
def address(memory: Path, engine: None) -> Iterator[Address]:  # noqa: ARG001 - chosen by it
    """Return the address of a new database for a store."""
    if HasDatabase.on_postgres:
        with database_url() as url:
            yield url
    else:
        yield memory / "bot.db"


@pytest.fixture
async def quiet(memory: Path, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """A world whose bot is not started yet; see ``tests.modes``."""
    world = World(memory)
    way = getattr(request, "param", None)
    if way == POSTGRES:
        world.on_postgres = True
    if way == SOCKET_MODE:
        world.socket_mode = True
        # As over HTTP: a busy machine may take longer.
        world.slack.socket_mode.response_timeout = world.slack.response_timeout
    async with world.running_sandbox():
        yield world


@pytest.fixture
async def world_of_copies(memory: Path, postgres_url: str) -> AsyncIterator[World]:
    """A world on PostgreSQL, for ``World.running_copies``."""
    world = World(memory)
    world.postgres_url = postgres_url
    async with world.running_sandbox():
        yield world


@pytest.fixture
async def world(quiet: World, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """A world whose bot runs, with callbacks and polling; see ``tests.modes.bot_with``."""
    async with quiet.running_bot(**quiet.settings_of(request)):
        yield quiet
