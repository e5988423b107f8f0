"""The store's methods: concurrent changes, claims and the rules of the database."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bot.model import (
    ApprovalPolicy,
    Delivery,
    DeliveryState,
    Failure,
    Job,
    Request,
    Role,
    State,
    token_hash,
)
from bot.store import (
    DatabaseError,
    DatabaseUnavailable,
    DatabaseUncertain,
    Limited,
    Limits,
    NobodyToApprove,
    NotAllowed,
    Store,
)
from bot.store.database import Alarm, Query, Topic, Transaction, to_ms
from bot.timings import Timings
from tests.databases import Address, query
from tests.disk import Disk
from tests.modes import on_both_engines
from tests.postgres import database_url
from tests.world import MEMORY

NOW = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
LATER = NOW + timedelta(minutes=10)
DAY = timedelta(days=1)
# Cards are due at once: most of this is about any delivery.
TIMINGS = Timings(card_delay=timedelta(0))
MANY = 20


pytestmark = on_both_engines


@pytest.fixture
async def store(address: Address) -> AsyncIterator[Store]:
    async with Store.open(address, TIMINGS) as store:
        yield store


async def submit(store: Store, key: str = "V1", script: str = "Hello", channel: str = "C1") -> Job:
    request = Request(key, "video", {"script": script, "replica_id": "r-1"}, "U1", channel)
    return await store.jobs.submit(request, NOW)


async def claim(store: Store) -> Job:
    [job] = await store.jobs.claim(NOW, MANY)
    return job


async def begin(store: Store, job: Job, key: str = "token") -> int:
    attempt = await store.jobs.begin_attempt(job, token_hash(key), NOW)
    assert attempt is not None
    return attempt


def made(job: Job, remote_id: str = "v-1") -> Job:
    return replace(job, state=State.RUNNING, remote_id=remote_id, started_at=NOW)


async def running(store: Store) -> Job:
    """Return a job that the service has, claimed to be read; its callback's token is "token"."""
    await submit(store)
    job = await claim(store)
    assert await store.jobs.record_created(made(job), await begin(store, job), now=NOW, due_at=NOW)
    return await claim(store)


async def now_is(store: Store, job: Job) -> Job:
    found = await store.jobs.fetch(job.id)
    assert found is not None
    return found


def as_posted(card: Delivery) -> Delivery:
    return replace(card, state=DeliveryState.POSTED, ts="1.0", shown_version=card.version)


async def post_card(store: Store) -> Delivery:
    [card] = await store.deliveries.claim(NOW, MANY)
    posted = as_posted(card.delivery)
    assert await store.deliveries.mark_sending(card.delivery, NOW)
    assert await store.deliveries.release(posted, NOW, None)
    return posted


async def test_a_caller_gets_an_error_when_the_database_task_has_ended(tmp_path: Path) -> None:
    async with Store.open(tmp_path / "bot.db", TIMINGS) as store:
        calls = [asyncio.ensure_future(submit(store, f"V{number}")) for number in range(MANY)]  # noqa: TID251 - awaited below
        await asyncio.sleep(0)
        [writer] = store.database._workers
        await asyncio.sleep(0)
        writer.cancel()
        async with asyncio.timeout(20):
            answers = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(each) for each in answers} <= {DatabaseUnavailable, DatabaseUncertain}
        with pytest.raises(DatabaseUnavailable, match="Restart the bot"):
            await submit(store)


