"""Also tell the channel when it's ready: the closing reply is shown in the channel too, once."""

from typing import Any

from sandbox.faults import CannedResponse, Reset
from sandbox.scenarios import Scenario
from sandbox.slack import Call
from sandbox.slack_objects import Message
from tests.modes import on_both_engines
from tests.world import REPLICA, World

TOLD = {"tell_channel": ["yes"]}


def broadcasts(world: World) -> list[Message]:
    return [each for each in world.posts() if each.is_broadcast]


def told(calls: list[Call]) -> list[Any]:
    return [call for call in calls if "reply_broadcast" in call.arguments]


@on_both_engines
async def test_the_channel_is_told_once_when_the_video_is_ready(world: World) -> None:
    card = await world.request_video(world.ana, TOLD)
    assert not broadcasts(world)
    await world.advance(minutes=5)
    [reply] = broadcasts(world)
    assert (reply.channel, reply.thread_ts) == (card.channel, card.ts)
    assert reply in world.replies(card)
    assert "is ready" in reply.text
    history = world.slack.in_channel(card.channel)
    assert [each.ts for each in history] == [card.ts, reply.ts]
    await world.advance(days=1)
    assert broadcasts(world) == [reply]


async def test_the_channel_is_told_only_where_that_was_chosen_and_it_is_ready(
    world: World,
) -> None:
    plain = await world.request_video(world.ana)
    world.service.next_video(Scenario(end="error", reason="Too shy"))
    failed = await world.request_video(world.ana, TOLD)
    direct = await world.open_form(world.ana)
    await direct.submit({"replica_id": REPLICA, "script": "For me.", "where": None, **TOLD})
    await world.advance(minutes=10)
    assert [len(world.replies(each)) for each in (plain, failed)] == [1, 1]
    assert "is ready" in world.slack.everything(world.slack.dm(world.ana.user.id).id)[-1].text
    assert not told(world.calls("chat.postMessage"))
    # What was chosen is kept for another try.
    await world.ana.click(world.now(failed), "Edit and retry")
    assert world.ana.modal is not None
    assert world.ana.modal.values["tell_channel"] == ["yes"]


async def test_a_reply_that_the_channel_refuses_is_a_direct_message_that_tells_nobody_else(
    world: World,
) -> None:
    card = await world.request_video(world.ana, TOLD)
    world.slack.change_channel("studio", is_ext_shared=True)
    world.slack.change_channel("studio", with_bot=False, is_archived=True)
    await world.advance(minutes=15)
    assert not world.replies(card)
    [reply] = world.slack.messages(world.slack.dm(world.ana.user.id).id)
    assert "is ready" in reply.text
    assert not broadcasts(world)


async def test_a_told_reply_whose_answer_was_lost_is_found_and_not_told_again(
    world: World,
) -> None:
    card = await world.request_video(world.ana, TOLD)
    world.slack.faults.next("chat.postMessage", Reset(done=True))
    await world.advance(minutes=10)
    assert len(world.replies(card)) == len(broadcasts(world)) == 1


async def test_a_form_keeps_the_choice_when_it_is_drawn_anew(world: World) -> None:
    form = await world.open_form(world.ana)
    typed = {"replica_id": REPLICA, "script": "Hello.", "background": "background_url"}
    await form.submit({**typed, **TOLD})
    assert form.is_open
    assert form.values["tell_channel"] == ["yes"]


async def test_a_reply_that_may_not_tell_the_channel_is_in_the_thread_alone(world: World) -> None:
    card = await world.request_video(world.ana, TOLD)
    refusal = CannedResponse(200, {"ok": False, "error": "cant_broadcast_message"})
    world.slack.faults.next("chat.postMessage", refusal)
    await world.advance(minutes=5)
    [reply] = world.replies(card)
    assert "is ready" in reply.text
    assert len(told(world.calls("chat.postMessage"))) == 1
