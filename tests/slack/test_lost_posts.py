"""Looking for a message whose post got no answer: in busy channels, at any time, and in threads."""

from datetime import timedelta

import pytest

from sandbox.faults import CannedResponse, Fault, Reset
from sandbox.slack_objects import Message
from tests.world import REPLICA, World

CHANNEL_NOT_FOUND = CannedResponse(200, {"ok": False, "error": "channel_not_found"})


async def requests(world: World, channel: str = "studio") -> None:
    form = await world.open_form(world.ana, channel=channel)
    await world.after(form.submit({"replica_id": REPLICA, "script": "Hello."}))


def cards(world: World, channel: str = "studio") -> list[Message]:
    return [each for each in world.slack.messages(channel) if each.is_from_bot]


async def test_a_lost_card_is_found_before_thousands_of_newer_messages(quiet: World) -> None:
    async with quiet.running_bot():
        quiet.slack.faults.next("chat.postMessage", Reset(done=True))
        await requests(quiet)
    quiet.clock.set(quiet.clock.now() + timedelta(hours=2))
    for number in range(1300):
        quiet.ben.say(f"Message {number}")
    async with quiet.running_bot():
        await quiet.advance(minutes=5)

    assert len(cards(quiet)) == 1
    assert "Ready" in cards(quiet)[0].text
    assert len(quiet.calls("conversations.history")) == 1, "newer messages are not read"


async def test_a_lost_card_is_found_among_thousands_of_the_same_minute(world: World) -> None:
    world.slack.faults.next("chat.postMessage", Reset(done=True))
    await requests(world)
    for number in range(1300):
        world.ben.say(f"Message {number}")
    await world.advance(minutes=5)

    assert len(cards(world)) == 1


async def test_a_lost_card_that_is_found_shows_what_happened_meanwhile(world: World) -> None:
    world.slack.faults.next("chat.postMessage", Reset(done=True))
    await requests(world)
    [video_id] = world.service.videos
    world.service.finish(video_id)
    await world.settle()
    assert "Ready" not in cards(world)[0].text, "it is not known yet where it is"
    await world.advance(minutes=5)

    [card] = cards(world)
    assert "Ready" in card.text


async def test_a_lost_card_is_found_though_the_clock_was_wrong_when_it_was_posted(
    world: World,
) -> None:
    wait = CannedResponse(429, {"ok": False, "error": "ratelimited"}, {"Retry-After": "20"})
    world.slack.faults.next("chat.postMessage", wait, Reset(done=True))
    await requests(world)
    right = world.clock.now() + timedelta(seconds=30)

    async def set_right(when: str, method: str, _: object) -> None:
        if (when, method) == ("before", "chat.postMessage"):
            world.clock.set(right)

    world.slack.on_request = set_right
    world.clock.set(world.clock.now() + timedelta(hours=6))
    await world.settle()
    world.slack.on_request = None
    await world.advance(hours=7)  # a video that was read meanwhile may be overdue

    assert len(world.calls("chat.postMessage")) > 2
    assert len(cards(world)) == 1


async def test_a_direct_message_to_a_user_s_id_is_found_once_its_conversation_can_be_opened(
    world: World,
) -> None:
    form = await world.open_form_and_remove_bot(world.ana)
    world.slack.faults.next("conversations.open", *[CannedResponse(503, "")] * 3)
    world.slack.faults.next("chat.postMessage", CHANNEL_NOT_FOUND, Reset(done=True))
    await world.after(form.submit({"replica_id": REPLICA, "script": "Hello."}), minutes=10)

    [card] = [each for each in world.posts() if each.thread_ts is None]
    assert "Ready" in card.text


@pytest.fixture
def closed_threads(world: World) -> World:
    world.slack.threads_error = "missing_scope"
    return world


async def ready(world: World, *faults: Fault, chatter: bool = False) -> Message:
    """Have a video end whose reply meets ``faults``; return its card."""
    card = await world.request_video(world.ana)
    if chatter:
        world.ben.say("Nice!", thread_ts=card.ts)
        await world.advance(seconds=20)
    world.slack.faults.next("chat.postMessage", *faults)
    *_, video_id = world.service.videos
    world.service.finish(video_id)
    await world.settle()
    if chatter:
        world.ben.say("When is it ready?", thread_ts=card.ts)
    await world.advance(minutes=5)
    return card


async def test_a_lost_reply_is_known_by_its_thread_s_newest_reply(closed_threads: World) -> None:
    for error in ("missing_scope", "not_allowed_token_type", "access_denied"):
        closed_threads.slack.threads_error = error
        card = await ready(closed_threads, Reset(done=True))
        assert "is ready" in closed_threads.reply(card).text, error


