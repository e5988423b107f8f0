"""What wakes the copies of the bot on one PostgreSQL database, also behind a pooler."""

import asyncio
import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from bot.store.database import Database, Topic, Transaction
from bot.store.postgres.engine import PostgresDatabase
from bot.timings import Timings
from sandbox.http import free_port
from tests.postgres_proxy import PostgresProxy
from tests.store.test_postgres_failures import add, count

#: Where it is set, what needs pgbouncer fails without it.
REQUIRED: Final = "PGBOUNCER_REQUIRED"
RARELY: Final = Timings(slow_poll=timedelta(hours=1), pooled_slow_poll=timedelta(hours=1))
# Many times what anything takes.
SOON_S: Final = 20
_END_LISTENERS: Final = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
    " WHERE datname = current_database() AND query LIKE 'LISTEN%'"
)


def notify(tx: Transaction) -> None:
    tx.notify(Topic.JOBS)


async def cleared(*databases: Database) -> None:
    """Wait until they listen, and forget what woke them so far."""
    for database in databases:
        for topic in Topic:
            async with asyncio.timeout(SOON_S):
                await database.event(topic).wait()
            database.event(topic).clear()


async def woken(database: Database, topic: Topic = Topic.JOBS) -> None:
    async with asyncio.timeout(SOON_S):
        await database.event(topic).wait()


async def test_a_commit_wakes_the_other_copies_for_its_topic_and_its_own_copy_once(
    postgres_url: str,
) -> None:
    async with (
        PostgresDatabase.open(postgres_url, timings=RARELY) as here,
        PostgresDatabase.open(postgres_url, timings=RARELY) as there,
    ):
        await cleared(here, there)
        await here.run(notify)
        assert here.event(Topic.JOBS).is_set(), "with the answer"
        here.event(Topic.JOBS).clear()
        await woken(there)
        await there.run(lambda tx: tx.notify(Topic.HOMES))
        await woken(here, Topic.HOMES)
        assert not here.event(Topic.JOBS).is_set(), "its own notification came before"
        assert not there.event(Topic.DELIVERIES).is_set()

        there.event(Topic.JOBS).clear()
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            assert connection.execute(_END_LISTENERS).fetchone() == (2,)
        await cleared(here, there)  # they look for what they have missed
        await there.run(notify)
        await woken(here)


async def test_work_whose_notification_was_lost_is_found_by_the_slow_poll(
    postgres_url: str,
) -> None:
    often = replace(RARELY, slow_poll=timedelta(milliseconds=50))
    async with PostgresDatabase.open(postgres_url, timings=often) as database:
        for _ in range(3):
            await cleared(database)


async def test_a_quiet_copy_has_one_connection_for_work_and_one_to_listen(
    postgres_url: str,
) -> None:
    async with PostgresProxy(postgres_url).running() as proxy:
        async with PostgresDatabase.open(proxy.url, timings=RARELY) as database:
            await cleared(database)
            for _ in range(20):
                await database.run(count)
            connected = proxy.connections
            sent = len(proxy.statements)
            await asyncio.gather(*(database.run(count) for _ in range(400)))
            assert proxy.connections <= 6
        assert connected == 3, "the migrations have one"
        assert len(proxy.statements) - sent < 400 + 3 * 400 / 4, (
            "several works are committed at once"
        )


# ── Behind a pooler ───────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def pooled_by_transaction(postgres_url: str) -> Iterator[str]:
    """Return a database's URL through pgbouncer in transaction mode, with three connections."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        assert REQUIRED not in os.environ  # noqa: TID251 - not a setting of the bot's
        pytest.skip("needs PgBouncer (Debian: pgbouncer)")
    url, port = urlsplit(postgres_url), free_port()
    [socket] = parse_qs(url.query)["host"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "users").write_text('"postgres" ""\n')
        (folder / "ini").write_text(
            f"[databases]\n* = host={socket} port=5432\n[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {port}\n"
            f"auth_type = trust\nauth_file = {folder}/users\n"
            "pool_mode = transaction\ndefault_pool_size = 3\nunix_socket_dir =\n"
            + ("user = nobody\n" if os.geteuid() == 0 else "")
        )
        process = subprocess.Popen([program, "--quiet", folder / "ini"], stderr=subprocess.PIPE)
        try:
            yield f"postgresql://postgres@127.0.0.1:{port}{url.path}"
        finally:
            process.terminate()
            process.communicate()


@pytest.fixture
def pooled_url(postgres_url: str) -> Iterator[str]:
    with pooled_by_transaction(postgres_url) as url:
        yield url


@pytest.fixture
async def pooled(pooled_url: str) -> AsyncIterator[Database]:
    async with PostgresDatabase.open(
        pooled_url, timings=replace(RARELY, pooled_slow_poll=timedelta(milliseconds=50))
    ) as database:
        yield database


async def test_the_bot_works_behind_a_pooler_of_transactions_and_polls_for_work(
    pooled: Database, postgres_url: str
) -> None:
    results = await asyncio.gather(*(pooled.run(add) for _ in range(200)))
    assert sorted(results) == [*range(1, 201)]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SOON_S):
                assert await pooled.run(add) == 201
        [[listening]] = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
            " AND datname = current_database()"
        ).fetchall()
    assert listening == 0, "what it would hear there is another's"
    began = time.monotonic()
    await cleared(pooled)
    await cleared(pooled)
    assert time.monotonic() - began < SOON_S
    async with PostgresDatabase.open(postgres_url, timings=RARELY) as direct:
        await cleared(direct)
        await pooled.run(notify)
        await woken(direct)
