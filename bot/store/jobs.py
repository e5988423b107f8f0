"""The table of jobs: each change in the life of a job, all or nothing.

Each method is one transaction. It locks the job's row first, and writes a claimed job only under
the number that it was claimed with.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from bot.attempt import Attempt
from bot.model import Failure, Job, Settlement, State
from bot.store.approvals import Approvals
from bot.store.attempts import (
    AddedCandidate,
    add_attempt,
    bind,
    can_adopt,
    close_attempts,
    drop_candidate,
    find_attempt,
    get_attempt,
    is_free,
    list_candidates,
    set_candidate,
    set_candidate_of_callback,
    set_candidate_of_person,
)
from bot.store.audit import AuditAction, record
from bot.store.callback_probe import count_probe
from bot.store.database import Topic, Transaction, Value, run_until_stored, to_ms
from bot.store.deliveries import add_question, edit_question, settle_question
from bot.store.job_retention import JobRetention
from bot.store.job_rows import job_from, lock_job, lock_jobs
from bot.store.sql import Query
from bot.store.transitions import POLLED, end, release_woken, save, wake

# What came before may have taken long: the lease begins anew, and outlasts the call.
_BEGIN_CREATING: Final = Query(
    """
    UPDATE jobs SET state = 'creating', attempts = attempts + 1,
        due_at = :lease_end, wait_ms = :lease_end - :now
    WHERE id = :id AND claim = :claim AND state = 'queued' RETURNING id
    """
)
_CHECK_NOW: Final = Query(
    """
    UPDATE jobs SET due_at = :now, claim = claim + 1, claimed = 0
    WHERE id = :id AND state = 'unconfirmed' AND attempts = :attempts RETURNING id
    """
)
_POSTPONE_TURNS: Final = Query(
    """
    WITH waiting AS (
        SELECT id FROM jobs
        WHERE ended_at IS NULL AND state = 'queued' AND user_id = :user AND turn_at < :turn_at
        FOR UPDATE SKIP LOCKED
    )
    UPDATE jobs SET turn_at = :turn_at WHERE id IN (SELECT id FROM waiting)
    """
)
_WAITING: Final = Query("SELECT id FROM jobs WHERE waits_for = :remote_id AND ended_at IS NULL")


class Jobs(Approvals, JobRetention):
    """The jobs, from their submission to their deletion."""

    # ── Creating ──────────────────────────────────────────────────────────────────────────────

    async def begin_attempt(self, job: Job, token_hash: str, now: datetime) -> int | None:
        """Store that a create call may cost money from now on; return the attempt's id.

        None means that the job must not be created: the lease was lost, or it was woken meanwhile.
        """

        def work(tx: Transaction) -> int | None:
            lock_job(tx, job.id)
            times = {"now": to_ms(now), "lease_end": to_ms(now + self._timings.lease)}
            claimed: dict[str, Value] = {"id": job.id, "claim": job.claim}
            # A callback may have named what an earlier attempt made.
            if release_woken(tx, job) or not tx.one(_BEGIN_CREATING, **claimed, **times):
                return None
            return add_attempt(tx, job, token_hash, to_ms(now))

        return await self._database.run(work)

    async def record_created(
        self, job: Job, attempt_id: int, *, now: datetime, due_at: datetime
    ) -> bool:
        """Bind what a create call made to its attempt, and store ``job``, which has its id.

        A callback that came before the answer makes the job due at once. It is stored even if the
        database is unavailable for a while.

        Returns:
            Whether it was bound: False if the id belongs to another attempt, where nothing is
            stored, or if the job was claimed again: then the id is a candidate, and the job is due.
        """
        assert job.remote_id is not None  # noqa: S101 - the caller has just received it
        remote_id = job.remote_id

        def work(tx: Transaction) -> bool:
            before = lock_job(tx, job.id)
            candidate_id = get_attempt(tx, attempt_id)["candidate_id"] or ""
            announced = candidate_id.casefold() == remote_id.casefold()
            at = now if announced else due_at
            if not is_free(tx, job.kind, remote_id, attempt_id):
                return False
            if save(tx, before, job, at, to_ms(now)):
                bind(tx, attempt_id, remote_id)
                return True
            set_candidate(tx, attempt_id, remote_id, to_ms(now))
            wake(tx, [job.id], now, self._timings)
            return False

        return await run_until_stored(
            self._database, work, retry_interval=self._timings.retry_interval
        )

    async def record_not_created(
        self,
        job: Job,
        *,
        outcome: str,
        now: datetime,
        due_at: datetime,
        turn_at: datetime | None = None,
    ) -> None:
        """Store how the job's last create call went, which gave no id, and release ``job``.

        A candidate that a callback named meanwhile makes it due at once. It is stored even if the
        database is unavailable for a while. With ``turn_at``, the waiting jobs of its user have no
        turn before.
        """

        def work(tx: Transaction) -> None:
            before = lock_job(tx, job.id)
            at = now if any(list_candidates(tx, job.id)) else due_at
            if save(tx, before, job, at, to_ms(now)):
                close_attempts(tx, job.id, outcome)
                if turn_at is not None:
                    tx.all(_POSTPONE_TURNS, user=job.user, turn_at=to_ms(turn_at))

        await run_until_stored(self._database, work, retry_interval=self._timings.retry_interval)

    async def record_callback(
        self, token_hash: str, named: Mapping[str, str], now: datetime
    ) -> None:
        """Record a callback, which is only a reason to read the job.

        ``named`` has the id that it named, by kind of job. A job whose id is known is woken; an id
        for an attempt that has none becomes a candidate. A job that is being created is left
        alone, or two workers would create two.
        """

        def work(tx: Transaction) -> None:
            found = find_attempt(tx, token_hash)
            if found is None:
                count_probe(tx, token_hash)
                return
            job = lock_job(tx, found["job_id"])
            if job is None:  # deleted by another process just now
                return
            if get_attempt(tx, found["id"])["remote_id"] is not None:
                if job["state"] in POLLED:
                    wake(tx, [job["id"]], now, self._timings)
            elif (remote_id := named.get(job["kind"])) is not None:
                set_candidate_of_callback(tx, found["id"], remote_id, to_ms(now))
                if job["state"] != State.CREATING:
                    wake(tx, [job["id"]], now, self._timings)

        await self._database.run(work)

    # ── Candidates, and what a person decides ─────────────────────────────────────────────────

    async def adopt(self, job: Job, attempt: Attempt, now: datetime) -> bool:
        """Bind what ``attempt`` was found to have made, and store ``job``, which shows it.

        Returns:
            Whether it was bound: False if another attempt has the id, another candidate has taken
            its place, or the job was claimed again.
        """
        assert attempt.candidate_id is not None  # noqa: S101 - it is what was verified
        remote_id = attempt.candidate_id

        def work(tx: Transaction) -> bool:
            before = lock_job(tx, job.id)
            due_at = None if job.state.ended else now
            allowed = can_adopt(tx, job.kind, attempt)
            if not allowed or not save(tx, before, job, due_at, to_ms(now)):
                return False
            bind(tx, attempt.id, remote_id)
            if attempt.user_supplied:
                by, at = attempt.named_by, to_ms(now)
                settle_question(tx, job.id, Settlement.FOUND, by, at)
                record(tx, AuditAction.FOUND, user=by, at=at, job_id=job.id, detail=remote_id)
            else:
                settle_question(tx, job.id, Settlement.TURNED_UP, None, to_ms(now))
            return True

        return await self._database.run(work)

    async def ask(self, job: Job, now: datetime, due_at: datetime) -> bool:
        """Owe a question about a claimed job, and leave ``job``, which counts it, until ``due_at``.

        Returns:
            Whether it is owed: False if the job was woken or claimed again meanwhile.
        """

        def work(tx: Transaction) -> bool:
            before = lock_job(tx, job.id)
            if release_woken(tx, job) or not save(tx, before, job, due_at, to_ms(now)):
                return False
            add_question(tx, job, to_ms(now))
            return True

        return await self._database.run(work)

    async def offer(self, job: Job, now: datetime, due_at: datetime) -> bool:
        """Show in the open question of a claimed job what it now has to offer.

        Returns:
            Whether it is shown: False if the job was claimed again meanwhile.
        """

        def work(tx: Transaction) -> bool:
            before = lock_job(tx, job.id)
            if not save(tx, before, job, due_at, to_ms(now)):
                return False
            edit_question(tx, job.id, to_ms(now))
            return True

        return await self._database.run(work)

    async def name_candidate(self, attempt: Attempt, remote_id: str, now: datetime) -> None:
        """Store an id that the service lists with the token of ``attempt``."""

        def work(tx: Transaction) -> None:
            lock_job(tx, attempt.job_id)
            if get_attempt(tx, attempt.id)["remote_id"] is None:
                set_candidate_of_callback(tx, attempt.id, remote_id, to_ms(now))

        await self._database.run(work)

    async def add_candidate(
        self, job_id: str, attempts: int, remote_id: str, user: str, now: datetime
    ) -> AddedCandidate:
        """Have an id verified that ``user`` gave, unless a callback named another one.

        It is about an unconfirmed job for which ``attempts`` create calls were begun.
        """

        def work(tx: Transaction) -> AddedCandidate:
            lock_job(tx, job_id)
            if tx.one(_CHECK_NOW, id=job_id, attempts=attempts, now=to_ms(now)) is None:
                return AddedCandidate.SETTLED
            tx.notify(Topic.JOBS)
            unread_since = to_ms(now - self._timings.check_candidate_within)
            stored = set_candidate_of_person(
                tx, job_id, remote_id, user=user, now=to_ms(now), unread_since=unread_since
            )
            return AddedCandidate.STORED if stored else AddedCandidate.OTHER_UNCHECKED

        return await self._database.run(work)

    async def drop_candidate(self, attempt: Attempt) -> None:
        """Remove a candidate that does not match, unless another one has taken its place."""

        def work(tx: Transaction) -> None:
            lock_job(tx, attempt.job_id)
            drop_candidate(tx, attempt)

        await self._database.run(work)

    # ── Waking and ending ─────────────────────────────────────────────────────────────────────

    async def wake(self, job: Job, now: datetime) -> None:
        """Make a job that the service works on due for a poll soon."""

        def work(tx: Transaction) -> None:
            row = lock_job(tx, job.id)
            if row is not None and row["state"] in POLLED:
                wake(tx, [job.id], now, self._timings)

        await self._database.run(work, durable=False)

    async def wake_waiting(self, remote_id: str, now: datetime) -> None:
        """Make the jobs due that wait for ``remote_id``, which another job has made."""

        def work(tx: Transaction) -> None:
            waiting = [row["id"] for row in tx.all(_WAITING, remote_id=remote_id)]
            locked = lock_jobs(tx, waiting) if waiting else []
            if still := [row["id"] for row in locked if row["waits_for"] == remote_id]:
                wake(tx, still, now, self._timings)

        await self._database.run(work, durable=False)

    async def finish(self, job: Job, now: datetime) -> bool:
        """End a job as ``job`` says, and owe its closing reply.

        It is stored even if the database is unavailable for a while.

        Returns:
            Whether it was ended: False if it had ended before, or if it has no id of the
            service's and was claimed or woken meanwhile. Of several callers, one wins.
        """

        def work(tx: Transaction) -> bool:
            lock_job(tx, job.id)
            if job.remote_id is None and release_woken(tx, job):
                return False
            ended = end(tx, job, to_ms(now))
            if ended and job.failure is not None:
                close_attempts(tx, job.id, job.failure.value)
            return ended

        return await run_until_stored(
            self._database, work, retry_interval=self._timings.retry_interval
        )

    async def cancel(self, job_id: str, attempts: int, user: str, now: datetime) -> bool:
        """End an unconfirmed job as cancelled, as ``user`` chose.

        ``attempts`` create calls were begun for it when they chose.

        Returns:
            Whether it was ended: False if it no longer is unconfirmed, or another attempt was begun
            since.
        """

        def work(tx: Transaction) -> bool:
            row = lock_job(tx, job_id)
            if row is None or (row["state"], row["attempts"]) != (State.UNCONFIRMED, attempts):
                return False
            settle_question(tx, job_id, Settlement.CANCELLED, user, to_ms(now))
            record(tx, AuditAction.CANCELLED, user=user, at=to_ms(now), job_id=job_id)
            cancelled = replace(job_from(row), state=State.FAILED, failure=Failure.CANCELLED)
            return end(tx, cancelled, to_ms(now))

        return await self._database.run(work)

    async def stop(
        self, job_id: str, attempts: int, failure: Failure, user: str, now: datetime
    ) -> bool:
        """End a job that the service works on, as ``user`` chose.

        ``attempts`` create calls were begun for it when they chose. What the service makes of it is
        no longer followed.

        Returns:
            Whether it was ended: False if it is no longer under way, or another attempt was begun
            since.
        """

        def work(tx: Transaction) -> bool:
            row = lock_job(tx, job_id)
            if row is None or row["state"] not in POLLED or row["attempts"] != attempts:
                return False
            record(tx, AuditAction.STOPPED, user=user, at=to_ms(now), job_id=job_id)
            stopped = replace(job_from(row), state=State.FAILED, failure=failure)
            return end(tx, stopped, to_ms(now))

        return await self._database.run(work)

    async def expire(self, job: Job, now: datetime) -> bool:
        """End a claimed job whose question was not answered.

        Returns:
            Whether it was ended: False if an answer or a callback came meanwhile.
        """
        expired = replace(job, state=State.FAILED, failure=Failure.UNANSWERED)

        def work(tx: Transaction) -> bool:
            row = lock_job(tx, job.id)
            if row is None or (row["state"], row["claim"]) != (State.UNCONFIRMED, job.claim):
                return False
            if release_woken(tx, job):
                return False
            settle_question(tx, job.id, Settlement.UNANSWERED, None, to_ms(now))
            return end(tx, expired, to_ms(now))

        return await self._database.run(work)
