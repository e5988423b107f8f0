"""The commands about jobs: what people asked for and spent, in a process beside the bot."""

import asyncio
import contextlib
import csv
import io
import json
import sqlite3
import sys
from pathlib import Path
from unittest import mock

import pytest

from bot import command_line
from bot.report_formats import write_csv, write_table
from bot.store.database import Transaction
from bot.store.migrate import SQLITE_MIGRATIONS
from bot.store.sql import Query
from sandbox.scenarios import Scenario
from tests.modes import on_both_engines
from tests.test_command_line import Result, bot
from tests.world import World, number_of

ROOT = Path(__file__).parents[1]
HEADER = (
    "job,kind,state,failure,reason,user,channel,asked_at,started_at,ended_at,remote_id,name,"
    "replica_id,create_calls,charged,spoken_seconds,retry_of,erased"
)

# More than a pipe holds.
_MANY = """
    WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 3000)
    INSERT INTO jobs (id, request_key, kind, params, user_id, channel, created_at, state, ended_at)
    SELECT 'j' || n, 'k' || n, 'video', '{}', 'U1', 'C1', n, 'failed', n FROM numbers
"""


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def jobs(world: World, *arguments: str) -> Result:
    """Run a command in this process, which takes a tenth of the time of one of its own."""
    return await asyncio.to_thread(run_here, world.database_setting, *arguments)


