"""Brings the tables of a database up to date with numbered files of SQL."""

import contextlib
import sqlite3
from pathlib import Path
from typing import Final

from bot.store.database import DatabaseError
from bot.store.sqlite_file import translated

SQLITE_MIGRATIONS: Final = Path(__file__).parent / "migrations" / "sqlite"


def migrate_sqlite(db: sqlite3.Connection, path: Path) -> list[str]:
    """Apply what is missing, each file in a transaction; return the names of what was applied.

    Raises:
        DatabaseError: a migration failed, or the database is from a newer version.
    """
    with translated(path, doing="the tables could not be brought up to date: "):
        db.execute("CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY)")
        done = {row["name"] for row in db.execute("SELECT name FROM migrations").fetchall()}
        files = {file.stem: file for file in sorted(SQLITE_MIGRATIONS.glob("*.sql"))}
        if unknown := done - files.keys():
            raise DatabaseError(
                f"the database was made by a newer version (it has {max(unknown)}): "
                "install that version again"
            )
        new = [name for name in files if name not in done]
        for name in new:
            sql = files[name].read_text()
            mark = f"INSERT INTO migrations VALUES ('{name}')"  # noqa: S608 - a file's name of ours
            try:
                db.executescript(f"BEGIN IMMEDIATE;\n{sql};\n{mark};\nCOMMIT;")
            except sqlite3.Error:
                with contextlib.suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
                raise
    return new
