"""What forms show is in memory: nobody waits for the database to open one, or to type."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator

import pytest

from bot.store import Limits, Store
from bot.store.database import Database, Transaction, to_ms
from bot.store.postgres.engine import PostgresDatabase
from bot.timings import Timings
from tests.databases import Address
from tests.modes import on_both_engines, on_sqlite_alone
from tests.store.test_store import NOW, TIMINGS, submit
from tests.world import REPLICA, World, offered_ids

_MAX_S = 60
VALUES = {"replica_id": REPLICA, "script": "Hello."}


@contextlib.asynccontextmanager
async def nothing_read(database: Database) -> AsyncIterator[None]:
    """Have each connection of a database busy: who needs one waits until the end."""
    begun, end = threading.Semaphore(0), threading.Event()

    def work(_: Transaction) -> None:
        begun.release()
        end.wait(_MAX_S)

    works = []
    try:
        for _ in range(len(database._links) if isinstance(database, PostgresDatabase) else 1):
            works.append(asyncio.ensure_future(database.run(work, durable=False)))  # noqa: TID251
            assert await asyncio.to_thread(begun.acquire, timeout=_MAX_S)
        yield
    finally:
        end.set()
        await asyncio.gather(*works, return_exceptions=True)


@pytest.fixture
def world(quiet: World) -> World:
    quiet.pauses = {**quiet.pauses, "memory_interval": Timings().memory_interval}
    return quiet


@on_both_engines
async def test_opening_a_form_and_typing_asks_the_database_for_nothing(world: World) -> None:
    async with world.running_bot(MAX_PER_USER_PER_DAY="3") as bot:
        await world.ana.command("/replica", f"add {REPLICA}")
        await world.ana.command("/replica", f"default {REPLICA}")
        await world.after(world.request_video(world.ana), minutes=5)
        async with nothing_read(bot.store.database):
            form = await world.open_form(world.ana, "Hello.")
            assert form.values["replica_id"] == REPLICA
            assert "2 of your 3 requests are left until " in str(form.view.body)
            assert "and usually about" in str(form.view.body)
            for query, found in (("", [REPLICA]), ("ann", [REPLICA, "ann"]), ("no one", [])):
                assert await offered_ids(form, query) == found
            await form.close()
            form = await world.open_form(world.ana, command="/replica")
            assert "2 of your 3 requests are left until " in str(form.view.body)


@on_both_engines
async def test_what_changed_without_a_notification_is_offered_within_ten_seconds(
    world: World,
) -> None:
    async with world.running_bot():
        world.query("UPDATE revisions SET revision = revision + 1 WHERE name = 'replicas'")
        world.query(
            "INSERT INTO replicas (id, name, search_name, used_at, revision)"
            " SELECT 'r-bob', 'Bob', 'bob', 0, revision FROM revisions WHERE name = 'replicas'"
        )
        world.query("INSERT INTO channel_defaults VALUES ('C1', 'r-bob')")
        await world.advance(seconds=10)
        assert await offered_ids(await world.open_form(world.ana), "bob") == ["r-bob", "bob"]


@on_both_engines
async def test_what_another_copy_counts_or_limits_holds_whatever_a_form_shows(world: World) -> None:
    used = "UPDATE usage SET videos = :used, changed_at = :now WHERE who = :who"
    async with world.running_bot(MAX_PER_USER_PER_DAY="9", MAX_PER_DAY="4") as bot:
        await world.submit_form(world.ana, VALUES)
        # What this process has stored is in the next form.
        async with nothing_read(bot.store.database):
            form = await world.open_form(world.ana)
            assert "3 of your" not in str(form.view.body)
            other = await world.open_form(world.ben)
        now = to_ms(world.clock.now())
        world.query(used, used=2, now=now, who="")
        await other.submit(VALUES)
        form = await world.open_form(world.ana)
        assert "1 of your workspace's 4 requests is left until " in str(form.view.body)
        world.query(used, used=4, now=now, who="")
        await form.submit(VALUES)
        assert "Your workspace has reached its limit of 4" in str(form.errors)
        await world.after(form.close(), seconds=10)
        await world.ana.command("/video")
        assert world.ana.modal is None, "and so there is no form"
        world.query(used, used=0, now=now, who="")
        await world.advance(seconds=10)
        form = await world.open_form(world.ana)
        world.query("INSERT INTO limit_changes VALUES ('MAX_PER_USER_PER_DAY', '1', 'U0', 1)")
        world.query("UPDATE revisions SET revision = revision + 1 WHERE name = 'limits'")
        await form.submit(VALUES)
        assert "You've reached your limit of 1" in str(form.errors)
        world.query("UPDATE limit_changes SET name = 'MAX_SCRIPT'")
        world.query("UPDATE revisions SET revision = revision + 1 WHERE name = 'limits'")
        await form.submit(VALUES)
        assert list(form.errors) == ["script"], "under the field that it is about"


@on_sqlite_alone
async def test_while_the_database_is_away_forms_open_and_nothing_is_accepted(world: World) -> None:
    async with world.running_bot() as bot:
        await world.after(world.ana.command("/replica", f"add {REPLICA}"))
        moved = world.database.rename(world.database.with_name("moved.db"))
        await world.advance(seconds=30)
        form = await world.open_form(world.ana, "Hello.")
        assert await offered_ids(form, "ann") == [REPLICA, "ann"]
        await form.submit(VALUES)
        assert "This couldn't be saved. Please try again" in str(form.errors)
        moved.rename(world.database)
        await bot.store.database.check()
        await form.send()


@on_both_engines
async def test_a_request_counts_in_memory_though_usage_was_being_read(address: Address) -> None:
    async with Store.open(address, TIMINGS, Limits(max_per_day=9)) as store:
        await submit(store, "V1")
        remember = await store.database.run(lambda tx: store.limits.refresh(tx, NOW))
        await submit(store, "V2")
        remember()
        assert min(each.number for each in store.limits.left("U1", NOW)) == 7
