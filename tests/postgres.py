"""Databases on a PostgreSQL server, for tests."""

import contextlib
import functools
import itertools
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import sql

from bot.store.postgres.engine import migrate
from tests.postgres_server import shared_server

_NUMBERS: Final = itertools.count()
_TABLES: Final = (
    "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'migrations'"
)
# Also those that their clients have closed, which the server may not have noticed yet: it waits for
# the end of each, in milliseconds, as the next test may count them.
_TERMINATE: Final = (
    "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
# What a test must leave as it was, for another one to have the database.
_FORM: Final = (
    "SELECT (SELECT string_agg(name || checksum, ',' ORDER BY name) FROM migrations),"
    " (SELECT string_agg(relname || '.' || attname, ',' ORDER BY relname, attnum)"
    " FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid"
    " WHERE relnamespace = 'public'::regnamespace AND relkind = 'r')"
)
_among: list[Path] = []


def share_server(among: Path) -> None:
    """Share one server with all processes that name this folder."""
    _among[:] = [among]


@functools.cache
def server() -> str:
    """Return the URL of the server, which ends with the last process that uses it."""
    if _among:
        return shared_server(_among[0])
    with tempfile.TemporaryDirectory() as folder:
        return shared_server(Path(folder))


def _connection(url: str) -> psycopg.Connection[Any]:
    return psycopg.connect(url, autocommit=True)


@contextlib.contextmanager
def empty_database_url() -> Iterator[str]:
    """Return the URL of a new database without tables, which is dropped at the end."""
    url = _create()
    try:
        yield url
    finally:
        _drop(url)


@contextlib.contextmanager
def database_url() -> Iterator[str]:
    """Return the URL of a database with empty tables, which nothing else uses meanwhile.

    It is emptied at the end, for the next test: that takes a tenth of the time of a new one.
    """
    database = _FREE.pop() if _FREE else _migrated()
    try:
        yield database.url
    finally:
        if database.empty():
            _FREE.append(database)
        else:
            _drop(database.url)


@dataclass(frozen=True)
class _Database:
    url: str
    form: tuple[str, str] = field(repr=False)

    def empty(self) -> bool:
        """Delete all rows but the ones of the migrations; False if the tables are others now."""
        with _connection(self.url) as connection:
            connection.execute(_TERMINATE)
            if connection.execute(_FORM).fetchone() != self.form:
                return False
            tables = {name for (name,) in connection.execute(_TABLES)}
            kept = {name for (name,) in connection.execute(_TABLES.replace("public", "kept"))}
            with connection.transaction():
                if used := [name for name in tables - kept if _has_rows(connection, name)]:
                    names = sql.SQL(", ").join(map(sql.Identifier, used))
                    connection.execute(
                        sql.SQL("TRUNCATE {} RESTART IDENTITY CASCADE").format(names)
                    )
                for name in kept:
                    connection.execute(
                        sql.SQL("DELETE FROM {0}; INSERT INTO {0} SELECT * FROM {1}").format(
                            sql.Identifier(name), sql.Identifier("kept", name)
                        )
                    )
        return True


_FREE: Final[list[_Database]] = []


def _migrated() -> _Database:
    """Return a new database with all tables, and a copy of the rows that these begin with."""
    url = _create()
    migrate(url)
    with _connection(url) as connection:
        connection.execute("CREATE SCHEMA kept")
        for (name,) in connection.execute(_TABLES).fetchall():
            if _has_rows(connection, name):
                connection.execute(
                    sql.SQL("CREATE TABLE {} AS TABLE {}").format(
                        sql.Identifier("kept", name), sql.Identifier(name)
                    )
                )
        form = connection.execute(_FORM).fetchone()
        assert form is not None
        return _Database(url, form)


def _has_rows(connection: psycopg.Connection[Any], table: str) -> bool:
    query = sql.SQL("SELECT FROM {} LIMIT 1").format(sql.Identifier(table))
    return connection.execute(query).rowcount > 0


def _create() -> str:
    """Create a database and return its URL; it ends with the server."""
    url, name = server(), f"test{os.getpid()}_{next(_NUMBERS)}"
    with _connection(url) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return url.replace("/postgres?", f"/{name}?")


def _drop(url: str) -> None:
    name = sql.Identifier(url.partition("?")[0].rpartition("/")[2])
    with _connection(server()) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))
