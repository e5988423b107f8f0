"""Limits on what people may ask for, what admins changed of them, and how much was used.

A create call counts for its person and for the workspace, in the calendar day and month (UTC) in
which it was asked for, from the moment that the job is stored. It is given back in the same day and
month if certainly nothing was charged: it was refused, or never sent. *Create again* counts again.
"""

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, Final

from bot.model import Job, Request, spoken_time
from bot.setting_values import (
    LONGEST_SCRIPT,
    MOST_REQUESTS,
    channels,
    requests,
    script_length,
    users_and_groups,
)
from bot.store.database import (
    Database,
    DatabaseError,
    Query,
    Row,
    Topic,
    Transaction,
    Value,
    from_ms,
    span_ms,
    to_ms,
)
from bot.store.due import UnreadableRows, number, reading, text
from bot.store.job_rows import LAST_LIMIT_CHANGES, AuditAction, lock_alone, record

_NO_LIMIT: Final = 1_000_000_000
_EVERYBODY: Final = ""
"""Instead of a person's id, in the rows of the workspace."""
_KEPT_DAYS: Final = timedelta(days=8)
"""How long the numbers of a day are kept. A job may wait for longer: its day is gone by then."""
_READ_AGAIN: Final = timedelta(hours=1)
"""What has changed within it is read again: the clocks of two copies differ, and what could not be
stored at once bears the time at which it was to be."""

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


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit that a setting has, and that admins change in Home."""

    name: str
    """Of the setting. A field of ``Limits`` has the same in small letters."""
    words: str
    """What it is called in the middle of a sentence."""
    read: Callable[[str], Any]
    """Returns the value of a text, or raises ValueError, as in ``bot.setting_values``."""
    most: int = 0
    """The highest number; 0 for a list of ids."""
    unit: str = ""
    empty: str = "no limit"
    """What it says where there is no value."""
    period: str = ""
    """The "day" or "month" in which create calls count; "" for what is not counted so."""
    of_all: bool = False
    """Whether the calls of everybody count together."""

    @property
    def field(self) -> str:
        """The name of its field, in ``Limits`` and among the settings."""
        return self.name.lower()


def _any_or(ids: Callable[[str], frozenset[str]]) -> Callable[[str], frozenset[str]]:
    """Return a reader of ids, which takes an empty text for everybody or everywhere."""
    return lambda text: ids(text) if text.strip(", \t\n") else frozenset()


_LIMITS: Final = (
    Limit(
        "MAX_PER_USER_PER_DAY", "requests per person per day", requests, MOST_REQUESTS, period="day"
    ),
    Limit(
        "MAX_PER_USER_PER_MONTH",
        "requests per person per month",
        requests,
        MOST_REQUESTS,
        period="month",
    ),
    Limit("MAX_OPEN_PER_USER", "requests in progress per person", requests, MOST_REQUESTS),
    Limit(
        "MAX_PER_DAY",
        "requests per workspace per day",
        requests,
        MOST_REQUESTS,
        period="day",
        of_all=True,
    ),
    Limit(
        "MAX_PER_MONTH",
        "requests per workspace per month",
        requests,
        MOST_REQUESTS,
        period="month",
        of_all=True,
    ),
    Limit("MAX_SCRIPT", "the longest script", script_length, LONGEST_SCRIPT, " characters"),
    Limit("VIDEO_USERS", "who can create videos", _any_or(users_and_groups), empty="everyone"),
    Limit("TRAINING_USERS", "who can train replicas", _any_or(users_and_groups), empty="everyone"),
    Limit("ALLOWED_CHANNELS", "the channels to post in", _any_or(channels), empty="all channels"),
)
LIMITS: Final = {each.name: each for each in _LIMITS}
"""By the name of the setting, in the order in which they are shown."""
_COUNTED: Final = [each for period in ("day", "month") for each in _LIMITS if each.period == period]
"""In the order in which they refuse."""
_USED_OF: Final = [
    f"""
    coalesce((SELECT videos + trainings FROM usage
        WHERE period = :{each.period} AND who = :{"everybody" if each.of_all else "user"}), 0)
        AS {each.field},"""  # noqa: S608 - our own text
    for each in _COUNTED
]
USED_COLUMNS: Final = f"""{"".join(_USED_OF)}
    coalesce((SELECT revision FROM revisions WHERE name = 'limits'), 0) AS revision