async def test_a_card_in_a_thread_is_not_taken_for_the_reply_that_was_lost(
    closed_threads: World,
) -> None:
    world = closed_threads
    message = world.ben.say("Hello, everyone.")
    await world.ana.message_shortcut(message)
    assert world.ana.modal is not None
    await world.after(world.ana.modal.submit({"replica_id": REPLICA}))
    world.slack.faults.next("chat.postMessage", Reset())
    [video_id] = world.service.videos
    world.service.finish(video_id)
    await world.advance(minutes=5)

    card, reply = world.posts()
    assert ("Ready" in card.text, "is ready" in reply.text) == (True, True)


@pytest.mark.parametrize("chatter", [False, True])
async def test_a_reply_that_is_not_there_is_posted_where_threads_cannot_be_read(
    closed_threads: World, *, chatter: bool
) -> None:
    card = await ready(closed_threads, Reset(), chatter=chatter)
    replies = [each for each in closed_threads.replies(card) if each.is_from_bot]
    assert ["is ready" in each.text for each in replies] == [True]


async def test_a_lost_reply_of_a_direct_message_is_looked_for_in_its_thread(
    closed_threads: World,
) -> None:
    world = closed_threads
    await world.ana.message_shortcut(world.ben.say("Hello, everyone."))
    assert world.ana.modal is not None
    await world.ana.modal.submit({"replica_id": REPLICA})
    world.slack.faults.next("chat.postMessage", CHANNEL_NOT_FOUND)
    await world.settle()
    place = world.slack.dm(world.ana.user.id).id
    [card] = world.slack.messages(place)
    world.slack.faults.next("chat.postMessage", Reset(done=True))
    await world.advance(minutes=5)
    assert len(world.replies(card)) == 1
    assert world.calls("conversations.replies")[0].ok


async def test_a_public_channel_is_joined_only_to_look_for_a_lost_card(quiet: World) -> None:
    quiet.slack.scopes.add("channels:join")
    async with quiet.running_bot(JOIN_PUBLIC_CHANNELS="yes"):
        await quiet.after(requests(quiet, "lobby"), minutes=5)
        assert not quiet.calls("conversations.join")

        quiet.slack.faults.next("chat.postMessage", Reset(done=True))
        await quiet.after(requests(quiet, "lobby"), minutes=5)

    assert len(quiet.calls("conversations.join")) == 1
    assert [len(quiet.replies(card)) for card in cards(quiet, "lobby")] == [1, 1]


@pytest.mark.parametrize(("join", "scope"), [("no", True), ("yes", False)])
async def test_a_public_channel_that_may_not_be_joined_gets_a_lost_card_again(
    quiet: World, join: str, *, scope: bool
) -> None:
    if scope:
        quiet.slack.scopes.add("channels:join")
    async with quiet.running_bot(JOIN_PUBLIC_CHANNELS=join):
        quiet.slack.faults.next("chat.postMessage", Reset(done=True))
        await quiet.after(requests(quiet, "lobby"), minutes=5)

    assert len(cards(quiet, "lobby")) == 2
    assert bool(quiet.calls("conversations.join")) == (join == "yes")


HISTORY = {"channels:history", "groups:history", "im:history"}


async def doubled(world: World) -> tuple[Message, Message]:
    """Have a card posted twice; return both."""
    world.slack.scopes -= HISTORY
    world.slack.faults.next("chat.postMessage", Reset(done=True))
    form = await world.open_form(world.ana)
    await world.after(form.submit({"replica_id": REPLICA, "script": "Hello."}), minutes=10)
    first, card, *_ = [each for each in world.posts() if each.thread_ts is None]
    return first, card


async def test_a_click_on_a_card_that_was_posted_twice_leads_to_the_one_that_is_kept(
    world: World,
) -> None:
    first, card = await doubled(world)
    assert "Ready" not in world.now(first).text
    assert "Ready" in world.now(card).text

    assert (await world.ben.click(first, "Details")).ok
    await world.settle()
    replaced = world.now(first)
    assert "posted twice" in replaced.text
    assert card.ts.replace(".", "") in replaced.text
    assert "Details" not in str(replaced.blocks)
    assert "Only" in world.ephemerals(world.ben)[-1], "it was ana's"

    # What the button says is done too.
    await world.ana.click(first, "Details")
    assert world.ana.modal is not None
    await world.ana.modal.close()
    # The one that is kept stays as it is, and the reply too.
    await world.after(world.ana.click(world.now(card), "Details"))
    assert "Ready" in world.now(card).text
