"""Both engines have the same tables, and a migration only adds to them."""

import contextlib
import re
import sqlite3
from collections.abc import Iterator
from typing import Any, Final

import psycopg
import pytest

from bot.store.migrate import steps

_COLUMNS: Final = """
    SELECT tables.name, columns.name, columns.type IN ('INTEGER', 'BIGINT'),
        columns."notnull" OR columns.pk, columns.dflt_value
    FROM sqlite_schema AS tables, pragma_table_info(tables.name) AS columns
    WHERE tables.type = 'table' AND tables.name NOT LIKE 'sqlite%'
"""
_POSTGRES_COLUMNS: Final = """
    SELECT table_name, column_name, data_type IN ('integer', 'bigint'), is_nullable = 'NO',
        column_default
    FROM information_schema.columns
    WHERE table_schema = current_schema() AND table_name <> 'migrations'
"""
_INDEXES: Final = """
    SELECT indexes.name, tables.name, indexes."unique", indexes.origin, schema.sql
    FROM sqlite_schema AS tables, pragma_index_list(tables.name) AS indexes
    LEFT JOIN sqlite_schema AS schema ON schema.name = indexes.name
    WHERE tables.type = 'table' AND tables.name NOT LIKE 'sqlite%'
"""
_POSTGRES_INDEXES: Final = """
    SELECT classes.relname, tables.relname, indisunique, indisprimary, pg_get_indexdef(indexrelid)
    FROM pg_index JOIN pg_class AS classes ON classes.oid = indexrelid
    JOIN pg_class AS tables ON tables.oid = indrelid
    WHERE tables.relnamespace = current_schema()::regnamespace AND tables.relname <> 'migrations'
"""
_KEYS: Final = """
    SELECT tables.name, keys."from", keys."table", coalesce(keys."to", 'id'), keys.on_delete
    FROM sqlite_schema AS tables, pragma_foreign_key_list(tables.name) AS keys
    WHERE tables.type = 'table'
"""
_POSTGRES_KEYS: Final = """
    SELECT conrelid::regclass::text, own.attname, confrelid::regclass::text, other.attname,
        CASE confdeltype WHEN 'a' THEN 'NO ACTION' WHEN 'n' THEN 'SET NULL' ELSE confdeltype::text
        END
    FROM pg_constraint
    JOIN pg_attribute AS own ON own.attrelid = conrelid AND own.attnum = conkey[1]
    JOIN pg_attribute AS other ON other.attrelid = confrelid AND other.attnum = confkey[1]
    WHERE contype = 'f'
"""
# Words that the engines write differently, or that the server adds.
_NOISE: Final = re.compile(r"::\w+|\b(?:ANY|ARRAY|IN|USING|btree|public)\b|[^\w']+")


@pytest.fixture(scope="module")
def sqlite() -> Iterator[sqlite3.Connection]:
    """A database with all tables."""
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        for sql in steps("sqlite").values():
            db.executescript(sql)
        yield db


def made_by_sqlite(db: sqlite3.Connection, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in db.execute(query)]


