"""The question whether a create call made something: a message that cannot be missed."""

import asyncio
from datetime import timedelta

import pytest

from bot.timings import Timings
from sandbox.block_kit import Json
from sandbox.faults import CannedResponse, Reset
from sandbox.scenarios import CallbackPlan
from sandbox.slack_objects import Message
from tests.modes import bot_with, in_both_modes, on_both_engines
from tests.world import REPLICA, World, delivery_of, labels

AGAIN = "Create again"
ASKS = "Did this video get made?"
BUTTONS = ["I found it", AGAIN, "Cancel request"]


async def loses_a_create_call(world: World, channel: str = "studio", *, made: bool = False) -> None:
    """Have Ana's create call lose its answer, and let the time for a callback pass."""
    world.service.callback_plan = CallbackPlan(times=0)
    world.service.faults.next("create_video", Reset(done=made))
    form = await (
        world.open_form_and_remove_bot(world.ana)
        if channel == "vault"
        else world.open_form(world.ana, channel=channel)
    )
    await world.after(form.submit({"replica_id": REPLICA, "script": "Hello, world."}), minutes=16)


def card_of(world: World) -> Message:
    [card] = [m for m in world.posts() if delivery_of(m).endswith("/card")]
    return card


async def test_the_question_is_a_message_in_the_thread_that_mentions_the_person(
    world: World,
) -> None:
    await loses_a_create_call(world)

    card = card_of(world)
    [question] = world.questions(card)
    assert (question.channel, question.thread_ts) == (card.channel, card.ts)
    assert ASKS in question.text
    assert "\nHello, world.\n" in question.text
    assert question.pings == {world.ana.user.id}
    assert labels(question) == BUTTONS
    assert "Needs an answer" in card.text
    assert not set(labels(card)) & set(BUTTONS)
    assert not world.ephemerals(world.ana), "what matters is in no ephemeral message"


@in_both_modes
@bot_with(ADMIN_USERS="{ben}, {cleo}, {ana}, {ben}")
async def test_admins_are_mentioned_once_each_and_can_answer(world: World) -> None:
    ana, ben = world.ana.user.id, world.ben.user.id
    cleo = world.slack.user("cleo").id
    await loses_a_create_call(world)
    card = card_of(world)
    question = world.question(card)
    assert question.pings == {ana, ben, cleo}
    for user in (ana, ben, cleo):
        assert question.text.count(f"<@{user}>") == 1
    assert "No access? Ask" in question.text

    await world.after(world.ben.click(question, "Cancel request"))

    settled = world.now(question)
    assert f"Settled: <@{ben}> cancelled the request." in settled.text
    assert len(world.replies(card)) == 1


@on_both_engines
@bot_with(callbacks=False, ADMIN_USERS="{ben}")
async def test_without_callbacks_admins_are_asked_first_and_then_the_person_too(
    world: World,
) -> None:
    ana, ben = world.ana.user.id, world.ben.user.id
    await loses_a_create_call(world)
    card = card_of(world)
    first = world.question(card)
    assert first.pings == {ben}
    assert labels(first) == BUTTONS

    await world.advance(days=1)
    second = world.question(card)
    assert second.ts != first.ts
    assert second.pings == {ana, ben}

    world.service.faults.next("create_video", Reset())
    await world.after(world.ana.click(second, AGAIN), minutes=5)
    third = world.question(card)
    assert third.pings == {ben}, "another attempt is another question"
    await world.after(world.ana.click(third, "Cancel request"))
    assert len(world.replies(card)) == 1


@bot_with(callbacks=False, ADMIN_USERS="{ben}")
async def test_without_callbacks_a_question_in_a_direct_message_is_for_the_person(
    world: World,
) -> None:
    ana, ben = world.ana.user.id, world.ben.user.id
    await loses_a_create_call(world, "vault")
    question = world.question(card_of(world))
    assert question.channel == world.slack.dm("ana").id
    assert question.pings == {ana, ben}
    assert question.text.startswith(f"<@{ana}>")


@pytest.mark.parametrize("done", [True, False])
async def test_a_question_whose_answer_was_lost_is_looked_for_and_posted_once(
    world: World, *, done: bool
) -> None:
    world.service.callback_plan = CallbackPlan(times=0)
    world.service.faults.next("create_video", Reset())
    card = await world.request_video(world.ana)
    world.slack.faults.next("chat.postMessage", Reset(done=done))
    await world.advance(minutes=20)

    [question] = world.questions(card)
    assert labels(question) == BUTTONS
    assert question.edited is None, "there was nothing new to say"


