"""What each engine promises the store, and what the store promises several processes on one.

Everything here goes through the port. An engine is added to ``ENGINES``, and must pass all of it.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias, TypeVar, cast

import pytest

from bot.model import DeliveryState, Failure, Job, Role, Snapshot, State, Verdict, token_hash
from bot.store import AddedCandidate, DatabaseError, Memory, Store
from bot.store.database import Database, Query, Row, Topic, Transaction, Value
from bot.store.due import try_again
from bot.store.jobs import wake
from bot.store.postgres.engine import PostgresDatabase
from bot.store.sqlite import SQLiteDatabase
from sandbox.clock import ManualClock
from tests.postgres import database_url
from tests.store.test_store import (
    DAY,
    LATER,
    MANY,
    NOW,
    TIMINGS,
    begin,
    claim,
    made,
    now_is,
    running,
    submit,
    unconfirmed,
)

_T = TypeVar("_T")

Open: TypeAlias = Callable[[], AbstractAsyncContextManager[Database]]
"""Opens the database of a test, once or again."""


@contextlib.contextmanager
def sqlite(folder: Path) -> Iterator[Open]:
    yield partial(SQLiteDatabase.open, folder / "bot.db", TIMINGS.lock_timeout)


@contextlib.contextmanager
def postgres(_: Path) -> Iterator[Open]:
    with database_url() as url:
        yield partial(listening, url)


@contextlib.asynccontextmanager
async def listening(url: str) -> AsyncIterator[Database]:
    """Open a database that has set its events for the last time by itself: once it listens."""
    async with PostgresDatabase.open(url) as database:
        for topic in Topic:
            async with asyncio.timeout(30):
                await database.event(topic).wait()
            database.event(topic).clear()
        yield database


ENGINES: Final[dict[str, Callable[[Path], AbstractContextManager[Open]]]] = {
    "sqlite": sqlite,
    "postgres": postgres,
}

ADD: Final = Query("INSERT INTO channel_defaults (channel, replica_id) VALUES (:channel, 'r-1')")
ADD_REPLICA: Final = Query("INSERT INTO replicas (id, used_at) VALUES ('r-1', 0)")
ALL: Final = Query("SELECT channel FROM channel_defaults ORDER BY channel")
SOME: Final = Query("SELECT channel FROM channel_defaults WHERE channel IN (EACH :names)")
OTHERS: Final = Query(
    "SELECT channel FROM channel_defaults WHERE channel NOT IN (EACH :names) ORDER BY channel"
)


@pytest.fixture(params=ENGINES)
def open_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    with ENGINES[request.param](tmp_path) as open_database:
        yield open_database


@pytest.fixture
async def database(open_database: Open) -> AsyncIterator[Database]:
    async with open_database() as database:
        await database.run(lambda tx: tx.all(ADD_REPLICA))
        yield database


@pytest.fixture
def here(database: Database) -> Store:
    return Store(database, TIMINGS)


@pytest.fixture
def there(database: Database) -> Store:
    """The store of another process on the same database."""
    return Store(database, TIMINGS)


def add(name: str) -> Callable[[Transaction], str]:
    def work(tx: Transaction) -> str:
        tx.all(ADD, channel=name)
        return name

    return work


async def names(database: Database) -> list[str]:
    return await database.run(lambda tx: [row["channel"] for row in tx.all(ALL)], durable=False)


async def test_each_of_many_works_gets_its_own_result(database: Database) -> None:
    expected = [f"C{number:03}" for number in range(200)]
    assert await asyncio.gather(*(database.run(add(name)) for name in expected)) == expected
    assert await names(database) == expected


async def test_a_work_that_fails_is_undone_and_the_others_of_its_group_are_stored(
    database: Database,
) -> None:
    def fails(tx: Transaction) -> None:
        tx.all(ADD, channel="failed")
        raise ValueError

    before, failed, after = await asyncio.gather(
        database.run(add("before")),
        database.run(fails),
        database.run(add("after")),
        return_exceptions=True,
    )
    assert (before, after) == ("before", "after")
    assert isinstance(failed, ValueError)
    assert await names(database) == ["after", "before"]


async def test_a_caller_that_is_cancelled_gives_up_the_result_and_not_the_work(
    database: Database,
) -> None:
    asked = asyncio.create_task(database.run(add("C1")))  # noqa: TID251 - cancelled below
    await asyncio.sleep(0)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    async with asyncio.timeout(30):
        while await names(database) != ["C1"]:  # it may be done later than the next work
            pass


async def test_works_before_the_end_are_stored_and_later_calls_are_refused(
    open_database: Open,
) -> None:
    async with open_database() as database:
        await database.run(lambda tx: tx.all(ADD_REPLICA))
        asked = asyncio.create_task(database.run(add("C1")))  # noqa: TID251 - awaited below
        await asyncio.sleep(0)
    assert await asked == "C1"
    with pytest.raises(DatabaseError, match="closed"):
        await database.run(add("C2"))
    async with open_database() as database:
        assert await names(database) == ["C1"]


async def test_rows_are_read_by_name_and_lists_are_parameters(database: Database) -> None:
    odd = ["", "it's", 'a "quote"', "ü", "[1]"]
    for name in [*odd, "other"]:
        await database.run(add(name))

    def work(tx: Transaction) -> tuple[set[str], list[str], object, object]:
        return (
            {row["channel"] for row in tx.all(SOME, names=odd)},
            [row["channel"] for row in tx.all(OTHERS, names=odd)],
            tx.one(SOME, names=[]),
            tx.one(SOME, names=["nobody"]),
        )

    some, others, nothing, nobody = await database.run(work, durable=False)
    assert (some, others, nothing, nobody) == (set(odd), ["other"], None, None)


async def test_an_event_is_set_only_once_its_work_is_committed(database: Database) -> None:
    def is_set_before(tx: Transaction) -> bool:
        tx.notify(Topic.JOBS)
        return database.event(Topic.JOBS).is_set()

    def fails(tx: Transaction) -> None:
        tx.notify(Topic.JOBS)
        raise ValueError("it fails")

    if isinstance(database, PostgresDatabase):
        await database.event(Topic.JOBS).wait()  # all are set as soon as it listens
        for topic in Topic:
            database.event(topic).clear()
    with pytest.raises(ValueError, match="it fails"):
        await database.run(fails)
    assert not database.event(Topic.JOBS).is_set()
    assert not await database.run(is_set_before)
    assert database.event(Topic.JOBS).is_set()
    assert not database.event(Topic.DELIVERIES).is_set()


async def test_a_row_is_claimed_by_one_of_two_processes(here: Store, there: Store) -> None:
    for number in range(MANY):
        await submit(here, f"V{number}")
    stores = [here, there] * MANY
    jobs = await asyncio.gather(*(store.jobs.claim(NOW, 3) for store in stores))
    cards = await asyncio.gather(*(store.deliveries.claim(NOW, 3) for store in stores))
    job_ids = [job.id for some in jobs for job in some]
    card_ids = [card.delivery.id for some in cards for card in some]
    assert len(job_ids) == len(set(job_ids)) == MANY
    assert len(card_ids) == len(set(card_ids)) == MANY


async def test_an_expired_lease_can_be_claimed_by_another_and_its_old_number_writes_nothing(
    here: Store, there: Store
) -> None:
    late = await running(here)
    [late_card] = await here.deliveries.claim(NOW, 1)
    over = NOW + TIMINGS.lease
    [job] = await there.jobs.claim(over, 1)
    [card] = await there.deliveries.claim(over, 1)

    posted = replace(late_card.delivery, state=DeliveryState.POSTED, ts="1.0")
    assert not await here.jobs.release(replace(late, late=True), NOW, LATER)
    assert not await here.deliveries.mark_sending(late_card.delivery, NOW)
    assert not await here.deliveries.release(posted, NOW, None)
    assert await now_is(there, job) == job
    assert await there.deliveries.mark_sending(card.delivery, NOW)
    assert await there.jobs.release(job, NOW, LATER)


async def test_a_question_is_marked_anew_before_each_post(here: Store) -> None:
    # A claim marks cards and replies: what is sent without a mark may be posted twice after a kill.
    assert await here.jobs.ask(await unconfirmed(here), NOW, LATER)
    [card] = await here.deliveries.claim(NOW, 1)
    assert card.marked_at == NOW
    posted = replace(card.delivery, state=DeliveryState.POSTED, ts="1.0", shown_version=MANY)
    assert await here.deliveries.release(posted, NOW, None)
    for _ in range(2):
        [question] = await here.deliveries.claim(NOW, 1)
        assert (question.delivery.role, question.marked_at) == (Role.QUESTION, None)
        assert await here.deliveries.mark_sending(question.delivery, NOW)
        assert await here.deliveries.release(question.delivery, NOW, NOW)


async def test_works_that_fail_leave_the_others_of_their_group_alone(database: Database) -> None:
    def breaks_a_rule(tx: Transaction) -> None:
        tx.all(ADD, channel="twice")
        tx.all(ADD, channel="twice")

    def finds_no_file(_: Transaction) -> None:
        raise FileNotFoundError

    works = (add("first"), breaks_a_rule, finds_no_file, add("last"))
    first, refused, failed, last = await asyncio.gather(
        *(database.run(work) for work in works), return_exceptions=True
    )
    assert (first, last) == ("first", "last")
    assert (type(refused), type(failed)) == (DatabaseError, FileNotFoundError)
    assert await names(database) == ["first", "last"]


async def test_an_expired_lease_creates_nothing(here: Store, there: Store) -> None:
    await submit(here)
    late = await claim(here)
    [job] = await there.jobs.claim(NOW + TIMINGS.lease, 1)
    attempts = await asyncio.gather(
        here.jobs.begin_attempt(late, token_hash("late"), NOW),
        there.jobs.begin_attempt(job, token_hash("in time"), NOW),
    )
    assert attempts[0] is None
    assert attempts[1] is not None


async def test_an_id_that_comes_after_its_lease_has_ended_is_looked_up(
    here: Store, there: Store
) -> None:
    await submit(here)
    late = await claim(here)
    attempt = await begin(here, late)
    [job] = await there.jobs.claim(NOW + TIMINGS.lease, 1)
    assert not await here.jobs.record_created(made(late), attempt, now=NOW, due_at=LATER)
    doubtful = replace(job, state=State.UNCONFIRMED)
    await there.jobs.record_not_created(doubtful, outcome="uncertain", now=NOW, due_at=LATER)
    assert (await claim(there)).state is State.UNCONFIRMED, "it is due at once"
    [candidate] = await there.jobs.candidates(job)
    assert candidate.candidate_id == "v-1"


async def test_a_worker_with_an_expired_lease_does_not_end_the_job(
    here: Store, there: Store
) -> None:
    await submit(here)
    late = await claim(here)
    refused = replace(late, state=State.FAILED, failure=Failure.KEY_REJECTED)
    [job] = await there.jobs.claim(NOW + TIMINGS.lease, 1)
    assert not await here.jobs.finish(refused, NOW)
    attempt = await begin(there, job)
    assert not await here.jobs.finish(refused, NOW)
    assert await there.jobs.record_created(made(job), attempt, now=NOW, due_at=LATER)
    assert not await here.jobs.finish(refused, NOW)
    assert (await now_is(there, job)).state is State.RUNNING


async def test_a_read_ends_a_job_that_was_woken_meanwhile(here: Store, there: Store) -> None:
    job = await running(here)
    await there.jobs.record_callback(token_hash("token"), {}, NOW + DAY)
    assert await here.jobs.finish(replace(job, state=State.SUCCEEDED), NOW)


async def test_erased_text_is_not_written_back_by_a_worker_that_had_the_job(
    here: Store, there: Store
) -> None:
    job = await running(here)
    words = Snapshot("v-1", "ready", Verdict.SUCCEEDED, facts={"script": "A secret."})
    assert await here.jobs.finish(replace(job, state=State.SUCCEEDED, snapshot=words), NOW)
    await make_due(here, job)
    ended = await claim(here)
    assert await there.jobs.erase(LATER, {}, {}) == 1
    assert not await here.jobs.release(ended, NOW, None)
    erased = await now_is(here, job)
    assert erased.snapshot == Snapshot("v-1", "ready", Verdict.SUCCEEDED)
    assert erased.due_at is not None


async def test_an_erased_job_is_deleted_once_nothing_about_it_is_due(
    here: Store, there: Store
) -> None:
    job = await running(here)
    assert await here.jobs.finish(replace(job, state=State.SUCCEEDED), NOW)
    assert await there.jobs.delete(LATER) == 0, "it is not erased"
    assert await there.jobs.erase(LATER, {}, {}) == 1
    for due in range(2, 0, -1):
        assert await there.jobs.delete(LATER) == 0, f"{due} messages are owed"
        [owed] = await here.deliveries.claim(NOW, 2)
        settled = replace(owed.delivery, state=DeliveryState.UNDELIVERABLE)
        assert await here.deliveries.release(settled, NOW, None)
    await make_due(here, job)
    assert await there.jobs.delete(LATER) == 0, "it has an id to look up"
    assert await here.jobs.release(await claim(here), NOW, None)
    assert await there.jobs.delete(NOW) == 0, "it has only just ended"
    assert await there.jobs.delete(LATER) == 1
    assert await there.jobs.fetch(job.id) is None
    await here.jobs.record_callback(token_hash("token"), {"video": "v-1"}, LATER)


async def make_due(store: Store, job: Job) -> None:
    """Have an ended job looked at, as something does that was named after its end."""
    await store.database.run(lambda tx: wake(tx, [job.id], NOW + DAY, TIMINGS))
    [woken] = await store.jobs.claim(NOW + DAY, 1)
    assert await store.jobs.release(woken, NOW, NOW)


async def test_one_request_in_two_processes_is_one_job(here: Store, there: Store) -> None:
    submitted = await asyncio.gather(*(submit(store) for store in [here, there] * MANY))
    assert len({each.id for each in submitted}) == 1


async def test_two_processes_bind_one_remote_id_once(here: Store, there: Store) -> None:
    await submit(here, "V1")
    await submit(here, "V2")
    first, second = await here.jobs.claim(NOW, 2)
    begun = await begin(here, first, "first"), await begin(there, second, "second")
    bound = await asyncio.gather(
        here.jobs.record_created(made(first, "v-1"), begun[0], now=NOW, due_at=LATER),
        there.jobs.record_created(made(second, "v-1"), begun[1], now=NOW, due_at=LATER),
    )
    assert sorted(bound) == [False, True]
    owner = await here.jobs.fetch_by_remote_id("video", "v-1")
    assert owner is not None
    assert owner.id == (first if bound[0] else second).id


async def test_an_id_that_another_attempt_has_in_another_case_is_not_bound(
    here: Store, there: Store
) -> None:
    await submit(here, "V1")
    await submit(here, "V2")
    first, second = await here.jobs.claim(NOW, 2)
    begun = await begin(here, first, "first"), await begin(there, second, "second")
    made_first, made_second = made(first, "v-1"), made(second, "V-1")
    assert await here.jobs.record_created(made_first, begun[0], now=NOW, due_at=LATER)
    assert not await there.jobs.record_created(made_second, begun[1], now=NOW, due_at=LATER)
    unbound = await there.jobs.fetch(second.id)
    assert unbound is not None
    assert unbound.remote_id is None


async def in_order(
    order: str, first: Callable[[], Awaitable[object]], second: Callable[[], Awaitable[object]]
) -> None:
    for act in (first, second) if order == "in order" else (second, first):
        await act()


BOTH_ORDERS: Final = pytest.mark.parametrize("order", ["in order", "the other way round"])


@BOTH_ORDERS
async def test_a_callback_during_an_unanswered_create_call_makes_its_job_due(
    order: str, here: Store, there: Store
) -> None:
    await submit(here)
    job = await claim(here)
    await begin(here, job)
    doubtful = replace(job, state=State.UNCONFIRMED)
    await in_order(
        order,
        lambda: here.jobs.record_not_created(doubtful, outcome="uncertain", now=NOW, due_at=LATER),
        lambda: there.jobs.record_callback(token_hash("token"), {"video": "v-1"}, NOW),
    )
    assert (await claim(here)).state is State.UNCONFIRMED
    [candidate] = await here.jobs.candidates(job)
    assert candidate.candidate_id == "v-1"


@BOTH_ORDERS
async def test_a_callback_concurrent_with_a_create_answer_makes_its_job_due(
    order: str, here: Store, there: Store
) -> None:
    await submit(here)
    job = await claim(here)
    attempt = await begin(here, job)
    await in_order(
        order,
        lambda: here.jobs.record_created(made(job), attempt, now=NOW, due_at=LATER),
        lambda: there.jobs.record_callback(token_hash("token"), {"video": "v-1"}, NOW),
    )
    assert (await claim(here)).remote_id == "v-1"


@BOTH_ORDERS
async def test_of_two_people_who_decide_only_one_succeeds(
    order: str, here: Store, there: Store
) -> None:
    job = await unconfirmed(here)
    succeeded: list[bool] = []

    async def create_again() -> None:
        succeeded.append(await here.jobs.create_again(job.id, job.attempts, "U1", NOW))

    async def cancel() -> None:
        failure = Failure.CANCELLED
        succeeded.append(await there.jobs.close(job.id, job.attempts, failure, "U1", NOW))

    await in_order(order, create_again, cancel)
    assert succeeded == [True, False]
    assert (await now_is(here, job)).state is (
        State.QUEUED if order == "in order" else State.FAILED
    )


async def test_a_button_that_is_pressed_many_times_in_two_processes_counts_once(
    here: Store, there: Store
) -> None:
    job = await unconfirmed(here)
    pressed = [
        store.jobs.create_again(job.id, job.attempts, "U1", NOW) for store in [here, there] * MANY
    ]
    assert (await asyncio.gather(*pressed)).count(True) == 1


def snapshot(replica_id: str, name: str, verdict: Verdict = Verdict.SUCCEEDED) -> Snapshot:
    return Snapshot(replica_id, "completed", verdict, "", {"replica_name": name})


async def found(store: Store, query: str = "", channel: str = "C1") -> list[str]:
    """Return what a process finds once it has read what has changed."""
    await Memory(store.database, store.in_memory, ManualClock(), TIMINGS).refresh()
    return [each.id for each in store.replicas.find(query, channel, 9)]


async def test_a_change_by_one_process_is_visible_to_the_other_with_its_next_read(
    here: Store, there: Store
) -> None:
    assert await found(there) == ["r-1"]
    await here.replicas.learn(snapshot("r-2", "Anna"), NOW)
    assert await found(there, "ann") == ["r-2"]
    await here.replicas.learn(snapshot("r-2", "Berta"), NOW)
    assert await found(there, "ann") == []
    assert await found(there, "bert") == ["r-2"]
    await here.replicas.use("r-1", LATER)
    assert await found(there) == ["r-1", "r-2"]
    await here.replicas.set_default("C1", "r-2")
    assert await found(there) == ["r-2", "r-1"]
    assert await found(there, channel="C2") == ["r-1", "r-2"]
    await here.replicas.forget("r-2")
    assert await found(there) == await found(here) == ["r-1"]
    assert there.replicas.get("r-2") is None


class _Watched:
    """A database that looks at the statements of each work."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.works: list[list[str]] = []

    async def run(
        self, work: Callable[[Transaction], _T], *, durable: bool = True, serial: bool = False
    ) -> _T:
        def watched(tx: Transaction) -> _T:
            statements: list[str] = []
            self.works.append(statements)
            return work(cast(Transaction, _WatchedTransaction(tx, statements)))

        return await self._database.run(watched, durable=durable, serial=serial)

    def __getattr__(self, name: str) -> object:
        return getattr(self._database, name)


