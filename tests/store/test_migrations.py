"""Tables: the schema file, then migrations; and which databases are refused, on both engines."""

import contextlib
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from bot.ops.doctor import check_database
from bot.store import DatabaseError, DatabaseUnavailable, engines
from bot.store.backup import back_up
from bot.store.engines import pending_migrations
from bot.store.migrate import MIGRATIONS, steps
from bot.store.move import TABLES
from bot.store.postgres.engine import migrate as migrate_postgres
from bot.timings import SystemClock
from tests.databases import migrate
from tests.processes import QUICK, LiveWorld

_STARTS: Final = 4
_NEWER_COLUMN: Final = "ALTER TABLE jobs ADD COLUMN newer TEXT NOT NULL DEFAULT 'new'"
# As all versions made them before there was a schema file; the first of them without checksums.
_OLD: Final = (
    "CREATE TABLE migrations (name TEXT PRIMARY KEY, checksum TEXT);"
    "CREATE TABLE jobs (id TEXT PRIMARY KEY);"
    "INSERT INTO jobs VALUES ('j1'); INSERT INTO migrations VALUES ('0001_jobs', 'old');"
)
_OLDEST: Final = _OLD.replace(", checksum TEXT", "").replace(", 'old'", "")
_REFUSED: Final = "was made by a version that was never released"


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """Return the address of an empty database of each engine."""
    if request.param == "SQLite":
        return tmp_path / "bot.db"
    url: str = request.getfixturevalue("empty_url")
    return url


def run(address: Path | str, sql: str) -> list[tuple[object, ...]]:
    """Run statements; return the rows of one that is alone."""
    if isinstance(address, Path):
        with contextlib.closing(sqlite3.connect(address)) as db:
            if ";" not in sql.rstrip(";"):
                with db:
                    return db.execute(sql).fetchall()
            db.executescript(sql)
            return []
    limits = "-c lock_timeout=5000"
    with psycopg.connect(address, autocommit=True, options=limits) as connection:
        cursor = connection.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


@contextlib.contextmanager
def migrations(folder: Path, **files: str) -> Iterator[None]:
    """Have these migrations, by their names, and no other ones."""
    for engine in ("sqlite", "postgres"):
        (folder / engine).mkdir(parents=True, exist_ok=True)
        for name, sql in files.items():
            (folder / engine / f"{name.strip('_')}.sql").write_text(sql)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("bot.store.migrate.MIGRATIONS", folder)
        yield


@contextlib.contextmanager
def next_migrations(folder: Path, **files: str) -> Iterator[None]:
    """Have these migrations after those that there are."""
    shutil.copytree(MIGRATIONS, folder)
    with migrations(folder, **files):
        yield


async def test_a_database_gets_the_schema_then_each_migration_once(
    address: Path | str, tmp_path: Path
) -> None:
    with migrations(tmp_path / "none"):
        assert pending_migrations(address) == ["schema"]
        assert await migrate(address) == ["schema"]
    job = "INSERT INTO jobs (id, request_key, kind, params, user_id, channel, created_at, state)"
    run(address, f"{job} VALUES ('j1', 'r1', 'video', '{{}}', 'U1', 'C1', 1, 'queued')")
    index = "CREATE INDEX jobs_newer ON jobs (newer)"
    with migrations(tmp_path / "two", _0001_newer=_NEWER_COLUMN, _0002_index=index):
        assert pending_migrations(address) == ["0001_newer", "0002_index"]
        assert await migrate(address) == ["0001_newer", "0002_index"]
        assert pending_migrations(address) == await migrate(address) == []
    assert run(address, "SELECT id, newer FROM jobs") == [("j1", "new")]


async def test_a_migration_that_fails_in_its_middle_leaves_nothing_behind(
    address: Path | str, tmp_path: Path
) -> None:
    await migrate(address)
    wrong = f"{_NEWER_COLUMN}; DROP TABLE nowhere"
    with next_migrations(tmp_path / "wrong", _9999_newer=wrong), pytest.raises(DatabaseError):
        await migrate(address)
    with next_migrations(tmp_path / "right", _9999_newer=_NEWER_COLUMN):
        assert await migrate(address) == ["9999_newer"]


