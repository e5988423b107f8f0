"""The export of what people asked for, did and used, in a process beside the bot."""

import asyncio
import contextlib
import csv
import io
import json
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from unittest import mock

import pytest

from bot import command_line
from bot.ops.export import write_csv
from bot.store.database import Query, Transaction
from sandbox.scenarios import Scenario
from tests.modes import on_both_engines
from tests.ops.test_command_line import ROOT, Result, bot
from tests.world import World, number_of

# As on a keyboard, in full width, and small.
SIGNS = ["=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20", "\ufe66", "\ufe63", "\u2212"]
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


async def export(world: World, *arguments: str) -> Result:
    """Run a command in this process, which takes a tenth of the time of one of its own."""
    return await asyncio.to_thread(run_here, world.database_setting, *arguments)


def run_here(database: str, *arguments: str) -> Result:
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict("os.environ", {"DATABASE_URL": database}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = command_line.run(["export", *arguments])
    return Result(code, out.getvalue(), err.getvalue())


@on_both_engines
async def test_what_people_asked_for_did_and_used_is_exported_beside_the_bot(quiet: World) -> None:
    ana, ben = quiet.ana.user.id, quiet.ben.user.id
    formula = '=HYPERLINK("https://evil.example")'
    async with quiet.running_bot():
        named = {"script": "A secret script.", "video_name": formula}
        first = number_of(await quiet.request_video(quiet.ana, named))
        await quiet.advance(minutes=5)
        quiet.service.next_video(Scenario(end="error", reason="@SUM(1)"))
        failed = number_of(await quiet.request_video(quiet.ben, {"script": "Two words."}, "lobby"))
        await quiet.advance(minutes=5)
        trained = number_of(await quiet.request_replica(quiet.ben))
        day = f"{quiet.clock.now():%Y-%m-%d}"

        environ = {"DATABASE_URL": quiet.database_setting}
        exported = await bot("export", "requests", environ=environ, folder=quiet.database.parent)
        assert (exported.code, exported.err) == (0, "")
        assert exported.out.splitlines()[0] == HEADER
        rows = {each["job"]: each for each in csv.DictReader(io.StringIO(exported.out))}
        assert list(rows) == [first, failed, trained]
        assert rows[first]["name"] == f"'{formula}"
        assert rows[first]["erased"] == "false"
        assert rows[first]["asked_at"].startswith(day)
        assert rows[first]["asked_at"].endswith("Z")
        assert rows[failed]["reason"] == "'@SUM(1)"
        assert rows[failed]["spoken_seconds"] == "1"
        as_json = await export(quiet, "requests", "--format", "json", "--job", first)
        [only_one] = json.loads(as_json.out)
        assert (only_one["job"], only_one["name"], only_one["charged"]) == (first, formula, 1)
        assert "secret script" not in exported.out + as_json.out

        audit = csv.DictReader(io.StringIO((await export(quiet, "audit")).out))
        assert [(each["user"], each["action"], each["job"]) for each in audit] == [
            (ana, "asked", first),
            (ben, "asked", failed),
            (ben, "asked", trained),
        ]
        of_one = await export(quiet, "audit", "--format", "json", "--job", failed)
        assert [each["job"] for each in json.loads(of_one.out)] == [failed]
        usage = csv.reader(io.StringIO((await export(quiet, "usage")).out))
        assert [*usage] == [
            ["month", "user", "kind", "created", "spoken_seconds"],
            *sorted(
                [
                    [day[:7], ana, "video", "1", "1"],
                    [day[:7], ben, "replica", "1", "0"],
                    [day[:7], ben, "video", "1", "1"],
                ]
            ),
        ]


async def test_usage_has_what_deleted_requests_cost_and_ends_where_its_month_does(
    world: World,
) -> None:
    await world.request_video(world.ana)
    world.clock.set(datetime(2026, 3, 31, 23, 59, 59, tzinfo=UTC))
    await world.after(world.request_video(world.ana, {"script": "Nearly April."}), minutes=5)
    await world.after(world.request_video(world.ana, {"script": "In April."}), minutes=5)
    world.clock.set(datetime(2028, 6, 1, tzinfo=UTC))
    await world.advance(minutes=2)
    assert world.query("SELECT id FROM jobs") == []
    found = json.loads((await export(world, "usage", "--format", "json")).out)
    assert [(each["month"], each["created"], each["spoken_seconds"]) for each in found] == [
        ("2026-03", 2, 2),
        ("2026-04", 1, 1),
    ]


async def test_a_request_that_is_damaged_is_left_out_and_said(world: World) -> None:
    first = number_of(await world.request_video(world.ana))
    await world.request_video(world.ben, {"script": "Another script."})
    damage = Query("UPDATE jobs SET params = '[' || params WHERE user_id = :user")
    await world.bot.store.database.run(lambda tx: tx.all(damage, user=world.ben.user.id))
    exported = await export(world, "requests", "--format", "json")
    assert [each["job"] for each in json.loads(exported.out)] == [first]
    assert "1 row is damaged" in exported.err


def test_what_cannot_be_exported_is_said_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "bot.db"
    missing = run_here(f"sqlite:///{path}", "requests")
    assert (missing.code, missing.out) == (1, "")
    assert "set DATABASE_URL" in missing.err
    path.touch()
    empty = run_here(f"sqlite:///{path}", "usage")
    assert (empty.code, empty.out) == (1, "")
    assert "does not have the tables" in empty.err
    assert path.stat().st_size == 0


async def test_a_request_that_is_not_there_is_said_and_usage_is_of_no_single_one(
    world: World,
) -> None:
    unknown = await export(world, "requests", "--job", "nothing")
    assert (unknown.code, unknown.out) == (1, "")
    assert "There is no request nothing" in unknown.err
    usage = await export(world, "usage", "--job", "nothing")
    assert (usage.code, usage.out) == (1, "")
    assert "leave --job out" in usage.err


async def test_a_reader_that_goes_away_ends_an_export_quietly(world: World) -> None:
    await world.request_video(world.ana)
    await world.bot.store.database.run(lambda tx: tx.all(Query(_MANY)))
    process = await asyncio.create_subprocess_shell(
        f"{sys.executable} -m bot export requests | head -n 1",
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


async def test_an_export_has_the_host_of_a_link_and_no_more(world: World) -> None:
    link = "https://cdn.example.com/v.mp4?X-Amz-Signature=abc123"
    card = await world.after(world.request_video(world.ana), seconds=30)
    await world.ana.click(world.now(card), "Stop waiting")

    def spoil(tx: Transaction) -> None:
        tx.all(Query("UPDATE jobs SET reason = :reason"), reason=f"No file at {link}")
        tx.all(Query("UPDATE audit SET detail = :detail"), detail=f"Like {link}")

    await world.bot.store.database.run(spoil)
    for arguments in (("requests",), ("audit",), ("audit", "--format", "json")):
        result = await export(world, *arguments)
        assert "cdn.example.com" in result.out
        assert "abc123" not in result.out
        assert "v.mp4" not in result.out


def in_csv(*texts: str) -> str:
    """Return a CSV file with these texts, one to a line."""
    written = io.StringIO()
    write_csv([{"name": text, "count": -1} for text in texts], written, ("name", "count"))
    return written.getvalue()


def test_no_cell_of_a_csv_file_is_a_formula() -> None:
    spaces = " \u00a0\u3000\ufeff\u200b\n\t"
    for sign in SIGNS:
        for before in ("", *spaces, spaces):
            _, [cell, count] = csv.reader(io.StringIO(in_csv(f"{before}{sign}1")))
            assert (cell, count) == (f"{before}'{sign}1", "-1")


@pytest.mark.parametrize("separator", [";", "\t", "|", "\n"])
def test_no_cell_of_a_csv_file_is_a_formula_where_another_character_separates_cells(
    separator: str,
) -> None:
    for sign in SIGNS:
        for before in ("", " ", '"', ' "', f'{separator}"'):
            for text in (f"Anna{separator}{before}{sign}1", f'A, "B"{separator}{before}{sign}1'):
                file = in_csv(text, "Ben")
                assert not re.findall(
                    rf'{re.escape(separator)}[\s"]*[{re.escape("".join(SIGNS))}]', file
                )
                assert text in next(
                    cell.replace("'", "") for cell, _ in [*csv.reader(io.StringIO(file))][1:]
                )


def test_a_cell_of_a_csv_file_that_is_no_formula_stays_as_it_is() -> None:
    texts = ["A-B", "a=b", "1 + 1", "me@example.com; you", "Anna; Ben", "It's", "10 | 20"]
    _, *rows = csv.reader(io.StringIO(in_csv(*texts)))
    assert rows == [[text, "-1"] for text in texts]


def test_no_cell_of_a_csv_file_has_a_character_that_controls_a_terminal() -> None:
    controls = "".join(map(chr, [*range(9), *range(0xB, 0x20), *range(0x7F, 0xA0)]))
    text = f"Kim\x1b]0;pwned\x07 said:\n\ttwo lines{controls}"
    written = io.StringIO()
    write_csv([{"name": text}], written, ("name",))
    _, [cell] = csv.reader(io.StringIO(written.getvalue()))
    assert cell == f"Kim ]0;pwned  said:\n\ttwo lines{' ' * len(controls)}"