@bot_with(ADMIN_USERS="{ben}")
async def test_a_question_is_edited_to_say_how_it_was_settled(world: World) -> None:
    ana, ben = world.ana.user.id, world.ben.user.id
    await loses_a_create_call(world, made=True)
    card = card_of(world)
    first = world.question(card)

    world.service.faults.next("create_video", Reset(done=True))
    await world.after(world.ben.click(first, AGAIN), minutes=16)
    second = world.question(card)
    assert second.ts != first.ts, "a second attempt is asked about in a message of its own"
    assert second.pings == {ana, ben}
    assert f"Settled: <@{ben}> chose to create it again." in world.now(first).text

    await world.after(world.ana.click(first, AGAIN))
    assert "already settled" in world.ephemerals(world.ana)[-1]

    [_, video] = world.service.videos
    await world.ana.click(second, "I found it")
    await world.after(world.ana.form.submit({"remote_id": video}), minutes=5)

    assert f"Settled: <@{ana}> found it." in world.now(second).text
    for question in (first, second):
        assert not labels(world.now(question))
        assert "Did this video get made?" in world.now(question).text
    assert len(world.questions(card)) == 2
    assert "is ready" in world.reply(card).text


async def test_a_late_callback_settles_the_question(world: World) -> None:
    await loses_a_create_call(world, made=True)
    card = card_of(world)
    question = world.question(card)
    [video] = world.service.videos
    await world.after(world.service.call_back(video), minutes=5)

    assert "Settled: the video turned up." in world.now(question).text
    assert not labels(world.now(question))
    assert "is ready" in world.replies(card)[0].text


async def test_the_person_is_asked_again_after_a_day_in_a_new_message(world: World) -> None:
    await loses_a_create_call(world)
    card = card_of(world)
    first = world.question(card)
    await world.advance(hours=23)
    assert world.questions(card) == [first]

    await world.advance(hours=2)
    second = world.question(card)
    assert second.ts != first.ts
    assert second.pings == {world.ana.user.id}
    assert "in a few days" in second.text
    assert "so I asked again" in world.now(first).text
    assert not labels(world.now(first))

    await world.advance(days=6, hours=2)
    assert "no answer within a week" in world.now(second).text
    assert not labels(world.now(second))
    assert len(world.questions(card)) == 2
    assert "No answer in a week." in world.reply(card).text
    assert len(world.requests_for("create_video")) == 1


async def test_a_question_that_was_settled_before_it_could_be_posted_is_not_posted(
    world: World,
) -> None:
    """Whether it is certain that it is not in Slack, or is found out later."""
    world.service.callback_plan = CallbackPlan(times=0)
    for fault in (CannedResponse(503, ""), Reset()):
        world.service.faults.next("create_video", Reset(done=True))
        card = await world.request_video(world.ana)
        world.slack.faults.always("chat.postMessage", fault)
        await world.advance(minutes=15, seconds=5)
        assert "Needs an answer" in world.now(card).text
        video = list(world.service.videos)[-1]
        await world.after(world.service.call_back(video))
        world.slack.faults.clear()
        await world.advance(minutes=20)

        assert not world.questions(card)
        assert "is ready" in world.replies(card)[0].text


@on_both_engines
async def test_a_question_that_was_settled_while_its_answer_was_lost_is_edited(
    world: World,
) -> None:
    world.service.callback_plan = CallbackPlan(times=0)
    world.service.faults.next("create_video", Reset(done=True))
    card = await world.request_video(world.ana)
    world.slack.faults.next("chat.postMessage", Reset(done=True))
    await world.advance(minutes=15, seconds=5)
    [video] = world.service.videos
    await world.after(world.service.call_back(video), minutes=5)

    [question] = world.questions(card)
    assert "Settled: the video turned up." in question.text
    assert not labels(question)


@on_both_engines
async def test_a_question_whose_process_ended_in_its_post_is_found_and_not_doubled(
    quiet: World,
) -> None:
    quiet.timings = Timings(jitter=0, stop_timeout=timedelta(0))
    quiet.service.callback_plan = CallbackPlan(times=0)
    posted, never = asyncio.Event(), asyncio.Event()

    async def hold_back(when: str, method: str, arguments: Json) -> None:
        if (when, method) == ("after", "chat.postMessage") and "thread_ts" in arguments:
            posted.set()
            await never.wait()

    async with quiet.running_bot(callbacks=False):
        quiet.service.faults.next("create_video", Reset())
        quiet.slack.on_request = hold_back
        await quiet.submit_form(quiet.ana, {"replica_id": REPLICA, "script": "Hello, world."})
        await posted.wait()
    quiet.slack.on_request = None
    async with quiet.running_bot(callbacks=False):
        await quiet.advance(minutes=5)
        question = quiet.question(card_of(quiet))
        await quiet.after(quiet.ana.click(question, "Cancel request"))

    assert quiet.questions(card_of(quiet)) == [quiet.now(question)]
    assert "cancelled the request" in quiet.now(question).text
