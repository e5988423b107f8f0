"""The guided set-up without a terminal, on unusual ones, and the file that it writes."""

import asyncio
import shlex
import stat
import subprocess
import unicodedata
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from dotenv import dotenv_values

from bot.setup.answers import SetupError, mistake_in
from bot.setup.env_file_editor import EnvFile, quoted
from bot.setup.flags import given
from bot.setup.terminal import cleaned
from tests.test_command_line import Result, run
from tests.typist import (
    CTRL_C,
    Outside,
    answer_service,
    at_terminal,
    environment,
    running_outside,
)


@pytest.fixture
async def outside(tmp_path: Path) -> AsyncIterator[Outside]:
    async with running_outside(tmp_path) as found:
        yield found


async def init(outside: Outside, *flags: str, **environ: str) -> Result:
    environ |= {"SLACK_API_URL": outside.slack.api_url}
    given = environment(outside.folder, environ)
    return await run("bot", "init", *flags, environ=given, folder=outside.folder)


def secret(outside: Outside, name: str, text: str) -> str:
    path = outside.folder.parent / name
    path.write_text(f"{text}\n")
    return str(path)


@pytest.mark.parametrize("flags", [(), ("--no-input",)])
async def test_where_nothing_can_be_asked_it_lists_the_missing_flags(
    outside: Outside, flags: tuple[str, ...]
) -> None:
    result = await init(outside, *flags, VIDEO_API_KEY=outside.service.api_key)
    assert result.code == 1
    named = [line.strip() for line in result.err.splitlines() if line.startswith("  --")]
    assert named == ["--video-api-url", "--slack-bot-token-file", "--slack-app-token-file"]
    assert list(outside.folder.iterdir()) == []


async def test_a_script_gives_flags_files_and_variables(
    outside: Outside, postgres_url: str
) -> None:
    flags = [
        "--no-input",
        *("--video-api-url", outside.service.url),
        *("--slack-bot-token-file", secret(outside, "token", outside.slack.bot_token)),
        *("--slack-app-token-file", secret(outside, "app", outside.slack.socket_mode.app_token)),
    ]
    key = {"VIDEO_API_KEY": outside.service.api_key}
    made = await asyncio.create_subprocess_exec("git", "init", "--quiet", outside.folder)
    assert await made.wait() == 0
    result = await init(outside, *flags, **key)
    assert (result.code, result.err) == (0, "")
    assert "git does not ignore .env" in result.out
    for each in outside.secrets:
        assert each not in result.out
    assert dotenv_values(outside.env_file) == {
        "SLACK_BOT_TOKEN": outside.slack.bot_token,
        "SLACK_APP_TOKEN": outside.slack.socket_mode.app_token,
        "VIDEO_API_URL": outside.service.url,
        "VIDEO_API_KEY": outside.service.api_key,
    }

    # What is there is replaced only with a flag that says so.
    before = outside.env_file.read_text()
    result = await init(outside, *flags, "--command-prefix", "acme-", **key)
    assert result.code == 1
    assert "--overwrite" in result.err
    assert outside.env_file.read_text() == before
    (outside.folder / ".gitignore").write_text(".env\n")
    # A host may have set where the database is: that is not asked for.
    url = postgres_url.replace("postgres@", "postgres:4f00ta9e@")
    again = ("--no-input", "--command-prefix", "acme-", "--overwrite")
    result = await init(outside, *again, DATABASE_URL=url)
    assert result.code == 0, result
    assert "4f00ta9e" not in result.out
    assert "git" not in result.out
    assert outside.env_file.read_text() == f"{before}COMMAND_PREFIX=acme-\n"


@pytest.mark.parametrize(
    ("flags", "without", "says"),
    [
        # Somebody took the flag for the token itself.
        ({"slack_bot_token_file": "xoxb-4f00ta9e"}, None, "no text file of that name"),
        ({"slack_bot_token_file": "/dev/null"}, None, "nothing is in it"),
        ({}, "chat:write", "chat:write cannot be left out"),
    ],
)
def test_a_wrong_flag_is_explained_without_a_secret(
    flags: dict[str, str], without: str | None, says: str
) -> None:
    with pytest.raises(SetupError) as refusal:
        given(flags, None, without, is_silent=True)
    assert says in str(refusal.value)
    assert "4f00ta9e" not in str(refusal.value)


async def test_a_script_is_told_what_was_refused(outside: Outside) -> None:
    environ = {
        "VIDEO_API_URL": outside.service.url,
        "VIDEO_API_KEY": outside.service.api_key,
        "SLACK_BOT_TOKEN": outside.slack.bot_token,
        "SLACK_APP_TOKEN": "xapp-1-A0-1-4f00ta9e",
    }
    result = await init(outside, "--no-input", **environ)
    assert result.code == 1
    assert result.err.startswith("App-Level Token: Slack refuses it (invalid_auth)")
    assert result.err.count("\n") == 1
    assert "4f00ta9e" not in result.out + result.err
    assert list(outside.folder.iterdir()) == []