class _WatchedTransaction:
    def __init__(self, tx: Transaction, statements: list[str]) -> None:
        self._tx = tx
        self._statements = statements

    def all(self, query: Query, **values: Value) -> Sequence[Row]:
        self._statements.append(query.text)
        return self._tx.all(query, **values)

    def lock(self, query: Query, **values: Value) -> None:
        self.all(query, **values)

    def once(self, key: Hashable, find: Callable[[], _T]) -> _T:
        return self._tx.once(key, find)

    def notify(self, topic: Topic, subject: str = "") -> None:
        self._tx.notify(topic, subject)

    def one(self, query: Query, **values: Value) -> Row | None:
        self._statements.append(query.text)
        return self._tx.one(query, **values)


_CHANGES_ROWS_OF_A_JOB: Final = re.compile(
    r"\b(?:UPDATE|INSERT INTO|DELETE FROM) (?:jobs|attempts|deliveries)\b"
)
_LOCKS: Final = re.compile(r"\bFOR UPDATE\b|^\s*UPDATE jobs\b")
_UPDATE: Final = re.compile(r"\s*UPDATE jobs\b")
_NEW_JOB: Final = re.compile(r"\bINSERT INTO jobs\b")


async def _whole_life(store: Store) -> None:
    """Call each method that writes, each at least once where it does something."""
    job = await running(store)
    [card] = await store.deliveries.claim(NOW, 1)
    assert await store.deliveries.mark_sending(card.delivery, NOW)
    posted = replace(card.delivery, state=DeliveryState.POSTED, ts="1.0", shown_version=1)
    assert await store.deliveries.release(posted, NOW, LATER)
    assert await store.jobs.release(replace(job, late=True, waits_for="r-1"), NOW, LATER)
    await store.jobs.wake(job, NOW)
    await store.jobs.wake_waiting("r-1", NOW)
    await store.jobs.record_callback(token_hash("token"), {}, NOW)
    assert await store.jobs.wake_far_future(NOW - timedelta(days=1))
    assert await store.deliveries.wake_far_future(NOW - timedelta(days=1))
    assert await store.jobs.finish(replace(job, state=State.SUCCEEDED), NOW)
    assert await store.jobs.erase(LATER, {}, {})
    assert await store.jobs.delete(LATER) == 0, "its reply is owed"

    await submit(store, "V2")
    other = await _unconfirmed_again(store, "second")
    await store.jobs.record_callback(token_hash("second"), {"video": "v-2"}, NOW)
    [candidate] = await store.jobs.candidates(other)
    await store.jobs.drop_candidate(candidate)
    assert await store.jobs.add_candidate(other.id, 1, "v-3", "U1", NOW) is AddedCandidate.STORED
    [candidate] = await store.jobs.candidates(other)
    other = await claim(store)
    found = made(other, "v-3")
    assert await store.jobs.adopt(found, candidate, NOW)
    assert await store.jobs.finish(await now_is(store, found), NOW)

    await submit(store, "V3")
    third = await _unconfirmed_again(store, "third")
    assert await store.jobs.create_again(third.id, third.attempts, "U1", NOW)
    third = await _unconfirmed_again(store, "third again")
    assert await store.jobs.expire(await claim(store), NOW)
    await submit(store, "V4")
    fourth = await _unconfirmed_again(store, "fourth")
    assert await store.jobs.close(fourth.id, fourth.attempts, Failure.CANCELLED, "U1", NOW)
    await _less_common(store)


