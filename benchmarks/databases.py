"""Databases as they are after a long time, written in one go."""

import contextlib
import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import psycopg

from benchmarks.fakes import FakeService
from bot.kinds.video import VIDEO
from bot.model import State, Verdict
from bot.store.database import Query
from bot.store.engines import migrate
from bot.store.job_rows import snapshot_text
from bot.store.postgres.engine import migrate as migrate_postgres

_ID: Final = "REMOTE"
# Knuth's multiplier: consecutive numbers become ids that are scattered, as random ones are.
_JOB_ID: Final = "printf('%010x', n * 2654435761 % 1099511627776)"
_AGO: Final = 600_000
_FILL: Final = f"""
CREATE TEMP TABLE numbers AS
    WITH RECURSIVE counted (n) AS (SELECT :first UNION ALL SELECT n + 1 FROM counted LIMIT :number)
    -- Where it stands in the table says nothing of when it is due.
    SELECT n, row_number() OVER (ORDER BY n * 2654435761 % 4294967296) - 1 AS place FROM counted;

INSERT INTO jobs (id, request_key, kind, params, user_id, channel, created_at, state, due_at,
                  attempts, remote_id, snapshot, started_at, read_at, ended_at)
SELECT {_JOB_ID}, 'V-' || n, 'video',
    '{{"replica_id": "r-anna-42", "script": "Welcome to the team, Kim!"}}',
    coalesce(:user, 'U' || (n % 1000)), printf('C%08d', n), :created, :state,
    CASE WHEN :ended IS NULL THEN :due + CAST(place * :spacing AS INTEGER) END,
    1, 'v-' || n, replace(:snapshot, '{_ID}', 'v-' || n), :created, :created, :ended
FROM numbers;

INSERT INTO attempts (job_id, user_id, kind, token_hash, made_at, outcome, remote_id)
SELECT {_JOB_ID}, coalesce(:user, 'U' || (n % 1000)), 'video', lower(hex(randomblob(32))),
    :created, 'created', 'v-' || n
FROM numbers;

INSERT INTO deliveries (job_id, role, state, channel, ts, version, shown_version)
SELECT {_JOB_ID}, 'card', 'posted', printf('C%08d', n), '1700000000.' || n, 2, 2 FROM numbers;

INSERT INTO deliveries (job_id, role, state, channel, thread_ts, ts, version, shown_version)
SELECT {_JOB_ID}, 'reply', 'posted', printf('C%08d', n), '1700000000.' || n,
    '1700000001.' || n, 1, 1
FROM numbers WHERE :ended IS NOT NULL;

DROP TABLE numbers;
"""  # noqa: S608 - constants


# The same rows.
_JOB_ID_POSTGRES: Final = "lpad(to_hex(mod(n * 2654435761, 1099511627776)), 10, '0')"
_FILL_POSTGRES: Final = f"""
CREATE TEMP TABLE numbers AS
    SELECT n, row_number() OVER (ORDER BY mod(n * 2654435761, 4294967296)) - 1 AS place
    FROM generate_series(%(first)s::BIGINT, %(first)s + %(number)s - 1) AS n;

INSERT INTO jobs (id, request_key, kind, params, user_id, channel, created_at, state, due_at,
                  attempts, remote_id, snapshot, started_at, read_at, ended_at)
SELECT {_JOB_ID_POSTGRES}, 'V-' || n, 'video',
    '{{"replica_id": "r-anna-42", "script": "Welcome to the team, Kim!"}}',
    coalesce(%(user)s, 'U' || mod(n, 1000)), 'C' || lpad(n::TEXT, 8, '0'), %(created)s, %(state)s,
    CASE WHEN %(ended)s::BIGINT IS NULL
        THEN %(due)s::BIGINT + (place * %(spacing)s::DOUBLE PRECISION)::BIGINT END,
    1, 'v-' || n, replace(%(snapshot)s, '{_ID}', 'v-' || n), %(created)s, %(created)s, %(ended)s
FROM numbers;

INSERT INTO attempts (job_id, user_id, kind, token_hash, made_at, outcome, remote_id)
SELECT {_JOB_ID_POSTGRES}, coalesce(%(user)s, 'U' || mod(n, 1000)), 'video',
    md5(n::TEXT) || md5('-' || n), %(created)s, 'created', 'v-' || n
FROM numbers;

INSERT INTO deliveries (job_id, role, state, channel, ts, version, shown_version)
SELECT {_JOB_ID_POSTGRES}, 'card', 'posted', 'C' || lpad(n::TEXT, 8, '0'), '1700000000.' || n, 2, 2
FROM numbers;

INSERT INTO deliveries (job_id, role, state, channel, thread_ts, ts, version, shown_version)
SELECT {_JOB_ID_POSTGRES}, 'reply', 'posted', 'C' || lpad(n::TEXT, 8, '0'), '1700000000.' || n,
    '1700000001.' || n, 1, 1
FROM numbers WHERE %(ended)s::BIGINT IS NOT NULL;

DROP TABLE numbers;
"""  # noqa: S608 - constants


