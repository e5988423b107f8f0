"""What an unanswered create call made is recognised, however the service shows it."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

import pytest

from sandbox.driver import Modal
from sandbox.faults import CannedResponse, Reset
from sandbox.scenarios import CallbackPlan, Echo, Pace, Scenario
from sandbox.slack_objects import Message
from tests.modes import on_both_engines
from tests.world import World

SCRIPT = 'Welcome to "Studio 7", dear friends. Today we talk about the weather.'
WARNING = "I can't tell if this video is the right one. Use it anyway?"
SILENT = CallbackPlan(times=0)
RENAMED = Scenario(echo=Echo.NO_DATA, overrides={"video_name": "Untitled 7"})
ODD = [Scenario(echo=Echo.NO_DATA), RENAMED, Scenario(echo=Echo.CUT), Scenario(id_case="upper")]
each_odd_read = pytest.mark.parametrize(
    "scenario", ODD, ids=["no data", "renamed", "cut", "id in capitals"]
)


@dataclass
class Lost:
    """A create call of Ana's whose answer was lost, and the card that asks her about it."""

    card: Message
    callback_url: str


async def _lost(world: World, scenario: Scenario | None) -> Lost:
    """Have a create call lose its answer; without a scenario, it made nothing."""
    if scenario is not None:
        world.service.next_video(scenario)
    made = scenario is not None
    card = await world.loses_create(made=made, script=SCRIPT, video_name="Monday")
    body = world.requests_for("create_video")[-1].body
    assert isinstance(body, dict)
    return Lost(card, body["callback_url"])


async def _calls_back(world: World, lost: Lost, video_id: str) -> None:
    body = json.dumps({"video_id": video_id})
    async with world.slack.session.post(lost.callback_url, data=body) as answer:
        assert answer.status == 200
    await world.settle()


async def _types(world: World, lost: Lost, remote_id: str) -> Modal:
    await world.ana.click(world.question(lost.card), "I found it")
    form = world.ana.form
    await world.after(form.submit({"remote_id": remote_id}))
    return form


def _shown(form: Modal) -> str:
    return json.dumps(form.view.body, ensure_ascii=False)


# ── A callback ────────────────────────────────────────────────────────────────────────────────


@each_odd_read
async def test_a_callback_says_what_was_made_however_the_service_shows_it(
    world: World, scenario: Scenario
) -> None:
    lost = await _lost(world, scenario)
    [video_id] = world.service.videos

    await world.after(_calls_back(world, lost, video_id), minutes=5)

    [reply] = world.replies(lost.card)
    assert "is ready" in reply.text
    assert world.created_count() == 1


async def test_an_id_that_is_named_again_while_it_is_read_is_not_lost(world: World) -> None:
    lost = await _lost(world, ODD[0])
    [video_id] = world.service.videos
    await world.ana.click(world.question(lost.card), "I found it")
    form = world.ana.form
    await form.submit({"remote_id": video_id})

    async def confirms(when: str, operation: str, _: str) -> None:
        if (when, operation) == ("before", "read_video"):
            world.service.on_request = None
            await form.submit({})

    world.service.on_request = confirms
    await world.after(_calls_back(world, lost, video_id), minutes=5)

    assert not form.is_open
    [reply] = world.replies(lost.card)
    assert "is ready" in reply.text


@on_both_engines
@pytest.mark.parametrize("change", [str, str.upper], ids=["as it is", "in capitals"])
async def test_a_callback_is_not_believed_if_it_names_what_another_request_made(
    world: World, change: Callable[[str], str]
) -> None:
    lost = await _lost(world, None)
    world.service.next_video(replace(RENAMED, id_case="upper"))
    theirs = await world.request_video(world.ben, {"script": SCRIPT})
    [video_id] = world.service.videos

    await world.after(_calls_back(world, lost, change(video_id)), minutes=5)

    assert world.now(lost.card) == lost.card
    assert not world.replies(lost.card)
    assert len(world.replies(theirs)) == 1


