"""A channel that another organization comes to read while a job runs gets nothing more of it."""

from datetime import timedelta

import pytest

from sandbox.faults import CannedResponse, Fault, Reset
from sandbox.scenarios import Pace
from sandbox.slack_objects import Message
from tests.journeys.test_approval import decline, requests, settings
from tests.journeys.test_shared_files import GET_URL, asks, shared
from tests.modes import on_both_engines
from tests.world import REPLICA, World

SCRIPT = "Nobody outside has to know this."
WHO_READS = "conversations.info"
SLOW = Pace(timedelta(0), timedelta(minutes=30), timedelta(hours=5))


@pytest.fixture
def world(quiet: World) -> World:
    """A world in which a video takes half an hour."""
    quiet.service.pace = SLOW
    return quiet


async def ask(world: World, channel: str = "studio") -> Message:
    """Ask for a video as ana; return its card."""
    card = await world.request_video(world.ana, {"script": SCRIPT}, channel)
    await world.advance(minutes=15)
    return card


def told(world: World) -> list[Message]:
    """Return what ana was sent directly."""
    return [each for each in world.posts() if each.channel == world.slack.dm("ana").id]


def in_channel(world: World, channel: str = "studio") -> str:
    """Return all that the bot's messages in a channel say now."""
    id_ = world.slack.channel(channel).id
    return str([(each.text, each.blocks) for each in world.posts() if each.channel == id_])


@on_both_engines
@pytest.mark.parametrize("flag", ["is_ext_shared", "is_pending_ext_shared"])
async def test_a_channel_that_another_organization_comes_to_read_gets_no_reply(
    world: World, flag: str
) -> None:
    async with world.running_bot():
        card = await ask(world)
        world.slack.change_channel("studio", **{flag: True})
        await world.advance(minutes=30)
        assert not world.replies(card)
        [reply] = told(world)
        assert "is ready" in reply.text
        assert SCRIPT in reply.text
        assert "/watch/" in reply.text
        assert "I couldn't post in" in reply.text
        assert reply.pings == {world.ana.user.id}
        shown = in_channel(world)
        assert "http" not in shown
        assert "I don't post in shared channels" in shown
        await world.advance(days=1)
        assert told(world) == [reply]


async def test_a_channel_of_the_same_organization_gets_its_reply(world: World) -> None:
    async with world.running_bot():
        card = await ask(world)
        world.slack.change_channel("studio", is_org_shared=True)
        await world.advance(minutes=30)
        assert "is ready" in world.replies(card)[0].text
        assert "/watch/" in world.now(card).text


async def test_a_shared_channel_gets_its_reply_where_that_is_allowed(world: World) -> None:
    async with world.running_bot(ALLOW_SHARED_CHANNELS="yes"):
        card = await ask(world)
        world.slack.change_channel("studio", is_ext_shared=True)
        world.slack.faults.always(WHO_READS, CannedResponse(503))
        await world.advance(minutes=30)
        assert "is ready" in world.replies(card)[0].text
        assert "/watch/" in world.now(card).text


async def test_slack_is_asked_who_reads_a_channel_once_for_many_replies_and_not_for_a_quick_one(
    world: World,
) -> None:
    world.service.pace = Pace(timedelta(0), timedelta(minutes=5), timedelta(hours=5))
    async with world.running_bot():
        card = await world.request_video(world.ana)
        asked = len(world.calls(WHO_READS))
        await world.advance(minutes=9)
        assert world.replies(card)
        assert len(world.calls(WHO_READS)) == asked

        world.service.pace = SLOW
        cards = [await world.request_video(world.ana, {"script": f"No. {n}"}) for n in range(3)]
        await world.advance(minutes=20)
        asked = len(world.calls(WHO_READS))
        await world.advance(minutes=20)
        assert all(world.replies(each) for each in cards)
        assert len(world.calls(WHO_READS)) == asked + 1