async def test_nothing_is_accepted_while_the_file_is_moved_away(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "bot.db", tmp_path / "elsewhere.db"
    async with Store.open(path, TIMINGS) as store:
        path.rename(elsewhere)
        with pytest.raises(DatabaseError, match="Put it back"):
            await submit(store)
        path.write_bytes(b"")
        with pytest.raises(DatabaseError):
            await submit(store)
        elsewhere.rename(path)
        await submit(store)


async def test_what_was_stored_with_an_error_is_worked_on_once_the_database_works_again(
    tmp_path: Path,
) -> None:
    path, elsewhere = tmp_path / "bot.db", tmp_path / "elsewhere.db"

    def stores_while_the_file_is_moved_away(tx: Transaction) -> None:
        tx.all(Query("UPDATE jobs SET due_at = 0"))
        tx.notify(Topic.JOBS)
        path.rename(elsewhere)

    async with Store.open(path, TIMINGS) as store:
        await submit(store)
        with pytest.raises(DatabaseUnavailable):
            await store.database.run(stores_while_the_file_is_moved_away)
        store.jobs.due.clear()
        elsewhere.rename(path)
        await store.database.check()
        assert store.jobs.due.is_set()


async def test_leases_do_not_outlive_their_process(tmp_path: Path) -> None:
    async with Store.open(tmp_path / "bot.db", TIMINGS) as store:
        await submit(store)
        job = await claim(store)
        [card] = await store.deliveries.claim(NOW, 1)
    async with Store.open(tmp_path / "bot.db", TIMINGS) as store:
        assert (await claim(store)).id == job.id
        [again] = await store.deliveries.claim(NOW, 1)
        assert again.delivery.id == card.delivery.id


async def test_a_clock_that_was_set_back_postpones_nothing(store: Store) -> None:
    assert await store.jobs.release(await running(store), NOW, LATER)
    [card] = await store.deliveries.claim(NOW, 1)
    assert await store.deliveries.release(card.delivery, NOW, LATER)
    slightly, earlier = NOW - TIMINGS.lease, NOW - timedelta(minutes=20)
    assert await store.jobs.claim(earlier, 1) == []
    assert await store.deliveries.claim(earlier, 1) == []
    for table in (store.jobs, store.deliveries):
        assert await table.wake_far_future(slightly) == 0
        assert await table.wake_far_future(earlier) == 1
        assert await table.wake_far_future(earlier) == 0
    assert len(await store.jobs.claim(earlier, 1)) == 1
    assert len(await store.deliveries.claim(earlier, 1)) == 1


async def test_a_clock_that_was_set_back_leaves_a_lease_for_its_own_length(store: Store) -> None:
    """Its owner may still be at work."""
    job = await running(store)
    [card] = await store.deliveries.claim(NOW, 1)
    earlier = NOW - DAY
    assert await store.jobs.wake_far_future(earlier) == 1
    assert await store.deliveries.wake_far_future(earlier) == 1
    assert await store.jobs.claim(earlier, 1) == []
    assert await store.deliveries.claim(earlier, 1) == []
    [job_again] = await store.jobs.claim(earlier + TIMINGS.lease, 1)
    [card_again] = await store.deliveries.claim(earlier + TIMINGS.lease, 1)
    assert (job_again.id, card_again.delivery.id) == (job.id, card.delivery.id)


async def test_a_callback_during_a_read_leads_to_another_one_and_does_not_undo_it(
    store: Store,
) -> None:
    job = await running(store)
    await store.jobs.record_callback(token_hash("token"), {}, NOW)
    await store.jobs.record_callback(token_hash("token"), {}, NOW)
    assert await store.jobs.claim(NOW + TIMINGS.callback_spacing, 1) == [], "it is being read"
    assert await store.jobs.release(replace(job, late=True), NOW, LATER)
    [again] = await store.jobs.claim(NOW + TIMINGS.callback_spacing, 1)
    assert again.woken_at == NOW
    assert again.late
    assert await store.jobs.release(again, NOW, LATER)
    assert (await now_is(store, job)).due_at == LATER, "it counts once"


async def test_a_callback_during_the_read_of_a_candidate_leads_to_another_one(store: Store) -> None:
    job = await unconfirmed(store)
    await store.jobs.record_callback(token_hash("token"), {"video": "v-1"}, NOW)
    assert not await store.jobs.expire(job, NOW)
    job = await claim(store)
    await store.jobs.record_callback(token_hash("token"), {"video": "v-1"}, NOW)
    assert not await store.jobs.ask(job, NOW, LATER), "it is woken"
    [again] = await store.jobs.claim(NOW + TIMINGS.callback_spacing, 1)
    assert again.state is State.UNCONFIRMED


async def test_a_callback_before_a_second_create_call_prevents_it(store: Store) -> None:
    job = await unconfirmed(store)
    assert await store.jobs.create_again(job.id, job.attempts, "U1", NOW)
    job = await claim(store)
    await store.jobs.record_callback(token_hash("token"), {"video": "v-1"}, NOW)
    assert await store.jobs.begin_attempt(job, token_hash("second"), NOW) is None
    again = await claim(store)
    assert again.state is State.QUEUED
    assert await store.jobs.begin_attempt(job, token_hash("second"), NOW) is None


async def test_callbacks_in_a_row_have_a_job_read_every_two_seconds(store: Store) -> None:
    job = await running(store)
    assert await store.jobs.release(replace(job, read_at=NOW), NOW, LATER)
    soon = NOW + timedelta(milliseconds=100)
    await store.jobs.record_callback(token_hash("token"), {}, soon)
    assert await store.jobs.claim(soon, 1) == []
    assert len(await store.jobs.claim(NOW + TIMINGS.callback_spacing, 1)) == 1


async def test_a_create_call_that_is_refused_ends_its_job_whatever_a_callback_named(
    store: Store,
) -> None:
    await submit(store)
    job = await claim(store)
    await begin(store, job)
    await store.jobs.record_callback(token_hash("token"), {"video": "v-1"}, NOW)
    refused = replace(job, state=State.FAILED, failure=Failure.REFUSED)
    assert await store.jobs.finish(refused, NOW)
    assert (await now_is(store, job)).failure is Failure.REFUSED


async def test_a_job_that_many_callers_end_ends_once(store: Store) -> None:
    job = await running(store)
    await post_card(store)
    ends = [State.SUCCEEDED, State.FAILED] * 5
    won = await asyncio.gather(*(store.jobs.finish(replace(job, state=end), NOW) for end in ends))
    assert won.count(True) == 1
    assert (await now_is(store, job)).state is ends[won.index(True)]
    owed = [each.delivery.role for each in await store.deliveries.claim(NOW, MANY)]
    assert sorted(owed) == [Role.CARD, Role.REPLY]
    assert (await store.jobs.claim(NOW, 0)).next_due is None


async def test_with_as_many_posts_under_way_as_are_made_at_a_time_no_more_are_due(
    store: Store,
) -> None:
    for number in range(60):
        await submit(store, key=f"V-{number}", channel=f"C{number}")
    held = [each.delivery for each in await store.deliveries.claim(NOW, 64)]
    assert 0 < len(held) < 60
    claimed = await store.deliveries.claim(NOW, 64, held)
    assert not claimed
    assert claimed.full
    assert claimed.next_due is None
    assert (await store.deliveries.claim(NOW, 0, held[1:])).next_due == NOW


async def test_a_reply_waits_for_its_card(store: Store) -> None:
    job = await running(store)
    assert await store.jobs.finish(replace(job, state=State.SUCCEEDED), NOW)
    [card] = await store.deliveries.claim(NOW, MANY)
    assert card.delivery.role is Role.CARD
    assert (await store.deliveries.claim(NOW, 0)).next_due == NOW + TIMINGS.lease
    assert await store.deliveries.release(as_posted(card.delivery), NOW, None)
    [reply] = await store.deliveries.claim(NOW, MANY)
    assert (reply.delivery.role, reply.card.ts) == (Role.REPLY, "1.0")


def due_now(alarm: Alarm) -> bool:
    """Return whether something is due; a server says a little later what is due another time."""
    return alarm.at is not None and alarm.at <= NOW


async def test_who_waits_for_work_is_told_when_it_is_due(store: Store) -> None:
    job = await running(store)
    store.jobs.due.clear()
    assert await store.jobs.release(job, NOW, LATER)
    assert store.jobs.due.at == LATER
    [job] = await store.jobs.claim(LATER, 1)

    [card] = await store.deliveries.claim(NOW, 1)
    store.jobs.due.clear()
    store.deliveries.due.clear()
    assert await store.jobs.finish(replace(job, state=State.SUCCEEDED), NOW)
    assert not due_now(store.jobs.due), "it has ended"
    assert not due_now(store.deliveries.due), "the card is being posted, and the reply waits for it"

    posted = replace(card.delivery, state=DeliveryState.POSTED, ts="1.0", shown_version=1)
    assert await store.deliveries.release(posted, NOW, None)
    assert due_now(store.deliveries.due)
    claimed = await store.deliveries.claim(NOW, 1)
    assert claimed.next_due == NOW, "the card has news"
    store.deliveries.due.clear()
    sent = replace(claimed[0].delivery, state=DeliveryState.POSTED, ts="1.1", shown_version=1)
    assert await store.deliveries.release(sent, NOW, None)
    assert not due_now(store.deliveries.due)


async def test_paid_calls_and_accepted_requests_are_on_disk_before_they_are_acknowledged(
    tmp_path: Path,
) -> None:
    disk = Disk(tmp_path / "bot.db")

    def states() -> list[str]:
        rows = disk.rows(after_power_cut=True)
        jobs = [row["state"] for row in rows.jobs.values()]
        return [*jobs, *(row["state"] for row in rows.deliveries.values())]

    async with Store.open(tmp_path / "bot.db", TIMINGS) as store:
        await disk.watch(store.database)
        await submit(store)
        assert states() == ["queued", "pending"]
        job = await claim(store)
        attempt = await begin(store, job)
        assert states() == ["creating", "pending"]
        assert await store.jobs.record_created(made(job), attempt, now=NOW, due_at=NOW)
        assert states() == ["running", "pending"]
        [card] = await store.deliveries.claim(NOW, MANY)
        assert states() == ["running", "sending"]
        assert await store.deliveries.release(as_posted(card.delivery), NOW, None)
        assert states() == ["running", "posted"]
        assert await store.jobs.finish(replace(await claim(store), state=State.SUCCEEDED), NOW)
        assert states() == ["succeeded", "posted", "pending"]
        disk.leave()


async def test_a_write_that_can_be_repeated_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "bot.db")
    async with Store.open(tmp_path / "bot.db", TIMINGS) as store:
        await disk.watch(store.database)
        job = await running(store)
        assert await store.jobs.release(replace(job, late=True), NOW, LATER)
        assert not disk.rows(after_power_cut=True).jobs[job.id]["late"]
        assert disk.rows().jobs[job.id]["late"], "it outlives the process"
        assert await store.jobs.fetch("none") is None
        await submit(store, "V2")
        assert disk.rows(after_power_cut=True).jobs[job.id]["late"], "it goes with what lasts"
        # Committed together, it keeps nothing that lasts from the disk.
        await asyncio.gather(store.jobs.claim(NOW, 0), submit(store, "V3"))
        assert len(disk.rows(after_power_cut=True).jobs) == 3
        disk.leave()


