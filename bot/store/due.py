"""Tables with rows that become due: claims, leases and wake-ups, written once for all of them.

``due_at`` means "leave this row alone until then". A claim moves it ahead, which is the lease, and
raises the claim number: a row is written back only under the number that it was claimed with.
Rows that cannot be read are left out or set aside, so that the others go on.
"""

import contextlib
import logging
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import ClassVar, Final, TypeVar

from bot.store.database import (
    Database,
    Query,
    Row,
    RowUnreadable,
    Topic,
    Transaction,
    Value,
    optional_moment,
    to_ms,
)
from bot.timings import Timings

_T = TypeVar("_T")
_MAX_WOKEN: Final = 500
# A crash of a PostgreSQL server undoes claims of jobs, which do not wait for the disk, while the
# processes that made them go on. In steps of one, the next claim or decision would have their
# number.
_MIN_STEP: Final = 2
_MAX_STEP: Final = 1 << 16
_WITH_JOBS: Final = {
    "jobs": "jobs",
    "deliveries": "deliveries JOIN jobs ON jobs.id = deliveries.job_id",
}
LOCKED: Final = {
    "jobs": "FOR UPDATE SKIP LOCKED",
    "deliveries": "FOR UPDATE OF jobs, deliveries SKIP LOCKED",
}
"""How rows are locked that a statement selects to change them."""


class Claimed(list[_T]):
    """The items of a claim, and when to claim again.

    Attributes:
        next_due: when the next row is due that is neither held nor claimed; None if none is.
        full: more may begin as soon as something ends that is under way.
    """

    def __init__(
        self, items: Iterable[_T] = (), next_due: datetime | None = None, *, full: bool = False
    ) -> None:
        super().__init__(items)
        self.next_due = next_due
        self.full = full


def soonest(moments: Iterable[datetime | None]) -> datetime | None:
    """Return the first of some moments, of which some may never come; None if none does."""
    return min((each for each in moments if each is not None), default=None)


class DueTable:
    """The statements that all tables with due rows have in common.

    Args:
        name: the table.
        topic: what is notified when a row of it may have become due.
        due: a common table expression ``due`` with the ids that a claim takes, and what it needs.
            It locks them, and passes over rows that another process has locked.
        on_claim: further columns that a claim sets.
        on_wake: further columns that are set where the clock was set back.
    """

    def __init__(
        self, name: str, topic: Topic, *, due: str, on_claim: str = "", on_wake: str = ""
    ) -> None:
        self.topic = topic
        self._claim: Final = Query(
            f"""
            WITH {due}
            UPDATE {name} SET claim = claim + :step, claimed = 1,
                due_at = :lease_end, wait_ms = :lease_end - :now{on_claim}
            WHERE id IN (SELECT id FROM due) RETURNING *
            """  # noqa: S608 - the names are ours
        )
        # The clock was set back since, by more than a lease. A claimed row keeps a lease, counted
        # from now.
        self.wake_far_future: Final = Query(
            f"""
            WITH far AS (
                SELECT {name}.id FROM {_WITH_JOBS[name]}
                WHERE {name}.due_at > :latest
                    AND ({name}.due_at > :far OR {name}.due_at - {name}.wait_ms > :latest)
                LIMIT :limit {LOCKED[name]}
            )
            UPDATE {name} SET due_at = CASE WHEN claimed = 1 THEN :lease_end ELSE :now END{on_wake}
            WHERE id IN (SELECT id FROM far) RETURNING id
            """  # noqa: S608 - likewise
        )
        self.void_leases: Final = Query(
            f"UPDATE {name} SET due_at = 0, claimed = 0 WHERE claimed = 1"  # noqa: S608 - likewise
        )

    def claim(
        self, tx: Transaction, now: datetime, timings: Timings, **values: Value
    ) -> Sequence[Row]:
        """Lease what the expression ``due`` finds, and return the rows as they are then."""
        times = {"now": to_ms(now), "lease_end": to_ms(now + timings.lease)}
        step = _MIN_STEP + secrets.randbelow(_MAX_STEP)
        return tx.all(self._claim, step=step, **times, **values)


class DueRows:
    """A table with due rows as its worker uses it.

    Attributes:
        table: its statements.
        due: set for when a row of it may have become due.
    """

    table: ClassVar[DueTable]

    def __init__(self, database: Database, timings: Timings, unreadable: "UnreadableRows") -> None:
        self._database = database
        self._timings = timings
        self._unreadable = unreadable
        self.due = database.event(self.table.topic)

    async def wake_far_future(self, now: datetime) -> int:
        """Make rows due that have longer to wait than they were to, or than any wait lasts.

        Returns the number of rows; more may be left for the next call.
        """
        lease_end = to_ms(now + self._timings.lease)
        return await self._make_due(
            self.table.wake_far_future,
            now=to_ms(now),
            lease_end=lease_end,
            latest=lease_end,
            far=to_ms(now + self._timings.max_wait + self._timings.lease),
        )

    async def _make_due(self, query: Query, **values: Value) -> int:
        """Run a statement that makes at most ``:limit`` rows due; return how many it did."""

        def work(tx: Transaction) -> int:
            found = tx.all(query, limit=_MAX_WOKEN, **values)
            if found:
                tx.notify(self.table.topic)
            return len(found)

        return await self._database.run(work, durable=False)

    async def void_leases(self) -> None:
        """End all leases. Only for a process that knows that no other one works on them."""
        await self._database.run(lambda tx: tx.all(self.table.void_leases), durable=False)


