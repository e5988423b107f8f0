"""Reads of jobs, by id and by user."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from bot.approval import ApprovalPolicy
from bot.attempt import Attempt
from bot.model import Durations, Job
from bot.store.attempts import is_unclaimed, list_candidates, list_unanswered
from bot.store.database import Database, RowUnreadable, Transaction, Value
from bot.store.durations import recent_durations, script_band
from bot.store.job_rows import job_from
from bot.store.limits import Limits, used_by_all
from bot.store.sql import Query
from bot.store.unreadable import UnreadableRows, read_each
from bot.timings import StoreTimings

_NO_APPROVALS: Final = ApprovalPolicy()

_BY_ID: Final = Query("SELECT * FROM jobs WHERE id = :id")
BY_REQUEST: Final = Query("SELECT * FROM jobs WHERE request_key = :key")
_OPEN_QUESTIONS: Final = Query(
    """
    SELECT * FROM jobs
    WHERE due_at IS NOT NULL AND state = 'unconfirmed' AND asked > 0 AND user_id <> :user
    ORDER BY created_at LIMIT :limit
    """
)
BY_RETRIED: Final = Query("SELECT * FROM jobs WHERE retry_of = :id")
_BY_REMOTE_ID: Final = Query(
    """
    SELECT jobs.* FROM attempts JOIN jobs ON jobs.id = attempts.job_id
    WHERE attempts.kind = :kind AND lower(attempts.remote_id) = lower(:remote_id)
        AND attempts.remote_id IS NOT NULL
    """
)
_OF_USER: Final = Query(
    """
    SELECT * FROM jobs WHERE user_id = :user AND kind = :kind
    ORDER BY created_at DESC LIMIT :limit
    """
)
_OF_HOME: Final = Query(
    """
    SELECT * FROM jobs WHERE user_id = :user
    ORDER BY CASE WHEN ended_at IS NULL THEN 0 ELSE 1 END, created_at DESC
    LIMIT :limit OFFSET :skip
    """
)
_RETRIED: Final = Query("SELECT retry_of FROM jobs WHERE retry_of IN (EACH :ids)")


class JobReads:
    """The part of ``Jobs`` that changes nothing."""

    def __init__(
        self,
        database: Database,
        timings: StoreTimings,
        limits: Limits,
        unreadable: UnreadableRows,
        approvals: ApprovalPolicy = _NO_APPROVALS,
    ) -> None:
        self._database = database
        self._timings = timings
        self._limits = limits
        self._unreadable = unreadable
        self._approvals = approvals

    async def fetch(self, job_id: str) -> Job | None:
        """Return the job with this id."""
        return await self._find(_BY_ID, id=job_id)

    async def fetch_by_remote_id(self, kind: str, remote_id: str) -> Job | None:
        """Return the job whose create call made ``remote_id``, in whatever case, if one did."""
        return await self._find(_BY_REMOTE_ID, kind=kind, remote_id=remote_id)

    async def fetch_by_request(self, key: str) -> Job | None:
        """Return the job that the request with this key made, if it came before."""
        return await self._find(BY_REQUEST, key=key)

    async def fetch_retry(self, job: Job) -> Job | None:
        """Return the job that retries a failed one, if there is one."""
        return await self._find(BY_RETRIED, id=job.id)

    async def list_for_user(self, user: str, kind: str, limit: int) -> list[Job]:
        """Return a person's jobs of one kind, newest first."""

        def work(tx: Transaction) -> tuple[list[Job], list[RowUnreadable]]:
            return read_each(job_from, tx.all(_OF_USER, user=user, kind=kind, limit=limit))

        jobs, unreadable = await self._database.run(work, durable=False)
        self._unreadable.report(unreadable)
        return jobs

    async def list_running_first(self, user: str, skip: int, limit: int) -> list[Job]:
        """Return a person's jobs of all kinds: first those that run, then the others, newest first.

        ``skip`` is how many of them to leave out first.
        """

        def work(tx: Transaction) -> tuple[list[Job], list[RowUnreadable]]:
            return read_each(job_from, tx.all(_OF_HOME, user=user, skip=skip, limit=limit))

        jobs, unreadable = await self._database.run(work, durable=False)
        self._unreadable.report(unreadable)
        return jobs

    async def list_questions_to_others(self, user: str, limit: int) -> list[Job]:
        """Return the jobs of which only a person can say what happened, but not this person's."""

        def work(tx: Transaction) -> tuple[list[Job], list[RowUnreadable]]:
            return read_each(job_from, tx.all(_OPEN_QUESTIONS, user=user, limit=limit))

        jobs, unreadable = await self._database.run(work, durable=False)
        self._unreadable.report(unreadable)
        return jobs

    async def list_retried(self, job_ids: Sequence[str]) -> set[str]:
        """Return those of the jobs with these ids that were retried."""

        def work(tx: Transaction) -> set[str]:
            return {row["retry_of"] for row in tx.all(_RETRIED, ids=job_ids)}

        return await self._database.run(work, durable=False)

    async def count_used(self, now: datetime) -> int:
        """Return how many create calls of everybody count for the last 24 hours."""

        def work(tx: Transaction) -> int:
            return used_by_all(tx, now)

        return await self._database.run(work, durable=False)

    async def fetch_durations(self, kind: str, script: str | None) -> Durations | None:
        """Return how long recent jobs of a kind took, for a script as long as this; None at first.

        ``script`` is None for a kind without one, and before there is one.
        """

        def work(tx: Transaction) -> Durations | None:
            return recent_durations(tx, kind, script_band(script))

        return await self._database.run(work, durable=False)

    @property
    def approvals(self) -> ApprovalPolicy:
        """Which jobs need approval, and whose."""
        return self._approvals

    async def candidates(self, job: Job) -> list[Attempt]:
        """Return the job's attempts that have a candidate id."""

        def work(tx: Transaction) -> tuple[list[Attempt], list[RowUnreadable]]:
            return list_candidates(tx, job.id)

        attempts, unreadable = await self._database.run(work, durable=False)
        self._unreadable.report(unreadable)
        return attempts

    async def unanswered(self, job: Job) -> list[Attempt]:
        """Return the job's attempts of which nobody knows what they made, oldest first."""

        def work(tx: Transaction) -> tuple[list[Attempt], list[RowUnreadable]]:
            return list_unanswered(tx, job.id)

        attempts, errors = await self._database.run(work, durable=False)
        self._unreadable.report(errors)
        return attempts

    async def free_ids(self, kind: str, remote_ids: Iterable[str], attempt: Attempt) -> list[str]:
        """Return those ids that no other attempt has made, or was named for by a callback."""

        def work(tx: Transaction) -> list[str]:
            return [each for each in remote_ids if is_unclaimed(tx, kind, each, attempt.id)]

        return await self._database.run(work, durable=False)

    async def _find(self, query: Query, **values: Value) -> Job | None:
        def work(tx: Transaction) -> Job | None:
            row = tx.one(query, **values)
            return job_from(row) if row else None

        return await self._database.run(work, durable=False)
