"""Two copies of the bot whose clocks differ, while a call of one of them is slow."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from bot.app import Bot
from sandbox.slack_objects import Message
from tests.engine.test_clock import ANA, BEN, WrongClock
from tests.store.test_copies_leases import MAX_DIFFERENCE
from tests.world import REPLICA, World

#: More than a lease, and less than Slack's signatures allow.
FOUR_MINUTES = timedelta(minutes=4)


@contextlib.asynccontextmanager
async def running_apart(world: World, difference: timedelta) -> AsyncIterator[list[Bot]]:
    """Start two copies, of which the clock of the second one is ahead by ``difference``."""
    wrong = WrongClock(world.clock)
    async with world.running_bot() as first:
        world.bot_clock = wrong
        wrong.off = difference
        async with world.running_bot() as second:
            yield [first, second]


async def ask(world: World, script: str) -> None:
    person = world.ana if script == ANA else world.ben
    form = await world.open_form(person)
    await form.submit({"replica_id": REPLICA, "script": script})
    assert not form.is_open


def card(world: World, script: str) -> Message | None:
    """Return the card of a video, if it is posted."""
    cards = [m for m in world.slack.messages("studio") if script in m.text]
    assert len(cards) <= 1, "it was posted twice"
    return cards[0] if cards else None


async def slow_call(world: World, call: str, copies: list[Bot]) -> None:
    """Have a call for Ana take nearly as long as it may, while both copies look for due work."""
    first, second = copies
    reached, goes_on = asyncio.Event(), asyncio.Event()

    async def hold(phase: str, name: str, about: object) -> None:
        its = name != "chat.postMessage" or ANA in str(about)
        if armed and (phase, name) == ("after", call) and its and not reached.is_set():
            reached.set()
            await goes_on.wait()

    world.slack.on_request = hold
    world.service.on_request = hold
    # The card of a video is edited once it is ready, and before only if it was posted early.
    armed = call != "chat.update"
    await world.at(first, ask(world, ANA))
    if not armed:
        await world.card_time()
        armed = True
        world.service.finish(*world.service.videos)
    async with asyncio.timeout(30):
        await reached.wait()
        delay = world.timings.card_delay
        world.clock.set(world.clock.now() + world.timings.call_timeout - delay * len(copies))
        for number, copy in enumerate((first, second)):
            script = f"{BEN} {number}"
            await world.at(copy, ask(world, script))
            world.clock.set(world.clock.now() + delay)
            while card(world, script) is None:  # noqa: ASYNC110 - of whichever copy posts it
                await asyncio.sleep(0)
    goes_on.set()
    await world.settle()


@pytest.mark.parametrize("call", ["create_video", "chat.postMessage", "chat.update"])
async def test_a_slow_call_is_left_alone_at_the_greatest_difference_of_clocks(
    call: str, world_of_copies: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = world_of_copies
    async with running_apart(world, MAX_DIFFERENCE) as copies:
        await slow_call(world, call, copies)
        assert "interrupted" not in caplog.text
        await world.advance(minutes=5)
        for message in world.slack.messages("studio"):
            assert "Ready" in message.text
            assert len(world.replies(message)) == 1
        assert len(world.requests_for("create_video")) == 3
        assert len(world.calls("conversations.history")) == 0, "no post was in doubt"


@pytest.mark.parametrize("difference", [FOUR_MINUTES, -FOUR_MINUTES], ids=["ahead", "behind"])
@pytest.mark.parametrize("call", ["create_video", "chat.postMessage"])
async def test_clocks_that_are_far_apart_cost_no_money(
    call: str, difference: timedelta, world_of_copies: World
) -> None:
    world = world_of_copies
    async with running_apart(world, difference) as copies:
        await slow_call(world, call, copies)
        await world.advance(minutes=20)
        assert len(world.requests_for("create_video")) == 3
        for message in world.slack.messages("studio"):
            assert "Ready" in message.text
            assert len(world.replies(message)) == 1
