"""The bot's clock jumps a day, either way, at any step: nothing is delayed, lost or done twice."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from bot.engine.sweep import Sweep
from bot.kinds.video import VIDEO
from bot.model import Job, Request, State
from bot.store import Store
from bot.timings import Clock, Timings
from sandbox.clock import ManualClock
from sandbox.faults import CannedResponse, Reset
from sandbox.scenarios import Scenario
from sandbox.service_limits import RateLimit
from sandbox.slack_objects import Message
from tests.engine.test_service_outage import ask
from tests.watched_clock import WatchedClock
from tests.world import REPLICA, World, is_question

DAY, NONE = timedelta(days=1), timedelta(0)
JUMPS = pytest.mark.parametrize("jump", [DAY, -DAY], ids=["ahead", "back"])
ANA, BEN = "Words of Ana.", "Words of Ben."


class WrongClock:
    """A clock of the bot's alone: Slack and the service go by the right one."""

    def __init__(self, right: Clock) -> None:
        self.off = NONE
        self._right = right

    def now(self) -> datetime:
        """Return what it shows."""
        return self._right.now() + self.off

    async def wait(self, event: asyncio.Event, until: datetime | None = None) -> None:
        """Return when ``event`` is set, ``until`` has come, or after half a minute, as ever."""
        soon = self._right.now() + timedelta(seconds=30)
        await self._right.wait(event, soon if until is None else min(soon, until - self.off))


