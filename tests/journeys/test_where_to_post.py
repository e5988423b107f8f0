"""Where the updates of a request are posted: only places where that can work are offered."""

from datetime import timedelta

import pytest

from bot.timings import Timings
from sandbox.block_kit import Json
from sandbox.driver import Modal
from sandbox.faults import Hang
from sandbox.scenarios import Scenario
from sandbox.slack_objects import Message
from tests.world import REPLICA, World

SHORT = timedelta(seconds=1)
TYPED = {"replica_id": REPLICA, "script": "Hello, world."}


def picker(form: Modal) -> Json:
    [block] = [each for each in form.view.body["blocks"] if each["block_id"] == "where"]
    found: Json = block["element"]
    return found


async def only_card(world: World, form: Modal) -> Message:
    """Submit a form and return the one message that comes of it."""
    await form.submit(TYPED)
    assert not form.is_open, form.errors
    await world.settle()
    [card] = world.posts()
    return card


async def test_channels_are_offered_and_no_direct_messages(world: World) -> None:
    for command in ("/video", "/replica"):
        form = await world.open_form(world.ana, command=command)
        assert picker(form)["filter"] == {
            "include": ["public", "private"],
            "exclude_bot_users": True,
            "exclude_external_shared_channels": True,
        }
        assert form.values["where"] == world.slack.channel("studio").id


async def test_in_the_apps_own_direct_message_the_answer_comes_there(world: World) -> None:
    dm = world.slack.dm("ana")
    form = await world.open_form(world.ana, channel=dm.id)
    assert form.values["where"] is None
    card = await only_card(world, form)
    assert (card.channel, "couldn't post" in card.text) == (dm.id, False)


async def test_from_a_conversation_of_other_people_the_answer_comes_in_the_apps_direct_message(
    world: World,
) -> None:
    theirs = world.slack.direct_message("ana", "ben")
    card = await only_card(world, await world.open_form(world.ana, channel=theirs.id))
    assert (card.channel, "couldn't post" in card.text) == (world.slack.dm("ana").id, False)


async def test_nothing_is_posted_where_the_menu_offers_nothing(world: World) -> None:
    """What a client sends as the choice need not be one that was offered."""
    theirs = world.slack.direct_message("ana", "ben").id
    places = (world.slack.dm("ben").id, world.ben.user.id, theirs, world.ana.user.id, "studio")
    form = await world.open_form(world.ana)
    field = form._field("where")
    for place in places:
        form.view.values[field.block_id][field.action_id] = {
            "type": "conversations_select",
            "selected_conversation": place,
        }
        await form.submit(TYPED)
        assert form.errors == {"where": "I can't post there. Please choose another channel."}
    await world.settle()
    assert not world.posts()
    assert not world.requests_for("create_video")


async def test_a_channel_that_the_person_can_no_longer_see_does_not_stop_a_retry(
    world: World,
) -> None:
    den = world.slack.add_channel("den", kind="private")
    world.service.next_video(Scenario(end="error", reason="No."))
    card = await world.request_video(world.ana, channel="den")
    await world.advance(minutes=5)
    den.members.discard(world.ana.user.id)
    await world.ana.click(world.now(card), "Edit and retry")
    form = world.ana.modal
    assert form is not None
    assert form.values["where"] is None
    await form.submit()
    await world.settle()
    assert not form.is_open
    assert {each.channel for each in world.posts()} == {den.id, world.slack.dm("ana").id}


async def test_a_private_channel_without_the_bot_is_refused_before_anything_is_spent(
    world: World,
) -> None:
    form = await world.open_form(world.ana, channel="vault")
    await world.settle()
    await form.submit(TYPED)
    assert "/invite @replica-videos" in form.errors["where"]
    await form.submit()
    assert form.errors.keys() == {"where"}
    await world.settle()
    assert world.created_count() == 0
    assert form.values["script"] == TYPED["script"]

    world.slack.change_channel("vault", with_bot=True)
    card = await only_card(world, form)
    assert card.channel == world.slack.channel("vault").id


@pytest.mark.parametrize("scope", ["groups:read", "channels:read"])
async def test_where_slack_does_not_let_the_bot_find_out_the_request_goes_on(
    quiet_world: World, scope: str
) -> None:
    world = quiet_world
    world.slack.scopes.discard(scope)
    async with world.running_bot():
        channel = {"groups:read": "vault", "channels:read": "studio"}[scope]
        form = await world.open_form(world.ana, channel=channel)
        await form.submit(TYPED)
        await world.settle()
    assert not form.is_open
    assert world.created_count() == 1


async def test_if_slack_does_not_say_in_time_whether_the_bot_is_there_the_request_goes_on(
    quiet_world: World,
) -> None:
    world = quiet_world
    # Slack's answer may come as long as a call may take, and the form waits for part of that.
    world.timings = Timings(jitter=0, service_deadline=SHORT, call_timeout=4 * SHORT)
    world.slack.faults.next("conversations.info", Hang())
    async with world.running_bot(ALLOW_SHARED_CHANNELS="yes"):
        form = await world.open_form(world.ana)
        await form.submit(TYPED)
        assert not form.is_open
        world.slack.faults.clear()
        await world.settle()
    assert world.created_count() == 1
