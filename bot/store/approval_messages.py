"""The approvals in the table of deliveries: messages that ask whether a job may be created."""

from collections.abc import Sequence
from typing import Final

from bot.model import Job, Role, Settlement
from bot.store.database import Topic, Transaction
from bot.store.sql import Query

# It does not wait for the card: that is in another place.
_ADD: Final = Query(
    """
    INSERT INTO deliveries (job_id, role, number, state, channel, direct, addressee, due_at)
    VALUES (:job_id, :role, :number, 'pending', :channel, :direct, :addressee, :now)
    """
)
# As with questions: until it is known whether it is in Slack, it keeps its time.
_SETTLE: Final = Query(
    """
    UPDATE deliveries SET settled_as = :settled_as, settled_by = :settled_by,
        version = version + 1, due_at = coalesce(due_at, :now)
    WHERE job_id = :job_id AND role = 'approval' AND settled_as IS NULL
        AND state IN ('sending', 'uncertain', 'posted')
    """
)
_WITHDRAW: Final = Query(
    """
    UPDATE deliveries SET state = 'withdrawn', settled_as = :settled_as, settled_by = :settled_by,
        claim = claim + 1, claimed = 0, due_at = NULL
    WHERE job_id = :job_id AND role = 'approval' AND state = 'pending'
    """
)


def add_approvals(tx: Transaction, job: Job, asked: Sequence[str], now: int) -> None:
    """Owe the messages that ask for the approval of a job, whose row is locked.

    ``asked`` has the id of a channel, or those of people, who get one each.
    """
    for number, id_ in enumerate(asked, 1):
        is_channel = id_.startswith(("C", "G"))
        tx.all(
            _ADD,
            job_id=job.id,
            role=Role.APPROVAL.value,
            number=0 if is_channel else number,
            channel=id_,
            direct=int(not is_channel),
            addressee=None if is_channel else id_,
            now=now,
        )
    tx.notify(Topic.DELIVERIES)


def settle_approvals(
    tx: Transaction, job_id: str, settlement: Settlement, user: str | None, now: int
) -> None:
    """Owe edits of the open approvals of a job, whose row is locked; see ``settle_question``."""
    settled = {"job_id": job_id, "settled_as": settlement.value, "settled_by": user}
    tx.all(_WITHDRAW, **settled)
    tx.all(_SETTLE, now=now, **settled)
    tx.notify(Topic.DELIVERIES)
