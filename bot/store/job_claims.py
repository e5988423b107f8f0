"""Claims of jobs: leases of due jobs, and their release."""

import asyncio
from collections.abc import Collection
from datetime import datetime
from typing import Final

from bot.model import Job
from bot.store.database import RowUnreadable, Topic, Transaction, Value, to_ms
from bot.store.job_reads import JobReads
from bot.store.job_rows import job_from, lock_job
from bot.store.sql import Query
from bot.store.transitions import save
from bot.store.unreadable import due_at_of, read_each, set_aside, try_again

_MAX_WOKEN: Final = 500
_HASTEN_STEPS: Final = 10

# In the order of their turns, so that nobody waits behind all the jobs of somebody else.
_DUE_TO_CREATE: Final = Query(
    """
    SELECT id FROM jobs
    WHERE due_at <= :now AND state IN ('queued', 'creating') AND id NOT IN (EACH :held)
    ORDER BY turn_at, due_at LIMIT :limit FOR UPDATE SKIP LOCKED
    """
)
_DUE_OTHERWISE: Final = Query(
    """
    SELECT id FROM jobs
    WHERE due_at <= :now AND state NOT IN ('queued', 'creating') AND id NOT IN (EACH :held)
    ORDER BY due_at LIMIT :limit FOR UPDATE SKIP LOCKED
    """
)
# ``read_at`` is set now, not when the answer is there: a callback that comes meanwhile waits too.
# A row that is claimed long after it was due was not watched meanwhile, or the clock was set ahead:
# that time does not count for the job's age.
_CLAIM: Final = Query(
    """
    UPDATE jobs SET claim = claim + 1, claimed = 1, wake_at = NULL,
        due_at = :lease_end, wait_ms = :lease_end - :now,
        started_at = CASE WHEN due_at > 0 AND due_at < :late THEN started_at + :now - due_at
                     ELSE started_at END,
        read_at = CASE WHEN state IN ('running', 'overdue') OR EXISTS (
            SELECT 1 FROM attempts
            WHERE job_id = jobs.id AND remote_id IS NULL AND candidate_id IS NOT NULL
        ) THEN :now ELSE read_at END
    WHERE id IN (EACH :ids) RETURNING *
    """
)
_NEXT_DUE: Final = Query(
    """
    SELECT due_at FROM jobs
    WHERE due_at IS NOT NULL AND id NOT IN (EACH :held)
        AND (state IN ('queued', 'creating') AND :creates = 1
            OR state NOT IN ('queued', 'creating') AND :others = 1)
    ORDER BY due_at LIMIT 1
    """
)
_WAKE_FAR_FUTURE: Final = Query(
    """
    WITH far AS (
        SELECT id FROM jobs
        WHERE due_at > :latest AND (due_at > :far OR due_at - wait_ms > :latest)
        LIMIT :limit FOR UPDATE SKIP LOCKED
    )
    UPDATE jobs SET due_at = CASE WHEN claimed = 1 THEN :lease_end ELSE :now END,
        started_at = started_at - (due_at - wait_ms - :now)
    WHERE id IN (SELECT id FROM far) RETURNING id
    """
)
_DELAYED: Final = Query(
    """
    SELECT id FROM jobs
    WHERE due_at > :latest AND claimed = 0 AND ended_at IS NULL
        AND (failures > 0 OR held_by IS NOT NULL)
    ORDER BY id LIMIT :limit FOR UPDATE SKIP LOCKED
    """
)
# For whichever copy of the bot claims them, they no longer wait for what held them back.
_HASTEN: Final = Query(
    """
    UPDATE jobs SET due_at = :due_at, held_by = NULL, held_until = NULL WHERE id IN (EACH :ids)
    """
)
VOID_LEASES: Final = Query("UPDATE jobs SET due_at = 0, claimed = 0 WHERE claimed = 1")


