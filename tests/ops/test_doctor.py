"""The doctor's report on Slack and the video service, and what all checks have in common."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bot.ops import doctor
from bot.ops.finding import POSTING
from bot.slack.scopes import OPTIONAL_SCOPES, REQUIRED_SCOPES
from sandbox.faults import CannedResponse
from sandbox.http import free_port
from tests.ops.report import report
from tests.world import World


async def test_the_doctor_finds_no_error_where_there_is_none(quiet_world: World) -> None:
    quiet_world.slack.scopes.update(OPTIONAL_SCOPES)
    found = await report(quiet_world, SLACK_SIGNING_SECRET="0" * 32)
    assert found.not_ok() == []
    assert not quiet_world.database.exists()


async def test_each_line_that_is_not_ok_ends_with_a_remedy(quiet_world: World) -> None:
    quiet_world.service.down = True
    quiet_world.slack.scopes.clear()
    for finding in (await report(quiet_world)).findings:
        assert (finding.state == "ok") == (finding.remedy == ""), finding
        assert not finding.message.endswith("."), finding
        assert finding.remedy == "" or finding.remedy[0].isupper(), finding


# ── Slack ─────────────────────────────────────────────────────────────────────────────────────


async def test_the_doctor_reports_a_token_that_slack_rejects(quiet_world: World) -> None:
    quiet_world.slack.auth_error = "token_revoked"
    finding = (await report(quiet_world))["Slack"]
    assert not finding.ok
    assert "token_revoked" in finding.message
    assert "Bot User OAuth Token" in finding.remedy


async def test_the_doctor_reports_missing_scopes(quiet_world: World) -> None:
    quiet_world.slack.scopes -= set(REQUIRED_SCOPES)
    found = (await report(quiet_world)).all("Slack scope")
    missing = [each.message.partition(" is missing: ")[0] for each in found if not each.ok]
    assert sorted(missing) == sorted(REQUIRED_SCOPES)


async def test_the_doctor_says_which_optional_scopes_are_missing_and_what_the_settings_lose(
    quiet_world: World,
) -> None:
    quiet_world.slack.scopes -= set(OPTIONAL_SCOPES)
    shown = await report(quiet_world, MAX_SCRIPT="5000", JOIN_PUBLIC_CHANNELS="yes")
    # What the settings want and Slack does not allow is more than a choice.
    found = shown.all("Slack scope")
    assert [each.message.partition(" is not granted: ")[0] for each in found] == [
        *("channels:join", "users:read", "channels:read", "groups:read", "files:read")
    ]
    assert {each.state for each in found} == {"warning"}
    declined = shown["Slack scopes"]
    assert declined.state == "ok"
    assert set(declined.message.partition(": ")[2].split(", ")) == set(OPTIONAL_SCOPES) - {
        each.message.split()[0] for each in found
    }


async def test_the_doctor_says_why_videos_are_not_shown_in_slack(quiet_world: World) -> None:
    quiet_world.slack.scopes.update(OPTIONAL_SCOPES)
    assert (await report(quiet_world, MEDIA_HOSTS="cdn.example.com")).all("Slack scope") == []
    quiet_world.slack.scopes -= {"files:write", "files:read"}
    assert (await report(quiet_world)).all("Slack scope") == []
    found = (await report(quiet_world, MEDIA_HOSTS="cdn.example.com")).all("Slack scope")
    assert [each.message.partition(": no ")[0] for each in found if "write" in each.message] == [
        "files:write is not granted"
    ]
    assert [each.state for each in found] == ["warning"] * 2
    assert all("Or remove MEDIA_HOSTS." in each.remedy for each in found)


# ── People and channels ───────────────────────────────────────────────────────────────────────


async def test_people_and_channels_are_named_and_those_that_are_not_there_are_errors(
    quiet_world: World,
) -> None:
    slack = quiet_world.slack
    ana, ben, cleo = (slack.user(name).id for name in ("ana", "ben", "cleo"))
    studio, vault = slack.channel("studio").id, slack.channel("vault").id
    found = await report(
        quiet_world,
        ADMIN_USERS=ana,
        APPROVERS=f"{ben},{cleo}",
        VIDEO_USERS=f"{ben},S0614TZR7",
        ALLOWED_CHANNELS=studio,
    )
    assert [each.message for each in found.all("people")] == [
        "admins: Ana",
        "approvers: Ben, Cleo",
        "may create videos: Ben",
        "channels: #studio",
    ]
    assert found["VIDEO_USERS"].message.startswith("S0614TZR7 does not exist, or is disabled")
    slack.users[cleo] = replace(slack.user("cleo"), is_deactivated=True)
    found = await report(
        quiet_world,
        ADMIN_USERS=slack.bot.id,
        APPROVERS=f"U0TYPO000,{ben},{cleo}",
        ALLOWED_CHANNELS=f"C0TYPO000,{vault}",
    )
    for name, said in (
        ("ADMIN_USERS", [f"{slack.bot.id} (Replica-videos) is an app, not a person"]),
        ("APPROVERS", ["U0TYPO000 is not in this workspace", f"{cleo} (Cleo) is deactivated"]),
        ("ALLOWED_CHANNELS", ["C0TYPO000 does not exist, or is private and without the bot"] * 2),
    ):
        findings = found.all(name)
        assert [each.state for each in findings] == ["error"] * len(said)
        assert sorted(each.message.replace(vault, "C0TYPO000") for each in findings) == sorted(said)
        assert all(f" in {name}" in each.remedy for each in findings)
    assert "only one person may approve" in found["approval"].message


async def test_without_the_scopes_to_look_people_up_nothing_is_said_against_them(
    quiet_world: World,
) -> None:
    quiet_world.slack.scopes -= set(OPTIONAL_SCOPES)
    found = await report(quiet_world, APPROVERS="U0TYPO000,U0OTHER00", VIDEO_USERS="S0614TZR7")
    assert found.all("APPROVERS") == []
    assert "approvers: U0OTHER00, U0TYPO000 (Slack doesn't say who or what that is)" in [
        each.message for each in found.all("people")
    ]
    [groups] = [each for each in found.all("Slack scope") if "usergroups" in each.message]
    assert "user groups in VIDEO_USERS and TRAINING_USERS do not count" in groups.message
    assert groups.remedy.endswith("Or name people in place of user groups.")
    url = f"http://127.0.0.1:{free_port()}/api/"
    found = await report(quiet_world, SLACK_API_URL=url, ADMIN_USERS="U0TYPO000")
    assert found["people"].message == "admins: U0TYPO000 (Slack doesn't say who or what that is)"


async def posting(world: World, channel: str, **changed: str) -> dict[str, str]:
    """Return what was tried in Slack, and what became of it."""
    environ = world.environment("0") | {"ADMIN_USERS": world.ana.user.id} | changed
    examined = doctor.examine(environ, post_to=channel)
    return {
        each.name: f"{each.state}: {each.message}"
        async for each in examined
        if each.area == POSTING
    }


async def test_what_the_bot_does_in_slack_is_tried_and_nothing_is_left(
    quiet_world: World,
) -> None:
    slack = quiet_world.slack
    slack.scopes.update(OPTIONAL_SCOPES)
    slack.share_delay = timedelta(seconds=1)
    found = await posting(quiet_world, "#studio")
    assert found == dict.fromkeys(
        (
            *("post a message", "edit it", "reply in its thread", "look it up", "upload a file"),
            *("open a direct message", "write to a person", "delete it all"),
        ),
        "ok: allowed",
    )
    assert [each for channel in slack.channels for each in slack.everything(channel)] == []
    assert not slack.files
    for method in ("chat.postMessage", "chat.update", "files.completeUploadExternal"):
        assert quiet_world.calls(method)


async def test_what_slack_does_not_allow_is_named_and_the_rest_is_deleted(
    quiet_world: World,
) -> None:
    slack = quiet_world.slack
    slack.scopes -= {"files:write", "im:write"}
    found = await posting(quiet_world, slack.channel("lobby").id)
    assert (
        found["upload a file"]
        == found["open a direct message"]
        == ("warning: refused: missing_scope")
    )
    assert found["look it up"].startswith("warning: refused: ")
    assert found["delete it all"] == "ok: allowed"
    assert [each for channel in slack.channels for each in slack.everything(channel)] == []
    gone = "warning: the channel does not exist, or is private and without the bot"
    for channel in ("#vault", "#typo"):
        found = await posting(quiet_world, channel, ADMIN_USERS="")
        assert found == {
            "post a message": gone,
            "write to a person": "ok: not tried: ADMIN_USERS is not set",
        }
    slack.faults.always(
        "chat.delete", CannedResponse(200, {"ok": False, "error": "cant_delete_message"})
    )
    found = await posting(quiet_world, "#studio")
    assert found["delete it all"] == "error: refused: cant_delete_message"


async def test_slack_that_cannot_be_reached_has_refused_nothing(quiet_world: World) -> None:
    found = await posting(
        quiet_world, "#studio", SLACK_API_URL=f"http://127.0.0.1:{free_port()}/api/"
    )
    refused = "error: cannot be reached: the connection was refused (nothing listens there)"
    assert found["post a message"] == refused


# ── The video service ─────────────────────────────────────────────────────────────────────────


async def test_the_doctor_reports_a_key_that_the_service_rejects(quiet_world: World) -> None:
    quiet_world.service.key_revoked = True
    finding = (await report(quiet_world))["video service"]
    assert not finding.ok
    assert "VIDEO_API_KEY" in finding.message


async def test_the_doctor_reports_a_service_that_is_not_there(quiet_world: World) -> None:
    gone = f"http://127.0.0.1:{free_port()}"
    finding = (await report(quiet_world, VIDEO_API_URL=gone))["video service"]
    assert not finding.ok
    assert "the connection was refused" in finding.message
    assert "VIDEO_API_URL" in finding.remedy


async def test_the_doctor_judges_what_the_service_answers(
    quiet_world: World, subtests: pytest.Subtests
) -> None:
    page = "a web page answers in place of the API"
    for answer, state, said in (
        (CannedResponse(403, "<html>Forbidden</html>"), "error", "refuses a read"),
        (CannedResponse(402, {"error": "Pay first."}), "error", "out of credit (402: Pay first)"),
        (CannedResponse(503, {"error": "busy"}), "error", "it answered 503"),
        (CannedResponse(404, "<html>Not found</html>"), "error", f"{page} (404)"),
        (CannedResponse(200, "<html>Welcome</html>"), "error", f"{page} (200)"),
        (CannedResponse(301, "", {"Location": "/x"}), "error", "to another address (301)"),
        (CannedResponse(429, {"error": "slow down"}), "warning", "asks to wait"),
        (CannedResponse(200, {"status": "ready"}), "warning", "where 404 is expected"),
        (CannedResponse(404, {"error": "unknown"}), "ok", "accepts the key"),
        (CannedResponse(404, ""), "ok", "accepts the key"),
    ):
        with subtests.test(answer=answer):
            quiet_world.service.faults.always("read_video", answer)
            finding = (await report(quiet_world))["video service"]
            assert finding.state == state
            assert said in finding.message


# ── A running bot ─────────────────────────────────────────────────────────────────────────────


async def test_what_a_running_bot_says_is_wrong_is_repeated(world: World) -> None:
    assert (await report(world)).all("readiness") == []
    world.service.out_of_credit = True
    await world.request_video(world.ana)
    finding = (await report(world))["readiness"]
    assert finding.state == "warning"
    assert finding.message == (
        "the bot says of video service: the service's account is out of credit"
    )
    assert finding.remedy == "Top it up; the next form tries again."


async def test_a_bot_that_runs_with_an_earlier_token_is_told_to_restart_if_it_is_not_ready(
    world: World,
) -> None:
    world.slack.bot_token = "xoxb-a-new-one-4f00ta9e"
    assert (await report(world)).all("readiness") == []
    await world.ana.command("/video")
    await world.advance(minutes=1)
    finding = (await report(world))["readiness"]
    assert (finding.state, finding.remedy[:11]) == ("error", "Restart it.")
