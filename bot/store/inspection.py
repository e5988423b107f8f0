"""What the doctor says about a database: its version, its owner, and what waits in it."""

import contextlib
import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from bot.model import Installation
from bot.store.attempts import attempt_from
from bot.store.callback_probe import CallbackProbe
from bot.store.database import Row, RowUnreadable, from_ms, to_ms
from bot.store.delivery_rows import delivery_from
from bot.store.installation import installation_from
from bot.store.job_rows import job_from
from bot.store.migrate import check_tables, migration_names
from bot.store.replicas import replica_from, revision_from
from bot.store.sqlite_file import beside, is_locked, read_only, translated
from bot.store.unreadable import read_each

_READERS: Final[dict[str, Callable[[Row], object]]] = {
    "jobs": job_from,
    "attempts": attempt_from,
    "deliveries": delivery_from,
    "replicas": replica_from,
    "revisions": revision_from,
    "installation": installation_from,
}
_DRIFT: Final = (
    "SELECT kind, what, field, count, first_at, last_at FROM drift ORDER BY last_at DESC"
)
_WORK: Final = ("jobs", "deliveries")
_HAS_MIGRATIONS: Final = "SELECT 1 FROM sqlite_schema WHERE name = 'migrations'"


def unreadable_rows(path: Path) -> list[RowUnreadable]:
    """Return the rows that the bot cannot read, in a database that ``check_file`` accepts.

    In one that is older than this version, none are found before it is brought up to date.

    Raises:
        DatabaseError: its tables are not those of this version or an older one.
    """
    found: list[RowUnreadable] = []
    with contextlib.suppress(sqlite3.Error, IndexError), read_only(path) as db:
        check_tables(db, path)
        for table, read in _READERS.items():
            rows = db.execute(f"SELECT * FROM {table}")  # noqa: S608 - our tables
            found += read_each(read, rows)[1]
    return found


# ── What the doctor says about a database ─────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class SeenDrift:
    """One way in which answers differed, in the last 90 days."""

    kind: str
    what: str
    """A word of ``bot.kinds.drift``."""
    field: str
    """The field, or an unknown status; "" for a whole answer."""
    count: int
    first_at: datetime
    last_at: datetime


@dataclass(frozen=True, slots=True)
class Waiting:
    """Work that is due and not done."""

    count: int
    oldest: datetime | None
    """When the first of it was due; None if that is not stored."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """What is in a database, read without changing anything."""

    pending: list[str]
    """The migrations that the next start applies."""
    version: str
    """The last migration that is applied; "" in an empty file."""
    set_aside: int
    """Rows that workers leave alone because they cannot be read."""
    jobs: Waiting
    deliveries: Waiting


def inspect(path: Path, now: datetime) -> Inspection:
    """Read what the doctor reports of a database that ``check_file`` accepts.

    Raises:
        DatabaseError: it cannot be read, or its tables are not those of this version or an older
            one.
    """
    with translated(path), read_only(path) as db:
        if not db.execute(_HAS_MIGRATIONS).fetchall():
            return Inspection(migration_names(), "", 0, Waiting(0, None), Waiting(0, None))
        applied = check_tables(db, path)
        pending = [name for name in migration_names() if name not in applied]
        is_current = not pending  # an older one may lack the columns
        return Inspection(
            pending,
            applied[-1] if applied else "",
            sum(_count_set_aside(db, table) for table in _WORK) if is_current else 0,
            _waiting(db, "jobs", now),
            _waiting(db, "deliveries", now),
        )


def _count_set_aside(db: sqlite3.Connection, table: str) -> int:
    sql = f"SELECT count(*) FROM {table} WHERE set_aside = 1"  # noqa: S608 - our tables
    return int(db.execute(sql).fetchone()[0])


def _waiting(db: sqlite3.Connection, table: str, now: datetime) -> Waiting:
    # What is due at once has no time of its own: 0.
    sql = (
        f"SELECT count(*), min(CASE WHEN due_at > 0 THEN due_at END) FROM {table}"  # noqa: S608
        " WHERE due_at <= ?"
    )
    try:
        count, oldest = db.execute(sql, (to_ms(now),)).fetchone()
    except sqlite3.OperationalError:  # made by so old a version that it has no such table
        return Waiting(0, None)
    return Waiting(count, from_ms(oldest) if isinstance(oldest, int) else None)


def stored_installation(path: Path | str) -> Installation | None:
    """Return the workspace that a database belongs to, without changing anything.

    None if that is not stored, or cannot be read.
    """
    if isinstance(path, str):
        return None
    try:
        with read_only(path) as db:
            sql = "SELECT team_id, enterprise_id, app_id FROM installation"
            row = db.execute(sql).fetchone()
    except (sqlite3.Error, OSError):
        return None
    if row is None or not all(isinstance(each, str | None) for each in row) or not row[0]:
        return None
    return Installation(*row)


def stored_probe(path: Path | str) -> CallbackProbe | None:
    """Return the token that doctor calls the bot with; None if an older version made the tables."""
    if isinstance(path, str):
        return None
    try:
        with read_only(path) as db:
            row = db.execute("SELECT token, received FROM callback_probe").fetchone()
    except (sqlite3.Error, OSError):
        return None
    match row and tuple(row):
        case (str(token), int(received)):
            return CallbackProbe(token, received)
    return None


# ── The bot that has it open ──────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Owner:
    """The bot that has a database open; ``process`` is its id, where the system says it."""

    process: int | None


def find_owner(path: Path | str) -> Owner | None:
    """Return which bot has the database at ``path`` open, without taking its lock or any file."""
    if isinstance(path, str):
        return None
    lock = beside(path, "-lock")
    try:
        with lock.open("rb") as file:
            if not is_locked(file.fileno()):
                return None
            inode = os.fstat(file.fileno()).st_ino
    except OSError:
        return None
    return Owner(_process_with_lock(inode))


def _process_with_lock(inode: int) -> int | None:
    """Return the id of the process that locked a file, as Linux lists it; None elsewhere.

    A line is "1: FLOCK  ADVISORY  WRITE 1234 08:01:131 0 EOF":
    https://man7.org/linux/man-pages/man5/proc_locks.5.html
    """
    try:
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return None
    found = []
    for line in lines:
        match line.split():
            case [_, "FLOCK", _, "WRITE", process, file, *_] if file.endswith(f":{inode}"):
                found.append(process)
    # Of several, some lock a file of another disk. One in another container is 0.
    return int(found[0]) if len(found) == 1 and found[0].isdecimal() and found[0] != "0" else None


def seen_drift(path: Path | str) -> list[SeenDrift]:
    """Return the drift in the database at ``path``, the newest first; it is only read.

    There is none in one that is not there, cannot be read, or was made by an older version.
    """
    if isinstance(path, str):
        return []
    with contextlib.suppress(sqlite3.Error, OSError), read_only(path) as db:
        return [_drift_from(row) for row in db.execute(_DRIFT)]
    return []


def _drift_from(row: Row) -> SeenDrift:
    return SeenDrift(
        str(row["kind"]),
        str(row["what"]),
        str(row["field"]),
        int(row["count"]),
        from_ms(row["first_at"]),
        from_ms(row["last_at"]),
    )
