"""The doctor on settings: where they come from, and what is wrong with them."""

import json
from pathlib import Path

import pytest

from sandbox.http import free_port
from tests.report import report, report_of
from tests.test_command_line import bot, files_in
from tests.world import World


async def test_each_setting_is_listed_with_its_source_and_no_secret(quiet_world: World) -> None:
    environ = quiet_world.environment("0")
    in_file = {name: environ.pop(name) for name in ("SLACK_BOT_TOKEN", "VIDEO_API_URL")}
    found = await report_of(environ | {"COMMAND_PREFIX": "acme-"}, in_file=in_file)
    assert found["SLACK_BOT_TOKEN"].message == "from .env"
    assert found["VIDEO_API_URL"].message == f"from .env: {quiet_world.service.url}"
    assert found["COMMAND_PREFIX"].message == "from the environment: acme-"
    assert found["commands"].message == "/acme-video and /acme-replica"
    assert "ADMIN_USERS" in found["other settings"].message
    shown = "\n".join(map(str, found.findings))
    for secret in (quiet_world.slack.signing_secret, quiet_world.service.api_key):
        assert secret not in shown


async def test_a_setting_that_is_set_twice_is_named(quiet_world: World) -> None:
    environ = quiet_world.environment("0") | {"MAX_PER_DAY": "5", "COMMAND_PREFIX": ""}
    in_file = {"MAX_PER_DAY": "7", "COMMAND_PREFIX": "acme-", "PORT": "0"}
    found = await report_of(environ, in_file=in_file)
    assert found["MAX_PER_DAY"].state == "warning"
    assert "what .env says does not count" in found["MAX_PER_DAY"].message
    assert found["MAX_PER_DAY"].message.endswith("from the environment: 5")
    assert found["COMMAND_PREFIX"].state == "off"
    assert found["PORT"].state == "ok"


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("SLACK_BOT_TOKN", "SLACK_BOT_TOKEN"),
        ("SLACK_TOKEN", "SLACK_BOT_TOKEN"),
        ("slack_bot_token", "SLACK_BOT_TOKEN"),
        ("VIDEO_APIKEY", "VIDEO_API_KEY"),
        ("DATABASE_URI", "DATABASE_URL"),
        ("ADMIN_USER", "ADMIN_USERS"),
        ("PUBLICURL", "PUBLIC_URL"),
    ],
)
async def test_a_variable_that_looks_like_a_misspelt_setting_is_named(
    wrong: str, right: str
) -> None:
    found = await report_of({wrong: "xoxb-a-secret"})
    assert found[wrong].state == "warning"
    assert found[wrong].remedy == f"Rename it to {right}, if that is meant. Otherwise leave it."
    assert "xoxb-a-secret" not in str(found.findings)


async def test_the_variables_of_other_programs_are_no_misspelt_settings() -> None:
    others = "HTTP_PROXY ALL_PROXY http_proxy HOME HOSTNAME PATH PWD SHELL USER TERM LANG SHLVL"
    others += (
        " PYTHONPATH VIRTUAL_ENV DYNO SLACK_CLIENT_ID SLACK_APP_ID PUBLIC_IP OLDPWD https_proxy"
    )
    found = await report_of(dict.fromkeys(others.split(), "http://127.0.0.1:1"))
    warned = [each.name for each in found.findings if each.state == "warning"]
    assert set(warned) <= {".env"}, "where settings are missing, and the file too"


async def test_each_wrong_setting_is_one_error_with_its_own_remedy(quiet_world: World) -> None:
    found = await report(quiet_world, SLACK_BOT_TOKEN="", VIDEO_API_URL="foo", MAX_SCRIPT="many")
    assert found["SLACK_BOT_TOKEN"].message == "is missing"
    assert "Bot User OAuth Token" in found["SLACK_BOT_TOKEN"].remedy
    assert found["VIDEO_API_URL"].message == "is not a web URL"
    assert found["MAX_SCRIPT"].message == "is not a whole number from 1 to 20000"
    assert found["MAX_SCRIPT"].remedy == "Correct it, or remove it to have the default."
    assert found["database"].state == "ok"  # its setting is right
    assert found.findings[-1].name == "everything else"
    assert found.findings[-1].state == "off"


# ── The command ───────────────────────────────────────────────────────────────────────────────


async def test_the_command_reads_the_file_in_its_folder_and_says_who_else_can(
    quiet_world: World, tmp_path: Path
) -> None:
    environ = quiet_world.environment(str(free_port())) | {"SLACK_SIGNING_SECRET": "0" * 32}
    environ["CONSENT_STATEMENT"] = "I agree to it: 同意"
    file = tmp_path / ".env"
    file.write_text("".join(f"{name}='{value}'\n" for name, value in environ.items()))
    file.chmod(0o644)
    shown = await bot("doctor", environ={"PYTHONIOENCODING": "latin-1"}, folder=tmp_path)
    assert shown.code == 0, shown.out
    assert "warning  .env                   has secrets in it" in shown.out
    assert "Run: chmod 600 .env" in shown.out
    assert "ok       VIDEO_API_KEY          from .env\n" in shown.out
    assert "from .env: I agree to it: ??\n" in shown.out  # on a terminal without these letters
    assert shown.out.splitlines()[-1].startswith("No errors, ")
    assert shown.err == ""
    assert files_in(tmp_path) == [file]


async def test_the_command_prints_json_of_the_documented_shape(
    quiet_world: World, tmp_path: Path
) -> None:
    quiet_world.service.down = True
    environ = quiet_world.environment("0")
    shown = await bot("doctor", "--json", "--integrity", environ=environ, folder=tmp_path)
    assert shown.code == 1
    found = json.loads(shown.out)
    assert all(list(each) == ["check", "state", "message", "remedy"] for each in found)
    assert all(isinstance(text, str) for each in found for text in each.values())
    assert {each["state"] for each in found} <= {"ok", "off", "warning", "error"}
    [service] = [each for each in found if each["check"] == "video service"]
    assert (service["state"], service["message"]) == (
        "error",
        "does not work: it answered 503",
    )


async def test_a_file_that_cannot_be_read_is_a_finding_too(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("VIDEO_API_KEY='half\n")
    shown = await bot("doctor", "--json", environ={}, folder=tmp_path)
    assert shown.code == 1
    [found] = json.loads(shown.out)
    assert found["check"] == ".env"
    assert "is not NAME=value" in found["message"]
    assert "half" not in shown.out