class Claims(RuleBasedStateMachine):
    """Two claim jobs, work on them for longer than their leases, and both put them back.

    Whole lives of jobs are in ``test_life``; here a model predicts each row after each step.
    """

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.now = NOW
        self.due: dict[str, datetime | None] = {}
        self.number: dict[str, int] = {}
        self.read: dict[str, datetime | None] = {}
        self.claimed: set[str] = set()
        self.woken: dict[str, datetime] = {}
        self.claims: list[Job] = []

    @initialize()
    def start(self) -> None:
        stack = contextlib.ExitStack()
        self.open = Store.open(self.address(stack), TIMINGS)
        self.store = self.runner.run(self.open.__aenter__())
        self.stack = stack

    @staticmethod
    def address(stack: contextlib.ExitStack) -> Address:
        return Path(stack.enter_context(tempfile.TemporaryDirectory(dir=MEMORY))) / "bot.db"

    def teardown(self) -> None:
        self.runner.run(self.open.__aexit__(None, None, None))
        self.runner.close()
        self.stack.close()

    @rule()
    def submit(self) -> None:
        request = Request(f"V{len(self.due)}", "video", {"script": "Hello"}, "U1", "C1")
        job = self.runner.run(self.store.jobs.submit(request, self.now))
        self.due[job.id] = self.now
        self.number[job.id] = 0

    @rule(limit=st.integers(1, 3), other=st.integers(1, 3))
    def claim(self, limit: int, other: int) -> None:
        async def both() -> list[list[Job]]:
            claims = (self.store.jobs.claim(self.now, most) for most in (limit, other))
            return await asyncio.gather(*claims)

        ready = {id_ for id_, due in self.due.items() if due and due <= self.now}
        first, second = self.runner.run(both())
        assert len(first) == min(limit, len(ready))
        assert len(second) == min(other, len(ready) - len(first))
        claimed = {job.id for job in (*first, *second)}
        assert len(claimed) == len(first) + len(second)
        assert claimed <= ready
        for job in (*first, *second):
            assert job.claim > self.number[job.id] + 1
            self.number[job.id] = job.claim
            self.due[job.id] = self.now + TIMINGS.lease
            self.claimed.add(job.id)
            self.woken.pop(job.id, None)
            if job.state is State.RUNNING:
                self.read[job.id] = self.now
            self.claims.append(job)

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), minutes=st.integers(0, 60))
    def put_back(self, data: st.DataObject, minutes: int) -> None:
        job = data.draw(st.sampled_from(self.claims))
        until = self.now + timedelta(minutes=minutes)
        read = replace(job, state=State.RUNNING)
        done = self.runner.run(self.store.jobs.release(read, self.now, until))
        assert done == (self.number[job.id] == job.claim and self.due[job.id] is not None)
        if done:
            self.due[job.id] = min(until, self.woken.pop(job.id, until))
            self.claimed.discard(job.id)
            self.read[job.id] = job.read_at

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def wake(self, data: st.DataObject) -> None:
        claimed = data.draw(st.sampled_from(self.claims))
        job = self.runner.run(self.store.jobs.fetch(claimed.id))
        assert job is not None
        self.runner.run(self.store.jobs.wake(job, self.now))
        if job.state is State.RUNNING:
            read, spacing = self.read[job.id], TIMINGS.callback_spacing
            again = max(self.now, self.now if read is None else read + spacing)
            if job.id in self.claimed:
                self.woken[job.id] = again
            else:
                self.number[job.id] += 1
                self.due[job.id] = again

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.claims))
        ended = replace(job, state=State.SUCCEEDED)
        won = self.runner.run(self.store.jobs.finish(ended, self.now))
        current = self.number[job.id] == job.claim and self.due[job.id] is not None
        assert won == (current and job.id not in self.woken), "it has no remote id"
        if current:
            self.number[job.id] += 1
            self.due[job.id] = None if won else self.woken.pop(job.id)
            self.claimed.discard(job.id)

    @rule(minutes=st.sampled_from([1, 2, 30, 90]))
    def time_passes(self, minutes: int) -> None:
        self.now += timedelta(minutes=minutes)

    @invariant()
    def each_row_matches_the_model(self) -> None:
        for id_, due in self.due.items():
            job = self.runner.run(self.store.jobs.fetch(id_))
            assert job is not None
            assert (job.due_at, job.claim) == (due, self.number[id_])
            assert job.state.ended == (due is None)


