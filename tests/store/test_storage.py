"""Failures of the database file: each is reported in a sentence, and nothing is lost or doubled."""

import asyncio
import contextlib
import logging
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from bot.store import DatabaseCorrupt, DatabaseInUse, Store, sqlite
from bot.store.engines import pending_migrations
from bot.store.migrate import MIGRATIONS
from bot.store.sqlite import FileLock, SQLiteDatabase, beside, check_file
from sandbox.driver import Modal, Person
from tests.bot_process import BotProcess
from tests.databases import STEPS, migrate
from tests.modes import on_sqlite_alone
from tests.processes import QUICK, LiveWorld
from tests.store import sqlite_disk
from tests.store.sqlite_disk import Files, What
from tests.store.test_migrations import migrations
from tests.world import REPLICA

pytestmark = on_sqlite_alone

NOT_SAVED: Final = "This couldn't be saved. Please try again in a moment."
NOBODY: Final = 65534


@pytest.fixture
def world_of_files(tmp_path: Path) -> LiveWorld:
    """A world that is not running yet, with the database in a folder of its own."""
    live = LiveWorld(tmp_path)
    live.database = tmp_path / "data" / "bot.db"
    live.database.parent.mkdir()
    # A row that could not even be marked waits for the end of its lease.
    live.timings = replace(QUICK, lease=timedelta(milliseconds=100))
    return live


@pytest.fixture
async def live(world_of_files: LiveWorld) -> AsyncIterator[LiveWorld]:
    async with world_of_files.running() as live:
        yield live


async def status(live: LiveWorld, path: str = "/readyz") -> int:
    url = f"http://127.0.0.1:{live.port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status


async def answers(live: LiveWorld, code: int, path: str = "/readyz") -> None:
    """Ask again and again, as a host does, until the bot says so."""
    async with asyncio.timeout(30):
        while await status(live, path) != code:
            pass


def logged(live: LiveWorld, event: str) -> list[str]:
    """Return the lines of the bot's log about an event."""
    lines = live.log_file.read_text().splitlines()
    return [line for line in lines if f'event="{event}"' in line]


async def filled_form(person: Person, script: str) -> Modal:
    """Return a form with all that it needs in it."""
    await person.command("/video", script)
    form = person.form
    await form._fill_in(form._field("replica_id"), REPLICA)
    return form


async def sent_off(form: Modal) -> bool:
    """Return whether a form was taken: it is closed then."""
    await form.submit()
    return not form.is_open


async def expect_one_reply(live: LiveWorld, script: str) -> None:
    """Wait for the end of a video; all of it happened once."""
    await live.wait_until(lambda: live.card_says("Ready", script) and live.replies(script))
    await live.stop_when_idle()
    assert len(live.replies(script)) == 1
    assert live.created_count(script) == 1


# ── A disk that takes nothing ─────────────────────────────────────────────────────────────────


class Refusing:
    """A system that lets no file of the bot's grow: for SQLite, an error of the disk."""

    def __init__(self, live: LiveWorld) -> None:
        self._live = live

    def fails(self) -> None:
        self._allow(self._live.database.with_name("bot.db-wal").stat().st_size)

    def recovers(self) -> None:
        self._allow(None)

    def _allow(self, size: int | None) -> None:
        pid = self._live.bot.pid
        _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (most if size is None else size, most))


class Full:
    """A small disk with something on it that fills it to the last byte."""

    def __init__(self, folder: Path) -> None:
        self._ballast = folder / "ballast"

    def fails(self) -> None:
        with contextlib.suppress(OSError), self._ballast.open("wb", buffering=0) as file:
            while file.write(bytes(512)):
                pass

    def recovers(self) -> None:
        self._ballast.unlink()


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    mount = shutil.which("mount")
    if mount is None:
        pytest.skip("needs mount (Debian: mount)")
    made = subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], check=False, capture_output=True
    )
    if made.returncode:
        pytest.skip("needs root, to mount a disk")
    try:
        yield
    finally:
        subprocess.run([shutil.which("umount") or "umount", folder], check=True)


@pytest.fixture(params=["refusing", "full"])
def disk(request: pytest.FixtureRequest, world_of_files: LiveWorld) -> Iterator[Refusing | Full]:
    folder = world_of_files.database.parent
    if request.param == "refusing":
        yield Refusing(world_of_files)
    else:
        with small_disk(folder):
            yield Full(folder)


