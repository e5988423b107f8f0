"""A service that answers 429 for reads of one id: reads of the others go on."""

from dataclasses import replace
from datetime import timedelta

import pytest

from sandbox.scenarios import CallbackPlan
from sandbox.slack_objects import Message
from tests.world import World

HOUR = timedelta(hours=1)
FOREIGN = "v-of-others"


@pytest.fixture
async def polled(quiet_world: World) -> World:
    """A world with the default jitter, in which only reads find out how a video goes."""
    world = quiet_world
    world.service.callback_plan = CallbackPlan(times=0)
    world.timings = replace(world.timings, jitter=0.1)
    return world


async def ask(world: World, videos: int, throttled: dict[int, timedelta]) -> list[Message]:
    """Ask for videos, some throttled by their place; return the cards of the others."""
    cards = []
    for number in range(videos):
        card = await world.request_video(world.ana)
        if number in throttled:
            world.service.limits.throttled[list(world.service.videos)[-1]] = throttled[number]
        else:
            cards.append(card)
    return cards


def ready(world: World, cards: list[Message]) -> int:
    """Return how many cards have a closing reply."""
    return sum(bool(world.replies(card)) for card in cards)


@pytest.mark.parametrize(
    ("videos", "throttled", "wait"),
    [(7, {0, 1}, HOUR), (6, {0}, timedelta(minutes=1)), (6, {5}, HOUR), (2, {0}, HOUR)],
)
async def test_after_a_throttled_read_the_next_tries_are_those_of_other_videos(
    polled: World, videos: int, throttled: set[int], wait: timedelta
) -> None:
    world = polled
    async with world.running_bot(callbacks=False):
        cards = await ask(world, videos, dict.fromkeys(throttled, wait))
        await world.advance(seconds=wait.total_seconds() * 1.15 + 120)
        assert ready(world, cards) == len(cards)


async def test_a_video_whose_reads_are_throttled_again_and_again_holds_back_no_later_one(
    polled: World,
) -> None:
    world = polled
    async with world.running_bot(callbacks=False):
        await ask(world, 3, {0: HOUR, 1: HOUR})
        await world.advance(minutes=70)
        for _ in range(10):
            [card] = await ask(world, 1, {})
            await world.advance(minutes=20)
            assert ready(world, [card])
        odd = list(world.service.limits.throttled)
        for id_ in odd:
            reads = [r for r in world.requests_for("read_video") if r.path.endswith(id_)]
            assert 2 <= len(reads) <= 6, "its own wait is kept"


async def test_an_odd_id_in_a_command_holds_back_no_reads_of_jobs(polled: World) -> None:
    world = polled
    for number in range(3):
        world.service.limits.throttled[f"{FOREIGN}-{number}"] = HOUR
    async with world.running_bot(callbacks=False):
        cards = await ask(world, 2, {})
        for number in range(3):
            await world.ben.command("/video", f"status {FOREIGN}-{number}")
            await world.settle()
        await world.advance(minutes=5)
        assert ready(world, cards) == 2


async def test_a_rate_limit_for_all_is_still_found_by_one_read(polled: World) -> None:
    world = polled
    async with world.running_bot(callbacks=False):
        await ask(world, 5, {})
        foreign = [f"{FOREIGN}-{number}" for number in range(5)]
        for id_ in (*world.service.videos, *foreign):
            world.service.limits.throttled[id_] = HOUR
        for id_ in foreign:
            await world.ben.command("/video", f"status {id_}")
            await world.settle()
        await world.advance(minutes=50)
        assert len(world.requests_for("read_video")) <= 3, "the command's, and one of a job"