async def _less_common(store: Store) -> None:
    job = await _running_as(store, "v-5")
    await store.jobs.release(replace(job, failures=1), NOW, NOW + TIMINGS.max_wait)
    assert await store.jobs.hasten(NOW, ()) == 1
    assert await store.jobs.close(job.id, 1, Failure.STOPPED, "U1", NOW)
    done = await _running_as(store, "v-6")
    assert await store.jobs.finish(replace(done, state=State.SUCCEEDED), NOW)
    for each in await store.deliveries.claim(NOW, MANY):
        failed = replace(each.delivery, failures=1)
        assert await store.deliveries.release(failed, NOW, NOW + TIMINGS.max_wait)
    assert await store.deliveries.hasten(NOW, timedelta(0)) > 0
    await store.database.run(try_again, durable=False)


async def _running_as(store: Store, remote_id: str) -> Job:
    await submit(store, remote_id)
    job = await claim(store)
    attempt = await begin(store, job, remote_id)
    assert await store.jobs.record_created(made(job, remote_id), attempt, now=NOW, due_at=NOW)
    return await claim(store)


async def _unconfirmed_again(store: Store, token: str) -> Job:
    job = await claim(store)
    await begin(store, job, token)
    doubtful = replace(job, state=State.UNCONFIRMED)
    await store.jobs.record_not_created(doubtful, outcome="uncertain", now=NOW, due_at=NOW)
    return await now_is(store, job)


