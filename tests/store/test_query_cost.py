"""What a statement reads does not grow with what it does not need."""

import asyncio
import contextlib
import json
import re
import secrets
import sqlite3
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.model import Request
from bot.store import Limits, Store
from bot.store.database import Database, Query, Row, Transaction, Value
from bot.store.deliveries import _ASKING, _FIRST, _LISTED
from bot.store.job_rows import _CAN_ADOPT, LAST_LIMIT_CHANGES, SET_CANDIDATE
from bot.store.jobs import _FORM, _IN_PUBLIC, _OF_HOME, _OF_USER
from bot.store.memory import _RECENT
from bot.store.postgres.engine import PostgresDatabase
from bot.store.sqlite import SQLiteDatabase
from bot.store.usage import _GIVE_BACK, _OF_MONTH, USED, periods
from tests.databases import migrate
from tests.statements import all_queries
from tests.store.test_store import NOW, TIMINGS

_PERIODS: Mapping[str, Value] = periods("U1", datetime(2026, 11, 24, tzinfo=UTC))
_FORM_VALUES: dict[str, Value] = {
    "key": "another",
    "retry_of": "none",
    "face": "r-1",
    "fingerprint": "1",
    "since": 0,
    "seen_in": "C1",
    "sees_all": 0,
    **_PERIODS,
}


def add_jobs(db: sqlite3.Connection, count: int, state: str = "running") -> None:
    """Add jobs, each of a person of its own, with a card whose edit is due."""
    known = db.execute("SELECT count(*) FROM jobs").fetchone()[0]
    for number in range(known, known + count):
        db.execute(
            "INSERT INTO jobs (id, request_key, kind, params, user_id, channel, created_at, state)"
            " VALUES (:n, :n, 'video', '{}', :n, 'C1', 1, :state)",
            {"n": f"job-{number}", "state": state},
        )
        db.execute(
            "INSERT INTO attempts"
            " (job_id, user_id, kind, token_hash, made_at, remote_id, candidate_id)"
            " VALUES (:n, 'U1', 'video', :n, 1, :n, :n)",
            {"n": f"job-{number}"},
        )
        db.execute(
            "INSERT INTO usage VALUES (:n, '2026-11-24', 1, 1, 1, 1), (:n, '2026-10', 1, 1, 1, 1)",
            {"n": f"job-{number}"},
        )
        db.execute(
            "INSERT INTO deliveries (job_id, role, state, channel, due_at, version)"
            " VALUES (?, 'card', 'posted', 'C1', ?, 2)",
            (f"job-{number}", number),
        )
        db.execute("INSERT INTO audit (at, action, detail) VALUES (?, 'found', 'v1')", [number])
    db.commit()


def add_ended_jobs(db: sqlite3.Connection, count: int) -> None:
    """Add jobs, and have all succeeded, of one person, with replies in public channels."""
    add_jobs(db, count)
    db.execute("UPDATE jobs SET ended_at = 1, state = 'succeeded', user_id = 'U1'")
    db.execute("UPDATE deliveries SET public = 1")


def cost(db: sqlite3.Connection, query: Query, values: Mapping[str, Value]) -> int:
    """Return how many instructions SQLite runs for a statement, in hundreds."""
    hundreds = 0

    def count() -> int:
        nonlocal hundreds
        hundreds += 1
        return 0

    db.set_progress_handler(count, 100)
    db.execute(query.sqlite, dict(values)).fetchall()
    db.rollback()
    return hundreds


async def expect_same_cost(
    folder: Path,
    query: Query,
    values: Mapping[str, Value],
    add: Callable[[sqlite3.Connection, int], None],
) -> None:
    path = folder / "bot.db"
    await migrate(path)
    with contextlib.closing(sqlite3.connect(path)) as db:
        add(db, 100)
        few = cost(db, query, values)
        add(db, 1900)
        assert cost(db, query, values) <= few * 1.2 + 1


