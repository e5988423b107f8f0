"""Brings the tables of a PostgreSQL database up to date with numbered files of SQL."""

from pathlib import Path
from typing import Final

import psycopg
from psycopg.rows import DictRow

from bot.store.database import DatabaseError
from bot.store.migrate import checksum

POSTGRES_MIGRATIONS: Final = Path(__file__).parent / "migrations" / "postgres"
# Of our own choosing: whoever migrates holds it, so that several may start at once.
_LOCK: Final = 7_208_455_310_092_411


def migrate_postgres(connection: psycopg.Connection[DictRow]) -> list[str]:
    """Apply what is missing, all in one transaction; return the names of what was applied.

    Raises:
        DatabaseError: the database was made by a newer version, or has other migrations.
        psycopg.Error: a migration failed; nothing was changed.
    """
    files = {file.stem: file.read_text() for file in sorted(POSTGRES_MIGRATIONS.glob("*.sql"))}
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        connection.execute(
            "CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY, checksum TEXT NOT NULL)"
        )
        rows = connection.execute("SELECT name, checksum FROM migrations").fetchall()
        done = {row["name"]: row["checksum"] for row in rows}
        if unknown := done.keys() - files.keys():
            raise DatabaseError(
                f"the database was made by a newer version (it has {max(unknown)}): "
                "install that version again"
            )
        for name, stored in done.items():
            if stored != checksum(files[name]):
                raise DatabaseError(f"the database was made by another version ({name} differs)")
        new = [name for name in files if name not in done]
        for name in new:
            connection.execute(files[name])
            connection.execute(
                "INSERT INTO migrations (name, checksum) VALUES (%s, %s)",
                [name, checksum(files[name])],
            )
    return new
