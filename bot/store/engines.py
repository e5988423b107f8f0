"""Both engines, for those who do not care which one an address belongs to."""

from pathlib import Path

from bot.store import migrate as sqlite_migrations
from bot.store import sqlite
from bot.store.database import DatabaseError


def require_psycopg() -> None:
    """Require what the PostgreSQL engine is made with, which is an extra.

    Raises:
        DatabaseError: it is not installed.
    """
    try:
        import psycopg  # noqa: F401, PLC0415 - an extra
    except ImportError as error:
        raise DatabaseError(
            "PostgreSQL needs psycopg, which is not installed: "
            ".venv/bin/pip install --require-hashes -r requirements-postgres.txt"
        ) from error


async def migrate(address: Path | str) -> list[str]:
    """Bring the tables of a database up to date; return the names of what was applied.

    Raises:
        DatabaseError: it cannot be used, or its tables are another version's.
    """
    if isinstance(address, Path):
        return await sqlite.migrate(address)
    require_psycopg()
    from bot.store import postgres  # noqa: PLC0415 - an extra

    return await postgres.migrate_when_free(address)


def pending_migrations(address: Path | str) -> list[str]:
    """Return the names of what ``migrate`` would apply, without changing anything.

    Raises:
        DatabaseError: the database cannot be read, or has other tables than this version makes.
    """
    if isinstance(address, Path):
        return sqlite_migrations.pending_migrations(address)
    require_psycopg()
    from bot.store import postgres  # noqa: PLC0415 - an extra

    return postgres.pending_migrations(address)
