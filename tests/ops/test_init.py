"""The guided set-up on a real terminal, against the sandbox's Slack and video service."""

import asyncio
import contextlib
import re
import shlex
import stat
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
from dotenv import dotenv_values

from bot.ops.init import mistake_in, write
from sandbox.driver import Person
from sandbox.faults import CannedResponse, Hang
from sandbox.http import free_port
from tests.databases import installed
from tests.modes import HTTP, SOCKET_MODE
from tests.ops.test_command_line import Result, run
from tests.ops.typist import (
    CTRL_C,
    CTRL_D,
    HIDDEN,
    Outside,
    answer_service,
    at_terminal,
    environment,
    running_outside,
)

#: The whole questions: a remedy has the beginnings of their texts too, and what is typed before a
#: question is thrown away.
API_KEY: Final = f"API key ({HIDDEN}"
BOT_TOKEN: Final = f"Bot User OAuth Token ({HIDDEN}"
SIGNING_SECRET: Final = f"Signing Secret ({HIDDEN}"
OPEN_FORM: Final = f"Press Enter to open the form, paste a token, or type have ({HIDDEN}"


@pytest.fixture
async def outside(tmp_path: Path) -> AsyncIterator[Outside]:
    async with running_outside(tmp_path) as found:
        yield found


@pytest.mark.parametrize("mode", [HTTP, SOCKET_MODE])
async def test_from_nothing_to_a_bot_that_answers(outside: Outside, mode: str) -> None:
    began = time.monotonic()
    slack, port = outside.slack, str(free_port())
    url = f"http://127.0.0.1:{port}"
    where = {"SLACK_API_URL": slack.api_url, "PORT": port}
    for number, name in enumerate(["Anna", "Ben", "Kim"]):
        outside.service.add_replica(f"r-{number}", name)
    if mode == HTTP:
        where["PUBLIC_URL"] = f"{url}/"
    with at_terminal(outside.folder, "init", **where) as typist:
        await answer_service(typist, outside)
        await typist.sees("ok: Your account has 3 replicas: Anna, Ben, Kim.")
        await typist.answers(OPEN_FORM)
        await typist.sees("No browser opened. Copy the link above into one.")
        await typist.sees("what this prints in another terminal:")
        await typist.sees("docs/pictures/icon.png")
        await typist.answers(BOT_TOKEN, slack.bot_token)
        await typist.sees("Slack: replica-videos in Sandbox")
        if mode == HTTP:
            await typist.answers(SIGNING_SECRET, slack.signing_secret)
        else:
            await typist.answers(f"App-Level Token ({HIDDEN}", slack.bot_token)
            await typist.sees("That is a bot token, not the App-Level Token")
            await typist.answers(f"App-Level Token ({HIDDEN}", "xapp-1-A0-4f00ta9e")
            await typist.sees("SLACK_APP_TOKEN is rejected (invalid_auth). Copy it again, whole.")
            await typist.answers("Use it anyway? [y/N]:")
            app_token = slack.socket_mode.app_token
            await typist.answers(f"App-Level Token ({HIDDEN}", app_token)
            await typist.sees("Slack accepts SLACK_APP_TOKEN")
        await typist.sees("-m bot serve")
        await typist.sees("Then make your first video: type /video Hello team in Slack.")
        assert await typist.ends() == 0
    assert "\nVIDEO_API_LISTS=yes\n" in outside.env_file.read_text()
    assert "needs a replica" not in typist.shown
    # On lines of their own, for copying.
    assert re.search(r"^ *\S+ -m bot serve\s*$", typist.shown, re.MULTILINE)
    outside.check_hidden(typist)
    link = re.search(
        r"^https://api\.slack\.com/apps\?new_app=1&manifest_json=\S+", typist.shown, re.MULTILINE
    )
    assert link is not None
    assert (f"request_url%22:%22{url}/slack/events" in link[0]) == (mode == HTTP)
    assert "\x1b[" in typist.shown  # in colors
    assert stat.S_IMODE(outside.env_file.stat().st_mode) == 0o600
    assert [each.name for each in outside.folder.iterdir()] == [".env"]
    if mode == HTTP:
        slack.request_url = f"{url}/slack/events"
    else:
        slack.socket_mode.enabled = True
    async with serving(outside, PORT=port):
        if mode == SOCKET_MODE:
            await slack.socket_mode.reached()
        ana = Person(slack, "ana")
        answer = await ana.command("/video")
        assert answer.ok
        assert ana.modal is not None
    assert time.monotonic() - began < 120


