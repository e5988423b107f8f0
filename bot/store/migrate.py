"""Brings the tables of a database up to date with numbered files of SQL."""

import contextlib
import hashlib
import logging
import sqlite3
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Final

from bot.store.database import DatabaseError, DatabaseMoved
from bot.store.sqlite_file import check_file, in_memory, read_only, translated

_LOG: Final = logging.getLogger(__name__)

SQLITE_MIGRATIONS: Final = Path(__file__).parent / "migrations" / "sqlite"

_TABLES: Final = (
    "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name"
)
_NUMBERS: Final = frozenset({"INTEGER", "BIGINT"})
_COLUMNS: Final = """
    SELECT tables.name || '.' || columns.name, columns.type, columns."notnull",
        columns.dflt_value, columns.pk
    FROM sqlite_schema AS tables, pragma_table_info(tables.name) AS columns
    WHERE tables.type = 'table' AND tables.name NOT LIKE 'sqlite%' AND tables.name <> 'migrations'
"""
_INDEXES: Final = """
    SELECT indexes.name, tables.name, indexes."unique", columns.name
    FROM sqlite_schema AS tables, pragma_index_list(tables.name) AS indexes,
        pragma_index_info(indexes.name) AS columns
    WHERE tables.type = 'table' AND tables.name NOT LIKE 'sqlite%' AND tables.name <> 'migrations'
"""
_MAX_NAMED: Final = 3
# The name of a migration that takes away what an older version uses ends so.
_CONTRACT: Final = "_contract"
#: Stands among the migrations of a database that was moved, with its new address for a checksum:
#: so older versions refuse it too.
MOVED: Final = "moved"
_NUMBER_DIGITS: Final = 4
_Rows = frozenset[tuple[object, ...]]


def migrate_sqlite(db: sqlite3.Connection, path: Path) -> list[str]:
    """Apply what is missing, each file in a transaction; return the names of what was applied.

    Raises:
        DatabaseError: a migration failed, or the database was made by a newer version, or by one
            that had other migrations.
    """
    with translated(path, doing="the tables could not be brought up to date: "):
        db.execute("CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY, checksum TEXT)")
        if "checksum" not in _migrations_columns(db):  # an older version made it
            db.execute("ALTER TABLE migrations ADD COLUMN checksum TEXT")
        files = _files()
        done = check_tables(db, path)
        warn_of_newer(done, files)
        for name in files.keys() & done:
            sql = "UPDATE migrations SET checksum = ? WHERE name = ? AND checksum IS NULL"
            db.execute(sql, (checksum(files[name]), name))
        new = [name for name in files if name not in done]
        for name in new:
            mark = f"INSERT INTO migrations VALUES ('{name}', '{checksum(files[name])}')"  # noqa: S608 - ours
            try:
                db.executescript(f"BEGIN IMMEDIATE;\n{files[name]};\n{mark};\nCOMMIT;")
            except sqlite3.Error:
                with contextlib.suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
                raise
    return new


def migration_names() -> list[str]:
    """Return the names of all migrations of this version, in order."""
    return list(_files())


@dataclass(frozen=True, slots=True)
class Table:
    """A table that migrations make, on either engine."""

    name: str
    columns: Mapping[str, bool]
    """Its columns, and whether each is a number."""
    has_first_rows: bool
    """Whether migrations store rows in it."""


def tables() -> list[Table]:
    """Return all tables but that of the migrations, each after those that it refers to."""
    refers: dict[str, list[str]] = {}
    found: dict[str, Table] = {}
    with contextlib.closing(in_memory()) as db:
        for sql in _files().values():
            db.executescript(sql)
        for (name,) in db.execute(_TABLES).fetchall():
            keys = db.execute(f"PRAGMA foreign_key_list({name})").fetchall()
            refers[name] = [other for _, _, other, *_ in keys if other != name]
            columns = db.execute(f"PRAGMA table_info({name})").fetchall()
            rows = db.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchall()  # noqa: S608 - our tables
            numbers = {column: kind in _NUMBERS for _, column, kind, *_ in columns}
            found[name] = Table(name, numbers, bool(rows))
    return [found[name] for name in TopologicalSorter(refers).static_order()]


