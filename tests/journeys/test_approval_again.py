"""*Create again* of a request that needs approval: one approval covers one create call."""

from datetime import timedelta
from typing import Any

import pytest

from sandbox.faults import CannedResponse, Reset
from sandbox.scenarios import CallbackPlan
from sandbox.slack_objects import Message
from tests.journeys.test_approval import SCRIPT, ask, audit, decline, labels, requests, settings
from tests.modes import on_both_engines
from tests.store.test_usage import used
from tests.world import World, buttons_of

AGAIN = "Create again"
CHARGED_TWICE = "If it worked, you'll pay twice."


@pytest.fixture
def world(quiet_world: World) -> World:
    """A world with a channel in which ben and cleo approve, and a service that calls nobody."""
    quiet_world.slack.add_channel("approvals")
    quiet_world.service.callback_plan = CallbackPlan(times=0)
    return quiet_world


async def lost(world: World) -> Message:
    """Return the card of a video that was approved and made, in a call whose answer was lost."""
    world.service.faults.next("create_video", Reset(done=True))
    card, asked = await ask(world)
    await world.ben.click(asked, "Approve")
    await world.advance(minutes=16)
    return card


def creates(world: World) -> int:
    return len(world.requests_for("create_video"))


def outstanding(world: World) -> list[Message]:
    """Return the messages in which something can be approved."""
    return [each for each in requests(world) if "Approve" in labels(each)]


@on_both_engines
async def test_each_create_call_needs_an_approval_however_often_create_again_is_pressed(
    world: World,
) -> None:
    async with world.running_bot(**settings(world)):
        card = await lost(world)
        for number in range(2, 5):
            world.service.faults.next("create_video", Reset(done=True))
            question = world.question(card)
            for _ in range(3):
                await world.ana.click(question, AGAIN)
            await world.advance(hours=1)
            assert creates(world) == number - 1, "nobody has approved it"
            assert len(used(world)) == 2
            shown = world.now(card)
            assert "Waiting for approval" in shown.text
            [cancel] = [each for each in buttons_of(shown.blocks) if "confirm" in each]
            assert "Nothing has been created" not in str(cancel["confirm"])
            [asked] = outstanding(world)
            assert len(requests(world)) == number
            assert CHARGED_TWICE in asked.text
            assert SCRIPT.splitlines()[1] in str(asked.blocks)

            await world.ben.click(asked, "Approve")
            await world.ben.click(asked, "Approve")
            await world.advance(minutes=16)
            assert creates(world) == number
            assert not outstanding(world)
        [first, *_, last] = audit(world)
        assert (first[0], last[0]) == ("approved", "approved")
        acts = [each[:2] for each in audit(world)]
        assert acts.count(("created_again", world.ana.user.id)) == 3
        assert acts.count(("approved", world.ben.user.id)) == 4


async def test_an_earlier_approve_or_decline_counts_for_no_later_create_call(world: World) -> None:
    world.service.faults.next("create_video", Reset(done=True))
    async with world.running_bot(**settings(world)):
        card, asked = await ask(world)
        await world.ben.click(asked, "Decline")
        form = world.ben.modal
        assert form is not None
        await world.ben.click(asked, "Approve")
        await world.advance(minutes=16)
        await world.ana.click(world.question(card), AGAIN)
        await world.settle()
        assert outstanding(world)
        await world.ben.click(asked, "Approve")
        await form.submit({"decline_reason": "No"})
        await world.advance(minutes=5)
        assert "That's already settled." in str(form.errors)
        assert "That's already settled." in world.ephemerals(world.ben, "approvals")
        assert creates(world) == 1
        assert outstanding(world)


async def test_an_approver_who_creates_again_for_somebody_else_approves_it_with_that(
    world: World,
) -> None:
    async with world.running_bot(ADMIN_USERS=world.ben.user.id, **settings(world)):
        card = await lost(world)
        await world.ben.click(world.question(card), AGAIN)
        await world.advance(minutes=5)
        assert creates(world) == 2
        assert len(requests(world)) == 1
        assert "is ready" in world.replies(card)[-1].text


