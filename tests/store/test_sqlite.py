"""The SQLite engine: what it is made of, and what happens when a part of it ends."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from importlib.metadata import version
from pathlib import Path

import aiosqlite
import pytest

from bot.store.database import Query, Transaction
from bot.store.sqlite import Connection, SQLiteDatabase
from bot.timings import Timings

TIMINGS = Timings()
COUNT = Query("SELECT count(*) AS number FROM jobs")


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[SQLiteDatabase]:
    async with SQLiteDatabase.open(tmp_path / "bot.db", TIMINGS.lock_timeout) as database:
        yield database


def count(tx: Transaction) -> int:
    row = tx.one(COUNT)
    assert row is not None
    return int(row["number"])


async def test_a_database_that_cannot_be_opened_leaves_no_thread_that_reports_to_the_loop() -> None:
    def fails() -> sqlite3.Connection:
        raise sqlite3.OperationalError("database is locked")

    for _ in range(200):
        connection = Connection(fails, iter_chunk_size=64)
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            await connection.open()
        assert not connection._thread.is_alive()


async def test_many_waiting_works_take_one_hop_and_one_transaction(
    database: SQLiteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert version("aiosqlite").startswith("0.22."), "Connection.run uses what is not public"
    hops = 0
    execute = aiosqlite.Connection._execute

    async def counted(self: aiosqlite.Connection, *args: object, **kwargs: object) -> object:
        nonlocal hops
        hops += 1
        return await execute(self, *args, **kwargs)  # type: ignore[no-untyped-call]

    monkeypatch.setattr(aiosqlite.Connection, "_execute", counted)
    statements: list[str] = []
    await database._connection.set_trace_callback(statements.append)
    hops = 0
    assert await asyncio.gather(*(database.run(count) for _ in range(64))) == [0] * 64
    assert hops == 1
    assert statements.count("BEGIN IMMEDIATE") == statements.count("COMMIT") == 1