def made_by_postgres(url: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as db:
        return db.execute(query.encode()).fetchall()


def default(written: str | None) -> str | None:
    return None if written is None else re.sub(r"::\w+|^\((.*)\)$", r"\1", written)


def definition(sql: str) -> tuple[str, ...]:
    """Return the columns of an index and its condition, in the words that both engines have."""
    of_table = re.sub(r"^.*? ON (?:\w+\.)?\w+ ", "", " ".join(sql.split()))
    return tuple(_NOISE.sub(" ", of_table).split())


def columns_of(db: sqlite3.Connection, name: str) -> tuple[str, ...]:
    return tuple(row[2] for row in db.execute(f"PRAGMA index_info({name})"))


def test_both_engines_have_the_same_columns(sqlite: sqlite3.Connection, postgres_url: str) -> None:
    ours = {
        (table, column, bool(number), bool(filled), default(value))
        for table, column, number, filled, value in made_by_sqlite(sqlite, _COLUMNS)
    }
    theirs = {
        (*row, default(value)) for *row, value in made_by_postgres(postgres_url, _POSTGRES_COLUMNS)
    }
    assert ours == theirs
    assert len(ours) > 80


def test_both_engines_have_the_same_indexes_and_unique_columns(
    sqlite: sqlite3.Connection, postgres_url: str
) -> None:
    ours = set()
    for name, table, unique, origin, sql in made_by_sqlite(sqlite, _INDEXES):
        if origin == "c":
            ours.add((name, table, bool(unique), definition(sql)))
        elif origin == "u":
            ours.add(("", table, True, columns_of(sqlite, name)))
    theirs = set()
    for name, table, unique, primary, sql in made_by_postgres(postgres_url, _POSTGRES_INDEXES):
        if not primary:
            own = "" if name.endswith("_key") else name
            theirs.add((own, table, unique, definition(sql)))
    assert ours == theirs
    assert len(ours) > 20


def test_both_engines_have_the_same_foreign_keys(
    sqlite: sqlite3.Connection, postgres_url: str
) -> None:
    ours, theirs = made_by_sqlite(sqlite, _KEYS), made_by_postgres(postgres_url, _POSTGRES_KEYS)
    assert sorted(ours) == sorted(theirs)
    assert len(ours) >= 4


# ── Expand, then contract ─────────────────────────────────────────────────────────────────────

_TAKES_AWAY: Final = re.compile(
    r"\bDROP (?!INDEX)\w+|\bRENAME\b|\bALTER COLUMN\b"
    r"|\bADD (?:CONSTRAINT|UNIQUE|CHECK|PRIMARY|FOREIGN)\b"
)
_ADDED_COLUMN: Final = re.compile(r"ALTER TABLE \w+ ADD COLUMN ([^;]*)")
_DROPPED_INDEX: Final = re.compile(r"DROP INDEX (\w+)")
_UNIQUE_INDEXES: Final = frozenset(
    name
    for sql in steps("postgres").values()
    for name in re.findall(r"CREATE UNIQUE INDEX (\w+)", sql)
)
_UNIQUE_INDEX: Final = re.compile(r"CREATE UNIQUE INDEX \w+\s+ON (\w+) \((\w+)")
_TABLE: Final = re.compile(r"CREATE TABLE (\w+)")


def taken_away(sql: str) -> list[str]:
    """Return what a migration does that the version before might not survive."""
    sql = re.sub(r"--.*", "", sql)
    found = _TAKES_AWAY.findall(sql)
    for column in _ADDED_COLUMN.findall(sql):
        if ("NOT NULL" in column and "DEFAULT" not in column) or re.search(
            r"\b(UNIQUE|CHECK)\b", column
        ):
            found.append(f"ADD COLUMN {column}")
    # Without any other index it is slower, but does the same.
    found += _UNIQUE_INDEXES.intersection(_DROPPED_INDEX.findall(sql))
    new = _TABLE.findall(sql)
    # The version before leaves a new column empty.
    added = {column.split()[0] for column in _ADDED_COLUMN.findall(sql)}
    return found + [
        f"UNIQUE INDEX ON {table}"
        for table, column in _UNIQUE_INDEX.findall(sql)
        if table not in new and column not in added
    ]


def test_a_migration_only_adds_unless_its_name_says_that_it_contracts() -> None:
    # While copies of the bot are replaced one after the other, the version before runs on the new
    # tables. What it uses may go one release later, in a migration that ends in _contract.
    found = {
        (engine, name): taken
        for engine in ("sqlite", "postgres")
        for name, sql in steps(engine).items()
        if not name.endswith("_contract") and (taken := taken_away(sql))
    }
    assert found == {}


def test_migrations_have_the_same_numbered_names_on_both_engines() -> None:
    names = list(steps("sqlite"))
    assert names == list(steps("postgres"))
    numbers = [name.partition("_")[0] for name in names[1:]]
    assert numbers == [f"{number:04}" for number in range(1, len(names))]
