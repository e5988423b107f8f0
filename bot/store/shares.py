"""The shares in the table of deliveries: what was made, to be posted in another channel."""

from datetime import datetime
from typing import Final

from bot.model import Role, State
from bot.store.audit import AuditAction, record
from bot.store.database import Topic, Transaction, to_ms
from bot.store.delivery_claims import DeliveryClaims
from bot.store.job_rows import lock_job
from bot.store.sql import Query

_FIND: Final = Query("SELECT id FROM deliveries WHERE request_key = :key")
# It does not wait for the card: that is in another place.
_ADD: Final = Query(
    """
    INSERT INTO deliveries (job_id, role, number, state, channel, due_at, shared_by, shared_to,
                            request_key)
    SELECT :job_id, :role,
        (SELECT count(*) FROM deliveries WHERE job_id = :job_id AND role = :role) + 1,
        'pending', :channel, :now, :user, :channel, :key
    """
)


class Shares(DeliveryClaims):
    """The part of ``Deliveries`` that adds shares."""

    async def share(self, job_id: str, channel: str, *, user: str, key: str, now: datetime) -> bool:
        """Owe a message in ``channel`` that shows what a job has made.

        Args:
            job_id: the job.
            channel: where to post.
            user: who chose that.
            key: the Slack id of the form, and the channel: the same ones share once.
            now: the time.

        Returns:
            Whether it is owed, or was before: False if there is nothing to show (any more).
        """

        def work(tx: Transaction) -> bool:
            job = lock_job(tx, job_id)
            if tx.one(_FIND, key=key) is not None:
                return True
            if job is None or job["state"] != State.SUCCEEDED or job["erased"]:
                return False
            tx.all(
                _ADD,
                job_id=job_id,
                role=Role.SHARE.value,
                channel=channel,
                user=user,
                key=key,
                now=to_ms(now),
            )
            record(tx, AuditAction.SHARED, user=user, at=to_ms(now), job_id=job_id, detail=channel)
            tx.notify(Topic.DELIVERIES)
            return True

        return await self._database.run(work)
