"""Limits on what people may ask for, what admins changed of them, and what was spent.

A create call counts for 24 hours, and for its calendar month, if it may have cost money: it made
something, got no usable answer, or is under way. A job that is queued, or waits for approval,
counts as the call that it will be, so that no more jobs wait than may be made. Months are those of
UTC. Before the attempts of a deleted job go, they are added to the table of spending.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from bot import setting_values
from bot.model import Request
from bot.store.audit import AuditAction, list_limit_changes, record
from bot.store.database import (
    Database,
    Query,
    Row,
    RowUnreadable,
    Topic,
    Transaction,
    from_ms,
    to_ms,
)
from bot.store.unreadable import UnreadableRows, number, read_each, reading, text

# The states in which a job counts as the create call that it will be, and as open. One list: of two
# with an OR between them, SQLite takes the index of all jobs of the person.
_TO_BE_CREATED: Final = "('queued', 'waiting_for_approval')"
_OPEN: Final = "('queued', 'waiting_for_approval', 'creating', 'unconfirmed', 'running')"
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
                AND state IN {_OPEN} LIMIT :open_per_user
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
    [used] = tx.all(
        _USED,
        user=user,
        since=since,
        open_per_user=limits.open_per_user,
        per_user_per_day=limits.per_user_per_day,
    )
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
    [used] = tx.all(
        _USED,
        user=user,
        since=to_ms(now - DAY),
        open_per_user=0,
        per_user_per_day=limits.per_user_per_day,
    )
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
        [used] = tx.all(_USED_BY_ALL, since=to_ms(now - DAY), most=limits.per_day)
        in_month = limits.per_month is not None and tx.one(
            _USED_BY_ALL_IN_MONTH, since=to_ms(month_start(now)), most=limits.per_month
        )
        charged_in_month = in_month["charged"] if in_month else 0
        return _UsedByAll(used["queued"], used["charged"], charged_in_month)

    return tx.once((_USED_BY_ALL, limits.per_day, limits.per_month), count)


def _used_in_month(tx: Transaction, limits: Limits, user: str, now: datetime) -> int:
    """Return how many create calls of a user count for this month; 0 without a limit."""
    per_user = limits.per_user_per_month
    if per_user is None:
        return 0
    [used] = tx.all(_USED_IN_MONTH, user=user, since=to_ms(month_start(now)), per_user=per_user)
    return int(used["charged_to_user"])


def month_start(moment: datetime) -> datetime:
    """Return when the calendar month of a moment began, in UTC."""
    utc = moment.astimezone(UTC)
    return utc.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def _next_month(now: datetime) -> datetime:
    return month_start(month_start(now) + timedelta(days=31))


def used_by_all(tx: Transaction, now: datetime) -> int:
    """Return how many create calls count now towards the limit for everybody together."""
    [used] = tx.all(_USED_BY_ALL, since=to_ms(now - DAY), most=_MOST_COUNTED)
    return int(used["queued"]) + int(used["charged"])


def _free_at(charged: Row | Literal[False] | None, now: datetime) -> datetime:
    """Return when a create call counts no more; without one, when those of queued jobs may."""
    return DAY + (from_ms(charged["made_at"]) if charged else now)


_EACH: Final = Query(
    "SELECT name, value, changed_by, changed_at FROM limit_changes ORDER BY changed_at, name"
)
_SET: Final = Query(
    """
    INSERT INTO limit_changes (name, value, changed_by, changed_at)
    VALUES (:name, :value, :user, :now)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value, changed_by = excluded.changed_by,
                                     changed_at = excluded.changed_at
    """
)
_FINGERPRINT: Final = 12  # characters
_TO: Final = " -> "
"""Between the value before and the one after it, in the audit."""
_REMOVE: Final = Query("DELETE FROM limit_changes WHERE name = :name")


def _any_or(ids: Callable[[str], frozenset[str]]) -> Callable[[str], frozenset[str]]:
    """Return a validator for ids, which takes an empty text for everybody or everywhere."""
    return lambda text: ids(text) if text.strip(", \t\n") else frozenset()


class _Changeable(NamedTuple):
    field: str
    """Of ``Limits``."""
    read: Callable[[str], Any]
    """Returns the value of a text, or raises ValueError, as in ``bot.setting_values``."""


_CHANGEABLE: Final[Mapping[str, _Changeable]] = MappingProxyType(
    {
        "MAX_OPEN_PER_USER": _Changeable("open_per_user", setting_values.requests),
        "MAX_PER_USER_PER_DAY": _Changeable("per_user_per_day", setting_values.requests),
        "MAX_PER_DAY": _Changeable("per_day", setting_values.requests),
        "MAX_PER_USER_PER_MONTH": _Changeable("per_user_per_month", setting_values.requests),
        "MAX_PER_MONTH": _Changeable("per_month", setting_values.requests),
        "MAX_SCRIPT": _Changeable("max_script", setting_values.script_length),
        "VIDEO_USERS": _Changeable("video_users", _any_or(setting_values.users_and_groups)),
        "TRAINING_USERS": _Changeable("training_users", _any_or(setting_values.users_and_groups)),
        "ALLOWED_CHANNELS": _Changeable("channels", _any_or(setting_values.channels)),
    }
)
CHANGEABLE: Final = tuple(_CHANGEABLE)
"""The names of the settings that admins may change."""


class InvalidLimits(Exception):
    """A value is wrong, and nothing was changed.

    Attributes:
        mistakes: a sentence for each that is wrong, by the name of its setting.
    """

    def __init__(self, mistakes: Mapping[str, str]) -> None:
        super().__init__("invalid limits")
        self.mistakes = mistakes


@dataclass(frozen=True, slots=True)
class LimitChange:
    """What an admin has changed."""

    name: str
    """Of the setting."""
    value: str
    """As it would stand in the setting; "" for everybody or everywhere."""
    changed_by: str
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class LimitsInForce:
    """The limits, and what of them is not from the settings."""

    limits: Limits
    settings: Limits
    changes: Mapping[str, LimitChange]
    """By the name of the setting."""

    def values(self) -> dict[str, str]:
        """Return what is in force by the name of the setting, as it would stand there."""
        return _values(self.limits)

    def setting_values(self) -> dict[str, str]:
        """Return what the settings say, likewise."""
        return _values(self.settings)


class LimitsChanged(Exception):
    """Somebody has changed the limits since they were shown, and nothing was changed.

    Attributes:
        in_force: the limits now.
    """

    def __init__(self, in_force: LimitsInForce) -> None:
        super().__init__("the limits were changed meanwhile")
        self.in_force = in_force


def fingerprint(value: str) -> str:
    """Return what tells the value of a limit from others, and takes little room in a form."""
    return hashlib.sha256(value.encode()).hexdigest()[:_FINGERPRINT]


@dataclass(frozen=True, slots=True)
class PastChange:
    """What an admin did to a limit."""

    name: str
    """Of the setting."""
    before: str
    """What was in force, as it would stand in the setting."""
    after: str
    changed_by: str
    changed_at: datetime


def change_from(row: Row) -> LimitChange:
    """Return the change of a row.

    Raises:
        RowUnreadable: it is damaged, or a newer version allows more.
    """
    with reading("limit_changes", row, "name"):
        name, value = text(row["name"]), text(row["value"])
        if name in _CHANGEABLE:
            _CHANGEABLE[name].read(value)
        return LimitChange(name, value, text(row["changed_by"]), from_ms(row["changed_at"]))


def fetch_changes(tx: Transaction) -> tuple[dict[str, LimitChange], list[RowUnreadable]]:
    """Return the changes by the name of their setting; without those that cannot be read."""
    changes, unreadable = read_each(change_from, tx.all(_EACH))
    return {each.name: each for each in changes if each.name in _CHANGEABLE}, unreadable


def limits_in_force(tx: Transaction, settings: Limits) -> Limits:
    """Return the limits that hold now.

    In the transaction that queues a job, after ``lock_limits``: so a change holds at once for every
    copy of the bot. Works that are committed together share what was read.
    """
    return changed(settings, tx.once(_EACH, lambda: fetch_changes(tx)[0]))


def changed(settings: Limits, changes: Mapping[str, LimitChange]) -> Limits:
    """Return the limits of the settings with what was changed of them."""
    if not changes:
        return settings
    fields = {_CHANGEABLE[name].field: _read(each) for name, each in changes.items()}
    return replace(settings, **fields)


def _read(change: LimitChange) -> Any:  # noqa: ANN401 - a number or ids
    return _CHANGEABLE[change.name].read(change.value)


def written(value: int | frozenset[str] | None) -> str:
    """Return a value as it would stand in its setting; "" for none."""
    if isinstance(value, frozenset):
        return ",".join(sorted(value))
    return "" if value is None else str(value)


def _past_from(row: Row) -> PastChange:
    with reading("audit", row):
        name, _, values = text(row["detail"]).partition(": ")
        before, _, after = values.partition(_TO)
        for value in filter(None, (before, after)):
            if name in _CHANGEABLE:
                _CHANGEABLE[name].read(value)
        return PastChange(name, before, after, text(row["user_id"]), from_ms(row["at"]))


def _values(limits: Limits) -> dict[str, str]:
    return {name: written(getattr(limits, each.field)) for name, each in _CHANGEABLE.items()}


class LimitsTable:
    """The limits that are in force.

    Args:
        database: where the changes are.
        settings: the limits of the settings.
        unreadable: logs the changes that cannot be read: there the setting counts.
    """

    def __init__(self, database: Database, settings: Limits, unreadable: UnreadableRows) -> None:
        self._database = database
        self._settings = settings
        self._unreadable = unreadable

    async def fetch(self) -> LimitsInForce:
        """Return the limits, and who has changed what of them."""
        changes, errors = await self._database.run(fetch_changes, durable=False)
        self._unreadable.report(errors)
        return self._in_force(changes)

    async def fetch_past(self, limit: int) -> Sequence[PastChange]:
        """Return the last changes, newest first, as far as they are kept."""

        def work(tx: Transaction) -> list[PastChange]:
            past, errors = read_each(_past_from, list_limit_changes(tx, limit))
            self._unreadable.report(errors)
            return [each for each in past if each.name in _CHANGEABLE]

        return await self._database.run(work, durable=False)

    async def fetch_left(self, user: str, now: datetime) -> tuple[Limits, list[Left]]:
        """Return the limits, and what those of a day or month leave to a user."""

        def work(tx: Transaction) -> tuple[Limits, list[Left]]:
            limits = limits_in_force(tx, self._settings)
            return limits, requests_left(tx, limits, user, now)

        return await self._database.run(work, durable=False)

    async def change(
        self,
        changes: Mapping[str, str | None],
        user: str,
        now: datetime,
        *,
        shown: Mapping[str, str] | None = None,
        homes: Collection[str] = (),
    ) -> None:
        """Have an admin's values in force, for all copies of the bot at once.

        The same again changes nothing.

        Args:
            changes: values by the name of their setting, as they would stand there: "" is everybody
                or everywhere, None is back to the setting.
            user: the admin.
            now: the time.
            shown: the fingerprints of the limits that the admin saw, by the name of the setting.
            homes: the users whose Home tabs show the limits.

        Raises:
            InvalidLimits: a value is wrong, and nothing was changed.
            LimitsChanged: other limits than those ``shown`` are in force, and nothing was changed.
        """
        values = _checked(changes)

        def work(tx: Transaction) -> None:
            lock_limits(tx)  # a request counts before the change or after it
            in_force = self._in_force(fetch_changes(tx)[0])
            before, settings = in_force.values(), in_force.setting_values()
            after = {
                name: settings[name] if value is None else value for name, value in values.items()
            }
            differing = sorted(name for name in after if after[name] != before[name])
            if not differing:
                return
            if shown is not None and any(
                fingerprint(value) != shown.get(name) for name, value in before.items()
            ):
                raise LimitsChanged(in_force)
            for name in differing:
                detail = f"{name}: {before[name]}{_TO}{after[name]}"
                record(tx, AuditAction.LIMIT_CHANGED, user=user, at=to_ms(now), detail=detail)
                if (value := values[name]) is None:
                    tx.all(_REMOVE, name=name)
                else:
                    tx.all(_SET, name=name, value=value, user=user, now=to_ms(now))
            for each in homes:
                tx.notify(Topic.HOMES, each)

        await self._database.run(work, serial=True)

    def _in_force(self, changes: Mapping[str, LimitChange]) -> LimitsInForce:
        return LimitsInForce(changed(self._settings, changes), self._settings, changes)


def _checked(changes: Mapping[str, str | None]) -> dict[str, str | None]:
    values: dict[str, str | None] = {}
    mistakes = {}
    for name, given in changes.items():
        try:
            read = _CHANGEABLE[name].read
            values[name] = None if given is None else written(read(given.strip()))
        except ValueError as error:
            mistakes[name] = f"This {error}"
    if mistakes:
        raise InvalidLimits(mistakes)
    return values


# One statement sees one moment: an attempt that is added to the table meanwhile is counted once.
_OF_MONTH: Final = Query(
    """
    SELECT user_id, kind, CAST(sum(created) AS BIGINT) AS created,
        CAST(sum(spoken_ms) AS BIGINT) AS spoken_ms
    FROM (
        SELECT user_id, kind, count(*) AS created, coalesce(sum(spoken_ms), 0) AS spoken_ms
        FROM attempts
        WHERE (outcome IS NULL OR outcome IN ('created', 'uncertain'))
            AND made_at >= :since AND made_at < :until
        GROUP BY user_id, kind
        UNION ALL
        SELECT user_id, kind, created, spoken_ms FROM spending WHERE month = :month
    ) AS found
    GROUP BY user_id, kind
    """
)
_OF_JOBS: Final = Query(
    """
    SELECT id, user_id, kind, made_at, coalesce(spoken_ms, 0) AS spoken_ms FROM attempts
    WHERE (outcome IS NULL OR outcome IN ('created', 'uncertain')) AND job_id IN (EACH :ids)
    """
)
_ADD_SPENDING: Final = Query(
    """
    INSERT INTO spending (month, user_id, kind, created, spoken_ms)
    VALUES (:month, :user, :kind, :created, :spoken_ms)
    ON CONFLICT (month, user_id, kind) DO UPDATE
    SET created = spending.created + excluded.created,
        spoken_ms = spending.spoken_ms + excluded.spoken_ms
    """
)


@dataclass(frozen=True, slots=True)
class PersonSpending:
    """What a person had created in a month."""

    user: str
    created: Mapping[str, int] = field(default_factory=dict)
    """How many create calls may have cost money, by kind of job."""
    spoken: timedelta = timedelta(0)
    """About how long the scripts take to speak, by their words."""


@dataclass(frozen=True, slots=True)
class MonthSpending:
    """What everybody had created in a month."""

    since: datetime
    """The first moment of the month."""
    people: Sequence[PersonSpending] = ()
    """Those with the most create calls first."""

    @property
    def created(self) -> Mapping[str, int]:
        """How many create calls of all people may have cost money, by kind of job."""
        total: dict[str, int] = defaultdict(int)
        for person in self.people:
            for kind, count in person.created.items():
                total[kind] += count
        return total

    @property
    def spoken(self) -> timedelta:
        """About how long all scripts take to speak."""
        return sum((person.spoken for person in self.people), timedelta(0))


class Spending:
    """What people had created."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of_month(self, moment: datetime) -> MonthSpending:
        """Return what everybody had created in the month of a moment."""
        return await self._database.run(lambda tx: _of_month(tx, moment), durable=False)


