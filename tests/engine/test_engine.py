"""Writes of the engine while it is being stopped."""

import asyncio
import random
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from bot.engine.steps import uncancelled
from bot.store import DatabaseError
from bot.tasks import PartFailed
from bot.timings import Timings
from tests.modes import on_sqlite_alone
from tests.world import World


class Write:
    """A write that ends on request."""

    def __init__(self) -> None:
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()
        self.done = False

    async def run(self) -> bool:
        """Write."""
        self.begun.set()
        await self.may_end.wait()
        self.done = True
        return True


async def test_the_write_of_an_outcome_ends_although_its_step_is_cancelled() -> None:
    write = Write()
    step = asyncio.create_task(uncancelled(write.run()))  # noqa: TID251 - awaited below
    await write.begun.wait()
    step.cancel()
    await asyncio.sleep(0)
    assert not step.done()

    write.may_end.set()

    with pytest.raises(asyncio.CancelledError):
        await step
    assert write.done


PARTS = ("engine", "messenger", "sweep", "database")
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
async def test_the_end_of_the_task_that_owns_the_database_ends_the_bot(quiet_world: World) -> None:
    async with quiet_world.running_bot() as bot:
        checking = asyncio.ensure_future(bot.store.database.check())  # noqa: TID251 - awaited below
        await asyncio.sleep(0)
        [worker] = bot.store.database._workers
        worker.cancel()
        with pytest.raises(DatabaseError, match="Restart the bot"):
            async with asyncio.timeout(TIMEOUT):
                await bot.run_until(asyncio.Event())
        # No caller waits for an answer that never comes.
        for check in (checking, bot.store.database.check()):
            with pytest.raises(DatabaseError):
                async with asyncio.timeout(TIMEOUT):
                    await check


TIMINGS = Timings(jitter=0.1)


def test_a_lease_outlasts_what_takes_longest() -> None:
    assert max(TIMINGS.transfer_timeout, TIMINGS.call_timeout) < TIMINGS.lease


def test_waits_of_any_length_are_spread_and_none_is_beyond_the_longest(
    subtests: pytest.Subtests,
) -> None:
    for wait in [timedelta(seconds=2), TIMINGS.max_wait, 3 * TIMINGS.max_wait]:
        with subtests.test(wait=wait):
            rng = random.Random(1)  # noqa: S311 - the same each time

            waits = [TIMINGS.jittered(wait, rng) for _ in range(200)]

            longest = min(1.1 * wait, TIMINGS.max_wait)
            assert longest / 1.1 - timedelta(milliseconds=1) <= min(waits)
            assert max(waits) <= longest
            # They come over the whole tenth, also where all would be at the limit.
            assert max(waits) - min(waits) > 0.08 * longest
            assert len(set(waits)) > 190
