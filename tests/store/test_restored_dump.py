"""Dumps of a PostgreSQL database: safe to restore, as docs/postgresql.md says."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from sandbox.faults import CannedResponse
from sandbox.scenarios import CallbackPlan
from tests.ops.test_command_line import bot
from tests.postgres import database_url, empty_database_url
from tests.postgres_server import installed
from tests.processes_of_commands import ROOT
from tests.world import World

_ADDRESS: Final = "postgresql://bot:PASSWORD@db.example.com/"
_SHELL: Final = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def databases() -> Iterator[tuple[str, str]]:
    """Return the URLs of a database with tables and of one without."""
    with database_url() as used, empty_database_url() as empty:
        yield used, empty


def documented() -> list[str]:
    """Return the commands that docs/postgresql.md has for a backup and for restoring it."""
    text = (ROOT / "docs/postgresql.md").read_text().partition("## Back up and restore")[2]
    return _SHELL.findall(text)


async def shell(script: str, folder: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        "bash",
        *("-e", "-c", script),
        env={"PATH": f"{installed() / 'bin'}:/usr/bin:/bin"},
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0, printed


async def test_what_was_created_after_a_dump_is_not_created_again_once_it_is_restored(
    databases: tuple[str, str], quiet_world: World, tmp_path: Path
) -> None:
    world = quiet_world
    world.postgres_url, empty = databases
    world.service.callback_plan = CallbackPlan(times=0)
    (tmp_path / "bot").symlink_to(ROOT / "bot")
    dump, restore = documented()
    async with world.running_bot():
        await world.request_video(world.ana, {"script": "Ended before."})
        await world.advance(minutes=10)
        running = await world.request_video(world.ana, {"script": "Runs meanwhile."})
        world.service.faults.next("create_video", CannedResponse(429, "", {"Retry-After": "60"}))
        card = await world.request_video(world.ana, {"script": "Waits to be created."})
        await shell(dump.replace(f"{_ADDRESS}new", world.postgres_url), tmp_path)
        await world.advance(minutes=10)
        before = [each.text for each in world.posts()]
    made = len(world.requests_for("create_video"))
    assert made == 4, "one was refused, three are made"

    await shell(restore.replace(f"{_ADDRESS}restored", empty), tmp_path)
    world.postgres_url = empty
    async with world.running_bot():
        await world.settle()
        await world.advance(hours=2)
        assert len(world.requests_for("create_video")) == made, "nobody pays twice"
        assert "Ready" in world.now(running).text
        assert len(world.replies(running)) == 1
        # Only a person can say what the service has made of it, as after a lost answer.
        assert "Needs an answer" in world.now(card).text
        assert len(world.posts()) == len(before) + 1, "the question is new"


async def test_the_command_for_a_backup_names_pg_dump(tmp_path: Path) -> None:
    environ = {"DATABASE_URL": "postgresql://bot:secret@127.0.0.1:1/bot"}
    refused = await bot("backup", "backup.db", environ=environ, folder=tmp_path)
    assert (refused.code, refused.out) == (1, "")
    assert "backed up with pg_dump" in refused.err
