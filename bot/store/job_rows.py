"""The table of jobs: its rows as values, and the lock that each change of one begins with."""

import json
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final

from bot.model import Approval, Failure, Job, Snapshot, State, Verdict
from bot.store.database import Query, Row, Transaction, Value, from_ms, optional_moment, optional_ms
from bot.store.due import number, optional_text, reading, text, texts

_HOLDABLE: Final = frozenset({State.QUEUED, State.RUNNING, State.OVERDUE})
_LOCK: Final = Query("SELECT * FROM jobs WHERE id = :id FOR UPDATE")
_LOCK_ONLY: Final = Query("SELECT id FROM jobs WHERE id IN (EACH :ids) ORDER BY id FOR UPDATE")
_LOCK_SEVERAL: Final = Query("SELECT * FROM jobs WHERE id IN (EACH :ids) ORDER BY id FOR UPDATE")


def lock_job(tx: Transaction, job_id: str) -> Row | None:
    """Lock the row of a job until the end of the transaction and return it as it is now.

    Every write that touches a job, its attempts or its deliveries begins with this, with
    ``lock_only`` where the row is known, or with another statement that locks the job's row.
    """
    return tx.one(_LOCK, id=job_id)


def lock_only(tx: Transaction, *job_ids: str) -> None:
    """Lock the rows of jobs as ``lock_jobs`` does, where nobody needs what is in them.

    What other rows say of a job is read by a later statement: one that waits for the lock itself
    sees them as they were before.
    """
    tx.lock(_LOCK_ONLY, ids=list(job_ids))


def lock_jobs(tx: Transaction, job_ids: Iterable[str]) -> Sequence[Row]:
    """Lock several jobs, in the order of their ids, so that no two callers wait for each other."""
    return tx.all(_LOCK_SEVERAL, ids=list(job_ids))


def job_from(row: Row) -> Job:
    """Return the job of a row.

    Raises:
        RowUnreadable: its content is damaged.
    """
    with reading("jobs", row):
        return Job(
            id=text(row["id"]),
            kind=text(row["kind"]),
            params=texts(json.loads(row["params"])),
            user=text(row["user_id"]),
            channel=text(row["channel"]),
            thread_ts=optional_text(row["thread_ts"]),
            created_at=from_ms(row["created_at"]),
            state=State(row["state"]),
            due_at=optional_moment(row["due_at"]),
            claim=number(row["claim"]),
            attempts=number(row["attempts"]),
            failures=number(row["failures"]),
            remote_id=optional_text(row["remote_id"]),
            snapshot=_snapshot_from(row["snapshot"]) if row["snapshot"] else None,
            failure=Failure(row["failure"]) if row["failure"] else None,
            reason=text(row["reason"]),
            late=bool(row["late"]),
            typical_duration=_duration_from(row["typical_ms"]),
            slow_after=_duration_from(row["slow_ms"]),
            slow=bool(row["slow"]),
            started_at=optional_moment(row["started_at"]),
            read_at=optional_moment(row["read_at"]),
            woken_at=optional_moment(row["woken_at"]),
            asked_at=optional_moment(row["asked_at"]),
            asked=number(row["asked"]),
            orphaned_ids=tuple(map(text, json.loads(row["orphaned_ids"]))),
            held_by=Failure(row["held_by"]) if row["held_by"] else None,
            held_until=optional_moment(row["held_until"]),
            waits_for=optional_text(row["waits_for"]),
            missing_since=optional_moment(row["missing_since"]),
            ended_at=optional_moment(row["ended_at"]),
            retry_of=optional_text(row["retry_of"]),
            erased=bool(row["erased"]),
            approval=_approval_from(row),
            owner=optional_text(row["owner"]),
            asks_owner=bool(row["asks_owner"]),
            copied=bool(row["copied"]),
            tell_channel=bool(row["tell_channel"]),
        )


def changing_columns(job: Job) -> dict[str, Value]:
    """Return the columns that a worker changes during a job's life."""
    return {
        "state": job.state.value,
        "failures": job.failures,
        "remote_id": job.remote_id,
        "snapshot": snapshot_text(job.snapshot),
        "late": int(job.late),
        "slow": int(job.slow),
        "started_at": optional_ms(job.started_at),
        "read_at": optional_ms(job.read_at),
        "asked_at": optional_ms(job.asked_at),
        "asked": job.asked,
        "orphaned_ids": json.dumps(job.orphaned_ids),
        # Only one that is to be created, or read, is held back.
        "held_by": job.held_by.value if job.held_by and job.state in _HOLDABLE else None,
        "held_until": optional_ms(job.held_until) if job.state in _HOLDABLE else None,
        "waits_for": job.waits_for,
        "missing_since": optional_ms(job.missing_since),
    }


def snapshot_text(snapshot: Snapshot | None) -> str | None:
    """Return a snapshot as it is stored: JSON."""
    if snapshot is None:
        return None
    return json.dumps(
        {
            "remote_id": snapshot.remote_id,
            "status": snapshot.status,
            "verdict": snapshot.verdict.value,
            "reason": snapshot.reason,
            "facts": dict(snapshot.facts),
        }
    )


def _snapshot_from(stored: str) -> Snapshot:
    values = json.loads(stored)
    return Snapshot(
        remote_id=text(values["remote_id"]),
        status=text(values["status"]),
        verdict=Verdict(values["verdict"]),
        reason=text(values["reason"]),
        facts=texts(values["facts"]),
    )


def _approval_from(row: Row) -> Approval | None:
    if row["approval_until"] is None:
        return None
    return Approval(
        asked=tuple(map(text, json.loads(row["approval_asked"]))),
        until=from_ms(row["approval_until"]),
        decided_by=optional_text(row["decided_by"]),
        decided_at=optional_moment(row["decided_at"]),
    )


def _duration_from(ms: int | None) -> timedelta | None:
    return None if ms is None else timedelta(milliseconds=ms)
