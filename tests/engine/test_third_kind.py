"""A kind of job that no generic module knows, from request to closing reply."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from bot.app import FEATURES
from sandbox.faults import CannedResponse, Reset
from sandbox.scenarios import CallbackPlan
from sandbox.slack_objects import Message
from tests.engine import third_kind
from tests.world import REPLICA, World, number_of


@pytest.fixture
async def world(quiet_world: World) -> AsyncIterator[World]:
    """A world whose bot has one feature more."""
    async with quiet_world.running_bot(features=(*FEATURES, third_kind.FEATURE)):
        yield quiet_world


async def _cuts(world: World, name: str = "Spring") -> Message:
    """Ask for a trailer with its form and return its card."""
    form = await world.open_form(world.ana, command=third_kind.COMMAND)
    await form.submit({"video_name": name})
    assert not form.is_open
    await world.settle()
    return world.posts()[-1]


async def test_it_is_made_and_reported_in_the_thread_once(world: World) -> None:
    card = await _cuts(world)
    await world.advance(minutes=1)
    assert "Trailer “Spring”: Being cut. I'll reply here." in world.now(card).text

    await world.advance(minutes=5)

    [create] = world.requests_for("create_video")
    assert isinstance(create.body, dict)
    assert create.body.pop("callback_url")
    spoken = {"replica_id": REPLICA, "script": "Coming soon."}
    assert create.body == {"video_name": "Spring", **spoken}
    [reply] = world.replies(card)
    assert "“Spring” is ready" in reply.text
    assert "is ready: curtain up." in reply.text
    assert "|Show>" in reply.text
    assert reply.pings == {world.ana.user.id}
    assert world.posts() == [world.now(card), reply]


async def test_when_its_create_answer_is_lost_a_person_decides(world: World) -> None:
    world.service.callback_plan = CallbackPlan(times=0)
    world.service.faults.next("create_video", Reset(done=True))
    card = await _cuts(world)
    await world.advance(minutes=16)
    assert "Did this trailer get made?" in world.now(card).text
    [video_id] = world.service.videos

    await world.ana.click(world.question(card), "I found it")
    form = world.ana.modal
    assert form is not None
    await form.submit({"remote_id": video_id})
    await form.submit({})
    assert not form.is_open, form.errors
    await world.advance(minutes=5)

    assert "is ready" in world.replies(card)[0].text
    assert world.created_count() == 1


async def test_the_video_form_works_beside_a_second_kind_that_other_jobs_can_use(
    quiet_world: World,
) -> None:
    catalogued = replace(third_kind.FEATURE, kind=replace(third_kind.TRAILER, catalogued=True))
    async with quiet_world.running_bot(features=(*FEATURES, catalogued)):
        await quiet_world.request_video(quiet_world.ana)
        await quiet_world.ana.command("/replica", f"add {REPLICA}")
        await quiet_world.settle()

    assert quiet_world.created_count() == 1
    assert "is ready to use" in quiet_world.ephemerals(quiet_world.ana)[-1]


async def test_its_jobs_wait_while_no_feature_knows_it_and_then_go_on(
    quiet_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = quiet_world
    features = (*FEATURES, third_kind.FEATURE)
    async with world.running_bot(features=features):
        cards = [await _cuts(world, name) for name in ("Spring", "Summer")]
    async with world.running_bot():
        video = await world.request_video(world.ben)
        await world.advance(hours=5)

    assert "is ready" in world.replies(video)[0].text
    assert not any(world.replies(card) for card in cards)
    assert "a step failed" not in caplog.messages
    [logged] = [each for each in caplog.records if "unknown kind" in each.message]
    assert (logged.levelname, vars(logged)["kind"]) == ("ERROR", "trailer")

    async with world.running_bot(features=features):
        await world.advance(hours=1, minutes=5)

    for card in cards:
        [reply] = world.replies(card)
        assert "” is ready" in reply.text
    assert len(world.service.videos) == 3


async def test_when_it_is_no_longer_registered_its_messages_wait_and_its_buttons_say_so(
    quiet_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = quiet_world
    features = (*FEATURES, third_kind.FEATURE)
    world.service.callback_plan = CallbackPlan(times=0)
    world.service.faults.next("create_video", Reset())
    async with world.running_bot(features=features):
        card = await _cuts(world)
        await world.advance(minutes=16)
        asking, question = world.now(card), world.question(card)
        limit = CannedResponse(429, {"ok": False, "error": "ratelimited"}, {"Retry-After": "60"})
        world.slack.faults.next("chat.update", limit, limit)  # of the question and of the card
        await world.ana.click(question, "Cancel request")
        await world.settle()
    async with world.running_bot():
        await world.advance(hours=5)
        assert world.now(card) == asking, "without a presenter it is not edited"
        for button in ("I found it", "Create again", "Cancel request"):
            await world.ana.click(question, button)
            await world.settle()
            assert "no longer support this kind of request" in world.ephemerals(world.ana)[-1]
        answer = await world.ana.command("/video", f"status {number_of(card)}")
        assert answer.message is not None
        assert "no longer support this kind of request" in answer.message.text
    assert "a step failed" not in caplog.messages
    logged = [each for each in caplog.records if "an unregistered kind" in each.message]
    assert [vars(each)["kind"] for each in logged] == ["trailer"]

    async with world.running_bot(features=features):
        await world.advance(hours=1, minutes=5)

    assert "Cancelled" in world.now(card).text
    assert len(world.replies(card)) == 1
