"""Whose turn it is: people take turns, and creates do not wait behind polls."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from bot.model import DeliveryState, Job, Request, Role, State
from bot.store import Limited, Store
from sandbox.driver import Person
from sandbox.scenarios import Pace
from sandbox.video_service import Operation
from tests.engine.test_service_outage import ask
from tests.modes import on_both_engines
from tests.store.test_store import NOW, post_card, running, store
from tests.world import REPLICA, World

__all__ = ["store"]  # a fixture

# Many times what anything takes: other work may keep the machine busy.
_TIMEOUT_S = 20.0
MANY = 70


class Gate:
    """Holds back the video service's answers to one operation."""

    def __init__(self, world: World, operation: Operation) -> None:
        self.arrived: Counter[Operation] = Counter()
        self._operation = operation
        self._passes = asyncio.Semaphore(0)
        self._arrival = asyncio.Condition()
        world.service.on_request = self._on_request

    async def _on_request(self, phase: str, operation: Operation, _path: str) -> None:
        if phase == "before":
            async with self._arrival:
                self.arrived[operation] += 1
                self._arrival.notify_all()
            if operation == self._operation:
                await self._passes.acquire()

    async def until(self, operation: Operation, count: int) -> None:
        """Wait until this number of requests of an operation has arrived."""
        async with asyncio.timeout(_TIMEOUT_S), self._arrival:
            await self._arrival.wait_for(lambda: self.arrived[operation] >= count)

    def release(self, count: int) -> None:
        """Answer this number of requests."""
        for _ in range(count):
            self._passes.release()


@contextmanager
def held_back(world: World, operation: Operation) -> Iterator[Gate]:
    gate = Gate(world, operation)
    try:
        yield gate
    finally:
        gate.release(1000)


async def send_many(world: World, person: Person, count: int = MANY) -> None:
    """Have many forms submitted: more than the worker has slots."""
    channel = world.slack.channel("studio").id
    requests = [
        Request(f"V{n}", "video", {"replica_id": REPLICA, "script": "Me"}, person.user.id, channel)
        for n in range(count)
    ]
    now = world.clock.now()
    await asyncio.gather(*(world.bot.store.jobs.submit(each, now) for each in requests))


@pytest.fixture
async def slow(quiet: World) -> AsyncIterator[World]:
    """A world in which calls to the service may wait for others for as long as a test lasts."""
    quiet.timings = replace(
        quiet.timings, turn_timeout=timedelta(minutes=1), hang_after=timedelta(minutes=1)
    )
    async with quiet.running_bot(callbacks=False):
        yield quiet


# ── From outside ──────────────────────────────────────────────────────────────────────────────


async def test_a_single_request_does_not_wait_behind_many_of_somebody_else(slow: World) -> None:
    count = 200
    with held_back(slow, "create_video") as gate:
        await send_many(slow, slow.ana, count)
        await gate.until("create_video", 1)
        slow.clock.set(slow.clock.now() + timedelta(seconds=1))
        await ask(slow, slow.ben, script="Ben")
        while (arrived := gate.arrived["create_video"]) <= count:
            gate.release(1)
            await gate.until("create_video", arrived + 1)
        bodies = [each.body for each in slow.requests_for("create_video")]
        scripts = [body["script"] for body in bodies if isinstance(body, dict)]
        # It goes behind those that had one of the 64 slots. Behind all others it could overtake no
        # more than as many on its way.
        assert scripts.index("Ben") < 100


async def test_a_new_request_is_created_at_once_although_polls_fill_their_slots(
    slow: World,
) -> None:
    await slow.after(send_many(slow, slow.ana))
    with held_back(slow, "read_video") as gate:
        slow.clock.set(slow.clock.now() + timedelta(minutes=1))
        await gate.until("read_video", 1)
        await ask(slow, slow.ben, script="Ben")
        await gate.until("create_video", 1)


