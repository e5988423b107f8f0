"""Commands on the database: what they ask for, and what they do where a bot has it."""

import asyncio
import re
import shlex
import signal
import sys
from pathlib import Path

import pexpect
import pytest

from bot.store.sqlite import FileLock
from tests.databases import STEPS
from tests.modes import on_sqlite_alone
from tests.ops.test_command_line import bot, files_in
from tests.ops.typist import at_terminal, environment
from tests.processes_of_commands import started
from tests.world import World

# Less than the time for which another process is waited for.
_AT_ONCE_S = 8.0


def url(path: Path) -> dict[str, str]:
    return {"DATABASE_URL": f"sqlite:///{path}"}


async def test_migrate_needs_no_other_setting_than_the_database(tmp_path: Path) -> None:
    path = tmp_path / "bot.db"
    environ = url(path) | {"VIDEO_API_URL": "foo", "DYNO": "run.1", "PORT": "http"}
    check = await bot("migrate", "--check", environ=environ, folder=tmp_path)
    assert (check.code, check.out) == (1, f"pending: {', '.join(STEPS)}\n")
    assert f"{path} does not exist yet" in check.err
    assert "python -m bot migrate" in check.err
    assert files_in(tmp_path) == []
    done = await bot("migrate", environ=environ, folder=tmp_path)
    assert (done.code, done.out) == (0, f"applied: {', '.join(STEPS)}\n")
    assert done.err == f"{path} is new.\n", "nobody migrates the wrong file unawares"
    for arguments in (("migrate",), ("migrate", "--check")):
        again = await bot(*arguments, environ=environ, folder=tmp_path)
        assert (again.code, again.out, again.err) == (0, "the database is up to date\n", "")
    wrong = await bot("migrate", environ={"DATABASE_URL": "bot.db"}, folder=tmp_path)
    assert wrong.code == 1
    assert "DATABASE_URL is no database" in wrong.err
    assert "start" not in wrong.err


@on_sqlite_alone
@pytest.mark.parametrize(
    ("arguments", "number", "code"),
    [
        (("serve",), signal.SIGTERM, 0),
        (("serve",), signal.SIGINT, 0),
        (("migrate",), signal.SIGINT, 130),
        (("migrate",), signal.SIGTERM, -signal.SIGTERM),
    ],
)
async def test_a_command_that_waits_for_another_process_says_so_and_can_be_ended(
    arguments: tuple[str, ...], number: signal.Signals, code: int, quiet_world: World
) -> None:
    world = quiet_world
    lock = FileLock(world.database)
    folder = world.database.parent
    try:
        async with started(*arguments, environ=world.environment("0"), folder=folder) as command:
            said = await command.until("waiting for another process to close the database")
            assert "at_most_s=10" in said
            async with asyncio.timeout(_AT_ONCE_S):
                command.process.send_signal(number)
                assert await command.ended() == code
        assert "Traceback" not in command.printed
        assert not world.database.exists()
    finally:
        lock.release()


async def test_a_long_command_shows_on_a_terminal_how_far_it_is_and_says_at_the_end(
    tmp_path: Path,
) -> None:
    environ = url(tmp_path / "bot.db")
    await bot("migrate", environ=environ, folder=tmp_path)
    with at_terminal(tmp_path, "backup", "copy.db", **environ) as typist:
        await typist.sees("pages")
        await typist.sees("and checked the copy")
        assert await typist.ends() == 0
    assert re.search(r"copying: \d+ of \d+ pages", typist.shown)
    shell = f"{shlex.quote(sys.executable)} -m bot export audit > {tmp_path / 'audit.csv'}"
    child = pexpect.spawn(
        "/bin/sh", ["-c", shell], cwd=tmp_path, env=environment(tmp_path, environ)
    )
    child.expect("exported 0 records of audit to standard output")
    child.close(force=True)