async def test_a_full_disk_is_reported_to_every_user_and_nothing_is_lost(
    world_of_files: LiveWorld, disk: Refusing | Full
) -> None:
    async with world_of_files.running() as live:
        # Something is always due: a video that goes on for long is read all the time.
        live.end_video = lambda _: None
        await live.request_video("The first words.")
        await live.wait_until(lambda: live.card_says("Rendering", "The first words."))
        form = await filled_form(live.ana, "More words.")

        disk.fails()
        for _ in range(10):
            assert not await sent_off(form)
            assert await status(live) == 503
        assert await status(live, "/healthz") == 200
        assert NOT_SAVED in next(iter(form.errors.values()))
        assert form.values["script"] == "More words."
        assert live.card("More words.") is None
        [line] = logged(live, "the database does not work")
        assert "its disk is full" in line

        disk.recovers()
        await answers(live, 200)
        assert len(logged(live, "the database works again")) == 1
        assert len(logged(live, "the database does not work")) == 1
        live.end_video = live.service.finish
        assert await sent_off(form)
        await live.wait_until(lambda: live.replies("The first words."))
        await expect_one_reply(live, "More words.")
        assert live.created_count() == 2
        assert live.posts() == 4


MOMENTS = [
    f"{phase} {step}"
    for step in ("create", "card", "read", "last read", "last edit", "reply")
    for phase in ("before", "after")
]


@pytest.mark.parametrize("moment", MOMENTS)
async def test_an_outcome_during_a_full_disk_is_neither_lost_nor_repeated(
    moment: str, world_of_files: LiveWorld
) -> None:
    async with world_of_files.running() as live:
        # Without these scopes the bot cannot search for a lost message.
        live.slack.scopes -= {scope for scope in live.slack.scopes if "history" in scope}
        disk = Refusing(live)
        failed = asyncio.Event()

        async def fail(this: str, _: str) -> None:
            if this == moment and not failed.is_set():
                disk.fails()
                failed.set()

        live.on_moment = fail
        await live.request_video("Kept words.")
        await failed.wait()
        await answers(live, 503)
        disk.recovers()
        await expect_one_reply(live, "Kept words.")
        assert live.posts() == 2
        assert "Traceback" not in live.log_file.read_text()