async def test_polls_go_on_although_creates_fill_their_slots(slow: World) -> None:
    await slow.after(ask(slow, slow.ben, script="Ben"))
    with held_back(slow, "create_video") as gate:
        await send_many(slow, slow.ana)
        await gate.until("create_video", 1)
        await many_claims(slow)
        slow.clock.set(slow.clock.now() + timedelta(minutes=1))
        await gate.until("read_video", 1)


async def many_claims(world: World) -> None:
    """Give the workers time to claim as often as they can: an answer takes as long as a claim."""
    for _ in range(30):
        assert (await world.ben.command("/video", "help")).ok


async def test_posts_are_made_although_edits_fill_their_slots(slow: World) -> None:
    slow.service.pace = Pace(generating=timedelta(hours=1))
    arrival, released, posted = asyncio.Condition(), asyncio.Event(), asyncio.Event()
    edits = 0

    async def on_request(phase: str, method: str, _arguments: object) -> None:
        nonlocal edits
        if (phase, method) == ("before", "chat.update"):
            async with arrival:
                edits += 1
                arrival.notify_all()
            await released.wait()
        if (phase, method) == ("before", "chat.postMessage"):
            posted.set()

    await slow.after(send_many(slow, slow.ana), minutes=14)
    slow.slack.on_request = on_request
    try:
        # Each card says that its video takes longer than usual.
        slow.clock.set(slow.clock.now() + timedelta(minutes=2))
        async with asyncio.timeout(_TIMEOUT_S), arrival:
            await arrival.wait_for(lambda: edits >= 48)
        await many_claims(slow)
        await ask(slow, slow.ben, script="Ben")
        async with asyncio.timeout(_TIMEOUT_S):
            await posted.wait()
    finally:
        released.set()


# ── Claims ────────────────────────────────────────────────────────────────────────────────────


async def queue(
    store: Store, user: str, count: int, *, after: float = 0, channels: int = 1
) -> None:
    """Queue jobs of a person at one moment, in as many channels."""
    now = NOW + timedelta(seconds=after)
    for number in range(count):
        key = f"{user}-{after}-{number}"
        channel = f"C{1 + number % channels}"
        await store.jobs.submit(Request(key, "video", {"script": key}, user, channel), now)


async def claimed_one_by_one(store: Store, count: int) -> list[Job]:
    """Claim jobs as a worker does that has one free slot at a time."""
    later = NOW + timedelta(minutes=1)
    return [job for _ in range(count) for job in await store.jobs.claim(later, 1)]


async def test_people_take_turns_whenever_a_slot_is_free(store: Store) -> None:
    await queue(store, "ana", 30)
    await queue(store, "ben", 2, after=1)
    await queue(store, "cyd", 1, after=2)
    jobs = await claimed_one_by_one(store, 8)
    assert [job.user for job in jobs] == ["ana", "ben", "cyd", "ana", "ben", "ana", "ana", "ana"]


async def test_nobody_waits_for_ever_behind_people_who_come_first(store: Store) -> None:
    for user in ("ana", "ben"):
        await queue(store, user, 20)
    await queue(store, "cyd", 3, after=1)
    jobs = await claimed_one_by_one(store, 9)
    assert [job.user for job in jobs].count("cyd") == 3


async def test_a_persons_own_requests_are_created_in_the_order_in_which_they_came(
    store: Store,
) -> None:
    for second in range(5):
        await queue(store, "ana", 1, after=second)
    jobs = await claimed_one_by_one(store, 5)
    assert [job.created_at for job in jobs] == sorted(job.created_at for job in jobs)


async def test_closing_replies_go_before_cards_and_cards_before_edits(store: Store) -> None:
    # The first job's reply and the edit of its card are owed after the card of the second.
    ending = await running(store)
    await post_card(store)
    await queue(store, "ben", 1, after=1)
    later = NOW + timedelta(seconds=2)
    assert await store.jobs.finish(replace(ending, state=State.SUCCEEDED), later)
    claimed = [
        outgoing
        for _ in range(3)
        for outgoing in await store.deliveries.claim(later + timedelta(seconds=1), 1)
    ]
    sorts = [(each.delivery.role, each.delivery.state) for each in claimed]
    assert sorts == [
        (Role.REPLY, DeliveryState.PENDING),
        (Role.CARD, DeliveryState.PENDING),
        (Role.CARD, DeliveryState.POSTED),
    ]


