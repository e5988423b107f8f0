"""How long it will take: this workspace's own finished requests say so, and nothing else."""

from datetime import timedelta

import pytest

from bot.slack.views.buttons import HAVE_ID
from bot.timings import Timings
from sandbox.driver import Modal, Person
from sandbox.faults import Reset
from sandbox.scenarios import CallbackPlan, Pace, Scenario
from sandbox.slack_objects import Message
from tests.world import World

SHORT = "Hello, world."


@pytest.fixture(autouse=True)
def _in_memory_as_in_production(quiet: World) -> None:
    quiet.pauses = {**quiet.pauses, "memory_interval": Timings().memory_interval}


LONG = "All that happened this year, in one long film. " * 40


def finishes_within(**duration: float) -> Scenario:
    return Scenario(pace=Pace(queued=timedelta(0), generating=timedelta(**duration)))


async def make(world: World, script: str, minutes: list[float]) -> None:
    """Have videos with one script made, each in its time, all at once."""
    for number, each in enumerate(minutes):
        world.service.next_video(finishes_within(minutes=each))
        await world.request_video(world.ben, {"script": script, "video_name": f"No. {number}"})
    await world.advance(minutes=max(minutes) + 1)


async def begin(world: World, script: str = SHORT, **duration: float) -> Message:
    """Have a video begun that takes as long; return its card."""
    world.service.next_video(finishes_within(**duration or {"hours": 1}))
    return await world.after(world.request_video(world.ana, {"script": script}), seconds=15)


async def hint(world: World, person: Person, script: str = "") -> str:
    """Return what the form says below its script, and close it."""
    form: Modal = await world.open_form(person, script)
    [block] = [each for each in form.view.body["blocks"] if each["block_id"] == "script"]
    await form.close()
    return str(block["hint"]["text"])


async def test_people_are_told_how_long_it_takes_once_there_is_a_history(world: World) -> None:
    # Nothing is invented while there is none.
    card = await begin(world)
    assert "usually" not in str(world.now(card).blocks) + world.now(card).text
    assert "usually" not in await hint(world, world.ana, SHORT)
    assert "Usually takes" not in (await world.details(world.ana, card)).text
    await world.advance(hours=2)

    # The one above took an hour: it is the tenth of ten.
    await make(world, SHORT, [2, 2, 2, 3, 3, 3, 3, 4, 5])
    card = await begin(world, minutes=30)
    assert "*Rendering*, usually about 3 min. I'll reply here." in world.now(card).text
    said = await hint(world, world.ana, SHORT)
    assert said.startswith("This takes about 1 second to speak and usually about 3 min to ")
    assert "Videos usually take about 3 min to create." in await hint(world, world.ana)
    expected = "Usually takes: about 3 minutes, rarely over 5 minutes"
    assert expected in (await world.details(world.ana, card)).text
    # A poll after five minutes finds that it is slower than nine of the ten.
    await world.advance(minutes=6)
    text = world.now(card).text
    assert "*Rendering* is taking longer than usual." in text
    assert " (most take 3 min)." in text
    await world.advance(minutes=30)
    assert "Usually takes" not in (await world.details(world.ana, card)).text
    assert "most take" not in world.now(card).text


async def test_long_scripts_are_compared_with_long_ones_once_there_are_enough(world: World) -> None:
    await make(world, SHORT, [2] * 10)
    await make(world, LONG, [12] * 9)
    # Nine say nothing of long scripts: all videos do.
    assert "usually about 2 min" in world.now(await begin(world, LONG, minutes=12)).text
    await world.advance(minutes=13)
    assert "usually about 12 min" in world.now(await begin(world, LONG)).text
    assert "usually about 2 min" in world.now(await begin(world, SHORT)).text
    assert "usually about 12 min to create" in await hint(world, world.ana, LONG)
    assert "usually about 2 min to create" in await hint(world, world.ana, SHORT)


async def test_where_videos_take_long_a_long_wait_is_not_called_unusual(world: World) -> None:
    await make(world, SHORT, [40] * 10)
    card = await world.after(begin(world), minutes=35)
    assert "*Rendering*, usually about 40 min" in world.now(card).text
    await world.advance(minutes=15)
    assert "is taking longer than usual" in world.now(card).text


async def test_the_time_that_nobody_answered_a_question_is_not_taken_for_a_videos(
    world: World,
) -> None:
    world.service.faults.next("create_video", Reset(done=True))
    world.service.next_video(Scenario(callback_plan=CallbackPlan(times=0)))
    card = await world.after(world.request_video(world.ana), hours=20)
    [video] = world.service.videos.values()
    await world.ana.click(world.question(card), HAVE_ID)
    await world.after(world.ana.form.submit({"remote_id": video.video_id}), minutes=1)
    assert world.query("SELECT state FROM jobs") == [{"state": "succeeded"}]
    assert "usually" not in await hint(world, world.ana, SHORT)
