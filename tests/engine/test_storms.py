"""Callbacks that come while a job is being read, and answers that ask to come again."""

import json
from datetime import datetime, timedelta

import pytest

from sandbox.faults import CannedResponse, Reset
from sandbox.scenarios import CallbackPlan, Echo, Scenario
from sandbox.video_service import Operation
from tests.world import World

SILENT = CallbackPlan(times=0)


async def _storm(world: World, moment: str) -> None:
    """Have every read accompanied by callbacks with the job's own token."""
    body = world.requests_for("create_video")[-1].body
    assert isinstance(body, dict)
    url, video_id = body["callback_url"], next(iter(world.service.videos))

    async def call_back(phase: str, operation: Operation, _: str) -> None:
        if (phase, operation) == (moment, "read_video"):
            for _each in range(2):
                async with world.slack.session.post(
                    url, data=json.dumps({"video_id": video_id})
                ) as answer:
                    assert answer.status == 200

    world.service.on_request = call_back


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_storm_of_callbacks_during_each_read_does_not_discard_what_was_read(
    world: World, moment: str
) -> None:
    world.service.next_video(
        Scenario(end="never", statuses=("queued", "polishing"), callback_plan=SILENT)
    )
    card = await world.request_video(world.ana)
    await _storm(world, moment)
    await world.service.call_back(next(iter(world.service.videos)))

    await world.advance(minutes=16)

    [job] = await world.bot.store.jobs.list_for_user(world.ana.user.id, "video", 9)
    assert job.snapshot is not None
    assert job.snapshot.status
    assert job.late
    assert "longer than usual" in world.now(card).text


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_storm_of_callbacks_does_not_keep_a_lost_video_from_being_found(
    world: World, moment: str
) -> None:
    world.service.next_video(Scenario(echo=Echo.NO_DATA, callback_plan=SILENT))
    world.service.faults.next("create_video", Reset(done=True))
    card = await world.request_video(world.ana)
    await _storm(world, moment)
    await world.service.call_back(next(iter(world.service.videos)))
    await world.settle()
    assert "Checking" not in world.now(card).text

    await world.advance(minutes=5)

    assert "is ready" in world.replies(card)[0].text
    assert world.created_count() == 1


async def test_a_callback_after_a_read_has_begun_leads_to_another_read(world: World) -> None:
    """The end came after the service had answered, and the callback before that was stored."""
    world.service.next_video(Scenario(end="never", callback_plan=SILENT))
    card = await world.request_video(world.ana)
    await world.advance(minutes=10)
    [video_id] = world.service.videos
    ended_at: datetime | None = None

    async def end(phase: str, operation: Operation, _: str) -> None:
        nonlocal ended_at
        if (phase, operation) == ("after", "read_video") and ended_at is None:
            ended_at = world.clock.now()
            world.service.finish(video_id)
            await world.service.call_back(video_id)

    world.service.on_request = end
    await world.advance(minutes=3)

    assert ended_at is not None
    assert "is ready" in world.replies(card)[0].text
    assert world.requests_for("read_video")[-1].at - ended_at <= timedelta(seconds=2)


@pytest.mark.parametrize("operation", ["create_video", "read_video"])
async def test_an_answer_that_asks_to_come_again_ends_no_job(world: World, operation: str) -> None:
    world.service.callback_plan = SILENT
    world.service.faults.next(operation, *[CannedResponse(408, {"error": "Not now"})] * 3)
    card = await world.request_video(world.ana)
    await world.advance(minutes=15)

    assert "is ready" in world.replies(card)[0].text
    assert world.created_count() == 1
