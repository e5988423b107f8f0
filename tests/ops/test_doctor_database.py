"""The doctor on the database: what it finds, and that it changes nothing."""

import contextlib
import os
import shutil
import sqlite3
import sys
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from bot.clock import SystemClock
from bot.ops import doctor
from bot.store.sqlite import beside, migrate
from sandbox.http import free_port
from tests.modes import on_sqlite_alone
from tests.ops.report import report
from tests.store.test_storage import many_jobs, page_overwritten
from tests.world import World

pytestmark = on_sqlite_alone


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


async def test_a_database_that_is_well_is_described(quiet_world: World) -> None:
    await migrate(quiet_world.database)
    found = await report(quiet_world)
    assert found["database"].state == "ok"
    assert "up to date; no damage found" in found["database"].message
    assert str(quiet_world.database) in found["database"].message
    assert found["bot"].message == "no bot runs on this database, and nothing waits in it"
    assert " GB free" in found["disk space"].message or " MB free" in found["disk space"].message


async def test_a_running_bot_is_named_with_its_process(quiet_world: World) -> None:
    quiet_world.bot_clock = SystemClock()
    async with quiet_world.running_bot():
        found = await report(quiet_world)
    process = f" (process {os.getpid()})" if sys.platform == "linux" else ""
    assert found["bot"].message == f"is running on this database{process}"


async def test_work_that_waits_for_a_bot_is_counted(stopped: World) -> None:
    change(stopped.database, "UPDATE jobs SET due_at = ?", ms_ago(hours=3))
    change(stopped.database, "UPDATE deliveries SET due_at = ?", ms_ago(minutes=5))
    finding = (await report(stopped))["bot"]
    assert finding.state == "warning"
    assert finding.message == (
        "no bot runs on this database, and 1 request and 1 message wait, the oldest for 3 hours"
    )
    assert finding.remedy == "Start it: python -m bot serve."


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


async def test_nothing_is_changed_or_created_where_no_bot_runs(stopped: World) -> None:
    folder = stopped.database.parent
    beside(stopped.database, "-lock").touch()  # left by a bot that was killed
    before = contents(folder)
    await report(stopped)
    assert contents(folder) == before


async def test_nothing_is_changed_or_created_beside_a_bot(world: World) -> None:
    await world.request_video(world.ana)
    folder = world.database.parent
    before = contents(folder)
    # The bot itself writes when it is asked whether it is ready, so it is not.
    await report(world, PORT=str(free_port()))
    after = contents(folder)
    assert {name for name in after if after[name] != before.get(name)} <= {"bot.db-shm"}
    assert after.keys() == before.keys()


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
