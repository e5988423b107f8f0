"""Limits on what people may ask for, checked in the transaction that queues a job.

A create call counts for 24 hours, and for its calendar month, if it may have cost money: it made
something, got no usable answer, or is under way. A job that is queued, or waits for approval,
counts as the call that it will be, so that no more jobs wait than may be made. Months are those of
UTC.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final, Literal

from bot.model import Request
from bot.store.database import Row, Transaction, from_ms, to_ms
from bot.store.sql import Query

# The states in which a job counts as the create call that it will be.
_TO_BE_CREATED: Final = "('queued', 'waiting_for_approval')"
DAY: Final = timedelta(hours=24)
_NO_LIMIT: Final = 1_000_000_000

# On SQLite, which has one writer at a time, it locks nothing.
_LOCK: Final = Query("SELECT name FROM locks WHERE name = 'limits' FOR UPDATE")
# One statement sees one moment: a job that turns into an attempt meanwhile is counted once. Each
# count stops at its limit. An overdue job may stay open for weeks: it does not count as open.
_USED: Final = Query(
    f"""
    SELECT
        (SELECT count(*) FROM (
            SELECT 1 FROM jobs WHERE ended_at IS NULL AND user_id = :user
                AND (state IN {_TO_BE_CREATED} OR state IN ('creating', 'unconfirmed', 'running'))
            LIMIT :open_per_user
        ) AS found) AS open_of_user,
        (SELECT count(*) FROM (
            SELECT 1 FROM jobs WHERE ended_at IS NULL AND user_id = :user
                AND state IN {_TO_BE_CREATED} LIMIT :per_user_per_day
        ) AS found) AS queued_of_user,
        (SELECT count(*) FROM (
            SELECT 1 FROM attempts
            WHERE (outcome IS NULL OR outcome IN ('created', 'uncertain'))
                AND user_id = :user AND made_at > :since LIMIT :per_user_per_day
        ) AS found) AS charged_to_user
    """  # noqa: S608 - our own text
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


# In the indexes of the counts above. It is asked only where a month has a limit.
_USED_IN_MONTH: Final = Query(
    """
    SELECT
        (SELECT count(*) FROM (
            SELECT 1 FROM attempts
            WHERE (outcome IS NULL OR outcome IN ('created', 'uncertain'))
                AND user_id = :user AND made_at >= :since LIMIT :per_user
        ) AS found) AS charged_to_user
    """
)
_USED_BY_ALL_IN_MONTH: Final = Query(
    """
    SELECT count(*) AS charged FROM (
        SELECT 1 FROM attempts
        WHERE (outcome IS NULL OR outcome IN ('created', 'uncertain'))
            AND made_at >= :since LIMIT :most
    ) AS found
    """
)
_USED_BY_ALL: Final = Query(
    f"""
    SELECT
        (SELECT count(*) FROM (
            SELECT 1 FROM jobs WHERE ended_at IS NULL AND state IN {_TO_BE_CREATED}
            LIMIT :most
        ) AS found) AS queued,
        (SELECT count(*) FROM (
            SELECT 1 FROM attempts
            WHERE (outcome IS NULL OR outcome IN ('created', 'uncertain'))
                AND made_at > :since LIMIT :most
        ) AS found) AS charged
    """  # noqa: S608 - our own text
)
_MOST_COUNTED: Final = 100_000
_MOST_SHOWN: Final = 5_000


class Limit(Enum):
    """What is limited."""

    OPEN_PER_USER = "open_per_user"
    """A person's jobs that have not ended and are not overdue."""
    PER_USER_PER_DAY = "per_user_per_day"
    """The create calls of a person's jobs in 24 hours."""
    PER_DAY = "per_day"
    """All create calls in 24 hours."""
    PER_USER_PER_MONTH = "per_user_per_month"
    """The create calls of a person's jobs in a calendar month."""
    PER_MONTH = "per_month"
    """All create calls in a calendar month."""


