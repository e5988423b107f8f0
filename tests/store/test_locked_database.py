"""Somebody has locked the database, or a table of it: people are told so within two seconds."""

import asyncio
import contextlib
import logging
import multiprocessing
import os
import shutil
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from dataclasses import replace
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, Self, TypeVar
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from bot.store import DatabaseUnavailable
from bot.store.database import Database, Query, Topic, Transaction
from bot.store.postgres.engine import PostgresDatabase
from bot.timings import Timings
from sandbox.delivery import deliver
from sandbox.http import free_port
from tests.databases import Address
from tests.engine.test_copies import forms
from tests.modes import on_both_engines
from tests.postgres_proxy import PostgresProxy
from tests.store.test_postgres_failures import add, count, outages
from tests.world import REPLICA, World

_T = TypeVar("_T")

NOT_SAVED: Final = "This couldn't be saved. Please try again in a moment."
BROKEN: Final = "the database does not work"
MAX_ANSWER_S: Final = 2.0
# Then Slack shows its own error: https://docs.slack.dev/interactivity/handling-user-interaction
SLACK_WAITS_S: Final = 3.0
FORMS: Final = 30
NOTHING: Final = Query("SELECT 1 AS one")


class Admin:
    """Somebody who has locked a table, or the file of SQLite, in a session of their own."""

    def __init__(self, address: Address, lock: str) -> None:
        self._address, self._lock = address, lock

    def __enter__(self) -> Self:
        if isinstance(self._address, str):
            self._server = psycopg.connect(self._address, application_name="psql")
            self._server.execute(f"{self._lock} -- not for the log")
            self.pid = self._server.info.backend_pid
            return self
        context = multiprocessing.get_context("forkserver")
        self._end, theirs = context.Pipe()
        self._process = context.Process(target=_lock_file, args=(self._address, theirs))
        self._process.start()
        assert self._end.recv() == "locked"
        assert self._process.pid is not None
        self.pid = self._process.pid
        return self

    def __exit__(self, *_: object) -> None:
        if isinstance(self._address, str):
            self._server.close()
            return
        self._end.send("end")
        self._process.join()


def _lock_file(path: Path, end: Connection) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("BEGIN IMMEDIATE")
        end.send("locked")
        end.recv()


async def in_time(action: Awaitable[_T], within_s: float = MAX_ANSWER_S) -> _T:
    began = time.monotonic()
    result = await action
    taken = time.monotonic() - began
    assert taken < within_s, f"{taken:.2f} s"
    return result


def who_is_logged(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """Return what the log says of those who have locked something; nothing of what they run."""
    assert "not for the log" not in str([vars(each) for each in caplog.records])
    return [vars(each) for each in caplog.records if each.message == BROKEN]


@on_both_engines
async def test_while_somebody_has_locked_it_forms_buttons_and_commands_are_answered_in_time(
    quiet: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    quiet.creates_slowly()
    async with quiet.running_bot():
        card = await quiet.request_video(quiet.ana, {"script": "An earlier one."})
        form = await quiet.open_form(quiet.ben)
        filled = form.submit({"replica_id": REPLICA, "script": "Hello, world."})
        with Admin(quiet.address, "LOCK TABLE jobs") as admin:
            _, click, listed = await asyncio.gather(
                in_time(filled),
                in_time(quiet.ana.click(card, "Details")),
                in_time(quiet.ana.command("/video", "list")),
            )
            assert NOT_SAVED in form.errors["replica_id"]
            assert click.ok
            assert NOT_SAVED in quiet.ephemerals(quiet.ana)[-1]
            assert listed.message is not None
            assert NOT_SAVED in listed.message.text
            # Who comes later is told the same, and workers try again: it is logged once.
            await in_time(form.submit())
            assert NOT_SAVED in form.errors["replica_id"]
            [who] = who_is_logged(caplog)
            assert who["pid"] == admin.pid
            if quiet.on_postgres:
                assert who["application"] == "psql"
                assert who["since"].startswith("20")
        await quiet.after(form.send(), minutes=5)
        assert quiet.created_count() == 2
        assert [len(quiet.replies(each)) for each in quiet.posts() if not each.thread_ts] == [1, 1]
        async with asyncio.timeout(30):  # its end is noticed in real time
            while outages(caplog)[-1] == BROKEN:
                await quiet.bot.store.database.check()
    assert outages(caplog) == [BROKEN, "the database works again"]


@pytest.mark.parametrize("table", ["usage", "deliveries", "locks"])
async def test_in_a_rush_each_form_is_answered_in_time_while_somebody_has_locked_a_table(
    table: str, world_of_copies: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = world_of_copies
    async with world.running_copies(MAX_OPEN_PER_USER="100") as copies:
        requests = await world.after(forms(world, 2 * FORMS))

        async def send(request: bytes) -> str:
            # On a busy machine the rush itself takes some of it.
            answer = world.at(copies[0], deliver(world.slack, request))
            return (await in_time(answer, SLACK_WAITS_S)).body

        with Admin(world.address, f"LOCK TABLE {table}") as admin:
            first = [asyncio.ensure_future(send(each)) for each in requests[:FORMS]]  # noqa: TID251
            await asyncio.wait(first, timeout=0.8)
            answers = await asyncio.gather(*first, *map(send, requests[FORMS:]))
            assert all(NOT_SAVED in answer for answer in answers)
            assert {who["pid"] for who in who_is_logged(caplog)} == {admin.pid}


async def test_who_has_locked_something_is_logged_once_although_other_works_are_committed(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with PostgresDatabase.open(postgres_url) as database:
        for _ in range(2):
            with Admin(postgres_url, "LOCK TABLE revisions"):
                for _ in range(2):
                    with pytest.raises(DatabaseUnavailable):
                        await database.run(add)
                    await database.run(lambda tx: tx.one(NOTHING))
            # Its end is noticed by itself.
            async with asyncio.timeout(30):
                while outages(caplog)[-1] == BROKEN:
                    await database.run(add)
    assert outages(caplog) == [BROKEN, "the database works again"] * 2


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