@pytest.mark.parametrize("mode", [HTTP, SOCKET_MODE])
async def test_a_configuration_token_creates_the_app_and_is_kept_nowhere(
    outside: Outside, mode: str
) -> None:
    slack, token = outside.slack, outside.slack.configuration_token
    where = {"SLACK_API_URL": slack.api_url, "COMMAND_PREFIX": "acme-"}
    if mode == HTTP:
        where["PUBLIC_URL"] = "https://bot.example.com"
    with at_terminal(outside.folder, "init", **where) as typist:
        await answer_service(typist, outside)
        await typist.answers(OPEN_FORM, "xoxe.xoxp-1-4f00ta9e")
        await typist.sees("Slack did not create it (invalid_auth)")
        await typist.answers(OPEN_FORM, f" {token} ")
        await typist.sees("Slack has created the app.")
        await typist.sees("https://api.slack.com/apps/A0SANDBOX/install-on-team")
        await typist.answers(BOT_TOKEN, slack.bot_token)
        if mode == SOCKET_MODE:
            await typist.answers(f"App-Level Token ({HIDDEN}", slack.socket_mode.app_token)
        await typist.sees("It needs a replica: /acme-replica add <id>")
        assert await typist.ends() == 0
    outside.check_hidden(typist)
    assert token not in typist.shown + outside.env_file.read_text()
    [manifest] = slack.created_apps
    assert [each["command"] for each in manifest["features"]["slash_commands"]] == [
        "/acme-video",
        "/acme-replica",
    ]
    assert slack.socket_mode.enabled == (mode == SOCKET_MODE)
    assert slack.request_url == (f"{where['PUBLIC_URL']}/slack/events" if mode == HTTP else "")
    written = f"\nSLACK_SIGNING_SECRET={slack.signing_secret}\n" in outside.env_file.read_text()
    assert written == (mode == HTTP), "nobody was asked for it"


async def test_who_has_the_app_creates_no_second_one(outside: Outside) -> None:
    with at_terminal(outside.folder, "init", SLACK_API_URL=outside.slack.api_url) as typist:
        await answer_service(typist, outside)
        await typist.answers(OPEN_FORM, "have")
        await typist.sees("Open the app here: https://api.slack.com/apps")
        await typist.types(BOT_TOKEN, CTRL_C)
        assert await typist.ends() == 130
    assert "In the form:" not in typist.shown
    assert outside.slack.created_apps == []


@contextlib.asynccontextmanager
async def serving(outside: Outside, **environ: str) -> AsyncIterator[None]:
    """Run the bot with the ``.env`` that was written."""
    environ |= {"SLACK_API_URL": outside.slack.api_url, "HOST": "127.0.0.1"}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bot",
        "serve",
        env=environment(outside.folder, environ),
        cwd=outside.folder,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(60):
            async for line in process.stderr:
                if b"listening" in line:
                    break
            else:
                pytest.fail("the bot did not start")
        await installed(outside.folder / "bot.db")
        yield
    finally:
        process.terminate()
        await process.communicate()


async def test_each_wrong_answer_is_explained_and_asked_again(outside: Outside) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    where = {"SLACK_API_URL": outside.slack.api_url, "PUBLIC_URL": "https://bot.example.com"}
    with at_terminal(outside.folder, "init", **where) as typist:
        await typist.answers("videos.example.com:")
        await typist.sees("Nothing arrived.")
        await typist.answers("videos.example.com:", "http://videos.example.com")
        await typist.sees("That is not encrypted: use https://")
        await typist.answers("videos.example.com:", f"{nowhere}/v2/videos")
        await typist.sees("That has /v2 in it")
        await typist.answers("videos.example.com:", f" {nowhere}/ ")
        await typist.answers(API_KEY, outside.slack.bot_token)
        await typist.sees("That is a bot token, not the API key")
        await typist.answers(API_KEY, outside.service.api_key)
        await typist.sees("the connection was refused")
        web_page = CannedResponse(200, "<html>Sign in</html>")
        outside.service.faults.next("read_video", web_page)
        await typist.answers("Use it anyway? [y/N]:")
        await typist.answers("videos.example.com:", outside.service.url)
        await typist.sees("answers in place of the API")
        await typist.answers("Use it anyway? [y/N]:", "n")
        await typist.answers("videos.example.com:", f"{outside.service.url}/")
        await typist.sees("accepts the key")
        await typist.answers(OPEN_FORM, outside.slack.bot_token)
        await typist.sees("That is no app configuration token: xoxe.xoxp-...")
        await typist.answers(OPEN_FORM, "xoxe-1-4f00ta9e")
        await typist.sees("That is the refresh token. Copy the one that starts with xoxe.xoxp-.")
        await typist.types(OPEN_FORM, CTRL_C)
        assert await typist.ends() == 130
    outside.check_hidden(typist)
    assert list(outside.folder.iterdir()) == []
    # A token of Slack's did not go to the service.
    assert len(outside.service.requests) == 3
    assert [each for each in outside.slack.calls if each.method.startswith("apps.")] == []


