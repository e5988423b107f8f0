"""Leases between copies of the bot, whose clocks may differ, and calls that may be slow."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest
from psycopg import sql

from bot.model import DeliveryState, token_hash
from bot.store import Store
from bot.store.database import Query, Topic, to_ms
from bot.store.postgres.engine import PostgresDatabase
from sandbox.delivery import deliver, encoded, interaction
from tests.postgres_proxy import PostgresProxy
from tests.store.test_store import LATER, NOW, TIMINGS, claim, running, submit
from tests.world import REPLICA, World

#: How far the clocks of two copies may be apart: docs/postgresql.md says so too.
MAX_DIFFERENCE = timedelta(seconds=30)
SECOND = timedelta(seconds=1)
_UNDO_CLAIMS = [
    Query("UPDATE jobs SET claim = 0, claimed = 0, due_at = :now"),
    Query("UPDATE deliveries SET claim = 0, claimed = 0, due_at = :now"),
]


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[Store]:
    """A store on PostgreSQL, whose callers may be copies with different clocks."""
    async with PostgresDatabase.open(postgres_url) as database:
        yield Store(database, TIMINGS)


async def test_what_is_sent_late_in_a_lease_is_left_alone_for_a_whole_lease_from_then_on(
    store: Store,
) -> None:
    await submit(store)
    job = await claim(store)
    [card] = await store.deliveries.claim(NOW, 1)
    late = NOW + TIMINGS.lease - SECOND
    assert await store.jobs.begin_attempt(job, token_hash("token"), late) is not None
    assert await store.deliveries.mark_sending(card.delivery, late)

    before_its_end = late + TIMINGS.lease - SECOND
    assert await store.jobs.claim(before_its_end, 1) == []
    assert await store.deliveries.claim(before_its_end, 1) == []
    assert len(await store.jobs.claim(late + TIMINGS.lease, 1)) == 1
    assert len(await store.deliveries.claim(late + TIMINGS.lease, 1)) == 1


async def test_a_claim_that_a_crash_of_the_server_undid_is_worth_nothing(store: Store) -> None:
    await submit(store)
    undone = await claim(store)
    [undone_card] = await store.deliveries.claim(NOW, 1)
    # A claim does not wait for the disk, and the copies outlive the server.
    await store.database.run(lambda tx: [tx.all(each, now=to_ms(NOW)) for each in _UNDO_CLAIMS])
    job = await claim(store)
    [card] = await store.deliveries.claim(NOW, 1)

    assert await store.deliveries.mark_sending(card.delivery, NOW)
    assert not await store.deliveries.mark_sending(undone_card.delivery, NOW)
    assert await store.jobs.begin_attempt(job, token_hash("token"), NOW) is not None
    # That the job waits, as the other copy believes, would have it created twice.
    assert not await store.jobs.release(undone, NOW, NOW)
    assert await store.jobs.claim(NOW, 1) == []


async def test_a_claim_does_not_take_another_copy_s_mark_for_its_own(
    store: Store, postgres_url: str
) -> None:
    await submit(store)
    async with (
        PostgresProxy(postgres_url).running() as proxy,
        PostgresDatabase.open(proxy.url) as database,
    ):
        # Its clock is so far ahead that the other copy's lease is over at once.
        hold = proxy.hold("UPDATE deliveries SET claim")
        ahead = Store(database, TIMINGS).deliveries.claim(NOW + 2 * TIMINGS.lease, 1)
        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            claims = tasks.create_task(ahead)
            await hold.reached.wait()
            [own] = await store.deliveries.claim(NOW, 1)
            hold.let_go.set()
        [others] = claims.result()
    assert (own.delivery.state, own.marked_at) == (DeliveryState.PENDING, NOW)
    assert (others.delivery.state, others.marked_at) == (DeliveryState.SENDING, None)


async def _claimed(store: Store) -> dict[str, int]:
    """Claim what is due, and return how many rows that were, by table."""
    return {
        "jobs": len(await store.jobs.claim(NOW, 2)),
        "deliveries": len(await store.deliveries.claim(NOW, 2)),
    }


@pytest.mark.parametrize("table", ["jobs", "deliveries"])
async def test_a_claim_passes_over_what_another_copy_has_locked(
    table: str, store: Store, postgres_url: str
) -> None:
    for number in range(2):
        await submit(store, f"V{number}")
    with psycopg.connect(postgres_url) as other:
        query = sql.SQL("SELECT 1 FROM {} ORDER BY 1 LIMIT 1 FOR UPDATE")
        other.execute(query.format(sql.Identifier(table)))
        async with asyncio.timeout(8):
            assert (await _claimed(store))[table] == 1
    assert (await _claimed(store))[table] == 1, "what was passed over is not lost"


async def test_who_passes_over_all_that_is_due_is_told_to_look_again_in_a_moment(
    store: Store, postgres_url: str
) -> None:
    # Who has it locked may change nothing, and then notifies nobody.
    await submit(store)
    with psycopg.connect(postgres_url) as other:
        other.execute("SELECT 1 FROM jobs FOR UPDATE")
        async with asyncio.timeout(8):
            jobs = await store.jobs.claim(NOW, 2)
            messages = await store.deliveries.claim(NOW, 2)
    assert (len(jobs), len(messages)) == (0, 0)
    for next_due in (jobs.next_due, messages.next_due):
        assert next_due is not None
        assert NOW < next_due <= NOW + SECOND, "nor is the server asked all the time"


async def test_what_one_copy_makes_due_wakes_the_other(store: Store, postgres_url: str) -> None:
    never = replace(TIMINGS, slow_poll=timedelta(hours=1), pooled_slow_poll=timedelta(hours=1))
    async with PostgresDatabase.open(postgres_url, timings=never) as other:
        due = other.event(Topic.JOBS)
        async with asyncio.timeout(20):
            await due.wait()  # as it has begun to listen
            due.clear()
            await submit(store)
            await due.wait()


async def test_what_one_copy_makes_due_later_the_other_knows_for_that_time(
    store: Store, postgres_url: str
) -> None:
    job = await running(store)
    assert isinstance(store.database, PostgresDatabase)
    await store.database._notify()
    never = replace(TIMINGS, slow_poll=timedelta(hours=1), pooled_slow_poll=timedelta(hours=1))
    async with PostgresDatabase.open(postgres_url, timings=never) as other:
        due = other.event(Topic.JOBS)
        async with asyncio.timeout(20):
            await due.wait()  # as it has begun to listen
            due.clear()
            assert await store.jobs.release(job, NOW, LATER)
            await due.wait()
            assert due.at == LATER


def test_a_lease_is_longer_than_every_call_under_it_at_the_greatest_difference_of_clocks() -> None:
    call, hold = TIMINGS.call_timeout, TIMINGS.post_hold
    # What is done between the moment that a lease begins, or is renewed, and its last effect.
    steps = {
        "a create call, and whether a refused key is refused for all": 2 * call,
        "a post": call,
        "an edit, and the link to the card of a retry": 2 * call,
        "the last call of a file": call,
    }
    for step, duration in steps.items():
        assert duration + MAX_DIFFERENCE < TIMINGS.lease, step
    # A message without an answer is looked for when Slack has had as long again as the call.
    assert hold - MAX_DIFFERENCE >= timedelta(0)
    # A row of a copy whose clock is ahead is not taken for one from before the clock was set back.
    assert TIMINGS.lease > MAX_DIFFERENCE


@pytest.fixture
def world(world_of_copies: World) -> World:
    return world_of_copies


def run_sql(world: World, query: str) -> list[tuple[object, ...]]:
    """Run a statement beside the bot, and return its rows."""
    assert world.postgres_url is not None
    with psycopg.connect(world.postgres_url, autocommit=True) as connection:
        cursor = connection.execute(query.encode())
        return cursor.fetchall() if cursor.description else []


async def waiting(world: World, number: int) -> None:
    """Wait until this number of the bots' transactions wait for a lock."""
    query = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    async with asyncio.timeout(30):
        while (await asyncio.to_thread(run_sql, world, query)) != [(number,)]:
            pass


@pytest.mark.parametrize(
    "setting",
    ["MAX_OPEN_PER_USER", "MAX_PER_USER_PER_DAY", "MAX_PER_DAY", "MAX_PER_USER_PER_MONTH"],
)
async def test_of_requests_that_reach_both_copies_at_once_exactly_the_limit_is_accepted(
    setting: str, world: World
) -> None:
    assert world.postgres_url is not None
    async with world.running_copies(**{setting: "1"}) as copies:
        submissions = []
        for copy in copies:
            form = await world.open_form(world.ana, "Hello.")
            await form._fill_in(form._field("replica_id"), REPLICA)
            payload = interaction(world.slack, world.ana.user, "view_submission", None)
            body = encoded({**payload, "view": form.view.payload()})
            submissions.append(world.at(copy, deliver(world.slack, body)))
            await form.close()
        # A copy that has counted what there is waits before it stores one more.
        with psycopg.connect(world.postgres_url) as other:
            other.execute("LOCK TABLE jobs IN SHARE MODE")
            answers = asyncio.gather(*submissions)
            await waiting(world, 2)
        await answers
        await world.settle()
        assert world.created_count() == 1
        assert len(world.slack.messages("studio")) == 1
