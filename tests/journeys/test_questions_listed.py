"""Several open questions to one person in one channel: one message, and one mention."""

from datetime import timedelta
from typing import Any

import pytest

from bot.model import DeliveryState
from sandbox.driver import Modal, Person
from sandbox.faults import CannedResponse, Reset
from sandbox.scenarios import CallbackPlan
from sandbox.slack_objects import Message
from tests.journeys.test_question import BUTTONS
from tests.modes import on_both_engines
from tests.world import World, is_question, labels, number_of

SCRIPTS = ("One.", "Two.", "Three.", "Four.")
ASKS = "Did these 4 videos get made?"
LIST_BUTTONS = ["Answer each", "Cancel all"]
DONE = "None of these needs an answer now."

# After the first, it is not known whether a message is in Slack; after the second, it is not.
NOT_POSTED = [
    CannedResponse(503, ""),
    CannedResponse(429, {"ok": False, "error": "ratelimited"}, {"Retry-After": "600"}),
]

pytestmark = on_both_engines


@pytest.fixture(autouse=True)
def _no_holds(quiet: World) -> None:
    """Hold no create back after one that failed: here, many fail."""
    quiet.pauses = {**quiet.pauses, "first_hold": timedelta(0)}


async def lose(
    world: World,
    *scripts: str,
    person: Person | None = None,
    channel: str = "studio",
    made: bool = False,
) -> list[Message]:
    """Have create calls lose their answers, one for each script, and return the cards."""
    world.service.callback_plan = CallbackPlan(times=0)
    world.service.faults.next("create_video", *[Reset(done=made)] * len(scripts))
    who = person or world.ana
    return [await world.request_video(who, {"script": each}, channel) for each in scripts]


async def asked(world: World, *scripts: str, made: bool = False) -> tuple[Message, list[Message]]:
    """Return the message that asks Ana about lost create calls, and the cards."""
    cards = await world.after(lose(world, *(scripts or SCRIPTS), made=made), minutes=16)
    [message] = questions(world)
    return message, cards


def questions(world: World) -> list[Message]:
    return [each for each in world.posts() if is_question(each)]


def lines(message: Message) -> list[str]:
    """Return what a message says of each request, open ones first."""
    found = [each[2:] for each in message.text.splitlines() if each.startswith("• ")]
    assert found == sorted(found, key=lambda each: "·" in each)
    return sorted(found, key=lambda each: ("·" in each, each))


async def answers(world: World, message: Message, person: Person | None = None) -> Modal:
    who = person or world.ana
    await who.click(message, "Answer each")
    return who.form


def choice(card: Message, attempt: int = 1) -> str:
    return f"choice {number_of(card)}:{attempt}"


def id_of(card: Message, attempt: int = 1) -> str:
    return f"id {number_of(card)}:{attempt}"


async def settled(world: World, **duration: float) -> None:
    await world.advance(**(duration or {"seconds": 5}))


async def test_four_questions_to_a_person_are_one_message_with_one_mention(world: World) -> None:
    message, cards = await asked(world)

    assert ASKS in message.text
    assert message.thread_ts in {card.ts for card in cards}
    assert lines(message) == sorted(SCRIPTS)
    assert labels(message) == LIST_BUTTONS
    assert message.text.count(f"<@{world.ana.user.id}>") == 1
    for card in cards:
        assert "Needs an answer" in world.now(card).text


async def test_a_question_that_comes_later_is_listed_by_an_edit(world: World) -> None:
    [first] = await world.after(lose(world, "One."), minutes=16)
    [message] = questions(world)
    assert labels(message) == BUTTONS

    await world.after(lose(world, "Two."), minutes=16)
    [edited] = questions(world)
    assert (edited.ts, edited.thread_ts) == (message.ts, first.ts)
    assert lines(edited) == ["One.", "Two."]
    assert labels(edited) == LIST_BUTTONS
    assert "these 2 videos get made?" in edited.text


async def test_each_person_is_asked_in_a_message_of_their_own(world: World) -> None:
    await lose(world, "One.", "Two.")
    await world.after(lose(world, "Three.", "Four.", person=world.ben), minutes=16)

    of_ana, of_ben = sorted(questions(world), key=lambda each: "Three." in each.text)
    assert of_ana.pings == {world.ana.user.id}
    assert of_ben.pings == {world.ben.user.id}
    assert lines(of_ana) == ["One.", "Two."]
    assert lines(of_ben) == ["Four.", "Three."]


