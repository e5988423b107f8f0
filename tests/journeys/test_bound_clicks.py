"""A click belongs to the state in which it was pressed: a late or replayed one does nothing."""

import asyncio

import pytest

from sandbox.delivery import deliver, encoded, interaction
from sandbox.faults import CannedResponse
from sandbox.slack_objects import Message
from tests.web.test_web import asks_what_to_do, click, replay
from tests.world import REPLICA, World

CREATE_AGAIN = "Create again"
SETTLED = "already settled"


async def asks_once_more(world: World, card: Message) -> Message:
    """Create again, without an answer again; return the card that asks about the second attempt."""
    world.service.faults.next("create_video", CannedResponse(500))
    await world.ana.click(world.question(card), CREATE_AGAIN)
    await world.advance(seconds=5)
    again = world.now(card)
    assert "Needs an answer" in again.text
    return again


async def test_a_late_cancel_request_does_not_cancel_the_next_attempt(quiet_world: World) -> None:
    world = quiet_world
    async with world.running_bot(callbacks=False):
        card = await asks_what_to_do(world)
        late = click(world, world.question(card), "job_give_up")
        again = await asks_once_more(world, card)
        await replay(world, late)
        assert "Needs an answer" in world.now(card).text
        assert SETTLED in world.ephemerals(world.ana)[-1]
        await world.ana.click(world.question(again), "Cancel request")
        await world.settle()
        assert "ancelled" in world.now(card).text


async def test_an_id_named_for_an_earlier_attempt_is_not_taken_for_the_next(
    quiet_world: World,
) -> None:
    world = quiet_world
    async with world.running_bot(callbacks=False):
        await world.request_video(world.ben)
        await world.settle()
        [other] = world.service.videos
        card = await asks_what_to_do(world)
        await world.ana.click(world.question(card), "I found it")
        form = world.ana.modal
        assert form is not None
        await asks_once_more(world, card)
        await form.submit({"remote_id": f"{other}x"})
        await world.settle()
        assert SETTLED in form.errors["remote_id"]
        assert form.values["remote_id"] == f"{other}x"
        assert "Needs an answer" in world.now(card).text
        paths = [each.path for each in world.requests_for("read_video")]
        assert not [path for path in paths if path.endswith(f"{other}x")]


@pytest.mark.parametrize("button", ["job_create_again", "job_give_up"])
async def test_a_click_counts_once_in_the_next_process_too(quiet_world: World, button: str) -> None:
    world = quiet_world
    async with world.running_bot(callbacks=False):
        card = await asks_what_to_do(world)
        body = click(world, world.question(card), button)
        await asyncio.gather(*(deliver(world.slack, body) for _ in range(3)))
        await world.settle()
        await world.advance(seconds=5)
    creates = len(world.requests_for("create_video"))
    assert creates == (2 if button == "job_create_again" else 1)
    async with world.running_bot(callbacks=False):
        await replay(world, body)
        await world.advance(minutes=4)
        await replay(world, body)
    assert len(world.requests_for("create_video")) == creates
    assert len([m for m in world.replies(card) if m.is_from_bot]) == 1


async def test_a_changed_form_that_is_sent_again_and_again_creates_one_video(
    quiet_world: World,
) -> None:
    world = quiet_world
    async with world.running_bot():
        form = await world.open_form(world.ana)
        payload = {
            **interaction(world.slack, world.ana.user, "view_submission", None),
            "view": form.view.payload(),
        }
        await form.submit({"replica_id": REPLICA, "script": "The first version."})
        await world.settle()
        form.view.values["script"]["script"]["value"] = "The second version."
        body = encoded({**payload, "view": form.view.payload()})
        answers = await asyncio.gather(*(deliver(world.slack, body) for _ in range(3)))
        assert all("creates another video" in answer.body for answer in answers)
    async with world.running_bot():
        await replay(world, body)
        await world.advance(minutes=10)
    assert world.created_count() == 1