async def test_each_wrong_token_is_explained_and_asked_for_again(outside: Outside) -> None:
    port, token = str(free_port()), outside.slack.bot_token
    opened, browser = (outside.folder.parent / name for name in ("opened", "browser"))
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {shlex.quote(str(opened))}\n')
    browser.chmod(0o755)
    # What the environment answers is not asked.
    where = {
        "PUBLIC_URL": f"http://127.0.0.1:{port}/",
        "VIDEO_API_URL": outside.service.url,
        "VIDEO_API_KEY": outside.service.api_key,
        "COMMAND_PREFIX": "acme-",
        "ADMIN_USERS": "U012AB3CD U045EF6GH",
        "SLACK_API_URL": outside.slack.api_url,
        "PORT": port,
        "BROWSER": f"{shlex.quote(str(browser))} %s",
    }
    with at_terminal(outside.folder, "init", **where) as typist:
        await typist.sees("https://api.slack.com/apps?new_app=1&manifest_json=")
        await typist.answers(OPEN_FORM)
        await typist.answers(BOT_TOKEN)
        await typist.sees("Nothing arrived.")
        await typist.answers(BOT_TOKEN, "xapp-1-A0-1-4f00ta9e")
        await typist.sees("That is an app-level token, not the Bot User")
        await typist.answers(BOT_TOKEN, "xoxb-wrong-4f00ta9e")
        await typist.sees("rejects SLACK_BOT_TOKEN (invalid_auth). Copy it again, whole")
        await typist.answers("Use it anyway? [y/N]:")
        await typist.answers(BOT_TOKEN, "xoxb-4f00 ta9e")
        await typist.sees("That has a space, a line break")
        await typist.answers(BOT_TOKEN, f'"{token}"')
        await typist.sees("That has quotes around it: remove them.")
        await typist.answers(BOT_TOKEN, f" {token} ")
        await typist.answers(SIGNING_SECRET, outside.slack.signing_secret)
        assert await typist.ends() == 1  # the doctor does not find these admins
    outside.check_hidden(typist)
    assert opened.read_text() in typist.shown
    assert "type /acme-video Hello team" in typist.shown
    assert "/acme-replica add <id>" in typist.shown
    written = outside.env_file.read_text()
    assert f"\nSLACK_BOT_TOKEN={token}\n" in written
    assert f"\nPUBLIC_URL=http://127.0.0.1:{port}/\n" in written
    assert "\nCOMMAND_PREFIX=acme-\nADMIN_USERS='U012AB3CD U045EF6GH'\n" in written


async def test_what_a_check_finds_wrong_can_be_used(outside: Outside) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}/api/"
    where = {"SLACK_API_URL": nowhere, "PUBLIC_URL": "https://bot.example.com"}
    with at_terminal(outside.folder, "init", **where) as typist:
        await typist.answers("videos.example.com:", outside.service.url)
        await typist.answers(API_KEY, "wr0ng-key-of-ana")
        await typist.sees("video service: rejects VIDEO_API_KEY")
        await typist.answers("Use it anyway? [y/N]:", "n")
        await typist.answers(API_KEY, outside.service.api_key)
        await typist.answers(OPEN_FORM)
        await typist.answers(BOT_TOKEN, outside.slack.bot_token)
        await typist.sees("Slack: cannot be reached")
        await typist.answers("Use it anyway? [y/N]:", "y")
        await typist.answers(SIGNING_SECRET, outside.slack.signing_secret)
        assert await typist.ends() == 1  # the doctor finds that Slack is not there
    outside.check_hidden(typist)
    assert outside.env_file.exists()


@pytest.mark.parametrize("moment", ["question", "check"])
async def test_it_can_be_ended_at_any_moment_and_nothing_is_written(
    outside: Outside, moment: str
) -> None:
    with at_terminal(outside.folder, "init", SLACK_API_URL=outside.slack.api_url) as typist:
        if moment == "question":
            await typist.types("videos.example.com:", CTRL_D)
        else:
            await typist.answers("videos.example.com:", outside.service.url)
        if moment == "check":
            outside.service.faults.next("read_video", Hang())
            await typist.answers(API_KEY, outside.service.api_key)
            await typist.types("Checking...", CTRL_C)
        await typist.sees("Stopped. Nothing was written.")
        assert await typist.ends() == 130
    outside.check_hidden(typist)
    assert list(outside.folder.iterdir()) == []


_EXISTING = """\
# Mine.
export VIDEO_API_URL=https://old.example.com/v2 # until May
MAX_PER_DAY=7
SLACK_APP_TOKEN=xapp-1-A0-1-4f00ta9e

SLACK_BOT_TOKEN='xoxb-old-4f00ta9e'
SLACK_BOT_TOKEN=xoxb-YOUR-TOKEN
NOTE="two
lines"
"""