async def test_a_database_whose_schema_or_migration_was_edited_since_is_refused(
    address: Path | str, tmp_path: Path
) -> None:
    with migrations(tmp_path / "before", _0001_newer=_NEWER_COLUMN):
        await migrate(address)

    async def expect_refusal(folder: str, **files: str) -> None:
        with migrations(tmp_path / folder, **files), pytest.raises(DatabaseError, match=_REFUSED):
            await migrate(address)

    await expect_refusal("edited", _0001_newer=_NEWER_COLUMN.replace("new'", "old'"))
    await expect_refusal("renumbered", _0002_newer=_NEWER_COLUMN)
    run(address, "UPDATE migrations SET checksum = 'edited' WHERE name = 'schema'")
    await expect_refusal("before", _0001_newer=_NEWER_COLUMN)


async def test_a_version_goes_on_with_what_a_newer_one_adds_and_refuses_what_it_takes_away(
    address: Path | str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with next_migrations(tmp_path / "newer", _9998_newer=_NEWER_COLUMN):
        await migrate(address)
    assert await migrate(address) == []
    [warned] = [record for record in caplog.records if "newer" in record.getMessage()]
    assert vars(warned)["migration"] == "9998_newer"
    gone = "ALTER TABLE jobs DROP COLUMN newer"
    with migrations(tmp_path / "newer", _9999_less_contract=gone):
        await migrate(address)
    with pytest.raises(DatabaseError, match=r"newer version \(it has 9999_less_contract\): "):
        await migrate(address)


def files_in(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return each file of a folder: when it was changed, and what is in it."""
    return {each.name: (each.stat().st_mtime_ns, each.read_bytes()) for each in folder.iterdir()}


def left_by_a_killed_bot(path: Path, sql: str) -> None:
    """Make a database whose process is killed: all or most of it is in the log."""
    code = (
        "import os, signal, sqlite3, sys\n"
        "db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "db.execute('PRAGMA journal_mode = WAL')\n"
        "db.executescript(sys.argv[2])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code, path, sql], check=False)
    assert ended.returncode == -signal.SIGKILL


def copied_with_its_log(path: Path) -> None:
    left_by_a_killed_bot(path, _OLD)
    path.with_name(f"{path.name}-shm").unlink()


_CHECKPOINT_BETWEEN: Final = _OLD.replace("INSERT", "PRAGMA wal_checkpoint; INSERT", 1)
_MADE: Final[dict[str, Callable[[Path], object]]] = {
    "all in one file": partial(run, sql=f"PRAGMA journal_mode = WAL; {_OLD}"),
    "its first tables": partial(run, sql=_OLDEST),
    "killed before a checkpoint": partial(left_by_a_killed_bot, sql=_OLD),
    "killed after a checkpoint": partial(left_by_a_killed_bot, sql=_CHECKPOINT_BETWEEN),
    "copied with its log": copied_with_its_log,
}


@pytest.mark.parametrize("make", _MADE.values(), ids=_MADE.keys())
async def test_a_file_from_before_is_refused_and_nothing_is_written(
    make: Callable[[Path], object], tmp_path: Path
) -> None:
    path = tmp_path / "bot.db"
    make(path)
    before = files_in(path.parent)
    with pytest.raises(DatabaseError, match=_REFUSED) as refused:
        await engines.migrate(path)
    assert f"with an empty one, move the file away (and {path.name}-wal" in str(refused.value)
    assert files_in(path.parent) == before
    with pytest.raises(DatabaseError, match=_REFUSED):
        pending_migrations(path)
    with pytest.raises(DatabaseError, match=_REFUSED):
        back_up(path, path.parent / "backup.db", SystemClock().now(), replace=False)
    assert files_in(path.parent) == before
    [found] = check_database(path)
    assert (found.state, _REFUSED in found.message) == ("error", True)
    assert files_in(path.parent) == before


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("CREATE TABLE replicas (number INTEGER)", "already exists .*for the bot alone"),
        ("CREATE TABLE migrations (number INTEGER)", 'column "name" does not exist'),
    ],
)
def test_a_database_of_another_program_is_left_as_it_is(
    empty_url: str, table: str, says: str
) -> None:
    run(empty_url, table)
    with pytest.raises(DatabaseError, match=says):
        migrate_postgres(empty_url)
    assert len(run(empty_url, "SELECT 1 FROM pg_tables WHERE schemaname = 'public'")) == 1


def test_a_database_that_cannot_hold_every_text_is_refused(empty_url: str) -> None:
    name = f"latin{os.getpid()}"
    run(empty_url, f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    before, _, after = empty_url.partition("?")
    url = f"{before.rpartition('/')[0]}/{name}?{after}"
    try:
        for use in (migrate_postgres, pending_migrations):
            with pytest.raises(
                DatabaseError, match=r"encoding is LATIN1.*create one with ENCODING"
            ):
                use(url)
        assert run(url, "SELECT 1 FROM pg_tables WHERE schemaname = 'public'") == []
    finally:
        run(empty_url, f"DROP DATABASE {name} WITH (FORCE)")


def test_several_that_start_at_once_apply_each_step_once(empty_url: str, tmp_path: Path) -> None:
    at_once = threading.Barrier(_STARTS)

    def start(_: int) -> list[str]:
        at_once.wait()
        return migrate_postgres(empty_url)

    with migrations(tmp_path, _0001_newer=_NEWER_COLUMN), ThreadPoolExecutor(_STARTS) as starts:
        applied = [name for names in starts.map(start, range(_STARTS)) for name in names]
    assert applied.count("schema") == applied.count("0001_newer") == 1
    assert len(applied) == 2


def test_a_migration_that_is_cut_off_changes_nothing_and_is_applied_by_the_next_start(
    postgres_url: str, tmp_path: Path
) -> None:
    sql = _NEWER_COLUMN + "; SELECT pg_sleep(CASE WHEN {} THEN 60 END);"
    has_column = "SELECT 1 FROM information_schema.columns WHERE column_name = 'newer'"
    cut = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event = 'PgSleep'"
    )
    with (
        next_migrations(tmp_path / "cut", _9999_newer=sql.format("true")),
        ThreadPoolExecutor(1) as thread,
    ):
        start = thread.submit(migrate_postgres, postgres_url)
        while not run(postgres_url, cut):
            assert not start.done(), start.result()
        with pytest.raises(DatabaseError):
            start.result()
    assert run(postgres_url, has_column) == []
    with next_migrations(tmp_path / "whole", _9999_newer=sql.format("false")):
        assert migrate_postgres(postgres_url) == ["9999_newer"]
    assert run(postgres_url, has_column)


def test_a_migration_gives_way_to_those_who_use_the_tables(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.store.postgres.engine._MIGRATION_LOCK_TIMEOUT_MS", 100)
    with (
        next_migrations(tmp_path / "next", _9999_newer=_NEWER_COLUMN),
        psycopg.connect(postgres_url) as reader,
    ):
        reader.execute("SELECT count(*) FROM jobs")  # and its transaction stays open
        # The start tries again later; nobody waits behind it meanwhile.
        with pytest.raises(DatabaseUnavailable, match="open for long, and end it"):
            migrate_postgres(postgres_url)
        assert run(postgres_url, "SELECT count(*) FROM jobs") == [(0,)]
        reader.rollback()
        assert migrate_postgres(postgres_url) == ["9999_newer"]


# What a migration may do, to each table.
_ADDED: Final = (
    "ALTER TABLE {table} ADD COLUMN newer TEXT NOT NULL DEFAULT 'new';"
    "CREATE INDEX {table}_newer ON {table} (newer);"
)


async def test_this_version_makes_videos_on_tables_that_the_next_one_has_added_to(
    tmp_path: Path,
) -> None:
    live = LiveWorld(tmp_path)
    live.on_postgres = True
    live.timings = replace(QUICK, lease=timedelta(seconds=1))
    shutil.copytree(MIGRATIONS, tmp_path / "next")
    # One for each table: a transaction that locks all would deadlock with the bot's own.
    added = {
        f"9{number:03}_newer": _ADDED.format(table=table)
        for number, table in enumerate(TABLES, start=1)
    }

    async def make_video(script: str) -> None:
        form = await live.request_video(script)
        assert not form.is_open, form.errors
        await live.wait_until(lambda: live.card_says("Ready", script) and live.replies(script))

    async with live.running():
        await make_video("Before the deploy.")
        with migrations(tmp_path / "next", **added):
            assert migrate_postgres(str(live.address)) == list(added)
        await make_video("During the deploy.")
        # Its host starts it again meanwhile, or an operator goes back to it.
        assert await live.bot.terminate() == 0
        await live.start_bot()
        await make_video("After it was started again.")
        assert live.created_count() == 3
        logged = live.log_file.read_text()
    assert "a newer version has added to the tables" in logged
    assert not re.search("level=(error|critical)", logged), logged


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
