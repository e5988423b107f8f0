"""The rows of jobs and of their attempts, the lock that each change begins with, and the audit."""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import Enum, StrEnum
from typing import Final, Literal

from bot.model import Approval, Attempt, Failure, Job, Snapshot, State, Verdict, spoken_time
from bot.store.database import (
    Query,
    Row,
    Transaction,
    Value,
    from_ms,
    optional_moment,
    optional_ms,
    span_ms,
    to_ms,
    wait_ms,
)
from bot.store.due import number, optional_text, reading, text, texts

_HOLDABLE: Final = frozenset({State.QUEUED, State.RUNNING, State.OVERDUE})
_LOCK: Final = Query("SELECT * FROM jobs WHERE id = :id FOR UPDATE")
_LOCK_ALONE: Final = Query("SELECT name FROM locks WHERE name = :what FOR UPDATE")
_LOCK_ONLY: Final = Query("SELECT id FROM jobs WHERE id IN (EACH :ids) ORDER BY id FOR UPDATE")
_LOCK_SEVERAL: Final = Query("SELECT * FROM jobs WHERE id IN (EACH :ids) ORDER BY id FOR UPDATE")


def lock_alone(tx: Transaction, what: Literal["limits", "questions"]) -> None:
    """Let no other process do ``what`` this work does until the transaction ends.

    Of "limits": count what is used, or give it back. Two at once would both find room for the last
    one. Of "questions": owe a question. Two to one person that come at once would both become a
    message. It is the first lock of such a work, which runs with ``serial``.
    """
    tx.once((_LOCK_ALONE, what), lambda: tx.lock(_LOCK_ALONE, what=what))


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


