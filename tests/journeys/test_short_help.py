"""The short help: for mentions, and for what people write to the app directly."""

import asyncio

import pytest

from sandbox import events
from sandbox.driver import Person
from sandbox.slack_objects import BOT
from tests.modes import in_both_modes
from tests.world import World


@in_both_modes
async def test_a_mention_is_answered_in_its_thread_once(world: World) -> None:
    message = world.ana.mention("what can you do?")
    await world.settle()
    [help_] = world.slack.thread(message.channel, message.ts)
    assert "/video Welcome to the team!" in help_.text
    assert help_.blocks

    # Slack may send an event again, also after the bot was started again.
    for _ in range(2):
        assert (await events.send_again(world.slack, world.slack.sent_events[-1])).ok
        await world.settle()
    assert world.posts() == [help_]

    inside = world.ben.mention("and here?", thread_ts=message.ts)
    await world.settle()
    assert world.posts()[-1].thread_ts == message.ts
    assert inside.thread_ts == message.ts
    assert len(world.posts()) == 2


@in_both_modes
async def test_help_is_not_posted_again_after_a_restart(quiet_world: World) -> None:
    world = quiet_world
    async with world.running_bot():
        world.ana.mention("hello")
        await world.settle()
    async with world.running_bot():
        assert (await events.send_again(world.slack, world.slack.sent_events[-1])).ok
        await world.settle()
    assert len(world.posts()) == 1


async def test_what_is_written_to_the_app_gets_help_once_a_message(world: World) -> None:
    written = world.ana.write_direct("hi")
    # A bot that answers itself never has nothing left to do.
    async with asyncio.timeout(30):
        await world.settle()
    [help_] = world.posts()
    assert help_.channel == written.channel
    assert help_.thread_ts is None
    world.slack.edit(written, text="hello", blocks=[], metadata=None)
    await world.settle()
    assert world.posts() == [help_], "neither its own message nor an edit is answered"

    answer = await world.ana.command("/video", "help", written.channel)
    assert answer.message is not None
    # A video that is asked for there is answered there.
    card = await world.request_video(world.ana, {"where": "studio"}, channel="studio")
    assert card.channel != written.channel


async def test_people_of_other_organisations_get_no_help(world: World) -> None:
    world.slack.add_user("zoe", team="T0OTHER", channels=["studio"])
    zoe = Person(world.slack, "zoe")
    zoe.mention("hello")
    await world.settle()
    assert world.posts() == []
    await world.advance(minutes=10)
    assert len(world.slack.sent_events) == 1, "the event was accepted"


async def test_the_request_url_is_verified(world: World) -> None:
    assert await events.verify_request_url(world.slack)


async def test_a_message_of_an_app_is_not_answered(world: World) -> None:
    place = world.slack.channel("studio").id
    event = {
        "type": "message",
        "channel": place,
        "channel_type": "im",
        "user": world.slack.bot.id,
        "ts": "1.2",
    }
    answer = await events.send(world.slack, {**event, "bot_id": BOT, "text": "Hi"}, "message.im")
    assert answer.ok
    await world.settle()
    assert world.posts() == []


@pytest.mark.parametrize("kind", ["channel", "group", "mpim", None])
async def test_what_people_write_in_channels_is_not_answered(
    world: World, kind: str | None
) -> None:
    """The Slack app may subscribe to messages there, for another purpose or by mistake."""
    place = world.slack.channel("studio").id
    event = {"type": "message", "channel": place, "user": world.ana.user.id, "ts": "1.2"}
    event |= {"text": "Hi", **({"channel_type": kind} if kind else {})}
    assert (await events.send(world.slack, event, "message.im")).ok
    await world.settle()
    assert world.posts() == []
