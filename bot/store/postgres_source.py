"""A PostgreSQL database from which everything is moved away."""

import contextlib
from collections.abc import Iterator
from typing import Final

import psycopg
from psycopg import errors, sql

from bot.store.database import DatabaseError, DatabaseInUse
from bot.store.migrate import MOVED, tables
from bot.store.postgres_inspection import bots_of
from bot.store.postgres_link import connect_as_command, name_of_bots
from bot.store.postgres_snapshot import PostgresSnapshot, translated_postgres

_BEGIN: Final = (
    "BEGIN ISOLATION LEVEL REPEATABLE READ; SET LOCAL statement_timeout TO 0;"
    " SET LOCAL lock_timeout TO 5000; SET LOCAL idle_in_transaction_session_timeout TO 0"
)


@contextlib.contextmanager
def open_source(url: str, target: str) -> Iterator[PostgresSnapshot]:
    """Read a database that nobody writes to meanwhile, and mark it at the end as moved.

    Raises:
        DatabaseInUse: a bot is connected, or somebody writes to it.
        DatabaseError: it cannot be used.
    """
    with translated_postgres("FROM"), connect_as_command(url) as connection:
        connection.execute(_BEGIN)
        snapshot = PostgresSnapshot(connection, name_of_bots(url))
        every = sql.SQL(", ").join(sql.Identifier(each.name) for each in tables())
        try:
            # Before anything is read: what is read is as it is then.
            connection.execute(sql.SQL("LOCK TABLE {} IN SHARE MODE").format(every))
        except errors.UndefinedTable as error:
            raise DatabaseError(
                "FROM has no tables of the bot, or those of an older version"
            ) from error
        except errors.LockNotAvailable as error:
            raise DatabaseInUse("FROM is in use: stop all bots first") from error
        if bots_of(snapshot):
            raise DatabaseInUse("FROM is in use: stop all bots first")
        yield snapshot
        try:
            connection.execute(
                "INSERT INTO migrations (name, checksum) VALUES (%s, %s)", [MOVED, target]
            )
            connection.commit()
        except psycopg.Error as error:
            raise DatabaseError(
                "Everything was moved, but FROM could not be marked. Delete it, so that no bot "
                "starts on it."
            ) from error