# ── A person ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("scenario", ODD[:2], ids=["no data", "renamed"])
async def test_an_id_from_a_person_that_cannot_be_verified_is_used_after_a_warning(
    world: World, scenario: Scenario
) -> None:
    lost = await _lost(world, scenario)
    [video_id] = world.service.videos

    form = await _types(world, lost, video_id)
    assert WARNING in _shown(form)
    assert form.values["remote_id"] == video_id, "nothing typed is lost"
    await world.advance(minutes=5)
    assert not world.replies(lost.card), "it is not used before the person says so"
    await world.after(form.send({}), minutes=5)

    assert "is ready" in world.replies(lost.card)[0].text
    assert world.created_count() == 1


async def test_the_warning_is_shown_again_for_another_id(world: World) -> None:
    lost = await _lost(world, RENAMED)
    [first] = world.service.videos
    second = await world.make_by_hand("Anything.", RENAMED)

    form = await _types(world, lost, first)
    await form.submit({"remote_id": second})

    assert form.is_open
    assert WARNING in _shown(form)
    assert form.values["remote_id"] == second
    await world.advance(minutes=5)
    assert not world.replies(lost.card)


async def test_what_a_callback_named_for_another_request_is_not_given_to_a_person(
    world: World,
) -> None:
    world.service.callback_plan = SILENT
    theirs = await _lost_of_ben(world)
    [video_id] = world.service.videos
    lost = await _lost(world, None)
    world.service.faults.always("read_video", CannedResponse(503, "<html>Down</html>"))
    form = await _types(world, lost, video_id)
    assert WARNING in _shown(form)
    await _calls_back(world, theirs, video_id)
    await form.submit({})
    world.service.faults.clear()
    await world.advance(minutes=10)

    assert "is ready" in world.replies(theirs.card)[0].text
    assert not world.replies(lost.card)


async def _lost_of_ben(world: World) -> Lost:
    world.service.next_video(RENAMED)
    world.service.faults.next("create_video", Reset(done=True))
    card = await world.request_video(world.ben, {"script": "Words of Ben."})
    await world.advance(minutes=16)
    body = world.requests_for("create_video")[-1].body
    assert isinstance(body, dict)
    return Lost(world.now(card), body["callback_url"])


@pytest.mark.parametrize("by", ["callback", "person"])
async def test_what_is_days_older_than_the_request_is_not_what_it_made(
    world: World, by: str
) -> None:
    days_ago = f"{world.clock.now() - timedelta(days=3):%a, %d %b %Y %H:%M:%S GMT}"
    overrides = {**RENAMED.overrides, "created_at": days_ago}
    older = await world.make_by_hand(SCRIPT, replace(RENAMED, overrides=overrides))
    lost = await _lost(world, None)

    if by == "callback":
        await _calls_back(world, lost, older)
    else:
        form = await _types(world, lost, older)
        assert "isn't the right one" in form.errors["remote_id"]
    await world.advance(minutes=5)

    assert not world.replies(lost.card)
    assert "Needs an answer" in world.now(lost.card).text


UNKNOWN: Final = [
    CannedResponse(404, "<html>default backend - 404</html>"),
    CannedResponse(404, {"message": "Not found"}),
    CannedResponse(400, {"error": "Invalid video_id"}),
]
each_unknown = pytest.mark.parametrize("answer", UNKNOWN, ids=["404 in HTML", "404 in JSON", "400"])
UNREADABLE: Final = [CannedResponse(403, {"message": "Not yours"}), CannedResponse(200, {})]
each_unreadable = pytest.mark.parametrize("answer", UNREADABLE, ids=["403", "no status"])


async def _unanswered(world: World) -> Lost:
    """Have a create call lose its answer, without waiting until Ana is asked about it."""
    world.service.callback_plan = SILENT
    world.service.faults.next("create_video", Reset(done=True))
    card = await world.request_video(world.ana)
    body = world.requests_for("create_video")[-1].body
    assert isinstance(body, dict)
    return Lost(card, body["callback_url"])


# ── What was made ─────────────────────────────────────────────────────────────────────────────


