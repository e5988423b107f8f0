"""Copies a whole database into an empty PostgreSQL database, in one transaction."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Final

import psycopg
from psycopg import errors, sql
from psycopg.rows import DictRow

from bot.store import delivery_claims, homes, job_claims
from bot.store.copying import Copied, count, require_same
from bot.store.database import DatabaseError, DatabaseInUse, Row, RowUnreadable
from bot.store.inspection import READERS
from bot.store.migrate import Table, tables
from bot.store.postgres_link import connect_as_command
from bot.store.postgres_migrations import migrate_postgres
from bot.store.postgres_snapshot import translated_postgres
from bot.store.snapshot import Snapshot
from bot.store.sql import Query

_BEGIN: Final = (
    "BEGIN; SET LOCAL statement_timeout TO 0; SET LOCAL lock_timeout TO 5000;"
    " SET LOCAL idle_in_transaction_session_timeout TO 0"
)
_FOREIGN: Final = Query(
    """
    SELECT tablename FROM pg_tables
    WHERE schemaname = current_schema() AND tablename NOT IN (EACH :tables) LIMIT 1
    """
)
_IDENTITIES: Final = Query(
    """
    SELECT table_name, column_name FROM information_schema.columns
    WHERE table_schema = current_schema() AND is_identity = 'YES'
    """
)
_SET_ASIDE: Final = {
    table: Query(
        f"UPDATE {table} SET set_aside = 1, due_at = NULL, claimed = 0 WHERE id = :id"  # noqa: S608
    )
    for table in ("jobs", "deliveries")
}


class EmptyTarget:
    """An empty PostgreSQL database, in a transaction that ``open_target`` has begun."""

    def __init__(self, connection: psycopg.Connection[DictRow]) -> None:
        self._connection = connection

    def all(self, query: Query, **values: object) -> Sequence[Row]:
        """Run a statement."""
        cursor = self._connection.execute(query.postgres, values)
        return cursor.fetchall() if cursor.description else []

    def prepare(self) -> None:
        """Make the tables, and have nobody else use them.

        Raises:
            DatabaseError: the database is not empty.
        """
        names = [each.name for each in tables()]
        if foreign := self.all(_FOREIGN, tables=[*names, "migrations"]):
            raise DatabaseError(
                f"TO is not empty: it has the table {foreign[0]['tablename']}, which is not the "
                "bot's. Create a database for the bot alone"
            )
        migrate_postgres(self._connection)
        every = sql.SQL(", ").join(map(sql.Identifier, names))
        self._connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(every))
        for table in tables():
            if not table.has_first_rows and self.all(Query(f"SELECT 1 FROM {table.name} LIMIT 1")):  # noqa: S608
                raise DatabaseError(
                    f"TO is not empty: it has {table.name}. Create an empty database, or empty "
                    "this one if nobody needs what is in it"
                )

    def copy(self, snapshot: Snapshot) -> Copied:
        """Copy all rows, and check them.

        Raises:
            DatabaseError: what was copied is not all.
        """
        copied, unreadable = Copied({}), list[tuple[str, object]]()
        for table in tables():
            self.all(Query(f"DELETE FROM {table.name}"))  # noqa: S608 - our tables
            columns = sql.SQL(", ").join(map(sql.Identifier, table.columns))
            query = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table.name), columns)
            with self._connection.cursor().copy(query) as copy:
                for row in snapshot.rows(table.name):
                    copy.write_row(_values(table, row, copied, unreadable))
        for identity in self.all(_IDENTITIES):
            self._continue_after_highest(identity["table_name"], identity["column_name"])
        copied.counts = count(self.all)
        require_same(count(snapshot.all), copied.counts)
        for module in (job_claims, delivery_claims, homes):
            self.all(module.VOID_LEASES)
        for name, id_ in unreadable:
            self.all(_SET_ASIDE[name], id=id_)
        self.all(Query("ANALYZE"))
        return copied

    def _continue_after_highest(self, table: str, column: str) -> None:
        query = sql.SQL(
            "SELECT setval(pg_get_serial_sequence({name}, {column_name}),"
            " (SELECT coalesce(max({column}), 0) + 1 FROM {table}), false)"
        )
        self._connection.execute(
            query.format(
                name=table,
                column_name=column,
                column=sql.Identifier(column),
                table=sql.Identifier(table),
            )
        )


@contextlib.contextmanager
def open_target(url: str) -> Iterator[EmptyTarget]:
    """Begin a transaction in an empty database, and commit it at the end.

    Raises:
        DatabaseError: it cannot be used, or is not empty; nothing was changed, or it says that this
            is not known.
    """
    with translated_postgres("TO"), connect_as_command(url) as connection:
        connection.execute(_BEGIN)
        target = EmptyTarget(connection)
        try:
            target.prepare()
            yield target
        except errors.LockNotAvailable as error:
            raise DatabaseInUse("TO is in use: end what is connected to it") from error
        try:
            connection.commit()
        except psycopg.Error as error:
            raise DatabaseError(
                "It is not known whether everything was moved: the server of TO was lost in the "
                "last step. FROM is as it was. Empty TO, and run this command again."
            ) from error


def _values(
    table: Table, row: Row, copied: Copied, unreadable: list[tuple[str, object]]
) -> list[object]:
    """Return the values of a row, with others for those that PostgreSQL cannot hold.

    A row that could not be read before cannot be read then either.
    """
    values: list[object] = [row[name] for name in table.columns]
    wrong = [
        at
        for at, (value, is_number) in enumerate(zip(values, table.columns.values(), strict=True))
        if not _is_storable(value, is_number=is_number)
    ]
    if not wrong:
        return values
    names = list(table.columns)
    was_unreadable = _is_unreadable(table.name, row)
    for at in wrong:
        is_number = table.columns[names[at]]
        values[at] = _replacement(values[at], is_number=is_number, spoil=was_unreadable)
    if was_unreadable and table.name in _SET_ASIDE:
        unreadable.append((table.name, values[names.index("id")]))
    key = values[0] if isinstance(values[0], int) or str(values[0]).isalnum() else "?"
    copied.replaced += [f"{names[at]} of row {key} of {table.name}" for at in wrong]
    return values


def _is_storable(value: object, *, is_number: bool) -> bool:
    if value is None:
        return True
    if is_number:
        return isinstance(value, int)
    return isinstance(value, str) and "\0" not in value


def _replacement(value: object, *, is_number: bool, spoil: bool) -> object:
    """Return what stands for a value: U+FFFD for what no text holds, 0 for what is no number.

    ``spoil`` has a text begin with it too, so that JSON or a word of ours is not read after all.
    """
    if is_number:
        return 0
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    text = text.replace("\0", "\ufffd")
    return "\ufffd" + text if spoil else text


def _is_unreadable(table: str, row: Row) -> bool:
    try:
        if table in READERS:
            READERS[table](row)
    except RowUnreadable:
        return True
    return False