async def test_an_existing_file_is_changed_only_after_a_yes_and_only_where_it_must_be(
    outside: Outside,
) -> None:
    port = str(free_port())
    url = f"http://127.0.0.1:{port}"
    where = {"SLACK_API_URL": outside.slack.api_url, "PORT": port, "PUBLIC_URL": url}
    outside.env_file.write_text(_EXISTING)
    outside.env_file.chmod(0o644)
    for says in ("", "y"):
        with at_terminal(outside.folder, "init", **where) as typist:
            await answer_service(typist, outside)
            await typist.answers(OPEN_FORM)
            await typist.answers(BOT_TOKEN, outside.slack.bot_token)
            await typist.answers(SIGNING_SECRET, outside.slack.signing_secret)
            await typist.answers("Change it? [y/N]", says)
            code = await typist.ends()
        outside.check_hidden(typist)
        assert " ".join(typist.shown.split()).count(
            "SLACK_BOT_TOKEN, SLACK_APP_TOKEN (removed), SLACK_SIGNING_SECRET, PUBLIC_URL, "
            "VIDEO_API_URL, VIDEO_API_KEY, VIDEO_API_LISTS Change it?"
        )
        if says != "y":
            assert code == 130
            assert "Nothing was written." in typist.shown
            assert outside.env_file.read_text() == _EXISTING
            assert "Now only you can." in typist.shown
            assert stat.S_IMODE(outside.env_file.stat().st_mode) == 0o600
    assert code == 0
    assert stat.S_IMODE(outside.env_file.stat().st_mode) == 0o600
    assert outside.env_file.read_text() == (
        f"# Mine.\nVIDEO_API_URL={outside.service.url}\nMAX_PER_DAY=7\n"
        + 2 * f"SLACK_BOT_TOKEN={outside.slack.bot_token}\n"
        + 'NOTE="two\nlines"\n'
        f"SLACK_SIGNING_SECRET={outside.slack.signing_secret}\n"
        f"PUBLIC_URL={url}\nVIDEO_API_KEY='{outside.service.api_key}'\nVIDEO_API_LISTS=yes\n"
    )
    # Once more: nothing is asked.
    outside.env_file.chmod(0o640)
    del where["PUBLIC_URL"]  # as the file says it
    with at_terminal(outside.folder, "init", **where) as typist:
        await typist.sees("Now only you can.")
        await typist.sees(".env has these settings already.")
        assert await typist.ends() == 0
    assert stat.S_IMODE(outside.env_file.stat().st_mode) == 0o600


async def test_an_answer_that_quotes_the_token_at_length_is_shown_short_and_without_it(
    outside: Outside,
) -> None:
    token = outside.slack.bot_token
    name = f"bot \x1b[31m{token} " + "x" * 100_000
    answer = {"ok": True, "user": name, "team": [name], "team_id": "T1"}
    outside.slack.faults.next("auth.test", CannedResponse(200, answer))
    environ = {
        "VIDEO_API_URL": outside.service.url,
        "VIDEO_API_KEY": outside.service.api_key,
        "SLACK_BOT_TOKEN": token,
        "SLACK_APP_TOKEN": outside.slack.socket_mode.app_token,
    }
    result = await init(outside, **environ)
    assert "Slack: bot ***" in " ".join(result.out.split())
    assert token not in result.out + result.err
    assert len(result.out) < 5_000
    assert "\x1b" not in result.out


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


async def test_where_nothing_can_be_asked_one_sentence_names_the_missing_variable(
    outside: Outside,
) -> None:
    result = await init(outside, VIDEO_API_KEY=outside.service.api_key)
    assert result.code == 2
    assert result.err == (
        "Error: This is not a terminal: set VIDEO_API_URL in the environment, or run this at one.\n"
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
    assert result.code == 2
    assert "Nothing was written, as this is not a terminal" in result.err
    assert outside.env_file.read_text() == before
    # A host may have set where the database is: that is not asked for.
    url = postgres_url.replace("postgres@", "postgres:4f00ta9e@")
    result = await init(outside, DATABASE_URL=url)
    assert result.code == 0, result
    assert ".env has these settings already." in result.out
    assert "4f00ta9e" not in result.out
    assert outside.env_file.read_text() == before


async def test_a_script_is_told_what_was_refused(outside: Outside) -> None:
    result = await init(outside, **answers(outside, SLACK_APP_TOKEN="xapp-1-A0-1-4f00ta9e"))
    assert result.code == 2
    assert "Socket Mode: SLACK_APP_TOKEN is rejected" in result.out
    assert "set SLACK_APP_TOKEN in the environment" in result.err
    assert "4f00ta9e" not in result.out + result.err
    result = await init(outside, **answers(outside, SLACK_APP_TOKEN="4f00ta9e"))
    assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
    assert result.err.startswith("SLACK_APP_TOKEN: That does not look like an app-level")
    assert "4f00ta9e" not in result.err
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
