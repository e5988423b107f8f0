"""A row that cannot be read is set aside, with its content out of the log; the others go on."""

import contextlib
import logging
import os
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bot.ops import doctor
from bot.ops.finding import Finding
from bot.store import DatabaseCorrupt, DatabaseUnavailable, DatabaseUncertain, Store
from bot.timings import Timings
from sandbox.slack_objects import Message
from tests.modes import on_sqlite_alone
from tests.store.test_store import NOW, submit
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
    damaged: str, quiet: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with quiet.running_bot():
        bad, good = await request_two(quiet)
    change(quiet, f"UPDATE jobs SET {damaged} WHERE id = ?", number_of(bad))  # noqa: S608

    async with quiet.running_bot():
        await quiet.advance(minutes=5)
        assert "Ready" in quiet.now(good).text
        assert logged(caplog) == 1
        card = await quiet.after(quiet.request_video(quiet.ben), minutes=5)
        assert "Ready" in quiet.now(card).text
        answer = await quiet.ana.command("/video", "list")
        assert answer.ok
        answer = await quiet.ana.command("/video", f"status {number_of(bad)}")
        assert "is damaged. Let" in answer.shown.text
        await quiet.advance(minutes=10)
        assert logged(caplog) == 1
    restore = """UPDATE jobs SET params = '{"script": "Hello, world."}' WHERE id = ?"""
    change(quiet, restore, number_of(bad))


@pytest.mark.parametrize("damaged", DAMAGED_DELIVERIES)
async def test_a_message_that_cannot_be_read_is_set_aside_and_the_others_go_on(
    damaged: str, quiet: World, caplog: pytest.LogCaptureFixture
) -> None:
    async with quiet.running_bot():
        bad, good = await request_two(quiet)
    change(quiet, f"UPDATE deliveries SET {damaged} WHERE job_id = ?", number_of(bad))  # noqa: S608

    async with quiet.running_bot():
        await quiet.advance(minutes=5)
        assert "Ready" in quiet.now(good).text
        assert "Ready" not in quiet.now(bad).text
        assert logged(caplog) == 1


async def test_a_row_that_was_repaired_goes_on_at_the_next_start(
    quiet: World, caplog: pytest.LogCaptureFixture
) -> None:
    async with quiet.running_bot():
        bad = await quiet.request_video(quiet.ana)
    number = number_of(bad)
    change(quiet, "UPDATE jobs SET state = 'unknown' WHERE id = ?", number)
    async with quiet.running_bot():
        await quiet.advance(minutes=5)
        assert "Ready" not in quiet.now(bad).text
    assert logged(caplog) == 1
    change(quiet, "UPDATE jobs SET state = 'running' WHERE id = ?", number)
    async with quiet.running_bot():
        await quiet.advance(minutes=5)
        assert "Ready" in quiet.now(bad).text
        assert len(quiet.replies(bad)) == 1
    assert quiet.created_count() == 1
    assert logged(caplog) == 1


async def test_a_candidate_that_cannot_be_read_is_left_out(
    quiet: World, caplog: pytest.LogCaptureFixture
) -> None:
    async with quiet.running_bot():
        card = await quiet.request_video(quiet.ana)
    change(
        quiet,
        "UPDATE attempts SET candidate_id = CAST(X'FF' AS TEXT), remote_id = NULL WHERE job_id = ?",
        number_of(card),
    )
    change(quiet, "UPDATE jobs SET state = 'unconfirmed', remote_id = NULL")
    async with quiet.running_bot():
        await quiet.advance(hours=1)
        assert "Create again" in str(quiet.question(card).blocks)
        assert logged(caplog) == 1
    assert quiet.created_count() == 1


async def test_the_script_of_a_job_that_cannot_be_read_is_erased_like_others(quiet: World) -> None:
    async with quiet.running_bot(RETENTION_DAYS="1"):
        for card in await request_two(quiet):
            bad = card
        await quiet.advance(minutes=5)
    change(quiet, f"UPDATE jobs SET {NOT_UTF8} WHERE id = ?", number_of(bad))  # noqa: S608
    async with quiet.running_bot(RETENTION_DAYS="1"):
        await quiet.advance(days=1, hours=2)
    with contextlib.closing(sqlite3.connect(quiet.database)) as db:
        assert db.execute("SELECT count(*), sum(erased) FROM jobs").fetchone() == (2, 2)
        assert SECRET.encode() not in b"".join(db.serialize().splitlines())


