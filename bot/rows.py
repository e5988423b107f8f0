"""Between the database's rows and our values."""

import json
import sqlite3
from datetime import datetime, timedelta
from typing import Any

from bot.database import moment_of, ms_of
from bot.model import (
    Attempt,
    Delivery,
    DeliveryState,
    Failure,
    Job,
    Role,
    Snapshot,
    State,
    Verdict,
)


def ms_or_none(moment: datetime | None) -> int | None:
    """Return a moment as it is stored, if there is one."""
    return None if moment is None else ms_of(moment)


def span_of(duration: timedelta) -> int:
    """Return a duration as it is stored: milliseconds."""
    return round(duration.total_seconds() * 1000)


def packed(snapshot: Snapshot) -> str:
    """Return a snapshot as it is stored."""
    return json.dumps(
        {
            "remote_id": snapshot.remote_id,
            "status": snapshot.status,
            "verdict": snapshot.verdict.value,
            "reason": snapshot.reason,
            "facts": dict(snapshot.facts),
        }
    )


def _unpacked(text: str) -> Snapshot:
    values = json.loads(text)
    return Snapshot(**{**values, "verdict": Verdict(values["verdict"])})


def bare(snapshot: Snapshot) -> Snapshot:
    """Return what stays of a snapshot when links and words are erased."""
    return Snapshot(snapshot.remote_id, snapshot.status, snapshot.verdict)


def values_of(job: Job) -> dict[str, Any]:
    """Return the columns of a job that change during its life, and those that find it."""
    return {
        "id": job.id,
        "claim": job.claim,
        "state": job.state.value,
        "failures": job.failures,
        "remote_id": job.remote_id,
        "snapshot": job.snapshot and packed(job.snapshot),
        "failure": job.failure,
        "reason": job.reason,
        "late": int(job.late),
        "started_at": ms_or_none(job.started_at),
        "read_at": ms_or_none(job.read_at),
        "asked_at": ms_or_none(job.asked_at),
        "asked": job.asked,
        "strays": json.dumps(job.orphaned_ids),
        "waits_for": job.waits_for,
    }


def job_of(row: sqlite3.Row) -> Job:
    """Return the job of a row."""
    created_at = moment_of(row["created_at"])
    assert created_at is not None  # noqa: S101 - NOT NULL
    return Job(
        id=row["id"],
        kind=row["kind"],
        params=json.loads(row["params"]),
        user=row["user_id"],
        channel=row["channel"],
        thread_ts=row["thread_ts"],
        created_at=created_at,
        state=State(row["state"]),
        due_at=moment_of(row["due_at"]),
        claim=row["claim"],
        attempts=row["attempts"],
        failures=row["failures"],
        remote_id=row["remote_id"],
        snapshot=row["snapshot"] and _unpacked(row["snapshot"]),
        failure=Failure(row["failure"]) if row["failure"] else None,
        reason=row["reason"],
        late=bool(row["late"]),
        typical_duration=None if row["usual"] is None else timedelta(milliseconds=row["usual"]),
        started_at=moment_of(row["started_at"]),
        read_at=moment_of(row["read_at"]),
        woken_at=moment_of(row["woken_at"]),
        asked_at=moment_of(row["asked_at"]),
        asked=row["asked"],
        orphaned_ids=tuple(json.loads(row["strays"])),
        waits_for=row["waits_for"],
        ended_at=moment_of(row["ended_at"]),
        erased=bool(row["erased"]),
    )


def attempt_of(row: sqlite3.Row) -> Attempt:
    """Return the attempt of a row."""
    made_at = moment_of(row["made_at"])
    assert made_at is not None  # noqa: S101 - NOT NULL
    return Attempt(
        id=row["id"],
        job_id=row["job_id"],
        remote_id=row["remote_id"],
        made_at=made_at,
        candidate_id=row["hint"],
        user_supplied=bool(row["vouched"]),
    )


def delivery_of(row: sqlite3.Row) -> Delivery:
    """Return the delivery of a row."""
    return Delivery(
        id=row["id"],
        job_id=row["job_id"],
        role=Role(row["role"]),
        state=DeliveryState(row["posting"]),
        channel=row["channel"],
        thread_ts=row["thread_ts"],
        ts=row["ts"],
        version=row["wanted"],
        shown_version=row["shown"],
        due_at=moment_of(row["due_at"]),
        claim=row["claim"],
        failures=row["failures"],
        refusals=row["refusals"],
        direct=bool(row["direct"]),
        text_only=bool(row["plain"]),
        sent_at=moment_of(row["sent_at"]),
    )
