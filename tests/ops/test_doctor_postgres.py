"""The doctor on a PostgreSQL database: what it finds, and that it changes nothing."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from bot.clock import SystemClock
from bot.ops.doctor import check_database, check_server
from bot.ops.finding import Finding
from bot.store.engines import inspect_server
from bot.store.postgres.engine import COMMAND, connect
from sandbox.clock import ManualClock
from tests.databases import STEPS
from tests.ops.report import report
from tests.postgres import database_url, empty_database_url
from tests.store.test_migrations import run as ask
from tests.web.test_ready import ready
from tests.world import World

_JOB = (
    "INSERT INTO jobs (id, request_key, kind, params, user_id, channel, created_at, state, due_at)"
    " VALUES ('broken', 'k', 'video', '{params}', 'U1', 'C1', 1, 'queued', 1)"
)


@pytest.fixture
def url() -> Iterator[str]:
    """Return the URL of a database with tables, which outlives the world."""
    with database_url() as url:
        yield url


def _bots(url: str) -> int:
    return inspect_server(url, SystemClock()).bots


def found(url: str) -> dict[str, Finding]:
    return {each.name: each for each in check_database(url, SystemClock())}


async def test_a_server_and_the_bots_on_it_are_described(url: str, quiet_world: World) -> None:
    world, world.postgres_url = quiet_world, url
    world.bot_clock = SystemClock()
    async with world.running_bot():
        lines = await report(world, DATABASE_URL=url)
    assert lines["database"].message.startswith("PostgreSQL 1")
    assert "up to date; all rows were read" in lines["database"].message
    assert "(up to 30 seconds between two copies do no harm)" in lines["database clock"].message
    assert lines["bot"].message.startswith("is running on this database (")
    assert lines.not_ok() == []
    async with asyncio.timeout(30):
        while await asyncio.to_thread(_bots, url):  # noticed a little later
            pass
    ask(url, _JOB.format(params="{}"))
    waits = found(url)["bot"]
    assert waits.state == "warning"
    assert waits.message.startswith("no bot runs on this database, and 1 request")


def test_what_is_wrong_is_named_with_its_remedy(url: str) -> None:
    ask(url, _JOB.format(params="{{"))
    rows = found(url)["database rows"]
    assert (rows.state, "row broken of jobs" in rows.message) == ("error", True)
    away = found("postgresql://bot:secret@127.0.0.1:1/bot")["database"]
    assert away.state == "error"
    assert away.message == "the database server cannot be reached"
    assert away.remedy == "Start it, or correct the host and port in DATABASE_URL."
    assert "secret" not in str(away)
    with empty_database_url() as empty:
        message = found(empty)["database"].message
        assert f"{len(STEPS)} migrations to apply, which the next start does" in message


def test_an_unsafe_connection_and_a_wrong_clock_are_named(url: str) -> None:
    server = inspect_server(url, SystemClock())
    assert server.is_protected, "it is on this machine"

    def said(**changed: Any) -> dict[str, str]:  # noqa: ANN401 - of any field
        found = check_server(replace(server, **changed))
        return {each.name: f"{each.state}: {each.message}" for each in found}

    assert said(is_protected=False)["database connection"].startswith("warning: can be read")
    assert said(ahead=timedelta(seconds=-31)) == {
        "database clock": "error: this machine's clock is 31.0 s behind the server's: from 30 "
        "seconds on, two copies of the bot may post the same message"
    }
    assert said(ahead=timedelta(seconds=29))["database clock"].startswith("warning")
    # By the clock of a world, which is months behind.
    assert inspect_server(url, ManualClock()).ahead < -timedelta(days=30)


def test_a_command_is_not_taken_for_a_bot_also_while_its_connection_ends(url: str) -> None:
    with connect(url, application_name=COMMAND):  # as at its end, before the server has noticed
        assert not _bots(url)
        with connect(url):
            assert _bots(url)


async def test_readyz_says_that_the_server_is_away_and_that_it_is_back(
    url: str, quiet_world: World
) -> None:
    world, world.postgres_url = quiet_world, url
    name = url.partition("?")[0].rpartition("/")[2]
    server = url.replace(f"/{name}?", "/postgres?")

    def allow(allowed: str) -> None:
        with psycopg.connect(server, autocommit=True) as db:
            db.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS {allowed}".encode())
            db.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
            )

    async with world.running_bot():
        assert (await ready(world))[0] == 200
        allow("false")
        try:
            status, said = await ready(world)
            assert (status, said["ready"]) == (503, False)
            assert (
                "the log and `python -m bot doctor` say why" in said["checks"]["database"]["reason"]
            )
        finally:
            allow("true")
        async with asyncio.timeout(30):
            while (await ready(world))[0] != 200:
                pass
