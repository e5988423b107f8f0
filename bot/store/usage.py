"""Limits on what people may ask for, what admins changed of them, and how much was used.

A create call counts for its person and for the workspace, in the calendar day and month (UTC) in
which it was asked for, from the moment that the job is stored. It is given back in the same day and
month if certainly nothing was charged: it was refused, or never sent. *Create again* counts again.
"""

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from bot import setting_values
from bot.model import Job, Request, spoken_time
from bot.store.audit import LAST_LIMIT_CHANGES, AuditAction, record
from bot.store.database import (
    Database,
    Query,
    Row,
    RowUnreadable,
    Topic,
    Transaction,
    Value,
    from_ms,
    span_ms,
    to_ms,
)
from bot.store.due import UnreadableRows, number, read_each, reading, text

_NO_LIMIT: Final = 1_000_000_000
_KEPT_DAYS: Final = timedelta(days=8)
"""How long the numbers of a day are kept. A job may wait for longer: its day is gone by then."""
_READ_AGAIN: Final = timedelta(hours=1)
"""What has changed within it is read again: the clocks of two copies differ, and what could not be
stored at once bears the time at which it was to be."""

USED_COLUMNS: Final = """
    coalesce((SELECT videos + trainings FROM usage WHERE period = :day AND who = :user), 0)
        AS day_of_user,
    coalesce((SELECT videos + trainings FROM usage WHERE period = :day AND who = ''), 0)
        AS day_of_all,
    coalesce((SELECT videos + trainings FROM usage WHERE period = :month AND who = :user), 0)
        AS month_of_user,
    coalesce((SELECT videos + trainings FROM usage WHERE period = :month AND who = ''), 0)
        AS month_of_all,
    coalesce((SELECT revision FROM revisions WHERE name = 'limits'), 0) AS revision
"""
"""Of a statement that says how much a person and all have used, and the revision of the limits."""
_USED: Final = Query(f"SELECT {USED_COLUMNS}")
# In this order, the workspace last, so that no two processes wait for each other.
_COUNT: Final = Query(
    """
    INSERT INTO usage (who, period, videos, spoken_ms, trainings, changed_at)
    VALUES (:user, :day, :videos, :spoken_ms, :trainings, :now),
        (:user, :month, :videos, :spoken_ms, :trainings, :now),
        ('', :day, :videos, :spoken_ms, :trainings, :now),
        ('', :month, :videos, :spoken_ms, :trainings, :now)
    ON CONFLICT (period, who) DO UPDATE SET videos = usage.videos + excluded.videos,
        spoken_ms = usage.spoken_ms + excluded.spoken_ms,
        trainings = usage.trainings + excluded.trainings, changed_at = excluded.changed_at
    """
)
# The spoken time of what waited when there was no such table is not in it.
_GIVE_BACK: Final = Query(
    """
    UPDATE usage SET videos = videos - :videos, trainings = trainings - :trainings,
        spoken_ms = CASE WHEN spoken_ms < :spoken_ms THEN 0 ELSE spoken_ms - :spoken_ms END,
        changed_at = :now
    WHERE period IN (:day, :month) AND who IN (:user, '')
    """
)
_USED_SINCE: Final = Query(
    """
    SELECT period, who, videos, trainings FROM usage
    WHERE period IN (:day, :month) AND changed_at >= :since
    """
)
_FORGET_DAYS: Final = Query("DELETE FROM usage WHERE period < :before AND length(period) > 7")


