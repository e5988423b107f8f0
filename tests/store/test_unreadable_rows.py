"""A row that cannot be read is set aside, with its content out of the log; the others go on."""

import contextlib
import logging
import sqlite3

import pytest

from bot.ops import doctor
from sandbox.slack_objects import Message
from tests.journeys.test_limits import refused
from tests.modes import on_sqlite_alone
from tests.world import World, number_of

pytestmark = on_sqlite_alone

SECRET = "A secret script."
# A byte that is in no UTF-8, in the middle of the script.
NOT_UTF8 = (
    """params = CAST(CAST('{"script": "A secret script.' AS BLOB) || X'FF' || '"}' AS TEXT)"""
)
DAMAGED_JOBS = [
    NOT_UTF8,
    """params = '{"script": "A secret script.'""",
    "state = 'A secret script.'",
    "created_at = 9000000000000000000",
    "snapshot = 'A secret script.'",
    "channel = X'FF'",
]
DAMAGED_DELIVERIES = ["state = 'A secret script.'", "channel = CAST(X'FF' AS TEXT)"]


def change(world: World, sql: str, *values: object) -> None:
    """Change the database; the bot must have stopped."""
    with contextlib.closing(sqlite3.connect(world.database)) as db:
        assert db.execute(sql, values).rowcount == 1
        db.commit()


async def request_two(world: World) -> list[Message]:
    return [await world.request_video(world.ana), await world.request_video(world.ben)]


def logged(caplog: pytest.LogCaptureFixture) -> int:
    assert SECRET not in caplog.text
    assert "Traceback" not in caplog.text
    return caplog.text.count("it is left as it is")


