"""The doctor on settings: where they come from, and what is wrong with them."""

import json
from pathlib import Path

import pytest

from sandbox.http import free_port
from tests.ops.report import report, report_of
from tests.ops.test_command_line import bot, files_in
from tests.world import World


async def test_a_setting_that_is_set_twice_is_named(quiet_world: World) -> None:
    environ = quiet_world.environment("0") | {"MAX_PER_DAY": "5", "COMMAND_PREFIX": ""}
    in_file = {"COMMAND_PREFIX": "acme-", "PORT": "0", "RETENTION_DAYS": ""}
    assert (await report_of(environ, in_file=in_file))["settings"].state == "ok"
    found = await report_of(environ, in_file=in_file | {"MAX_PER_DAY": "7"})
    assert found["MAX_PER_DAY"].state == "warning"
    assert "the environment's value counts" in found["MAX_PER_DAY"].message
    assert found.all("settings") == found.all("COMMAND_PREFIX") == []


async def test_a_variable_that_looks_like_a_misspelt_setting_is_named(
    subtests: pytest.Subtests,
) -> None:
    for wrong, right in [
        ("SLACK_BOT_TOKN", "SLACK_BOT_TOKEN"),
        ("SLACK_TOKEN", "SLACK_BOT_TOKEN"),
        ("slack_bot_token", "SLACK_BOT_TOKEN"),
        ("VIDEO_APIKEY", "VIDEO_API_KEY"),
        ("DATABASE_URI", "DATABASE_URL"),
        ("ADMIN_USER", "ADMIN_USERS"),
        ("PUBLICURL", "PUBLIC_URL"),
    ]:
        with subtests.test(wrong=wrong, right=right):
            found = await report_of({wrong: "xoxb-a-secret"})
            assert found[wrong].state == "warning"
            assert (
                found[wrong].remedy
                == f"Rename it to {right}, if that is meant. Otherwise leave it."
            )
            assert "xoxb-a-secret" not in str(found.findings)


async def test_the_variables_of_other_programs_are_no_misspelt_settings() -> None:
    others = "HTTP_PROXY ALL_PROXY http_proxy HOME HOSTNAME PATH PWD SHELL USER TERM LANG SHLVL"
    others += (
        " PYTHONPATH VIRTUAL_ENV DYNO SLACK_CLIENT_ID SLACK_APP_ID PUBLIC_IP OLDPWD https_proxy"
    )
    found = await report_of(dict.fromkeys(others.split(), "http://127.0.0.1:1"))
    warned = [each.name for each in found.findings if each.state == "warning"]
    assert set(warned) <= {".env", "everything else"}, "where settings are missing"


async def test_each_wrong_setting_is_one_error_with_its_own_remedy(quiet_world: World) -> None:
    found = await report(quiet_world, SLACK_BOT_TOKEN="", VIDEO_API_URL="foo", MAX_SCRIPT="many")
    assert found["SLACK_BOT_TOKEN"].message == "is missing"
    assert "Bot User OAuth Token" in found["SLACK_BOT_TOKEN"].remedy
    assert found["VIDEO_API_URL"].message == "is not a web URL"
    assert found["MAX_SCRIPT"].message == (
        "must be between 1 and 20,000 (in digits alone), not “many”"
    )
    assert found["MAX_SCRIPT"].remedy == "Correct it, or remove it to have the default."
    assert found.findings[-1].name == "everything else"
    assert found.findings[-1].state == "warning"


# ── The public address ────────────────────────────────────────────────────────────────────────


async def test_a_public_address_whose_host_is_unknown_is_named(quiet_world: World) -> None:
    url = "https://bot.invalid"
    finding = (await report(quiet_world, PUBLIC_URL=url))["public address"]
    assert finding.state == "warning"
    assert "bot.invalid cannot be resolved (DNS)" in finding.message
    assert "Correct the host" in finding.remedy
    # Where calls go out through a proxy alone, this machine need not know the names of others.
    nowhere = f"http://127.0.0.1:{free_port()}"
    found = await report(quiet_world, PUBLIC_URL=url, HTTPS_PROXY=nowhere)
    assert found.all("public address") == []


