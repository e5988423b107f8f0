"""The audit table: who did what that jobs do not say, stored in the transaction that does it."""

from enum import StrEnum
from typing import Final

from bot.store.database import Query, Transaction

_ADD: Final = Query(
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
    tx.all(_ADD, at=at, action=action.value, user=user, job_id=job_id, detail=detail)
