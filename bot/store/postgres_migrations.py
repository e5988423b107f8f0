"""Brings the tables of a PostgreSQL database up to date with numbered files of SQL."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

import psycopg
from psycopg import errors
from psycopg.rows import DictRow

from bot.store.database import DatabaseError, DatabaseUnavailable
from bot.store.migrate import checksum, newer_migrations, tables, warn_of_newer
from bot.store.postgres_errors import Meaning, connect_problem, describe, meaning_of
from bot.store.postgres_link import connect
from bot.store.sql import Query

POSTGRES_MIGRATIONS: Final = Path(__file__).parent / "migrations" / "postgres"
# Of our own choosing: a migration holds it, so that several copies may start at once.
_LOCK: Final = 7_208_455_310_092_411
# All who use a table wait behind a migration that waits for it: therefore it gives way soon. An
# index is made without CONCURRENTLY, which no transaction allows: with a million jobs writers wait
# for about a second.
_LOCK_TIMEOUT_MS: Final = 2_000

# In one statement: another process may make all of them at this moment.
_TABLES: Final = Query(
    """
    SELECT to_regclass('migrations') AS migrations, (
        SELECT relname FROM pg_class
        WHERE relnamespace = to_regnamespace(current_schema()) AND relname IN (EACH :tables)
        ORDER BY relname LIMIT 1) AS other
    """
)

_Connection = psycopg.Connection[DictRow]


def migrate(url: str) -> list[str]:
    """Bring the tables up to date; return the names of what was applied.

    Raises:
        DatabaseUnavailable: the server cannot be reached at the moment.
        DatabaseError: the server cannot be used, or its tables are another version's.
    """
    try:
        connection = connect(url)
    except psycopg.Error as error:
        problem = connect_problem(error)
        kind = DatabaseUnavailable if problem.temporary else DatabaseError
        raise kind(problem.words) from None
    try:
        with connection:
            return migrate_postgres(connection)
    except psycopg.Error as error:
        # Each migration is a transaction: what was not committed is applied by the next try.
        kind = DatabaseUnavailable if meaning_of(error) is Meaning.LOST else DatabaseError
        raise kind(f"the database cannot be used: {describe(error)}") from None


def migrate_postgres(connection: _Connection) -> list[str]:
    """Apply what is missing, each file in a transaction; return the names of what was applied.

    Raises:
        DatabaseUnavailable: somebody has locked the tables; what was applied before stays.
        DatabaseError: the database was made by a newer version, or has other migrations.
        psycopg.Error: a migration failed; those before it stay.
    """
    files = _files()
    done = _done(connection, files)
    warn_of_newer(done, files)
    applied: list[str] = []
    while files.keys() - done:
        try:
            with connection.transaction():
                done = _apply_next(connection, files, applied)
        except errors.LockNotAvailable as error:
            raise DatabaseUnavailable(
                "the tables cannot be brought up to date, because somebody has locked them: "
                "look in pg_stat_activity for a transaction that has been open for long, and end it"
            ) from error
    return applied


def migrations_in_postgres(connection: _Connection) -> tuple[list[str], list[str]]:
    """Return the names of the migrations that are done, and of those that are pending.

    Raises:
        DatabaseError: the database was made by a newer version, or has other migrations.
        psycopg.Error: it cannot be read.
    """
    files = _files()
    done = _done(connection, files)
    return list(done), [name for name in files if name not in done]


def _apply_next(
    connection: _Connection, files: Mapping[str, str], applied: list[str]
) -> dict[str, str]:
    """Apply the first that is missing, unless another process has meanwhile; return all of them."""
    # It may take long, and its server's own limit is for requests.
    connection.execute(
        f"SET LOCAL statement_timeout TO 0; SET LOCAL lock_timeout TO {_LOCK_TIMEOUT_MS}"
    )
    connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
    # Before anything is looked up: what another process has just made may not be known here yet.
    connection.execute(
        "CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY, checksum TEXT NOT NULL)"
    )
    done = _done(connection, files)
    for name in files:
        if name not in done:
            connection.execute(files[name])
            connection.execute(
                "INSERT INTO migrations (name, checksum) VALUES (%s, %s)",
                [name, checksum(files[name])],
            )
            applied.append(name)
            return {**done, name: checksum(files[name])}
    return done


def _done(connection: _Connection, files: Mapping[str, str]) -> dict[str, str]:
    """Return the checksums of the migrations that are done, by their names.

    Raises:
        DatabaseError: they are not those of this version, or of a newer one that only adds; or the
            database belongs to another program.
    """
    encoding = connection.info.parameter_status("server_encoding")
    if encoding not in {"UTF8", None}:  # a pooler may not say
        raise DatabaseError(
            f"the database's encoding is {encoding}, which cannot hold what people write: "
            "create one with ENCODING 'UTF8' TEMPLATE template0, and name it in DATABASE_URL"
        )
    # With IF NOT EXISTS, the right to create tables would be needed where there is nothing to do.
    [found] = connection.execute(_TABLES.postgres, {"tables": _names()}).fetchall()
    if found["migrations"] is None:
        if found["other"] is not None:
            raise _anothers(found["other"])
        return {}
    try:
        rows = connection.execute("SELECT name, checksum FROM migrations ORDER BY name").fetchall()
    except errors.UndefinedColumn:
        raise _anothers("migrations") from None
    done = {row["name"]: row["checksum"] for row in rows}
    newer_migrations(done, files)
    for name in files.keys() & done:
        if done[name] != checksum(files[name]):
            raise DatabaseError(
                f"the tables are not those that this version makes ({name} differs): install the "
                "version again that made them"
            )
    return done


@lru_cache(maxsize=1)
def _names() -> list[str]:
    return [each.name for each in tables()]


def _anothers(table: str) -> DatabaseError:
    return DatabaseError(
        f"the database belongs to another program: it has a table {table} that the bot has not "
        "made. Create a database for the bot alone"
    )


def _files() -> dict[str, str]:
    return {file.stem: file.read_text() for file in sorted(POSTGRES_MIGRATIONS.glob("*.sql"))}
