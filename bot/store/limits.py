"""Limits on what people may ask for, checked in the transaction that queues a job.

A create call counts for 24 hours if it may have cost money: it made something, got no usable
answer, or is under way. A queued job counts as the call that it will be, so that no more jobs wait
than may be made.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Final, Literal

from bot.store.database import Row, Transaction, from_ms, to_ms
from bot.store.sql import Query

DAY: Final = timedelta(hours=24)
_NO_LIMIT: Final = 1_000_000_000

# On SQLite, which has one writer at a time, it locks nothing.
_LOCK: Final = Query("SELECT name FROM locks WHERE name = 'limits' FOR UPDATE")
# One statement sees one moment: a job that turns into an attempt meanwhile is counted once. Each
# count stops at its limit. An overdue job may stay open for weeks: it does not count as open.
_USED: Final = Query(
    """
    SELECT
        (SELECT count(*) FROM (
            SELECT 1 FROM jobs WHERE ended_at IS NULL AND user_id = :user
                AND state IN ('queued', 'creating', 'unconfirmed', 'running') LIMIT :open_per_user
        ) AS found) AS open_of_user,
        (SELECT count(*) FROM (
            SELECT 1 FROM jobs WHERE ended_at IS NULL AND user_id = :user
                AND state = 'queued' LIMIT :per_user_per_day
        ) AS found) AS queued_of_user,
        (SELECT count(*) FROM (
            SELECT 1 FROM jobs WHERE ended_at IS NULL AND state = 'queued' LIMIT :per_day
        ) AS found) AS queued,
        (SELECT count(*) FROM (
            SELECT 1 FROM attempts
            WHERE (outcome IS NULL OR outcome IN ('created', 'uncertain'))
                AND user_id = :user AND made_at > :since LIMIT :per_user_per_day
        ) AS found) AS charged_to_user,
        (SELECT count(*) FROM (
            SELECT 1 FROM attempts
            WHERE (outcome IS NULL OR outcome IN ('created', 'uncertain'))
                AND made_at > :since LIMIT :per_day
        ) AS found) AS charged
    """
)
_CHARGED_TO_USER_AT: Final = Query(
    """
    SELECT made_at FROM attempts
    WHERE (outcome IS NULL OR outcome IN ('created', 'uncertain'))
        AND user_id = :user AND made_at > :since
    ORDER BY made_at DESC LIMIT 1 OFFSET :later
    """
)
_CHARGED_AT: Final = Query(
    """
    SELECT made_at FROM attempts
    WHERE (outcome IS NULL OR outcome IN ('created', 'uncertain')) AND made_at > :since
    ORDER BY made_at DESC LIMIT 1 OFFSET :later
    """
)


_USED_BY_ALL: Final = Query(
    """
    SELECT
        (SELECT count(*) FROM (
            SELECT 1 FROM jobs WHERE ended_at IS NULL AND state = 'queued' LIMIT :most
        ) AS found) AS queued,
        (SELECT count(*) FROM (
            SELECT 1 FROM attempts
            WHERE (outcome IS NULL OR outcome IN ('created', 'uncertain'))
                AND made_at > :since LIMIT :most
        ) AS found) AS charged
    """
)
_MOST_COUNTED: Final = 100_000


class Limit(Enum):
    """What is limited."""

    OPEN_PER_USER = "open_per_user"
    """A person's jobs that have not ended and are not overdue."""
    PER_USER_PER_DAY = "per_user_per_day"
    """The create calls of a person's jobs in 24 hours."""
    PER_DAY = "per_day"
    """All create calls in 24 hours."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The highest number of each, for everyone, admins included."""

    open_per_user: int = _NO_LIMIT
    per_user_per_day: int = _NO_LIMIT
    per_day: int = _NO_LIMIT


class LimitReached(Exception):
    """There is no room for another job, and nothing was stored.

    Attributes:
        limit: the limit that is reached.
        maximum: its number.
        free_at: when there will be room; None if that depends on open jobs.
    """

    def __init__(self, limit: Limit, maximum: int, free_at: datetime | None = None) -> None:
        super().__init__(f"the limit {limit.value} is reached")
        self.limit = limit
        self.maximum = maximum
        self.free_at = free_at


def lock_limits(tx: Transaction) -> None:
    """Let no other process queue a job until the transaction ends.

    Two that count at once would both find room for the last one.
    """
    tx.one(_LOCK)


def reached_limit(
    tx: Transaction, limits: Limits, user: str, now: datetime, *, opens: bool
) -> LimitReached | None:
    """Return the limit that leaves no room for one more create call of a user, if one does.

    To be called in the transaction that queues the job, after ``lock_limits``. ``opens`` says
    whether that makes one more open job.
    """
    since = to_ms(now - DAY)
    used = tx.one(
        _USED,
        user=user,
        since=since,
        open_per_user=limits.open_per_user,
        per_user_per_day=limits.per_user_per_day,
        per_day=limits.per_day,
    )
    assert used is not None  # noqa: S101 - it has no condition
    if opens and used["open_of_user"] >= limits.open_per_user:
        return LimitReached(Limit.OPEN_PER_USER, limits.open_per_user)
    free = limits.per_user_per_day - used["queued_of_user"]
    if used["charged_to_user"] >= free:
        charged = free > 0 and tx.one(_CHARGED_TO_USER_AT, user=user, since=since, later=free - 1)
        return LimitReached(Limit.PER_USER_PER_DAY, limits.per_user_per_day, _free_at(charged, now))
    free = limits.per_day - used["queued"]
    if used["charged"] >= free:
        charged = free > 0 and tx.one(_CHARGED_AT, since=since, later=free - 1)
        return LimitReached(Limit.PER_DAY, limits.per_day, _free_at(charged, now))
    return None


def used_by_all(tx: Transaction, now: datetime) -> int:
    """Return how many create calls count now towards the limit for everybody together."""
    used = tx.one(_USED_BY_ALL, since=to_ms(now - DAY), most=_MOST_COUNTED)
    assert used is not None  # noqa: S101 - it has no condition
    return int(used["queued"]) + int(used["charged"])


def _free_at(charged: Row | Literal[False] | None, now: datetime) -> datetime:
    """Return when a create call counts no more; without one, when those of queued jobs may."""
    return DAY + (from_ms(charged["made_at"]) if charged else now)
