"""Asking and cancelling again and again notifies the approvers once."""

from typing import Any

import pytest

from sandbox.block_kit import Json
from sandbox.faults import CannedResponse
from sandbox.slack_objects import Message
from tests.journeys.test_approval import labels, requests, settings
from tests.modes import on_both_engines
from tests.world import World


@pytest.fixture
def world(quiet_world: World) -> World:
    """A world with a channel in which ben and cleo approve."""
    quiet_world.slack.add_channel("approvals")
    return quiet_world


async def asks(world: World, number: int) -> Message:
    """Ask for a video as ana; return its card."""
    return await world.request_video(world.ana, {"script": f"Number {number}."})


async def cancels(world: World, card: Message) -> None:
    await world.ana.click(world.now(card), "Cancel request")
    await world.settle()


@on_both_engines
@pytest.mark.parametrize("channel", ["approvals", ""])
async def test_asking_and_cancelling_25_times_notifies_approvers_once(
    world: World, channel: str
) -> None:
    place = channel or world.slack.dm("ben").id
    async with world.running_bot(**settings(world, channel=channel)):
        for number in range(25):
            card = await asks(world, number)
            [asked] = requests(world, place)
            assert f"Number {number}." in str(asked.blocks)
            assert labels(asked) == ["Approve", "Decline", "Details"]
            if number < 24:
                await cancels(world, card)
                assert "Cancelled by" in world.now(asked).text
        [first] = requests(world, place)
        await world.ben.click(first, "Details")
        assert world.ben.modal is not None
        assert "Number 24." in str(world.ben.modal.view.body)
        await world.ben.modal.close()
        await world.ben.click(first, "Approve")
        await world.advance(minutes=5)
        assert [video.script for video in world.service.videos.values()] == ["Number 24."]
        assert "Approved by" in world.now(first).text
        assert "is ready" in world.replies(card)[-1].text
        posts = [call for call in world.calls("chat.postMessage") if "Approve this" in str(call)]
        assert len(posts) == (1 if channel else 2)


async def test_a_request_that_is_still_open_keeps_its_message(world: World) -> None:
    async with world.running_bot(**settings(world)):
        first = await asks(world, 1)
        await asks(world, 2)
        await world.request_video(world.ben, {"script": "Of somebody else."})
        assert len(requests(world)) == 3
        await cancels(world, first)
        await asks(world, 3)
        shown = [str(each.blocks) for each in requests(world)]
        assert ["Number 3." in shown[0], "Number 2." in shown[1]] == [True, True]
        assert "Of somebody else." in shown[2]


async def test_after_an_hour_approvers_are_notified_again(world: World) -> None:
    async with world.running_bot(**settings(world)):
        await cancels(world, await asks(world, 1))
        await world.advance(minutes=61)
        await asks(world, 2)
        first, second = requests(world)
        assert "Cancelled by" in first.text
        assert "Number 2." in str(second.blocks)


async def test_a_click_from_before_the_edit_says_so_and_changes_nothing(world: World) -> None:
    async with world.running_bot(**settings(world)):
        card = await asks(world, 1)
        [before] = requests(world)
        await cancels(world, card)
        await asks(world, 2)
        for button in ("Approve", "Decline", "Details"):
            await world.ben.click(before, button)
        await world.advance(minutes=5)
        assert "has already cancelled this." in world.ephemerals(world.ben, "approvals")[0]
        [asked] = requests(world)
        assert "Number 2." in str(asked.blocks), "it was not taken for a copy"
        assert not world.service.videos


@pytest.mark.parametrize("why", ["deleted", "archived", "shared"])
async def test_approvers_are_asked_in_another_message_where_the_one_cannot_be_edited(
    world: World, why: str
) -> None:
    async with world.running_bot(**settings(world)):
        await cancels(world, await asks(world, 1))
        [before] = requests(world)
        flags: dict[str, Any] = {"archived": "is_archived", "shared": "is_ext_shared"}
        if why == "deleted":
            gone = CannedResponse(200, {"ok": False, "error": "message_not_found"})
            world.slack.faults.next("chat.update", gone)
        else:
            await world.advance(minutes=11)
            world.slack.change_channel("approvals", **{flags[why]: True})
        await asks(world, 2)
        await world.advance(minutes=1)
        place = "approvals" if why == "deleted" else world.slack.dm("ben").id
        asked = requests(world, place)[-1]
        assert "Number 2." in str(asked.blocks)
        assert "Number 2." not in str(world.now(before).blocks)
        await world.ben.click(asked, "Approve")
        await world.advance(minutes=5)
        assert len(world.service.videos) == 1


async def test_a_message_that_is_edited_when_it_asks_about_another_request_shows_that(
    world: World,
) -> None:
    async with world.running_bot(**settings(world)):
        card = await asks(world, 1)
        again: list[Message] = []

        async def edits(when: str, method: str, arguments: Json) -> None:
            if (when, method) == ("before", "chat.update") and "Cancelled by" in str(arguments):
                world.slack.on_request = None
                form = await world.open_form(world.ana)
                await form.submit({"replica_id": "r-anna-42", "script": "Number 2."})
                again.append(card)

        world.slack.on_request = edits
        await cancels(world, card)
        await world.advance(minutes=2)
        assert again
        [asked] = requests(world)
        assert "Number 2." in str(asked.blocks)
