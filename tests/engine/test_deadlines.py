"""A video that does not end: polled less and less often, reported late, closed at last."""

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest

from bot.kinds import Answer
from bot.timings import Timings
from sandbox.scenarios import CallbackPlan, Scenario
from sandbox.service_limits import RateLimit
from sandbox.slack_objects import Message
from tests.world import World

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
# The default of two weeks would only take longer.
ONE_DAY = Timings(jitter=0, minutes=replace(Timings().minutes, give_up_after=24 * HOUR))


async def _never_ends(world: World) -> Message:
    world.service.next_video(Scenario(end="never"))
    return await world.request_video(world.ana)


def _gaps(world: World) -> list[timedelta]:
    """Return the times between two reads."""
    return [later.at - earlier.at for earlier, later in pairwise(world.requests_for("read_video"))]


async def test_a_video_is_polled_less_often_the_older_it_is(world: World) -> None:
    await _never_ends(world)

    await world.advance(hours=2)

    gaps = _gaps(world)
    assert gaps == sorted(gaps)
    assert gaps[0] < timedelta(seconds=15)
    assert gaps[-1] == 2 * MINUTE
    assert len(gaps) < 90


async def test_an_overdue_video_is_polled_hourly_and_can_be_checked_at_once(world: World) -> None:
    card = await _never_ends(world)
    await world.advance(hours=3, minutes=5)
    overdue = world.now(card)
    assert "Overdue" in overdue.text
    before = len(world.requests_for("read_video"))
    await world.advance(hours=4)
    assert len(world.requests_for("read_video")) - before == 4

    await world.ana.click(overdue, "Check now")
    await world.settle()

    assert len(world.requests_for("read_video")) - before == 5
    [shown] = world.ephemerals(world.ana)
    assert "Checking now" in shown
    assert world.posts() == [overdue]


async def test_a_video_that_never_ends_times_out(quiet_world: World) -> None:
    world = quiet_world
    world.timings = ONE_DAY
    async with world.running_bot():
        card = await _never_ends(world)
        await world.advance(hours=23)
        assert not world.replies(card)

        await world.advance(hours=2)

        [reply] = world.replies(card)
        assert "didn't finish" in reply.text
        assert "Failed" in world.now(card).text
        assert world.posts() == [world.now(card), reply]
        reads = len(world.requests_for("read_video"))
        await world.advance(days=1)
        assert len(world.requests_for("read_video")) == reads


async def test_a_video_times_out_when_the_service_stays_unavailable(quiet_world: World) -> None:
    world = quiet_world
    world.timings = replace(ONE_DAY, max_retry_interval=HOUR)
    async with world.running_bot():
        card = await _never_ends(world)
        world.service.down = True
        await world.advance(minutes=2)
        assert "can't check this right now" in world.now(card).text
        await world.advance(days=1, hours=2)

    assert len(world.replies(card)) == 1


async def test_a_read_waits_as_long_as_the_service_asks(world: World) -> None:
    card = await world.request_video(world.ana)
    world.service.callback_plan = CallbackPlan(times=0)
    began = world.clock.now()
    wait = timedelta(minutes=7)
    world.service.rate_limited = RateLimit(began + wait, retry_after=wait)

    await world.advance(minutes=6)
    # The callback causes a read in between, which gives the same answer.
    reads = len(world.requests_for("read_video"))
    assert reads <= 2
    assert not world.replies(card)
    await world.advance(minutes=10)

    assert len(world.replies(card)) == 1
    assert len(world.requests_for("read_video")) == reads + 1


async def test_a_job_whose_step_failed_goes_on_when_its_lease_ends(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        monkeypatch.undo()
        raise LookupError

    world.service.callback_plan = CallbackPlan(times=0)
    card = await world.request_video(world.ana)
    monkeypatch.setattr(Answer, "judged", fails)
    await world.advance(minutes=5)

    assert "a step failed" in caplog.messages
    [reply] = world.replies(card)
    assert "is ready" in reply.text


async def test_a_revoked_key_only_delays_the_reply(world: World) -> None:
    card = await world.request_video(world.ana)
    world.service.key_revoked = True
    await world.advance(minutes=30)
    assert not world.replies(card)

    world.service.key_revoked = False
    await world.advance(minutes=10)

    [reply] = world.replies(card)
    assert "is ready" in reply.text
