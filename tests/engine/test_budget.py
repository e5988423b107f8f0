"""What a lone request costs: statements, works and calls to Slack; ``tests.statements`` counts.

The bounds are what the bot is meant to take. What is added is to push something else out.
"""

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Final

import pytest

from sandbox.scenarios import Pace
from tests.modes import on_both_engines
from tests.statements import Ran, Recorder, recording
from tests.world import REPLICA, World

pytestmark = on_both_engines

_FORM_STATEMENTS: Final = 4
_FORM_WORKS: Final = 1
_REPLY_STATEMENTS: Final = 28
_REPLY_WORKS: Final = 12
# Of these, without claims: two steps that end at once may bring one more of those.
_STEP_STATEMENTS: Final = 14
_STEP_WORKS: Final = 6
# Where there are several writers, rows are locked before some of them are written.
_LOCKS_ON_POSTGRES: Final = 6
_SLACK_CALLS: Final = 3
# The service calls back before the first poll.
_PACE: Final = Pace(queued=timedelta(seconds=2), generating=timedelta(seconds=3))
_JOBS: Final = 3


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    """Record what runs; it is there before the bot, which opens its connections at its start."""
    with recording() as recorder:
        yield recorder


@pytest.fixture
async def used_world(recorder: Recorder, quiet: World) -> AsyncIterator[World]:
    """A world whose bot has made a video for Ana in this channel, and does nothing now."""
    recorder.clock = lambda: len(quiet.slack.calls)
    quiet.service.pace = _PACE
    async with quiet.running_bot():
        await quiet.after(quiet.request_video(quiet.ana), minutes=5)
        recorder.take()
        yield quiet


async def test_opening_the_form_and_typing_into_it_asks_the_database_nothing(
    recorder: Recorder, used_world: World
) -> None:
    world = used_world
    # What is kept in memory is at most some seconds old.
    await (await world.open_form(world.ben, channel="lobby")).close()
    await world.settle()
    recorder.take()

    form = await world.after(world.open_form(world.ana))
    ran = recorder.take()
    assert not ran.statements, str(ran)

    assert await form.suggest("replica_id", "An")
    await world.settle()
    ran = recorder.take()
    assert not ran.statements, str(ran)


async def test_a_form_is_one_work_and_its_video_takes_few_statements_and_calls(
    recorder: Recorder, used_world: World, subtests: pytest.Subtests
) -> None:
    forms, replies, calls = list[Ran](), list[Ran](), list[list[str]]()
    for number in range(_JOBS):
        form, reply, called = await _lone_job(recorder, used_world, f"Number {number}.")
        forms.append(form)
        replies.append(reply)
        calls.append(called)
    locks = 0 if used_world.postgres_url is None else 1
    with subtests.test("until the ack"):
        form = min(forms, key=_size)
        assert len(form.works) <= _FORM_WORKS, str(form)
        assert form.statements <= _FORM_STATEMENTS + locks, str(form)
    reply, locks = min(replies, key=_size), locks * _LOCKS_ON_POSTGRES
    with subtests.test("from the ack to the reply"):
        assert len(reply.works) <= _REPLY_WORKS, str(reply)
        assert reply.statements <= _REPLY_STATEMENTS + locks, str(reply)
    with subtests.test("from the ack to the reply, without claims"):
        steps = Ran([work for work in reply.works if ".claim." not in work.name], [])
        assert len(steps.works) <= _STEP_WORKS, str(steps)
        assert steps.statements <= _STEP_STATEMENTS + locks, str(steps)
    with subtests.test("calls to Slack"):
        assert max(map(len, calls)) <= _SLACK_CALLS, calls


def _size(ran: Ran) -> tuple[int, int]:
    return len(ran.works), ran.statements


async def _lone_job(recorder: Recorder, world: World, script: str) -> tuple[Ran, Ran, list[str]]:
    """Return what ran until the ack, what from there to the reply, and the calls to Slack."""
    await world.advance(minutes=5)
    form = await world.open_form(world.ana)
    await world.after(form.suggest("replica_id", "An"))
    recorder.take()
    before = len(world.slack.calls)
    await world.after(form.send({"replica_id": REPLICA, "script": script}))
    of_form, rest = recorder.take().split_after_requests()
    await world.advance(seconds=9)
    after = recorder.take()
    rest = Ran(rest.works + after.works, rest.outside + after.outside)
    called = [call.method for call in world.slack.calls[before:]]
    replied_at = max(at for at, method in enumerate(called, before) if "postMessage" in method)
    works = [work for work in rest.works if work.asked_at <= replied_at]
    return of_form, Ran(works, rest.outside), called
