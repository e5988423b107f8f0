"""What becomes of ended jobs: their texts are erased, later their rows are deleted."""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

from bot.model import Snapshot
from bot.store.audit import delete_audit, erase_details
from bot.store.database import Transaction, to_ms
from bot.store.job_reads import JobReads
from bot.store.job_rows import job_from, snapshot_text
from bot.store.spending import keep_spending
from bot.store.sql import Query
from bot.store.unreadable import read_each

_MAX_JOBS: Final = 200
"""Jobs that are erased or deleted in one transaction, for which others wait."""

_TO_ERASE: Final = Query(
    """
    SELECT * FROM jobs WHERE erased = 0 AND ended_at IS NOT NULL AND ended_at < :before
    ORDER BY ended_at LIMIT :limit FOR UPDATE SKIP LOCKED
    """
)
# The new claim number keeps a worker that has the job from writing its snapshot back.
_ERASE: Final = Query(
    """
    UPDATE jobs SET params = :params, snapshot = :snapshot, reason = '', erased = 1,
        fingerprint = NULL, claim = claim + 1
    WHERE id = CAST(:id AS TEXT)
    """
)
# A row with a time is worked on: an id to look up, a message that is owed.
_TO_DELETE: Final = Query(
    """
    SELECT id FROM jobs
    WHERE erased = 1 AND due_at IS NULL AND ended_at < :before AND NOT EXISTS (
        SELECT 1 FROM deliveries WHERE job_id = jobs.id AND due_at IS NOT NULL
    )
    ORDER BY ended_at LIMIT :limit FOR UPDATE SKIP LOCKED
    """
)
_DELETE: Final = (
    Query("DELETE FROM deliveries WHERE job_id IN (EACH :ids)"),
    Query("DELETE FROM attempts WHERE job_id IN (EACH :ids)"),
    Query("DELETE FROM jobs WHERE id IN (EACH :ids)"),
)
# With the erasing, so that a process that ends after it leaves the compaction to the next one.
_MARK_TO_COMPACT: Final = Query("INSERT INTO compactions (id) VALUES (1) ON CONFLICT DO NOTHING")
_IS_TO_COMPACT: Final = Query("SELECT id FROM compactions")
_MARK_COMPACTED: Final = Query("DELETE FROM compactions")


class JobRetention(JobReads):
    """The part of ``Jobs`` that forgets old ones."""

    async def is_to_compact(self) -> bool:
        """Return whether jobs were erased or deleted since ``mark_compacted``."""
        return await self._database.run(lambda tx: bool(tx.one(_IS_TO_COMPACT)), durable=False)

    async def mark_compacted(self) -> None:
        """Store that nothing erased or deleted can be read any more in the database."""
        await self._database.run(lambda tx: tx.all(_MARK_COMPACTED))

    async def erase(self, before: datetime, kept: Mapping[str, frozenset[str]]) -> int:
        """Erase what people wrote and the links of jobs that ended ``before``; return how many.

        ``kept`` names, by kind, the parameters that stay. Of a job that cannot be read, none do.
        Some may be left for the next call.
        """

        def work(tx: Transaction) -> int:
            rows = tx.all(_TO_ERASE, before=to_ms(before), limit=_MAX_JOBS)
            if rows:
                tx.all(_MARK_TO_COMPACT)
            jobs, unreadable = read_each(job_from, rows)
            for error in unreadable:
                tx.all(_ERASE, id=error.key, params="{}", snapshot=None)
            for job in jobs:
                keep = kept.get(job.kind, frozenset())
                params = {name: value for name, value in job.params.items() if name in keep}
                snapshot = snapshot_text(job.snapshot and _without_words(job.snapshot))
                tx.all(_ERASE, id=job.id, params=json.dumps(params), snapshot=snapshot)
            return len(rows)

        return await self._database.run(work)

    async def delete(self, before: datetime) -> int:
        """Delete erased jobs that ended ``before``, with their attempts and deliveries.

        A job that still owes a message, or has an id to look up, stays.

        Returns:
            How many were deleted. Some may be left for the next call.
        """

        def work(tx: Transaction) -> int:
            ids = [row["id"] for row in tx.all(_TO_DELETE, before=to_ms(before), limit=_MAX_JOBS)]
            if ids:
                tx.all(_MARK_TO_COMPACT)
                keep_spending(tx, ids)
                for query in _DELETE:
                    tx.all(query, ids=ids)
            return len(ids)

        return await self._database.run(work)

    async def erase_audit(self, before: datetime) -> int:
        """Erase the details of what people did ``before``; return of how many rows.

        Some may be left for the next call.
        """
        return await self._forget(erase_details, before)

    async def delete_audit(self, before: datetime) -> int:
        """Delete what people did ``before`` from the audit; return how many rows.

        Some may be left for the next call.
        """
        return await self._forget(delete_audit, before)

    async def _forget(self, forget: Callable[[Transaction, int], int], before: datetime) -> int:
        def work(tx: Transaction) -> int:
            forgotten = forget(tx, to_ms(before))
            if forgotten:
                tx.all(_MARK_TO_COMPACT)
            return forgotten

        return await self._database.run(work)


def _without_words(snapshot: Snapshot) -> Snapshot:
    """Return what stays of a snapshot when links and words are erased."""
    return Snapshot(snapshot.remote_id, snapshot.status, snapshot.verdict)