def worked(pid: int) -> float:
    """Return how many seconds a process has kept a processor busy."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def test_a_bot_with_a_full_disk_waits_idly_and_stops_when_asked_to(live: LiveWorld) -> None:
    # Something is always due.
    live.end_video = lambda _: None
    await live.request_video("The first words.")
    await live.wait_until(lambda: live.card_says("Rendering", "The first words."))
    disk = Refusing(live)
    made = asyncio.Event()

    async def fail(moment: str, _: str) -> None:
        if moment == "after create":
            disk.fails()
            made.set()

    live.on_moment = fail
    await live.request_video("Kept words.")
    await made.wait()
    await answers(live, 503)
    before, ending = worked(live.bot.pid), asyncio.create_task(live.bot.wait())  # noqa: TID251 - awaited
    await asyncio.wait([ending], timeout=0.8)
    assert not ending.done()
    assert worked(live.bot.pid) - before < 0.3
    os.kill(live.bot.pid, signal.SIGTERM)
    assert await ending == 0
    live.on_moment, live.end_video = None, live.service.finish
    await live.start_bot()
    # What it had made was only in its memory.
    await live.wait_until(lambda: live.card_says("Checking", "Kept words."))
    live.service.finish(list(live.service.videos)[-1])
    await live.wait_until(lambda: live.replies("The first words."))
    await expect_one_reply(live, "Kept words.")
    assert live.posts() == 4


# ── Files that are taken away ─────────────────────────────────────────────────────────────────


async def request_and_wait(live: LiveWorld, script: str) -> None:
    assert await sent_off(await filled_form(live.ana, script))
    await live.wait_until(lambda: live.card_says("Ready", script) and live.replies(script))


@pytest.mark.parametrize("left", [b"rubbish" * 1000, None])
async def test_a_log_that_is_deleted_or_replaced_costs_nothing(
    left: bytes | None, live: LiveWorld
) -> None:
    wal = live.database.with_name("bot.db-wal")
    await request_and_wait(live, "The first words.")
    wal.unlink()
    if left is not None:
        wal.write_bytes(left)
    await request_and_wait(live, "More words.")
    assert logged(live, "the database's log was gone: made again")
    assert wal.stat().st_size

    assert await live.bot.kill() < 0
    await live.start_bot()
    listed = await live.ana.command("/video", "list")
    assert listed.message is not None
    assert "The first words." in listed.message.text
    assert "More words." in listed.message.text
    await live.stop_when_idle()
    assert live.posts() == 4


# ── Another program has it open ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["another bot", "a writer"])
async def test_a_database_that_is_in_use_for_a_moment_is_waited_for(
    how: str, live: LiveWorld
) -> None:
    assert await live.bot.terminate() == 0
    live.timings = replace(live.timings, lock_timeout=timedelta(seconds=10))
    with in_use(how, live.database):
        live.bot = live.spawn_bot()
        listening = asyncio.create_task(live.bot.wait_until_listening())  # noqa: TID251 - awaited
        await asyncio.wait([listening], timeout=0.3)
        assert not listening.done()
    live.port = await listening
    await request_and_wait(live, "Hello, world.")


async def test_a_start_that_waits_for_a_writer_does_not_wait_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, log = asyncio.Event(), logging.getLogger("bot.store.database")
    monkeypatch.setattr(log, "warning", lambda *_, **__: waits.set())
    monkeypatch.setattr(sqlite, "_BUSY_TIMEOUT_S", 0.01)

    async def start() -> None:
        async with SQLiteDatabase.open(tmp_path / "bot.db", timedelta(seconds=10)):
            pass

    await start()
    async with asyncio.TaskGroup() as tasks:
        with in_use("a writer", tmp_path / "bot.db"):
            tasks.create_task(start())
            await waits.wait()


@contextlib.contextmanager
def in_use(how: str, path: Path) -> Iterator[None]:
    if how == "another bot":
        lock = FileLock(path)
        yield
        lock.release()
    else:
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.execute("BEGIN IMMEDIATE")
            yield
            db.execute("COMMIT")


@pytest.mark.parametrize("how", ["another bot", "a writer"])
async def test_a_database_that_stays_in_use_is_reported_and_left_unchanged(
    how: str, live: LiveWorld
) -> None:
    assert await live.bot.terminate() == 0
    before = contents(live.database)
    with in_use(how, live.database):
        live.bot = live.spawn_bot()
        said = await live.bot.startup_error()
        assert "is in use by another process: only one bot may run" in said
        assert "nothing else may write to it. End the other one" in said
        assert await live.bot.wait() == 1
        if how == "another bot":
            assert before.items() <= contents(live.database).items()


async def test_a_link_to_a_database_leads_to_it_and_to_its_lock(tmp_path: Path) -> None:
    folder, link = tmp_path / "folder", tmp_path / "link.db"
    folder.mkdir()
    link.symlink_to(folder / "bot.db")
    timings = replace(QUICK, lock_timeout=timedelta(0))
    async with Store.open(link, timings) as store:
        await store.database.check()
        for path in (link, folder / "bot.db"):
            with pytest.raises(DatabaseInUse):
                async with Store.open(path, timings):
                    pass
    assert list(folder.iterdir()) == [folder / "bot.db"]


# ── Not to be written ─────────────────────────────────────────────────────────────────────────


def become_nobody() -> None:
    """Give up the rights of root, to whom no file is read-only."""
    if os.geteuid() == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may enter, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        (folder / "bot.log").touch()
        (folder / "bot.log").chmod(0o666)
        yield folder
        for path in (*folder.iterdir(), folder):
            path.chmod(0o700)


def forbid_writing(folder: Path) -> None:
    folder.chmod(0o555)


def starts(path: Path, first: Callable[[], None] | None = None) -> BotProcess:
    """Start a bot that needs nothing but its database to fail."""
    environ = {
        "SLACK_BOT_TOKEN": "xoxb-nobody",
        "SLACK_SIGNING_SECRET": "0" * 32,
        "VIDEO_API_URL": "http://localhost:9",
        "VIDEO_API_KEY": "nothing",
        "DATABASE_URL": f"sqlite:///{path}",
        "HOST": "127.0.0.1",
        "PORT": "0",
    }
    return BotProcess(environ, QUICK, path.with_name("bot.log"), first)


async def test_a_database_in_a_folder_without_write_permission_is_reported(
    open_folder: Path,
) -> None:
    path = open_folder / "bot.db"
    await migrate(path)
    before = path.read_bytes()
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)
    forbid_writing(open_folder)
    bot = starts(path, become_nobody)
    assert "cannot be opened. Its folder must be there, and belong" in await bot.startup_error()
    assert await bot.wait() == 1
    assert path.read_bytes() == before


def leave_no_room() -> None:
    """Let no file of this process grow beyond what an empty database needs at once."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, resource.RLIM_INFINITY))