async def test_nobody_approves_creating_their_own_request_again(world: World) -> None:
    ana = world.ana.user.id
    async with world.running_bot(ADMIN_USERS=ana, **settings(world)):
        card = await lost(world)
        await world.ana.click(world.question(card), AGAIN)
        await world.settle()
        await world.ana.click(outstanding(world)[0], "Approve")
        await world.advance(minutes=5)
        assert creates(world) == 1
        assert "You can't approve your own" in world.ephemerals(world.ana, "approvals")[-1]


async def test_create_again_says_so_where_nobody_else_could_approve_it(world: World) -> None:
    async with world.running_bot(**settings(world)):
        card = await lost(world)
    alone: dict[str, Any] = {**settings(world), "APPROVERS": world.ana.user.id}
    async with world.running_bot(**alone):
        await world.ana.click(world.question(card), AGAIN)
        await world.advance(minutes=5)
        assert "You're the only approver" in world.ephemerals(world.ana)[-1]
        assert creates(world) == 1
        assert AGAIN in labels(world.question(card)), "it can still be answered"
    async with world.running_bot():
        await world.ana.click(world.question(card), AGAIN)
        await world.advance(minutes=5)
        assert creates(world) == 2, "nothing needs approval any more"


@pytest.mark.parametrize("how", ["declined", "cancelled", "expired"])
async def test_what_is_not_approved_again_may_have_been_created_before(
    world: World, how: str
) -> None:
    async with world.running_bot(**settings(world)):
        card = await lost(world)
        await world.ana.click(world.question(card), AGAIN)
        await world.settle()
        [asked] = outstanding(world)
        assert len(used(world)) == 2
        if how == "declined":
            await decline(world, asked, world.ben, "Once is enough")
        elif how == "cancelled":
            await world.ana.click(world.now(card), "Cancel request")
        else:
            await world.advance(days=8)
        await world.advance(minutes=2)
        [reply] = world.replies(card)
        for message in (reply, world.now(card)):
            assert "You weren't charged" not in message.text
            assert "You may still be charged." in message.text
        assert not outstanding(world)
        # What it made after all is shown.
        [made] = world.service.videos
        await world.service.call_back(made)
        await world.advance(minutes=5)
        assert "An earlier try worked too" in world.now(card).text
        assert creates(world) == 1
        assert set(used(world).values()) == {1}


@on_both_engines
async def test_what_turns_up_while_it_waits_to_be_approved_again_is_not_created_again(
    world: World,
) -> None:
    async with world.running_bot(**settings(world)):
        card = await lost(world)
        await world.ana.click(world.question(card), AGAIN)
        await world.settle()
        await world.ben.open_home()
        await world.settle()
        assert world.ben.home is not None
        assert "Waiting for your approval" in str(world.ben.home.view.body)
        [asked], [made] = outstanding(world), world.service.videos
        world.service.faults.next("read_video", CannedResponse(503))
        await world.service.call_back(made)
        await world.advance(minutes=5)
        assert "is ready" in world.replies(card)[-1].text
        assert "An earlier try worked, so there's nothing to approve." in world.now(asked).text
        assert not outstanding(world)
        assert "Waiting for your approval" not in str(world.ben.home.view.body)
        await world.ben.click(asked, "Approve")
        await world.advance(minutes=5)
        assert "That's already settled." in world.ephemerals(world.ben, "approvals")[-1]
        assert creates(world) == 1
        assert set(used(world).values()) == {1}


async def test_creating_again_is_tried_for_a_day_from_its_approval_on(world: World) -> None:
    async with world.running_bot(**settings(world)):
        card = await lost(world)
        await world.ana.click(world.question(card), AGAIN)
        await world.advance(days=2)
        wait = CannedResponse(429, {"message": "Slow down."}, {"Retry-After": "3600"})
        world.service.faults.next("create_video", wait)
        await world.ben.click(outstanding(world)[0], "Approve")
        await world.advance(seconds=timedelta(hours=2).total_seconds())
        assert "is ready" in world.replies(card)[0].text