class JobClaims(JobReads):
    """The part of ``Jobs`` that the worker's loop uses."""

    @property
    def due(self) -> asyncio.Event:
        """Set when a job may have become due."""
        return self._database.event(Topic.JOBS)

    async def claim(
        self,
        now: datetime,
        limit: int,
        held: Collection[str] = (),
        *,
        creates: int | None = None,
        others: int | None = None,
    ) -> list[Job]:
        """Lease jobs that are due: first those to be created, in turn, then the longest waiting.

        Args:
            now: the time.
            limit: the highest number of jobs.
            held: those that this process still works on: a clock jump may end leases early.
            creates: the highest number of jobs to be created, if that is lower.
            others: the highest number of others, if that is lower.
        """
        creates = limit if creates is None else min(creates, limit)
        others = limit if others is None else others

        def work(tx: Transaction) -> tuple[list[Job], list[RowUnreadable]]:
            due: dict[str, Value] = {"now": to_ms(now), "held": list(held)}
            ids = [row["id"] for row in tx.all(_DUE_TO_CREATE, limit=creates, **due)]
            rest = min(others, limit - len(ids))
            ids += [row["id"] for row in tx.all(_DUE_OTHERWISE, limit=rest, **due)]
            # Such a row cannot even be claimed.
            unreadable = [RowUnreadable("jobs", "?", id_) for id_ in ids if type(id_) is not str]
            set_aside(tx, unreadable)
            ids = [id_ for id_ in ids if type(id_) is str]
            if not ids:
                return [], unreadable
            claimed = tx.all(
                _CLAIM,
                ids=ids,
                now=to_ms(now),
                lease_end=to_ms(now + self._timings.lease),
                late=to_ms(now - self._timings.lease),
            )
            found, errors = read_each(job_from, claimed)
            set_aside(tx, errors)
            jobs_by_id = {job.id: job for job in found}
            return [jobs_by_id[id_] for id_ in ids if id_ in jobs_by_id], unreadable + errors

        jobs, unreadable = await self._database.run(work, durable=False)
        self._unreadable.report(unreadable)
        return jobs

    async def next_due(
        self, held: Collection[str] = (), *, creates: bool = True, others: bool = True
    ) -> datetime | None:
        """Return when the next job is due that is not held; None while there is none.

        ``creates`` and ``others`` say whether jobs to be created and others count.
        """

        def work(tx: Transaction) -> datetime | None:
            row = tx.one(_NEXT_DUE, held=list(held), creates=int(creates), others=int(others))
            return due_at_of(row)

        return await self._database.run(work, durable=False)

    async def release(self, job: Job, now: datetime, due_at: datetime | None) -> bool:
        """Store a claimed job as it now is, and leave it alone until ``due_at``.

        If it was woken since it was claimed, it is due for that soon.

        Returns:
            Whether it was stored: False also if it was claimed again meanwhile, or has ended.
        """

        def work(tx: Transaction) -> bool:
            return save(tx, lock_job(tx, job.id), job, due_at, to_ms(now))

        return await self._database.run(work, durable=False)

    async def wake_far_future(self, now: datetime) -> int:
        """Make rows due that have longer to wait than they were to, or than any wait lasts.

        The clock was set back since, by more than a lease. A claimed row keeps a lease, counted
        from now. Returns the number of rows; more may be left for the next call.
        """

        def work(tx: Transaction) -> int:
            found = tx.all(
                _WAKE_FAR_FUTURE,
                now=to_ms(now),
                lease_end=to_ms(now + self._timings.lease),
                latest=to_ms(now + self._timings.lease),
                far=to_ms(now + self._timings.max_wait + self._timings.lease),
                limit=_MAX_WOKEN,
            )
            if found:
                tx.notify(Topic.JOBS)
            return len(found)

        return await self._database.run(work, durable=False)

    async def hasten(self, now: datetime) -> int:
        """Make jobs due whose call failed or was held back: the service answers again.

        They are due one after the other within ``hasten_within``, so that the calls do not all come
        at once. Returns the number of jobs; more may be left for the next call.
        """
        latest = now + self._timings.hasten_within

        def work(tx: Transaction) -> int:
            ids = [row["id"] for row in tx.all(_DELAYED, latest=to_ms(latest), limit=_MAX_WOKEN)]
            for step in range(_HASTEN_STEPS):
                if some := ids[step::_HASTEN_STEPS]:
                    due_at = now + self._timings.hasten_within * (step / _HASTEN_STEPS)
                    tx.all(_HASTEN, ids=some, due_at=to_ms(due_at))
            if ids:
                tx.notify(Topic.JOBS)
            return len(ids)

        return await self._database.run(work, durable=False)

    async def void_leases(self) -> None:
        """End all leases. Only for a process that knows that no other one works on them."""

        def work(tx: Transaction) -> None:
            tx.all(VOID_LEASES)

        await self._database.run(work, durable=False)

    async def try_set_aside(self) -> None:
        """Make rows due that could not be read, deliveries too: they may be repaired by now."""
        await self._database.run(try_again, durable=False)