async def test_a_time_that_cannot_be_read_does_not_end_the_bot(quiet: World) -> None:
    async with quiet.running_bot():
        card = await quiet.request_video(quiet.ana)
    for table in ("jobs", "deliveries"):
        change(quiet, f"UPDATE {table} SET due_at = 'soon'")  # noqa: S608
    async with quiet.running_bot():
        await quiet.advance(minutes=10)
        assert "Ready" in quiet.now(card).text


@pytest.mark.parametrize("damaged", ["CAST(X'FF' AS TEXT)", "X'00'"])
async def test_without_a_team_that_can_be_read_slack_is_asked_and_people_are_served(
    damaged: str, quiet: World, caplog: pytest.LogCaptureFixture
) -> None:
    async with quiet.running_bot():
        await quiet.request_video(quiet.ana)
    change(quiet, f"UPDATE installation SET team_id = {damaged}")  # noqa: S608
    async with quiet.running_bot():
        card = await quiet.after(quiet.request_video(quiet.ana), minutes=5)
        assert "Ready" in quiet.now(card).text
        assert logged(caplog) == 1
    found = [each.message async for each in doctor.examine(quiet.environment("0"))]
    assert not any("another workspace" in each for each in found)


async def test_the_doctor_lists_rows_that_the_bot_could_not_read(quiet: World) -> None:
    async with quiet.running_bot():
        card = await quiet.request_video(quiet.ana)
    change(quiet, "UPDATE jobs SET state = 'A secret script.' WHERE id = ?", number_of(card))
    async with quiet.running_bot():
        await quiet.advance(minutes=10)
    environ = quiet.environment("0")
    found = {each.name: each async for each in doctor.examine(environ)}["database rows"]
    assert not found.ok
    assert f"row {number_of(card)} of jobs" in found.message
    assert "start the bot again" in found.remedy
    assert SECRET not in found.message


async def fill(store: Store, jobs: int = 50) -> None:
    for number in range(jobs):
        await submit(store, f"V{number}", "A long script. " * 50)


@pytest.mark.parametrize("left", [0, 0.5])
async def test_nothing_is_accepted_into_a_file_that_was_truncated(
    left: float, tmp_path: Path
) -> None:
    path = tmp_path / "bot.db"
    async with Store.open(path, Timings()) as store:
        await fill(store)
    async with Store.open(path, Timings()) as store:
        await submit(store, "before")
        os.truncate(path, int(path.stat().st_size * left))
        with pytest.raises(DatabaseCorrupt, match="is shorter than it was: a part of it is missi"):
            await submit(store, "after")
        with pytest.raises(DatabaseCorrupt):
            await store.database.check()
        with pytest.raises(DatabaseCorrupt):
            await store.database.watch()


@pytest.mark.parametrize("left", [0, 0.5])
async def test_nothing_is_accepted_into_a_log_that_was_truncated(
    left: float, tmp_path: Path
) -> None:
    path = tmp_path / "bot.db"
    wal = tmp_path / "bot.db-wal"
    async with Store.open(path, Timings()) as store:
        await fill(store)
        os.truncate(wal, int(wal.stat().st_size * left))
        with pytest.raises(DatabaseCorrupt, match=r"bot\.db-wal is shorter than it was"):
            await submit(store, "after")


async def finding(world: World) -> Finding:
    environ = world.environment("0")
    return {each.name: each async for each in doctor.examine(environ)}["database"]


async def test_the_doctor_says_that_a_database_is_gone_whose_log_is_left(quiet: World) -> None:
    async with Store.open(quiet.database, Timings()) as store:
        await fill(store, 3)
        wal = quiet.database.with_name("bot.db-wal").read_bytes()
    quiet.database.unlink()
    quiet.database.with_name("bot.db-wal").write_bytes(wal)
    found = await finding(quiet)
    assert not found.ok
    assert "is missing or empty, but there is" in found.message
    quiet.database.with_name("bot.db-wal").unlink()