async def test_a_start_on_a_full_disk_is_reported_and_the_next_one_starts_over(
    tmp_path: Path,
) -> None:
    path = tmp_path / "bot.db"
    bot = starts(path, leave_no_room)
    said = await bot.startup_error()
    assert "the tables could not be brought up to date" in said
    assert "its disk is full" in said
    assert await bot.wait() == 1
    assert await migrate(path)


# ── Damage ────────────────────────────────────────────────────────────────────────────────────


def many_jobs(path: Path, jobs: int, user: str = "U0ANA") -> None:
    """Fill a database, and leave what was written last in its log."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_autocheckpoint = 0")
        db.executemany(
            "INSERT INTO jobs (id, request_key, kind, params, user_id, channel, created_at, state,"
            " ended_at, erased) VALUES (?, ?, 'video', ?, ?, 'C1', ?, 'failed', 4102444800000, 1)",
            [(f"j{n}", f"V{n}", '{"script": "' + "x" * 2000 + '"}', user, n) for n in range(jobs)],
        )
        db.commit()
        for ending in ("", "-wal"):
            shutil.copy(f"{path}{ending}", f"{path}.copy{ending}")
    for ending in ("", "-wal"):
        Path(f"{path}.copy{ending}").replace(f"{path}{ending}")


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def rubbish(size: int) -> bytes:
    return bytes(range(1, 251)) * (size // 250 + 1)


def in_one_file(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def all_rubbish(path: Path) -> None:
    in_one_file(path)
    path.write_bytes(rubbish(20_000))


def cut_in_half(path: Path) -> None:
    in_one_file(path)
    os.truncate(path, path.stat().st_size // 2)


def page_overwritten(path: Path) -> None:
    in_one_file(path)
    overwrite(path, 4096 * 100, rubbish(4096))


def log_is_rubbish(path: Path) -> None:
    Path(f"{path}-wal").write_bytes(rubbish(20_000))


def file_without_its_beginning(path: Path) -> None:
    path.write_bytes(b"")


def file_gone_and_log_there(path: Path) -> None:
    path.unlink()


# All but the last are found at the start too, which reads no more than that takes.
DAMAGES: Final[dict[Callable[[Path], None], str]] = {
    all_rubbish: "bot.db is not a database, or its beginning is damaged",
    cut_in_half: "bot.db is damaged",
    log_is_rubbish: "bot.db-wal is damaged, and with it what was accepted last",
    file_without_its_beginning: "bot.db is missing or empty, but there is",
    file_gone_and_log_there: "bot.db is missing or empty, but there is",
    page_overwritten: "bot.db is damaged",
}


def contents(path: Path) -> dict[str, bytes]:
    return {
        each.name: each.read_bytes()
        for each in path.parent.glob("bot.db*")
        if "shm" not in each.name
    }


@pytest.mark.parametrize("damage", [cut_in_half, log_is_rubbish, file_gone_and_log_there])
async def test_a_damaged_database_is_reported_with_a_remedy_and_left_unchanged(
    damage: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "bot.db"
    await migrate(path)
    many_jobs(path, 100)
    damage(path)
    before = contents(path)

    bot = starts(path)
    said = await bot.startup_error()
    assert DAMAGES[damage] in said
    assert "to begin with an empty one" in said
    assert await bot.wait() == 1
    assert contents(path) == before
    assert "Traceback" not in (tmp_path / "bot.log").read_text()


async def test_a_check_of_every_page_finds_all_damage_and_changes_nothing(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for damage, says in DAMAGES.items():
        with subtests.test(damage=damage.__name__):
            path = tmp_path / damage.__name__ / "bot.db"
            path.parent.mkdir()
            await migrate(path)
            many_jobs(path, 100)
            check_file(path, pages="integrity_check")
            damage(path)
            before = contents(path)
            with pytest.raises(DatabaseCorrupt, match=says):
                check_file(path, pages="integrity_check")
            assert contents(path) == before


async def test_a_database_that_becomes_damaged_ends_the_bot_with_a_sentence(
    world_of_files: LiveWorld,
) -> None:
    path = world_of_files.database
    await migrate(path)
    # More than SQLite keeps in memory.
    many_jobs(path, 3000, world_of_files.ana.user.id)
    in_one_file(path)
    world_of_files.timings = replace(world_of_files.timings, drain=timedelta(seconds=3))
    async with world_of_files.running() as live:
        await answers(live, 200)
        overwrite(path, 4096, rubbish(path.stat().st_size - 4096))
        # The first request finds the damage, and those that come right after it are answered too.
        for _ in range(3):
            answer = await live.ana.command("/video", "status j7")
            assert "This couldn't be saved." in answer.shown.text
        said = await live.bot.startup_error()
        assert await live.bot.wait() == 1
        assert "is damaged" in said
        assert "Put a backup in its place" in said
        [line] = logged(live, "the database does not work")
        assert "is damaged" in line
        assert live.posts() == 0

        again = live.spawn_bot()
        assert "is damaged" in await again.startup_error()
        assert await again.wait() == 1


# ── Killed while the tables are brought up to date ────────────────────────────────────────────


def files_of(path: Path) -> Files:
    """Return the files of a database but the shared memory, which the next process makes anew."""
    ends = ("", "-wal", "-journal")
    found = [path.with_name(path.name + end) for end in ends]
    return tuple((file.name, file.read_bytes()) for file in found if file.exists())


async def left_by_kills(path: Path) -> list[Files]:
    """Bring the tables up to date; return the files just before each of SQLite's statements.

    A process that is killed there leaves them like this: what it wrote stays, nothing else does.
    """
    connect, left = sqlite3.connect, list[Files]()

    class Watched(sqlite3.Connection):
        def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - as it is there
            super().__init__(*args, **options)
            self.set_trace_callback(lambda _: left.append(files_of(path)))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sqlite3, "connect", partial(connect, factory=Watched))
        await migrate(path)
    return left


def tables(path: Path) -> list[tuple[str, ...]]:
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        done = db.execute("SELECT name, '' FROM migrations ORDER BY name").fetchall()
        return done + db.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()


def put(files: Files, folder: Path) -> Path:
    """Put the files of a database into a new folder; return the database's path."""
    folder.mkdir()
    for name, content in files:
        (folder / name).write_bytes(content)
    return folder / "bot.db"


