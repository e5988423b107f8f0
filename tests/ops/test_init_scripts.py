"""The guided set-up without a terminal, on unusual ones, and the file that it writes."""

import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from dotenv import dotenv_values

from bot.ops.init import cleaned, mistake_in, write
from tests.ops.test_command_line import Result, run
from tests.ops.typist import (
    Outside,
    environment,
    running_outside,
)


@pytest.fixture
async def outside(tmp_path: Path) -> AsyncIterator[Outside]:
    async with running_outside(tmp_path) as found:
        yield found


async def init(outside: Outside, **environ: str) -> Result:
    environ |= {"SLACK_API_URL": outside.slack.api_url}
    given = environment(outside.folder, environ)
    return await run("bot", "init", environ=given, folder=outside.folder)


def answers(outside: Outside, **changed: str) -> dict[str, str]:
    return {
        "VIDEO_API_URL": outside.service.url,
        "VIDEO_API_KEY": outside.service.api_key,
        "SLACK_BOT_TOKEN": outside.slack.bot_token,
        "SLACK_APP_TOKEN": outside.slack.socket_mode.app_token,
    } | changed


async def test_where_nothing_can_be_asked_one_sentence_names_the_missing_variables(
    outside: Outside,
) -> None:
    result = await init(outside, VIDEO_API_KEY=outside.service.api_key)
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        "This is not a terminal: set VIDEO_API_URL, SLACK_BOT_TOKEN, SLACK_APP_TOKEN in the "
        "environment, or run this at one.\n"
    )
    result = await init(
        outside, **answers(outside, PUBLIC_URL="https://a.example", SLACK_APP_TOKEN="")
    )
    assert result.code == 2
    assert "set SLACK_SIGNING_SECRET in" in result.err
    assert list(outside.folder.iterdir()) == []


async def test_the_environment_can_give_every_answer(outside: Outside, postgres_url: str) -> None:
    result = await init(outside, **answers(outside))
    assert (result.code, result.err) == (0, "")
    for each in outside.secrets:
        assert each not in result.out
    assert stat.S_IMODE(outside.env_file.stat().st_mode) == 0o600
    assert dotenv_values(outside.env_file) == answers(outside) | {"VIDEO_API_LISTS": "yes"}

    # What is there is changed only after a yes.
    before = outside.env_file.read_text()
    result = await init(outside, COMMAND_PREFIX="acme-")
    assert result.code == 1
    assert "run this at a terminal" in result.err
    assert outside.env_file.read_text() == before
    # A host may have set where the database is: that is not asked for.
    url = postgres_url.replace("postgres@", "postgres:4f00ta9e@")
    result = await init(outside, DATABASE_URL=url)
    assert result.code == 0, result
    assert ".env has these settings already." in result.out
    assert "4f00ta9e" not in result.out
    assert outside.env_file.read_text() == before


async def test_a_script_is_told_what_was_refused(outside: Outside) -> None:
    for changed, said in (
        (
            {"SLACK_APP_TOKEN": "xapp-1-A0-1-4f00ta9e"},
            "App-Level Token: Socket Mode: SLACK_APP_TOKEN is rejected",
        ),
        ({"SLACK_APP_TOKEN": "4f00ta9e"}, "SLACK_APP_TOKEN: That does not look like an app-level"),
    ):
        result = await init(outside, **answers(outside, **changed))
        assert result.code == 1
        assert result.err.startswith(said)
        assert result.err.count("\n") == 1
        assert "4f00ta9e" not in result.out + result.err
        assert list(outside.folder.iterdir()) == []


async def test_a_file_that_cannot_be_written_is_explained(outside: Outside) -> None:
    # A folder is not a file, for root either.
    outside.env_file.mkdir()
    result = await init(outside)
    assert result.code == 1
    assert "cannot be read (Is a directory)" in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize("value", ["xoxb-1-2-AbC", "plain+key/4=", "U1 U2", "a # b", "it's", "a\\"])
def test_a_value_is_read_as_it_was_written(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write({"NAME": value})
    assert dotenv_values(tmp_path / ".env", interpolate=False) == {"NAME": value}


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
        ("VIDEO_API_KEY", "xoxb-1-4f00ta9e", "That is a bot token, not the API key: copy"),
        ("SLACK_APP_TOKEN", "xoxb-1-4f00ta9e", "That is a bot token, not the App-Level Token"),
        ("SLACK_BOT_TOKEN", "xoxp-1-4f00ta9e", "That is a user token, not the Bot User"),
        ("SLACK_SIGNING_SECRET", "xapp-1-4f00ta9e", "That is an app-level token, not the Sig"),
        ("SLACK_BOT_TOKEN", "4f00ta9e", "That does not look like a bot token"),
    ],
)
def test_a_token_of_the_wrong_kind_is_named_and_goes_nowhere(
    name: str, text: str, says: str
) -> None:
    mistake = mistake_in(name, text)
    assert mistake is not None
    assert says in mistake
    assert "4f00ta9e" not in mistake


def test_the_file_of_a_link_stays_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    real, link = tmp_path / "settings", tmp_path / ".env"
    real.write_text("MAX_PER_DAY=7\nPUBLIC_URL=a\n# end")
    real.chmod(0o600)
    link.symlink_to(real)
    write({"PUBLIC_URL": "b", "COMMAND_PREFIX": "acme-"})
    assert link.is_symlink()
    assert real.read_text() == "MAX_PER_DAY=7\nPUBLIC_URL=b\n# end\nCOMMAND_PREFIX=acme-\n"
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert sorted(tmp_path.iterdir()) == [link, real]
