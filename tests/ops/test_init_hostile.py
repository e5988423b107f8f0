"""The guided set-up where the file that is there, or what answers as Slack, means harm."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox.faults import CannedResponse
from tests.ops.test_init_scripts import init
from tests.ops.typist import CTRL_C, Outside, at_terminal, running_outside


@pytest.fixture
async def outside(tmp_path: Path) -> AsyncIterator[Outside]:
    async with running_outside(tmp_path) as found:
        yield found


async def test_what_is_in_the_file_does_nothing_to_the_terminal(outside: Outside) -> None:
    title = "\x1b]0;owned\x07"
    outside.env_file.write_text(f"PORT=3000{title}\x1b[2J\n")
    where = {"SLACK_API_URL": outside.slack.api_url, "PUBLIC_URL": "https://bot.example.com"}
    with at_terminal(outside.folder, "init", **where) as typist:
        await typist.sees("without TLS.")
        await typist.types("videos.example.com:", CTRL_C)
        assert await typist.ends() == 130
    assert title not in typist.shown
    assert "\x1b[2J" not in typist.shown


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