class Bound(Enum):
    """What a request has to be within, however few there are."""

    PERSON = "person"
    """The list of those who may ask for its kind."""
    CHANNEL = "channel"
    """The list of channels."""
    SCRIPT = "script"
    """The longest script."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What people may ask for. The numbers hold for everyone, admins included."""

    open_per_user: int = _NO_LIMIT
    per_user_per_day: int = _NO_LIMIT
    per_day: int = _NO_LIMIT
    per_user_per_month: int | None = None
    """None for no limit, like the next."""
    per_month: int | None = None
    max_script: int = _NO_LIMIT
    """Characters."""
    video_users: frozenset[str] = frozenset()
    """The ids of people and user groups who may ask for videos; empty for everybody."""
    training_users: frozenset[str] = frozenset()
    """Likewise for trainings."""
    channels: frozenset[str] = frozenset()
    """The ids of the channels to post in; empty for all. Direct messages are never limited."""
    admins: frozenset[str] = frozenset()
    """The ids of those who are on every list of people. Nobody changes this, nor the next."""
    trainings: frozenset[str] = frozenset()
    """The kinds of jobs that ``training_users`` is about."""

    def users(self, kind: str) -> frozenset[str]:
        """Return the ids of people and user groups who may ask for a kind; empty for everybody."""
        return self.training_users if kind in self.trainings else self.video_users

    def allows_person(self, kind: str, user: str, groups: frozenset[str]) -> bool:
        """Return whether a person may ask for a kind, who is in these user groups of the lists."""
        users = self.users(kind)
        return not users or user in users | self.admins or bool(users & groups)

    def allows_channel(self, channel: str) -> bool:
        """Return whether a conversation may be posted in."""
        return not self.channels or channel in self.channels or not channel.startswith(("C", "G"))


class NotAllowed(Exception):
    """A request is not within a bound, and nothing was stored.

    Attributes:
        bound: which one.
        limits: those that are in force.
    """

    def __init__(self, bound: Bound, limits: Limits) -> None:
        super().__init__(f"not within the bound {bound.value}")
        self.bound = bound
        self.limits = limits