async def test_every_write_locks_the_rows_of_its_jobs_first(database: Database) -> None:
    watched = _Watched(database)
    store = Store(watched, TIMINGS)  # type: ignore[arg-type]
    await _whole_life(store)
    writing = 0
    for statements in watched.works:
        changes = [each for each in statements if _CHANGES_ROWS_OF_A_JOB.search(each)]
        if not changes or _NEW_JOB.search(changes[0]):
            continue
        writing += 1
        own = [each for each in statements if "FROM locks" not in each]
        assert statements[-len(own) :] == own, "the lock of the limits comes before any other"
        locks = next(at for at, each in enumerate(own) if _LOCKS.search(each))
        assert locks <= own.index(changes[0]), statements
        lock = own[locks]
        assert "FROM jobs" in lock or "OF jobs" in lock or "UPDATE jobs" in lock, lock
        for at, each in enumerate(own):
            # One that waits for a lock itself sees other tables as they were before.
            if _UPDATE.match(each) and "FROM attempts" in each:
                assert any("FOR UPDATE" in earlier for earlier in own[:at]), statements
        one = "= :id" in lock or "= :token_hash" in lock
        assert one or "ORDER BY id FOR UPDATE" in lock or "SKIP LOCKED" in lock, lock
    assert writing > 35