class ClaimsOnPostgres(Claims):
    """The same on PostgreSQL, where the two run in connections of their own."""

    @staticmethod
    def address(stack: contextlib.ExitStack) -> Address:
        return stack.enter_context(database_url())


TestClaims = Claims.TestCase
TestClaims.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
TestClaimsOnPostgres = ClaimsOnPostgres.TestCase
TestClaimsOnPostgres.settings = settings(max_examples=10, stateful_step_count=20, deadline=None)


async def unconfirmed(store: Store) -> Job:
    await submit(store)
    job = await claim(store)
    await begin(store, job)
    doubtful = replace(job, state=State.UNCONFIRMED)
    await store.jobs.record_not_created(doubtful, outcome="uncertain", now=NOW, due_at=NOW)
    return await claim(store)


async def test_an_unverified_candidate_id_is_checked_after_the_end(store: Store) -> None:
    job = await unconfirmed(store)
    await store.jobs.record_callback(token_hash("token"), {"video": "v-1"}, NOW)
    store.jobs.due.clear()
    assert await store.jobs.close(job.id, job.attempts, Failure.CANCELLED, "U1", NOW)
    assert store.jobs.due.is_set()
    ended = await claim(store)
    assert ended.state is State.FAILED
    await store.jobs.record_callback(token_hash("token"), {"video": "v-2"}, NOW)
    assert await store.jobs.release(ended, NOW, None)
    [again] = await store.jobs.claim(NOW + TIMINGS.callback_spacing, 1)
    assert [each.candidate_id for each in await store.jobs.candidates(again)] == ["v-2"]