def _of_month(tx: Transaction, moment: datetime) -> MonthSpending:
    since = month_start(moment)
    until = _next_month(since)
    people: dict[str, dict[str, int]] = defaultdict(dict)
    spoken: dict[str, int] = defaultdict(int)
    for row in tx.all(_OF_MONTH, since=to_ms(since), until=to_ms(until), month=_name(since)):
        people[row["user_id"]][row["kind"]] = row["created"]
        spoken[row["user_id"]] += row["spoken_ms"]
    found = [
        PersonSpending(user, created, timedelta(milliseconds=spoken[user]))
        for user, created in people.items()
    ]
    found.sort(key=lambda each: (-sum(each.created.values()), -each.spoken, each.user))
    return MonthSpending(since, found)


def keep_spending(tx: Transaction, job_ids: Sequence[str]) -> None:
    """Add the attempts of jobs to the sums, in the transaction that deletes them."""
    attempts, _ = read_each(_charged, tx.all(_OF_JOBS, ids=job_ids))
    sums: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for key, spoken_ms in attempts:
        sums[key].append(spoken_ms)
    # In order, so that no two processes wait for each other.
    for (month, user, kind), spoken in sorted(sums.items()):
        tx.all(
            _ADD_SPENDING,
            month=month,
            user=user,
            kind=kind,
            created=len(spoken),
            spoken_ms=sum(spoken),
        )


def _charged(row: Row) -> tuple[tuple[str, str, str], int]:
    with reading("attempts", row):
        month = _name(from_ms(row["made_at"]))
        return (month, text(row["user_id"]), text(row["kind"])), number(row["spoken_ms"])


def _name(moment: datetime) -> str:
    return f"{moment:%Y-%m}"
