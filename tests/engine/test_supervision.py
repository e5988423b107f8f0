"""A part of the bot that ends by itself ends the whole process, with a reason."""

import asyncio
import sys
from pathlib import Path

import pytest

from bot.store import DatabaseError
from bot.tasks import PartFailed
from tests.modes import on_sqlite_alone
from tests.world import World

PARTS = ("engine", "messenger", "sweep", "database", "web server")
# In seconds: it never takes that long unless the bot hangs.
TIMEOUT = 20.0


async def failure_of(world: World) -> PartFailed:
    """Run the bot until it fails, and return its reason."""
    with pytest.raises(PartFailed) as failed:
        async with asyncio.timeout(TIMEOUT):
            await world.bot.run_until(asyncio.Event())
    return failed.value


@pytest.mark.parametrize("part", PARTS)
async def test_a_task_that_ends_without_an_error_ends_the_bot(
    part: str, quiet_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async with quiet_world.running_bot():
        [task] = [task for task in asyncio.all_tasks() if task.get_name() == part]
        task.cancel()
        assert f"its {part} ended" in str(await failure_of(quiet_world))
    assert "a part of the bot ended" in caplog.text


async def test_the_process_ends_with_a_sentence_and_an_exit_code(
    quiet_world: World, tmp_path: Path
) -> None:
    program = """
import asyncio, sys
from bot.__main__ import main
from bot.clock import SystemClock

async def wait(self, event, until=None):
    raise RuntimeError("the clock is broken")

SystemClock.wait = wait
sys.exit(main(["serve"]))
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program,
        env={"PYTHONPATH": str(Path(__file__).parent.parents[1]), **quiet_world.environment("0")},
        cwd=tmp_path,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(3 * TIMEOUT):
        _, printed = await process.communicate()
    lines = printed.decode().splitlines()
    assert process.returncode == 1
    assert lines[-1].startswith("The bot ends, because its ")
    # The log has the traceback, in one line.
    assert not any(line.startswith("Traceback") for line in lines)
    assert any("level=error" in line and "the clock is broken" in line for line in lines)


@on_sqlite_alone
async def test_the_end_of_the_task_that_owns_the_database_ends_the_bot(
    quiet_world: World,
) -> None:
    async with quiet_world.running_bot() as bot:
        [committer] = [
            task for task in asyncio.all_tasks() if "_commit_groups" in str(task.get_coro())
        ]
        committer.cancel()
        with pytest.raises(DatabaseError, match="Restart the bot"):
            async with asyncio.timeout(TIMEOUT):
                await bot.run_until(asyncio.Event())
        # No caller waits for an answer that never comes.
        with pytest.raises(DatabaseError):
            async with asyncio.timeout(TIMEOUT):
                await bot.store.database.check()
