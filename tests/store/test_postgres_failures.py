"""The PostgreSQL engine when connections, or the server, fail: nothing is stored twice or lost."""

import asyncio
import inspect
import logging
import re
import signal
import ssl
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import psycopg
import pytest
from psycopg import errors

from bot.metrics import Metrics
from bot.store import DatabaseError, DatabaseUnavailable, DatabaseUncertain
from bot.store.database import Query, Topic, Transaction, run_until_stored
from bot.store.postgres.engine import MEANINGS, Meaning, PostgresDatabase, meaning_of, migrate
from bot.timings import Timings
from tests.postgres_proxy import Fault, PostgresProxy
from tests.postgres_server import QUICK, Server
from tests.world import MEMORY

_T = TypeVar("_T")

TIMINGS: Final = Timings()
# Where an answer never comes: elsewhere a busy server may take as long for one.
IMPATIENT: Final = replace(TIMINGS, database_silence=timedelta(seconds=1))
SHORT: Final = replace(TIMINGS, max_database_wait=timedelta(milliseconds=200))
# Many times what anything takes.
SOON_S: Final = 20

_ADD: Final = Query(
    """
    INSERT INTO revisions (name, revision) VALUES ('test', 1)
    ON CONFLICT (name) DO UPDATE SET revision = revisions.revision + 1 RETURNING revision
    """
)
_COUNT: Final = Query("SELECT revision FROM revisions WHERE name = 'test'")
_TERMINATE: Final = (
    "SELECT count(*) FROM pg_stat_activity, LATERAL pg_terminate_backend(pid)"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


def add(tx: Transaction) -> int:
    """Add 1 to a number, which shows how often this was committed."""
    row = tx.one(_ADD)
    assert row is not None
    return int(row["revision"])


def count(tx: Transaction) -> int:
    row = tx.one(_COUNT)
    return 0 if row is None else int(row["revision"])


def slow_work(begun: asyncio.Event, may_end: threading.Event) -> Callable[[Transaction], int]:
    """Return a work that sets ``begun``, waits for ``may_end``, and adds 1."""
    loop = asyncio.get_running_loop()

    def work(tx: Transaction) -> int:
        loop.call_soon_threadsafe(begun.set)
        assert may_end.wait(SOON_S)
        return add(tx)

    return work


@pytest.fixture
async def proxy(postgres_url: str) -> AsyncIterator[PostgresProxy]:
    async with PostgresProxy(postgres_url).running() as proxy:
        yield proxy


def spawn(coroutine: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
    return asyncio.create_task(coroutine)  # noqa: TID251 - the test awaits it


def outages(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what the log says of the database, oldest first."""
    return [each.message for each in caplog.records if each.message.startswith("the database ")]


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.STALL])
async def test_nobody_notices_that_a_connection_is_lost_before_its_commit(
    proxy: PostgresProxy, fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    timings = IMPATIENT if fault is Fault.STALL else TIMINGS
    async with PostgresDatabase.open(proxy.url, timings=timings) as database:
        for expected, statement in enumerate(("BEGIN ISO", "revisions.revision"), 1):
            proxy.fail_next(statement, fault)
            assert await database.run(add) == expected
        proxy.fail_next("revisions.revision", fault)
        assert await asyncio.gather(*(database.run(add) for _ in range(9)))
        assert await database.run(count) == 11
    assert not outages(caplog)


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.STALL])
async def test_a_commit_without_an_answer_is_not_run_a_second_time(
    proxy: PostgresProxy, fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    timings = IMPATIENT if fault is Fault.STALL else TIMINGS
    async with PostgresDatabase.open(proxy.url, timings=timings) as database:
        proxy.fail_next("COMMIT\0", fault)
        with pytest.raises(DatabaseUncertain):
            await database.run(add)
        assert await database.run(count) == int(fault is not Fault.CUT_BEFORE)
        assert outages(caplog) == ["the database does not work", "the database works again"]

        proxy.fail_next("COMMIT\0", fault)
        interval = timedelta(milliseconds=1)
        await run_until_stored(database, add, retry_interval=interval)
        assert await database.run(count) >= 1 + int(fault is not Fault.CUT_BEFORE)


async def test_works_wait_for_a_server_that_is_away_for_a_moment(
    proxy: PostgresProxy, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    long = replace(TIMINGS, max_database_wait=timedelta(seconds=SOON_S))
    async with PostgresDatabase.open(proxy.url, timings=long) as database:
        assert await database.run(add) == 1
        with psycopg.connect(postgres_url) as connection:
            connection.execute(_TERMINATE)
        assert await database.run(add) == 2

        proxy.is_away = True
        proxy.cut_all()
        waiting = [spawn(database.run(add)) for _ in range(30)]
        while not outages(caplog):  # noqa: ASYNC110 - a log has no event
            await asyncio.sleep(0.01)
        proxy.is_away = False
        assert sorted(await asyncio.gather(*waiting)) == [*range(3, 33)]
    assert outages(caplog) == ["the database does not work", "the database works again"]
    assert "start it" in str(vars(caplog.records[0])["reason"])


async def test_works_fail_at_once_while_a_server_is_away_for_long(
    proxy: PostgresProxy, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with PostgresDatabase.open(proxy.url, timings=SHORT) as database:
        assert await database.run(add) == 1
        proxy.is_away = True
        proxy.cut_all()
        failed = await asyncio.gather(
            *(database.run(add) for _ in range(30)), return_exceptions=True
        )
        assert {type(each) for each in failed} == {DatabaseUnavailable}
        tries = proxy.connections
        began = time.monotonic()
        for _ in range(1000):
            with pytest.raises(DatabaseUnavailable, match="start it"):
                await database.run(add)
        assert time.monotonic() - began < SOON_S
        assert proxy.connections - tries < 30, "it does not knock all the time"
        stored = spawn(run_until_stored(database, add, retry_interval=timedelta(milliseconds=20)))
        await asyncio.sleep(0)
        proxy.is_away = False
        async with asyncio.timeout(SOON_S):
            assert await stored == 2
    assert outages(caplog) == ["the database does not work", "the database works again"]


async def test_a_quiet_copy_uses_the_connections_that_it_has_while_the_server_accepts_no_more(
    proxy: PostgresProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long enough for the other worker to become idle first, also on a busy machine.
    monkeypatch.setattr("bot.store.postgres.engine._REFUSED_PAUSE_S", 0.5)
    begun, may_end = asyncio.Event(), threading.Event()
    is_slow = slow_work(begun, may_end)
    try:
        async with PostgresDatabase.open(proxy.url, timings=TIMINGS) as database:
            await asyncio.sleep(0)  # else all connections are opened for the first work
            await database.run(add)
            await database.event(Topic.JOBS).wait()  # it listens
            proxy.is_away = True
            tries = proxy.connections
            slow = spawn(database.run(is_slow))
            await begun.wait()
            waiting = spawn(database.run(add))
            while proxy.connections == tries:  # noqa: ASYNC110 - nor has a number
                await asyncio.sleep(0.001)
            may_end.set()
            async with asyncio.timeout(SOON_S):
                assert await slow == 2
                assert await waiting == 3
                while len(database._idle) < len(database._links):  # noqa: ASYNC110 - likewise
                    await asyncio.sleep(0.001)
                tries = proxy.connections
                assert await database.run(add) == 4
                assert proxy.connections == tries, "the open one is taken"
    finally:
        may_end.set()


async def test_a_copy_that_cannot_listen_looks_for_work_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bot.store.postgres.engine._LISTEN_AGAIN_S", 0.0)
    interval = timedelta(hours=1)
    timings = Timings(slow_poll=interval, pooled_slow_poll=interval)
    database = PostgresDatabase("postgresql:///test?host=/missing", Metrics(), timings)
    try:
        async with asyncio.timeout(SOON_S):
            for _ in range(3):
                for topic in Topic:
                    await database.event(topic).wait()
                    database.event(topic).clear()
    finally:
        await database.close()


@pytest.mark.parametrize("stalled", [False, True])
async def test_it_closes_soon_while_the_server_is_away(
    proxy: PostgresProxy, *, stalled: bool
) -> None:
    timings = replace(SHORT, database_silence=timedelta(minutes=1))
    async with PostgresDatabase.open(proxy.url, timings=timings) as database:
        proxy.is_away = not stalled
        proxy.fail_next("revisions.revision", Fault.STALL)
        waiting = spawn(database.run(add))
        fact = spawn(run_until_stored(database, add, retry_interval=timedelta(milliseconds=10)))
        await asyncio.sleep(0.05)
        proxy.is_away = True
        began = time.monotonic()
    assert time.monotonic() - began < SOON_S
    with pytest.raises(DatabaseUnavailable):
        await waiting
    with pytest.raises(DatabaseError):
        await fact


@pytest.mark.parametrize("part", ["_work", "_listen", "_notify_others"])
async def test_nothing_is_stored_any_more_once_a_task_of_the_database_has_ended(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(PostgresDatabase, part, fail)
    async with asyncio.timeout(SOON_S), PostgresDatabase.open(postgres_url) as database:
        asked = spawn(database.run(count))
        with pytest.raises(DatabaseUnavailable, match=r"ended unexpectedly\. Restart the bot"):
            await database.watch()
        with pytest.raises(DatabaseUnavailable):
            await database.run(count)
        asked.cancel()


@pytest.fixture(scope="module")
def own_server() -> Iterator[Server]:
    """A server that these tests may stop."""
    with tempfile.TemporaryDirectory(dir=MEMORY, ignore_cleanup_errors=True) as folder:
        server = Server(Path(folder))
        server.create()
        server.start()
        yield server
        server.stop()


async def test_works_are_neither_lost_nor_doubled_when_the_server_restarts(
    own_server: Server,
) -> None:
    long = replace(TIMINGS, max_database_wait=timedelta(seconds=SOON_S))
    async with PostgresDatabase.open(own_server.url, timings=long) as database:
        before = await database.run(count)
        uncertain, done = 0, 0

        async def add_many() -> None:
            nonlocal uncertain, done
            for _ in range(40):
                try:
                    await database.run(add)
                    done += 1
                except DatabaseUncertain:
                    uncertain += 1

        under_way = [spawn(add_many()) for _ in range(8)]
        while done < 80:  # noqa: ASYNC110 - nor has a number
            await asyncio.sleep(0)
        await asyncio.to_thread(own_server.stop, signal.SIGQUIT)
        await asyncio.to_thread(own_server.start)
        async with asyncio.timeout(SOON_S):
            await asyncio.gather(*under_way)
        stored = await database.run(count) - before
        assert done <= stored <= done + uncertain
        assert done + uncertain == 320


async def test_a_work_fails_in_time_where_a_lost_connection_was_idle(own_server: Server) -> None:
    begun, may_end = asyncio.Event(), threading.Event()
    async with PostgresDatabase.open(own_server.url, timings=SHORT) as database:
        first = spawn(database.run(slow_work(begun, may_end)))
        await begun.wait()
        await database.run(count)  # over a second connection
        may_end.set()
        await first
        await asyncio.to_thread(own_server.stop, signal.SIGQUIT)
        try:
            async with asyncio.timeout(SOON_S):
                with pytest.raises(DatabaseUnavailable):
                    await database.run(count)
        finally:
            await asyncio.to_thread(own_server.start)


async def test_a_server_that_is_read_only_is_not_written_to_until_it_is_the_primary_again(
    own_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with PostgresDatabase.open(own_server.url, timings=SHORT) as database:
        before = await database.run(add)
        _set_read_only(own_server, "on")
        while not outages(caplog):  # the server reads its settings soon
            try:
                before = await database.run(add)
            except DatabaseUnavailable as error:
                assert "read-only, as after a failover" in str(error)  # noqa: PT017
        _set_read_only(own_server, "off")
        async with asyncio.timeout(SOON_S):
            added = await run_until_stored(database, add, retry_interval=timedelta(milliseconds=20))
        assert added == before + 1
    assert outages(caplog) == ["the database does not work", "the database works again"]


def _set_read_only(server: Server, value: str) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        connection.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
        connection.execute("SELECT pg_reload_conf()")


async def test_a_start_waits_for_a_server_that_is_starting(own_server: Server) -> None:
    await asyncio.to_thread(own_server.stop, signal.SIGINT)
    starting = spawn(_open_and_count(own_server.url))
    await asyncio.sleep(0.1)
    assert not starting.done()
    await asyncio.to_thread(own_server.start)
    assert await starting >= 0


async def _open_and_count(url: str) -> int:
    async with PostgresDatabase.open(url, timings=TIMINGS) as database:
        return await database.run(count)


def test_a_start_says_at_once_what_no_waiting_helps(postgres_url: str) -> None:
    with pytest.raises(DatabaseError, match="no such database: create it") as raised:
        migrate(postgres_url.replace("/test", "/missing").replace("/postgres?", "/missing?"))
    assert not isinstance(raised.value, DatabaseUnavailable)


async def test_a_start_in_the_middle_of_which_the_server_is_lost_is_tried_again(
    postgres_url: str,
) -> None:
    async with PostgresProxy(postgres_url).running() as proxy:
        proxy.fail_next("FROM migrations", Fault.CUT_BEFORE)
        async with PostgresDatabase.open(proxy.url) as database:
            await database.check()


SECRET = "the launch is on Friday"
PASSWORD = "pa%3Asq%40zebra"

_CHANNEL = Query("INSERT INTO channel_defaults (channel, replica_id) VALUES (:text, :text)")
_TWICE = Query("INSERT INTO answered_messages VALUES (:text, 'ts', 0), (:text, 'ts', 0)")
_NOT_NULL = Query("INSERT INTO jobs (id, reason) VALUES (:text, :text)")
_NO_NUMBER = Query("SELECT CAST(CAST(:text AS TEXT) AS BIGINT)")
_RAISED = Query("DO $$ BEGIN RAISE EXCEPTION 'the launch is on Friday'; END $$")


def test_every_error_of_psycopg_has_a_meaning() -> None:
    found = [each for _, each in inspect.getmembers(errors, inspect.isclass)]
    kinds = [each for each in found if issubclass(each, psycopg.Error)]
    assert len(kinds) > 200
    for kind in kinds:
        if kind.sqlstate is not None:
            assert kind.sqlstate[:2] in MEANINGS, f"{kind.__name__} ({kind.sqlstate}) has none"
        assert isinstance(meaning_of(kind()), Meaning)
    known = {each.sqlstate for each in kinds} | {(each.sqlstate or "")[:2] for each in kinds}
    assert known >= MEANINGS.keys(), "these do not exist"


def test_nothing_that_may_have_been_stored_is_repeated_as_a_conflict() -> None:
    conflicts = {state for state, each in MEANINGS.items() if each is Meaning.CONFLICT}
    assert conflicts == {"0A000", "40", "55P03", "72"}
    assert MEANINGS["40003"] is Meaning.LOST


async def test_no_error_of_a_statement_shows_what_is_stored(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with PostgresDatabase.open(postgres_url) as database:
        for query in (_CHANNEL, _TWICE, _NOT_NULL, _NO_NUMBER, _RAISED):

            def work(tx: Transaction, query: Query = query) -> None:
                tx.all(query, **({} if query is _RAISED else {"text": SECRET}))

            with pytest.raises(DatabaseError) as raised:
                await database.run(work)
            logging.error("a step failed", exc_info=raised.value)  # noqa: LOG015 - with all causes
    assert len(caplog.records) >= 5
    assert SECRET not in caplog.text
    assert "violates not-null constraint" in caplog.text


def test_no_error_of_a_connection_shows_a_part_of_its_url(
    caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests
) -> None:
    for url, words in [
        (f"postgresql://bot:{PASSWORD}@127.0.0.1:1/bot", "start it"),
        (f"postgresql://bot:{PASSWORD}@nowhere.invalid/bot", "name cannot be resolved"),
        (f"postgresql://bot@127.0.0.1:1/bot?password={PASSWORD}", "start it"),
        (f"postgresql://bot:{PASSWORD}%zz@127.0.0.1:1/bot", "not a URL of PostgreSQL's"),
        (f"postgresql://bot:x@{PASSWORD}@127.0.0.1:1/bot", "name cannot be resolved"),
        (f"postgresql://bot:{PASSWORD}@127.0.0.1:1/bot?sslmode={PASSWORD}", "sslmode"),
        (f"postgresql://bot@127.0.0.1:1/bot?pasword={PASSWORD}", "not a URL of PostgreSQL's"),
    ]:
        with subtests.test(url=url, words=words):
            caplog.set_level(logging.DEBUG)
            with pytest.raises(DatabaseError, match=words) as raised:
                migrate(url)
            logging.error("the start failed", exc_info=raised.value)  # noqa: LOG015 - as a start
            assert not re.search("zebra|pa:sq|pa%3A", caplog.text)
            waits = "resolved" in words or "start" in words
            assert isinstance(raised.value, DatabaseUnavailable) is waits


# For 127.0.0.1, signed by itself, with its key.
_CERTIFICATE: Final = Path(__file__).parent.parent / "data" / "tls" / "loopback.pem"


async def test_a_connection_is_encrypted_and_verified_as_its_url_says(postgres_url: str) -> None:
    async with PostgresProxy(postgres_url).running() as proxy:
        with pytest.raises(DatabaseError, match="offers no encryption: switch it on there"):
            async with PostgresDatabase.open(f"{proxy.url}?sslmode=require"):
                pass  # the server offers none
        proxy.encryption = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        proxy.encryption.load_cert_chain(_CERTIFICATE)
        verified = f"{proxy.url}?sslmode=verify-full&sslrootcert={_CERTIFICATE}"
        async with PostgresDatabase.open(verified) as database:
            assert await database.run(add) == 1
        other = _CERTIFICATE.with_name("missing.pem")
        with pytest.raises(DatabaseError, match="cannot be verified: set sslrootcert") as raised:
            async with PostgresDatabase.open(
                f"{proxy.url}?sslmode=verify-full&sslrootcert={other}"
            ):
                pass
        assert not isinstance(raised.value, DatabaseUnavailable), "no waiting helps"


_SHOW = Query("SHOW synchronous_commit")


def shown(tx: Transaction) -> str:
    row = tx.one(_SHOW)
    assert row is not None
    return str(row["synchronous_commit"])


async def test_what_must_not_be_lost_waits_for_the_servers_disk_and_what_may_be_does_not(
    postgres_url: str,
) -> None:
    assert QUICK["synchronous_commit"] == "off", "the server alone would wait for nothing"
    async with PostgresDatabase.open(postgres_url) as database:
        assert await database.run(shown) == "on"
        assert await database.run(shown, durable=False) == "off"
        # Those that are committed together wait for the one that must not be lost.
        works = [database.run(shown, durable=number == 40) for number in range(41)]
        *others, durable = await asyncio.gather(*works)
        assert durable == "on"
        assert "off" in others
