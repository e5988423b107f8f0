"""A database or a log that becomes shorter while the bot runs, or is not there for the doctor."""

import os
from pathlib import Path

import pytest

from bot.ops import doctor
from bot.ops.finding import Finding
from bot.store import DatabaseCorrupt, DatabaseError, Store
from bot.timings import Timings
from tests.modes import on_sqlite_alone
from tests.store.test_store import submit
from tests.world import World

pytestmark = on_sqlite_alone


async def fill(store: Store, jobs: int = 50) -> None:
    for number in range(jobs):
        await submit(store, f"V{number}", "A long script. " * 50)


@pytest.mark.parametrize("left", [0, 0.5])
async def test_nothing_is_accepted_into_a_file_that_was_truncated(
    left: float, tmp_path: Path
) -> None:
    path = tmp_path / "bot.db"
    async with Store.open(path, Timings()) as store:
        await fill(store)
    async with Store.open(path, Timings()) as store:
        await submit(store, "before")
        os.truncate(path, int(path.stat().st_size * left))
        with pytest.raises(DatabaseCorrupt, match="is shorter than it was: a part of it is missi"):
            await submit(store, "after")
        with pytest.raises(DatabaseCorrupt):
            await store.database.check()
        with pytest.raises(DatabaseCorrupt):
            await store.database.watch()


@pytest.mark.parametrize("left", [0, 0.5])
async def test_nothing_is_accepted_into_a_log_that_was_truncated(
    left: float, tmp_path: Path
) -> None:
    path = tmp_path / "bot.db"
    wal = tmp_path / "bot.db-wal"
    async with Store.open(path, Timings()) as store:
        await fill(store)
        os.truncate(wal, int(wal.stat().st_size * left))
        with pytest.raises(DatabaseCorrupt, match=r"bot\.db-wal is shorter than it was"):
            await submit(store, "after")


async def finding(world: World) -> Finding:
    environ = world.environment("0")
    return {each.name: each async for each in doctor.examine(environ)}["database"]


async def test_the_doctor_says_that_a_database_is_gone_whose_log_is_left(
    quiet_world: World,
) -> None:
    async with Store.open(quiet_world.database, Timings()) as store:
        await fill(store, 3)
        wal = quiet_world.database.with_name("bot.db-wal").read_bytes()
    quiet_world.database.unlink()
    quiet_world.database.with_name("bot.db-wal").write_bytes(wal)
    found = await finding(quiet_world)
    assert not found.ok
    assert "is missing or empty, but there is" in found.message
    quiet_world.database.with_name("bot.db-wal").unlink()


async def test_the_doctor_and_the_start_say_that_a_folder_is_in_the_databases_place(
    quiet_world: World,
) -> None:
    quiet_world.database.mkdir()
    found = await finding(quiet_world)
    assert not found.ok
    assert "is a folder" in found.message
    assert "Set DATABASE_URL to a file" in found.remedy
    with pytest.raises(DatabaseError, match="is a folder"):
        async with Store.open(quiet_world.database, Timings()):
            pass
    quiet_world.database.rmdir()