def approval_columns(job: Job, now: datetime) -> dict[str, Value]:
    """Return the columns of a job that say whose approval it waits for, and until when."""
    approval = job.approval
    return {
        "due_at": optional_ms(job.due_at),
        "wait_ms": wait_ms(to_ms(now), job.due_at),
        "approval_asked": None if approval is None else json.dumps(approval.asked),
        "approval_until": None if approval is None else to_ms(approval.until),
        "owner": job.owner,
        "asks_owner": int(job.asks_owner),
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


# ── Attempts: one row for each create call that may have cost money ───────────────────────────

CHARGED: Final = (None, "created", "uncertain")
"""The outcomes of attempts that may have cost money."""
_ADD_ATTEMPT: Final = Query(
    """
    INSERT INTO attempts (job_id, user_id, kind, token_hash, made_at, spoken_ms)
    VALUES (:job_id, :user, :kind, :token_hash, :now, :spoken_ms) RETURNING id
    """
)
_GET_ATTEMPT: Final = Query("SELECT * FROM attempts WHERE id = :id")
# "kind" is part of an expression, since SQLite would rather read all of a kind from the index of
# UNIQUE (kind, remote_id) than the one id from the index that is made for this.
NO_OTHER_HAS_IT: Final = """NOT EXISTS (
        SELECT 1 FROM attempts
        WHERE lower(remote_id) = lower(:remote_id) AND remote_id IS NOT NULL
            AND kind || '' = :kind AND id <> :attempt_id
    )"""
# The candidate was read meanwhile: another one may have taken its place. What a callback named for
# another attempt is not given to a person.
_CAN_ADOPT: Final = Query(
    f"""
    SELECT id FROM attempts
    WHERE id = :attempt_id AND candidate_id = :remote_id AND {NO_OTHER_HAS_IT}
        AND (:user_supplied = 0 OR NOT EXISTS (
            SELECT 1 FROM attempts
            WHERE lower(candidate_id) = lower(:remote_id) AND candidate_id IS NOT NULL
                AND kind || '' = :kind AND user_supplied = 0 AND remote_id IS NULL
                AND id <> :attempt_id
        ))
    """  # noqa: S608 - our own text
)
# What an attempt has made.
BIND: Final = Query(
    """
    UPDATE attempts SET outcome = 'created', remote_id = :remote_id, candidate_id = NULL
    WHERE id = :id
    """
)
# The attempts of a job that have a candidate id.
CANDIDATES: Final = Query(
    """
    SELECT * FROM attempts
    WHERE job_id = :job_id AND remote_id IS NULL AND candidate_id IS NOT NULL ORDER BY id
    """
)
# An id that the attempt's own create call returned, after its job was claimed again.
SET_CANDIDATE: Final = Query(
    f"""
    UPDATE attempts SET candidate_id = :remote_id, named_at = :now
    WHERE id = :attempt_id AND {NO_OTHER_HAS_IT} RETURNING id
    """  # noqa: S608 - likewise
)
# An id that a callback named. Where a person has named the same, it stays theirs.
SET_CANDIDATE_OF_CALLBACK: Final = Query(
    """
    UPDATE attempts SET candidate_id = :remote_id,
        user_supplied = CASE WHEN candidate_id = :remote_id THEN user_supplied ELSE 0 END,
        named_by = CASE WHEN candidate_id = :remote_id THEN named_by END,
        named_at = CASE WHEN candidate_id = :remote_id THEN named_at ELSE :now END
    WHERE id = :id
    """
)
# An id that a person gave, at the last attempt without one. A callback has the attempt's own token:
# what it named is not replaced before it is checked, or could have been.
SET_CANDIDATE_OF_PERSON: Final = Query(
    """
    UPDATE attempts SET candidate_id = :remote_id, user_supplied = 1, named_by = :user,
        named_at = CASE WHEN candidate_id = :remote_id THEN named_at ELSE :now END
    WHERE id = (SELECT max(id) FROM attempts WHERE job_id = :job_id AND remote_id IS NULL)
        AND (candidate_id IS NULL OR candidate_id = :remote_id OR user_supplied = 1
            OR named_at <= :unread_since)
    RETURNING id
    """
)
# Unless another one has taken its place.
DROP_CANDIDATE: Final = Query(
    "UPDATE attempts SET candidate_id = NULL WHERE id = :id AND candidate_id = :remote_id"
)
# How the create call of a job went that is under way or was interrupted.
CLOSE: Final = Query(
    "UPDATE attempts SET outcome = :outcome WHERE job_id = :job_id AND outcome IS NULL"
)


class AddedCandidate(Enum):
    """What became of an id that a person gave."""

    STORED = "stored"
    """It is verified soon."""
    OTHER_UNCHECKED = "other_unchecked"
    """A callback has just named another one, which is verified first."""
    SETTLED = "settled"
    """The job no longer waits for one."""


def add_attempt(tx: Transaction, job: Job, token_hash: str, now: int) -> int:
    """Add an attempt whose create call has no answer yet; return its id."""
    script = job.params.get("script")
    [row] = tx.all(
        _ADD_ATTEMPT,
        job_id=job.id,
        user=job.user,
        kind=job.kind,
        token_hash=token_hash,
        now=now,
        spoken_ms=None if script is None else span_ms(spoken_time(script)),
    )
    return int(row["id"])


def get_attempt(tx: Transaction, attempt_id: int) -> Row:
    """Return the row of an attempt: it is there as long as its job."""
    [row] = tx.all(_GET_ATTEMPT, id=attempt_id)
    return row


def can_adopt(tx: Transaction, kind: str, attempt: Attempt) -> bool:
    """Return whether an attempt may be bound to its candidate id; its job's row is locked."""
    found = tx.one(
        _CAN_ADOPT,
        attempt_id=attempt.id,
        remote_id=attempt.candidate_id,
        kind=kind,
        user_supplied=int(attempt.user_supplied),
    )
    return found is not None


def attempt_from(row: Row) -> Attempt:
    """Return the attempt of a row.

    Raises:
        RowUnreadable: its content is damaged.
    """
    with reading("attempts", row):
        return Attempt(
            id=number(row["id"]),
            job_id=text(row["job_id"]),
            remote_id=optional_text(row["remote_id"]),
            made_at=from_ms(row["made_at"]),
            candidate_id=optional_text(row["candidate_id"]),
            user_supplied=bool(row["user_supplied"]),
            named_by=optional_text(row["named_by"]),
            named_at=optional_moment(row["named_at"]),
        )


# ── The audit: who did what that jobs do not say, in the transaction that does it ─────────────

_ADD_AUDIT: Final = Query(
    """
    INSERT INTO audit (at, action, user_id, job_id, kind, detail)
    VALUES (:at, :action, :user, :job_id,
            (SELECT kind FROM jobs WHERE id = CAST(:job_id AS TEXT)), :detail)
    """
)
# Those whose details are kept, newest first. In an index of their own: they are few, and each Home
# of an admin shows them.
LAST_LIMIT_CHANGES: Final = Query(
    """
    SELECT id, at, user_id, detail FROM audit WHERE detail <> '' AND action = 'limit_changed'
    ORDER BY at DESC, id DESC LIMIT :limit
    """
)
ERASE_DETAILS: Final = Query(
    """
    UPDATE audit SET detail = '' WHERE id IN (
        SELECT id FROM audit WHERE detail <> '' AND at < :before ORDER BY at LIMIT :limit
        FOR UPDATE SKIP LOCKED
    ) RETURNING id
    """
)
DELETE_AUDIT: Final = Query(
    """
    DELETE FROM audit WHERE id IN (
        SELECT id FROM audit WHERE at < :before ORDER BY at LIMIT :limit FOR UPDATE SKIP LOCKED
    ) RETURNING id
    """
)


class AuditAction(StrEnum):
    """What was done. That somebody asked for a job, the job's row says."""

    CREATED_AGAIN = "created_again"
    """A person had an unconfirmed job created again."""
    FOUND = "found"
    """What a person named turned out to be what a create call made: ``detail`` is its id."""
    CANCELLED = "cancelled"
    """A person cancelled an unconfirmed job, or one that waited for approval."""
    STOPPED = "stopped"
    """A person stopped following a job."""
    APPROVED = "approved"
    """An approver let a job be created."""
    DECLINED = "declined"
    """An approver declined a job: ``detail`` is the reason, in their words."""
    EXPIRED = "expired"
    """Nobody approved or declined a job in time."""
    LIMIT_CHANGED = "limit_changed"
    """An admin changed a limit: ``detail`` is which, its value before and the new one."""
    REPLICA = "replica_changed"
    """An owner or an admin added, changed or removed a replica: ``detail`` is its id, and what."""


def record(
    tx: Transaction,
    action: AuditAction,
    *,
    user: str | None,
    at: int,
    job_id: str | None = None,
    detail: str = "",
) -> None:
    """Record what is done in this transaction, so that both are stored or neither.

    Args:
        tx: the transaction.
        action: what is done.
        user: who does it; None if nobody does.
        at: the time, in milliseconds since 1970.
        job_id: the job that it is about, which is stored already.
        detail: what the action says; no script, no secret. It is erased as scripts are.
    """
    tx.all(_ADD_AUDIT, at=at, action=action.value, user=user, job_id=job_id, detail=detail)