class Limit(Enum):
    """What is limited."""

    OPEN_PER_USER = "open_per_user"
    """A person's jobs that have not ended and are not overdue."""
    PER_USER_PER_DAY = "per_user_per_day"
    """The create calls of a person's jobs in a calendar day."""
    PER_DAY = "per_day"
    """All create calls in a calendar day."""
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
    REPLICA = "removed"
    """The replicas that are not removed."""


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
        resets_at: when there is room again; None if that depends on open jobs.
    """

    def __init__(self, limit: Limit, maximum: int, resets_at: datetime | None = None) -> None:
        super().__init__(f"the limit {limit.value} is reached")
        self.limit = limit
        self.maximum = maximum
        self.resets_at = resets_at


_LOCK: Final = Query("SELECT name FROM locks WHERE name = 'limits' FOR UPDATE")


def lock_limits(tx: Transaction) -> None:
    """Let no other process count what is used until the transaction ends.

    Two at once would both find room for the last one. It is the first lock of each work that counts
    or gives back, which runs with ``serial``.
    """
    tx.once(_LOCK, lambda: tx.lock(_LOCK))


# ── Counting ──────────────────────────────────────────────────────────────────────────────────


def day_of(moment: datetime) -> str:
    """Return the calendar day of a moment in UTC, such as "2026-11-24"."""
    return f"{moment.astimezone(UTC):%Y-%m-%d}"


def month_of(day: str) -> str:
    """Return the month of a day, such as "2026-11"."""
    return day[:7]


def month_start(moment: datetime) -> datetime:
    """Return when the calendar month of a moment began, in UTC."""
    return _day_start(moment).replace(day=1)


def _day_start(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def count(
    tx: Transaction, asked: Request | Job, trainings: Collection[str], day: str, now: int
) -> None:
    """Count a create call in a day and its month, after ``lock_limits``.

    Args:
        tx: the transaction, in which it is stored that the call is wanted.
        asked: what it is for.
        trainings: the kinds of jobs that are trainings.
        day: as ``day_of`` returns it.
        now: the time, in milliseconds since 1970.
    """
    tx.all(_COUNT, now=now, **_counted(asked, trainings, day))


def give_back(
    tx: Transaction, job: Job, trainings: Collection[str], day: str | None, now: int
) -> None:
    """Undo ``count`` in the day in which it was counted, after ``lock_limits``.

    In the transaction in which it is stored that nothing was charged. None is a job that an older
    version stored, which did not count.
    """
    if day is not None:
        tx.all(_GIVE_BACK, now=now, **_counted(job, trainings, day))
        tx.notify(Topic.MEMORY)  # it may be the last one, without which no form opens


def _counted(asked: Request | Job, trainings: Collection[str], day: str) -> dict[str, Value]:
    script = asked.params.get("script")
    return {
        "user": asked.user,
        "day": day,
        "month": month_of(day),
        "videos": int(asked.kind not in trainings),
        "trainings": int(asked.kind in trainings),
        "spoken_ms": 0 if script is None else span_ms(spoken_time(script)),
    }


def periods(user: str, now: datetime) -> dict[str, Value]:
    """Return the parameters of ``USED_COLUMNS``."""
    day = day_of(now)
    return {"user": user, "day": day, "month": month_of(day)}


def fetch_used(tx: Transaction, user: str, now: datetime) -> Row:
    """Return the ``USED_COLUMNS`` of a user."""
    [used] = tx.all(_USED, **periods(user, now))
    return used


def _keys(user: str, now: datetime) -> Mapping[str, tuple[str, str]]:
    """Return which row has which of the ``USED_COLUMNS``: its period, and whose it is."""
    day = day_of(now)
    return {
        "day_of_user": (day, user),
        "day_of_all": (day, ""),
        "month_of_user": (month_of(day), user),
        "month_of_all": (month_of(day), ""),
    }


def _used_from(row: Row) -> tuple[tuple[str, str], int]:
    with reading("usage", row, "who"):
        key = text(row["period"]), text(row["who"])
        return key, number(row["videos"]) + number(row["trainings"])


def reached_limit(
    limits: Limits, used: Row, now: datetime, *, open_jobs: int = 0
) -> LimitReached | None:
    """Return the limit that leaves no room for one more create call of a user, if one does.

    ``used`` has the ``USED_COLUMNS``, read in the transaction that counts the call, after
    ``lock_limits``. ``open_jobs`` is how many the user has, where the call is for one more.
    """
    if open_jobs >= limits.open_per_user:
        return LimitReached(Limit.OPEN_PER_USER, limits.open_per_user)
    reached = [each for each in requests_left(limits, used, now) if not each.number]
    return (
        LimitReached(reached[0].limit, reached[0].maximum, reached[0].resets_at)
        if reached
        else None
    )


@dataclass(frozen=True, slots=True)
class Left:
    """How many more requests a limit leaves room for."""

    limit: Limit
    number: int
    maximum: int
    resets_at: datetime


def requests_left(limits: Limits, used: Row, now: datetime) -> list[Left]:
    """Return what each limit of a day or month leaves to a user; ``used`` as above."""
    tomorrow = _day_start(now) + timedelta(days=1)
    next_month = month_start(month_start(now) + timedelta(days=31))
    compared = (
        (Limit.PER_USER_PER_DAY, limits.per_user_per_day, used["day_of_user"], tomorrow),
        (Limit.PER_DAY, limits.per_day, used["day_of_all"], tomorrow),
        (Limit.PER_USER_PER_MONTH, limits.per_user_per_month, used["month_of_user"], next_month),
        (Limit.PER_MONTH, limits.per_month, used["month_of_all"], next_month),
    )
    return [
        Left(limit, max(0, maximum - so_far), maximum, resets_at)
        for limit, maximum, so_far, resets_at in compared
        if maximum is not None
    ]


# ── What admins change ────────────────────────────────────────────────────────────────────────

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
_REVISION: Final = Query(
    "SELECT coalesce((SELECT revision FROM revisions WHERE name = 'limits'), 0) AS revision"
)
_NEXT_REVISION: Final = Query(
    """
    INSERT INTO revisions (name, revision) VALUES ('limits', 1)
    ON CONFLICT (name) DO UPDATE SET revision = revisions.revision + 1
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
    """The limits as they were read, and what of them is not from the settings."""

    limits: Limits
    settings: Limits
    changes: Mapping[str, LimitChange]
    """By the name of the setting."""
    revision: int = -1
    """Of what admins have changed; -1 before that was read."""
    unreadable: Sequence[RowUnreadable] = ()
    """Changes that cannot be read: there the setting counts."""
    since: int = -1
    """The revision that memory had when they were read."""

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


