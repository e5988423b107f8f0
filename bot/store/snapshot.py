"""A database as it is at one moment, for those who only read it, and what its server is like."""

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from bot.store.database import Query, Row, Value
from bot.store.migrate import steps_in_sqlite
from bot.store.sqlite_file import check_file, read_only, require_file, translated


@dataclass(frozen=True, slots=True)
class Server:
    """A server, read without changing anything."""

    version: str
    number: int
    """Its version as 160004 for 16.4."""
    size_bytes: int
    """Of the database."""
    is_local: bool
    """Whether the connection does not leave this machine."""
    is_encrypted: bool
    is_verified: bool
    """Whether the server's certificate is compared with its name."""
    is_read_only: bool
    bots: int
    """How many connections bots have to the database."""
    ahead: timedelta
    """How far this machine's clock is ahead of the server's; negative if it is behind."""
    precision: timedelta
    """By how much ``ahead`` may be wrong."""
    missing_rights: Sequence[str]


class DatabaseSnapshot(Protocol):
    """What can be read of a database. Nothing is changed or created."""

    def migrations(self) -> tuple[list[str], list[str]]:
        """Return the migrations that are done, and those that the next start applies.

        Raises:
            DatabaseError: another version made the database, and this one cannot use it.
        """

    def all(self, query: Query, **values: Value) -> Iterator[Row]:
        """Run a query and return its rows, read as they are needed."""


class SQLiteSnapshot:
    """A ``DatabaseSnapshot`` of a file."""

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self._db = db
        self._path = path

    def migrations(self) -> tuple[list[str], list[str]]:
        """Return the migrations that are done, and those that are pending."""
        return steps_in_sqlite(self._db, self._path)

    def all(self, query: Query, **values: Value) -> Iterator[Row]:
        """Run a query and return its rows, read as they are needed."""
        return self._db.execute(query.sqlite, values)


@contextlib.contextmanager
def sqlite_snapshot(path: Path) -> Iterator[SQLiteSnapshot]:
    """Read the database at ``path``, beside a bot that uses it.

    Raises:
        DatabaseError: it is not there, or cannot be read.
    """
    require_file(path)
    check_file(path)
    with translated(path), read_only(path) as db:
        db.execute("BEGIN")
        yield SQLiteSnapshot(db, path)
