"""Share to…: a channel of the requester's choice gets the link of a video, once per press."""

from datetime import timedelta

import pytest

from sandbox.delivery import Response, deliver, encoded, interaction
from sandbox.driver import Modal, Person
from sandbox.faults import CannedResponse, Reset
from sandbox.form import ClientRefusal
from sandbox.slack_objects import Message
from tests.modes import in_both_modes
from tests.world import World, buttons_of, delivery_of

LABEL = "Share to…"


async def ready(world: World) -> Message:
    """Return the card of a finished video that ana asked for."""
    card = await world.request_video(world.ana, {"video_name": "Welcome"})
    await world.advance(minutes=5)
    return world.now(card)


async def opened(world: World, card: Message, person: Person | None = None) -> Modal:
    sharer = person or world.ana
    await sharer.click(world.now(card), LABEL)
    assert sharer.modal is not None
    return sharer.modal


async def share(world: World, card: Message, channel: str, person: Person | None = None) -> Modal:
    form = await opened(world, card, person)
    await form.submit({"share_channel": channel})
    await world.settle()
    return form


def shares(world: World, channel: str = "lobby") -> list[Message]:
    return [each for each in world.slack.messages(channel) if "/share" in delivery_of(each)]


async def submit_as(world: World, person: Person, form: Modal, channel: str) -> Response:
    """Send a form of somebody else, filled in, as if this person had submitted it."""
    form.view.values["share_channel"]["share_channel"]["selected_conversation"] = channel
    payload = interaction(world.slack, person.user, "view_submission", None)
    return await deliver(
        world.slack, encoded({**payload, "view": form.view.payload(), "response_urls": []})
    )


@in_both_modes
async def test_a_finished_video_is_shared_where_its_requester_chooses(
    quiet_world: World,
) -> None:
    world = quiet_world
    async with world.running_bot():
        card = await world.request_video(world.ana, {"video_name": "Welcome <3"})
        assert LABEL not in str(world.now(card).blocks)
        await world.advance(minutes=5)
        form = await opened(world, card)
        assert form.title == "Share this video"
        await form.submit({"share_channel": "lobby"}, clicks=3)
        assert not form.is_open
        await form.resubmit(2)
        await world.settle()

        [shared] = shares(world)
        [video] = world.service.videos.values()
        first, *links = shared.text.splitlines()
        assert first == f"<@{world.ana.user.id}> shared a video: “Welcome &lt;3”"
        assert links[0].endswith(f"/watch/{video.video_id}|Watch>")
        assert shared.thread_ts is None
        assert [each["text"]["text"] for each in buttons_of(shared.blocks)] == ["Watch", "Download"]
        assert (await world.ben.click(shared, "Watch")).ok
        # The card and its thread are as they were.
        assert len(world.replies(card)) == 1
        # Each press is one, in the same channel too.
        await share(world, card, "lobby")
        await share(world, card, "studio")
        assert (len(shares(world)), len(shares(world, "studio"))) == (2, 1)


async def test_only_the_requester_and_admins_can_share(quiet_world: World) -> None:
    world = quiet_world
    world.slack.add_user("root")
    root = Person(world.slack, "root")
    world.slack.channel("studio").members.add(root.user.id)
    async with world.running_bot(ADMIN_USERS=root.user.id):
        card = await ready(world)
        await world.ben.click(card, LABEL)
        assert world.ben.modal is None
        text = f"Only <@{world.ana.user.id}> or an admin can share it."
        await world.settle()
        assert world.ephemerals(world.ben) == [text]

        form = await opened(world, card)
        lobby = world.slack.channel("lobby").id
        answer = await submit_as(world, world.ben, form, lobby)
        assert "Only the person who asked or an admin can share it." in answer.body
        await world.settle()
        assert not shares(world)

        await form.close()
        await share(world, card, "lobby", root)
        [shared] = shares(world)
        assert shared.text.startswith(f"<@{root.user.id}> shared a video")


async def test_the_menu_lists_what_the_person_sees_and_the_bot_may_post_to(world: World) -> None:
    card = await ready(world)
    form = await opened(world, card)
    [block] = form.view.body["blocks"]
    assert block["element"]["filter"] == {
        "include": ["public", "private"],
        "exclude_bot_users": True,
        "exclude_external_shared_channels": True,
    }
    world.slack.channel("lobby").members.discard(world.ana.user.id)
    for hidden in ("vault", world.slack.dm("ana").id, world.slack.direct_message("ana", "ben").id):
        world.slack.channel(hidden).members.discard(world.ana.user.id)
        with pytest.raises(ClientRefusal):
            await form.submit({"share_channel": hidden})
    # Whatever a client sends, nobody gets it as a direct message.
    answer = await submit_as(world, world.ana, form, world.slack.dm("ana").id)
    assert "I can't post there. Please choose another channel." in answer.body
    answer = await submit_as(world, world.ana, form, world.ben.user.id)
    assert "I can't post there. Please choose another channel." in answer.body
    # A public channel is listed for those who have not joined it.
    await form.submit({"share_channel": "lobby"})
    await world.settle()
    assert len(shares(world)) == 1


