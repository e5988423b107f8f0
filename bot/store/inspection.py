"""What the doctor says about a database: its version, its owner, and what waits in it."""

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from bot.model import Installation, Job
from bot.store.attempts import attempt_from
from bot.store.database import (
    DatabaseError,
    DatabaseSnapshot,
    Query,
    Row,
    RowUnreadable,
    from_ms,
    to_ms,
)
from bot.store.deliveries import delivery_from
from bot.store.due import read_each
from bot.store.engines import open_snapshot
from bot.store.installation import installation_from
from bot.store.job_rows import job_from
from bot.store.jobs import FINISHED_VIDEOS
from bot.store.migrate import step_names
from bot.store.replicas import replica_from, revision_from
from bot.store.sqlite_file import beside, is_locked, process_with_lock
from bot.store.usage import LIMITS, LimitChange, change_from, spending_from

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
_INSTALLATION: Final = Query("SELECT team_id, enterprise_id, app_id FROM installation")
_WORK: Final = ("jobs", "deliveries")


def unreadable_rows(address: Path | str) -> list[RowUnreadable]:
    """Return the rows that the bot cannot read, in a database that ``check_file`` accepts.

    In one that is older than this version, none are found before it is brought up to date.

    Raises:
        DatabaseError: its tables are not those of this version or an older one.
    """
    found: list[RowUnreadable] = []
    with open_snapshot(address) as snapshot:
        _, pending = snapshot.migrations()
        if not pending:
            for table, read in _READERS.items():
                found += read_each(read, snapshot.all(_all_of(table)))[1]
    return found


def _all_of(table: str) -> Query:
    return Query(f"SELECT * FROM {table}")  # noqa: S608 - our tables


# ── What the doctor says about a database ─────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Waiting:
    """Work that is due and not done."""

    count: int
    oldest: datetime | None
    """When the first of it was due; None if that is not stored."""


_NOTHING: Final = Waiting(0, None)


@dataclass(frozen=True, slots=True)
class Inspection:
    """What is in a database, read without changing anything."""

    pending: list[str]
    """The migrations that the next start applies."""
    newer: str
    """The last one of a newer version that is applied; "" if there is none."""
    set_aside: int
    """Rows that workers leave alone because they cannot be read."""
    jobs: Waiting
    deliveries: Waiting


def inspect(address: Path | str, now: datetime) -> Inspection:
    """Read what the doctor reports of a database that ``check_file`` accepts.

    Raises:
        DatabaseError: it cannot be read, or its tables are not those of this version or an older
            one.
    """
    with open_snapshot(address) as snapshot:
        applied, pending = snapshot.migrations()
        return Inspection(
            pending,
            max(set(applied).difference(step_names()), default=""),
            sum(_count_set_aside(snapshot, table) for table in _WORK) if applied else 0,
            _waiting(snapshot, "jobs", now) if applied else _NOTHING,
            _waiting(snapshot, "deliveries", now) if applied else _NOTHING,
        )


def _count_set_aside(snapshot: DatabaseSnapshot, table: str) -> int:
    sql = f"SELECT count(*) AS number FROM {table} WHERE set_aside = 1"  # noqa: S608 - our tables
    [row] = snapshot.all(Query(sql))
    return int(row["number"])


def _waiting(snapshot: DatabaseSnapshot, table: str, now: datetime) -> Waiting:
    # What is due at once has no time of its own: 0.
    sql = (
        "SELECT count(*) AS number, min(CASE WHEN due_at > 0 THEN due_at END) AS oldest"  # noqa: S608
        f" FROM {table} WHERE due_at <= :now"
    )
    [row] = snapshot.all(Query(sql), now=to_ms(now))
    oldest = row["oldest"]
    return Waiting(row["number"], from_ms(oldest) if isinstance(oldest, int) else None)


def stored_installation(address: Path | str) -> Installation | None:
    """Return the workspace that a database belongs to, without changing anything.

    None if that is not stored, or cannot be read.
    """
    with contextlib.suppress(DatabaseError), open_snapshot(address) as snapshot:
        for row in snapshot.all(_INSTALLATION):
            values = row["team_id"], row["enterprise_id"], row["app_id"]
            if values[0] and all(isinstance(each, str | None) for each in values):
                return Installation(*values)
    return None


def stored_limit_changes(address: Path | str) -> dict[str, LimitChange]:
    """Return what admins have changed of the limits, by the name of the setting; it is only read.

    There is nothing in a database that is not there, cannot be read, or is older than this.
    """
    with contextlib.suppress(DatabaseError), open_snapshot(address) as snapshot:
        changes, _ = read_each(change_from, snapshot.all(_all_of("limit_changes")))
        return {each.name: each for each in changes if each.name in LIMITS}
    return {}


def stored_videos(address: Path | str) -> list[Job]:
    """Return the last videos that were made; none if the database cannot be read."""
    with contextlib.suppress(DatabaseError), open_snapshot(address) as snapshot:
        return read_each(job_from, snapshot.all(FINISHED_VIDEOS))[0]
    return []


# ── The bot that has it open ──────────────────────────────────────────────────────────────────


def find_owner(address: Path | str) -> int | None:
    """Return the process of the bot that uses a database, or 0 where the system does not say it.

    None if none does. No lock is taken, and no file made.
    """
    if isinstance(address, str):
        with contextlib.suppress(DatabaseError):
            from bot.store.postgres.inspection import connected_bots  # noqa: PLC0415 - an extra

            return 0 if connected_bots(address) else None
        return None
    lock = beside(address, "-lock")
    try:
        with lock.open("rb") as file:
            if not is_locked(file.fileno()):
                return None
            inode = os.fstat(file.fileno()).st_ino
    except OSError:
        return None
    return process_with_lock(inode) or 0
