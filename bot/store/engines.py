"""What commands do on either engine, for those who do not care which one an address belongs to."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
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
    Row,
    RowUnreadable,
    Server,
    from_ms,
    to_ms,
)
from bot.store.deliveries import delivery_from
from bot.store.due import read_each
from bot.store.installation import installation_from
from bot.store.job_rows import attempt_from, job_from
from bot.store.jobs import FINISHED_VIDEOS
from bot.store.migrate import steps
from bot.store.replicas import replica_from, revision_from
from bot.store.usage import change_from, spending_from
from bot.timings import Clock, Timings

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


async def migrate(address: Path | str) -> list[str]:
    """Bring the tables of a database up to date; return the names of what was applied.

    Raises:
        DatabaseError: it cannot be used, or its tables are another version's.
    """
    if isinstance(address, Path):
        return await sqlite.migrate(address)
    from bot.store.postgres.engine import migrate

    return await asyncio.to_thread(migrate, address)


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


def inspect_server(url: str, clock: Clock) -> Server:
    """Return what there is to know of a PostgreSQL server.

    Raises:
        DatabaseError: it cannot be used.
    """
    from bot.store.postgres import engine

    return engine.inspect_server(url, clock)


# ── What the doctor reads ─────────────────────────────────────────────────────────────────────

_READERS: Final[dict[str, Callable[[Row], object]]] = {
    "jobs": job_from,
    "attempts": attempt_from,
    "deliveries": delivery_from,
    "replicas": replica_from,
    "revisions": revision_from,
    "installation": installation_from,
    "limit_changes": change_from,
    "usage": spending_from,
}
_WORK: Final = {
    what: Query(
        f"SELECT count(*) AS number, min(CASE WHEN due_at > 0 THEN due_at END) AS oldest,"  # noqa: S608 - our tables
        f" (SELECT count(*) FROM {table} WHERE set_aside = 1) AS set_aside"
        f" FROM {table} WHERE due_at <= :now"
    )
    for what, table in (("request", "jobs"), ("message", "deliveries"))
}


@dataclass(frozen=True, slots=True)
class Inspection:
    """What is in a database, read without changing anything."""

    pending: list[str]
    """The migrations that the next start applies."""
    waiting: Mapping[str, int]
    """How much work is due and not done, by what it is called: "request" and "message"."""
    oldest: datetime | None
    """When the first of it was due; None if that is not stored."""
    set_aside: int
    """Rows that workers leave alone because they cannot be read."""
    unreadable: Sequence[RowUnreadable]
    """Rows that cannot be read, if all were read."""


def inspect(address: Path | str, now: datetime, *, read_rows: bool) -> Inspection:
    """Read what the doctor reports of a database that ``check_file`` accepts.

    Args:
        address: the database.
        now: what is due.
        read_rows: whether to read all rows. It is not done where the database is older than this
            version.

    Raises:
        DatabaseError: it cannot be read, or its tables are not those of this version or an older
            one.
    """
    with open_snapshot(address) as snapshot:
        work = _WORK if snapshot.done else {}
        rows = {
            what: row for what, query in work.items() for row in snapshot.all(query, now=to_ms(now))
        }
        # What is due at once has no time of its own: 0. A damaged one is no number.
        due = [row["oldest"] for row in rows.values() if isinstance(row["oldest"], int)]
        unreadable: list[RowUnreadable] = []
        for table, read in _READERS.items() if read_rows and not snapshot.pending else ():
            every = Query(f"SELECT * FROM {table}")  # noqa: S608 - our tables
            unreadable += read_each(read, snapshot.all(every))[1]
        return Inspection(
            snapshot.pending,
            {what: row["number"] for what, row in rows.items()},
            from_ms(min(due)) if due else None,
            sum(row["set_aside"] for row in rows.values()),
            unreadable,
        )


def stored_videos(address: Path | str) -> list[Job]:
    """Return the last videos that were made; none if the database cannot be read."""
    with contextlib.suppress(DatabaseError), open_snapshot(address) as snapshot:
        return read_each(job_from, snapshot.all(FINISHED_VIDEOS))[0]
    return []


# ── The bot that has it open ──────────────────────────────────────────────────────────────────


def find_owner(path: Path) -> int | None:
    """Return the process of the bot that uses a database, or 0 where the system does not say it.

    None if none does. No lock is taken, and no file made.
    """
    lock = sqlite.beside(path, "-lock")
    try:
        with lock.open("rb") as file:
            if not sqlite.is_locked(file.fileno()):
                return None
            inode = os.fstat(file.fileno()).st_ino
    except OSError:
        return None
    return sqlite.process_with_lock(inode) or 0