@pytest.mark.parametrize("damaged", DAMAGED_JOBS)
async def test_a_job_that_cannot_be_read_is_set_aside_and_the_others_go_on(
    damaged: str, quiet_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = quiet_world
    caplog.set_level(logging.INFO)
    async with world.running_bot():
        bad, good = await request_two(world)
    change(world, f"UPDATE jobs SET {damaged} WHERE id = ?", number_of(bad))  # noqa: S608

    async with world.running_bot():
        await world.advance(minutes=5)
        assert "Ready" in world.now(good).text
        assert logged(caplog) == 1
        card = await world.request_video(world.ben)
        await world.advance(minutes=5)
        assert "Ready" in world.now(card).text
        answer = await world.ana.command("/video", "list")
        assert answer.ok
        answer = await world.ana.command("/video", f"status {number_of(bad)}")
        assert answer.message is not None
        assert "is damaged. Let" in answer.message.text
        await world.advance(minutes=10)
        assert logged(caplog) == 1
    restore = """UPDATE jobs SET params = '{"script": "Hello, world."}' WHERE id = ?"""
    change(world, restore, number_of(bad))


@pytest.mark.parametrize("damaged", DAMAGED_DELIVERIES)
async def test_a_message_that_cannot_be_read_is_set_aside_and_the_others_go_on(
    damaged: str, quiet_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = quiet_world
    async with world.running_bot():
        bad, good = await request_two(world)
    change(world, f"UPDATE deliveries SET {damaged} WHERE job_id = ?", number_of(bad))  # noqa: S608

    async with world.running_bot():
        await world.advance(minutes=5)
        assert "Ready" in world.now(good).text
        assert "Ready" not in world.now(bad).text
        assert logged(caplog) == 1


async def test_a_row_that_was_repaired_goes_on_at_the_next_start(
    quiet_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = quiet_world
    async with world.running_bot():
        bad = await world.request_video(world.ana)
    number = number_of(bad)
    change(world, "UPDATE jobs SET state = 'unknown' WHERE id = ?", number)
    async with world.running_bot():
        await world.advance(minutes=5)
        assert "Ready" not in world.now(bad).text
    assert logged(caplog) == 1
    change(world, "UPDATE jobs SET state = 'running' WHERE id = ?", number)
    async with world.running_bot():
        await world.advance(minutes=5)
        assert "Ready" in world.now(bad).text
        assert len(world.replies(bad)) == 1
    assert world.created_count() == 1
    assert logged(caplog) == 1


async def test_a_candidate_that_cannot_be_read_is_left_out(
    quiet_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = quiet_world
    async with world.running_bot():
        card = await world.request_video(world.ana)
    change(
        world,
        "UPDATE attempts SET candidate_id = CAST(X'FF' AS TEXT), remote_id = NULL WHERE job_id = ?",
        number_of(card),
    )
    change(world, "UPDATE jobs SET state = 'unconfirmed', remote_id = NULL")
    async with world.running_bot():
        await world.advance(hours=1)
        assert "Create again" in str(world.question(card).blocks)
        assert logged(caplog) == 1
    assert world.created_count() == 1


async def test_a_replica_that_cannot_be_read_is_left_out_of_the_picker(
    quiet_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = quiet_world
    world.service.add_replica("r-ben", "Ben")
    async with world.running_bot():
        for replica in ("r-ben", "r-anna-42"):
            await world.request_video(world.ana, {"replica_id": replica})
        await world.advance(minutes=5)
    change(world, "UPDATE replicas SET name = CAST(X'FF' AS TEXT) WHERE id = 'r-ben'")
    async with world.running_bot():
        form = await world.open_form(world.ana)
        offered = [option["value"] for option in await form.suggest("replica_id", "")]
        assert offered == ["r-anna-42"]
        assert logged(caplog) == 1


async def test_limits_hold_whatever_became_of_their_revision(quiet_world: World) -> None:
    world = quiet_world
    async with world.running_bot() as bot:
        await bot.store.limits.change({"MAX_PER_DAY": "1"}, "U0ADMIN", world.clock.now())
        await world.request_video(world.ana)
    for damage in ("UPDATE revisions SET revision = X'FF'", "DELETE FROM revisions"):
        change(world, f"{damage} WHERE name = 'limits'")
        async with world.running_bot():
            assert "limit of 1 request a day" in await refused(world, world.ben)


async def test_the_script_of_a_job_that_cannot_be_read_is_erased_like_others(
    quiet_world: World,
) -> None:
    world = quiet_world
    async with world.running_bot(RETENTION_DAYS="1"):
        for card in await request_two(world):
            bad = card
        await world.advance(minutes=5)
    change(world, f"UPDATE jobs SET {NOT_UTF8} WHERE id = ?", number_of(bad))  # noqa: S608
    async with world.running_bot(RETENTION_DAYS="1"):
        await world.advance(days=1, hours=2)
    with contextlib.closing(sqlite3.connect(world.database)) as db:
        assert db.execute("SELECT count(*), sum(erased) FROM jobs").fetchone() == (2, 2)
        assert SECRET.encode() not in b"".join(db.serialize().splitlines())


async def test_a_time_that_cannot_be_read_does_not_end_the_bot(quiet_world: World) -> None:
    world = quiet_world
    async with world.running_bot():
        card = await world.request_video(world.ana)
    for table in ("jobs", "deliveries"):
        change(world, f"UPDATE {table} SET due_at = 'soon'")  # noqa: S608
    async with world.running_bot():
        await world.advance(minutes=10)
        assert "Ready" in world.now(card).text


@pytest.mark.parametrize("damaged", ["CAST(X'FF' AS TEXT)", "X'00'"])
async def test_without_a_team_that_can_be_read_slack_is_asked_and_people_are_served(
    damaged: str, quiet_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = quiet_world
    async with world.running_bot():
        await world.request_video(world.ana)
    change(world, f"UPDATE installation SET team_id = {damaged}")  # noqa: S608
    async with world.running_bot():
        card = await world.request_video(world.ana)
        await world.advance(minutes=5)
        assert "Ready" in world.now(card).text
        assert logged(caplog) == 1
    found = {each.name: each async for each in doctor.examine(world.environment("0"))}
    assert "row 1 of installation" in found["database rows"].message
    assert not any("another workspace" in each.message for each in found.values())


async def test_the_doctor_lists_rows_that_cannot_be_read(quiet_world: World) -> None:
    world = quiet_world
    async with world.running_bot():
        card = await world.request_video(world.ana)
    change(world, "UPDATE jobs SET state = 'A secret script.' WHERE id = ?", number_of(card))
    change(world, "UPDATE deliveries SET channel = CAST(X'FF' AS TEXT)")
    environ = world.environment("0")
    found = {each.name: each async for each in doctor.examine(environ)}["database rows"]
    assert not found.ok
    assert f"row {number_of(card)} of jobs, row 1 of deliveries" in found.message
    assert "start the bot again" in found.remedy
    assert SECRET not in found.message
