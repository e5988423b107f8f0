"""A SQLite database that is moved to PostgreSQL: everything goes on there, and nothing twice."""

import asyncio
import contextlib
import os
import signal
import sqlite3
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from bot.store import DatabaseError
from bot.store.migrate import steps
from bot.store.move import TABLES, move
from bot.store.postgres.engine import migrate as migrate_postgres
from bot.store.sqlite import TABLES as ALL_TABLES
from bot.store.sqlite import FileLock
from sandbox.faults import CannedResponse
from sandbox.scenarios import CallbackPlan
from tests.databases import migrate
from tests.modes import on_sqlite_alone
from tests.ops.test_backup import states
from tests.ops.test_command_line import bot, files_in
from tests.postgres_proxy import Fault, PostgresProxy
from tests.processes_of_commands import started
from tests.store.test_migrations import next_migrations
from tests.store.test_storage import many_jobs
from tests.world import World

_LIMITED: Final = CannedResponse(429, "", {"Retry-After": "60"})


def in_file(path: Path, query: str) -> list[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        return [tuple(row) for row in db.execute(query)]


def on_server(url: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as db:
        cursor = db.execute(query.encode())
        return cursor.fetchall() if cursor.description else []


def content_of_file(path: Path) -> dict[str, list[str]]:
    return {each: _sorted(in_file(path, f"SELECT * FROM {each}")) for each in TABLES}  # noqa: S608


def content_of_server(url: str) -> dict[str, list[str]]:
    return {each: _sorted(on_server(url, f"SELECT * FROM {each}")) for each in TABLES}  # noqa: S608


def _sorted(rows: list[tuple[Any, ...]]) -> list[str]:
    return sorted(map(repr, rows))


@on_sqlite_alone
async def test_everything_goes_on_where_it_was_moved_to_and_nothing_is_made_twice(
    empty_url: str, quiet: World, tmp_path: Path
) -> None:
    quiet.service.callback_plan = CallbackPlan(times=0)
    async with quiet.running_bot():
        await quiet.after(quiet.request_video(quiet.ana, {"script": "Ended before."}), minutes=10)
        running = await quiet.request_video(quiet.ana, {"script": "Runs meanwhile."})
        quiet.service.faults.next("create_video", _LIMITED)
        queued = await quiet.request_video(quiet.ana, {"script": "Waits to be created."})
        source = f"sqlite:///{quiet.database}"
        command = ("move-database", source, empty_url.replace("postgres@", "postgres:secret@"))
        refused = await bot(*command, environ={}, folder=tmp_path)
        assert refused.code == 1
        assert "only one bot may run on a database" in refused.err
    before = content_of_file(quiet.database)

    moved = await bot(*command, environ={}, folder=tmp_path)
    assert (moved.code, moved.err) == (0, "")
    assert "3 requests (2 open), " in moved.out
    assert "Now set DATABASE_URL to the new database and start the bot." in moved.out
    assert f"Keep {quiet.database} as a backup: no bot starts on it anymore." in moved.out
    assert "secret" not in moved.out + refused.err
    assert content_of_server(empty_url) == before
    # A bot that is started on the old one says where everything is.
    with pytest.raises(DatabaseError, match="everything in this database was moved to postgres"):
        await migrate(quiet.database)
    again = await bot(*command, environ={}, folder=tmp_path)
    assert again.code == 1
    assert "everything in this database was moved to postgresql:///test" in again.err
    assert content_of_file(quiet.database) == before

    quiet.postgres_url = empty_url
    async with quiet.running_bot():
        await quiet.advance(minutes=10)
        assert "Ready" in quiet.now(running).text
        assert "Ready" in quiet.now(queued).text
        assert [len(quiet.replies(card)) for card in (running, queued)] == [1, 1]
        await quiet.request_video(quiet.ben, {"script": "Asked for there."})
        await quiet.advance(minutes=10)
        assert len(quiet.requests_for("create_video")) == 5, "one was refused, four are made"


async def test_a_target_that_is_not_empty_is_refused_and_left_as_it_is(
    empty_url: str, tmp_path: Path
) -> None:
    path = tmp_path / "bot.db"
    await migrate(path)
    on_server(empty_url, "CREATE TABLE theirs (id TEXT)")
    with pytest.raises(DatabaseError, match=r"TO is not empty: it has the table theirs\. Create"):
        move(path, empty_url)
    on_server(empty_url, "DROP TABLE theirs")
    migrate_postgres(empty_url)
    before = content_of_file(path), content_of_server(empty_url)
    with pytest.raises(DatabaseError, match="TO is not empty: it has the table answered_messages"):
        move(path, empty_url)
    assert (content_of_file(path), content_of_server(empty_url)) == before
    assert await migrate(path) == [], "it was not marked"


def test_all_tables_are_moved_each_after_those_that_it_refers_to() -> None:
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        for sql in steps("sqlite").values():
            db.executescript(sql)
        there = {name for (name,) in db.execute(ALL_TABLES)}
        assert sorted(TABLES) == sorted(there - {"migrations"})
        for at, table in enumerate(TABLES):
            keys = db.execute(f"PRAGMA foreign_key_list({table})").fetchall()
            assert {other for _, _, other, *_ in keys} <= {*TABLES[: at + 1]}


async def test_each_mistake_is_named_and_changes_nothing(empty_url: str, tmp_path: Path) -> None:
    path = tmp_path / "bot.db"
    await migrate(path)
    nothing = tmp_path / "nothing.db"
    nothing.touch()
    on_server(
        empty_url,
        "DROP ROLE IF EXISTS reader; CREATE ROLE reader LOGIN;"
        " REVOKE CREATE ON SCHEMA public FROM PUBLIC",
    )
    mistakes: list[tuple[Path, str, str]] = [
        (tmp_path / "none.db", empty_url, "is not there"),
        (nothing, empty_url, "nothing.db has no tables of the bot: name the database that it uses"),
        (
            path,
            "postgresql://bot:secret@127.0.0.1:1/bot",
            "the database server cannot be reached: start it, or correct the host and port in TO",
        ),
        (path, empty_url.replace("postgres@", "reader@"), "permission denied for schema public"),
    ]
    for source, target, says in mistakes:
        with pytest.raises(DatabaseError, match=says) as refused:
            move(source, target)
        assert "secret" not in str(refused.value)
    with (
        next_migrations(tmp_path / "newer", _9999_newer="CREATE INDEX newer ON jobs (channel)"),
        pytest.raises(DatabaseError, match="an older version made"),
    ):
        move(path, empty_url)
    lock = FileLock(path)
    with pytest.raises(DatabaseError, match="is in use by another process"):
        move(path, empty_url)
    lock.release()
    for arguments, says in [
        (("bot.db", "sqlite:///new.db"), "FROM is no database: it should look like"),
        (("sqlite:///bot.db", "mysql://x/y"), "TO is no database: it should look like"),
        (("sqlite:///bot.db", "sqlite:///new.db"), "it goes this way only"),
        ((empty_url, "sqlite:///new.db"), "it goes this way only"),
    ]:
        wrong = await bot("move-database", *arguments, environ={}, folder=tmp_path)
        assert (wrong.code, wrong.out) == (1, "")
        assert says in wrong.err
    assert sorted(files_in(tmp_path)) == sorted([path, nothing, tmp_path / "newer"])
    move(path, empty_url)


async def test_a_move_that_is_killed_leaves_the_target_empty_and_can_be_repeated(
    empty_url: str, tmp_path: Path
) -> None:
    path = tmp_path / "bot.db"
    await migrate(path)
    many_jobs(path, 10_000)
    copies = (
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'COPY%'"
    )
    arguments = ("move-database", f"sqlite:///{path}", empty_url)
    async with started(*arguments, environ={}, folder=tmp_path) as command:
        while not await asyncio.to_thread(on_server, empty_url, copies):
            assert command.process.returncode is None
        os.kill(command.process.pid, signal.SIGKILL)
        assert await command.ended() == -signal.SIGKILL
    while on_server(empty_url, copies):
        pass
    assert on_server(empty_url, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'") == []
    assert move(path, empty_url)["jobs"] == len(states(path)) == 10_000


async def test_a_move_whose_last_step_is_not_answered_says_so_and_leaves_the_old_one_usable(
    empty_url: str, tmp_path: Path
) -> None:
    path = tmp_path / "bot.db"
    await migrate(path)
    many_jobs(path, 3)
    committed = (
        "SELECT 1 FROM pg_stat_activity"
        " WHERE datname = current_database() AND state = 'idle' AND query = 'COMMIT'"
    )

    def jobs_there() -> list[tuple[Any, ...]]:
        return on_server(empty_url, "SELECT count(*) FROM jobs")

    async with PostgresProxy(empty_url).running() as proxy:
        # It is killed between the commit of the one and the mark of the other.
        proxy.fail_next("COMMIT\0", Fault.STALL)
        arguments = ("move-database", f"sqlite:///{path}", proxy.url)
        async with started(*arguments, environ={}, folder=tmp_path) as command:
            while not await asyncio.to_thread(on_server, empty_url, committed):
                assert command.process.returncode is None
            os.kill(command.process.pid, signal.SIGKILL)
            assert await command.ended() == -signal.SIGKILL
        await migrate(path)  # a bot may start on it
        with pytest.raises(DatabaseError, match=r"TO is not empty: it has .* or empty this one"):
            move(path, empty_url)
        assert jobs_there() == [(3,)]

        on_server(empty_url, "DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        proxy.fail_next("COMMIT\0", Fault.CUT_AFTER)
        with pytest.raises(DatabaseError, match=r"not known whether .* Empty TO, and run this"):
            await asyncio.to_thread(move, path, proxy.url)
        await migrate(path)
        on_server(empty_url, "DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        assert (await asyncio.to_thread(move, path, proxy.url))["jobs"] == 3


@on_sqlite_alone
async def test_new_rows_follow_the_highest_id_and_leases_of_a_killed_bot_are_over(
    world: World, empty_url: str, tmp_path: Path
) -> None:
    await world.request_video(world.ana)
    path = tmp_path / "bot.db"
    with contextlib.closing(sqlite3.connect(world.database)) as db:
        db.execute("VACUUM INTO ?", [str(path)])
    in_file(path, "UPDATE jobs SET claimed = 1, due_at = 9999999999999")
    in_file(path, "UPDATE deliveries SET id = id + 1000")
    move(path, empty_url)
    assert on_server(empty_url, "SELECT claimed, due_at FROM jobs") == [(0, 0)]
    [(highest,)] = on_server(empty_url, "SELECT max(id) FROM deliveries")
    insert = (
        "INSERT INTO deliveries (job_id, role, state, channel)"
        " SELECT id, 'x', 'pending', 'C' FROM jobs RETURNING id"
    )
    assert on_server(empty_url, insert) == [(highest + 1,)]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("reason = 'a' || char(0) || 'b'", "cannot hold a text in row {} of jobs"),
        ("params = CAST(x'7bff7d' AS TEXT)", "cannot hold a text in row {} of jobs"),
        ("due_at = 'y'", "a row of jobs has a text in the place of a number"),
    ],
)
async def test_what_postgresql_cannot_hold_is_named_and_nothing_is_moved(
    change: str, says: str, empty_url: str, tmp_path: Path
) -> None:
    path = tmp_path / "bot.db"
    await migrate(path)
    many_jobs(path, 2)
    [(damaged,)] = in_file(path, "SELECT max(id) FROM jobs")
    in_file(path, f"UPDATE jobs SET {change} WHERE id = '{damaged}'")  # noqa: S608
    with pytest.raises(DatabaseError, match=says.format(damaged)):
        move(path, empty_url)
    assert on_server(empty_url, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'") == []
    assert await migrate(path) == [], "it was not marked"
