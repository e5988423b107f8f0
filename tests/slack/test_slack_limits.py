"""Slack's limits on each method, and what goes on once Slack answers again."""

import pytest

from sandbox.faults import CannedResponse
from tests.world import World


def limited(seconds: object) -> CannedResponse:
    headers = {"Retry-After": str(seconds)}
    return CannedResponse(429, {"ok": False, "error": "ratelimited"}, headers)


async def test_after_an_outage_of_slack_a_card_does_not_wait_out_its_own_back_off(
    quiet_world: World,
) -> None:
    world = quiet_world
    async with world.running_bot():
        card = await world.request_video(world.ana)
        port = int(world.slack.url.rpartition(":")[2])
        await world.slack.stop()
        await world.advance(minutes=20)
        await world.slack.start(port)
        assert "Ready" not in world.now(card).text

        await world.open_form(world.ben)
        await world.advance(seconds=1)

        assert "Ready" in world.now(card).text
        assert len(world.replies(card)) == 1


async def test_a_message_that_slack_may_still_do_is_not_hastened(quiet_world: World) -> None:
    world = quiet_world
    async with world.running_bot():
        card = await world.request_video(world.ana)
        world.slack.faults.always("chat.postMessage", CannedResponse(503, done=True))
        await world.advance(minutes=4, seconds=30)
        world.slack.faults.clear()
        await world.advance(minutes=5)
        assert len(world.replies(card)) == 1


@pytest.mark.parametrize("asked", [0, 10**30, "soon"])
async def test_any_wait_that_slack_asks_for_is_kept_within_bounds(
    world: World, asked: object
) -> None:
    world.slack.faults.always("chat.postMessage", limited(asked))
    world.slack.faults.always("chat.update", limited(asked))
    form = await world.open_form(world.ana)
    await form.submit({"replica_id": "r-anna-42", "script": "Hello."})
    await world.advance(minutes=10)
    assert len(world.slack.calls) < 600
    world.slack.faults.clear()

    await world.advance(hours=1, minutes=10)

    [card] = world.slack.messages("studio")
    assert "Ready" in card.text
    assert len(world.replies(card)) == 1


async def test_a_limited_question_about_a_person_is_not_asked_again_before_its_time(
    world: World,
) -> None:
    world.slack.faults.next("users.info", limited(60))
    first = await world.open_form(world.ana)
    await world.settle()
    await first.submit({"replica_id": "r-anna-42", "script": "Hello."})
    assert "couldn't check" in str(first.errors)
    asked = len(world.calls("users.info"))
    assert asked == 1

    await world.open_form(world.ben)
    await world.settle()
    assert len(world.calls("users.info")) == asked, "the limit is the workspace's"

    await world.advance(seconds=61)
    await first.submit({"replica_id": "r-anna-42", "script": "Hello."})
    assert not first.is_open, first.errors
