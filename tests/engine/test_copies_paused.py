"""A copy of the bot that is stopped for longer than a lease, and goes on where it was.

A machine may be suspended, a virtual one moved, a process sent SIGSTOP. Meanwhile another copy
takes over what the first one had claimed.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta

import pytest

from bot.app import Bot
from bot.clock import Clock
from sandbox.slack_objects import Message
from tests.postgres_proxy import Hold, PostgresProxy
from tests.world import REPLICA, World

MARK_SENDING = "THEN 'sending'"
BEGIN_ATTEMPT = "INSERT INTO attempts"


class StoppableClock:
    """A clock as a process sees it that may be stopped."""

    def __init__(self, right: Clock) -> None:
        self._right = right
        self._stopped_at: datetime | None = None

    def stop(self) -> None:
        self._stopped_at = self._right.now()

    def resume(self) -> None:
        self._stopped_at = None

    def now(self) -> datetime:
        return self._stopped_at or self._right.now()

    async def wait(self, event: asyncio.Event, until: datetime | None = None) -> None:
        await self._right.wait(event, None if self._stopped_at else until)


class PausedWorld:
    """Two copies, of which the first one is stopped in the middle of something."""

    def __init__(self, world: World, proxy: PostgresProxy) -> None:
        self.world = world
        self.proxy = proxy
        self.clock = StoppableClock(world.clock)
        self.first: Bot

    @contextlib.asynccontextmanager
    async def running_first(self) -> AsyncIterator[None]:
        self.world.bot_clock = self.clock
        async with self.world.running_bot(DATABASE_URL=self.proxy.url, PUBLIC_URL="") as self.first:
            yield

    @contextlib.asynccontextmanager
    async def stopped(self, reached: asyncio.Event) -> AsyncIterator[None]:
        """Stop the first copy once it has ``reached`` something, while a second one goes on."""
        async with asyncio.timeout(30):
            await reached.wait()
        self.clock.stop()
        self.world.clock._workers.remove(self.first.settled)
        self.world.bot_clock = self.world.clock
        async with self.world.running_bot(PUBLIC_URL=""):
            yield

    async def goes_on_until(self, condition: Callable[[], object]) -> None:
        """Let time pass for the second copy until ``condition`` is true."""
        until = self.world.clock.now() + timedelta(hours=1)
        while not condition():
            assert self.world.clock.now() < until
            await self.world.advance(seconds=15)

    async def resumes(self, hold: Hold | asyncio.Event) -> None:
        """Let the first copy go on, and both do all that is due for a while."""
        self.clock.resume()
        self.world.clock._workers.append(self.first.settled)
        (hold.let_go if isinstance(hold, Hold) else hold).set()
        await self.world.advance(minutes=5)

    async def is_asked(self) -> None:
        form = await self.world.open_form(self.world.ana)
        await form.submit({"replica_id": REPLICA, "script": "Hello, world."})
        assert not form.is_open

    def cards(self) -> list[Message]:
        return [each for each in self.world.posts() if each.thread_ts is None]


@pytest.fixture
async def paused(world_of_copies: World, postgres_url: str) -> AsyncIterator[PausedWorld]:
    async with PostgresProxy(postgres_url).running() as proxy:
        yield PausedWorld(world_of_copies, proxy)


async def test_a_message_that_another_copy_has_posted_meanwhile_is_not_posted_again(
    paused: PausedWorld,
) -> None:
    world = paused.world
    async with paused.running_first():
        hold = paused.proxy.hold_commit_of(MARK_SENDING)
        await paused.is_asked()
        async with paused.stopped(hold.reached):
            await paused.goes_on_until(paused.cards)
            await paused.resumes(hold)
            [card] = paused.cards()
            assert "Ready" in card.text
            assert len(world.replies(card)) == 1


async def test_a_request_that_was_cancelled_meanwhile_is_not_created(paused: PausedWorld) -> None:
    world = paused.world
    async with paused.running_first():
        hold = paused.proxy.hold_commit_of(BEGIN_ATTEMPT)
        await paused.is_asked()
        async with paused.stopped(hold.reached):
            await paused.goes_on_until(paused.cards)
            [card] = paused.cards()
            await paused.goes_on_until(lambda: world.questions(card))
            await world.ana.click(world.question(card), "Cancel request")
            await paused.goes_on_until(lambda: "ancelled" in world.now(card).text)
            await paused.resumes(hold)
            assert world.requests_for("create_video") == []
            assert len(world.replies(card)) == 1


async def test_what_is_not_created_for_a_pause_is_created_afterwards_if_nobody_took_it(
    paused: PausedWorld,
) -> None:
    world = paused.world
    async with paused.running_first():
        hold = paused.proxy.hold_commit_of(BEGIN_ATTEMPT)
        await paused.is_asked()
        async with asyncio.timeout(30):
            await hold.reached.wait()
        world.clock.set(world.clock.now() + timedelta(minutes=10))
        hold.let_go.set()
        await world.advance(minutes=5)
        [card] = paused.cards()
        assert "Ready" in card.text
        assert len(world.requests_for("create_video")) == 1
        assert world.questions(card) == []


async def _held(world: World, method: str, words: str) -> tuple[asyncio.Event, asyncio.Event]:
    """Hold the next call of a method with these words, before it is carried out."""
    reached, let_go = asyncio.Event(), asyncio.Event()

    async def hold(phase: str, name: str, about: object) -> None:
        if (phase, name) == ("before", method) and words in str(about) and not reached.is_set():
            reached.set()
            await let_go.wait()

    world.slack.on_request = hold
    return reached, let_go


async def test_an_edit_that_comes_late_is_not_what_a_card_shows_in_the_end(
    paused: PausedWorld,
) -> None:
    world = paused.world
    async with paused.running_first():
        reached, let_go = await _held(world, "chat.update", "Rendering")
        world.creates_slowly()
        await paused.is_asked()
        await world.settle()
        world.clock.set(world.clock.now() + timedelta(seconds=2))
        async with paused.stopped(reached):
            await paused.goes_on_until(lambda: paused.cards() and "Ready" in paused.cards()[0].text)
            await paused.resumes(let_go)
            [card] = paused.cards()
            assert "Ready" in card.text
            assert len(world.replies(card)) == 1
