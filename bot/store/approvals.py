"""What becomes of a job that waits for approval: of those who decide, the first one counts."""

import json
from dataclasses import replace
from datetime import datetime
from typing import Final

from bot.model import Delivery, Failure, Job, Settlement, State
from bot.store.approval_messages import add_approvals, settle_approvals
from bot.store.audit import AuditAction, record
from bot.store.database import Row, RowUnreadable, Topic, Transaction, to_ms
from bot.store.deliveries import edit_card
from bot.store.homes import change_homes
from bot.store.job_rows import job_from, lock_job
from bot.store.sql import Query
from bot.store.submissions import Submissions, turn_at
from bot.store.transitions import end
from bot.store.unreadable import read_each

# An older version of the bot, which does not know the state, may have set the row aside.
_APPROVE: Final = Query(
    """
    UPDATE jobs SET state = 'queued', decided_by = :user, decided_at = :now, turn_at = :turn_at,
        due_at = :now, wait_ms = 0, claim = claim + 1, claimed = 0, set_aside = 0
    WHERE id = :id
    """
)
_DECIDE: Final = Query("UPDATE jobs SET decided_by = :user, decided_at = :now WHERE id = :id")
_ASKED: Final = Query("UPDATE jobs SET approval_asked = :asked WHERE id = :id")
_GIVE_UP: Final = Query(
    """
    UPDATE deliveries SET state = 'undeliverable', due_at = NULL, claimed = 0
    WHERE id = :id AND claim = :claim RETURNING id
    """
)
_STILL_ASKED: Final = Query(
    """
    SELECT addressee FROM deliveries
    WHERE job_id = :job_id AND role = 'approval' AND direct = 1 AND state <> 'undeliverable'
    ORDER BY number
    """
)
_WAITING: Final = Query(
    """
    SELECT * FROM jobs
    WHERE ended_at IS NULL AND state = 'waiting_for_approval' AND user_id <> :user
    ORDER BY created_at LIMIT :limit
    """
)


_ACTIONS: Final = {
    Settlement.APPROVED: AuditAction.APPROVED,
    Settlement.DECLINED: AuditAction.DECLINED,
    Settlement.CANCELLED: AuditAction.CANCELLED,
    Settlement.UNANSWERED: AuditAction.EXPIRED,
}
_COUNT: Final = Query(
    """
    SELECT count(*) AS waiting FROM jobs
    WHERE ended_at IS NULL AND state = 'waiting_for_approval'
    """
)


