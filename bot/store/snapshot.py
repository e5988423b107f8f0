"""A database as it is at one moment, for those who only read it."""

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

from bot.store.database import Row, Value
from bot.store.migrate import check_tables, migration_names
from bot.store.sql import Query
from bot.store.sqlite_file import read_only, translated

_HAS_MIGRATIONS: Final = "SELECT 1 FROM sqlite_schema WHERE name = 'migrations'"


class Snapshot(Protocol):
    """What can be read of a database. Nothing is changed or created."""

    def migrations(self) -> tuple[list[str], list[str]]:
        """Return the migrations that are done, and those that the next start applies.

        Raises:
            DatabaseError: the tables are not those of this version, of an older one, or of a newer
                one that has only added to them.
        """

    def all(self, query: Query, **values: Value) -> Sequence[Row]:
        """Run a query and return its rows."""

    def each(self, query: Query, **values: Value) -> Iterator[Row]:
        """Run a query and return its rows, read as they are needed."""

    def rows(self, table: str) -> Iterator[Row]:
        """Return all rows of a table, read as they are needed."""


class SQLiteSnapshot:
    """A ``Snapshot`` of a file."""

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self._db = db
        self._path = path

    def migrations(self) -> tuple[list[str], list[str]]:
        """Return the migrations that are done, and those that are pending."""
        names = migration_names()
        if not self._db.execute(_HAS_MIGRATIONS).fetchall():
            return [], names
        done = check_tables(self._db, self._path)
        return done, [name for name in names if name not in done]

    def all(self, query: Query, **values: Value) -> Sequence[Row]:
        """Run a query and return its rows."""
        return self._db.execute(query.sqlite, values).fetchall()

    def each(self, query: Query, **values: Value) -> Iterator[Row]:
        """Run a query and return its rows, read as they are needed."""
        return self._db.execute(query.sqlite, values)

    def rows(self, table: str) -> Iterator[Row]:
        """Return all rows of a table."""
        return self._db.execute(f"SELECT * FROM {table}")  # noqa: S608 - our tables


@contextlib.contextmanager
def sqlite_snapshot(path: Path) -> Iterator[SQLiteSnapshot]:
    """Read the database at ``path``, beside a bot that uses it.

    Raises:
        DatabaseError: it cannot be read.
    """
    with translated(path), read_only(path) as db:
        db.execute("BEGIN")
        yield SQLiteSnapshot(db, path)
