"""What happens in Slack after a backup is not done a second time once that is restored."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from bot.store.backup import back_up
from sandbox.faults import CannedResponse, Reset
from sandbox.scenarios import CallbackPlan
from sandbox.slack_objects import Message
from tests.journeys.test_shared_files import COMPLETE, GET_URL, asks, shared
from tests.modes import on_sqlite_alone
from tests.ops.test_backup import restore
from tests.ops.test_command_line import bot
from tests.postgres import database_url, empty_database_url
from tests.postgres_server import installed
from tests.processes_of_commands import ROOT
from tests.world import REPLICA, World, buttons_of

_LIMITED = CannedResponse(429, {"ok": False, "error": "ratelimited"}, {"Retry-After": "60"})


async def back(world: World, folder: Path) -> Path:
    """Back up the database of the running bot."""
    backup = folder / "backup.db"
    await world.settle()
    back_up(world.database, backup, world.clock.now(), replace=True)
    return backup


def texts(world: World) -> list[str]:
    return [each.text for each in world.posts()]


def labels(message: Message) -> list[str]:
    return [each["text"]["text"] for each in buttons_of(message.blocks)]


@on_sqlite_alone
async def test_what_was_posted_after_a_backup_is_found_and_not_posted_again(
    quiet: World, tmp_path: Path
) -> None:
    quiet.service.callback_plan = CallbackPlan(times=0)
    async with quiet.running_bot(MAX_SCRIPT="20000"):
        running = await quiet.request_video(quiet.ana, {"script": "Runs meanwhile."})
        await asks(quiet)  # its transcript will be a file
        quiet.slack.faults.next("chat.postMessage", _LIMITED)
        await quiet.submit_form(quiet.ana, {"replica_id": REPLICA, "script": "Has no card yet."})
        backup = await back(quiet, tmp_path)
        assert len(quiet.posts()) == 2
        await quiet.advance(minutes=10)
        before = texts(quiet)
        assert len([each for each in before if "is ready" in each]) == 3
        [file] = shared(quiet)
    for _ in "restored", "and restored once more":
        restore(backup, quiet.database)
        async with quiet.running_bot(MAX_SCRIPT="20000"):
            await quiet.settle()
            await quiet.advance(minutes=10)
            assert texts(quiet) == before
            assert "Ready" in quiet.now(running).text
            assert shared(quiet) == [file]


@on_sqlite_alone
async def test_a_question_that_was_settled_after_a_backup_has_its_buttons_again(
    quiet: World, tmp_path: Path
) -> None:
    async with quiet.running_bot(callbacks=False):
        quiet.service.faults.next("create_video", Reset(done=True))
        card = await quiet.request_video(quiet.ana)
        asked = quiet.question(card)
        backup = await back(quiet, tmp_path)
        await quiet.after(quiet.ana.click(asked, "Create again"), minutes=10)
        assert "Ready" in quiet.now(card).text
        assert labels(quiet.now(asked)) == []
        before, made = texts(quiet), len(quiet.requests_for("create_video"))
    restore(backup, quiet.database)
    async with quiet.running_bot(callbacks=False):
        await quiet.advance(minutes=10)
        assert "Needs an answer" in quiet.now(card).text
        assert "Create again" in labels(quiet.now(asked))
        assert len(texts(quiet)) == len(before)
        assert len(quiet.requests_for("create_video")) == made == 2
        await quiet.after(quiet.ana.click(quiet.question(card), "Cancel request"), minutes=10)
        assert "Cancelled" in quiet.now(card).text


@on_sqlite_alone
@pytest.mark.parametrize("step", ["mark", "share"])
async def test_a_file_that_may_be_shared_since_the_backup_is_not_shared_twice(
    step: str, quiet: World, tmp_path: Path
) -> None:
    async with quiet.running_bot(MAX_SCRIPT="20000"):
        await asks(quiet)
        quiet.slack.faults.next({"mark": GET_URL, "share": COMPLETE}[step], _LIMITED)
        quiet.service.finish(next(iter(quiet.service.videos)))
        await quiet.advance(seconds=30)
        assert not shared(quiet)
        backup = await quiet.after(back(quiet, tmp_path), minutes=10)
        [file] = shared(quiet)
        before = texts(quiet)
    restore(backup, quiet.database)
    async with quiet.running_bot(MAX_SCRIPT="20000"):
        await quiet.advance(hours=2)
        assert texts(quiet) == before
        assert shared(quiet) == [file]
        assert "The rest is under *Details*" in before[-2]


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
    databases: tuple[str, str], quiet: World, tmp_path: Path
) -> None:
    quiet.postgres_url, empty = databases
    quiet.service.callback_plan = CallbackPlan(times=0)
    (tmp_path / "bot").symlink_to(ROOT / "bot")
    dump, restore = documented()
    async with quiet.running_bot():
        await quiet.after(quiet.request_video(quiet.ana, {"script": "Ended before."}), minutes=10)
        running = await quiet.request_video(quiet.ana, {"script": "Runs meanwhile."})
        quiet.service.faults.next("create_video", CannedResponse(429, "", {"Retry-After": "60"}))
        card = await quiet.request_video(quiet.ana, {"script": "Waits to be created."})
        await shell(dump.replace(f"{_ADDRESS}new", quiet.postgres_url), tmp_path)
        await quiet.advance(minutes=10)
        before = [each.text for each in quiet.posts()]
    made = len(quiet.requests_for("create_video"))
    assert made == 4, "one was refused, three are made"

    await shell(restore.replace(f"{_ADDRESS}restored", empty), tmp_path)
    quiet.postgres_url = empty
    async with quiet.running_bot():
        await quiet.settle()
        await quiet.advance(hours=2)
        assert len(quiet.requests_for("create_video")) == made, "nobody pays twice"
        assert "Ready" in quiet.now(running).text
        assert len(quiet.replies(running)) == 1
        # Only a person can say what the service has made of it, as after a lost answer.
        assert "Needs an answer" in quiet.now(card).text
        assert len(quiet.posts()) == len(before) + 1, "the question is new"


async def test_the_command_for_a_backup_names_pg_dump(tmp_path: Path) -> None:
    environ = {"DATABASE_URL": "postgresql://bot:secret@127.0.0.1:1/bot"}
    refused = await bot("backup", "backup.db", environ=environ, folder=tmp_path)
    assert (refused.code, refused.out) == (1, "")
    assert "backed up with pg_dump" in refused.err