async def test_titles_of_one_channel_are_not_listed_in_another(world: World) -> None:
    await lose(world, "One.", "Two.")
    world.slack.add_channel("general")
    await world.after(lose(world, "Three.", "Four.", channel="general"), minutes=16)

    by_channel = {world.slack.channel(m.channel).name: m for m in questions(world)}
    assert lines(by_channel["studio"]) == ["One.", "Two."]
    assert lines(by_channel["general"]) == ["Four.", "Three."]


async def test_a_replica_and_a_video_are_asked_about_together(world: World) -> None:
    world.service.faults.next("create_replica", Reset())
    await world.request_replica(world.ana, {"replica_name": "Kim"})
    message, _ = await asked(world, "One.")

    assert "these 2 replicas and videos get made?" in message.text


async def test_more_than_a_message_has_room_for_are_counted_and_move_up(world: World) -> None:
    scripts = [f"Number {number}." for number in range(23)]
    message, _ = await asked(world, *scripts)
    assert "these 23 videos" in message.text
    assert "And 3 more" in message.text
    shown = set(lines(message))
    assert len(shown) == 20
    assert len((await answers(world, message)).view.body["blocks"]) == 41

    await world.ana.click(message, "Cancel all")
    await settled(world)
    moved_up = lines(world.now(message))
    assert set(moved_up[:3]) == set(scripts) - shown
    assert all(each.endswith("· cancelled") for each in moved_up[3:])
    await world.ana.click(world.now(message), "Cancel all")
    await settled(world)
    assert DONE in world.now(message).text


async def test_a_question_that_is_settled_elsewhere_is_settled_in_the_list(world: World) -> None:
    message, cards = await asked(world, made=True)
    [video, *_] = [v for v in world.service.videos.values() if v.script == "Two."]
    await world.service.call_back(video.video_id)
    await settled(world, minutes=5)
    assert "Two. · turned up" in lines(world.now(message))
    assert labels(world.now(message)) == LIST_BUTTONS

    await world.after(world.ana.open_home())
    home = world.ana.tab
    await home.click("Cancel request")
    await settled(world)
    said = lines(world.now(message))
    assert sum("cancelled" in each for each in said) == 1
    assert sum("·" not in each for each in said) == 2
    assert len(world.replies(cards[1])) == 1


async def test_cancel_all_cancels_what_is_open_and_a_second_click_nothing(world: World) -> None:
    message, cards = await asked(world)
    form = await answers(world, message)
    await form.submit({choice(cards[0]): "cancel"})
    answer = await world.ana.click(message, "Cancel all")
    assert answer.dialog is not None
    await settled(world)
    assert world.ephemerals(world.ana)[-1] == "1 of them were already settled."

    await world.ana.click(message, "Cancel all")
    await settled(world)
    assert world.ephemerals(world.ana)[-1] == "That's already settled."
    assert DONE in world.now(message).text
    assert [len(world.replies(card)) for card in cards] == [1] * 4


async def test_cancel_all_leaves_a_request_that_was_created_again(world: World) -> None:
    message, cards = await asked(world)
    world.service.faults.next("create_video", Reset())
    form = await answers(world, message)
    await world.after(form.submit({choice(cards[0]): "again"}), minutes=16)
    assert choice(cards[0], 2) in {
        each.block_id for each in (await answers(world, world.now(message))).view.fields()
    }
    await world.ana.click(message, "Cancel all")
    await settled(world)
    assert lines(world.now(message))[0] == "One."
    assert len(questions(world)) == 1


async def test_others_may_not_answer(world: World) -> None:
    message, _ = await asked(world)
    for button in LIST_BUTTONS:
        await world.after(world.ben.click(message, button))
        assert "or an admin can do that" in world.ephemerals(world.ben)[-1]
    assert world.ben.modal is None
    assert world.now(message) == message


async def test_each_request_gets_its_own_answer(world: World) -> None:
    message, cards = await asked(world, made=True)
    one, two, three, four = cards
    [found] = [v.video_id for v in world.service.videos.values() if v.script == "One."]
    form = await answers(world, message)
    assert [form.values[choice(card)] for card in cards] == ["later"] * 4
    await form.submit(
        {
            choice(one): "found",
            id_of(one): f" {found} ",
            choice(two): "again",
            choice(three): "cancel",
        },
        clicks=2,
    )
    await settled(world, minutes=5)

    assert lines(world.now(message)) == [
        "Four.",
        "One. · found",
        "Three. · cancelled",
        "Two. · to be created again",
    ]
    assert len(world.requests_for("create_video")) == 5
    assert "is ready" in world.replies(one)[0].text
    assert "is ready" in world.replies(two)[0].text
    assert "Cancelled" in world.now(three).text
    assert "Needs an answer" in world.now(four).text


