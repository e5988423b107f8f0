"""Makes the tables of a database: the schema file of its engine, then numbered migrations.

``migrations/README.md`` says how to change them.
"""

import contextlib
import hashlib
import logging
import sqlite3
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Final, Literal

from bot.store.database import DatabaseError
from bot.store.sqlite_file import in_memory, read_only, translated

_LOG: Final = logging.getLogger(__name__)

_HERE: Final = Path(__file__).parent
MIGRATIONS: Final = _HERE / "migrations"
#: The name under which the schema file stands among the migrations of a database.
SCHEMA: Final = "schema"
#: Stands among the migrations of a database that was moved, with its new address for a checksum:
#: so older versions refuse it too.
MOVED: Final = "moved"
# The name of a migration that takes away what an older version uses ends so.
_CONTRACT: Final = "_contract"
MAKE: Final = (
    "CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY, checksum TEXT NOT NULL)"
)
_TABLES: Final = (
    "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name"
)
_NUMBERS: Final = frozenset({"INTEGER", "BIGINT"})


# ── Both engines ──────────────────────────────────────────────────────────────────────────────


def steps(engine: Literal["sqlite", "postgres"]) -> dict[str, str]:
    """Return the SQL of the schema file and of each migration, by its name, in their order."""
    files = {SCHEMA: _HERE / f"schema.{engine}.sql"}
    files |= {file.stem: file for file in sorted((MIGRATIONS / engine).glob("*.sql"))}
    return {name: file.read_text(encoding="utf-8") for name, file in files.items()}


def checksum(sql: str) -> str:
    """Return what is stored of a step's text, which never changes once it has landed."""
    return hashlib.sha256(sql.encode()).hexdigest()


def pending_steps(
    done: Mapping[str, str | None] | None, files: Mapping[str, str], database: str, to_begin: str
) -> list[str]:
    """Return the names of the steps that are not done; those of a newer version may be.

    A newer version has only added to the tables, so that this version can go on with them: a host
    may start it again in the middle of a deploy, or an operator go back to it.

    Args:
        done: the checksums of the steps that are done, by their names; None in an empty database.
        files: the steps of this version.
        database: what the database is called.
        to_begin: how to begin with an empty one.

    Raises:
        DatabaseError: another version made it, and this one cannot use it; or everything in it was
            moved to another one.
    """
    if done is None:
        return list(files)
    if MOVED in done:
        raise DatabaseError(
            f"everything in this database was moved to {done[MOVED]}: set DATABASE_URL to that. To "
            "go back to the day of the move, make a copy that can be used with python -m bot backup"
        )
    newer = sorted(done.keys() - files.keys())
    last = max(files.keys() - {SCHEMA}, default="")
    others = [name for name in newer if name < last]
    others += [name for name in files.keys() & done.keys() if done[name] != checksum(files[name])]
    if SCHEMA not in done or others:
        raise DatabaseError(
            f"{database} was made by a version that was never released: this one cannot use it. "
            f"To begin with an empty one, {to_begin}: then all that people asked for is forgotten. "
            "To keep it, install the version again that made it."
        )
    for name in newer:
        if name.endswith(_CONTRACT):
            raise DatabaseError(
                f"the database was made by a newer version (it has {name}): "
                "install that version again"
            )
    return [name for name in files if name not in done]


def warn_of_newer(done: Iterable[str], files: Collection[str]) -> None:
    """Log that a newer version has added to the tables."""
    if newer := sorted(set(done).difference(files)):
        remedy = "what that version stored may be left alone until it runs again: install it again"
        _LOG.warning(
            "a newer version has added to the tables",
            extra={"migration": newer[-1], "remedy": remedy},
        )


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the bot, on either engine."""

    name: str
    columns: Mapping[str, bool]
    """Its columns, and whether each is a number."""
    has_first_rows: bool
    """Whether it has rows from the beginning."""


def tables() -> list[Table]:
    """Return all tables but that of the migrations, each after those that it refers to."""
    refers: dict[str, list[str]] = {}
    found: dict[str, Table] = {}
    with contextlib.closing(in_memory()) as db:
        for sql in steps("sqlite").values():
            db.executescript(sql)
        for (name,) in db.execute(_TABLES).fetchall():
            keys = db.execute(f"PRAGMA foreign_key_list({name})").fetchall()
            refers[name] = [other for _, _, other, *_ in keys if other != name]
            columns = db.execute(f"PRAGMA table_info({name})").fetchall()
            rows = db.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchall()  # noqa: S608 - our tables
            numbers = {column: kind in _NUMBERS for _, column, kind, *_ in columns}
            found[name] = Table(name, numbers, bool(rows))
    return [found[name] for name in TopologicalSorter(refers).static_order()]


# ── SQLite ────────────────────────────────────────────────────────────────────────────────────


def migrate_sqlite(db: sqlite3.Connection, path: Path) -> list[str]:
    """Apply what is missing, each step in a transaction; return the names of what was applied.

    Raises:
        DatabaseError: a step failed, or another version made the database.
    """
    files = steps("sqlite")
    with translated(path, doing="the tables could not be brought up to date: "):
        done, pending = steps_in_sqlite(db, path)
        warn_of_newer(done, files)
        for name in pending:
            mark = f"INSERT INTO migrations VALUES ('{name}', '{checksum(files[name])}')"  # noqa: S608 - ours
            try:
                db.executescript(f"BEGIN IMMEDIATE;\n{MAKE};\n{files[name]};\n{mark};\nCOMMIT;")
            except sqlite3.Error:
                with contextlib.suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
                raise
    return pending


def steps_in_sqlite(db: sqlite3.Connection, path: Path) -> tuple[list[str], list[str]]:
    """Return the names of the steps that are done, and of those that are pending.

    Raises:
        DatabaseError: another version made the database, and this one cannot use it.
    """
    tables = {row["name"] for row in db.execute(_TABLES)}
    done: dict[str, str | None] | None = None
    if tables - {"migrations"}:
        rows = db.execute("SELECT * FROM migrations").fetchall() if "migrations" in tables else []
        # Before there was a schema file, there were no checksums at first.
        done = {str(row.get("name")): row.get("checksum") for row in map(dict, rows)}
    to_begin = f"move the file away (and {path.name}-wal, if it is there)"
    pending = pending_steps(done, steps("sqlite"), str(path), to_begin)
    return sorted(done or ()), pending


def refuse_other_versions(path: Path) -> None:
    """Refuse a database that this version cannot use, without changing anything.

    Other reasons why it cannot be read are left for ``connect`` to report.

    Raises:
        DatabaseError: another version made it.
    """
    with contextlib.suppress(sqlite3.Error, OSError), read_only(path) as db:
        steps_in_sqlite(db, path)
