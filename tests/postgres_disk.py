"""A database on a PostgreSQL server that is in use: what remains after the bot was killed."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import psycopg
from psycopg import rows, sql

from bot.store.database import Database
from bot.store.postgres.engine import PostgresDatabase
from tests.disk import Rows, delivery_key

_TABLES: Final = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
_TERMINATE: Final = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


class PostgresDisk:
    """What a ``Disk`` is on SQLite: a kill of the bot leaves all that is committed."""

    def __init__(self, url: str) -> None:
        self._connection: psycopg.Connection[dict[str, Any]] = psycopg.connect(
            url, autocommit=True, row_factory=rows.dict_row
        )
        self._connection.execute("SET default_transaction_isolation TO 'repeatable read'")
        self._tables = [row["tablename"] for row in self._connection.execute(_TABLES)]

    async def watch(self, database: Database) -> None:
        """Check that this is what the bot uses."""
        assert isinstance(database, PostgresDatabase)

    def leave(self) -> None:
        """Do nothing: the connection may stay."""

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def saved(self) -> Callable[[], None]:
        """Save what is committed now; return what puts it back."""
        content = {}
        with self._connection.transaction(), self._connection.cursor() as cursor:
            for table in self._tables:
                copy = sql.SQL("COPY {} TO STDOUT").format(sql.Identifier(table))
                with cursor.copy(copy) as copied:
                    content[table] = b"".join(bytes(block) for block in copied)
        return partial(self._put_back, content)

    def _put_back(self, left: Mapping[str, bytes]) -> None:
        self._connection.execute(_TERMINATE)
        with self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.execute("SET LOCAL session_replication_role TO replica")  # no foreign keys
            names = sql.SQL(", ").join(map(sql.Identifier, self._tables))
            cursor.execute(sql.SQL("TRUNCATE {}").format(names))
            for table, content in left.items():
                copy = sql.SQL("COPY {} FROM STDIN").format(sql.Identifier(table))
                with cursor.copy(copy) as copied:
                    copied.write(content)

    def rows(self) -> Rows:
        """Return what a process would find that connects now."""
        with self._connection.transaction():
            jobs, attempts, deliveries, usage = (
                self._connection.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608 - ours
                for table in ("jobs", "attempts", "deliveries", "usage")
            )
        return Rows(
            {row["id"]: row for row in jobs},
            attempts,
            {delivery_key(row): row for row in deliveries},
            usage=usage,
        )

    def complaints(self) -> list[str]:
        """Return nothing: the server checks its keys itself."""
        return []
