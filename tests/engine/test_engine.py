"""Writes of the engine while it is being stopped."""

import asyncio
import contextlib
import random
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from bot.model import Failure, Job
from bot.store import Store
from bot.tasks import PartFailed
from bot.timings import Timings
from tests.engine.test_service_outage import ask
from tests.engine.test_turns import MANY, held_back, send_many
from tests.store.test_store import NOW, claim, submit
from tests.store.test_store import TIMINGS as STORE_TIMINGS
from tests.world import World

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
    part: str, quiet: World, caplog: pytest.LogCaptureFixture
) -> None:
    async with quiet.running_bot():
        [task] = [task for task in asyncio.all_tasks() if task.get_name() == part]
        task.cancel()
        assert f"its {part} ended" in str(await failure_of(quiet))
    assert "a part of the bot ended" in caplog.text


async def test_the_process_ends_with_a_sentence_and_an_exit_code(
    quiet: World, tmp_path: Path
) -> None:
    program = """
import asyncio, sys
from bot.__main__ import main
from bot.timings import SystemClock

async def wait(self, event, until=None):
    raise RuntimeError("the clock is broken")

SystemClock.wait = wait
sys.exit(main(["serve"]))
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program,
        env={"PYTHONPATH": str(Path(__file__).parent.parents[1]), **quiet.environment("0")},
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


LONG = timedelta(minutes=1)
SHORT = timedelta(milliseconds=50)


async def test_nothing_is_created_or_posted_while_requests_follow_each_other(quiet: World) -> None:
    quiet.pauses = {"request_pause": LONG, "max_request_delay": LONG}
    async with quiet.running_bot() as bot:
        await ask(quiet, quiet.ana)
        for _ in range(50):
            assert (await quiet.ben.command("/video", "help")).ok
        assert (quiet.created_count(), quiet.posts()) == (0, [])
        found = await bot.store.jobs.list_for_user(quiet.ana.user.id, "video", 1)
        assert [job.attempts for job in found] == [0]


async def test_a_stop_does_not_wait_until_no_more_requests_come(quiet: World) -> None:
    quiet.pauses = {"request_pause": LONG, "max_request_delay": LONG}
    async with asyncio.timeout(LONG.total_seconds() / 2), quiet.running_bot():
        await ask(quiet, quiet.ana)
        # The worker wakes up for the job, and waits.
        await asyncio.sleep(0)


async def test_requests_delay_background_work_only_for_a_while(quiet: World) -> None:
    quiet.pauses = {"request_pause": LONG, "max_request_delay": SHORT}
    async with quiet.running_bot():
        await quiet.after(ask(quiet, quiet.ana))
        assert (quiet.created_count(), len(quiet.posts())) == (1, 1)


@contextlib.asynccontextmanager
async def requests_waiting(world: World, count: int) -> AsyncIterator[None]:
    """Have requests of Ben's wait for an answer meanwhile: Slack opens no form for them."""
    waiting, all_wait, released = 0, asyncio.Event(), asyncio.Event()

    async def hold(when: str, method: str, _: object) -> None:
        nonlocal waiting
        if (when, method) == ("before", "views.open"):
            waiting += 1
            if waiting == count:
                all_wait.set()
            await released.wait()

    world.slack.on_request = hold
    requests = asyncio.gather(*(world.ben.command("/video") for _ in range(count)))
    try:
        await all_wait.wait()
        yield
    finally:
        released.set()
        await requests
        world.slack.on_request = None


@pytest.mark.parametrize(("requests", "begun"), [(1, 16), (2, 8), (40, 4)])
async def test_the_more_requests_wait_the_fewer_steps_begin_at_a_time(
    requests: int, begun: int, quiet: World
) -> None:
    quiet.timings = replace(quiet.timings, view_timeout=LONG)
    # From one claim to the next, while requests wait.
    quiet.pauses = {"request_pause": SHORT, "max_request_delay": timedelta(seconds=5)}
    async with quiet.running_bot(callbacks=False):
        await quiet.after(send_many(quiet, quiet.ana))
        async with requests_waiting(quiet, requests):
            with held_back(quiet, "read_video") as gate:
                quiet.clock.set(quiet.clock.now() + timedelta(minutes=1))
                await gate.until("read_video", begun)
                assert (await quiet.ana.command("/video", "help")).ok
                assert gate.arrived["read_video"] == begun
        await quiet.settle()


async def test_however_many_requests_wait_all_work_is_done(quiet: World) -> None:
    quiet.timings = replace(quiet.timings, view_timeout=LONG)
    quiet.pauses = {"request_pause": LONG, "max_request_delay": timedelta(milliseconds=5)}
    async with quiet.running_bot(callbacks=False):
        await send_many(quiet, quiet.ana)
        async with requests_waiting(quiet, 70):
            await quiet.settle()
            assert (quiet.created_count(), len(quiet.posts())) == (MANY, MANY)


MINUTE = timedelta(minutes=1)
ACCOUNT = (Failure.KEY_REJECTED, Failure.OUT_OF_CREDIT)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with Store.open(tmp_path / "bot.db", STORE_TIMINGS) as store:
        yield store


async def released(store: Store, key: str, **changes: object) -> str:
    """Store a job that is due in five minutes; return its id."""
    await submit(store, key)
    job: Job = await claim(store)
    assert await store.jobs.release(replace(job, **changes), NOW, NOW + 5 * MINUTE)  # type: ignore[arg-type]
    return job.id


async def due(store: Store, within: timedelta) -> set[str]:
    return {job.id for job in await store.jobs.claim(NOW + within, 1000)}


async def test_jobs_whose_call_failed_or_was_held_back_are_due_within_seconds(store: Store) -> None:
    failed = await released(store, "V1", failures=4)
    held = await released(store, "V2", held_by=Failure.OUT_OF_CREDIT, held_until=NOW + 10 * MINUTE)
    await released(store, "V3")

    assert await store.jobs.hasten(NOW, ACCOUNT) == 2
    assert await store.jobs.hasten(NOW, ACCOUNT) == 0

    assert await due(store, STORE_TIMINGS.hasten_within) == {failed, held}


async def test_many_jobs_are_not_all_due_at_the_same_moment(store: Store) -> None:
    for number in range(30):
        await released(store, f"V{number}", failures=2)
    assert await store.jobs.hasten(NOW, ACCOUNT) == 30
    assert 0 < len(await due(store, timedelta(0))) <= 3
    assert len(await due(store, STORE_TIMINGS.hasten_within)) >= 27


async def test_a_job_that_a_worker_holds_is_left_alone(store: Store) -> None:
    await released(store, "V1", failures=2)
    [job] = await store.jobs.claim(NOW + 5 * MINUTE, 1)
    assert await store.jobs.hasten(NOW, ACCOUNT) == 0
    assert await store.jobs.release(job, NOW, NOW + MINUTE)