async def test_a_statement_costs_the_same_beside_many_rows_that_do_not_concern_it(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    cases: list[tuple[Query, Mapping[str, Value]]] = [
        (SET_CANDIDATE, {"kind": "video", "remote_id": "job-7", "attempt_id": 1, "now": 1}),
        (_CAN_ADOPT, {"kind": "video", "remote_id": "job-7", "attempt_id": 8, "user_supplied": 1}),
        (_FIRST, {"held": "[]", "window": 128}),
        (_ASKING, {"job_id": "job-7"}),
        (_LISTED, {"ids": "[7]"}),
        (_FORM, _FORM_VALUES),
        (USED, _PERIODS),
        (_GIVE_BACK, {"videos": 1, "spoken_ms": 1, "trainings": 0, "now": 1, **_PERIODS}),
        (_OF_MONTH, {"month": "2026-11"}),
        (LAST_LIMIT_CHANGES, {"limit": 5}),
    ]
    for query, values in cases:
        with subtests.test(query=query, values=values):
            await expect_same_cost(tmp_path, query, values, add_jobs)


async def test_a_form_home_and_a_search_cost_the_same_for_a_person_with_many_ended_jobs(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    cases: list[tuple[Query, Mapping[str, Value]]] = [
        (_FORM, _FORM_VALUES),
        (_OF_HOME, {"user": "U1", "limit": 11, "skip": 0}),
        (_OF_USER, {"user": "U1", "kind": "video", "limit": 11}),
        (_IN_PUBLIC, {"kind": "video", "limit": 11}),
        (_RECENT, {"kind": "video", "limit": 11}),
    ]
    for query, values in cases:
        with subtests.test(query=query):
            await expect_same_cost(tmp_path, query, values, add_ended_jobs)


_PLACEHOLDER: Final = re.compile(r"%\((\w+)\)s")
# Of each type that PostgreSQL derives for a parameter, values as the store passes them.
_SAMPLES: Final[Mapping[str, tuple[Any, ...]]] = {
    "text": ("text", "", None),
    "bigint": (1, 1_700_000_000_000, 0, None),
    "integer": (1, 0, None),
    "text[]": (["text"], []),
    "name[]": (["text"], []),
    "bigint[]": ([1, 1_700_000_000_000], []),
}
_NUMBER: Final = 1_700_000_000_000
_NEVER_NULL: Final = ("now", "lease_end")


def test_every_statement_of_the_store_has_types_that_postgresql_accepts(postgres_url: str) -> None:
    queries = dict(all_queries())
    assert len(queries) > 80
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for name, query in queries.items():
            types = _types_of(connection, query, name)
            # Whatever the values are: psycopg passes small numbers as other types than large ones.
            for at in range(4):
                values = {
                    each: _NUMBER
                    if each in _NEVER_NULL
                    else _SAMPLES[kind][at % len(_SAMPLES[kind])]
                    for each, kind in types
                }
                try:
                    connection.execute(f"EXPLAIN {query.postgres}".encode(), values)
                except psycopg.Error as error:
                    pytest.fail(f"{name} with {values}: {error}")


def _types_of(
    connection: psycopg.Connection[Any], query: Query, name: str
) -> list[tuple[str, str]]:
    """Return the parameters of a statement with the types that PostgreSQL derives."""
    parameters = list(dict.fromkeys(_PLACEHOLDER.findall(query.postgres)))
    text = _PLACEHOLDER.sub(lambda each: f"${parameters.index(each[1]) + 1}", query.postgres)
    # Of these it derives none where they are subtracted. psycopg says that they are numbers.
    given = ["bigint" if name in _NEVER_NULL else "unknown" for name in parameters]
    types = f"({', '.join(given)})" if given else ""
    try:
        connection.execute(f"PREPARE it{types} AS {text.replace('%%', '%')}".encode())
    except psycopg.Error as error:
        pytest.fail(f"{name}: {error}")
    found = connection.execute(
        "SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'it'"
    )
    [(derived,)] = found.fetchall()
    connection.execute("DEALLOCATE it")
    return list(zip(parameters, derived, strict=True))


def test_every_time_fits_its_column(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        narrow = connection.execute(
            "SELECT table_name, column_name FROM information_schema.columns"
            " WHERE table_schema = 'public' AND data_type <> 'bigint'"
            r" AND column_name ~ '(_at|_ms|_since|_until|_before|revision)$'"
        ).fetchall()
    assert not narrow


_ENDED: Final = 30_000
_FILL: Final = """
    INSERT INTO jobs (id, request_key, kind, params, user_id, channel, created_at, state, due_at,
                      ended_at, erased)
    SELECT 'j' || n, 'k' || n, 'video', '{}', 'U' || mod(n, 50), 'C1', n, 'succeeded', NULL, n, 1
    FROM generate_series(1, %(ended)s) AS n;
    INSERT INTO jobs (id, request_key, kind, params, user_id, channel, created_at, state, due_at)
    SELECT 'o' || n, 'o' || n, 'video', '{}', 'U1', 'C1', n, 'queued', n
    FROM generate_series(1, 20) AS n;
    INSERT INTO deliveries (job_id, role, state, channel, due_at)
    SELECT id, 'card', 'posted', 'C1', due_at FROM jobs;
    INSERT INTO attempts (job_id, user_id, kind, token_hash, made_at, outcome, remote_id)
    SELECT id, user_id, 'video', id, created_at, 'created', id FROM jobs;
"""


@pytest.mark.parametrize("analyzed", [False, True])
async def test_claims_read_what_is_due_and_not_what_has_ended(
    postgres_url: str, *, analyzed: bool
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for statement in _FILL.split(";"):
            if statement.strip():
                connection.execute(statement.encode(), {"ended": _ENDED})
        if analyzed:
            connection.execute("ANALYZE")
        async with PostgresDatabase.open(postgres_url) as database:
            limits = Limits(max_per_user_per_month=20, max_per_month=20)
            store = Store(cast(Database, _WithPlans(database)), TIMINGS, limits)
            for _ in range(12):  # a plan for any values would come with the sixth
                await store.jobs.claim(NOW, 1)
                await store.deliveries.claim(NOW, 1)
                if analyzed:
                    await store.jobs.wake_far_future(NOW)
                    await store.deliveries.wake_far_future(NOW)
                await store.jobs.fetch_by_remote_id("video", "j7")
                await store.figures(NOW)
                key = secrets.token_hex(8)
                request = Request(key, "video", {"script": "Hi"}, "U1", "C1", fingerprint=key)
                await store.jobs.submit(request, NOW, seen_in="C1")
                await database.run(lambda tx: store.limits.refresh(tx, NOW), durable=False)


_READ_WHOLLY: Final = Query(
    "SELECT relname FROM pg_stat_xact_user_tables"
    " WHERE relname IN ('jobs', 'deliveries', 'attempts') AND seq_scan > 0"
)


class _WithPlans:
    """A database in which no statement reads all rows of a large table."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the database has
        return getattr(self._database, name)

    async def run(self, work: Any, **options: bool) -> Any:  # noqa: ANN401 - likewise
        return await self._database.run(lambda tx: work(_Explained(tx)), **options)


class _Explained:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self.notify = tx.notify
        self.once = tx.once
        self.lock = self.all

    def all(self, query: Query, **values: Any) -> Any:  # noqa: ANN401 - likewise
        rows = self._tx.all(Query(f"EXPLAIN (FORMAT JSON) {query.text}"), **values)
        plan = json.dumps([row["QUERY PLAN"] for row in rows])
        for table in ("jobs", "deliveries", "attempts"):
            read_all = f'"Node Type": "Seq Scan", .{{0,200}}"Relation Name": "{table}"'
            assert not re.search(read_all, plan), f"{query.text}\n{json.dumps(rows, indent=1)}"
        found = self._tx.all(query, **values)
        # EXPLAIN plans for these values, what is prepared perhaps for any.
        assert not self._tx.all(_READ_WHOLLY), query.text
        return found

    def one(self, query: Query, **values: Any) -> Any:  # noqa: ANN401 - likewise
        rows = self.all(query, **values)
        return rows[0] if rows else None


async def test_a_statement_that_was_prepared_before_a_migration_is_run_after_it(
    postgres_url: str,
) -> None:
    query = Query("SELECT * FROM channel_defaults WHERE channel = :channel")
    names = Query(
        "SELECT name FROM pg_prepared_statements"
        " WHERE starts_with(statement, 'SELECT * FROM channel_defaults')"
    )
    met = list[Row]()

    def read(tx: Transaction) -> None:
        met.extend(tx.all(names))
        assert tx.one(query, channel="C1") is None

    # Each connection prepares a statement of its own, once it has run it some times.
    async with PostgresDatabase.open(postgres_url) as database:
        while not met:
            await database.run(read)
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("ALTER TABLE channel_defaults ADD COLUMN extra TEXT")
        met.clear()
        while not met:
            await database.run(read)


_STORE: Final = Query(
    """
    INSERT INTO answered_messages (channel, ts, answered_at) VALUES (:channel, :ts, 0)
    ON CONFLICT (channel, ts) DO UPDATE SET answered_at = 1
    """
)
_READ: Final = Query(
    "SELECT channel, ts FROM answered_messages WHERE channel = :channel AND ts IN (EACH :all_ts)"
)
_ANY_TEXT: Final = st.text(st.characters(exclude_categories=()), max_size=8)


def test_every_text_that_sqlite_stores_is_stored_by_postgresql_and_found_again(
    postgres_url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("texts") / "bot.db"

    async def store_all(texts: list[str]) -> None:
        async with (
            PostgresDatabase.open(postgres_url) as postgres,
            SQLiteDatabase.open(file, TIMINGS.lock_timeout) as sqlite,
        ):
            for text in texts:
                stored = await _stored(postgres, text)
                assert stored == text.replace("\0", "?").encode(errors="replace").decode()
                if stored == text:
                    assert await _stored(sqlite, text) == text

    @settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(_ANY_TEXT, min_size=10, max_size=30))
    def store(texts: list[str]) -> None:
        asyncio.run(
            store_all([*texts, "\0", "a\0b", "\ud800", "🦉", "\ufffe", "'; --", "%s", ":x"])
        )

    store()


async def _stored(database: Database, text: str) -> str:
    def work(tx: Transaction) -> str:
        tx.all(_STORE, channel=text, ts=text)
        row = tx.one(_READ, channel=text, all_ts=[text])
        assert row is not None, repr(text)
        assert row["channel"] == row["ts"]
        return str(row["ts"])

    return await database.run(work, durable=False)
