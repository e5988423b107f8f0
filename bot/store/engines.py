"""Both engines, for those who do not care which one an address belongs to."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from bot.clock import Clock
from bot.metrics import Metrics
from bot.store import sqlite
from bot.store.database import Database, DatabaseError
from bot.store.migrate import step_names
from bot.store.snapshot import DatabaseSnapshot, Server, sqlite_snapshot
from bot.store.sqlite_file import check_file
from bot.timings import Timings


def require_psycopg() -> None:
    """Require what the PostgreSQL engine is made with, which is an extra.

    Raises:
        DatabaseError: it is not installed.
    """
    try:
        import psycopg  # noqa: F401, PLC0415 - an extra
    except ImportError as error:
        raise DatabaseError(
            "PostgreSQL needs psycopg, which is not installed: install it with all that "
            "requirements-postgres.txt lists (.venv/bin/pip install --require-hashes "
            "--requirement requirements-postgres.txt)"
        ) from error


def open_database(
    address: Path | str, timings: Timings, metrics: Metrics
) -> contextlib.AbstractAsyncContextManager[Database]:
    """Open a database with its engine."""
    if isinstance(address, Path):
        return sqlite.SQLiteDatabase.open(address, timings.lock_timeout, metrics)
    require_psycopg()
    from bot.store.postgres.engine import PostgresDatabase  # noqa: PLC0415 - an extra

    return PostgresDatabase.open(address, metrics, timings)


def shown(address: Path | str) -> str:
    """Return an address without user, password and options."""
    if isinstance(address, Path):
        return str(address)
    url = urlsplit(address)
    return f"postgresql://{url.netloc.rpartition('@')[2]}{url.path}"


async def migrate(address: Path | str) -> list[str]:
    """Bring the tables of a database up to date; return the names of what was applied.

    Raises:
        DatabaseError: it cannot be used, or its tables are another version's.
    """
    if isinstance(address, Path):
        return await sqlite.migrate(address)
    require_psycopg()
    from bot.store.postgres.engine import migrate  # noqa: PLC0415 - an extra

    return await asyncio.to_thread(migrate, address)


def pending_migrations(address: Path | str) -> list[str]:
    """Return the names of what ``migrate`` would apply, without changing anything.

    Raises:
        DatabaseError: the database cannot be read, or has other tables than this version makes.
    """
    if isinstance(address, Path):
        check_file(address)
        if not address.exists() or not address.stat().st_size:
            return step_names()
    with open_snapshot(address) as snapshot:
        return snapshot.migrations()[1]


@contextlib.contextmanager
def open_snapshot(address: Path | str) -> Iterator[DatabaseSnapshot]:
    """Read a database as it is now; a bot may be using it.

    Raises:
        DatabaseError: it cannot be read.
    """
    if isinstance(address, Path):
        with sqlite_snapshot(address) as of_file:
            yield of_file
        return
    require_psycopg()
    from bot.store.postgres.inspection import postgres_snapshot  # noqa: PLC0415 - an extra

    with postgres_snapshot(address) as of_server:
        yield of_server


def connected_bots(url: str) -> bool:
    """Return whether a bot is connected to a PostgreSQL database, as far as its server says it.

    Raises:
        DatabaseError: it cannot be used.
    """
    require_psycopg()
    from bot.store.postgres import inspection  # noqa: PLC0415 - an extra

    return inspection.connected_bots(url)


def inspect_server(url: str, clock: Clock) -> Server:
    """Return what there is to know of a PostgreSQL server.

    Raises:
        DatabaseError: it cannot be used.
    """
    require_psycopg()
    from bot.store.postgres import inspection  # noqa: PLC0415 - an extra

    return inspection.inspect_server(url, clock)
