"""The three ways in which a job changes, each of which notifies its card and its worker.

Each begins with an UPDATE of the job's row, which locks it.
"""

from collections.abc import Collection
from datetime import datetime
from typing import Final

from bot.model import Job, Role, State
from bot.store.attempts import NO_OTHER_HAS_IT
from bot.store.database import (
    Query,
    Topic,
    Transaction,
    Value,
    optional_ms,
    span_ms,
    to_ms,
    wait_ms,
)
from bot.store.deliveries import add_below, add_notice_of_day, edit_card
from bot.store.due import tell
from bot.store.job_rows import changing_columns, snapshot_text
from bot.store.usage import give_back
from bot.timings import Timings

# The states in which the service is polled.
POLLED: Final = frozenset({State.RUNNING, State.OVERDUE})

_SAVE_TEXT: Final = """
    UPDATE jobs SET state = :state, failures = :failures, remote_id = :remote_id,
        snapshot = :snapshot, late = :late, slow = :slow,
        started_at = :started_at, read_at = :read_at, asked_at = :asked_at, asked = :asked,
        orphaned_ids = :orphaned_ids, held_by = :held_by, held_until = :held_until,
        waits_for = :waits_for, missing_since = :missing_since,
        claimed = 0, wake_at = NULL, wait_ms = :wait_ms,
        due_at = CASE WHEN wake_at < coalesce({due_at}, wake_at + 1) THEN wake_at ELSE {due_at} END
    WHERE id = :id AND claim = :claim AND {may_be} RETURNING due_at
    """
_SAVE: Final = Query(_SAVE_TEXT.format(due_at=":due_at", may_be="(ended_at IS NULL OR :ended = 1)"))
# A callback that named the same id before may have come too early to be a reason to read.
_SAVE_CREATED: Final = Query(
    _SAVE_TEXT.format(
        due_at="""(SELECT CASE WHEN lower(candidate_id) = lower(:remote_id)
            THEN CAST(:now AS BIGINT) ELSE CAST(:due_at AS BIGINT) END
            FROM attempts WHERE id = :attempt_id)""",
        may_be=f"ended_at IS NULL AND {NO_OTHER_HAS_IT}",
    )
)
# A candidate that was not checked yet is checked after the end. Under an old claim number, a job
# is ended only by a read of the remote id that it still has. In these states it has made no create
# call, or one that certainly made nothing: what is counted for that is given back.
_END: Final = Query(
    """
    UPDATE jobs SET state = :state, failure = :failure, reason = :reason, snapshot = :snapshot,
        failures = 0, ended_at = :now, claim = claim + 1, claimed = 0,
        counted_on = CASE WHEN state IN ('waiting_for_approval', 'queued', 'creating')
                     THEN counted_on END,
        due_at = CASE WHEN EXISTS (
            SELECT 1 FROM attempts
            WHERE job_id = :id AND remote_id IS NULL AND candidate_id IS NOT NULL
        ) THEN CAST(:now AS BIGINT) END
    WHERE id = :id AND ended_at IS NULL AND (claim = :claim OR remote_id = :remote_id)
    RETURNING due_at, counted_on
    """
)
# While a worker has the job, it may have been read too early to show what it was woken for: it is
# due again as soon as the worker has stored what was read, however often it is woken meanwhile.
_WAKE: Final = Query(
    """
    UPDATE jobs SET woken_at = :now,
        wake_at = CASE WHEN claimed = 1 THEN
            CASE WHEN read_at > :spaced AND read_at <= :now THEN read_at + :spacing ELSE :now END
        END,
        due_at = CASE WHEN claimed = 1 THEN due_at
                 WHEN read_at > :spaced AND read_at <= :now THEN read_at + :spacing
                 ELSE :now END,
        claim = CASE WHEN claimed = 1 THEN claim ELSE claim + 1 END
    WHERE id IN (EACH :ids) RETURNING CASE WHEN claimed = 0 THEN due_at END AS due_at
    """
)
_RELEASE_WOKEN: Final = Query(
    """
    UPDATE jobs SET claim = claim + 1, claimed = 0, due_at = wake_at, wake_at = NULL
    WHERE id = :id AND claim = :claim AND wake_at IS NOT NULL AND ended_at IS NULL
    RETURNING due_at
    """
)


