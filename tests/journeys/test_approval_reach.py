"""Who can be asked for approval: others read the channel, or Slack refuses each message."""

from typing import Any

import pytest

from bot.ops import doctor
from sandbox.driver import Person
from sandbox.faults import CannedResponse
from tests.journeys.test_approval import SCRIPT, ask, labels, requests, settings
from tests.world import REPLICA, World


@pytest.fixture
def world(quiet_world: World) -> World:
    """A world with a channel in which ben and cleo approve."""
    quiet_world.slack.add_channel("approvals")
    return quiet_world


@pytest.mark.parametrize("flag", ["is_ext_shared", "is_pending_ext_shared"])
async def test_no_script_is_posted_for_approval_where_another_organization_reads(
    world: World, flag: str
) -> None:
    world.slack.change_channel("approvals", **{flag: True})
    async with world.running_bot(**settings(world)):
        card = await world.request_video(world.ana, {"script": SCRIPT})
        assert not requests(world)
        assert "Waiting for ben or cleo." in world.now(card).text
        [asked] = requests(world, world.slack.dm("ben").id)
        await world.ben.click(asked, "Approve")
        await world.settle()
        assert world.created_count() == 1
    async with world.running_bot(**settings(world), ALLOW_SHARED_CHANNELS="yes"):
        await ask(world)
        assert len(requests(world)) == 1


async def test_no_script_is_posted_for_approval_while_slack_does_not_say_who_reads_it(
    world: World,
) -> None:
    async with world.running_bot(**settings(world)):
        form = await world.open_form(world.ana)
        await world.settle()
        world.slack.faults.always("conversations.info", CannedResponse(503))
        await form.submit({"replica_id": REPLICA, "script": SCRIPT})
        await world.advance(seconds=20)
        assert not requests(world)
        assert len(requests(world, world.slack.dm("ben").id)) == 1


async def test_doctor_says_that_another_organization_reads_the_approvers_channel(
    world: World,
) -> None:
    world.slack.change_channel("approvals", is_ext_shared=True)

    async def said(**given: str) -> str:
        environ = {**world.environment("0"), **settings(world), **given}
        [finding] = [each async for each in doctor.examine(environ) if each.name == "approval"]
        return f"{finding.state.name} {finding.message}"

    assert (await said()).startswith("ERROR another organization reads APPROVAL_CHANNEL")
    assert (await said(ALLOW_SHARED_CHANNELS="yes")).endswith("approvers are asked in #approvals")


async def test_a_request_says_who_can_approve_it_where_nobody_could_be_asked(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    for place in ("approvals", world.slack.dm("cleo").id):
        world.slack.change_channel(place, is_archived=True)
    async with world.running_bot(**settings(world)):
        card = await world.request_video(world.ana, {"script": SCRIPT})
        await world.advance(hours=2)
        # Who was not reached is not named as asked.
        assert "Waiting for ben." in world.now(card).text
        await world.ben.click(requests(world, world.slack.dm("ben").id)[-1], "Approve")
        await world.settle()
        assert world.created_count() == 1

        world.slack.change_channel(world.slack.dm("ben").id, is_archived=True)
        card = await world.request_video(world.ana, {"script": SCRIPT, "video_name": "Second"})
        await world.advance(hours=2)
        told = world.now(card)
        assert "Ask ben or cleo to approve it in my *Home* tab." in told.text
        assert labels(told) == ["Cancel request", "Details"]
        assert any("posted nowhere" in each.message for each in caplog.records)
        assert SCRIPT not in caplog.text
        await world.ben.open_home()
        await world.settle()
        assert world.ben.home is not None
        await world.ben.home.click("Approve")
        await world.advance(minutes=5)
        assert world.created_count() == 2
        [reply] = world.replies(card)
        assert "is ready" in reply.text


async def test_a_request_can_be_cancelled_whose_approvers_were_all_removed(world: World) -> None:
    unavailable = CannedResponse(503, "")
    none: dict[str, Any] = {**settings(world), "APPROVERS": ""}
    async with world.running_bot(**settings(world)):
        world.slack.faults.always("chat.postMessage", unavailable)
        form = await world.open_form(world.ana)
        await form.submit({"replica_id": "r-anna-42", "script": SCRIPT})
        await world.settle()
    world.slack.faults.always("chat.postMessage", None)
    world.slack.change_channel("approvals", is_archived=True)
    async with world.running_bot(**none):
        await world.advance(hours=2)
        [card] = world.posts()
        told = world.now(card)
        assert "There's no approver left. Cancel it and ask again." in told.text
        await world.ana.click(told, "Cancel request")
        await world.advance(minutes=5)
        assert len(world.replies(card)) == 1
        # Where nothing needs approval any more, the next one is created at once.
        await Person(world.slack, "ana").click(world.replies(card)[0], "Edit and retry")
        assert world.created_count() == 0
