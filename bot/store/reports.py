"""What commands say about jobs and people, read from a database that a bot may be using."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from bot.links import without_keys
from bot.store.database import DatabaseError, Row, RowUnreadable, Value, from_ms, to_ms
from bot.store.delivery_rows import delivery_from
from bot.store.job_rows import job_from
from bot.store.snapshot import Snapshot
from bot.store.sql import Query

_CHARGED: Final = "(outcome IS NULL OR outcome IN ('created', 'uncertain'))"
# A join: without statistics, as after a restore, PostgreSQL reads a subquery's table for each job.
_JOBS: Final = f"""
    SELECT jobs.*, coalesce(charges.charged, 0) AS charged, charges.spoken_ms
    FROM jobs LEFT JOIN (
        SELECT job_id, count(*) AS charged, sum(spoken_ms) AS spoken_ms
        FROM attempts WHERE {_CHARGED} GROUP BY job_id
    ) AS charges ON charges.job_id = jobs.id
"""  # noqa: S608 - the condition is ours
_AUDIT: Final = "SELECT id, at, action, user_id, job_id, kind, detail FROM audit"
_ATTEMPTS: Final = Query(
    "SELECT id, made_at, outcome, remote_id, spoken_ms FROM attempts WHERE job_id = :id ORDER BY id"
)
_DELIVERIES: Final = Query("SELECT * FROM deliveries WHERE job_id = :id ORDER BY id")

Record = dict[str, str | int | float | bool | None]
"""A line of a report. Times are ISO 8601, UTC."""

JOB_COLUMNS: Final = (
    *("job", "kind", "state", "failure", "reason", "user", "channel", "asked_at", "started_at"),
    *("ended_at", "remote_id", "name", "replica_id", "create_calls", "charged", "spoken_seconds"),
    *("retry_of", "erased"),
)
"""The columns of an export. What reads one goes by their names: new ones come last."""
AUDIT_COLUMNS: Final = ("at", "action", "user", "job", "kind", "detail")
"""Likewise."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which jobs, or lines of the audit: all that is not None has to fit."""

    user: str | None = None
    channel: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    """Before this moment."""
    state: str | None = None
    kind: str | None = None
    action: str | None = None
    job: str | None = None

    def query(
        self, select: str, time: str, *, newest: int | None
    ) -> tuple[Query, dict[str, Value]]:
        """Return a query for what fits, with its values: the newest, or all, the oldest first."""
        since = None if self.since is None else to_ms(self.since)
        until = None if self.until is None else to_ms(self.until)
        conditions: dict[str, tuple[str, Value]] = {
            "user": ("user_id = :user", self.user),
            "channel": ("channel = :channel", self.channel),
            "since": (f"{time} >= :since", since),
            "until": (f"{time} < :until", until),
            "state": ("state = :state", self.state),
            "kind": ("kind = :kind", self.kind),
            "action": ("action = :action", self.action),
            "job": ("job_id = :job", self.job),
        }
        given = {name: each for name, each in conditions.items() if each[1] is not None}
        where = " AND ".join(condition for condition, _ in given.values())
        values = {name: value for name, (_, value) in given.items()}
        text = f"{select} WHERE {where}" if where else select
        if newest is None:
            return Query(f"{text} ORDER BY {time}, id"), values
        return Query(f"{text} ORDER BY {time} DESC, id DESC LIMIT :newest"), {
            **values,
            "newest": newest,
        }


def require_readable(snapshot: Snapshot, database: str) -> None:
    """Require that a database has all tables of this version.

    Raises:
        DatabaseError: it has not; it says what to do.
    """
    done, pending = snapshot.migrations()
    if not done:
        raise DatabaseError(
            f"{database} has no tables of the bot: set DATABASE_URL to the database that it uses."
        )
    if pending:
        raise DatabaseError(
            f"{database} was made by an older version: start the bot of this version on it, or run "
            "python -m bot migrate."
        )


