"""Slack's rate limits: what is held back, and at what pace it goes on."""

import pytest

from sandbox.faults import CannedResponse
from sandbox.slack import Call
from tests.world import REPLICA, World

JOBS = 40


async def _requests(world: World, channel: str = "studio", script: str = "Hello.") -> None:
    form = await world.open_form(world.ana, channel=channel)
    await form.submit({"replica_id": REPLICA, "script": script})
    assert not form.is_open, form.errors


async def _requests_many(world: World) -> None:
    """Request videos, none of which is ready before all of them are requested."""
    for number in range(JOBS):
        await _requests(world, script=f"Number {number}.")
    await world.settle()


def _refused(calls: list[Call]) -> list[Call]:
    return [call for call in calls if not call.ok]


@pytest.fixture
def world(world: World) -> World:
    world.slack.rate_limits = True
    return world


async def test_after_a_refusal_posts_follow_one_at_a_time_and_in_order(world: World) -> None:
    await _requests_many(world)
    first = len(_refused(world.calls("chat.postMessage")))

    await world.advance(minutes=10)

    calls = world.calls("chat.postMessage")
    assert len(world.posts()) == 2 * JOBS
    assert first <= 8, "only a few posts are made at once into one channel"
    assert len(_refused(calls)) * 10 < len(world.posts())
    texts = [message.text for message in world.slack.messages("studio")]
    late = [text.partition("Number ")[2].partition(".")[0] for text in texts][8:]
    assert late == sorted(late, key=int)


async def test_a_held_back_edit_holds_back_all_edits_and_no_post(world: World) -> None:
    limit = CannedResponse(429, {"ok": False, "error": "ratelimited"}, {"Retry-After": "30"})
    world.slack.faults.next("chat.update", limit)
    world.creates_slowly()
    await _requests(world)
    await world.advance(seconds=2)
    assert len(world.calls("chat.update")) == 1

    world.creates_slowly()
    await _requests(world, "lobby")
    await world.advance(seconds=29)
    assert len(world.calls("chat.update")) == 1, "the other channel's card waits too"
    assert len(world.slack.messages("lobby")) == 1

    await world.advance(seconds=1.1)
    assert len(world.calls("chat.update")) == 2, "one call shows whether the limit is over"
    await world.advance(minutes=5)
    assert "Ready" in world.slack.messages("studio")[0].text
    assert "Ready" in world.slack.messages("lobby")[0].text