async def test_it_fits_a_narrow_terminal_without_colours_or_unicode(outside: Outside) -> None:
    where = {"SLACK_API_URL": outside.slack.api_url, "PYTHONIOENCODING": "latin-1"}
    with at_terminal(outside.folder, "init", columns="40", TERM="dumb", **where) as typist:
        await typist.answers("Use Socket Mode?", "\u00fc")  # one byte here
        await typist.answers("Use Socket Mode?")
        await answer_service(typist, outside)
        await typist.types("Prefix of the commands", CTRL_C)
        await typist.sees("Stopped.")
    printed = [line for line in typist.shown.splitlines() if "[" not in line and ":" not in line]
    assert max(map(len, printed)) <= 40
    assert "\x1b" not in typist.shown
    assert "ok: The video service answers" in typist.shown
    assert all(unicodedata.category(each) != "Cc" or each in "\r\n" for each in typist.shown[:-4])


async def test_colors_can_be_switched_off(outside: Outside) -> None:
    where = {"SLACK_API_URL": outside.slack.api_url, "NO_COLOR": "1"}
    with at_terminal(outside.folder, "init", **where) as typist:
        await typist.types("Use Socket Mode?", CTRL_C)
        await typist.ends()
    assert "\x1b" not in typist.shown


async def test_a_file_that_cannot_be_written_is_explained(outside: Outside) -> None:
    # A folder is not a file, for root either.
    outside.env_file.mkdir()
    result = await init(outside, "--no-input")
    assert result.code == 1
    assert "cannot be read (Is a directory)" in result.err
    assert "Traceback" not in result.err


_VALUES = [
    "xoxb-1-2-AbC",
    "https://videos.example.com:8443/a_b/~c",
    "plain+key/4=",
    "a&b;c|d",
    "#first",
    "a#b",
    "a b # c",
    "$HOME",
    "a$b'c",
    'say "hi"',
    "it's",
    '"',
    "a\\b",
    "a\\'b",
    "ends\\",
    "%41!*?[x]",
]


@pytest.mark.parametrize("value", _VALUES)
def test_each_reader_of_the_file_finds_the_same_value(value: str, tmp_path: Path) -> None:
    written = quoted(value)
    path = tmp_path / ".env"
    path.write_text(f"A=1\nNAME={written}\nB=2\n")
    assert dotenv_values(path, interpolate=False) == {"A": "1", "NAME": value, "B": "2"}
    assert _systemd(written) == value
    if not ("$" in value and "'" in value):  # see quoted()
        assert shlex.split(written) == [value]
        shell = f'. {shlex.quote(str(path))} && printf %s "$NAME"'
        printed = subprocess.run(["sh", "-c", shell], capture_output=True, check=True)  # noqa: S607
        assert printed.stdout.decode() == value
    if written == value:  # docker --env-file knows no quotes
        assert value.isascii()
        assert not set(value) & set(" \"'\\$#&;|*?[]!")


def _systemd(text: str) -> str:
    """Read a value as systemd does.

    https://www.freedesktop.org/software/systemd/man/latest/systemd.exec.html#EnvironmentFile=
    """
    if text[:1] == "'":
        assert "'" not in text[1:-1]
        return text[1:-1]
    if text[:1] != '"':
        assert "\\" not in text
        return text
    found, inner = "", iter(text[1:-1])
    for each in inner:
        if each == "\\" and (escaped := next(inner)) in '"\\`$':
            found += escaped
        else:
            assert each not in '\\"'
            found += each
    return found


@pytest.mark.parametrize(
    ("pasted", "value"),
    [
        ("  xoxb-1 \r", "xoxb-1"),
        ("\x1b[200~xoxb-1\x1b[201~", "xoxb-1"),
        ("\u201cxoxb-1\u201d", "xoxb-1"),
        ("\ufeff'xoxb-1'\u200b", "xoxb-1"),
        ("`` xoxb-1 ``", "xoxb-1"),
        ('"', '"'),
    ],
)
def test_what_surrounds_a_pasted_value_is_dropped(pasted: str, value: str) -> None:
    assert cleaned(pasted) == value


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("VIDEO_API_KEY", "xoxb-1-4f00ta9e", "That is a bot token, not a key"),
        ("SLACK_APP_TOKEN", "xoxb-1-4f00ta9e", "That is a bot token, not an app-level token"),
        ("SLACK_BOT_TOKEN", "xoxp-1-4f00ta9e", "That is a user token, not a bot token"),
        ("SLACK_SIGNING_SECRET", "xapp-1-4f00ta9e", "That is an app-level token, not a signing"),
        ("SLACK_BOT_TOKEN", "4f00ta9e", "That does not look like a bot token"),
    ],
)
def test_a_token_of_the_wrong_kind_is_named_and_goes_nowhere(
    name: str, text: str, says: str
) -> None:
    mistake = mistake_in(name, text, {})
    assert mistake is not None
    assert says in mistake
    assert "4f00ta9e" not in mistake


def test_the_file_of_a_link_stays_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    real, link = tmp_path / "settings", tmp_path / ".env"
    real.write_bytes(b"MAX_PER_DAY=7\r\nPUBLIC_URL=a\r\n# end")
    link.symlink_to(real)
    EnvFile.read().write({"PUBLIC_URL": "b", "ADMIN_USERS": None, "COMMAND_PREFIX": "acme-"})
    assert link.is_symlink()
    assert real.read_bytes() == (b"MAX_PER_DAY=7\r\nPUBLIC_URL=b\r\n# end\nCOMMAND_PREFIX=acme-\n")
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert sorted(tmp_path.iterdir()) == [link, real]