"""  # noqa: S608 - likewise
"""Of a statement that says how much a person and all have used, by the field of each limit, and the
revision of the limits."""
USED: Final = Query(f"SELECT {USED_COLUMNS}")
OPEN_COLUMN: Final = """(SELECT count(*) FROM jobs
    WHERE ended_at IS NULL AND user_id = :user AND state IN
        ('queued', 'waiting_for_approval', 'creating', 'unconfirmed', 'running')) AS open_jobs
"""
"""Of a statement that says how many of a person's jobs have not ended and are not overdue."""
_OPEN: Final = Query(f"SELECT {OPEN_COLUMN}")


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

    max_open_per_user: int = _NO_LIMIT
    """A person's jobs that have not ended and are not overdue."""
    max_per_user_per_day: int = _NO_LIMIT
    """Create calls, like the next three."""
    max_per_day: int = _NO_LIMIT
    max_per_user_per_month: int | None = None
    """None for no limit, like the next."""
    max_per_month: int | None = None
    max_script: int = _NO_LIMIT
    """Characters."""
    video_users: frozenset[str] = frozenset()
    """The ids of people and user groups who may ask for videos; empty for everybody."""
    training_users: frozenset[str] = frozenset()
    """Likewise for trainings."""
    allowed_channels: frozenset[str] = frozenset()
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
        is_direct = not channel.startswith(("C", "G"))
        return is_direct or not self.allowed_channels or channel in self.allowed_channels

    def texts(self) -> dict[str, str]:
        """Return each by the name of its setting, as it would stand there; "" for none."""
        return {name: written(getattr(self, each.field)) for name, each in LIMITS.items()}


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


@dataclass(frozen=True, slots=True)
class Left:
    """How many more requests a limit leaves room for."""

    limit: Limit
    number: int
    maximum: int
    resets_at: datetime | None
    """When there is room again for as many as ever; None if that depends on open jobs."""


class LimitReached(Exception):
    """There is no room for another job, and nothing was stored.

    Attributes:
        left: the limit that is reached.
    """

    def __init__(self, left: Left) -> None:
        super().__init__(f"the limit {left.limit.name} is reached")
        self.left = left


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
    """Count a create call in a day and its month, after ``lock_alone(tx, "limits")``.

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
    """Undo ``count`` in the day in which it was counted, after ``lock_alone(tx, "limits")``.

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


def periods(user: str, now: datetime) -> dict[str, str]:
    """Return the parameters of ``USED``."""
    day = day_of(now)
    return {"user": user, "everybody": _EVERYBODY, "day": day, "month": month_of(day)}


