"""What commands do on either engine, for those who do not care which one an address belongs to."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from bot.metrics import Metrics
from bot.model import Job
from bot.store import sqlite
from bot.store.database import (
    Database,
    DatabaseError,
    DatabaseSnapshot,
    Query,
)
from bot.store.due import read_each
from bot.store.job_rows import job_from
from bot.store.jobs import FINISHED_VIDEOS
from bot.store.migrate import steps
from bot.timings import Timings

# ruff: noqa: PLC0415 - what PostgreSQL needs is an extra; without it, these imports say so


def open_database(
    address: Path | str, timings: Timings, metrics: Metrics
) -> contextlib.AbstractAsyncContextManager[Database]:
    """Open a database with its engine."""
    if isinstance(address, Path):
        return sqlite.SQLiteDatabase.open(address, timings.lock_timeout, metrics)
    from bot.store.postgres.engine import PostgresDatabase

    return PostgresDatabase.open(address, metrics, timings)


def shown(address: str) -> str:
    """Return the URL of a server without user, password and options."""
    url = urlsplit(address)
    return f"postgresql://{url.netloc.rpartition('@')[2]}{url.path}"


async def migrate(address: Path | str) -> None:
    """Bring the tables of a database up to date.

    Raises:
        DatabaseError: it cannot be used, or its tables are another version's.
    """
    async with open_database(address, Timings(), Metrics()):
        pass


def pending_migrations(address: Path | str) -> list[str]:
    """Return the names of what ``migrate`` would apply, without changing anything.

    Raises:
        DatabaseError: the database cannot be read, or has other tables than this version makes.
    """
    if isinstance(address, Path):
        sqlite.check_file(address)
        if not address.exists() or not address.stat().st_size:
            return list(steps("sqlite"))
    with open_snapshot(address) as snapshot:
        return snapshot.pending


@contextlib.contextmanager
def _sqlite_snapshot(path: Path) -> Iterator[DatabaseSnapshot]:
    """Read the database at ``path``, beside a bot that uses it.

    Raises:
        DatabaseError: it is not there, or cannot be read, or this version cannot use it.
    """
    sqlite.require_file(path)
    sqlite.check_file(path)
    with sqlite.translated(path), sqlite.read_only(path) as db:
        db.execute("BEGIN")
        done, pending = sqlite.steps_in_sqlite(db, path)
        yield DatabaseSnapshot(
            done, pending, lambda query, **values: db.execute(query.sqlite, values)
        )


def open_snapshot(
    address: Path | str,
) -> contextlib.AbstractContextManager[DatabaseSnapshot]:
    """Read a database as it is now; a bot may be using it.

    Raises:
        DatabaseError: it cannot be read, or another version made it and this one cannot use it.
    """
    if isinstance(address, Path):
        return _sqlite_snapshot(address)
    from bot.store.postgres.engine import postgres_snapshot

    return postgres_snapshot(address)


# ── What the doctor reads ─────────────────────────────────────────────────────────────────────

_SET_ASIDE: Final = Query(
    """
    SELECT 'row ' || id || ' of jobs' AS found FROM jobs WHERE set_aside = 1
    UNION ALL
    SELECT 'row ' || id || ' of deliveries' FROM deliveries WHERE set_aside = 1
    """
)


def inspect(address: Path | str) -> tuple[list[str], list[str]]:
    """Return which migrations the next start applies, and which rows workers leave alone.

    Nothing is changed.

    Raises:
        DatabaseError: the database cannot be read, or its tables are another version's.
    """
    with open_snapshot(address) as snapshot:
        rows = snapshot.all(_SET_ASIDE) if snapshot.done else ()
        return snapshot.pending, [str(row["found"]) for row in rows]


def stored_videos(address: Path | str) -> list[Job]:
    """Return the last videos that were made; none if the database cannot be read."""
    with contextlib.suppress(DatabaseError), open_snapshot(address) as snapshot:
        return read_each(job_from, snapshot.all(FINISHED_VIDEOS))[0]
    return []