async def test_without_a_public_url_it_says_how_the_bot_gets_by(quiet_world: World) -> None:
    finding = (await report(quiet_world, PUBLIC_URL="", SLACK_APP_TOKEN="xapp-1-a"))[
        "public address"
    ]
    assert (finding.state, "the bot polls the service" in finding.message) == ("ok", True)
    finding = (await report(quiet_world, PUBLIC_URL=""))["public address"]
    assert finding.state == "warning"
    assert "Set SLACK_APP_TOKEN to use Socket Mode" in finding.remedy


# ── The command ───────────────────────────────────────────────────────────────────────────────


async def test_the_command_reads_the_file_in_its_folder_and_says_who_else_can(
    quiet_world: World, tmp_path: Path
) -> None:
    environ = quiet_world.environment(str(free_port())) | {"SLACK_SIGNING_SECRET": "0" * 32}
    environ["COMMAND_PREFX"] = "同意"
    file = tmp_path / ".env"
    file.write_text("".join(f"{name}='{value}'\n" for name, value in environ.items()))
    file.chmod(0o644)
    shown = await bot("doctor", environ={"PYTHONIOENCODING": "latin-1"}, folder=tmp_path)
    assert shown.code == 0, shown.out
    assert "warning  .env                   has secrets in it" in shown.out
    assert "Run: chmod 600 .env" in shown.out
    assert "Rename it to COMMAND_PREFIX" in shown.out
    assert shown.out.splitlines()[-1].startswith("No errors, ")
    assert shown.err == ""
    assert files_in(tmp_path) == [file]


async def test_the_report_fits_a_screen_with_what_is_wrong_in_full_and_errors_last(
    quiet_world: World, tmp_path: Path
) -> None:
    environ = quiet_world.environment(str(free_port())) | {
        "SLACK_SIGNING_SECRET": "0" * 32,
        "ADMIN_USERS": quiet_world.ben.user.id,
        "COLUMNS": "80",
        "PYTHONIOENCODING": "utf-8",
    }
    shown = await bot("doctor", environ=environ, folder=tmp_path)
    lines = shown.out.splitlines()
    assert [line[:1] for line in lines[:-2]] == ["✓"] * (len(lines) - 2)
    assert any(line.startswith("✓ people         admins: Ben") for line in lines)
    assert lines[-1] == "No errors and no warnings."
    assert len(lines) < 12
    in_full = await bot("doctor", "--all", environ=environ, folder=tmp_path)
    assert "ok       Slack" in in_full.out
    environ |= {"APPROVERS": "U0TYPO000", "MAX_PER_DAYS": "3"}
    shown = await bot("doctor", environ=environ, folder=tmp_path)
    lines = shown.out.splitlines()
    assert shown.code == 1
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 24
    said = [line.split()[:2] for line in lines if line.startswith(("warning", "ERROR"))]
    assert said[0] == ["warning", "MAX_PER_DAYS"]
    assert said[-1] == ["ERROR", "APPROVERS"]
    environ |= {"VIDEO_API_KEY": "", "PORT": "99999"}
    lines = (await bot("doctor", environ=environ, folder=tmp_path)).out.splitlines()
    assert lines[0].startswith("✗ settings       VIDEO_API_KEY is missing; PORT must be between")
    assert lines[1].startswith("! all else       was not checked, ")


async def test_the_command_prints_json_of_the_documented_shape(
    quiet_world: World, tmp_path: Path
) -> None:
    quiet_world.service.down = True
    environ = quiet_world.environment("0")
    shown = await bot("doctor", "--json", environ=environ, folder=tmp_path)
    assert shown.code == 1
    found = json.loads(shown.out)
    assert all(list(each) == ["check", "state", "message", "remedy"] for each in found)
    assert all(isinstance(text, str) for each in found for text in each.values())
    assert {each["state"] for each in found} <= {"ok", "warning", "error"}
    [service] = [each for each in found if each["check"] == "video service"]
    assert (service["state"], service["message"]) == (
        "error",
        "does not work: it answered 503",
    )