def save(
    tx: Transaction, job: Job, due_at: datetime | None, now: int, *, edits: bool = True
) -> bool:
    """Store a claimed job as it now is, due at ``due_at``; with ``edits``, its card shows it.

    If it was woken since it was claimed, it is due for that soon.

    Returns:
        Whether it was stored: False if it was claimed again meanwhile, or has ended.
    """
    return _save(tx, _SAVE, job, due_at, now, edits=edits, ended=int(job.state.ended))


def save_created(
    tx: Transaction, job: Job, attempt_id: int, due_at: datetime | None, now: int
) -> bool:
    """Store a claimed job as ``save`` does, with the id that its attempt made; its row is locked.

    It is due at once if a callback has named that id.

    Returns:
        Whether it was stored: False also if another attempt has the id.
    """
    values: dict[str, Value] = {"attempt_id": attempt_id, "kind": job.kind}
    return _save(tx, _SAVE_CREATED, job, due_at, now, edits=True, **values)


def _save(
    tx: Transaction,
    query: Query,
    job: Job,
    due_at: datetime | None,
    now: int,
    *,
    edits: bool,
    **values: Value,
) -> bool:
    saved = tx.one(
        query,
        id=job.id,
        claim=job.claim,
        now=now,
        due_at=optional_ms(due_at),
        wait_ms=wait_ms(now, due_at),
        **changing_columns(job),
        **values,
    )
    if saved is None:
        return False
    tell(tx, Topic.JOBS, saved["due_at"], now)
    if edits:
        edit_card(tx, job.id, job.user, now)
    return True


def release_woken(tx: Transaction, job: Job, now: int) -> bool:
    """Make a claimed job due again, with nothing stored, if it was woken since it was claimed."""
    released = tx.one(_RELEASE_WOKEN, id=job.id, claim=job.claim)
    if released is None:
        return False
    tell(tx, Topic.JOBS, released["due_at"], now)
    return True


def end(tx: Transaction, job: Job, trainings: Collection[str], now: int) -> bool:
    """End a job as ``job`` says, owe its closing reply, and give back what is counted in vain.

    Its row is locked. Where the job may not have been created yet, ``lock_limits`` comes first.
    ``trainings`` are the kinds of jobs that are trainings.

    Returns:
        Whether it was ended: False if it had ended before, or if it was claimed again meanwhile and
        what is known of it may be out of date.
    """
    ended = tx.one(
        _END,
        id=job.id,
        claim=job.claim,
        remote_id=job.remote_id,
        state=job.state.value,
        failure=job.failure and job.failure.value,
        reason=job.reason,
        snapshot=snapshot_text(job.snapshot),
        now=now,
    )
    if ended is None:
        return False
    tell(tx, Topic.JOBS, ended["due_at"], now)
    edit_card(tx, job.id, job.user, now)
    add_below(tx, job, Role.REPLY, now)
    if job.owner is not None and job.state is State.SUCCEEDED and job.kind not in trainings:
        add_notice_of_day(tx, job, now)
    give_back(tx, job, trainings, ended["counted_on"], now)
    return True


def wake(tx: Transaction, job_ids: Collection[str], now: datetime, timings: Timings) -> None:
    """Make jobs due at once, or a moment after their last read if that was just now."""
    woken = tx.all(
        _WAKE,
        ids=list(job_ids),
        now=to_ms(now),
        spaced=to_ms(now - timings.callback_spacing),
        spacing=span_ms(timings.callback_spacing),
    )
    for row in woken:
        tell(tx, Topic.JOBS, row["due_at"], to_ms(now))
