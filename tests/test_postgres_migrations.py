"""Migrations on PostgreSQL: started by several at once, cut off, held up, and of other versions."""

import contextlib
import os
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import psycopg
import pytest

from bot.store import DatabaseError, DatabaseUnavailable, postgres_migrations
from bot.store.engines import pending_migrations
from bot.store.postgres_migrations import POSTGRES_MIGRATIONS, migrate
from bot.store.sqlite import migrate as migrate_sqlite
from tests.postgres import empty_database_url
from tests.test_command_line import bot

NAMES: Final = sorted(file.stem for file in POSTGRES_MIGRATIONS.glob("*.sql"))
_STARTS: Final = 4


@pytest.fixture
def empty_url() -> Iterator[str]:
    """Return the URL of a database without tables."""
    with empty_database_url() as url:
        yield url


def ask(url: str, query: str) -> list[tuple[object, ...]]:
    limits = "-c lock_timeout=5000"
    with psycopg.connect(url, autocommit=True, options=limits) as connection:
        cursor = connection.execute(query.encode())
        return cursor.fetchall() if cursor.description else []


@contextlib.contextmanager
def newer_version(monkeypatch: pytest.MonkeyPatch, folder: Path, sql: str) -> Iterator[str]:
    """Have one migration more, and yield its name."""
    for file in POSTGRES_MIGRATIONS.glob("*.sql"):
        shutil.copy(file, folder)
    (folder / "9998_newer.sql").write_text(sql)
    with monkeypatch.context() as newer:
        newer.setattr(postgres_migrations, "POSTGRES_MIGRATIONS", folder)
        yield "9998_newer"


@pytest.mark.parametrize(
    "table",
    [
        "CREATE TABLE replicas (number INTEGER)",
        "CREATE TABLE migrations (number INTEGER, migration TEXT)",
    ],
)
def test_a_database_of_another_program_is_left_as_it_is(empty_url: str, table: str) -> None:
    ask(empty_url, table)
    belongs = rf"belongs to another program: it has a table {table.split()[2]} that"
    for use in (migrate, pending_migrations):
        with pytest.raises(DatabaseError, match=belongs):
            use(empty_url)
    assert len(ask(empty_url, "SELECT 1 FROM pg_tables WHERE schemaname = 'public'")) == 1


def test_a_database_that_cannot_hold_every_text_is_refused(empty_url: str) -> None:
    name = f"latin{os.getpid()}"
    ask(empty_url, f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    before, _, after = empty_url.partition("?")
    url = f"{before.rpartition('/')[0]}/{name}?{after}"
    try:
        for use in (migrate, pending_migrations):
            with pytest.raises(
                DatabaseError, match=r"encoding is LATIN1.*create one with ENCODING"
            ):
                use(url)
        assert ask(url, "SELECT 1 FROM pg_tables WHERE schemaname = 'public'") == []
    finally:
        ask(empty_url, f"DROP DATABASE {name} WITH (FORCE)")


def test_several_that_start_at_once_apply_each_migration_once(empty_url: str) -> None:
    at_once = threading.Barrier(_STARTS)

    def start(_: int) -> list[str]:
        at_once.wait()
        return migrate(empty_url)

    with ThreadPoolExecutor(_STARTS) as starts:
        applied = [name for names in starts.map(start, range(_STARTS)) for name in names]
    assert sorted(applied) == NAMES
    assert migrate(empty_url) == []


def test_a_migration_that_is_cut_off_changes_nothing_and_is_applied_by_the_next_start(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = "ALTER TABLE jobs ADD COLUMN newer TEXT; SELECT pg_sleep(CASE WHEN {} THEN 60 END);"
    has_column = "SELECT 1 FROM information_schema.columns WHERE column_name = 'newer'"
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    with (
        newer_version(monkeypatch, tmp_path, sql.format("true")),
        ThreadPoolExecutor(1) as thread,
    ):
        start = thread.submit(migrate, postgres_url)
        while not ask(postgres_url, cut):
            assert not start.done(), start.result()
        with pytest.raises(DatabaseError):
            start.result()
    assert ask(postgres_url, has_column) == []
    with newer_version(monkeypatch, tmp_path, sql.format("false")) as name:
        assert migrate(postgres_url) == [name]
    assert ask(postgres_url, has_column)


def test_a_migration_gives_way_to_those_who_use_the_tables(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_migrations, "_LOCK_TIMEOUT_MS", 100)
    with (
        newer_version(monkeypatch, tmp_path, "ALTER TABLE jobs ADD COLUMN newer TEXT") as name,
        psycopg.connect(postgres_url) as reader,
    ):
        reader.execute("SELECT count(*) FROM jobs")  # and its transaction stays open
        # The start tries again later; nobody waits behind it meanwhile.
        with pytest.raises(DatabaseUnavailable, match="open for long, and end it"):
            migrate(postgres_url)
        assert ask(postgres_url, "SELECT count(*) FROM jobs") == [(0,)]
        reader.rollback()
        assert migrate(postgres_url) == [name]


_MARK: Final = "INSERT INTO migrations VALUES ('{}', 'of another version')"


async def test_an_older_version_goes_on_with_what_only_adds_and_refuses_what_takes_away(
    postgres_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "bot.db"
    await migrate_sqlite(path)

    def change(sql: str) -> None:
        ask(postgres_url, sql)
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.executescript(sql)

    async def starts() -> list[list[str]]:
        return [migrate(postgres_url), await migrate_sqlite(path)]

    change("ALTER TABLE jobs ADD COLUMN newer TEXT")
    change(_MARK.format("9998_newer"))
    assert await starts() == [[], []]
    warned = [record for record in caplog.records if "newer" in record.getMessage()]
    assert len(warned) == 2
    assert {vars(record)["migration"] for record in warned} == {"9998_newer"}
    change("ALTER TABLE jobs DROP COLUMN newer")
    change(_MARK.format("9999_newer_contract"))
    for _ in "PostgreSQL", "SQLite":
        with pytest.raises(DatabaseError, match=r"newer version \(it has 9999_newer_contract\): "):
            await starts()
        ask(postgres_url, "DELETE FROM migrations WHERE name > '9998'")
    ask(postgres_url, _MARK.format("0005_other"))
    with pytest.raises(DatabaseError, match=r"it has 0005_other"):
        migrate(postgres_url)


async def test_migrate_says_the_same_as_on_sqlite(empty_url: str, tmp_path: Path) -> None:
    environ = {"DATABASE_URL": empty_url.replace("postgresql://", "postgres://")}
    check = await bot("migrate", "--check", environ=environ, folder=tmp_path)
    assert (check.code, check.out) == (1, f"pending: {', '.join(NAMES)}\n")
    assert "Start the bot, or run python -m bot migrate." in check.err
    done = await bot("migrate", environ=environ, folder=tmp_path)
    assert (done.code, done.out, done.err) == (0, f"applied: {', '.join(NAMES)}\n", "")
    for arguments in (("migrate",), ("migrate", "--check")):
        again = await bot(*arguments, environ=environ, folder=tmp_path)
        assert (again.code, again.out, again.err) == (0, "the database is up to date\n", "")
