"""What happens in Slack after a backup is not done a second time once that is restored."""

from pathlib import Path

import pytest

from bot.store.backup import back_up
from sandbox.faults import CannedResponse, Reset
from sandbox.scenarios import CallbackPlan
from sandbox.slack_objects import Message
from tests.journeys.test_transcript_file import COMPLETE, GET_URL, asks, shared
from tests.modes import on_sqlite_alone
from tests.ops.test_backup import restore
from tests.world import REPLICA, World, buttons_of

pytestmark = on_sqlite_alone

_LIMITED = CannedResponse(429, {"ok": False, "error": "ratelimited"}, {"Retry-After": "60"})


async def back(world: World, folder: Path) -> Path:
    """Back up the database of the running bot."""
    backup = folder / "backup.db"
    await world.settle()
    back_up(world.database, backup, world.clock.now(), replace=True)
    return backup


def texts(world: World) -> list[str]:
    return [each.text for each in world.posts()]


def labels(message: Message) -> list[str]:
    return [each["text"]["text"] for each in buttons_of(message.blocks)]


async def test_what_was_posted_after_a_backup_is_found_and_not_posted_again(
    quiet_world: World, tmp_path: Path
) -> None:
    world = quiet_world
    world.service.callback_plan = CallbackPlan(times=0)
    async with world.running_bot(MAX_SCRIPT="20000"):
        running = await world.request_video(world.ana, {"script": "Runs meanwhile."})
        await asks(world)  # its transcript will be a file
        world.slack.faults.next("chat.postMessage", _LIMITED)
        form = await world.open_form(world.ana)
        await form.submit({"replica_id": REPLICA, "script": "Has no card yet."})
        backup = await back(world, tmp_path)
        assert len(world.posts()) == 2
        await world.advance(minutes=10)
        before = texts(world)
        assert len([each for each in before if "is ready" in each]) == 3
        [file] = shared(world)
    for _ in "restored", "and restored once more":
        restore(backup, world.database)
        async with world.running_bot(MAX_SCRIPT="20000"):
            await world.settle()
            await world.advance(minutes=10)
            assert texts(world) == before
            assert "Ready" in world.now(running).text
            assert shared(world) == [file]


async def test_a_question_that_was_settled_after_a_backup_has_its_buttons_again(
    quiet_world: World, tmp_path: Path
) -> None:
    world = quiet_world
    async with world.running_bot(callbacks=False):
        world.service.faults.next("create_video", Reset(done=True))
        card = await world.request_video(world.ana)
        asked = world.question(card)
        backup = await back(world, tmp_path)
        await world.ana.click(asked, "Create again")
        await world.advance(minutes=10)
        assert "Ready" in world.now(card).text
        assert labels(world.now(asked)) == []
        before, made = texts(world), len(world.requests_for("create_video"))
    restore(backup, world.database)
    async with world.running_bot(callbacks=False):
        await world.advance(minutes=10)
        assert "Needs an answer" in world.now(card).text
        assert "Create again" in labels(world.now(asked))
        assert len(texts(world)) == len(before)
        assert len(world.requests_for("create_video")) == made == 2
        await world.ana.click(world.question(card), "Cancel request")
        await world.advance(minutes=10)
        assert "Cancelled" in world.now(card).text


@pytest.mark.parametrize("step", ["mark", "share"])
async def test_a_file_that_may_be_shared_since_the_backup_is_not_shared_twice(
    step: str, quiet_world: World, tmp_path: Path
) -> None:
    world = quiet_world
    async with world.running_bot(MAX_SCRIPT="20000"):
        await asks(world)
        world.slack.faults.next({"mark": GET_URL, "share": COMPLETE}[step], _LIMITED)
        world.service.finish(next(iter(world.service.videos)))
        await world.advance(seconds=30)
        assert not shared(world)
        backup = await back(world, tmp_path)
        await world.advance(minutes=10)
        [file] = shared(world)
        before = texts(world)
    restore(backup, world.database)
    async with world.running_bot(MAX_SCRIPT="20000"):
        await world.advance(hours=2)
        assert texts(world) == before
        assert shared(world) == [file]
        assert "The rest is under *Details*" in before[-2]