async def fill(
    path: Path,
    *,
    running: int,
    ended: int = 0,
    due: int,
    spacing: float = 0,
    status: str = "generating",
    user: str | None = None,
) -> None:
    """Write a new database with ``running`` running videos and ``ended`` that have ended.

    Each is bound to the id ``v-NUMBER``, with what the fake service says of it in its snapshot, and
    has its card, which says the newest. None of them is late, or was ever read by a callback.

    Args:
        path: a file that is not there yet.
        running: how many run.
        ended: how many have ended well, with their closing replies.
        due: when the first one is due, in milliseconds since 1970.
        spacing: milliseconds from each to the next one due, in an order of its own.
        status: the service's word for those that run.
        user: who asked for all of them; by default a thousand people did.
    """
    await migrate(path)
    parts = _parts(running, ended, due, spacing, user, status=status)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        # No other process has it open, and nothing is lost if this one dies.
        db.execute("PRAGMA synchronous = OFF")
        db.execute("PRAGMA cache_size = -400000")
        db.execute("BEGIN")
        for values in parts:
            for statement in filter(str.strip, _FILL.split(";")):
                db.execute(statement, values)
        db.execute("COMMIT")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def fill_postgres(
    url: str, *, running: int, ended: int, due: int, spacing: float = 0, user: str | None = None
) -> None:
    """Write the same rows as ``fill`` into an empty PostgreSQL database."""
    migrate_postgres(url)
    with psycopg.connect(url) as connection:
        # Of one client, whose parameters are put into the text.
        cursor = psycopg.ClientCursor(connection)
        for values in _parts(running, ended, due, spacing, user):
            cursor.execute(_FILL_POSTGRES, values)
    _vacuum(url)


def owe_cards(address: Path | str, due: int, channels: int) -> None:
    """Make all cards of a database that was filled due, as if none had been posted.

    Args:
        address: a file, or the URL of a PostgreSQL database.
        due: when the last one became due, in milliseconds since 1970.
        channels: into how many they go in turn.
    """
    query = Query(
        """
        UPDATE deliveries SET state = 'pending', ts = NULL, version = 1, shown_version = 0,
            due_at = :due - id % 1000, channel = 'C' || (id % :channels)
        WHERE role = 'card'
        """
    )
    values = {"due": due, "channels": channels}
    if isinstance(address, Path):
        with contextlib.closing(sqlite3.connect(address)) as db, db:
            db.execute(query.sqlite, values)
    else:
        with psycopg.connect(address) as connection:
            connection.execute(query.postgres, values)
        _vacuum(address)


def _vacuum(url: str) -> None:
    """Do as autovacuum does soon."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


def _parts(
    running: int,
    ended: int,
    due: int,
    spacing: float,
    user: str | None,
    *,
    status: str = "generating",
) -> Sequence[Mapping[str, str | float | None]]:
    """Return the values of the jobs that run, and of those that have ended."""
    common = {"created": due - _AGO, "due": due, "spacing": spacing, "user": user}
    return [
        {
            **common,
            "first": first,
            "number": number,
            "state": state.value,
            "ended": at,
            "snapshot": _snapshot(word),
        }
        for number, first, state, word, at in (
            (running, 1, State.RUNNING, status, None),
            (ended, running + 1, State.SUCCEEDED, "ready", due),
        )
        if number
    ]


def add_replicas(path: Path, number: int, now: int) -> None:
    """Add ``number`` trained replicas with names, read at ``now``, in milliseconds."""
    first = ("Anna", "Ben", "Chloé", "Daniel", "Elif", "Farah", "Goran", "Hana", "Ivan", "Jun")
    last = ("Abe", "Bauer", "Costa", "Dahl", "Evans", "Fischer", "Garcia", "Haas", "Ito", "Jones")
    names = [f"{first[n % 10]} {last[n // 10 % 10]} {n:05d}" for n in range(number)]
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN")
        db.executemany(
            """
            INSERT INTO replicas (id, name, search_name, status, verdict, read_at, used_at)
            VALUES (?, ?, ?, 'completed', 'succeeded', ?, ?)
            """,
            [
                (f"r{n * 2654435761 % 4294967296:08x}", name, name.casefold(), now, now - n)
                for n, name in enumerate(names)
            ],
        )
        db.execute("COMMIT")


def _snapshot(status: str) -> str:
    """Return what the bot keeps of the fake service's answer to a read."""
    service = FakeService()
    service.status_of = lambda _: status
    answer = json.loads(service.answer("GET", f"/v2/videos/{_ID}", b""))
    read = VIDEO.read(answer, _ID)
    verdict = Verdict.SUCCEEDED if status == "ready" else Verdict.GOING
    return snapshot_text(replace(read, verdict=verdict)) or ""
