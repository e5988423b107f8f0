"""A disk that takes what is written and does not confirm it: nothing on it is certain."""

import logging
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bot.store import DatabaseUnavailable, DatabaseUncertain, Store
from bot.timings import Timings
from tests.modes import on_sqlite_alone
from tests.store.test_store import NOW, submit
from tests.world import World

pytestmark = on_sqlite_alone


class UnsyncedDisk:
    """A disk that fails commits which wait for it, with SQLite's code for the reason."""

    code: int | None = None

    def fails(self, code: int = sqlite3.SQLITE_IOERR_FSYNC) -> None:
        self.code = code

    def recovers(self) -> None:
        self.code = None


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> UnsyncedDisk:
    disk = UnsyncedDisk()

    class Unsynced(sqlite3.Connection):
        changes, syncs = 0, True

        def executescript(self, sql: str) -> sqlite3.Cursor:
            if "synchronous" in sql:
                self.syncs = "FULL" in sql
            return super().executescript(sql)

        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:  # noqa: ANN401 - as it is there
            if sql == "COMMIT" and disk.code and self.syncs and self.total_changes > self.changes:
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = disk.code
                raise error
            if sql in {"BEGIN IMMEDIATE", "ROLLBACK"}:
                self.changes = self.total_changes
            return super().execute(sql, *values)

    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Unsynced))
    return disk


async def status(world: World) -> int:
    url = f"http://127.0.0.1:{world.bot.port}/readyz"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status


def said(caplog: pytest.LogCaptureFixture, event: str) -> int:
    return sum(record.message == event for record in caplog.records)


async def test_a_bot_is_not_ready_while_its_disk_confirms_nothing(
    quiet_world: World, disk: UnsyncedDisk
) -> None:
    async with quiet_world.running_bot():
        # What is written at the start would share the transaction.
        await quiet_world.settle()
        assert await status(quiet_world) == 200
        disk.fails()
        assert await status(quiet_world) == 503, "before anybody has sent a form"
        disk.recovers()
        assert await status(quiet_world) == 200


async def test_a_claim_that_a_power_cut_may_undo_does_not_end_the_trouble(
    tmp_path: Path, disk: UnsyncedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with Store.open(tmp_path / "bot.db", Timings()) as store:
        await submit(store, "V1")
        disk.fails()
        for number in range(3):
            with pytest.raises(DatabaseUnavailable):
                await submit(store, "V2")
            now = NOW + number * Timings().lease
            assert len(await store.jobs.claim(now, 10)) == 1
            with pytest.raises(DatabaseUnavailable):
                await store.database.check()
        assert said(caplog, "the database does not work") == 1
        assert said(caplog, "the database works again") == 0
        disk.recovers()
        await store.database.check()
        assert said(caplog, "the database works again") == 1


@pytest.mark.parametrize(
    ("code", "is_uncertain"),
    [
        (sqlite3.SQLITE_IOERR_FSYNC, True),
        (sqlite3.SQLITE_FULL, False),
        (sqlite3.SQLITE_IOERR_WRITE, False),
    ],
)
async def test_a_commit_that_was_written_and_not_confirmed_is_uncertain(
    code: int, *, is_uncertain: bool, tmp_path: Path, disk: UnsyncedDisk
) -> None:
    async with Store.open(tmp_path / "bot.db", Timings()) as store:
        disk.fails(code)
        with pytest.raises(DatabaseUnavailable) as raised:
            await submit(store)
        assert isinstance(raised.value, DatabaseUncertain) is is_uncertain
        disk.recovers()


async def test_a_commit_into_a_file_that_is_gone_is_uncertain(tmp_path: Path) -> None:
    path = tmp_path / "bot.db"
    async with Store.open(path, Timings()) as store:

        def move_and_write(tx: Any) -> None:  # noqa: ANN401 - the engine's transaction
            tx._db.execute("UPDATE migrations SET name = name")
            path.rename(tmp_path / "elsewhere.db")

        with pytest.raises(DatabaseUncertain):
            await store.database.run(move_and_write)
        with pytest.raises(DatabaseUnavailable) as raised:
            await submit(store)
        assert not isinstance(raised.value, DatabaseUncertain)