async def test_channels_that_others_read_and_those_without_the_bot_are_refused_in_the_form(
    quiet_world: World,
) -> None:
    world = quiet_world
    async with world.running_bot():
        await world.settle()
        card = await ready(world)
        form = await share(world, card, "vault")
        assert "I'm not in this channel. Type “/invite @" in form.errors["share_channel"]
        world.slack.change_channel("vault", with_bot=True)
        await form.submit()
        await world.settle()
        assert not form.is_open
        assert len(shares(world, "vault")) == 1

        form = await opened(world, card)
        world.slack.change_channel("lobby", is_ext_shared=True)
        answer = await submit_as(world, world.ana, form, world.slack.channel("lobby").id)
        assert "People from another organization are in this channel" in answer.body
        await world.settle()
        assert not shares(world)
    async with world.running_bot(ALLOW_SHARED_CHANNELS="yes"):
        await form.close()
        await share(world, card, "lobby")
        assert len(shares(world)) == 1


async def test_a_channel_that_refuses_a_share_is_told_to_who_shared_it(world: World) -> None:
    card = await ready(world)
    world.slack.change_channel("lobby", is_archived=True)
    await share(world, card, "lobby")
    assert not shares(world)
    [told] = [m for m in world.slack.messages(world.slack.dm("ana").id) if m.is_from_bot]
    lobby = world.slack.channel("lobby").id
    assert told.text == (
        f"I couldn't share “Welcome” in <#{lobby}>: Slack doesn't let me post there. If it's a "
        f"private channel, type `/invite @replica-videos` there. Then press *{LABEL}* again, or "
        "choose another channel."
    )


async def test_a_channel_that_refuses_an_admins_share_is_told_to_the_admin(
    quiet_world: World,
) -> None:
    world = quiet_world
    async with world.running_bot(ADMIN_USERS=world.ben.user.id):
        card = await ready(world)
        world.slack.change_channel("lobby", is_archived=True)
        await share(world, card, "lobby", world.ben)
        told = [m.text for m in world.slack.messages(world.slack.dm("ben").id) if m.is_from_bot]
        assert [text.startswith("I couldn't share “Welcome” in ") for text in told] == [True]
        assert not [m for m in world.slack.messages(world.slack.dm("ana").id) if m.is_from_bot]


async def test_a_share_whose_answer_was_lost_is_posted_once(world: World) -> None:
    world.slack.change_channel("lobby", with_bot=True)
    card = await ready(world)
    world.slack.faults.next("chat.postMessage", Reset(done=True))
    await share(world, card, "lobby")
    await world.advance(minutes=10)
    assert len(shares(world)) == 1

    # The next one is not taken for the first.
    world.slack.faults.next("chat.postMessage", Reset())
    await share(world, card, "lobby")
    await world.advance(minutes=10)
    assert len(shares(world)) == 2


async def test_a_form_that_was_sent_before_shares_in_another_channel_too(world: World) -> None:
    card = await ready(world)
    form = await share(world, card, "lobby")
    # Its answer was lost: the form is still open, and another channel is chosen in it.
    answer = await submit_as(world, world.ana, form, world.slack.channel("studio").id)
    assert answer.ok
    await submit_as(world, world.ana, form, world.slack.channel("studio").id)
    await world.settle()
    assert (len(shares(world)), len(shares(world, "studio"))) == (1, 1)


async def test_a_share_survives_a_restart_and_a_rate_limit(quiet_world: World) -> None:
    world = quiet_world
    world.slack.change_channel("lobby", with_bot=True)
    busy = CannedResponse(429, {"ok": False, "error": "ratelimited"}, {"Retry-After": "30"})
    async with world.running_bot():
        card = await ready(world)
        world.slack.faults.next("chat.postMessage", busy)
        await share(world, card, "lobby")
        assert not shares(world)
    world.clock.set(world.clock.now() + timedelta(minutes=1))
    async with world.running_bot():
        await world.advance(minutes=2)
        assert len(shares(world)) == 1


async def test_what_was_erased_cannot_be_shared(quiet_world: World) -> None:
    world = quiet_world
    async with world.running_bot(RETENTION_DAYS="1"):
        card = await ready(world)
        form = await opened(world, card)
        await world.advance(days=3)
        await form.submit({"share_channel": "lobby"})
        assert form.errors == {"share_channel": "There's no link to share any more."}
        await form.close()
        await world.ana.click(card, LABEL)
        await world.settle()
        assert world.ana.modal is None
        assert world.ephemerals(world.ana)[-1] == "There's no link to share any more."
        assert not shares(world)
