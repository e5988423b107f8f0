"""The command line as a person uses it: in a process of its own."""

import asyncio
import contextlib
import re
import shutil
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from bot.command_line import cli
from bot.store.sqlite import FileLock
from sandbox.faults import CannedResponse
from sandbox.http import free_port
from tests.databases import STEPS
from tests.modes import on_sqlite_alone
from tests.processes_of_commands import started
from tests.world import World

_ROOT = Path(__file__).parent.parents[1]


@dataclass(frozen=True)
class Result:
    """The exit code of a command and what it printed."""

    code: int
    out: str
    err: str


async def bot(*arguments: str, environ: dict[str, str], folder: Path) -> Result:
    return await run("bot", *arguments, environ=environ, folder=folder)


async def run(module: str, *arguments: str, environ: dict[str, str], folder: Path) -> Result:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *arguments,
        env={"PYTHONPATH": str(_ROOT), **environ},
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        # Many times what anything takes: other work may keep the machine busy.
        async with asyncio.timeout(120):
            out, err = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.communicate()
        raise
    assert process.returncode is not None
    return Result(process.returncode, out.decode(errors="replace"), err.decode())


def files_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


@pytest.mark.slow
async def test_the_story_shows_each_outcome_and_ends_well(tmp_path: Path) -> None:
    # It takes nothing from the file of a deployment.
    deployed = tmp_path / ".env"
    deployed.write_text("SLACK_BOT_TOKEN=xoxb-real\nMAX_OPEN_PER_USER=none\nVIDEO_USERS=U0REAL\n")
    deployed.chmod(0o600)
    # A terminal with a small character set gets what it can show.
    shown = await run(
        "sandbox", "--story", environ={"PYTHONIOENCODING": "latin-1"}, folder=tmp_path
    )
    assert shown.code == 0, shown.err
    assert "! That link isn't reachable from the internet" in shown.out

    def times(line: str) -> int:
        return len(re.findall(rf"^      {line}$", shown.out, re.MULTILINE))

    assert times(r"@ana, .+ is ready\.") == 1
    assert times(r"@ben, .+ is ready\.") == 2
    assert times(r"@ana, .+ couldn't be created\.") == 1
    assert times(r"@ben, .+ is ready to use\.") == 1
    # Quotation marks and arrows are not in that character set.
    assert re.search(r"by callback: .Welcome to the team, Kim!. is ready", shown.out)
    assert re.search(r"by polling, without a callback: .Our numbers for .* is ready", shown.out)
    assert re.search(r"by callback: .A few words on our competitors\.. failed", shown.out)
    said = r"^      .The script contains a name that this replica may not say\..$"
    assert len(re.findall(said, shown.out, re.MULTILINE)) == 1
    assert "> This is me, and I did not have to say it." in shown.out
    assert shown.err == ""
    assert files_in(tmp_path) == [deployed]


@pytest.mark.parametrize("command", ["serve", "doctor"])
async def test_a_command_names_all_missing_settings_at_once(command: str, tmp_path: Path) -> None:
    environ = {"VIDEO_API_KEY": "k3y with spaces", "SLACK_BOT_TOKN": "xoxb-k3y"}
    result = await bot(command, environ=environ, folder=tmp_path)
    printed = result.out + result.err
    assert result.code == 1
    for name in ("SLACK_BOT_TOKEN", "SLACK_APP_TOKEN", "VIDEO_API_URL", "VIDEO_API_KEY"):
        assert name in printed
    assert "Traceback" not in printed
    assert "k3y" not in printed
    words = " ".join(printed.split())  # the doctor's are wrapped
    assert ".env" in words
    assert str(tmp_path) in words
    assert f"{sys.executable} -m bot init" in words
    assert "Rename it to SLACK_BOT_TOKEN" in words


async def test_serve_says_that_it_works_and_what_is_no_setting(
    quiet: World, tmp_path: Path
) -> None:
    (tmp_path / ".env").write_text("NOTES=s3cr3t\nRETENTION_DAY=s3cr3t\nhttps_proxy=\n")
    (tmp_path / ".env").chmod(0o600)
    environ = quiet.environment(str(free_port())) | {"COMMAND_PREFIX": "acme-"}
    environ |= {"MAX_PER_DAYS": "3", "HOME": "/root", "OTHER": "s3cr3t"}
    async with started("serve", environ=environ, folder=tmp_path) as process:
        printed = await process.until("Connected to")
    assert 'event="Connected to Sandbox as @replica-videos. Type /acme-video in Slack."' in printed
    warned = re.findall('event="this is no setting, and is ignored" (.*)$', printed, re.MULTILINE)
    assert warned == [
        "variable=MAX_PER_DAYS meant=MAX_PER_DAY",
        "variable=NOTES",
        "variable=RETENTION_DAY meant=RETENTION_DAYS",
    ]
    assert "s3cr3t" not in printed


async def test_serve_says_that_it_is_connected_once_slack_opens_a_connection(
    quiet: World, tmp_path: Path
) -> None:
    quiet.socket_mode = True
    environ = quiet.environment(str(free_port()))
    refused = CannedResponse(body={"ok": False, "error": "invalid_auth"})
    quiet.slack.faults.next("apps.connections.open", refused)
    async with started("serve", environ=environ, folder=tmp_path) as process:
        before = await process.until("Socket Mode is connected")
        await process.until("Connected to Sandbox as @replica-videos")
    assert "Slack refuses to open a connection of Socket Mode" in before
    assert "Connected to" not in before


