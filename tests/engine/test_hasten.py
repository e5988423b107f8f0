"""Jobs that wait for the service are made due when it answers again, and no others."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from bot.model import Failure, Job
from bot.store import Store
from tests.store.test_store import NOW, TIMINGS, claim, submit

MINUTE = timedelta(minutes=1)
ACCOUNT = (Failure.KEY_REJECTED, Failure.OUT_OF_CREDIT)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with Store.open(tmp_path / "bot.db", TIMINGS) as store:
        yield store


async def released(store: Store, key: str, **changes: object) -> str:
    """Store a job that is due in five minutes; return its id."""
    await submit(store, key)
    job: Job = await claim(store)
    assert await store.jobs.release(replace(job, **changes), NOW, NOW + 5 * MINUTE)  # type: ignore[arg-type]
    return job.id


async def due(store: Store, within: timedelta) -> set[str]:
    return {job.id for job in await store.jobs.claim(NOW + within, 1000)}


async def test_jobs_whose_call_failed_or_was_held_back_are_due_within_seconds(
    store: Store,
) -> None:
    failed = await released(store, "V1", failures=4)
    held = await released(store, "V2", held_by=Failure.OUT_OF_CREDIT, held_until=NOW + 10 * MINUTE)
    await released(store, "V3")

    assert await store.jobs.hasten(NOW, ACCOUNT) == 2
    assert await store.jobs.hasten(NOW, ACCOUNT) == 0

    assert await due(store, TIMINGS.hasten_within) == {failed, held}


async def test_many_jobs_are_not_all_due_at_the_same_moment(store: Store) -> None:
    for number in range(30):
        await released(store, f"V{number}", failures=2)
    assert await store.jobs.hasten(NOW, ACCOUNT) == 30
    assert 0 < len(await due(store, timedelta(0))) <= 3
    assert len(await due(store, TIMINGS.hasten_within)) >= 27


async def test_a_job_that_a_worker_holds_is_left_alone(store: Store) -> None:
    await released(store, "V1", failures=2)
    [job] = await store.jobs.claim(NOW + 5 * MINUTE, 1)
    assert await store.jobs.hasten(NOW, ACCOUNT) == 0
    assert await store.jobs.release(job, NOW, NOW + MINUTE)
