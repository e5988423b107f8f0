"""An id that the service does not find, or shows in no readable way, is not given up at once."""

import json
from datetime import timedelta
from typing import Final

import pytest

from sandbox.faults import CannedResponse, Reset
from sandbox.scenarios import CallbackPlan, Pace, Scenario
from sandbox.slack_objects import Message
from tests.world import World

SILENT: Final = CallbackPlan(times=0)
UNKNOWN: Final = [
    CannedResponse(404, "<html>default backend - 404</html>"),
    CannedResponse(404, {"message": "Not found"}),
    CannedResponse(400, {"error": "Invalid video_id"}),
]
each_unknown = pytest.mark.parametrize("answer", UNKNOWN, ids=["404 in HTML", "404 in JSON", "400"])
UNREADABLE: Final = [
    CannedResponse(403, {"message": "Not yours"}),
    CannedResponse(200, {}),
]
each_unreadable = pytest.mark.parametrize("answer", UNREADABLE, ids=["403", "no status"])


async def _lost(world: World) -> tuple[Message, str]:
    """Have a create call lose its answer; return the card and the callback's address."""
    world.service.callback_plan = SILENT
    world.service.faults.next("create_video", Reset(done=True))
    card = await world.request_video(world.ana)
    body = world.requests_for("create_video")[-1].body
    assert isinstance(body, dict)
    return card, body["callback_url"]


async def _calls_back(world: World, url: str, video_id: str) -> None:
    async with world.slack.session.post(url, data=json.dumps({"video_id": video_id})) as answer:
        assert answer.status == 200
    await world.settle()


# ── What was made ─────────────────────────────────────────────────────────────────────────────


@each_unknown
async def test_a_video_that_is_late_is_not_ended_by_one_answer_that_does_not_find_it(
    world: World, answer: CannedResponse
) -> None:
    pace = Pace(generating=timedelta(minutes=25))
    world.service.next_video(Scenario(pace=pace, callback_plan=SILENT))
    card = await world.request_video(world.ana)
    await world.advance(minutes=20)
    assert "longer than usual" in world.now(card).text

    world.service.faults.next("read_video", answer)
    await world.advance(minutes=15)

    [reply] = world.replies(card)
    assert "is ready" in reply.text


async def test_a_video_is_not_ended_by_answers_that_do_not_find_it_now_and_then(
    world: World,
) -> None:
    world.service.next_video(Scenario(end="never"))
    card = await world.request_video(world.ana)
    await world.advance(minutes=20)

    for _ in range(8):
        world.service.faults.next("read_video", UNKNOWN[0])
        await world.advance(minutes=15)

    assert not world.replies(card)


async def test_a_training_that_is_not_found_for_hours_goes_on(
    world: World,
) -> None:
    card = await world.request_replica(world.ana)
    world.service.faults.always("read_replica", UNKNOWN[1])
    await world.advance(hours=3)
    assert not world.replies(card)
    world.service.faults.clear()
    await world.advance(hours=6)

    [reply] = world.replies(card)
    assert "is ready" in reply.text


async def test_a_video_that_stays_unknown_for_an_hour_has_failed(world: World) -> None:
    world.service.next_video(Scenario(end="never"))
    card = await world.request_video(world.ana)
    await world.advance(minutes=20)
    world.service.faults.always("read_video", UNKNOWN[1])

    await world.advance(minutes=55)
    assert not world.replies(card)
    await world.advance(minutes=15)

    [reply] = world.replies(card)
    assert "can't find this video" in reply.text


# ── What a create call may have made ──────────────────────────────────────────────────────────


@each_unknown
async def test_a_callback_may_name_what_the_service_does_not_find_yet(
    world: World, answer: CannedResponse
) -> None:
    card, url = await _lost(world)
    [video_id] = world.service.videos
    world.service.faults.next("read_video", answer, answer)

    await _calls_back(world, url, video_id)
    assert "Needs an answer" not in world.now(card).text
    await world.advance(minutes=10)

    [reply] = world.replies(card)
    assert "is ready" in reply.text
    assert world.created_count() == 1


async def test_the_person_is_asked_if_the_service_never_finds_what_a_callback_named(
    world: World,
) -> None:
    card, url = await _lost(world)
    await _calls_back(world, url, "v-nothing")
    await world.advance(minutes=20)

    assert "Needs an answer" in world.now(card).text
    reads = len(world.requests_for("read_video"))
    assert reads < 30
    await world.advance(hours=3)
    assert len(world.requests_for("read_video")) == reads


@each_unreadable
async def test_a_person_can_name_another_id_if_the_one_of_a_callback_cannot_be_read(
    world: World, answer: CannedResponse
) -> None:
    card, url = await _lost(world)
    [video_id] = world.service.videos
    world.service.faults.always("read_video", answer)
    await _calls_back(world, url, "v-of-others")
    await world.advance(minutes=20)
    world.service.faults.clear()
    world.service.faults.next("read_video", *[answer] * 2)

    await world.ana.click(world.question(card), "I found it")
    form = world.ana.modal
    assert form is not None
    await form.submit({"remote_id": video_id})
    if form.is_open:  # it could not be verified just now
        await form.submit({})
    assert not form.is_open, form.errors
    await world.advance(minutes=20)

    [reply] = world.replies(card)
    assert "is ready" in reply.text
    assert world.created_count() == 1


@each_unreadable
async def test_create_again_does_not_wait_for_ever_for_what_a_callback_named(
    world: World, answer: CannedResponse
) -> None:
    card, url = await _lost(world)
    world.service.faults.always("read_video", answer)
    await _calls_back(world, url, "v-of-others")
    await world.advance(minutes=20)

    await world.ana.click(world.question(card), "Create again")
    await world.advance(minutes=20)

    assert len(world.requests_for("create_video")) == 2
    world.service.faults.clear()
    await world.advance(minutes=20)
    assert "is ready" in world.replies(card)[-1].text