def not_allowed(
    limits: Limits, request: Request, groups: frozenset[str] = frozenset()
) -> NotAllowed | None:
    """Return which bound a request is not within, if there is one."""
    if not limits.allows_person(request.kind, request.user, groups):
        return NotAllowed(Bound.PERSON, limits)
    if not limits.allows_channel(request.channel):
        return NotAllowed(Bound.CHANNEL, limits)
    if len(request.params.get("script", "")) > limits.max_script:
        return NotAllowed(Bound.SCRIPT, limits)
    return None


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

    Two that count at once would both find room for the last one. It is the first lock of a work,
    which runs with ``serial``.
    """
    tx.once(_LOCK, lambda: tx.one(_LOCK))


def reached_limit(
    tx: Transaction, limits: Limits, user: str, now: datetime, *, opens: bool
) -> LimitReached | None:
    """Return the limit that leaves no room for one more create call of a user, if one does.

    To be called in the transaction that queues the job, after ``lock_limits``. Where it returns
    None, the job counts as queued. ``opens`` says whether that makes one more open job.
    """
    since = to_ms(now - DAY)
    used = tx.one(
        _USED,
        user=user,
        since=since,
        open_per_user=limits.open_per_user,
        per_user_per_day=limits.per_user_per_day,
    )
    assert used is not None  # noqa: S101 - it has no condition
    if opens and used["open_of_user"] >= limits.open_per_user:
        return LimitReached(Limit.OPEN_PER_USER, limits.open_per_user)
    free = limits.per_user_per_day - used["queued_of_user"]
    if used["charged_to_user"] >= free:
        charged = free > 0 and tx.one(_CHARGED_TO_USER_AT, user=user, since=since, later=free - 1)
        return LimitReached(Limit.PER_USER_PER_DAY, limits.per_user_per_day, _free_at(charged, now))
    by_all = _count_all(tx, limits, now)
    free = limits.per_day - by_all.queued
    if by_all.charged >= free:
        charged = free > 0 and tx.one(_CHARGED_AT, since=since, later=free - 1)
        return LimitReached(Limit.PER_DAY, limits.per_day, _free_at(charged, now))
    # Fewer wait than a day allows, so those that wait were counted to the last one.
    of_user = _used_in_month(tx, limits, user, now)
    per_user = limits.per_user_per_month
    if per_user is not None and of_user + used["queued_of_user"] >= per_user:
        return LimitReached(Limit.PER_USER_PER_MONTH, per_user, _next_month(now))
    if limits.per_month is not None and by_all.charged_in_month + by_all.queued >= limits.per_month:
        return LimitReached(Limit.PER_MONTH, limits.per_month, _next_month(now))
    by_all.queued += 1
    return None


@dataclass(frozen=True, slots=True)
class Left:
    """How many more requests a limit leaves room for."""

    limit: Limit
    number: int
    maximum: int


def requests_left(tx: Transaction, limits: Limits, user: str, now: datetime) -> list[Left]:
    """Return what each limit of a day or month leaves to a user.

    A form waits for it: limits of more than 5,000 are left out, for which too much is counted.
    """
    limits = replace(
        limits,
        per_user_per_day=min(limits.per_user_per_day, _MOST_SHOWN),
        per_day=min(limits.per_day, _MOST_SHOWN),
        per_user_per_month=_shown(limits.per_user_per_month),
        per_month=_shown(limits.per_month),
    )
    used = tx.one(
        _USED,
        user=user,
        since=to_ms(now - DAY),
        open_per_user=0,
        per_user_per_day=limits.per_user_per_day,
    )
    assert used is not None  # noqa: S101 - it has no condition
    of_user, by_all = _used_in_month(tx, limits, user, now), _UsedByAll(0, 0, 0)
    if limits.per_day < _MOST_SHOWN or limits.per_month is not None:
        by_all = _count_all(tx, limits, now)
    waiting_of_user, waiting = used["queued_of_user"], by_all.queued
    found = (
        (Limit.PER_USER_PER_DAY, limits.per_user_per_day, used["charged_to_user"], waiting_of_user),
        (Limit.PER_DAY, limits.per_day, by_all.charged, waiting),
        (Limit.PER_USER_PER_MONTH, limits.per_user_per_month, of_user, waiting_of_user),
        (Limit.PER_MONTH, limits.per_month, by_all.charged_in_month, waiting),
    )
    return [
        Left(limit, max(0, maximum - charged - queued), maximum)
        for limit, maximum, charged, queued in found
        if maximum is not None and maximum < _MOST_SHOWN
    ]


def _shown(maximum: int | None) -> int | None:
    return maximum if maximum is not None and maximum < _MOST_SHOWN else None


@dataclass(slots=True)
class _UsedByAll:
    """What counts for everybody together; each number stops at its limit."""

    queued: int
    charged: int
    charged_in_month: int


def _count_all(tx: Transaction, limits: Limits, now: datetime) -> _UsedByAll:
    """Return what counts for everybody, counted once for works that are committed together.

    Measured on PostgreSQL: else each form costs 0.35 ms for each 1,000 that wait.
    """

    def count() -> _UsedByAll:
        used = tx.one(_USED_BY_ALL, since=to_ms(now - DAY), most=limits.per_day)
        assert used is not None  # noqa: S101 - it has no condition
        in_month = limits.per_month is not None and tx.one(
            _USED_BY_ALL_IN_MONTH, since=to_ms(month_of(now)), most=limits.per_month
        )
        charged_in_month = in_month["charged"] if in_month else 0
        return _UsedByAll(used["queued"], used["charged"], charged_in_month)

    return tx.once((_USED_BY_ALL, limits.per_day, limits.per_month), count)


def _used_in_month(tx: Transaction, limits: Limits, user: str, now: datetime) -> int:
    """Return how many create calls of a user count for this month; 0 without a limit."""
    per_user = limits.per_user_per_month
    if per_user is None:
        return 0
    used = tx.one(_USED_IN_MONTH, user=user, since=to_ms(month_of(now)), per_user=per_user)
    assert used is not None  # noqa: S101 - it has no condition
    return int(used["charged_to_user"])


def month_of(moment: datetime) -> datetime:
    """Return when the calendar month of a moment began, in UTC."""
    utc = moment.astimezone(UTC)
    return utc.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def _next_month(now: datetime) -> datetime:
    return month_of(month_of(now) + timedelta(days=31))


def used_by_all(tx: Transaction, now: datetime) -> int:
    """Return how many create calls count now towards the limit for everybody together."""
    used = tx.one(_USED_BY_ALL, since=to_ms(now - DAY), most=_MOST_COUNTED)
    assert used is not None  # noqa: S101 - it has no condition
    return int(used["queued"]) + int(used["charged"])


def _free_at(charged: Row | Literal[False] | None, now: datetime) -> datetime:
    """Return when a create call counts no more; without one, when those of queued jobs may."""
    return DAY + (from_ms(charged["made_at"]) if charged else now)