class UnsyncedDisk:
    """A disk that fails commits which wait for it, with SQLite's code for the reason."""

    code: int | None = None
    statement = "COMMIT"

    def fails(self, code: int = sqlite3.SQLITE_IOERR_FSYNC) -> None:
        self.code = code

    def recovers(self) -> None:
        self.code = None


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> UnsyncedDisk:
    disk = UnsyncedDisk()

    class Unsynced(sqlite3.Connection):
        changes, syncs = 0, True

        def executescript(self, sql: str) -> sqlite3.Cursor:
            if "synchronous" in sql:
                self.syncs = "FULL" in sql
            return super().executescript(sql)

        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:  # noqa: ANN401 - as it is there
            is_writing = self.syncs and self.total_changes > self.changes
            if sql == disk.statement and disk.code and is_writing:
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = disk.code
                raise error
            if sql in {"BEGIN IMMEDIATE", "ROLLBACK"}:
                self.changes = self.total_changes
            return super().execute(sql, *values)

    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Unsynced))
    return disk


async def status(world: World) -> int:
    url = f"http://127.0.0.1:{world.bot.port}/readyz"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status


def said(caplog: pytest.LogCaptureFixture, event: str) -> int:
    return sum(record.message == event for record in caplog.records)


async def test_a_bot_is_not_ready_while_its_disk_confirms_nothing(
    disk: UnsyncedDisk, world: World
) -> None:
    # The disk is there before the bot starts. What that writes would share the transaction.
    await world.settle()
    assert await status(world) == 200
    disk.fails()
    assert await status(world) == 503, "before anybody has sent a form"
    disk.recovers()
    assert await status(world) == 200


async def test_a_claim_that_a_power_cut_may_undo_does_not_end_the_trouble(
    tmp_path: Path, disk: UnsyncedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with Store.open(tmp_path / "bot.db", Timings()) as store:
        await submit(store, "V1")
        disk.fails()
        for number in range(3):
            with pytest.raises(DatabaseUnavailable):
                await submit(store, "V2")
            now = NOW + number * Timings().lease
            assert len(await store.jobs.claim(now, 10)) == 1
            with pytest.raises(DatabaseUnavailable):
                await store.database.check()
        assert said(caplog, "the database does not work") == 1
        assert said(caplog, "the database works again") == 0
        disk.recovers()
        await store.database.check()
        assert said(caplog, "the database works again") == 1


@pytest.mark.parametrize(
    ("code", "is_uncertain"),
    [
        (sqlite3.SQLITE_IOERR_FSYNC, True),
        (sqlite3.SQLITE_FULL, False),
        (sqlite3.SQLITE_IOERR_WRITE, False),
    ],
)
async def test_a_commit_that_was_written_and_not_confirmed_is_uncertain(
    code: int, *, is_uncertain: bool, tmp_path: Path, disk: UnsyncedDisk
) -> None:
    async with Store.open(tmp_path / "bot.db", Timings()) as store:
        disk.fails(code)
        with pytest.raises(DatabaseUnavailable) as raised:
            await submit(store)
        assert isinstance(raised.value, DatabaseUncertain) is is_uncertain
        disk.recovers()


async def test_a_commit_after_which_there_is_no_room_for_a_log_is_uncertain(
    tmp_path: Path, disk: UnsyncedDisk
) -> None:
    disk.statement = "PRAGMA journal_mode = DELETE"
    async with Store.open(tmp_path / "bot.db", Timings()) as store:

        def write_and_remove_log(tx: Any) -> None:  # noqa: ANN401 - the engine's transaction
            tx._db.execute("UPDATE migrations SET name = name")
            (tmp_path / "bot.db-wal").unlink()
            disk.fails(sqlite3.SQLITE_FULL)

        with pytest.raises(DatabaseUncertain):
            await store.database.run(write_and_remove_log)
        disk.recovers()


async def test_a_commit_into_a_file_that_is_gone_is_uncertain(tmp_path: Path) -> None:
    path = tmp_path / "bot.db"
    async with Store.open(path, Timings()) as store:

        def move_and_write(tx: Any) -> None:  # noqa: ANN401 - the engine's transaction
            tx._db.execute("UPDATE migrations SET name = name")
            path.rename(tmp_path / "elsewhere.db")

        with pytest.raises(DatabaseUncertain):
            await store.database.run(move_and_write)
        with pytest.raises(DatabaseUnavailable) as raised:
            await submit(store)
        assert not isinstance(raised.value, DatabaseUncertain)