async def test_serve_explains_a_port_that_is_taken(world: World, tmp_path: Path) -> None:
    environ = world.environment(str(world.bot.port))
    environ["DATABASE_URL"] = f"sqlite:///{tmp_path / 'other.db'}"
    result = await bot("serve", environ=environ, folder=tmp_path)
    assert result.code == 1
    assert result.err == (
        f"The bot cannot listen on 127.0.0.1:{world.bot.port}: address already in use. Correct "
        "HOST and PORT, or end the program that has the port.\n"
    )


async def test_serve_explains_a_database_that_cannot_be_opened(
    world: World, tmp_path: Path
) -> None:
    for name, reason in (
        ("x" * 300, "cannot be opened"),
        ("letter.txt", "is not a database"),
        ("gone/bot.db", f"the folder {tmp_path / 'gone'} is missing. Create it, or set"),
    ):
        with contextlib.suppress(OSError):
            (tmp_path / name).write_text("Dear reader, " * 1000)
        environ = world.environment(str(free_port()))
        environ["DATABASE_URL"] = f"sqlite:///{tmp_path / name}"
        result = await bot("serve", environ=environ, folder=tmp_path)
        assert result.code == 1
        assert reason in result.err
        assert "Traceback" not in result.err


ROOT = Path(__file__).parent.parents[1]


async def prepared(first: str, folder: Path, *arguments: str, source: Path = ROOT) -> Result:
    """Run the command line after a statement that makes the Python another one."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        f"import runpy, sys\n{first}\nrunpy.run_module('bot', run_name='__main__', alter_sys=True)",
        *arguments,
        env={"PYTHONPATH": str(source)},
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(30):
        out, err = await process.communicate()
    assert process.returncode is not None
    return Result(process.returncode, out.decode(), err.decode())


async def test_without_a_command_it_says_what_it_can_do_and_that_nothing_was_done(
    tmp_path: Path,
) -> None:
    result = await bot(environ={}, folder=tmp_path)
    assert result.code == 2
    for name in cli.commands:
        assert f"\n  {name} " in result.err
    assert "the file .env in the working" in result.err
    assert "..." not in result.err.partition("Commands:")[2], "a first line is cut off"


async def test_what_is_not_installed_is_named_with_what_installs_it(tmp_path: Path) -> None:
    # A clone without its virtual environment, and one whose environment is not used.
    shutil.copytree(ROOT / "bot", tmp_path / "bot", ignore=shutil.ignore_patterns("__pycache__"))
    for library, command in (("click", "--help"), ("pydantic", "serve")):
        missing = f"sys.modules[{library!r}] = None"
        result = await prepared(missing, tmp_path, command, source=tmp_path)
        assert result.code == 1
        assert result.err.startswith(f"{library} is not installed, or ")
        assert "pip install --require-hashes -r requirements.txt\n" in result.err
        assert "Traceback" not in result.err


# Less than the time for which another process is waited for.
_AT_ONCE_S = 8.0


def url(path: Path) -> dict[str, str]:
    return {"DATABASE_URL": f"sqlite:///{path}"}


async def test_migrate_needs_no_other_setting_than_the_database(tmp_path: Path) -> None:
    path = tmp_path / "bot.db"
    environ = url(path) | {"VIDEO_API_URL": "foo", "DYNO": "run.1", "PORT": "http"}
    check = await bot("migrate", "--check", environ=environ, folder=tmp_path)
    assert (check.code, check.out) == (1, f"pending: {', '.join(STEPS)}\n")
    assert f"{path} does not exist yet" in check.err
    assert "python -m bot migrate" in check.err
    assert files_in(tmp_path) == []
    done = await bot("migrate", environ=environ, folder=tmp_path)
    assert (done.code, done.out) == (0, f"applied: {', '.join(STEPS)}\n")
    assert done.err == f"{path} is new.\n", "nobody migrates the wrong file unawares"
    for arguments in (("migrate",), ("migrate", "--check")):
        again = await bot(*arguments, environ=environ, folder=tmp_path)
        assert (again.code, again.out, again.err) == (0, "the database is up to date\n", "")
    wrong = await bot("migrate", environ={"DATABASE_URL": "bot.db"}, folder=tmp_path)
    assert wrong.code == 1
    assert "DATABASE_URL is no database" in wrong.err
    assert "start" not in wrong.err


@on_sqlite_alone
@pytest.mark.parametrize(
    ("arguments", "number", "code"),
    [
        (("serve",), signal.SIGTERM, 0),
        (("serve",), signal.SIGINT, 0),
        (("migrate",), signal.SIGINT, 130),
        (("migrate",), signal.SIGTERM, -signal.SIGTERM),
    ],
)
async def test_a_command_that_waits_for_another_process_says_so_and_can_be_ended(
    arguments: tuple[str, ...], number: signal.Signals, code: int, quiet: World
) -> None:
    lock = FileLock(quiet.database)
    folder = quiet.database.parent
    try:
        async with started(*arguments, environ=quiet.environment("0"), folder=folder) as command:
            said = await command.until("waiting for another process to close the database")
            assert "at_most_s=10" in said
            async with asyncio.timeout(_AT_ONCE_S):
                command.process.send_signal(number)
                assert await command.ended() == code
        assert "Traceback" not in command.printed
        assert not quiet.database.exists()
    finally:
        lock.release()
