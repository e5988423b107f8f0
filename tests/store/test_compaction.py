"""What is erased or deleted cannot be read in the bytes of the database either."""

import asyncio
import contextlib
import random
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from bot.model import Failure, State
from bot.store import Store
from bot.timings import Timings
from tests.modes import on_sqlite_alone
from tests.store.test_store import NOW, submit
from tests.world import World

pytestmark = on_sqlite_alone

SECRET = "A secret script"
LATER = NOW + timedelta(days=100)


def raw(path: Path) -> bytes:
    return b"".join(each.read_bytes() for each in path.parent.glob("bot.db*"))


@pytest.fixture
async def store(memory: Path) -> AsyncIterator[Store]:
    async with Store.open(memory / "bot.db", Timings()) as store:
        yield store


async def fill(store: Store, seed: int) -> None:
    """Submit and end jobs of many sizes, so that SQLite splits pages."""
    rng = random.Random(seed)  # noqa: S311 - for sizes
    for number in range(60):
        await submit(store, f"V{number}", f"{SECRET} {number:03}." * rng.randrange(1, 60))
        for job in await store.jobs.claim(NOW, rng.randrange(3)):
            ended = replace(job, state=State.FAILED, failure=Failure.REFUSED, reason="x" * 500)
            await store.jobs.finish(ended, NOW)
    for job in await store.jobs.claim(NOW, 100):
        await store.jobs.finish(replace(job, state=State.FAILED, failure=Failure.REFUSED), NOW)


@pytest.mark.parametrize("seed", range(4))
async def test_nothing_erased_is_left_in_the_bytes_of_the_file_and_its_log(
    seed: int, store: Store, memory: Path
) -> None:
    await fill(store, seed)
    assert await store.jobs.erase(LATER, {}, {}) == 60
    assert await store.database.compact(give_way=False)
    assert SECRET.encode() not in raw(memory / "bot.db")
    await submit(store, "after")


async def test_a_work_that_arrives_ends_the_compaction(store: Store) -> None:
    await fill(store, 0)
    compacting = asyncio.ensure_future(store.database.compact(give_way=True))  # noqa: TID251 - awaited
    await asyncio.sleep(0)
    await submit(store, "urgent")
    done = await compacting
    assert await store.database.compact(give_way=True) or not done
    assert len(await store.jobs.list_for_user("U1", "video", 100)) == 61


async def test_the_sweep_makes_what_it_erased_unreadable(quiet_world: World) -> None:
    world = quiet_world
    async with world.running_bot(RETENTION_DAYS="1"):
        await world.request_video(world.ana, {"script": f"{SECRET}. " * 50})
        await world.advance(minutes=5)
        await world.advance(days=1, hours=3)
        assert SECRET.encode() not in raw(world.database)


async def test_what_was_erased_before_a_kill_is_made_unreadable_by_the_next_process(
    quiet_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = quiet_world
    async with world.running_bot(RETENTION_DAYS="1"):
        await world.request_video(world.ana, {"script": f"{SECRET}. " * 50})
        await world.advance(minutes=5)

        # The process ends after the erasing and before the compaction.
        async def never(_: object, *, give_way: bool) -> bool:  # noqa: ARG001 - the signature
            return False

        with monkeypatch.context() as patch:
            patch.setattr("bot.store.sqlite.SQLiteDatabase.compact", never)
            await world.advance(days=1, hours=3)
    with contextlib.closing(sqlite3.connect(world.database)) as db:
        # As a page split leaves it, which secure_delete does not overwrite.
        db.execute("PRAGMA secure_delete = OFF")
        db.execute("CREATE TABLE split AS SELECT ? AS text", (SECRET * 50,))
        db.commit()
        db.execute("DROP TABLE split")
        db.commit()
    assert SECRET.encode() in raw(world.database)
    async with world.running_bot(RETENTION_DAYS="1"):
        await world.advance(minutes=5)
        assert SECRET.encode() not in raw(world.database)
