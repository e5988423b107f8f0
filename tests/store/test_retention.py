"""Some time after a request has ended its texts and links are erased, and later all of it."""

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
from sandbox.scenarios import Scenario
from tests.databases import all_rows
from tests.modes import bot_with, on_both_engines, on_sqlite_alone
from tests.store.test_store import NOW, submit
from tests.world import REPLICA, World, number_of

SECRETS = ("A secret script.", "secret.mp4", "Secretly too dark.", ".mp4")
KEPT_OF_MADE = ("Secret name", "/watch/")


def _stored(world: World) -> str:
    """Return all that stands in the database."""
    return str(list(all_rows(world.address)))


async def _asks_in_secret(world: World) -> None:
    form = await world.open_form(world.ana, "A secret script.")
    await form.choose("background", "background_source_url")
    values = {"replica_id": REPLICA, "video_name": "Secret name"}
    await form.submit(values | {"background_source_url": "https://example.com/secret.mp4"})
    await world.advance(minutes=5)


@on_both_engines
async def test_scripts_and_links_are_erased_after_the_retention_time_and_not_before(
    quiet: World,
) -> None:
    quiet.service.next_video(Scenario(), Scenario(end="error", reason="Secretly too dark."))
    async with quiet.running_bot(RETENTION_DAYS="2"):
        await _asks_in_secret(quiet)
        await quiet.after(_asks_in_secret(quiet), days=1, hours=23)
    before = _stored(quiet)
    assert [secret for secret in SECRETS if secret not in before] == []

    async with quiet.running_bot(RETENTION_DAYS="2"):
        await quiet.advance(hours=2)
    after = _stored(quiet)
    assert [secret for secret in SECRETS if secret in after] == []
    assert REPLICA in after
    # Of the one that was made, and not of the one that failed.
    assert [after.count(each) for each in KEPT_OF_MADE] == [1, 1]


@on_both_engines
async def test_no_link_to_footage_outlives_its_request_in_what_is_kept_of_the_replica(
    quiet: World,
) -> None:
    reason = "Nothing can be read at https://files.example.com/secret.mp4?sig=1."
    quiet.service.next_replica(Scenario(end="error", reason=reason))
    async with quiet.running_bot(RETENTION_DAYS="2"):
        link = "https://files.example.com/secret.mp4"
        await quiet.after(quiet.request_replica(quiet.ana, {"train_video_url": link}), hours=10)
        assert "secret.mp4" in _stored(quiet)
        await quiet.advance(days=2, hours=2)
    after = _stored(quiet)
    assert "secret.mp4" not in after
    assert "Nothing can be read at files.example.com" in after


@bot_with(RETENTION_DAYS="1")
async def test_the_list_and_the_cards_remain_after_erasing(world: World) -> None:
    await _asks_in_secret(world)
    cards = world.posts()
    await world.advance(days=1, hours=2)

    assert world.posts() == cards, "what stands in Slack is Slack's to keep"
    answer = await world.ana.command("/video", "list")
    assert "Ready · Secret name" in answer.shown.text
    assert "/watch/" in answer.shown.text
    [video_id] = world.service.videos
    answer = await world.after(world.ana.command("/video", f"status {video_id}"))
    [shown] = world.ephemerals(world.ana)[1:]
    assert "Status: Ready" in shown


async def test_a_job_that_has_not_ended_is_never_erased(quiet: World) -> None:
    quiet.service.next_video(Scenario(end="never"))
    async with quiet.running_bot(RETENTION_DAYS="1"):
        await quiet.after(_asks_in_secret(quiet), days=1, hours=2)
    assert "A secret script." in _stored(quiet)


async def test_an_old_retry_button_opens_a_form_that_says_what_was_erased(quiet: World) -> None:
    quiet.service.next_video(Scenario(end="error", reason="Secretly too dark."))
    async with quiet.running_bot(RETENTION_DAYS="1"):
        await _asks_in_secret(quiet)
        [card, _] = quiet.posts()
        await quiet.advance(days=1, hours=2)

        await quiet.ana.click(card, "Edit and retry")

        form = quiet.ana.form
        assert form.values["replica_id"] == REPLICA
        assert form.values["script"] is None
        assert "no longer have what was entered" in str(form.view.body["blocks"])
        await quiet.after(form.submit({"script": "Once more."}), minutes=5)
    assert quiet.created_count() == 2