class JumpyWorld(World):
    """A world in which the bot alone may have the wrong time."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.wrong = WrongClock(self.clock)
        self.bot_clock = self.wrong

    def card(self, script: str) -> Message:
        """Return the only card of a video."""
        [card] = [m for m in self.posts() if m.thread_ts is None and script in m.text]
        return card

    def video(self, script: str) -> str:
        """Return the id of the only video with these words."""
        [video] = [each for each in self.service.videos.values() if each.script == script]
        return video.video_id

    def expect_one_reply_to(self, *scripts: str) -> None:
        """See that each video was made once, and has one card and one reply."""
        for script in scripts:
            assert self.video(script)
            assert "Ready" in self.card(script).text
            assert len(self.replies(self.card(script))) == 1
        assert len([m for m in self.posts() if not is_question(m)]) == 2 * len(scripts)
        assert len([each for each in self.requests_for("create_video") if each.done]) == len(
            scripts
        )


@pytest.fixture
async def quiet(memory: Path) -> AsyncIterator[JumpyWorld]:
    """A world whose bot is not started yet."""
    world = JumpyWorld(memory)
    async with world.running_sandbox():
        yield world


def blind(world: World) -> None:
    """Take away the scopes for searching lost messages."""
    world.slack.scopes -= {scope for scope in world.slack.scopes if "history" in scope}


@JUMPS
@pytest.mark.parametrize("call", ["create_video", "read_video", "card", "chat.update", "reply"])
async def test_a_call_is_not_repeated_when_the_clock_jumps_during_it(
    call: str, jump: timedelta, quiet: JumpyWorld
) -> None:
    blind(quiet)
    reached, goes_on, replied = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def hold(phase: str, name: str, about: object) -> None:
        if name == "chat.postMessage" and isinstance(about, dict):
            name = "reply" if about.get("thread_ts") else "card"
            if (phase, name) == ("after", "reply") and BEN in str(about):
                replied.set()
        its = name != "reply" or ANA in str(about)
        if (phase, name) == ("after", call) and its and armed and not reached.is_set():
            reached.set()
            await goes_on.wait()

    quiet.slack.on_request = hold
    quiet.service.on_request = hold
    armed = False
    async with quiet.running_bot():
        await quiet.after(ask(quiet, quiet.ben, script=BEN))
        armed = True
        await ask(quiet, quiet.ana, script=ANA)
        if call in {"read_video", "reply", "chat.update"}:
            await quiet.settle()
            quiet.service.finish(quiet.video(ANA))
        settling = asyncio.create_task(quiet.settle())  # noqa: TID251 - awaited below
        await reached.wait()
        quiet.wrong.off = jump
        # What becomes of another video shows that both workers have seen the new time.
        quiet.service.finish(quiet.video(BEN))
        async with asyncio.timeout(30):
            await replied.wait()
        goes_on.set()
        await settling
        await quiet.advance(minutes=10)

    quiet.expect_one_reply_to(ANA, BEN)
    assert quiet.ephemerals(quiet.ana) == []


Step = Callable[[JumpyWorld], Awaitable[None]]


async def queued(world: JumpyWorld) -> None:
    soon, later = world.clock.now() + timedelta(minutes=1), timedelta(minutes=30)
    world.service.rate_limited = RateLimit(soon, retry_after=later)
    await world.after(ask(world, world.ana, script=ANA), minutes=1)


async def running(world: JumpyWorld) -> None:
    await world.after(ask(world, world.ana, script=ANA), seconds=30)


async def unconfirmed(world: JumpyWorld) -> None:
    world.service.faults.next("create_video", Reset(done=True))
    await world.after(ask(world, world.ana, script=ANA), seconds=30)


async def card_in_doubt(world: JumpyWorld) -> None:
    world.slack.faults.next("chat.postMessage", Reset(done=True))
    await world.after(ask(world, world.ana, script=ANA), seconds=10)


async def card_held_back_and_then_in_doubt(world: JumpyWorld) -> None:
    """It is sent at a time that is wrong, and looked for in Slack, where the time is right."""
    limited = CannedResponse(429, "", {"Retry-After": "90"})
    world.slack.faults.next("chat.postMessage", limited, Reset(done=True))
    await world.after(ask(world, world.ana, script=ANA), seconds=30)


@pytest.mark.parametrize("jumps", [[-DAY], [DAY, NONE]], ids=["back", "ahead and back"])
@pytest.mark.parametrize(
    "step", [queued, running, unconfirmed, card_in_doubt, card_held_back_and_then_in_doubt]
)
async def test_waiting_work_is_done_once_and_within_minutes_after_the_clock_jumps(
    step: Step, jumps: list[timedelta], quiet: JumpyWorld
) -> None:
    async with quiet.running_bot():
        await step(quiet)
        for quiet.wrong.off in jumps:
            await quiet.advance(minutes=1)
        await quiet.advance(minutes=7)

    quiet.expect_one_reply_to(ANA)


@JUMPS
async def test_an_unconfirmed_job_is_not_created_again_when_the_clock_jumps(
    jump: timedelta, quiet: JumpyWorld
) -> None:
    async with quiet.running_bot(callbacks=False):
        await unconfirmed(quiet)
        for quiet.wrong.off in (jump, NONE, jump, NONE):
            await quiet.advance(minutes=5)

    card = quiet.card(ANA)
    assert "Needs an answer" in card.text
    assert quiet.replies(card) == [], "it has not been given up"
    assert quiet.created_count() == 1
    assert len(quiet.requests_for("create_video")) == 1


HOUR = timedelta(hours=1)


async def test_running_jobs_do_not_wait_until_a_clock_that_was_set_back_catches_up(
    quiet: JumpyWorld,
) -> None:
    async with quiet.running_bot(callbacks=False):
        await quiet.after(ask(quiet, quiet.ana, script=ANA), seconds=30)
        quiet.wrong.off = -HOUR
        await quiet.advance(minutes=5)

    quiet.expect_one_reply_to(ANA)


@pytest.mark.parametrize(
    ("jump", "restarts"),
    [(DAY, False), (-DAY, True), (20 * DAY, True)],
    ids=["ahead-while it runs", "back-while it is stopped", "weeks ahead-while it is stopped"],
)
async def test_the_age_of_a_running_job_does_not_change_when_the_clock_is_set(
    jump: timedelta, quiet: JumpyWorld, *, restarts: bool
) -> None:
    quiet.service.next_video(Scenario(end="never"))
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(quiet.running_bot(callbacks=False))
        await quiet.after(ask(quiet, quiet.ana, script=ANA), minutes=5)
        if restarts:
            await stack.aclose()
        quiet.wrong.off = jump
        if restarts:
            await stack.enter_async_context(quiet.running_bot(callbacks=False))
        await quiet.advance(minutes=5)
        assert "Overdue" not in quiet.card(ANA).text
        assert "longer than usual" not in quiet.card(ANA).text
        before = len(quiet.requests_for("read_video"))
        await quiet.advance(minutes=10)
        assert len(quiet.requests_for("read_video")) - before >= 5, "it is not read hourly"
        assert "longer than usual" in quiet.card(ANA).text
        quiet.service.finish(quiet.video(ANA))
        await quiet.advance(minutes=5)

    quiet.expect_one_reply_to(ANA)


class Sweeping:
    """A sweep of a store, under a clock that can be set."""

    def __init__(self, store: Store, timings: Timings) -> None:
        self.clock = ManualClock()
        self.store = store
        self._watched = WatchedClock(self.clock)
        retention = timedelta(days=1)
        self._sweep = Sweep(store, [VIDEO], self._watched, timings, retention)

    @contextlib.asynccontextmanager
    async def runs(self) -> AsyncIterator[None]:
        """Run it until the end."""
        task = asyncio.create_task(self._sweep.run())  # noqa: TID251 - cancelled below
        leave = self.clock.settles_with(
            lambda: self._watched.settled(lambda: [] if self._watched.is_idle(task) else [task])
        )
        try:
            await self.clock.settle()
            yield
        finally:
            leave()
            task.cancel()
            await asyncio.wait([task])

    async def claimed(self) -> Job:
        """Return a new job, claimed."""
        params = {"script": ANA, "replica_id": REPLICA}
        request = Request("V1", "video", params, "U1", "C1")
        await self.store.jobs.submit(request, self.clock.now())
        [job] = await self.store.jobs.claim(self.clock.now(), 1)
        return job


@pytest.fixture
async def sweeping(memory: Path) -> AsyncIterator[Sweeping]:
    """A sweep that does not run yet."""
    timings = Timings(card_delay=timedelta(0))
    async with Store.open(memory / "bot.db", timings) as store:
        yield Sweeping(store, timings)


async def test_after_the_clock_was_set_back_old_scripts_are_still_erased_in_time(
    sweeping: Sweeping,
) -> None:
    clock, store = sweeping.clock, sweeping.store
    right = clock.now()
    clock.set(right + timedelta(days=5))
    async with sweeping.runs():
        clock.set(right)
        job = await sweeping.claimed()
        await store.jobs.finish(replace(job, state=State.FAILED), right)

        await clock.advance(timedelta(days=1, hours=1))

    found = await store.jobs.fetch(job.id)
    assert found is not None
    assert found.erased


async def test_a_row_that_a_wrong_clock_postponed_too_far_is_due_within_a_minute(
    sweeping: Sweeping,
) -> None:
    clock, store = sweeping.clock, sweeping.store
    job = await sweeping.claimed()
    [card] = await store.deliveries.claim(clock.now(), 1)
    async with sweeping.runs():
        await store.jobs.release(job, clock.now(), clock.now() + DAY)
        await store.deliveries.release(card.delivery, clock.now(), clock.now() + DAY)
        store.jobs.due.clear()
        store.deliveries.due.clear()

        await clock.advance(timedelta(minutes=1))

    for table, due in ((store.jobs, store.jobs.due), (store.deliveries, store.deliveries.due)):
        due_at = (await table.claim(clock.now(), 0)).next_due
        assert due_at is not None
        assert due_at <= clock.now()
        assert due.is_set()