@pytest.mark.parametrize(
    "fault",
    [
        CannedResponse(503),
        Reset(),
        CannedResponse(200, {"ok": False, "error": "access_denied"}),
        CannedResponse(200, {"ok": True}),
    ],
    ids=["503", "reset", "refused", "unreadable"],
)
async def test_where_slack_does_not_say_who_reads_a_channel_the_reply_is_a_direct_message(
    world: World, fault: Fault
) -> None:
    async with world.running_bot():
        card = await ask(world)
        world.slack.faults.always(WHO_READS, fault)
        await world.advance(minutes=30)
        if fault == CannedResponse(200, {"ok": True}):  # nothing says that others read it
            assert "is ready" in world.replies(card)[0].text
            return
        assert not world.replies(card)
        [reply] = told(world)
        assert SCRIPT in reply.text
        assert "http" not in in_channel(world)


async def test_an_outage_of_slack_does_not_move_a_reply_out_of_its_channel(world: World) -> None:
    async with world.running_bot():
        card = await ask(world)
        for method in (WHO_READS, "chat.postMessage", "chat.update", "conversations.open"):
            world.slack.faults.always(method, Reset())
        # Something else shows that Slack is away.
        other = await world.open_form(world.ben)
        await other.submit({"replica_id": "r-anna-42", "script": "Another.", "where": None})
        await world.advance(minutes=40)
        world.slack.faults.clear()
        await world.advance(minutes=10)
        assert SCRIPT in world.reply(card).text
        assert "/watch/" in world.now(card).text
        assert not told(world)


async def test_a_question_goes_to_the_person_where_another_organization_reads_the_channel(
    world: World,
) -> None:
    world.service.faults.next("create_video", CannedResponse(500))
    async with world.running_bot():
        card = await world.request_video(world.ana, {"script": SCRIPT})
        world.slack.change_channel("studio", is_ext_shared=True)
        await world.advance(minutes=20)
        [question] = world.questions(card)
        assert question.channel == world.slack.dm("ana").id
        await world.after(world.ana.click(question, "Cancel request"))
        assert not world.replies(card)
        assert "was cancelled" in told(world)[-1].text


async def test_a_file_is_not_shared_in_a_channel_that_another_organization_comes_to_read(
    quiet: World,
) -> None:
    async with quiet.running_bot(MAX_SCRIPT="20000"):
        await quiet.settle()
        quiet.slack.faults.always(GET_URL, CannedResponse(503))
        await quiet.after(asks(quiet), minutes=12)
        assert len(quiet.posts()) == 2
        quiet.slack.change_channel("studio", is_ext_shared=True)
        await quiet.advance(minutes=12)
        quiet.slack.faults.clear()
        await quiet.advance(hours=1)
        assert not shared(quiet)


async def test_what_slack_said_of_a_channel_long_ago_counts_for_nothing(world: World) -> None:
    world.service.pace = Pace(timedelta(0), timedelta(minutes=2), timedelta(hours=5))
    async with world.running_bot():
        await world.after(world.request_video(world.ben), days=1)
        world.slack.change_channel("studio", is_pending_ext_shared=True)
        world.slack.faults.always(WHO_READS, CannedResponse(503))
        form = await world.open_form(world.ana)
        await world.after(form.send({"replica_id": REPLICA, "script": SCRIPT}), minutes=9)
        assert SCRIPT not in in_channel(world)
        world.slack.faults.always(WHO_READS, None)
        await world.advance(minutes=30)
        assert SCRIPT not in in_channel(world)
        assert SCRIPT in str([each.text for each in told(world)])


async def test_the_reason_of_a_decline_is_not_shown_where_another_organization_reads(
    world: World,
) -> None:
    world.slack.add_channel("approvals")
    async with world.running_bot(**settings(world)):
        await ask(world)
        world.slack.change_channel("approvals", is_pending_ext_shared=True)
        await world.advance(minutes=15)
        asked = requests(world)[-1]
        await world.after(decline(world, asked, world.ben, "Ask Bob about it"), minutes=15)
        assert "Declined" in world.now(asked).text
        assert "Bob" not in in_channel(world, "approvals")
