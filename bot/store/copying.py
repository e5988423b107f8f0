"""Copies of whole databases: what is counted on both sides, and a new SQLite file as a target."""

import contextlib
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from bot.store.database import DatabaseError, Row
from bot.store.migrate import Table, migrate_sqlite, migration_names, tables
from bot.store.snapshot import Snapshot
from bot.store.sql import Query

Counts: TypeAlias = Mapping[str, int]
"""How many rows there are, by table; "open jobs" and others of which none may be lost."""


@dataclass
class Copied:
    """What was copied."""

    counts: Counts
    replaced: list[str] = field(default_factory=list)
    """The values that the target cannot hold, such as "params of row 17 of jobs"."""


_COUNTED: Final = {
    "open jobs": "jobs WHERE ended_at IS NULL",
    "due jobs": "jobs WHERE due_at IS NOT NULL",
    "due messages": "deliveries WHERE due_at IS NOT NULL",
    "attempts without an outcome": "attempts WHERE outcome IS NULL",
}


def count(all_rows: Callable[[Query], Sequence[Row]]) -> Counts:
    """Return how many rows a database has, in each table and of those that matter most.

    ``all_rows`` runs a query in it.
    """
    counted = {each.name: each.name for each in tables()} | _COUNTED
    queries = [
        f"(SELECT count(*) FROM {what}) AS n{at}"  # noqa: S608 - our tables
        for at, what in enumerate(counted.values())
    ]
    [row] = all_rows(Query(f"SELECT {', '.join(queries)}"))
    return {name: row[f"n{at}"] for at, name in enumerate(counted)}


def require_same(before: Counts, after: Counts) -> None:
    """Require that a copy has what the source has.

    Raises:
        DatabaseError: it has not.
    """
    for name, number in before.items():
        if after[name] != number:
            raise DatabaseError(
                f"nothing was copied: of {number:,} {name} there would be {after[name]:,}. Keep "
                "the source, and report this"
            )


def require_current(snapshot: Snapshot, source: str) -> None:
    """Require that a source has exactly the tables of this version.

    Raises:
        DatabaseError: another version made it.
    """
    done, pending = snapshot.migrations()
    if not done:
        raise DatabaseError(f"{source} has no tables of the bot: name the database that it uses")
    if pending:
        raise DatabaseError(
            f"an older version made {source}: bring it up to date first, with DATABASE_URL set to "
            "it and python -m bot migrate"
        )
    if set(done) - set(migration_names()):
        raise DatabaseError(f"a newer version made {source}: use that version to copy it")


def copy_to_file(snapshot: Snapshot, path: Path) -> Counts:
    """Copy a database into an empty SQLite file; return what there is, counted in the copy.

    Raises:
        DatabaseError: what was copied is not all.
        sqlite3.Error: the file cannot be written.
    """
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.row_factory = sqlite3.Row
        migrate_sqlite(db, path)
        db.execute("BEGIN")
        for table in tables():
            _copy_table(snapshot, table, db)
        counts = count(lambda query: db.execute(query.sqlite).fetchall())
        require_same(count(snapshot.all), counts)
        if db.execute("PRAGMA foreign_key_check").fetchall():
            raise DatabaseError("nothing was copied: rows refer to others that are not there")
        db.execute("COMMIT")
    return counts


def _copy_table(snapshot: Snapshot, table: Table, db: sqlite3.Connection) -> None:
    names = list(table.columns)
    db.execute(f"DELETE FROM {table.name}")  # noqa: S608 - our tables
    values = ", ".join("?" * len(names))
    db.executemany(
        f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({values})",  # noqa: S608
        (tuple(row[name] for name in names) for row in snapshot.rows(table.name)),
    )