async def test_what_was_read_before_a_change_does_not_undo_it_in_memory(address: Address) -> None:
    async with Store.open(address, TIMINGS) as store:
        await store.replicas.use("r-1", NOW)
    async with Store.open(address, TIMINGS) as store:
        remember = await store.database.run(
            lambda tx: store.replicas.refresh(tx, NOW), durable=False
        )
        await store.replicas.forget("r-1")
        remember()
        assert store.replicas.find("", "C1", 9) == []


async def test_limits_that_were_read_before_a_change_do_not_undo_it_in_memory(
    address: Address,
) -> None:
    async with Store.open(address, TIMINGS) as store:
        remember = await store.database.run(lambda tx: store.limits.refresh(tx, NOW), durable=False)
        await store.limits.change({"MAX_PER_DAY": "3"}, "U0", NOW)
        remember()
        assert store.limits.current.max_per_day == 3


async def test_a_request_that_nobody_may_approve_takes_no_room_from_others(
    address: Address,
) -> None:
    approvals = ApprovalPolicy(approvers=frozenset({"U1"}))
    async with Store.open(address, TIMINGS, Limits(max_per_day=1), approvals=approvals) as store:

        async def ask(user: str) -> Job:
            request = Request(user, "video", {"script": "Hello"}, user[:2], "C1")
            return await store.jobs.submit(request, NOW)

        users = [*(f"U1 {number}" for number in range(5)), "U2"]
        *own, other = await asyncio.gather(*map(ask, users), return_exceptions=True)
        assert all(isinstance(each, NobodyToApprove) for each in own)
        assert isinstance(other, Job)