def limit_hash(value: str) -> str:
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


def changed(settings: Limits, changes: Mapping[str, LimitChange]) -> Limits:
    """Return the limits of the settings with what was changed of them."""
    known = {name: _CHANGEABLE[name] for name in changes}
    fields = {each.field: each.read(changes[name].value) for name, each in known.items()}
    return replace(settings, **fields)


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

    Attributes:
        settings: the limits of the settings.
        known: the limits as this process has read them last.

    Args:
        database: where the changes are.
        settings: as above.
        unreadable: logs the changes that cannot be read.
    """

    def __init__(self, database: Database, settings: Limits, unreadable: UnreadableRows) -> None:
        self._database = database
        self.settings = settings
        self._unreadable = unreadable
        self.known = LimitsInForce(settings, settings, {})
        # By period and person, of the day and the month that were read last.
        self._used: dict[tuple[str, str], int] = {}
        # Of these, what this process has counted since they began to be read.
        self._counted: dict[tuple[str, str], int] = {}
        self._read_at: datetime | None = None

    @property
    def current(self) -> Limits:
        """The limits in memory: a form shows them, and its submission is exact."""
        return self.known.limits

    def left(self, user: str, now: datetime) -> list[Left]:
        """Return what each limit of a day or month leaves to a user, as far as memory knows."""
        used = {name: self._used.get(key, 0) for name, key in _keys(user, now).items()}
        return requests_left(self.current, used, now)

    def used_in_month(self, now: datetime) -> int:
        """Return how many requests of everybody count for the month, as far as memory knows."""
        return self._used.get((month_of(day_of(now)), ""), 0)

    def refresh(self, tx: Transaction, now: datetime) -> Callable[[], None]:
        """Read the limits, and what was used since the last time; see ``Memory``."""
        self._counted = {}
        known, day = self.read(tx), day_of(now)
        since = to_ms(min(self._read_at, now) - _READ_AGAIN) if self._read_at else 0
        rows = tx.all(_USED_SINCE, day=day, month=month_of(day), since=since)
        used, unreadable = read_each(_used_from, rows)

        def remember() -> None:
            self.learn(known)
            self._unreadable.report(unreadable)
            kept = {key: n for key, n in self._used.items() if key[0] in {day, month_of(day)}}
            self._used = kept | dict(used) | self._counted
            self._read_at = now

        return remember

    def learn_count(self, user: str, now: datetime, before: Row) -> None:
        """Keep in memory that a call was counted; ``before`` has the ``USED_COLUMNS`` before it."""
        self._counted |= {key: before[name] + 1 for name, key in _keys(user, now).items()}
        self._used |= self._counted

    async def fetch(self) -> LimitsInForce:
        """Return the limits as they are stored now."""
        self.learn(await self._database.run(self.read, durable=False))
        return self.known

    def read(self, tx: Transaction) -> LimitsInForce:
        """Return the limits of a transaction; in one that counts, after ``lock_limits``.

        So a change holds at once for every copy of the bot.
        """
        [row] = tx.all(_REVISION)
        revision = row["revision"]
        # Works that are committed together share it, unless one of them changes the limits.
        changes, unreadable = tx.once((_EACH, revision), lambda: fetch_changes(tx))
        # One that is damaged is no revision: then each request reads the limits.
        revision = revision if isinstance(revision, int) else -1
        limits = changed(self.settings, changes)
        since = self.known.revision
        return LimitsInForce(limits, self.settings, changes, revision, unreadable, since)

    def learn(self, known: LimitsInForce) -> None:
        """Keep limits in memory whose transaction is committed, unless later ones are there."""
        self._unreadable.report(known.unreadable)
        if known.since == self.known.revision or known.revision >= self.known.revision:
            self.known = known

    async def fetch_past(self, limit: int) -> Sequence[PastChange]:
        """Return the last changes, newest first, as far as they are kept."""

        def work(tx: Transaction) -> list[PastChange]:
            past, errors = read_each(_past_from, tx.all(LAST_LIMIT_CHANGES, limit=limit))
            self._unreadable.report(errors)
            return [each for each in past if each.name in _CHANGEABLE]

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

        def work(tx: Transaction) -> LimitsInForce:
            lock_limits(tx)  # a request counts before the change or after it
            in_force = self.read(tx)
            before, settings = in_force.values(), in_force.setting_values()
            after = {
                name: settings[name] if value is None else value for name, value in values.items()
            }
            differing = sorted(name for name in after if after[name] != before[name])
            if not differing:
                return in_force
            if shown is not None and any(
                limit_hash(value) != shown.get(name) for name, value in before.items()
            ):
                raise LimitsChanged(in_force)
            for name in differing:
                detail = f"{name}: {before[name]}{_TO}{after[name]}"
                record(tx, AuditAction.LIMIT_CHANGED, user=user, at=to_ms(now), detail=detail)
                if (value := values[name]) is None:
                    tx.all(_REMOVE, name=name)
                else:
                    tx.all(_SET, name=name, value=value, user=user, now=to_ms(now))
            tx.all(_NEXT_REVISION)
            for each in homes:
                tx.notify(Topic.HOMES, each)
            tx.notify(Topic.MEMORY)
            return self.read(tx)

        self.learn(await self._database.run(work, serial=True))


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


_OF_MONTH: Final = Query(
    """
    SELECT who, videos, spoken_ms, trainings FROM usage
    WHERE period = :month AND who <> '' AND (videos > 0 OR trainings > 0)
    """
)
_OF_DAY: Final = Query(
    "SELECT videos + trainings AS used FROM usage WHERE period = :day AND who = ''"
)


@dataclass(frozen=True, slots=True)
class PersonSpending:
    """What a person asked for in a month, but for what was certainly not charged."""

    user: str
    videos: int
    trainings: int
    spoken: timedelta = timedelta(0)
    """About how long the scripts take to speak, by their words."""


@dataclass(frozen=True, slots=True)
class MonthSpending:
    """What everybody asked for in a month, likewise."""

    since: datetime
    """The first moment of the month."""
    people: Sequence[PersonSpending] = ()
    """Those with the most requests first."""

    @property
    def total(self) -> PersonSpending:
        """What all of them asked for."""
        return PersonSpending(
            "",
            sum(each.videos for each in self.people),
            sum(each.trainings for each in self.people),
            sum((each.spoken for each in self.people), timedelta(0)),
        )


class Spending:
    """How much people asked for."""

    def __init__(self, database: Database, unreadable: UnreadableRows) -> None:
        self._database = database
        self._unreadable = unreadable

    async def of_month(self, moment: datetime) -> MonthSpending:
        """Return what everybody asked for in the month of a moment."""
        month = month_of(day_of(moment))
        found, errors = await self._database.run(
            lambda tx: read_each(spending_from, tx.all(_OF_MONTH, month=month)), durable=False
        )
        self._unreadable.report(errors)
        found.sort(key=lambda each: (-each.videos - each.trainings, -each.spoken, each.user))
        return MonthSpending(month_start(moment), found)

    async def count_today(self, now: datetime) -> int:
        """Return how many requests of everybody count for the day."""
        row = await self._database.run(lambda tx: tx.one(_OF_DAY, day=day_of(now)), durable=False)
        return 0 if row is None else int(row["used"])

    async def forget_days(self, now: datetime) -> None:
        """Delete the numbers of days that are long over."""

        def work(tx: Transaction) -> None:
            lock_limits(tx)
            tx.all(_FORGET_DAYS, before=day_of(now - _KEPT_DAYS))

        await self._database.run(work, serial=True)


def spending_from(row: Row) -> PersonSpending:
    """Return what a row of the table of usage says.

    Raises:
        RowUnreadable: its content is damaged.
    """
    with reading("usage", row, "who"):
        return PersonSpending(
            text(row["who"]),
            number(row["videos"]),
            number(row["trainings"]),
            timedelta(milliseconds=number(row["spoken_ms"])),
        )