def tell(tx: Transaction, topic: Topic, due_at: int | None, now: int) -> None:
    """Tell the workers of every process when a row is due; None means never.

    Those that wait for something later wake up then, without asking before.
    """
    if due_at is not None:
        tx.notify(topic, "" if due_at <= now else str(due_at))


# ── Rows that cannot be read ──────────────────────────────────────────────────────────────────────

_LOG: Final = logging.getLogger(__name__)
_ID: Final = re.compile(r"[\w-]{1,64}", re.ASCII)

# No worker claims it until the next start. An id that is not UTF-8 is passed as bytes.
SET_ASIDE: Final = {
    table: Query(
        f"UPDATE {table} SET set_aside = 1, due_at = NULL, claimed = 0"  # noqa: S608 - our tables
        f" WHERE id = CAST(:id AS {kind})"
    )
    for table, kind in (("jobs", "TEXT"), ("deliveries", "BIGINT"))
}

_TRY_AGAIN: Final = [
    Query(
        f"""
        WITH aside AS (
            SELECT {table}.id FROM {_WITH_JOBS[table]}
            WHERE {table}.set_aside = 1 {LOCKED[table]}
        )
        UPDATE {table} SET due_at = 0, set_aside = 0 WHERE id IN (SELECT id FROM aside)
        """  # noqa: S608 - our tables
    )
    for table in _WITH_JOBS
]


class UnreadableRows:
    """Logs each row that cannot be read once, and nothing of what is in it.

    A work may do so, although it may be run again, and although it may store nothing.
    """

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def read_each(
        self, read: Callable[[Row], _T], rows: Iterable[Row], *, claimed: Transaction | None = None
    ) -> list[_T]:
        """Return the values of those rows that can be read; log the others.

        If they were ``claimed`` in that transaction, no worker claims the others until the next
        start.
        """
        values, errors = read_each(read, rows)
        for error in errors:
            if claimed is not None:
                claimed.all(SET_ASIDE[error.table], id=error.key)
            if str(error) not in self._logged:
                self._logged.add(str(error))
                _LOG.error(
                    "a row cannot be read: it is left as it is",
                    extra={"table": error.table, "row": error.row},
                )
        return values


def read_each(
    read: Callable[[Row], _T], rows: Iterable[Row]
) -> tuple[list[_T], list[RowUnreadable]]:
    """Return the values of those rows that can be read, and the errors of the others."""
    values, errors = [], []
    for row in rows:
        try:
            values.append(read(row))
        except RowUnreadable as error:
            errors.append(error)
    return values, errors


def try_again(tx: Transaction) -> None:
    """Make the rows due that were set aside: they may be repaired, or were a newer version's."""
    for query in _TRY_AGAIN:
        tx.all(query)


@contextlib.contextmanager
def reading(table: str, row: Row, key: str = "id") -> Iterator[None]:
    """Turn what a damaged row leads to into an error without its content.

    Args:
        table: its table.
        row: the row.
        key: the column that names it.

    Raises:
        RowUnreadable: the row cannot be read.
    """
    try:
        yield
    except (LookupError, ValueError, TypeError, ArithmeticError, RecursionError, OSError):
        id_ = row[key]
        name = str(id_) if isinstance(id_, str | int) and _ID.fullmatch(str(id_)) else "?"
        raise RowUnreadable(table, name, id_) from None


def due_at_of(row: Row | None) -> datetime | None:
    """Return the moment in a column ``due_at``.

    None if there is none, or if it is damaged: then the sweep finds that it is too late.
    """
    try:
        return optional_moment(row["due_at"]) if row else None
    except (TypeError, ValueError, ArithmeticError, OSError):
        return None


def text(value: object) -> str:
    """Return the text of a column; what is not UTF-8 comes as bytes.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(value, str):
        raise TypeError
    return value


def optional_text(value: object) -> str | None:
    """Return the text of a column, if it has one.

    Raises:
        TypeError: it has something else.
    """
    return None if value is None else text(value)


def number(value: object) -> int:
    """Return the number of a column.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(value, int):
        raise TypeError
    return value


def texts(value: object) -> dict[str, str]:
    """Return an object of texts that was stored as JSON.

    Raises:
        TypeError: it is something else.
    """
    if not isinstance(value, dict):
        raise TypeError
    return {name: text(each) for name, each in value.items()}
