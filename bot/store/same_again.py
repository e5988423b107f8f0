"""Whether the same was asked for a short while ago, by anybody, so that it need not be paid twice.

It is looked for in the transaction that would store the request, after ``lock_limits``: of two
requests at once, the second finds the first.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from bot.model import Job
from bot.store.database import Transaction, to_ms
from bot.store.job_rows import job_from
from bot.store.sql import Query
from bot.store.unreadable import read_each

# The newest that a person may see, if it can be a finished one.
_SAME: Final = Query(
    """
    SELECT * FROM jobs
    WHERE fingerprint = :fingerprint AND created_at > :since AND state <> 'failed'
        AND (user_id = :user OR channel = :channel OR CAST(:sees_all AS BIGINT) = 1)
    ORDER BY CASE WHEN state = 'succeeded' THEN 0 ELSE 1 END, created_at DESC LIMIT 1
    """
)


@dataclass(frozen=True, slots=True)
class Viewer:
    """A person to whom an earlier job may be offered: their own, or what they may see anyway."""

    user: str
    channel: str
    """Where they asked: they see what was posted there."""
    sees_all: bool
    """Whether they are an admin."""


class AlreadyRequested(Exception):
    """The same was asked for a short while ago, and nothing was stored.

    Attributes:
        job: what was asked for.
    """

    def __init__(self, job: Job) -> None:
        super().__init__("the same was asked for a short while ago")
        self.job = job


def find_same(tx: Transaction, fingerprint: str, viewer: Viewer, since: datetime) -> Job | None:
    """Return the newest job with a fingerprint that has not failed, if the viewer may see it."""
    rows = tx.all(
        _SAME,
        fingerprint=fingerprint,
        since=to_ms(since),
        user=viewer.user,
        channel=viewer.channel,
        sees_all=int(viewer.sees_all),
    )
    jobs, _ = read_each(job_from, rows)  # a damaged one is not offered
    return jobs[0] if jobs else None
