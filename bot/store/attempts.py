"""The table of attempts: one row for each create call that may have cost money."""

from enum import Enum
from typing import Final

from bot.model import Attempt, Job, spoken_time
from bot.store.database import (
    Query,
    Row,
    Transaction,
    from_ms,
    optional_moment,
    span_ms,
)
from bot.store.due import number, optional_text, reading, text

CHARGED: Final = (None, "created", "uncertain")
"""The outcomes of attempts that may have cost money."""
_ADD: Final = Query(
    """
    INSERT INTO attempts (job_id, user_id, kind, token_hash, made_at, spoken_ms)
    VALUES (:job_id, :user, :kind, :token_hash, :now, :spoken_ms) RETURNING id
    """
)
_GET: Final = Query("SELECT * FROM attempts WHERE id = :id")
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
        _ADD,
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
    [row] = tx.all(_GET, id=attempt_id)
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
