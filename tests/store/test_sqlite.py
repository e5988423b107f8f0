"""The SQLite engine: what it is made of, and what happens when a part of it ends."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path

import aiosqlite
import pytest

from bot.store import DatabaseError, DatabaseInUse, DatabaseUnavailable, Store
from bot.store.database import Query, Transaction
from bot.store.sqlite import Connection, SQLiteDatabase
from bot.timings import Timings
from tests.store.test_store import NOW, claim, submit

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


# ── aiosqlite's connection, and our method of it ──────────────────────────────────────────────


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


# ── The end of the task that commits ──────────────────────────────────────────────────────────


async def test_a_write_that_must_be_stored_ends_once_the_database_is_closed(tmp_path: Path) -> None:
    timings = replace(TIMINGS, retry_interval=timedelta(milliseconds=1))
    async with Store.open(tmp_path / "bot.db", timings) as store:
        await submit(store)
        job = await claim(store)
        asked = asyncio.create_task(store.database.run(count))  # noqa: TID251 - awaited below
        await asyncio.sleep(0)
        [worker] = store.database._workers
        worker.cancel()
        finishing = asyncio.create_task(store.jobs.finish(job, NOW))  # noqa: TID251 - awaited below
        with pytest.raises(DatabaseUnavailable):
            await store.database.watch()
        with pytest.raises(DatabaseUnavailable):
            await asked
    async with asyncio.timeout(30):
        with pytest.raises(DatabaseError, match="closed"):
            await finishing


async def test_a_database_whose_user_is_cancelled_again_and_again_is_closed_after_its_last_commit(
    tmp_path: Path,
) -> None:
    path, begun, may_end = tmp_path / "bot.db", asyncio.Event(), threading.Event()
    loop, asked = asyncio.get_running_loop(), list[asyncio.Task[int]]()

    def is_slow(_: Transaction) -> int:
        loop.call_soon_threadsafe(begun.set)
        assert may_end.wait(30)
        return 0

    async def use() -> None:
        async with SQLiteDatabase.open(path, TIMINGS.lock_timeout) as database:
            asked.append(asyncio.create_task(database.run(is_slow)))  # noqa: TID251 - awaited below
            await begun.wait()
            asked.append(asyncio.create_task(database.run(count)))  # noqa: TID251 - likewise
            await asyncio.Event().wait()

    using = asyncio.create_task(use())  # noqa: TID251 - awaited below
    await begun.wait()
    for _ in range(3):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        using.cancel()
    with pytest.raises(DatabaseInUse):
        async with SQLiteDatabase.open(path, timedelta(0)):
            pass
    may_end.set()

    async with asyncio.timeout(30):
        with pytest.raises(asyncio.CancelledError):
            await using
        assert await asyncio.gather(*asked) == [0, 0]
    async with SQLiteDatabase.open(path, timedelta(0)) as database:
        assert await database.run(count) == 0