async def test_only_direct_messages_go_beyond_the_list_of_channels(address: Address) -> None:
    async with Store.open(address, TIMINGS, Limits(allowed_channels=frozenset({"C1"}))) as store:
        for channel in ("C2", "G2"):
            with pytest.raises(NotAllowed):
                await submit(store, channel, channel=channel)
        for channel in ("C1", "D1", "U1"):
            assert (await submit(store, channel, channel=channel)).channel == channel


async def test_nobody_decides_about_a_request_whose_time_is_over(address: Address) -> None:
    approvals = ApprovalPolicy(approvers=frozenset({"U2"}))
    async with Store.open(address, TIMINGS, approvals=approvals) as store:
        job = await submit(store)
        over = NOW + TIMINGS.approve_within
        assert not await store.jobs.approve(job.id, 0, "U2", over)
        assert not await store.jobs.decline(job.id, 0, "U2", "No.", over)
        assert await store.jobs.approve(job.id, 0, "U2", over - timedelta(seconds=1))


async def test_requests_of_one_person_at_once_do_not_pass_a_limit_together(
    address: Address,
) -> None:
    async with Store.open(address, TIMINGS, Limits(max_open_per_user=2)) as store:
        asked = [submit(store, f"V{number}", f"Number {number}.") for number in range(6)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(each) for each in found].count(Job) == 2


_ADD = (
    "INSERT INTO deliveries (job_id, role, number, state, channel, due_at)"
    " VALUES (:job_id, 'newer', :number, :state, 'C1', :now)"
)
_NEWER = "SELECT * FROM deliveries WHERE role = 'newer' ORDER BY id"


async def test_messages_of_a_role_that_a_newer_version_added_are_left_to_its_copies(
    address: Address,
) -> None:
    async with Store.open(address, TIMINGS) as store:
        job = await submit(store)
        for number, state in enumerate(DeliveryState):
            query(address, _ADD, job_id=job.id, number=number, state=state.value, now=to_ms(NOW))
        before = query(address, _NEWER)

        [card] = await store.deliveries.claim(NOW, MANY)
        held = [card.delivery]
        for state in DeliveryState:
            for limited in (Limited(state), Limited(state, "C1")):
                claimed = await store.deliveries.claim(NOW, MANY, held, {limited: NOW})
                assert claimed == []
                # A worker that is told that something is due, and gets nothing, asks again at once.
                assert claimed.next_due is None
        assert query(address, _NEWER) == before


async def test_an_older_copy_creates_nothing_that_waits_and_an_approval_takes_it_on(
    address: Address,
) -> None:
    policy = ApprovalPolicy(frozenset({"U2"}))
    async with Store.open(address, TIMINGS, approvals=policy) as store:
        job = await submit(store)
        # To an older copy, the state is a word that it cannot read, when the row is due.
        query(address, "UPDATE jobs SET state = 'unknown here', due_at = 0")
        assert await store.jobs.claim(NOW, MANY) == []
        [row] = query(address, "SELECT set_aside, due_at FROM jobs")
        assert (row["set_aside"], row["due_at"]) == (1, None)
        query(address, "UPDATE jobs SET state = 'waiting_for_approval'")
        assert not await store.jobs.approve(job.id, 0, "U1", NOW)
        assert await store.jobs.approve(job.id, 0, "U2", NOW)
        assert not await store.jobs.approve(job.id, 0, "U2", NOW)
        assert [each.id for each in await store.jobs.claim(NOW, MANY)] == [job.id]
