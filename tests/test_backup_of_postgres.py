"""Backups of a PostgreSQL database: made while the bot runs, and safe to restore."""

import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.store.move import move
from sandbox.faults import CannedResponse
from sandbox.scenarios import CallbackPlan
from tests.postgres import database_url, empty_database_url
from tests.test_backup import states
from tests.test_command_line import bot, files_in
from tests.world import World


@pytest.fixture
def databases() -> Iterator[tuple[str, str]]:
    """Return the URLs of a database with tables and of one without."""
    with database_url() as used, empty_database_url() as empty:
        yield used, empty


async def test_what_was_created_after_a_backup_is_not_created_again_once_it_is_restored(
    databases: tuple[str, str], quiet_world: World, tmp_path: Path
) -> None:
    world, backup = quiet_world, tmp_path / "backup.db"
    world.postgres_url, empty = databases
    world.service.callback_plan = CallbackPlan(times=0)
    async with world.running_bot():
        await world.request_video(world.ana, {"script": "Ended before."})
        await world.advance(minutes=10)
        running = await world.request_video(world.ana, {"script": "Runs meanwhile."})
        world.service.faults.next("create_video", CannedResponse(429, "", {"Retry-After": "60"}))
        card = await world.request_video(world.ana, {"script": "Waits to be created."})
        environ = {"DATABASE_URL": world.postgres_url.replace("postgres@", "postgres:secret@")}
        done = await bot("backup", str(backup), environ=environ, folder=tmp_path)
        assert (done.code, done.err) == (0, "")
        assert done.out.startswith("copied postgresql:///test")
        assert "secret" not in done.out
        assert files_in(tmp_path) == [backup]
        assert stat.S_IMODE(backup.stat().st_mode) == 0o600
        with sqlite3.connect(backup) as db:
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        db.close()
        # One that was queued counts as begun.
        assert sorted(states(backup)) == ["creating", "running", "succeeded"]
        await world.advance(minutes=10)
        before = [each.text for each in world.posts()]
    made = len(world.requests_for("create_video"))
    assert made == 4, "one was refused, three are made"

    move(backup, empty)
    world.postgres_url = empty
    async with world.running_bot():
        await world.settle()
        await world.advance(hours=2)
        assert len(world.requests_for("create_video")) == made, "nobody pays twice"
        assert "Ready" in world.now(running).text
        assert len(world.replies(running)) == 1
        # Only a person can say what the service has made of it, as after a lost answer.
        assert "Your answer is needed" in world.now(card).text
        assert len(world.posts()) == len(before) + 1, "the question is new"
