"""The doctor on the database: what it finds, and that it changes nothing."""

import asyncio
import contextlib
import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

from bot.ops import doctor
from bot.ops.doctor import check_database, check_server
from bot.ops.finding import Finding
from bot.store.engines import inspect_server
from bot.store.postgres.engine import COMMAND, connect
from bot.store.sqlite import beside, migrate
from bot.timings import SystemClock
from sandbox.clock import ManualClock
from sandbox.http import free_port
from tests.databases import STEPS
from tests.modes import on_sqlite_alone
from tests.ops.report import report
from tests.postgres import database_url, empty_database_url
from tests.store.test_migrations import run as ask
from tests.store.test_storage import many_jobs, page_overwritten
from tests.web.test_ready import ready
from tests.world import World


def change(path: Path, sql: str, *values: object) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute(sql, values)


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return each file of a folder: when it was changed, and what is in it."""
    return {each.name: (each.stat().st_mtime_ns, each.read_bytes()) for each in folder.iterdir()}


def ms_ago(**duration: float) -> int:
    return int((SystemClock().now() - timedelta(**duration)).timestamp() * 1000)


@pytest.fixture
async def stopped(quiet_world: World) -> World:
    """A world with a request that is not done, and a bot that has ended."""
    async with quiet_world.running_bot():
        await quiet_world.request_video(quiet_world.ana)
    return quiet_world


@on_sqlite_alone
async def test_a_database_that_is_well_is_described(quiet_world: World) -> None:
    await migrate(quiet_world.database)
    found = await report(quiet_world)
    assert found["database"].state == "ok"
    assert "up to date; no damage found" in found["database"].message
    assert str(quiet_world.database) in found["database"].message
    assert found["bot"].message == "no bot runs on this database, and nothing waits in it"
    assert " GB free" in found["disk space"].message or " MB free" in found["disk space"].message


@on_sqlite_alone
async def test_a_running_bot_is_named_with_its_process(quiet_world: World) -> None:
    quiet_world.bot_clock = SystemClock()
    async with quiet_world.running_bot():
        found = await report(quiet_world)
    process = f" (process {os.getpid()})" if sys.platform == "linux" else ""
    assert found["bot"].message == f"is running on this database{process}"


@on_sqlite_alone
async def test_work_that_waits_for_a_bot_is_counted(stopped: World) -> None:
    change(stopped.database, "UPDATE jobs SET due_at = ?", ms_ago(hours=3))
    change(stopped.database, "UPDATE deliveries SET due_at = ?", ms_ago(minutes=5))
    finding = (await report(stopped))["bot"]
    assert finding.state == "warning"
    assert finding.message == (
        "no bot runs on this database, and 1 request and 1 message wait, the oldest for 3 hours"
    )
    assert finding.remedy == "Start it: python -m bot serve."


@on_sqlite_alone
async def test_a_large_database_is_not_read(
    quiet_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrate(quiet_world.database)
    many_jobs(quiet_world.database, 100)
    page_overwritten(quiet_world.database)
    monkeypatch.setattr(doctor, "_SMALL_BYTES", 1000)
    assert "its pages were not read" in (await report(quiet_world))["database"].message
    monkeypatch.undo()
    finding = (await report(quiet_world))["database"]
    assert finding.state == "error"
    assert "Put a backup in its place" in finding.remedy


class Usage(NamedTuple):
    """What the system says about a disk."""

    total: int
    used: int
    free: int


@on_sqlite_alone
@pytest.mark.parametrize(
    ("free", "state", "said"),
    [(10**6, "error", "1 MB free"), (300 * 10**6, "warning", "300 MB free")],
)
async def test_a_disk_that_is_nearly_full_is_named(
    free: int, state: str, said: str, quiet_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**12, 10**12 - free, free))
    finding = (await report(quiet_world))["disk space"]
    assert finding.state == state
    assert said in finding.message
    assert "Make room on the disk" in finding.remedy


# ── It changes nothing ────────────────────────────────────────────────────────────────────────


@on_sqlite_alone
async def test_nothing_is_changed_or_created_where_no_bot_runs(stopped: World) -> None:
    folder = stopped.database.parent
    beside(stopped.database, "-lock").touch()  # left by a bot that was killed
    before = contents(folder)
    await report(stopped)
    assert contents(folder) == before


@on_sqlite_alone
async def test_nothing_is_changed_or_created_beside_a_bot(world: World) -> None:
    await world.request_video(world.ana)
    folder = world.database.parent
    before = contents(folder)
    # The bot itself writes when it is asked whether it is ready, so it is not.
    await report(world, PORT=str(free_port()))
    after = contents(folder)
    assert {name for name in after if after[name] != before.get(name)} <= {"bot.db-shm"}
    assert after.keys() == before.keys()


@on_sqlite_alone
async def test_nothing_is_changed_or_created_after_a_crash(stopped: World) -> None:
    folder, path = stopped.database.parent, stopped.database
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("UPDATE jobs SET late = 1")
        db.commit()
        left = {name: content for name, (_, content) in contents(folder).items()}
    for name, content in left.items():
        (folder / name).write_bytes(content)
    before = contents(folder)
    assert "bot.db-wal" in before
    found = await report(stopped)
    assert found["database"].state == "ok"
    after = contents(folder)
    assert {name for name in after if after[name] != before.get(name)} <= {"bot.db-shm"}
    assert after.keys() == before.keys()


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
