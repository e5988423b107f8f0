"""Works of several copies that want the same rows of a PostgreSQL database at the same time."""

import asyncio
import contextlib
import logging
import random
import threading
from collections import Counter
from contextlib import AsyncExitStack
from functools import partial

import pytest

from bot.store import Store
from bot.store.database import Query, Transaction
from bot.store.job_rows import lock_job, lock_jobs
from bot.store.postgres import engine
from bot.store.postgres.engine import PostgresDatabase
from tests.store.test_postgres_failures import SOON_S, add, slow_work, spawn
from tests.store.test_store import TIMINGS, submit

COPIES = 2
JOBS = 12
WORKS = 400

_ADD = Query("UPDATE jobs SET failures = :failures WHERE id = :id")
_WAIT = Query("SELECT pg_sleep(0.05)")
_DEADLOCKS = Query("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")


async def stores(stack: AsyncExitStack, url: str) -> list[Store]:
    opened = [await stack.enter_async_context(PostgresDatabase.open(url)) for _ in range(COPIES)]
    return [Store(database, TIMINGS) for database in opened]


async def test_no_update_is_lost_and_no_copy_waits_long_where_all_want_the_same_rows(
    postgres_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    # On a busy machine, 400 works that wait for a dozen rows take longer than a form may.
    monkeypatch.setattr(engine, "_MAX_LOCK_WAIT_MS", 9_000)
    chosen = random.Random(1)  # noqa: S311 - for a test
    async with AsyncExitStack() as stack:
        copies = await stores(stack, postgres_url)
        ids = [(await submit(copies[0], f"V{number}")).job.id for number in range(JOBS)]
        expected = Counter[str]()

        def add(tx: Transaction, wanted: list[str]) -> None:
            # As the store does it: what is locked is read, and written back.
            for row in lock_jobs(tx, wanted):
                tx.all(_ADD, id=row["id"], failures=row["failures"] + 1)

        async def work(number: int) -> None:
            wanted = chosen.sample(ids, chosen.randint(1, 4))
            expected.update(wanted)
            database = copies[number % COPIES].database
            await database.run(lambda tx: add(tx, wanted), durable=bool(number % 3))

        await asyncio.gather(*(work(number) for number in range(WORKS)))
        found = {each: await copies[0].jobs.fetch(each) for each in ids}
        assert {id_: job.failures for id_, job in found.items() if job} == dict(expected)
    assert not caplog.records


async def test_two_works_that_lock_in_opposite_orders_are_both_done(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # PostgreSQL looks for a deadlock after a second; then one of them begins anew.
    monkeypatch.setattr(engine, "_MAX_LOCK_WAIT_MS", 9_000)
    async with AsyncExitStack() as stack:
        here, there = await stores(stack, postgres_url)
        first, second = [(await submit(here, f"V{number}")).job.id for number in range(2)]

        def lock(tx: Transaction, *ids: str) -> bool:
            for each in ids:
                lock_job(tx, each)
                tx.all(_WAIT)
            return True

        done = await asyncio.gather(
            here.database.run(lambda tx: lock(tx, first, second)),
            there.database.run(lambda tx: lock(tx, second, first)),
        )
        assert all(done)


async def test_a_group_that_waits_for_a_row_delays_none_of_its_other_works(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_MAX_LOCK_WAIT_MS", 9_000)
    async with AsyncExitStack() as stack:
        here, there = await stores(stack, postgres_url)
        locked = (await submit(here, "V1")).job.id
        has_locked, may_end = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def hold(tx: Transaction) -> None:
            lock_job(tx, locked)
            loop.call_soon_threadsafe(has_locked.set)
            asyncio.run_coroutine_threadsafe(may_end.wait(), loop).result()

        stack.callback(may_end.set)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(here.database.run(hold))
            await has_locked.wait()
            waits = tasks.create_task(there.database.run(lambda tx: lock_job(tx, locked)))
            async with asyncio.timeout(8):  # the one that waits tries again a second later
                others = (there.database.run(lambda tx: tx.one(_DEADLOCKS)) for _ in range(40))
                assert len(await asyncio.gather(*others)) == 40
            assert not waits.done()
            may_end.set()
            assert await waits is not None


async def test_works_that_are_repeated_go_before_those_that_came_later(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_CONNECTIONS", 1)
    fails, answered = 3, list[int]()

    def work(number: int, tx: Transaction) -> None:
        tx.one(_DEADLOCKS)
        if number == fails:  # and each of its group runs once more
            raise ValueError

    async with PostgresDatabase.open(postgres_url) as database:

        async def run(number: int) -> None:
            with contextlib.suppress(ValueError):
                await database.run(partial(work, number))
            answered.append(number)

        await asyncio.gather(*map(run, range(40)))
    assert answered == list(range(40))


async def test_a_database_is_closed_although_works_wait_for_the_same_lock(
    postgres_url: str,
) -> None:
    begun, may_end = asyncio.Event(), threading.Event()
    try:
        async with PostgresDatabase.open(postgres_url) as database:
            slow = spawn(database.run(slow_work(begun, may_end), serial=True))
            await begun.wait()
            waiting = spawn(database.run(add, serial=True))
            await asyncio.sleep(0)
            closing = spawn(database.close())
            await asyncio.sleep(0)
            may_end.set()
            async with asyncio.timeout(SOON_S):
                assert [await slow, await waiting] == [1, 2]
                await closing
    finally:
        may_end.set()
