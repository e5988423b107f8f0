"""Backups: complete or not there, made while the bot runs, and safe to restore."""

import asyncio
import contextlib
import shutil
import signal
import sqlite3
import stat
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bot.ops.doctor import check_database
from bot.store import DatabaseError
from bot.store.backup import back_up
from sandbox.faults import CannedResponse
from sandbox.scenarios import CallbackPlan
from tests.databases import migrate
from tests.modes import on_sqlite_alone
from tests.ops.test_command_line import bot, files_in
from tests.processes_of_commands import ROOT
from tests.world import World

pytestmark = on_sqlite_alone

_NOW = datetime(2026, 3, 2, tzinfo=UTC)
# Once all is copied.
_KILL = "import os, bot.store.backup as it; it._check = lambda *_: os.kill(os.getpid()"
_BEFORE = b"the backup of yesterday"


def url(path: Path) -> dict[str, str]:
    return {"DATABASE_URL": f"sqlite:///{path}"}


def restore(backup: Path, database: Path) -> None:
    """Do what docs/operations.md says, with a bot that is stopped."""
    shutil.copy(backup, database)
    for ending in ("-wal", "-shm"):
        Path(f"{database}{ending}").unlink(missing_ok=True)


def states(path: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(path)) as db:
        return [state for (state,) in db.execute("SELECT state FROM jobs ORDER BY created_at")]


async def test_what_was_created_after_a_backup_is_not_created_again_once_it_is_restored(
    quiet: World, tmp_path: Path
) -> None:
    quiet.service.callback_plan = CallbackPlan(times=0)
    backup = tmp_path / "backup.db"
    async with quiet.running_bot():
        await quiet.after(quiet.request_video(quiet.ana, {"script": "Ended before."}), minutes=10)
        running = await quiet.request_video(quiet.ana, {"script": "Runs meanwhile."})
        quiet.service.faults.next("create_video", CannedResponse(429, "", {"Retry-After": "60"}))
        card = await quiet.request_video(quiet.ana, {"script": "Waits to be created."})
        done = await bot("backup", str(backup), environ=url(quiet.database), folder=tmp_path)
        assert (done.code, done.err) == (0, "")
        assert states(quiet.database) == ["succeeded", "running", "queued"]
        await quiet.advance(minutes=10)
        assert states(quiet.database) == ["succeeded"] * 3
        forgotten = await quiet.request_video(quiet.ben, {"script": "After the backup."})
    made = len(quiet.requests_for("create_video"))
    ids = {video.script: video.video_id for video in quiet.service.videos.values()}

    restore(backup, quiet.database)
    async with quiet.running_bot():
        await quiet.settle()
        await quiet.advance(hours=2)
        assert len(quiet.requests_for("create_video")) == made, "nobody pays twice"
        assert states(quiet.database) == ["succeeded", "succeeded", "unconfirmed"]
        assert "is ready" in quiet.replies(running)[-1].text
        # Only a person can say what the service has made of it, as after a lost answer.
        assert "Needs an answer" in quiet.now(card).text
        await quiet.ana.click(quiet.question(card), "I found it")
        await quiet.ana.form.submit({"remote_id": ids["Waits to be created."]})
        await quiet.advance(minutes=10)
        assert states(quiet.database) == ["succeeded"] * 3
        assert "Ready" in quiet.now(card).text
        assert "Ready" not in quiet.now(forgotten).text
        assert len(quiet.requests_for("create_video")) == made


async def test_a_backup_of_a_killed_bot_has_what_was_accepted_last(
    world: World, tmp_path: Path
) -> None:
    database, backup = tmp_path / "bot.db", tmp_path / "backup.db"
    await world.request_video(world.ana)
    for ending in ("", "-wal"):
        shutil.copy(f"{world.database}{ending}", f"{database}{ending}")
    back_up(database, backup, _NOW, replace=False)
    assert states(backup) == ["running"]


async def test_a_backup_beside_the_log_of_the_database_before_is_refused(
    world: World, tmp_path: Path
) -> None:
    database, backup = tmp_path / "bot.db", tmp_path / "backup.db"
    log = tmp_path / "bot.db-wal"
    back_up(world.database, backup, _NOW, replace=False)
    await world.request_video(world.ana)
    shutil.copy(backup, database)
    shutil.copy(f"{world.database}-wal", log)
    before = log.read_bytes()
    with pytest.raises(DatabaseError, match="belongs to another file than"):
        await migrate(database)
    with pytest.raises(DatabaseError, match="belongs to another file than"):
        back_up(database, tmp_path / "mixed.db", _NOW, replace=False)
    findings = {each.name: each for each in check_database(database)}
    assert "belongs to another file than" in findings["database"].message
    assert (database.read_bytes(), log.read_bytes()) == (backup.read_bytes(), before)
    restore(backup, database)
    assert await migrate(database) == []