async def test_a_wrong_answer_is_refused_at_its_field_and_nothing_is_done(world: World) -> None:
    message, (one, two, three, four) = await asked(world, made=True)
    [other] = [v.video_id for v in world.service.videos.values() if v.script == "Two."]
    form = await answers(world, message)
    wrong = {
        choice(one): "found",
        choice(two): "again",
        id_of(two): "v-2",
        choice(three): "found",
        id_of(three): other,
        choice(four): "cancel",
    }
    await form.submit(wrong)

    assert "only the ID" in form.errors[id_of(one)]
    assert "Choose “I found it”" in form.errors[choice(two)]
    assert "isn't the right one" in form.errors[id_of(three)]
    assert form.values[id_of(three)] == other
    await settled(world)
    assert world.now(message) == message
    assert len(world.requests_for("create_video")) == 4


async def test_an_id_that_cannot_be_verified_is_used_after_a_warning(world: World) -> None:
    message, (one, two) = await asked(world, "One.", "Two.", made=True)
    [found] = [v.video_id for v in world.service.videos.values() if v.script == "One."]
    world.service.down = True
    form = await answers(world, message)
    await form.submit({choice(one): "found", id_of(one): found, choice(two): "cancel"})
    assert str(form.view.body).count("I can't tell") == 1
    assert form.values[id_of(one)] == found
    assert form.values[choice(two)] == "cancel"
    await settled(world)
    assert world.now(message) == message

    await form.submit({id_of(one): "v-other"})
    assert str(form.view.body).count("I can't tell") == 1, "another id, another warning"
    await form.submit({id_of(one): found})
    await form.send({})
    world.service.down = False
    await settled(world, minutes=10)
    assert lines(world.now(message)) == ["One. · found", "Two. · cancelled"]


async def test_all_are_asked_again_in_one_new_message_and_closed_after_a_week(world: World) -> None:
    first, cards = await world.after(asked(world), days=1)

    [before, second] = questions(world)
    assert before.ts == first.ts
    assert sorted(lines(before)) == sorted(f"{each} · asked again" for each in SCRIPTS)
    assert not labels(before)
    assert ASKS in second.text
    assert "in a few days" in second.text
    assert second.pings == {world.ana.user.id}
    assert sorted(lines(second)) == sorted(SCRIPTS)

    await world.advance(days=7)
    end = world.now(second)
    assert sorted(lines(end)) == sorted(f"{each} · closed without an answer" for each in SCRIPTS)
    assert not labels(end)
    assert sum(len(world.replies(card)) for card in cards) == 4
    assert len(questions(world)) == 2


async def test_what_is_asked_about_days_later_mentions_the_person(world: World) -> None:
    """Nobody looks at a message that has waited for days because it was edited."""
    await world.after(asked(world, "One.", "Two."), days=3)
    await world.after(lose(world, "Three."), minutes=16)

    [_, second, third] = questions(world)
    assert lines(second) == ["One.", "Two."]
    assert third.pings == {world.ana.user.id}
    assert labels(third) == BUTTONS


@pytest.mark.parametrize("fault", NOT_POSTED)
async def test_a_leading_question_that_is_settled_before_its_post_lists_the_others(
    world: World, fault: CannedResponse
) -> None:
    cards = await lose(world, "One.", "Two.", made=True)
    world.slack.faults.always("chat.postMessage", fault)
    await world.advance(minutes=15, seconds=5)
    rows = {row["job_id"]: row["state"] for row in _rows(world)}
    [leading] = [id_ for id_, state in rows.items() if state != DeliveryState.LISTED]
    script = {number_of(card): text for card, text in zip(cards, ("One.", "Two."), strict=True)}
    [video] = [v.video_id for v in world.service.videos.values() if v.script == script[leading]]
    await world.after(world.service.call_back(video))
    world.slack.faults.clear()
    await world.advance(minutes=20)

    [message] = questions(world)
    [other] = set(script.values()) - {script[leading]}
    assert lines(message) == [other, f"{script[leading]} · turned up"]


@pytest.mark.parametrize("fault", NOT_POSTED)
async def test_a_list_is_not_posted_if_all_is_settled_before(
    world: World, fault: CannedResponse
) -> None:
    await lose(world, "One.", "Two.", made=True)
    world.slack.faults.always("chat.postMessage", fault)
    await world.advance(minutes=15, seconds=5)
    for video in list(world.service.videos):
        await world.service.call_back(video)
    await world.settle()
    world.slack.faults.clear()
    await world.advance(minutes=20)

    assert not questions(world)


def _rows(world: World) -> list[dict[str, Any]]:
    return world.query(
        "SELECT job_id, state, listed_in FROM deliveries WHERE role = 'question' ORDER BY id"
    )
