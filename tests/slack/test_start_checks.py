"""What the log says at the start if Slack or the service cannot be used, and when they can."""

import re

import pytest

from tests.modes import on_sqlite_alone
from tests.processes_of_commands import started
from tests.world import World


def lines(caplog: pytest.LogCaptureFixture, *words: str) -> list[str]:
    """Return the warnings and errors with one of these words."""
    ours = [each for each in caplog.records if each.name.startswith("bot.")]
    events = [each.message for each in ours if each.levelname != "DEBUG"]
    return [each for each in events if any(word in each for word in words)]


async def test_a_refused_token_is_one_line_with_what_to_do_and_one_when_it_is_accepted(
    quiet_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="bot")
    world = quiet_world
    world.slack.auth_error = "invalid_auth"
    async with world.running_bot():
        await world.advance(minutes=5)
        [line] = lines(caplog, "SLACK_BOT_TOKEN", "workspace")
        assert line.startswith("Slack refuses SLACK_BOT_TOKEN: install the app again, copy its ")
        assert len(world.calls("auth.test")) >= 5, "the bot goes on trying"

        world.slack.auth_error = None
        await world.advance(minutes=5)
        assert lines(caplog, "SLACK_BOT_TOKEN")[1:] == ["Slack accepts SLACK_BOT_TOKEN again"]
        tries = len(world.calls("auth.test"))
        await world.advance(minutes=30)
        assert len(world.calls("auth.test")) == tries, "now it is known"


async def test_a_refused_key_is_found_at_the_start_and_forms_say_so_before_they_are_sent(
    quiet_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="bot")
    world = quiet_world
    key, world.service.api_key = world.service.api_key, "another"
    async with world.running_bot(VIDEO_API_KEY=key):
        await world.settle()
        [line] = [each for each in caplog.records if "refuses new work" in each.message]
        assert vars(line)["code"] == "401"
        assert vars(line)["remedy"] == "is VIDEO_API_KEY right?"

        world.service.api_key = key
        await world.advance(minutes=2)
        assert lines(caplog, "new work") == [
            "the video service refuses new work",
            "the video service accepts new work again",
        ]
        await world.request_video(world.ana)
    assert world.created_count() == 1


@on_sqlite_alone
async def test_what_only_other_commands_and_settings_need_is_not_imported(
    quiet_world: World,
) -> None:
    world = quiet_world
    environ = world.environment("0") | {"PYTHONPROFILEIMPORTTIME": "1"}
    async with started("serve", environ=environ, folder=world.database.parent) as command:
        said = await command.until("listening")
    imported = set(re.findall(r"\| +([\w.]+)$", said, re.MULTILINE))
    assert "bot.app" in imported
    assert not imported & {
        *(
            "bot.ops.doctor",
            "bot.ops.init",
            "bot.ops.export",
            "bot.ops.manifest",
            "bot.slack.socket_mode",
        ),
        *(
            "bot.store.postgres.engine",
            "bot.store.move",
            "bot.store.backup",
        ),
        *("dotenv", "psycopg", "slack_bolt.adapter.socket_mode", "yaml"),
    }