def run_here(database: str, *arguments: str) -> Result:
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict("os.environ", {"DATABASE_URL": database}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = command_line.run(["jobs", *arguments])
    return Result(code, out.getvalue(), err.getvalue())


@on_both_engines
async def test_what_people_asked_for_is_listed_shown_and_exported_beside_the_bot(
    quiet_world: World,
) -> None:
    world = quiet_world
    ana, ben = world.ana.user.id, world.ben.user.id
    formula = '=HYPERLINK("https://evil.example")'
    async with world.running_bot():
        named = {"script": "A secret script.", "video_name": formula}
        first = number_of(await world.request_video(world.ana, named))
        await world.advance(minutes=5)
        world.service.next_video(Scenario(end="error", reason="@SUM(1)"))
        failed = number_of(await world.request_video(world.ben, {"script": "Two words."}, "lobby"))
        await world.advance(minutes=5)
        trained = number_of(await world.request_replica(world.ben))
        day = f"{world.clock.now():%Y-%m-%d}"

        environ = {"DATABASE_URL": world.database_setting}
        narrow = ("list", "--since", day, "--until", day)
        listed = await bot("jobs", *narrow, environ=environ, folder=world.database.parent)
        assert (listed.code, listed.err) == (0, "")
        head, *lines = listed.out.splitlines()
        assert head.split()[:3] == ["REQUEST", "ASKED", "(UTC)"]
        assert [line.split()[0] for line in lines] == [trained, failed, first]
        assert "\x1b" not in listed.out
        lobby = world.slack.messages("lobby")[0].channel
        only = await jobs(world, "list", "--user", ben, "--channel", lobby, "--state", "failed")
        assert [line.split()[0] for line in only.out.splitlines()[1:]] == [failed]
        newest = await jobs(world, "list", "--limit", "1", "--kind", "video")
        assert [line.split()[0] for line in newest.out.splitlines()[1:]] == [failed]
        assert "--limit 2" in newest.err

        shown = await jobs(world, "show", first)
        assert (shown.code, shown.err) == (0, "")
        for words in ("user: " + ana, "CREATE CALLS", "MESSAGES", "HISTORY", "asked", "(--script"):
            assert words in shown.out
        assert "secret script" not in shown.out
        assert "A secret script." in (await jobs(world, "show", first, "--script")).out

        exported = await jobs(world, "export", "--format", "csv")
        assert exported.out.splitlines()[0] == HEADER
        rows = {each["job"]: each for each in csv.DictReader(io.StringIO(exported.out))}
        assert list(rows) == [first, failed, trained]
        assert rows[first]["name"] == f"'{formula}"
        assert rows[first]["asked_at"].startswith(day)
        assert rows[first]["asked_at"].endswith("Z")
        assert rows[failed]["reason"] == "'@SUM(1)"
        assert rows[failed]["spoken_seconds"] == "1"
        as_json = await jobs(world, "export", "--format", "json", "--state", "succeeded")
        [only_one] = json.loads(as_json.out)
        assert (only_one["job"], only_one["name"], only_one["charged"]) == (first, formula, 1)
        assert "secret script" not in exported.out + as_json.out

        audit = await jobs(world, "audit", "--user", ben)
        assert [line.split()[2] for line in audit.out.splitlines()[1:]] == ["asked", "asked"]
        of_all = await jobs(world, "audit", "--format", "json")
        assert [each["job"] for each in json.loads(of_all.out)] == [first, failed, trained]
        spending = await jobs(world, "spending", "--month", day[:7])
        assert [line.split() for line in spending.out.splitlines()] == [
            ["PERSON", "REPLICAS", "VIDEOS", "SPOKEN", "MINUTES"],
            [ben, "1", "1", "about", "1"],
            [ana, "0", "1", "about", "1"],
            ["everybody", "1", "2", "about", "1"],
        ]


async def test_an_export_goes_into_a_file_for_its_owner_alone(world: World) -> None:
    await world.request_video(world.ana)
    file = world.database.parent / "jobs.csv"
    exported = await jobs(world, "export", "--format", "csv", "--output", str(file))
    assert (exported.code, exported.out, exported.err) == (0, "", "")
    assert len(file.read_text().splitlines()) == 2
    assert file.stat().st_mode & 0o077 == 0
    again = await jobs(world, "export", "--format", "json", "--output", str(file))
    assert again.code == 1
    assert "--force" in again.err
    assert file.read_text().startswith(HEADER)
    assert list(file.parent.glob(".export-*")) == []


def test_what_a_command_cannot_do_is_said_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "bot.db"
    missing = run_here(f"sqlite:///{path}", "list")
    assert missing.code == 1
    assert "set DATABASE_URL" in missing.err
    path.touch()
    for arguments, code, words in (
        (("list",), 1, "no tables of the bot"),
        (("list", "--state", "sleeping"), 1, "is not one of the states: waiting_for_approval"),
        (("list", "--kind", "videos"), 1, "is not one of the kinds: video, replica"),
        (("list", "--since", "yesterday"), 2, "2026-11-22"),
        (("list", "--user", "@ana"), 2, "is not a member ID"),
        (("spending", "--month", "November"), 2, "2026-11"),
    ):
        result = run_here(f"sqlite:///{path}", *arguments)
        assert result.code == code, result.err
        assert words in result.err
        assert "Traceback" not in result.err
        assert result.out == ""
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE migrations (name TEXT PRIMARY KEY, checksum TEXT)")
        db.executescript((SQLITE_MIGRATIONS / "0001_jobs.sql").read_text())
        db.execute("INSERT INTO migrations VALUES ('0001_jobs', NULL)")
        db.commit()
    before = path.read_bytes()
    old = run_here(f"sqlite:///{path}", "spending")
    assert (old.code, old.out) == (1, "")
    assert "made by an older version" in old.err
    assert "python -m bot migrate" in old.err
    assert path.read_bytes() == before


async def test_a_reader_that_goes_away_ends_an_export_quietly(world: World) -> None:
    await world.request_video(world.ana)
    await world.bot.store.database.run(lambda tx: tx.all(Query(_MANY)))
    process = await asyncio.create_subprocess_shell(
        f"{sys.executable} -m bot jobs export --format csv | head -n 1",
        env={
            "PYTHONPATH": str(ROOT),
            "DATABASE_URL": world.database_setting,
            "PATH": "/usr/bin:/bin",
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert (out.decode(), err.decode()) == (f"{HEADER}\n", "")


async def test_a_report_leads_to_nothing_that_a_signed_link_opens(world: World) -> None:
    link = "https://cdn.example.com/v.mp4?X-Amz-Signature=abc123"
    await world.request_video(world.ana)

    def spoil(tx: Transaction) -> None:
        tx.all(Query("UPDATE jobs SET reason = :reason"), reason=f"No file at {link}")
        tx.all(Query("UPDATE audit SET detail = :detail"), detail=f"Like {link}")

    await world.bot.store.database.run(spoil)
    for arguments in (("export", "--format", "csv"), ("audit",), ("audit", "--format", "json")):
        result = await jobs(world, *arguments)
        assert "cdn.example.com" in result.out
        assert "abc123" not in result.out


async def test_a_list_that_is_as_long_as_it_can_be_names_the_export(world: World) -> None:
    await world.bot.store.database.run(lambda tx: tx.all(Query(_MANY.replace("3000", "10001"))))
    full = await jobs(world, "list", "--limit", "10000")
    assert len(full.out.splitlines()) == 10_001
    assert "export" in full.err


def test_no_cell_of_a_csv_file_is_a_formula() -> None:
    texts = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", " =1", "\u00a0=1", "\n=1"]
    written = io.StringIO()
    write_csv([{"name": text, "count": -1} for text in texts], ("name", "count"), written)
    _, *rows = csv.reader(io.StringIO(written.getvalue()))
    assert rows == [[f"'{text}", "-1"] for text in texts]


def test_a_table_fits_the_terminal_and_changes_nothing_else_on_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    terminal = _Terminal()
    write_table([("NAME", "WORDS"), ("\x1b[31mred", "日本" * 20), ("é", "\u202eabc")], terminal)
    lines = terminal.getvalue().splitlines()
    assert lines == ["NAME      WORDS", " [31mred  日本日本…", "é          abc"]
