"""Works of several copies that want the same rows of a PostgreSQL database at the same time."""

import asyncio
import contextlib
import logging
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final

import psycopg
import pytest

from bot.ops.doctor import check_database
from bot.store import Store
from bot.store.database import Query, Row, Transaction
from bot.store.job_rows import lock_job, lock_jobs
from bot.store.postgres import engine
from bot.store.postgres.engine import PostgresDatabase, find_blocker, migrate
from tests.store.test_locked_database import Admin, pooled_by_transaction
from tests.store.test_migrations import next_migrations, run
from tests.store.test_store import NOW, TIMINGS, submit

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
        ids = [(await submit(copies[0], f"V{number}")).id for number in range(JOBS)]
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
        first, second = [(await submit(here, f"V{number}")).id for number in range(2)]

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
        locked = (await submit(here, "V1")).id
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


BOTH_COPIES: Final = 4
DEFAULTS: Final = {
    "default_transaction_isolation": "repeatable read",
    "default_transaction_deferrable": "on",
    "lock_timeout": "10s",
    "statement_timeout": "10s",
    "idle_in_transaction_session_timeout": "10s",
    "search_path": '"$user", "bot-s", public',
    "timezone": "Asia/Kathmandu",
    "datestyle": "SQL, DMY",
    "intervalstyle": "postgres_verbose",
    "standard_conforming_strings": "off",
    "bytea_output": "escape",
    "extra_float_digits": "-15",
    "transform_null_equals": "on",
    "array_nulls": "off",
    "row_security": "off",
}
_SETTINGS: Final = Query(
    "SELECT current_setting('transaction_isolation') AS isolation,"
    " current_setting('search_path') AS search_path"
)


def set_defaults(url: str, defaults: dict[str, str]) -> None:
    name = url.partition("?")[0].rpartition("/")[2]
    for setting, value in defaults.items():
        text = value if setting == "search_path" else f"'{value}'"
        run(url, f"ALTER ROLE postgres IN DATABASE {name} SET {setting} TO {text}")


@contextlib.contextmanager
def reached(url: str, *, pooled: bool) -> Iterator[str]:
    """Return the URL that copies use."""
    with pooled_by_transaction(url) if pooled else contextlib.nullcontext(url) as used:
        yield used


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
async def test_copies_that_start_at_once_on_an_empty_database_work_whatever_their_roles_defaults(
    isolation: str, empty_url: str, *, pooled: bool
) -> None:
    run(empty_url, 'CREATE SCHEMA "bot-s"')
    set_defaults(empty_url, DEFAULTS | {"default_transaction_isolation": isolation})
    async with AsyncExitStack() as stack:
        url = stack.enter_context(reached(empty_url, pooled=pooled))
        opening = [stack.enter_async_context(Store.open(url, TIMINGS)) for _ in range(BOTH_COPIES)]
        copies = await asyncio.gather(*opening)
        async with asyncio.timeout(30):
            await asyncio.gather(
                *(submit(copies[number % BOTH_COPIES], f"V{number}") for number in range(40))
            )
            claimed = await asyncio.gather(*(each.jobs.claim(NOW, 20) for each in copies))
        assert sum(len(jobs) for jobs in claimed) == 40
        found = {each.name: each for each in check_database(empty_url)}
        assert found["database"].ok, found["database"]
        with Admin(empty_url, "LOCK TABLE jobs") as admin:
            waiting = asyncio.ensure_future(copies[0].jobs.claim(NOW, 1))  # noqa: TID251
            blocker = None
            async with asyncio.timeout(30):
                while blocker is None:
                    blocker = await find_blocker(empty_url, None)
            assert (blocker["pid"], blocker["application"]) == (admin.pid, "psql")
            assert blocker["since"].startswith("20")
        await asyncio.wait([waiting])
    assert run(empty_url, 'SELECT count(*) FROM "bot-s".jobs') == [(40,)]


async def test_a_transaction_is_not_what_others_have_made_of_a_pooled_connection(
    postgres_url: str,
) -> None:
    def settings(tx: Transaction) -> Row | None:
        return tx.one(_SETTINGS)

    with reached(postgres_url, pooled=True) as url:
        async with PostgresDatabase.open(url) as database:
            others = [psycopg.connect(url, autocommit=True) for _ in range(3)]
            for other in others:
                other.execute("BEGIN")  # each has a connection of the pool for itself
            for other in others:
                other.execute(
                    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE;"
                    " SET search_path TO pg_catalog; COMMIT"
                )
            assert await database.run(settings) == {
                "isolation": "read committed",
                "search_path": '"$user", public',
            }
            for other in others:
                other.close()


def test_a_migration_goes_where_the_tables_are_also_if_the_role_has_got_a_schema_since(
    empty_url: str, tmp_path: Path
) -> None:
    migrate(empty_url)
    run(empty_url, "CREATE SCHEMA postgres")  # the role's own, which comes first
    with next_migrations(tmp_path / "next", _9999_newer="CREATE TABLE newer (id BIGINT)"):
        assert migrate(empty_url) == ["9999_newer"]
    names = "SELECT tablename FROM pg_tables WHERE schemaname = '{}'"
    assert run(empty_url, names.format("postgres")) == []
    assert ("newer",) in run(empty_url, names.format("public"))
