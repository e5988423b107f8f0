"""Moves everything in a SQLite database to an empty PostgreSQL database, in one transaction."""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias

import psycopg
from psycopg.rows import DictRow

from bot.store import deliveries, jobs
from bot.store.database import DatabaseError
from bot.store.engines import shown
from bot.store.migrate import MOVED
from bot.store.postgres.engine import COMMAND, OWN_PATH, migrate_postgres
from bot.store.postgres.engine import connect as connect_to_server
from bot.store.postgres.engine import translated as translated_postgres
from bot.store.sqlite import FileLock, check_file, connect, steps_in_sqlite, translated

Counts: TypeAlias = Mapping[str, int]
"""How many rows there are, by table, and "open jobs"."""

_BEGIN: Final = (
    f"BEGIN ISOLATION LEVEL READ COMMITTED; {OWN_PATH};"
    " SET LOCAL statement_timeout TO 0; SET LOCAL lock_timeout TO 5000;"
    " SET LOCAL idle_in_transaction_session_timeout TO 0"
)
_ANY: Final = (
    "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() ORDER BY tablename LIMIT 1"
)
_IDENTITIES: Final = (
    "SELECT table_name, column_name FROM information_schema.columns"
    " WHERE table_schema = current_schema() AND is_identity = 'YES'"
)
_CONTINUE: Final = (
    "SELECT setval(pg_get_serial_sequence('{table_name}', '{column_name}'),"
    " (SELECT coalesce(max({column_name}), 0) + 1 FROM {table_name}), false)"
)

_TOLD_ROWS: Final = 1000
_Target: TypeAlias = psycopg.Connection[DictRow]


TABLES: Final = (
    *("answered_messages", "audit", "compactions", "installation", "limit_changes", "lists"),
    *("locks", "revisions", "usage", "replicas", "channel_defaults"),
    *("jobs", "attempts", "deliveries"),
)
"""All tables but that of the migrations, each after those that it refers to."""


def move(source: Path, target: str, progress: Callable[[str], object] = str) -> Counts:
    """Copy everything from a file to the server, mark the file as moved, and return what there is.

    It is done as a whole or not at all, and nobody uses either database meanwhile. Once the file is
    marked, no bot starts on it: it would do again what waits in it. ``progress`` is told how far it
    is, again and again.

    Raises:
        DatabaseError: nothing was moved, or it says what is not known, or that the mark is missing.
    """
    if not source.exists():
        raise DatabaseError(f"{source} is not there: set FROM to the database of the bot")
    lock = FileLock(source)
    try:
        check_file(source, pages="integrity_check")
        with translated(source), contextlib.closing(connect(source)) as db:
            _require_current(db, source)
            # Written first: where it cannot be, nothing is moved. It is there once all is moved.
            db.execute("BEGIN IMMEDIATE")
            db.execute(
                "INSERT INTO migrations (name, checksum) VALUES (?, ?)", (MOVED, shown(target))
            )
            with _opened_target(target) as to:
                counts = _copy(db, to, progress)
            try:
                db.execute("COMMIT")
            except sqlite3.Error as error:
                raise DatabaseError(
                    f"Everything was moved, but {source} could not be marked ({error}). Move that "
                    "file away, so that no bot starts on it."
                ) from error
    finally:
        lock.release()
    return counts


def _require_current(db: sqlite3.Connection, source: Path) -> None:
    done, pending = steps_in_sqlite(db, source)
    if not done:
        raise DatabaseError(f"{source} has no tables of the bot: name the database that it uses")
    if pending:
        raise DatabaseError(
            f"an older version made {source}: bring it up to date first, with DATABASE_URL set to "
            "it and python -m bot migrate"
        )


@contextlib.contextmanager
def _opened_target(url: str) -> Iterator[_Target]:
    """Begin a transaction in an empty database, make the tables, and commit it at the end.

    Nobody else sees the tables before.
    """
    with translated_postgres("TO"), connect_to_server(url, application_name=COMMAND) as to:
        to.execute(_BEGIN)
        if found := to.execute(_ANY).fetchone():
            raise DatabaseError(
                f"TO is not empty: it has the table {found['tablename']}. Create an empty "
                "database, or empty this one if what is in it is not needed"
            )
        migrate_postgres(to)
        yield to
        try:
            to.commit()
        except psycopg.Error as error:
            raise DatabaseError(
                "It is not known whether everything was moved: the server of TO was lost in the "
                "last step. FROM is as it was. Empty TO, and run this command again."
            ) from error


def _copy(db: sqlite3.Connection, to: _Target, progress: Callable[[str], object]) -> Counts:
    counts = {}
    for table in TABLES:
        to.execute(f"DELETE FROM {table}")  # noqa: S608 - our tables
        rows = db.execute(f"SELECT * FROM {table}")  # noqa: S608 - our tables
        columns = ", ".join(name for name, *_ in rows.description)
        try:
            with to.cursor().copy(f"COPY {table} ({columns}) FROM STDIN") as copy:
                for number, row in enumerate(rows):
                    if number % _TOLD_ROWS == 0:
                        progress(f"moving: {number:,} {table}")
                    _require_storable(table, row)
                    copy.write_row(tuple(row))
        except psycopg.DataError as error:  # its text has what is stored
            raise DatabaseError(
                f"nothing was moved: a row of {table} has a text in the place of a number. Correct "
                "or delete that row in FROM, and run this command again"
            ) from error
        [(before,)] = db.execute(f"SELECT count(*) FROM {table}")  # noqa: S608 - our tables
        counts[table] = _count(to, table)
        if counts[table] != before:
            raise DatabaseError(
                f"nothing was moved: of {before:,} {table} there would be {counts[table]:,}. "
                "Keep FROM, and report this"
            )
    for identity in to.execute(_IDENTITIES).fetchall():
        to.execute(_CONTINUE.format(**identity))
    for module in (jobs, deliveries):
        to.execute(module.DUE.void_leases.postgres)
    to.execute("ANALYZE")
    [row] = to.execute("SELECT count(*) AS rows FROM jobs WHERE ended_at IS NULL").fetchall()
    return {**counts, "open jobs": row["rows"]}


def _count(to: _Target, table: str) -> int:
    [row] = to.execute(f"SELECT count(*) AS rows FROM {table}").fetchall()  # noqa: S608 - our tables
    return int(row["rows"])


def _require_storable(table: str, row: sqlite3.Row) -> None:
    """Require that PostgreSQL can hold the texts of a row: damage may leave what it cannot."""
    if any(isinstance(value, bytes) or "\0" in str(value) for value in row):
        key = row[0] if isinstance(row[0], int) or str(row[0]).isalnum() else "?"
        raise DatabaseError(
            f"nothing was moved: PostgreSQL cannot hold a text in row {key} of {table}. Correct or "
            "delete that row in FROM, and run this command again"
        )