async def test_a_backup_is_one_file_for_its_owner_and_nothing_is_left_beside_it(
    tmp_path: Path,
) -> None:
    database, backup = tmp_path / "bot.db", tmp_path / "backup.db"
    await migrate(database)
    before = database.read_bytes()
    environ = url(database) | {"VIDEO_API_URL": "foo"}
    done = await bot("backup", "backup.db", environ=environ, folder=tmp_path)
    assert done.code == 0
    assert done.out.startswith(f"copied {database} to backup.db (")
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert sorted(files_in(tmp_path)) == [backup, database]
    assert database.read_bytes() == before


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("bot.db", "is the database itself"),
        ("link.db", "is the database itself"),
        ("bot.db-wal", "is the database itself"),
        ("old.db", "is there already: choose another name, or add --force"),
        ("folder", "There is no backup: .*folder"),
        ("nowhere/backup.db", "Its folder must be there"),
    ],
)
async def test_a_name_that_cannot_be_taken_is_refused(
    target: str, says: str, tmp_path: Path
) -> None:
    database, old = tmp_path / "bot.db", tmp_path / "old.db"
    await migrate(database)
    old.write_bytes(_BEFORE)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.db").hardlink_to(database)
    before = sorted(files_in(tmp_path))
    replace = target != "old.db"  # the others are refused whatever is asked for
    with pytest.raises(DatabaseError, match=says) as refused:
        back_up(database, tmp_path / target, _NOW, replace=replace)
    assert str(refused.value).endswith((".", ")."))
    assert sorted(files_in(tmp_path)) == before
    assert old.read_bytes() == _BEFORE
    back_up(database, old, _NOW, replace=True)
    assert states(old) == []


def damaged(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        # Nothing that a backup needs is read there.
        root = "SELECT rootpage FROM sqlite_master WHERE name = 'replicas'"
        [page] = db.execute(root).fetchone()
        [size] = db.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)


def foreign(path: Path) -> None:
    path.unlink()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE theirs (id)")


def gone(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (damaged, "is damaged"),
        (foreign, "another program's database"),
        (gone, "is not there: set DATABASE_URL"),
    ],
)
async def test_a_database_that_is_not_whole_does_not_replace_an_older_backup(
    change: Callable[[Path], None], says: str, tmp_path: Path
) -> None:
    database, backup = tmp_path / "bot.db", tmp_path / "backup.db"
    await migrate(database)
    backup.write_bytes(_BEFORE)
    change(database)
    before = sorted(files_in(tmp_path))
    with pytest.raises(DatabaseError, match=says):
        back_up(database, backup, _NOW, replace=True)
    assert backup.read_bytes() == _BEFORE
    assert sorted(files_in(tmp_path)) == before


@pytest.mark.parametrize(
    ("first", "code", "says"),
    [
        # A write beyond this size fails, as on a disk that is full.
        (
            "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))",
            1,
            "disk is full",
        ),
        (f"{_KILL}, {signal.SIGTERM.value})", 143, ""),
        (f"{_KILL}, {signal.SIGINT.value})", 130, ""),
    ],
)
async def test_a_backup_that_fails_or_is_ended_leaves_nothing_behind(
    first: str, code: int, says: str, tmp_path: Path
) -> None:
    database, backup = tmp_path / "bot.db", tmp_path / "backup.db"
    await migrate(database)
    backup.write_bytes(_BEFORE)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        f"{first}\nimport sys\nfrom bot.__main__ import main\n"
        "sys.exit(main(['backup', 'backup.db', '--force']))",
        env={"PYTHONPATH": str(ROOT), **url(database)},
        cwd=tmp_path,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(30):
        _, printed = await process.communicate()
    assert process.returncode == code, printed
    assert says in printed.decode()
    assert b"Traceback" not in printed
    assert sorted(files_in(tmp_path)) == [backup, database]
    assert backup.read_bytes() == _BEFORE
