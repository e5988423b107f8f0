"""A PostgreSQL database as it is at one moment, for those who only read it."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Final

import psycopg
from psycopg import sql
from psycopg.rows import DictRow, dict_row

from bot.store.database import DatabaseError, Row, Value
from bot.store.postgres_errors import connect_problem, describe
from bot.store.postgres_link import connect_as_command, name_of_bots
from bot.store.postgres_migrations import migrations_in_postgres
from bot.store.sql import Query

# Rows that are fetched at a time.
_FETCHED: Final = 1000
# A large database takes longer than any request.
_BEGIN: Final = (
    "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY;"
    " SET LOCAL statement_timeout TO 0; SET LOCAL lock_timeout TO 5000;"
    " SET LOCAL idle_in_transaction_session_timeout TO 0"
)


class PostgresSnapshot:
    """A ``Snapshot`` of a database on a server."""

    def __init__(self, connection: psycopg.Connection[DictRow], name_of_bots: str) -> None:
        self.connection = connection
        self.name_of_bots = name_of_bots
        """The name by which the server knows connections of bots: the URL may set it."""

    def migrations(self) -> tuple[list[str], list[str]]:
        """Return the migrations that are done, and those that are pending."""
        return migrations_in_postgres(self.connection)

    def all(self, query: Query, **values: Value) -> Sequence[Row]:
        """Run a query and return its rows."""
        return self.connection.execute(query.postgres, values).fetchall()

    def each(self, query: Query, **values: Value) -> Iterator[Row]:
        """Run a query and return its rows, read as they are needed."""
        with self.connection.cursor("rows", row_factory=dict_row) as cursor:
            cursor.itersize = _FETCHED
            yield from cursor.execute(query.postgres, values)

    def rows(self, table: str) -> Iterator[Row]:
        """Return all rows of a table."""
        query = sql.SQL("SELECT * FROM {}").format(sql.Identifier(table))
        with self.connection.cursor(f"rows of {table}", row_factory=dict_row) as cursor:
            cursor.itersize = _FETCHED
            yield from cursor.execute(query)


@contextlib.contextmanager
def postgres_snapshot(url: str) -> Iterator[PostgresSnapshot]:
    """Read the database of this URL, beside the bots that use it.

    Raises:
        DatabaseError: it cannot be read.
    """
    with translated_postgres(), connect_as_command(url) as connection:
        connection.execute(_BEGIN)
        yield PostgresSnapshot(connection, name_of_bots(url))
        connection.rollback()


@contextlib.contextmanager
def translated_postgres(setting: str = "DATABASE_URL") -> Iterator[None]:
    """Turn errors of the server into errors of ours, with a remedy.

    ``setting`` is what has the address.

    Raises:
        DatabaseError: the server refuses something, or cannot be reached.
    """
    try:
        yield
    except psycopg.Error as error:
        of = "" if setting == "DATABASE_URL" else f" of {setting}"
        said = (
            f"the database{of} cannot be used: {describe(error)}"
            if error.sqlstate
            else connect_problem(error).words
        )
        raise DatabaseError(said.replace("DATABASE_URL", setting)) from None