@each_unknown
async def test_a_video_that_is_late_is_not_ended_by_one_answer_that_does_not_find_it(
    world: World, answer: CannedResponse
) -> None:
    pace = Pace(generating=timedelta(minutes=25))
    world.service.next_video(Scenario(pace=pace, callback_plan=SILENT))
    card = await world.after(world.request_video(world.ana), minutes=20)
    assert "longer than usual" in world.now(card).text

    world.service.faults.next("read_video", answer)
    await world.advance(minutes=15)

    assert "is ready" in world.reply(card).text


async def test_a_video_is_not_ended_by_answers_that_do_not_find_it_now_and_then(
    world: World,
) -> None:
    world.service.next_video(Scenario(end="never"))
    card = await world.after(world.request_video(world.ana), minutes=20)

    for _ in range(8):
        world.service.faults.next("read_video", UNKNOWN[0])
        await world.advance(minutes=15)

    assert not world.replies(card)


async def test_a_training_that_is_not_found_for_hours_goes_on(world: World) -> None:
    card = await world.request_replica(world.ana)
    world.service.faults.always("read_replica", UNKNOWN[1])
    await world.advance(hours=3)
    assert not world.replies(card)
    world.service.faults.clear()
    await world.advance(hours=6)

    assert "is ready" in world.reply(card).text


async def test_a_video_that_stays_unknown_for_an_hour_has_failed(world: World) -> None:
    world.service.next_video(Scenario(end="never"))
    card = await world.after(world.request_video(world.ana), minutes=20)
    world.service.faults.always("read_video", UNKNOWN[1])

    await world.advance(minutes=55)
    assert not world.replies(card)
    await world.advance(minutes=15)

    assert "can't find this video" in world.reply(card).text


# ── What a create call may have made ──────────────────────────────────────────────────────────


@each_unknown
async def test_a_callback_may_name_what_the_service_does_not_find_yet(
    world: World, answer: CannedResponse
) -> None:
    lost = await _unanswered(world)
    [video_id] = world.service.videos
    world.service.faults.next("read_video", answer, answer)

    await _calls_back(world, lost, video_id)
    assert "Needs an answer" not in world.now(lost.card).text
    await world.advance(minutes=10)

    [reply] = world.replies(lost.card)
    assert "is ready" in reply.text
    assert world.created_count() == 1


async def test_the_person_is_asked_if_the_service_never_finds_what_a_callback_named(
    world: World,
) -> None:
    lost = await _unanswered(world)
    await world.after(_calls_back(world, lost, "v-nothing"), minutes=20)

    assert "Needs an answer" in world.now(lost.card).text
    reads = len(world.requests_for("read_video"))
    assert reads < 30
    await world.advance(hours=3)
    assert len(world.requests_for("read_video")) == reads


@each_unreadable
async def test_a_person_can_name_another_id_if_the_one_of_a_callback_cannot_be_read(
    world: World, answer: CannedResponse
) -> None:
    lost = await _unanswered(world)
    [video_id] = world.service.videos
    world.service.faults.always("read_video", answer)
    await world.after(_calls_back(world, lost, "v-of-others"), minutes=20)
    world.service.faults.clear()
    world.service.faults.next("read_video", *[answer] * 2)

    form = await _types(world, lost, video_id)
    if form.is_open:  # it could not be verified just now
        await form.submit({})
    assert not form.is_open, form.errors
    await world.advance(minutes=20)

    [reply] = world.replies(lost.card)
    assert "is ready" in reply.text
    assert world.created_count() == 1


@each_unreadable
async def test_create_again_does_not_wait_for_ever_for_what_a_callback_named(
    world: World, answer: CannedResponse
) -> None:
    lost = await _unanswered(world)
    world.service.faults.always("read_video", answer)
    await world.after(_calls_back(world, lost, "v-of-others"), minutes=20)

    await world.after(world.ana.click(world.question(lost.card), "Create again"), minutes=20)

    assert len(world.requests_for("create_video")) == 2
    world.service.faults.clear()
    await world.advance(minutes=20)
    assert "is ready" in world.replies(lost.card)[-1].text