async def test_a_first_start_that_is_killed_or_without_power_at_any_write_is_made_anew(
    memory: Path,
) -> None:
    whole = memory / "whole" / "bot.db"
    whole.parent.mkdir()
    with sqlite_disk.recorded(whole.parent) as done:
        await migrate(whole)
    # The file and its log are begun; then come the tables, page by page.
    written = [number for number, each in enumerate(done) if each.what is What.WRITE]
    begun = done[: written[7]]
    names = [
        f"{each.what.name.lower()} {each.name}" for each in begun if each.what is not What.OPEN
    ]
    assert names[-6:] == [
        "delete bot.db-journal",
        *("write bot.db-wal", "sync bot.db-wal"),
        *("write bot.db-wal", "write bot.db-wal", "write bot.db-wal"),
    ]
    states = dict.fromkeys(
        [*sqlite_disk.left_by_kills(begun), *sqlite_disk.left_by_power_cuts(begun)]
    )
    assert len(states) > 200
    for number, files in enumerate(states):
        # Shared memory is there as soon as there is a log; it may be empty.
        for memory_bytes in (None, 0, 32_768) if f"{whole.name}-wal" in dict(files) else (None,):
            path = put(files, memory / f"{number}-{memory_bytes}")
            if memory_bytes is not None:
                beside(path, "-shm").write_bytes(bytes(memory_bytes))
            before = contents(path)
            assert pending_migrations(path) == STEPS, dict(files)
            assert contents(path) == before
            assert await migrate(path) == STEPS
            assert tables(path) == tables(whole)


async def test_jobs_survive_migrations_that_are_killed_at_any_statement(memory: Path) -> None:
    older = memory / "bot.db"
    await migrate(older)
    many_jobs(older, 3)
    in_one_file(older)
    newer = "ALTER TABLE jobs ADD COLUMN newer TEXT; UPDATE jobs SET newer = id"
    shutil.copytree(MIGRATIONS, memory / "newer")
    with migrations(memory / "newer", _9998_newer=newer, _9999_index="CREATE INDEX x ON jobs (id)"):
        names = ["9998_newer", "9999_index"]
        left = list[list[str]]()
        for number, files in enumerate(dict.fromkeys(await left_by_kills(older))):
            path = put(files, memory / str(number))
            left.append(await migrate(path))
            with contextlib.closing(sqlite3.connect(path)) as db:
                assert db.execute("SELECT count(*), count(newer) FROM jobs").fetchone() == (3, 3)
                assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert [each for each, _ in groupby(left)] == [names, names[1:], []]
