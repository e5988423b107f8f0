"""Rows that cannot be read: they are left out or set aside, so that the others go on."""

import contextlib
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Final, TypeVar

from bot.store.database import Query, Row, RowUnreadable, Transaction, optional_moment

_LOG: Final = logging.getLogger(__name__)
_T = TypeVar("_T")
_ID: Final = re.compile(r"[\w-]{1,64}", re.ASCII)

# An id that is not UTF-8 is passed as bytes.
_SET_ASIDE: Final = {
    table: Query(
        f"UPDATE {table} SET set_aside = 1, due_at = NULL, claimed = 0"  # noqa: S608 - our tables
        f" WHERE id = CAST(:id AS {kind})"
    )
    for table, kind in (("jobs", "TEXT"), ("deliveries", "BIGINT"))
}

_TRY_AGAIN: Final = (
    Query(
        """
        WITH aside AS (SELECT id FROM jobs WHERE set_aside = 1 FOR UPDATE SKIP LOCKED)
        UPDATE jobs SET due_at = 0, set_aside = 0 WHERE id IN (SELECT id FROM aside)
        """
    ),
    Query(
        """
        WITH aside AS (
            SELECT deliveries.id FROM deliveries JOIN jobs ON jobs.id = deliveries.job_id
            WHERE deliveries.set_aside = 1 FOR UPDATE OF jobs, deliveries SKIP LOCKED
        )
        UPDATE deliveries SET due_at = 0, set_aside = 0 WHERE id IN (SELECT id FROM aside)
        """
    ),
)


class UnreadableRows:
    """Logs each row that cannot be read once, and nothing of what is in it."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def report(self, errors: Iterable[RowUnreadable]) -> None:
        """Log those that were not logged before; only after the work that found them."""
        for error in errors:
            if str(error) not in self._logged:
                self._logged.add(str(error))
                _LOG.error(
                    "a row cannot be read: it is left as it is",
                    extra={"table": error.table, "row": error.row},
                )


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


def set_aside(tx: Transaction, errors: Iterable[RowUnreadable]) -> None:
    """Have no worker claim these jobs or deliveries until the next start."""
    for error in errors:
        tx.all(_SET_ASIDE[error.table], id=error.key)


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