def _rows(user: str, now: datetime) -> dict[str, tuple[str, str]]:
    """Return which row has what counts for a limit, by its field: its period, and whose it is."""
    keys = periods(user, now)
    return {
        each.field: (keys[each.period], _EVERYBODY if each.of_all else user) for each in _COUNTED
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
    ``lock_alone(tx, "limits")``. ``open_jobs`` is how many the user has, where the call is for one
    more.
    """
    left = [_open_left(limits, open_jobs), *requests_left(limits, used, now)]
    return next((LimitReached(each) for each in left if not each.number), None)


def _open_left(limits: Limits, open_jobs: int) -> Left:
    most = limits.max_open_per_user
    return Left(LIMITS["MAX_OPEN_PER_USER"], max(0, most - open_jobs), most, None)


def requests_left(limits: Limits, used: Row, now: datetime) -> list[Left]:
    """Return what each limit of a day or month leaves to a user; ``used`` as above."""
    resets_at = {
        "day": _day_start(now) + timedelta(days=1),
        "month": month_start(month_start(now) + timedelta(days=31)),
    }
    return [
        Left(each, max(0, maximum - used[each.field]), maximum, resets_at[each.period])
        for each in _COUNTED
        if (maximum := getattr(limits, each.field)) is not None
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


@dataclass(frozen=True, slots=True)
class LimitChange:
    """What an admin has changed."""

    name: str
    """Of the setting."""
    value: str
    """As it would stand in the setting; "" for everybody or everywhere."""
    changed_by: str
    changed_at: datetime
    before: str = ""
    """What was in force before, as far as that is asked for."""


@dataclass(frozen=True, slots=True)
class LimitsInForce:
    """The limits as they were read, and what of them is not from the settings."""

    limits: Limits
    settings: Limits
    changes: Mapping[str, LimitChange]
    """By the name of the setting."""
    revision: int = -1
    """Of what admins have changed; -1 before that was read."""


def limit_hash(value: str) -> str:
    """Return what tells the value of a limit from others, and takes little room in a form."""
    return hashlib.sha256(value.encode()).hexdigest()[:_FINGERPRINT]


def change_from(row: Row) -> LimitChange:
    """Return the change of a row.

    Raises:
        RowUnreadable: it is damaged, or a newer version allows more.
    """
    with reading("limit_changes", row, "name"):
        name, value = text(row["name"]), text(row["value"])
        if name in LIMITS:
            LIMITS[name].read(value)
        return LimitChange(name, value, text(row["changed_by"]), from_ms(row["changed_at"]))


def written(value: int | frozenset[str] | None) -> str:
    """Return a value as it would stand in its setting; "" for none."""
    if isinstance(value, frozenset):
        return ",".join(sorted(value))
    return "" if value is None else str(value)


def _past_from(row: Row) -> LimitChange:
    with reading("audit", row):
        name, _, values = text(row["detail"]).partition(": ")
        before, _, after = values.partition(_TO)
        for value in filter(None, (before, after)):
            if name in LIMITS:
                LIMITS[name].read(value)
        return LimitChange(name, after, text(row["user_id"]), from_ms(row["at"]), before)


_OF_MONTH: Final = Query(
    """
    SELECT who, videos, spoken_ms, trainings FROM usage
    WHERE period = :month AND who <> '' AND (videos > 0 OR trainings > 0)
    """
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


class LimitsTable:
    """The limits that are in force, and how much was used.

    Attributes:
        settings: the limits of the settings.
        known: the limits as this process has read them last.

    Args:
        database: where the changes are.
        settings: as above.
        unreadable: logs the rows that cannot be read.
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
        # By person, with the last request that this process has stored. Since then some have ended.
        self._open: dict[str, int] = {}
        self._read_at: datetime | None = None

    @property
    def current(self) -> Limits:
        """The limits in memory: a form shows them, and its submission is exact."""
        return self.known.limits

    def used(self, user: str, now: datetime) -> dict[str, int]:
        """Return how many requests count for each limit of a day or month, by its field.

        As far as memory knows. ``user`` is the person of those that are about one.
        """
        return {field: self._used.get(row, 0) for field, row in _rows(user, now).items()}

    def left(self, user: str, now: datetime) -> list[Left]:
        """Return what each limit of a day or month leaves to a user, as far as memory knows."""
        return requests_left(self.current, self.used(user, now), now)

    async def open_left(self, user: str) -> Left:
        """Return what the limit of requests in progress leaves to a user.

        The database is asked where memory knows of none that is left: one may have ended.
        """
        if self._open.get(user, 0) >= self.current.max_open_per_user:
            with suppress(DatabaseError):
                [row] = await self._database.run(lambda tx: tx.all(_OPEN, user=user), durable=False)
                self._open[user] = row["open_jobs"]
        return _open_left(self.current, self._open.get(user, 0))

    def refresh(self, tx: Transaction, now: datetime) -> Callable[[], None]:
        """Read the limits, and what was used since the last time; see ``Memory``."""
        self._counted = {}
        known, day = self.read(tx), day_of(now)
        since = to_ms(min(self._read_at, now) - _READ_AGAIN) if self._read_at else 0
        rows = tx.all(_USED_SINCE, day=day, month=month_of(day), since=since)
        used = self._unreadable.read_each(_used_from, rows)

        def remember() -> None:
            self.learn(known)
            kept = {key: n for key, n in self._used.items() if key[0] in {day, month_of(day)}}
            self._used = kept | dict(used) | self._counted
            self._read_at = now

        return remember

    def learn_count(self, user: str, now: datetime, before: Row) -> None:
        """Keep in memory that a job was stored; ``before`` has what was used and open before it."""
        self._open[user] = before["open_jobs"] + 1
        self._counted |= {row: before[field] + 1 for field, row in _rows(user, now).items()}
        self._used |= self._counted

    async def fetch(self) -> LimitsInForce:
        """Return the limits as they are stored now."""
        self.learn(await self._database.run(self.read, durable=False))
        return self.known

    def read(self, tx: Transaction) -> LimitsInForce:
        """Return the limits of a transaction.

        In one that counts, ``lock_alone(tx, "limits")`` comes first. So a change holds at
        once for every copy of the bot.
        """
        [row] = tx.all(_REVISION)
        revision = row["revision"]
        # Works that are committed together share it, unless one of them changes the limits.
        changes = tx.once((_EACH, revision), lambda: self._changes(tx))
        # One that is damaged is no revision: then each request reads the limits.
        revision = revision if isinstance(revision, int) else -1
        values = {
            LIMITS[name].field: LIMITS[name].read(each.value) for name, each in changes.items()
        }
        limits = replace(self.settings, **values)
        return LimitsInForce(limits, self.settings, changes, revision)

    def _changes(self, tx: Transaction) -> dict[str, LimitChange]:
        """Return the changes by the name of their setting, which counts where one is damaged."""
        changes = self._unreadable.read_each(change_from, tx.all(_EACH))
        return {each.name: each for each in changes if each.name in LIMITS}

    def learn(self, known: LimitsInForce) -> None:
        """Keep limits in memory whose transaction is committed, unless later ones are there."""
        if known.revision >= self.known.revision:
            self.known = known

    async def fetch_past(self, limit: int) -> Sequence[LimitChange]:
        """Return the last changes, newest first, as far as they are kept."""
        past = await self._database.run(
            lambda tx: self._unreadable.read_each(
                _past_from, tx.all(LAST_LIMIT_CHANGES, limit=limit)
            ),
            durable=False,
        )
        return [each for each in past if each.name in LIMITS]

    def mistakes(self, changes: Mapping[str, str]) -> dict[str, str]:
        """Return a sentence for each value that ``change`` does not take, by its setting."""
        settings, found = self.settings.texts(), {}
        for name, value in changes.items():
            try:
                _checked(name, value, settings)
            except ValueError as error:
                found[name] = f"This {error}"
        return found

    async def change(
        self,
        changes: Mapping[str, str],
        user: str,
        now: datetime,
        *,
        shown: Mapping[str, str] | None = None,
        homes: Collection[str] = (),
    ) -> bool:
        """Have an admin's values in force, for all copies of the bot at once.

        The same again changes nothing.

        Args:
            changes: values by the name of their setting, as they would stand there: "" is everybody
                or everywhere. One that is that of the setting is no change any more.
            user: the admin.
            now: the time.
            shown: the fingerprints of the limits that the admin saw, by the name of the setting.
            homes: the users whose Home tabs show the limits.

        Returns:
            Whether they are in force: False if other limits than those ``shown`` are, and nothing
            was changed. ``known`` has them.

        Raises:
            ValueError: a value is wrong, and nothing was changed.
        """
        settings = self.settings.texts()
        after = {name: _checked(name, value, settings) for name, value in changes.items()}

        def work(tx: Transaction) -> tuple[LimitsInForce, bool]:
            lock_alone(tx, "limits")  # a request counts before the change or after it
            in_force = self.read(tx)
            before = in_force.limits.texts()
            differing = sorted(name for name in after if after[name] != before[name])
            if not differing:
                return in_force, True
            if shown is not None and any(
                limit_hash(value) != shown.get(name) for name, value in before.items()
            ):
                return in_force, False
            for name in differing:
                detail = f"{name}: {before[name]}{_TO}{after[name]}"
                record(tx, AuditAction.LIMIT_CHANGED, user=user, at=to_ms(now), detail=detail)
                if after[name] == settings[name]:
                    tx.all(_REMOVE, name=name)
                else:
                    tx.all(_SET, name=name, value=after[name], user=user, now=to_ms(now))
            tx.all(_NEXT_REVISION)
            for each in homes:
                tx.notify(Topic.HOMES, each)
            tx.notify(Topic.MEMORY)
            return self.read(tx), True

        in_force, is_done = await self._database.run(work, serial=True)
        self.learn(in_force)
        return is_done

    async def fetch_spending(self, moment: datetime) -> MonthSpending:
        """Return what everybody asked for in the month of a moment."""
        month = month_of(day_of(moment))
        found = await self._database.run(
            lambda tx: self._unreadable.read_each(spending_from, tx.all(_OF_MONTH, month=month)),
            durable=False,
        )
        found.sort(key=lambda each: (-each.videos - each.trainings, -each.spoken, each.user))
        return MonthSpending(month_start(moment), found)

    async def forget_days(self, now: datetime) -> None:
        """Delete the numbers of days that are long over."""

        def work(tx: Transaction) -> None:
            lock_alone(tx, "limits")
            tx.all(_FORGET_DAYS, before=day_of(now - _KEPT_DAYS))

        await self._database.run(work, serial=True)


def _checked(name: str, value: str, settings: Mapping[str, str]) -> str:
    """Return a value as it would stand in the setting, whose own may be "" for no limit.

    Raises:
        ValueError: it is wrong.
    """
    return value if value == settings[name] else written(LIMITS[name].read(value))
