"""What the store knows of earlier jobs: how long they took, and whether the same was asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from statistics import median
from typing import Final

from bot.model import Durations, Job
from bot.store.database import Query, Row, Transaction, to_ms
from bot.store.job_rows import job_from
from bot.store.unreadable import read_each

_MAX_JOBS: Final = 100
"""The recent jobs that count."""
_ENOUGH: Final = 10
"""The jobs without which nothing is said of scripts as long, nor of 9 of 10."""
_SHORT: Final = 250
"""Scripts with fewer characters are one band. Each further band ends at twice as many."""

# A job about which a person was asked ended at some time before they answered.
_DURATION: Final = "CASE WHEN asked_at IS NULL THEN ended_at - started_at END"
# Each has an index in its order: it reads no more rows than it returns.
_RECENT: Final = Query(
    f"""
    SELECT {_DURATION} AS duration FROM jobs
    WHERE kind = :kind AND state = 'succeeded' ORDER BY ended_at DESC LIMIT :limit
    """  # noqa: S608 - the expression is ours
)
_RECENT_OF_LENGTH: Final = Query(
    f"""
    SELECT {_DURATION} AS duration FROM jobs
    WHERE kind = :kind AND script_band = :band AND state = 'succeeded'
    ORDER BY ended_at DESC LIMIT :limit
    """  # noqa: S608 - the expression is ours
)


def script_band(script: str | None) -> int | None:
    """Return the band of a script's length, counted from 0: under 250 characters, 500, 1,000."""
    return None if script is None else (len(script) // _SHORT).bit_length()


def recent_durations(tx: Transaction, kind: str, band: int | None) -> Durations | None:
    """Return how long the recent jobs of a kind took with scripts of this band, or else all.

    None if there are none. Works that are committed together share the answer.
    """
    return tx.once((_RECENT, kind, band), lambda: _recent_durations(tx, kind, band))


def _recent_durations(tx: Transaction, kind: str, band: int | None) -> Durations | None:
    rows: Sequence[Row] = ()
    if band is not None:
        rows = tx.all(_RECENT_OF_LENGTH, kind=kind, band=band, limit=_MAX_JOBS)
    if len(rows) < _ENOUGH:
        rows = tx.all(_RECENT, kind=kind, limit=_MAX_JOBS)
    took = sorted(row["duration"] for row in rows if row["duration"] is not None)
    if not took:
        return None
    slow = took[ceil(0.9 * len(took)) - 1] if len(took) >= _ENOUGH else None
    return Durations(
        timedelta(milliseconds=round(median(took))),
        None if slow is None else timedelta(milliseconds=slow),
    )


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