def _counts(world: World) -> dict[str, int]:
    """Return how many rows are about jobs."""
    counts = dict.fromkeys(("jobs", "attempts", "deliveries"), 0)
    for table, _ in all_rows(world.address):
        if table in counts:
            counts[table] += 1
    return counts


@on_both_engines
async def test_an_ended_job_is_deleted_after_twice_the_retention_time_and_not_before(
    quiet: World,
) -> None:
    async with quiet.running_bot(RETENTION_DAYS="20"):
        await _asks_in_secret(quiet)
        [card, _] = quiet.posts()
    await quiet.advance(days=39)
    async with quiet.running_bot(RETENTION_DAYS="20"):
        await quiet.settle()
    assert _counts(quiet) == {"jobs": 1, "attempts": 1, "deliveries": 2}

    await quiet.advance(days=2)
    async with quiet.running_bot(RETENTION_DAYS="20"):
        await quiet.settle()
        assert _counts(quiet) == {"jobs": 0, "attempts": 0, "deliveries": 0}

        number = number_of(card)
        await quiet.after(quiet.ana.command("/video", f"status {number}"))
        assert quiet.ephemerals(quiet.ana)[-1].startswith(f"I can't find a video “{number}”")
        await quiet.request_video(quiet.ana)
    assert quiet.created_count() == 2


async def test_an_ended_job_is_kept_for_thirty_days_however_short_the_retention_time_is(
    quiet: World,
) -> None:
    async with quiet.running_bot(RETENTION_DAYS="1"):
        await _asks_in_secret(quiet)
    for days, left in ((29, 1), (2, 0)):
        await quiet.advance(days=days)
        async with quiet.running_bot(RETENTION_DAYS="1"):
            await quiet.settle()
        assert _counts(quiet)["jobs"] == left


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


@on_sqlite_alone
@pytest.mark.parametrize("seed", range(4))
async def test_nothing_erased_is_left_in_the_bytes_of_the_file_and_its_log(
    seed: int, store: Store, memory: Path
) -> None:
    await fill(store, seed)
    assert await store.jobs.erase(LATER, {}, {}) == 60
    assert await store.database.compact(give_way=False)
    assert SECRET.encode() not in raw(memory / "bot.db")
    await submit(store, "after")


@on_sqlite_alone
async def test_a_work_that_arrives_ends_the_compaction(store: Store) -> None:
    await fill(store, 0)
    compacting = asyncio.ensure_future(store.database.compact(give_way=True))  # noqa: TID251 - awaited
    await asyncio.sleep(0)
    await submit(store, "urgent")
    done = await compacting
    assert await store.database.compact(give_way=True) or not done
    assert len(await store.jobs.list_for_user("U1", "video", 100)) == 61


@on_sqlite_alone
@bot_with(RETENTION_DAYS="1")
async def test_the_sweep_makes_what_it_erased_unreadable(world: World) -> None:
    await world.after(world.request_video(world.ana, {"script": f"{SECRET}. " * 50}), minutes=5)
    await world.advance(days=1, hours=3)
    assert SECRET.encode() not in raw(world.database)


@on_sqlite_alone
async def test_what_was_erased_before_a_kill_is_made_unreadable_by_the_next_process(
    quiet: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with quiet.running_bot(RETENTION_DAYS="1"):
        await quiet.after(quiet.request_video(quiet.ana, {"script": f"{SECRET}. " * 50}), minutes=5)

        # The process ends after the erasing and before the compaction.
        async def never(_: object, *, give_way: bool) -> bool:  # noqa: ARG001 - the signature
            return False

        with monkeypatch.context() as patch:
            patch.setattr("bot.store.sqlite.SQLiteDatabase.compact", never)
            await quiet.advance(days=1, hours=3)
    with contextlib.closing(sqlite3.connect(quiet.database)) as db:
        # As a page split leaves it, which secure_delete does not overwrite.
        db.execute("PRAGMA secure_delete = OFF")
        db.execute("CREATE TABLE split AS SELECT ? AS text", (SECRET * 50,))
        db.commit()
        db.execute("DROP TABLE split")
        db.commit()
    assert SECRET.encode() in raw(quiet.database)
    async with quiet.running_bot(RETENTION_DAYS="1"):
        await quiet.advance(minutes=5)
        assert SECRET.encode() not in raw(quiet.database)
