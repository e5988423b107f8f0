"""Approval before spending: a request waits until somebody else says yes to it."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from sandbox.driver import Modal, Person
from sandbox.slack_objects import Message
from tests.modes import in_both_modes, on_both_engines
from tests.world import World, buttons_of, delivery_of

SCRIPT = "Welcome <@U1> to the team!\nWe are glad that you are here."


def settings(world: World, *, above: int = 0, channel: str = "approvals") -> dict[str, Any]:
    """Return settings with which ben and cleo approve, in a channel of theirs."""
    approvers = f"{world.ben.user.id},{world.slack.user('cleo').id}"
    found = {"APPROVERS": approvers, "APPROVAL_ABOVE": str(above)}
    return {**found, "APPROVAL_CHANNEL": world.slack.channel(channel).id} if channel else found


@pytest.fixture
def approving(quiet_world: World) -> World:
    """A world with a channel in which ben and cleo approve."""
    world = quiet_world
    world.slack.add_channel("approvals")
    return world


@pytest.fixture
async def world(approving: World) -> AsyncIterator[World]:
    async with approving.running_bot(**settings(approving)):
        yield approving


def requests(world: World, channel: str = "approvals") -> list[Message]:
    """Return the messages that ask for approval, oldest first."""
    return [each for each in world.slack.messages(channel) if "/approval" in delivery_of(each)]


def labels(message: Message) -> list[str]:
    return [each["text"]["text"] for each in buttons_of(message.blocks)]


async def ask(world: World, values: Mapping[str, Any] | None = None) -> tuple[Message, Message]:
    """Ask for a video as ana; return its card, and the message that asks for approval."""
    card = await world.request_video(world.ana, {"script": SCRIPT, **(values or {})})
    return card, requests(world)[-1]


async def decline(world: World, asked: Message, person: Person, reason: str) -> Modal:
    await person.click(world.now(asked), "Decline")
    assert person.modal is not None
    form = person.modal
    await form.submit({"decline_reason": reason}, clicks=2)
    await world.settle()
    return form


@in_both_modes
@on_both_engines
async def test_a_request_is_created_once_an_approver_says_so(approving: World) -> None:
    world = approving
    async with world.running_bot(**settings(world)):
        card, asked = await ask(world)
        await world.advance(minutes=30)
        assert world.created_count() == 0
        shown = world.now(card)
        assert "Waiting for approval" in shown.text
        assert f"I asked for approval in <#{world.slack.channel('approvals').id}>." in shown.text
        assert labels(shown) == ["Cancel request", "Details"]
        assert labels(asked) == ["Approve", "Decline", "Details"]
        assert f"Requested by <@{world.ana.user.id}>" in asked.text
        assert asked.text.startswith(f"<@{world.ben.user.id}> <@")
        assert "We are glad" in str(asked.blocks)
        assert "&lt;@U1&gt;" in asked.text

        for _ in range(3):
            await world.ben.click(asked, "Approve")
        await world.advance(minutes=5)
        assert world.created_count() == 1
        settled = world.now(asked)
        assert f"Approved by <@{world.ben.user.id}>." in settled.text
        assert not labels(settled)
        assert "We are glad" not in str(settled.blocks)
        assert f"Approved by <@{world.ben.user.id}>" in world.now(card).text
        [reply] = world.replies(card)
        assert "is ready" in reply.text
        assert len(requests(world)) == 1
