"""The doctor's report on Slack and the video service, and what all checks have in common."""

import pytest

from bot.slack.scopes import OPTIONAL_SCOPES, REQUIRED_SCOPES
from sandbox.faults import CannedResponse
from sandbox.http import free_port
from sandbox.scenarios import MISSING, Scenario
from tests.report import report
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
    assert "copy the Bot User OAuth Token" in finding.remedy


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


async def test_the_doctor_says_whether_videos_are_shown_in_slack_and_why(
    quiet_world: World,
) -> None:
    quiet_world.slack.scopes.update(OPTIONAL_SCOPES)
    assert (await report(quiet_world)).all("videos in Slack") == []
    finding = (await report(quiet_world, MEDIA_HOSTS="cdn.example.com"))["videos in Slack"]
    assert finding.state == "ok"
    quiet_world.slack.scopes.discard("files:write")
    finding = (await report(quiet_world, MEDIA_HOSTS="cdn.example.com"))["videos in Slack"]
    assert finding.state == "warning"
    assert "files:write is not granted" in finding.message
    assert "install the app again" in finding.remedy


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


async def test_how_the_service_differs_from_its_interface_is_one_line(world: World) -> None:
    world.service.next_video(
        Scenario(statuses=("Polishing",), overrides={"stream_url": MISSING, "mood": "good"})
    )
    await world.request_video(world.ana)
    assert (await report(world)).all("service answers") == []
    await world.advance(minutes=5)
    finding = (await report(world))["service answers"]
    assert finding.state == "warning"
    assert sorted(finding.message.partition(": ")[2].split(", ")) == [
        "missing field (video)",
        "unknown status (video)",
    ]