def require_file(path: Path) -> None:
    """Require that the file of a database is there.

    Raises:
        DatabaseError: it is not; it says what to do.
    """
    if not path.exists():
        raise DatabaseError(
            f"{path} is not there: set DATABASE_URL to the bot's database, or run this in the "
            "folder that the bot runs in."
        )


def jobs(
    snapshot: Snapshot, wanted: Wanted, *, newest: int | None = None
) -> Iterator[Record | RowUnreadable]:
    """Yield the jobs that fit, with ``JOB_COLUMNS``, and an error for each that is damaged."""
    query, values = wanted.query(_JOBS, "created_at", newest=newest)
    for row in snapshot.each(query, **values):
        try:
            yield _job(row)
        except RowUnreadable as error:
            yield error


def audit(snapshot: Snapshot, wanted: Wanted, *, newest: int | None = None) -> Iterator[Record]:
    """Yield what was done and fits, with ``AUDIT_COLUMNS``."""
    query, values = wanted.query(_AUDIT, "at", newest=newest)
    for row in snapshot.each(query, **values):
        yield {
            "at": iso(from_ms(row["at"])),
            "action": row["action"],
            "user": row["user_id"],
            "job": row["job_id"],
            "kind": row["kind"],
            "detail": without_keys(row["detail"]),
        }


@dataclass(frozen=True, slots=True)
class JobReport:
    """All that is stored about a job but its secrets."""

    record: Record
    params: Mapping[str, str]
    facts: Mapping[str, str]
    """What the service said last."""
    status: str
    """The service's own word; "" if it was not read yet."""
    attempts: list[Record]
    deliveries: list[Record]
    audit: list[Record]


def job(snapshot: Snapshot, job_id: str) -> JobReport | None:
    """Return all about a job; None if there is none with this id.

    Raises:
        RowUnreadable: it is damaged.
    """
    rows = snapshot.all(Query(f"{_JOBS} WHERE id = :id"), id=job_id)
    if not rows:
        return None
    found = job_from(rows[0])
    said = found.snapshot
    return JobReport(
        _job(rows[0]),
        found.params,
        {} if said is None else said.facts,
        "" if said is None else said.status,
        [
            {
                "attempt": row["id"],
                "begun_at": iso(from_ms(row["made_at"])),
                "outcome": row["outcome"] or "under way",
                "remote_id": row["remote_id"],
            }
            for row in snapshot.all(_ATTEMPTS, id=job_id)
        ],
        [_delivery(row) for row in snapshot.all(_DELIVERIES, id=job_id)],
        list(audit(snapshot, Wanted(job=job_id))),
    )


def iso(moment: datetime) -> str:
    """Return a moment in ISO 8601, UTC: 2026-11-22T16:44:07Z."""
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else iso(moment)


def _job(row: Row) -> Record:
    found = job_from(row)
    params = found.params
    spoken_ms: Any = row["spoken_ms"]
    return {
        "job": found.id,
        "kind": found.kind,
        "state": found.state.value,
        "failure": found.failure and found.failure.value,
        "reason": without_keys(found.reason),
        "user": found.user,
        "channel": found.channel,
        "asked_at": iso(found.created_at),
        "started_at": _iso(found.started_at),
        "ended_at": _iso(found.ended_at),
        "remote_id": found.remote_id,
        "name": next((params[name] for name in params if name.endswith("_name")), None),
        "replica_id": params.get("replica_id"),
        "create_calls": found.attempts,
        "charged": int(row["charged"]),
        "spoken_seconds": None if spoken_ms is None else round(int(spoken_ms) / 1000),
        "retry_of": found.retry_of,
        "erased": found.erased,
    }


def _delivery(row: Row) -> Record:
    try:
        found = delivery_from(row)
    except RowUnreadable:
        return {"message": "damaged"}
    return {
        "message": f"{found.role.value} {found.number}" if found.number else found.role.value,
        "state": found.state.value,
        "channel": found.channel,
        "ts": found.ts,
        "due_at": _iso(found.due_at),
    }
