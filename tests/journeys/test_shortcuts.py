"""The shortcuts: a video from a message, and the form from anywhere."""

import time

import pytest

from bot.slack.features.video import spoken_text
from sandbox.driver import Person
from sandbox.faults import CannedResponse
from tests.modes import in_both_modes
from tests.world import REPLICA, World


@in_both_modes
async def test_a_video_from_a_message_is_answered_in_its_thread(world: World) -> None:
    message = world.ben.say("*Welcome*, @ana! See https://example.com/start & say _hi_ :wave:")
    answer = await world.ana.message_shortcut(message)
    assert answer.ok
    form = world.ana.modal
    assert form is not None
    assert form.values["script"] == "Welcome, ana! See https://example.com/start & say hi"
    assert form.values["where"] == message.channel

    await form.submit({"replica_id": REPLICA})
    assert not form.is_open
    await world.advance(minutes=5)
    card, reply = world.slack.thread(message.channel, message.ts)
    assert f"<@{world.ana.user.id}>" in reply.text
    assert world.posts() == [card, reply]


async def test_a_video_from_a_reply_goes_into_the_same_thread(world: World) -> None:
    parent = world.ben.say("What shall we say?")
    reply = world.ana.say("Good morning, everyone.", thread_ts=parent.ts)
    await world.ben.message_shortcut(reply)
    assert world.ben.modal is not None
    await world.ben.modal.submit({"replica_id": REPLICA})
    await world.settle()
    [card] = world.posts()
    assert card.thread_ts == parent.ts

    # Posted elsewhere, it is in no thread.
    await world.ben.message_shortcut(reply)
    assert world.ben.modal is not None
    await world.ben.modal.submit({"replica_id": REPLICA, "where": "lobby"})
    await world.settle()
    assert world.posts()[-1].channel == world.slack.channel("lobby").id
    assert world.posts()[-1].thread_ts is None


async def test_a_message_without_text_or_with_too_much_explains_itself(world: World) -> None:
    picture = world.ben.say(":tada:")
    assert (await world.ana.message_shortcut(picture)).ok
    assert world.ana.modal is not None
    assert "no text" in str(world.ana.modal.view.body["blocks"])
    await world.ana.modal.close()

    long = world.ben.say("word " * 700)
    assert (await world.ana.message_shortcut(long)).ok
    assert "The script has 3,499 characters" in str(world.ana.modal.view.body["blocks"])


@in_both_modes
async def test_the_global_shortcut_asks_where_to_post(world: World) -> None:
    assert (await world.ana.shortcut()).ok
    form = world.ana.modal
    assert form is not None
    assert not form.values["where"]
    await form.submit({"replica_id": REPLICA, "script": "Hello.", "where": "studio"})
    await world.advance(minutes=5)
    card, reply = world.posts()
    assert card.channel == world.slack.channel("studio").id
    assert reply.thread_ts == card.ts


async def test_who_may_not_ask_is_told_so_by_shortcuts_too(quiet_world: World) -> None:
    world = quiet_world
    async with world.running_bot(VIDEO_USERS=world.ben.user.id):
        await world.ana.shortcut()
        await world.settle()
        assert world.ana.modal is not None
        assert "Only some people here" in str(world.ana.modal.view.body["blocks"])
        await world.ana.modal.close()
        await world.ana.message_shortcut(world.ben.say("Hello."))
        await world.settle()
        assert "Only some people here" in world.ephemerals(world.ana)[-1]

        world.slack.add_user("zoe", team="T0OTHER", channels=["studio"])
        zoe = Person(world.slack, "zoe")
        await zoe.message_shortcut(world.ben.say("Hello."))
        await world.settle()
        assert "Sorry" in world.ephemerals(zoe)[-1]
        assert zoe.modal is None


def test_markup_becomes_plain_words(subtests: pytest.Subtests) -> None:
    for text, spoken in [
        ("*bold* _italic_ ~struck~ `code` ```block```", "bold italic struck code block"),
        ("*_both_*", "both"),
        ("*one* and *two*, _snake_case_, *2*3 is six*", "one and two, snake_case, 2*3 is six"),
        (
            "2 * 3 * 4 = 24, snake_case_name, ~5 and ~6",
            "2 * 3 * 4 = 24, snake_case_name, ~5 and ~6",
        ),
        ("&lt;tag&gt; &amp;amp; R&amp;D", "<tag> &amp; R&D"),
        ("<https://a.example/x|our page> <mailto:a@b.example|a@b.example>", "our page a@b.example"),
        ("<https://a.example/x>", "https://a.example/x"),
        ("<@U1> <@U2|cleo> <#C1> <#C2|news> <#C3|>", "Ana cleo studio news a channel"),
        ("<!here> <!channel> <!subteam^S1|@team>", "everyone everyone team"),
        ("<!date^1392734382^{date}|18 February 2014>", "18 February 2014"),
        ("At 10:30:45 :wave: hello :+1::skin-tone-2:", "At 10:30:45 hello"),
        ("&gt; quoted\nplain", "quoted\nplain"),
        ("one\n\ntwo", "one\n\ntwo"),
    ]:
        with subtests.test(text=text, spoken=spoken):
            assert spoken_text(text, {"U1": "Ana", "C1": "studio"}) == spoken


async def test_while_slack_does_not_say_who_somebody_is_a_message_opens_no_form(
    world: World,
) -> None:
    world.slack.add_user("sam", team="T0ELSEWHERE", channels=["studio"])
    sam = Person(world.slack, "sam")
    world.slack.faults.always("users.info", CannedResponse(503, b""))
    assert (await sam.message_shortcut(world.ben.say("Hello, everyone."))).ok
    await world.settle()
    assert sam.modal is None
    assert "couldn't check who you are" in world.ephemerals(sam)[-1]


def test_no_message_takes_long_to_turn_into_words(subtests: pytest.Subtests) -> None:
    for unit in ["*a ", "*a*a ", "_a", "*_~", "<@", ":a", "`", "~ ~"]:
        with subtests.test(unit=unit):
            began = time.process_time()
            spoken_text(unit * (40_000 // len(unit)), {})
            assert time.process_time() - began < 0.3