@on_both_engines
@pytest.mark.parametrize("channels", [1, 64])
async def test_a_card_does_not_wait_behind_the_1500_of_somebody_else(
    store: Store, channels: int
) -> None:
    await queue(store, "ana", 1500, channels=channels)
    under_way = list(await store.deliveries.claim(NOW + timedelta(seconds=2), 55))
    assert {each.job.user for each in under_way} == {"ana"}
    await queue(store, "ben", 2, after=2)
    await queue(store, "cyd", 1, after=2.1)
    # Slack takes some of those under way meanwhile, and then each at once.
    held = under_way[: 7 if channels == 1 else 50]
    scripts = []
    for step in range(40):
        # What is limited is due 50 ms later.
        claimed = await store.deliveries.claim(
            NOW + timedelta(seconds=3.5 + step / 20), 1, [each.delivery for each in held]
        )
        scripts += [each.job.params["script"] for each in claimed]
        held = [*held[: len(held) - len(claimed)], *claimed]
    places = [scripts.index(each) for each in ("ben-2-0", "cyd-2.1-0", "ben-2-1")]
    assert max(places[:2]) < 10, scripts
    assert max(places) < 20, scripts


@on_both_engines
async def test_where_a_channel_has_no_room_people_take_turns(store: Store) -> None:
    await queue(store, "ana", 300)
    await queue(store, "ben", 3, after=1)
    now = NOW + timedelta(seconds=3)
    crowded = Limited(DeliveryState.PENDING, "C1")
    claimed = await store.deliveries.claim(now, 64, (), {crowded: now + timedelta(seconds=30)})
    assert not claimed

    scripts = []
    for second in range(31, 37):
        after = now + timedelta(seconds=second)
        [each] = await store.deliveries.claim(after, 1, (), {crowded: after})
        scripts.append(each.job.params["script"])
    assert scripts == ["ana-0-0", "ben-1-0", "ana-0-1", "ben-1-1", "ana-0-2", "ben-1-2"]


@on_both_engines
async def test_in_a_rush_of_many_people_who_comes_first_is_served_first(store: Store) -> None:
    people = [f"person{number}" for number in range(250)]
    for number, each in enumerate(people):
        await queue(store, each, 1, after=number / 1000, channels=64)
    later = NOW + timedelta(seconds=2)
    claimed = [each for _ in range(8) for each in await store.deliveries.claim(later, 1)]
    assert [each.job.user for each in claimed] == people[:8]


@pytest.mark.parametrize("is_limited", [False, True])
async def test_however_many_posts_wait_in_one_channel_they_hide_none_in_another(
    store: Store, *, is_limited: bool
) -> None:
    await queue(store, "ana", 300)
    request = Request("elsewhere", "video", {"script": "Elsewhere"}, "ana", "C2")
    await store.jobs.submit(request, NOW + timedelta(seconds=1))
    now = NOW + timedelta(seconds=2)
    crowded = Limited(DeliveryState.PENDING, "C1")
    limited = {crowded: now + timedelta(seconds=30)} if is_limited else {}
    under_way = list(await store.deliveries.claim(now, 64, (), limited))
    assert len(under_way) == (0 if is_limited else 8)
    held = [each.delivery for each in under_way]
    claimed = await store.deliveries.claim(now, 64, held, limited)
    assert [each.delivery.channel for each in claimed] == ["C2"]
    assert claimed.next_due is not None
    assert claimed.next_due > now, "nobody looks at the others again and again"

    # They go on in their order, one behind the other.
    after = now + timedelta(seconds=31)
    limits = {crowded: after} if is_limited else {}
    [first] = await store.deliveries.claim(after, 1, (), limits)
    assert first.job.params["script"] == ("ana-0-0" if is_limited else "ana-0-8")