def pending_migrations(path: Path) -> list[str]:
    """Return the names of what ``migrate_sqlite`` would apply, without changing anything.

    Raises:
        DatabaseError: the database cannot be read, or has other tables than this version makes.
    """
    check_file(path)
    files = list(_files())
    if not path.exists() or not path.stat().st_size:
        return files
    with translated(path), read_only(path) as db:
        done = check_tables(db, path)
    return [name for name in files if name not in done]


def checksum(sql: str) -> str:
    """Return what is stored of a migration's text, which never changes once it is released."""
    return hashlib.sha256(sql.encode()).hexdigest()


def check_tables(db: sqlite3.Connection, path: Path) -> list[str]:
    """Require that the migrations that are done made what they would make now; return their names.

    Nothing is changed.

    Raises:
        DatabaseError: they did not, or a newer version made some.
    """
    files = _files()
    stored = "checksum" if "checksum" in _migrations_columns(db) else "NULL AS checksum"
    rows = db.execute(f"SELECT name, {stored} FROM migrations ORDER BY name").fetchall()  # noqa: S608
    done = {row["name"]: row["checksum"] for row in rows}
    newer = newer_migrations(done, files)
    if not done:
        return []
    ours = {name: stored for name, stored in done.items() if name in files}
    changed = [name for name, stored in ours.items() if stored not in {None, checksum(files[name])}]
    made_columns, made_indexes = _made_by(tuple(files[name] for name in ours))
    found = _schema(db, _COLUMNS)
    columns = made_columns - found if newer else made_columns ^ found
    indexes = made_indexes - _schema(db, _INDEXES)
    if different := changed + sorted({str(each[0]) for each in columns | indexes}):
        named = ", ".join(different[:_MAX_NAMED])
        raise DatabaseError(
            f"the tables of {path} are not those that this version makes ({named}): a version that "
            "was never released made them. Install that version again, or move the file away to "
            "begin with an empty one: then all that people asked for is forgotten."
        )
    return list(done)


def newer_migrations(done: Mapping[str, str | None], files: Mapping[str, str]) -> list[str]:
    """Return those of a newer version among the migrations that are done.

    They have only added to the tables, so that this version can go on with them: a host may start
    it again in the middle of a deploy, or an operator go back to it.

    Raises:
        DatabaseError: one has taken something away that this version uses, or is none of a newer
            version.
    """
    newer = sorted(done.keys() - files.keys())
    if not newer:
        return []
    if MOVED in newer:
        raise DatabaseMoved(
            f"everything in this database was moved to {done[MOVED]}: set DATABASE_URL to that. To "
            "go back to the day of the move, make a copy that can be used with python -m bot backup"
        )
    last = max(files)[:_NUMBER_DIGITS]
    for name in reversed(newer):
        if name.endswith(_CONTRACT) or name[:_NUMBER_DIGITS] <= last:
            raise DatabaseError(
                f"the database was made by a newer version (it has {name}): "
                "install that version again"
            )
    return newer


def warn_of_newer(done: Iterable[str], files: Collection[str]) -> None:
    """Log that a newer version has added to the tables."""
    if newer := sorted(set(done).difference(files)):
        remedy = "what that version stored may be left alone until it runs again: install it again"
        _LOG.warning(
            "a newer version has added to the tables",
            extra={"migration": newer[-1], "remedy": remedy},
        )


@lru_cache(maxsize=4)  # the sandbox and the tests start many bots
def _made_by(migrations: tuple[str, ...]) -> tuple[_Rows, _Rows]:
    """Return the columns and the indexes that migrations make in an empty database."""
    with contextlib.closing(in_memory()) as db:
        for sql in migrations:
            db.executescript(sql)
        return _schema(db, _COLUMNS), _schema(db, _INDEXES)


def _files() -> dict[str, str]:
    return {file.stem: file.read_text() for file in sorted(SQLITE_MIGRATIONS.glob("*.sql"))}


def _migrations_columns(db: sqlite3.Connection) -> list[str]:
    return [row["name"] for row in db.execute("PRAGMA table_info(migrations)").fetchall()]


def _schema(db: sqlite3.Connection, sql: str) -> _Rows:
    return frozenset(tuple(row) for row in db.execute(sql).fetchall())
