"""What admins have changed of the limits: their value is in force, or else that of the setting."""

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from bot import setting_values
from bot.store.audit import AuditAction, list_limit_changes, record
from bot.store.database import Database, Row, RowUnreadable, Transaction, from_ms, to_ms
from bot.store.homes import change_homes
from bot.store.limits import Left, Limits, lock_limits, requests_left
from bot.store.sql import Query
from bot.store.unreadable import UnreadableRows, read_each, reading, text

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
            change_homes(tx, homes, to_ms(now))

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