class Approvals(Submissions):
    """The part of ``Jobs`` for jobs that wait for approval."""

    async def count_to_approve(self) -> int:
        """Return how many jobs wait for approval."""

        def work(tx: Transaction) -> int:
            row = tx.one(_COUNT)
            return 0 if row is None else int(row["waiting"])

        return await self._database.run(work, durable=False)

    async def approve(self, job_id: str, user: str, now: datetime) -> bool:
        """Queue a job that waits for approval, as ``user`` chose.

        Returns:
            Whether it was queued: False if it no longer waits, if its time is over, or if this
            person may not decide about it.
        """

        def work(tx: Transaction) -> bool:
            job = self._to_decide(lock_job(tx, job_id), user, now)
            if job is None:
                return False
            at = to_ms(now)
            tx.all(_APPROVE, id=job_id, user=user, now=at, turn_at=turn_at(tx, job.user, now))
            self._settle(tx, job, Settlement.APPROVED, user, now=at)
            edit_card(tx, job_id, at)
            tx.notify(Topic.JOBS)
            return True

        return await self._database.run(work)

    async def decline(self, job_id: str, user: str, reason: str, now: datetime) -> bool:
        """End a job that waits for approval, as ``user`` chose; see ``approve``."""

        def work(tx: Transaction) -> bool:
            job = self._to_decide(lock_job(tx, job_id), user, now)
            if job is None:
                return False
            tx.all(_DECIDE, id=job_id, user=user, now=to_ms(now))
            self._settle(tx, job, Settlement.DECLINED, user, now=to_ms(now), reason=reason)
            return end(tx, _failed(job, Failure.DECLINED, reason), to_ms(now))

        return await self._database.run(work)

    async def withdraw(self, job_id: str, user: str, now: datetime) -> bool:
        """End a job that waits for approval as cancelled, as ``user`` chose.

        Returns:
            Whether it was ended: False if it no longer waits.
        """

        def work(tx: Transaction) -> bool:
            row = lock_job(tx, job_id)
            if row is None or row["state"] != State.WAITING_FOR_APPROVAL:
                return False
            job = job_from(row)
            tx.all(_DECIDE, id=job_id, user=user, now=to_ms(now))
            self._settle(tx, job, Settlement.CANCELLED, user, now=to_ms(now))
            return end(tx, _failed(job, Failure.WITHDRAWN), to_ms(now))

        return await self._database.run(work)

    async def expire_approval(self, job: Job, now: datetime) -> bool:
        """End a claimed job that nobody approved in time.

        Returns:
            Whether it was ended: False if somebody decided meanwhile.
        """

        def work(tx: Transaction) -> bool:
            row = lock_job(tx, job.id)
            waits = (State.WAITING_FOR_APPROVAL, job.claim)
            if row is None or (row["state"], row["claim"]) != waits:
                return False
            self._settle(tx, job, Settlement.UNANSWERED, None, now=to_ms(now))
            return end(tx, _failed(job, Failure.NOT_APPROVED), to_ms(now))

        return await self._database.run(work)

    async def ask_approvers_directly(self, delivery: Delivery, now: datetime) -> None:
        """Owe each approver a direct message: the channel of a claimed approval refuses it."""

        def work(tx: Transaction) -> None:
            row = lock_job(tx, delivery.job_id)
            given_up = tx.one(_GIVE_UP, id=delivery.id, claim=delivery.claim)
            if row is None or given_up is None or row["state"] != State.WAITING_FOR_APPROVAL:
                return
            job = job_from(row)
            people = self._approvals.people(job.user)
            tx.all(_ASKED, id=job.id, asked=json.dumps(people))
            add_approvals(tx, job, people, to_ms(now))
            edit_card(tx, job.id, to_ms(now))

        await self._database.run(work)

    async def give_up_asking(self, delivery: Delivery, now: datetime) -> None:
        """Give up a claimed approval to a person, who is no longer one of those who were asked."""

        def work(tx: Transaction) -> None:
            row = lock_job(tx, delivery.job_id)
            given_up = tx.one(_GIVE_UP, id=delivery.id, claim=delivery.claim)
            if row is None or given_up is None or row["state"] != State.WAITING_FOR_APPROVAL:
                return
            asked = [each["addressee"] for each in tx.all(_STILL_ASKED, job_id=delivery.job_id)]
            tx.all(_ASKED, id=delivery.job_id, asked=json.dumps(asked))
            edit_card(tx, delivery.job_id, to_ms(now))

        await self._database.run(work)

    async def list_to_approve(self, user: str, limit: int) -> list[Job]:
        """Return the jobs that wait for approval and that ``user`` may decide about, if any."""

        def work(tx: Transaction) -> tuple[list[Job], list[RowUnreadable]]:
            return read_each(job_from, tx.all(_WAITING, user=user, limit=limit))

        if not self._approvals.may_decide(user, ""):
            return []
        jobs, unreadable = await self._database.run(work, durable=False)
        self._unreadable.report(unreadable)
        return jobs

    def _to_decide(self, row: Row | None, user: str, now: datetime) -> Job | None:
        """Return the job of a locked row if ``user`` can decide about it now."""
        if row is None or row["state"] != State.WAITING_FOR_APPROVAL:
            return None
        if not self._approvals.may_decide(user, row["user_id"]):
            return None
        job = job_from(row)
        return job if job.approval is not None and now < job.approval.until else None

    def _settle(
        self,
        tx: Transaction,
        job: Job,
        settlement: Settlement,
        user: str | None,
        *,
        now: int,
        reason: str = "",
    ) -> None:
        """Record how it went, and owe the edits of approvals, and of the Home tabs that list it."""
        record(tx, _ACTIONS[settlement], user=user, at=now, job_id=job.id, detail=reason)
        settle_approvals(tx, job.id, settlement, user, now)
        change_homes(tx, self._approvals.everybody | {job.user}, now)


def _failed(job: Job, failure: Failure, reason: str = "") -> Job:
    return replace(job, state=State.FAILED, failure=failure, reason=reason)
