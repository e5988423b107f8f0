"""The doctor's report on Slack and the video service, and what all checks have in common."""

import pytest

from bot.doctor import Finding
from bot.doctor.finding import CheckState
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


def test_a_line_fits_the_terminal_with_the_remedy_below(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")  # whatever terminal these tests run in
    long = Finding("Slack scope", CheckState.WARNING, "it does not work " * 8, "Do this. " * 12)
    lines = str(long).splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[0].startswith("warning  Slack scope            it does not work it does not")
    assert lines[1].startswith(" " * 32 + "it does not")
    assert lines[-1].startswith(" " * 34 + "this. Do this.")
    assert str(long).isascii()
    for columns, at_most in (("80", 80), ("200", 100), ("30", 60)):
        monkeypatch.setenv("COLUMNS", columns)
        assert at_most - 14 < max(map(len, str(long).splitlines())) <= at_most


# ── Slack ─────────────────────────────────────────────────────────────────────────────────────


async def test_the_doctor_reports_a_token_that_slack_rejects(quiet_world: World) -> None:
    quiet_world.slack.auth_error = "token_revoked"
    finding = (await report(quiet_world))["Slack"]
    assert not finding.ok
    assert "token_revoked" in finding.message
    assert "copy the Bot User OAuth Token" in finding.remedy


async def test_the_doctor_reports_a_slack_that_does_not_work(quiet_world: World) -> None:
    quiet_world.slack.faults.next("auth.test", CannedResponse(503, "<html>down</html>"))
    assert not (await report(quiet_world))["Slack"].ok


@pytest.mark.parametrize("scope", REQUIRED_SCOPES)
async def test_the_doctor_reports_missing_scopes(quiet_world: World, scope: str) -> None:
    quiet_world.slack.scopes.update(OPTIONAL_SCOPES)
    quiet_world.slack.scopes.discard(scope)
    finding = (await report(quiet_world))["Slack scope"]
    assert not finding.ok
    assert finding.message.startswith(f"{scope} is missing: ")


async def test_the_doctor_says_what_is_lost_without_each_of_the_optional_scopes(
    quiet_world: World,
) -> None:
    quiet_world.slack.scopes -= set(OPTIONAL_SCOPES)
    shown = await report(quiet_world, MAX_SCRIPT="5000", JOIN_PUBLIC_CHANNELS="yes")
    found = shown.all("Slack scope")
    assert [each.message.partition(" is not granted: ")[0] for each in found] == list(
        OPTIONAL_SCOPES
    )
    assert all(each.ok for each in found)
    # What the settings want and Slack does not allow is more than a choice.
    warned = [each.message.split()[0] for each in found if each.state == "warning"]
    wanted = ["channels:join", "users:read", "channels:read", "groups:read", "files:read"]
    assert warned == wanted


async def test_the_doctor_says_whether_videos_are_shown_in_slack_and_why(
    quiet_world: World,
) -> None:
    quiet_world.slack.scopes.update(OPTIONAL_SCOPES)
    finding = (await report(quiet_world))["videos in Slack"]
    assert finding.state == "off"
    assert "set MEDIA_HOSTS" in finding.remedy
    finding = (await report(quiet_world, MEDIA_HOSTS="cdn.example.com"))["videos in Slack"]
    assert finding.state == "ok"
    assert "cdn.example.com" in finding.message
    quiet_world.slack.scopes.discard("files:write")
    finding = (await report(quiet_world, MEDIA_HOSTS="cdn.example.com"))["videos in Slack"]
    assert finding.state == "warning"
    assert "files:write is not granted" in finding.message
    assert "install the app again" in finding.remedy


async def test_the_doctor_says_whether_the_service_is_asked_for_lists(quiet_world: World) -> None:
    finding = (await report(quiet_world))["listing"]
    assert finding.state == "off"
    assert finding.remedy == "Set VIDEO_API_LISTS=yes if your service can list videos."
    finding = (await report(quiet_world, VIDEO_API_LISTS="yes"))["listing"]
    assert finding.state == "ok"
    assert "lost requests" in finding.message


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


@pytest.mark.parametrize(
    ("answer", "state", "said"),
    [
        (CannedResponse(403, "<html>Forbidden</html>"), "error", "refuses a read"),
        (CannedResponse(402, {"error": "Pay first."}), "error", "out of credit (402: Pay first)"),
        (CannedResponse(503, {"error": "busy"}), "error", "it answered 503"),
        (
            CannedResponse(404, "<html>Not found</html>"),
            "error",
            "a web page answers in place of the API (404)",
        ),
        (
            CannedResponse(200, "<html>Welcome</html>"),
            "error",
            "a web page answers in place of the API (200)",
        ),
        (CannedResponse(301, "", {"Location": "/x"}), "error", "to another address (301)"),
        (CannedResponse(429, {"error": "slow down"}), "warning", "asks to wait"),
        (CannedResponse(200, {"status": "ready"}), "warning", "where 404 is expected"),
        (CannedResponse(404, {"error": "unknown"}), "ok", "accepts the key"),
        (CannedResponse(404, ""), "ok", "accepts the key"),
    ],
    ids=lambda value: str(value.status) if isinstance(value, CannedResponse) else "",
)
async def test_the_doctor_judges_what_the_service_answers(
    answer: CannedResponse, state: str, said: str, quiet_world: World
) -> None:
    quiet_world.service.faults.always("read_video", answer)
    finding = (await report(quiet_world))["video service"]
    assert finding.state == state
    assert said in finding.message


# ── The database ──────────────────────────────────────────────────────────────────────────────


async def test_the_doctor_reports_a_missing_folder(quiet_world: World) -> None:
    path = quiet_world.database.parent / "nowhere" / "bot.db"
    finding = (await report(quiet_world, DATABASE_URL=f"sqlite:///{path}"))["database"]
    assert not finding.ok
    assert "is missing" in finding.message


async def test_the_doctor_reports_a_file_that_is_no_database(quiet_world: World) -> None:
    quiet_world.database.write_text("these are my notes\n" * 100)
    assert not (await report(quiet_world))["database"].ok


async def test_the_doctor_recognises_a_running_bot_by_its_database(world: World) -> None:
    finding = (await report(world))["bot"]
    assert finding.state == "ok"
    assert finding.message.startswith("is running on this database")


# ── A running bot ─────────────────────────────────────────────────────────────────────────────


async def test_what_a_running_bot_says_is_wrong_is_repeated(world: World) -> None:
    assert (await report(world))["readiness"].message == "the bot says that it is ready"
    world.service.out_of_credit = True
    await world.request_video(world.ana)
    finding = (await report(world))["readiness"]
    assert finding.state == "warning"
    assert finding.message == (
        "the bot says of video service: the service's account is out of credit"
    )
    assert finding.remedy == "Top it up; the next form tries again."


async def test_a_running_bot_that_does_not_answer_here_is_named(world: World) -> None:
    finding = (await report(world, PORT=str(free_port())))["readiness"]
    assert finding.state == "off"
    assert "with the same HOST and PORT" in finding.remedy


async def test_what_the_service_answered_differently_is_listed(quiet_world: World) -> None:
    world = quiet_world
    assert (await report(world)).all("service answers") == []
    async with world.running_bot(callbacks=False):
        world.service.next_video(Scenario(overrides={"mood": "good"}))
        await world.request_video(world.ana)
        await world.advance(minutes=5)
        finding = (await report(world))["service answers"]
        assert (finding.state, finding.message) == (
            "ok",
            "as expected, with fields that are new: mood",
        )
        world.service.next_video(
            Scenario(statuses=("Polishing",), overrides={"stream_url": MISSING})
        )
        await world.request_video(world.ana)
        await world.advance(minutes=5)
    found = (await report(world)).all("service answers")
    assert sorted(each.message.partition(",")[0] for each in found) == [
        "about a video: the field stream_url is missing",
        "about a video: the unknown status polishing",
        "fields that are new: mood",
    ]
    assert [each.state for each in found] == ["warning", "warning", "ok"]
