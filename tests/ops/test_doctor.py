"""The doctor's report on Slack and the video service, and what all checks have in common."""

import asyncio
import contextlib
import json
import shutil
import sqlite3
import ssl
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest

from bot.ops import doctor
from bot.ops.doctor import check_database
from bot.ops.finding import POSTING, Finding
from bot.slack.installation import OPTIONAL_SCOPES, REQUIRED_SCOPES
from bot.timings import SystemClock
from sandbox.faults import CannedResponse, Hang
from sandbox.http import free_port
from tests.databases import STEPS, migrate
from tests.modes import on_sqlite_alone
from tests.ops.report import report, report_of
from tests.ops.test_command_line import bot
from tests.postgres import database_url, empty_database_url
from tests.store.test_migrations import run as ask
from tests.store.test_storage import many_jobs, page_overwritten
from tests.tcp import listening
from tests.web.test_health import ready
from tests.world import World


async def test_the_doctor_finds_no_error_where_there_is_none(quiet: World) -> None:
    quiet.slack.scopes.update(OPTIONAL_SCOPES)
    found = await report(quiet, SLACK_SIGNING_SECRET="0" * 32)
    assert found.not_ok() == []
    assert not quiet.database.exists()


async def test_each_line_that_is_not_ok_ends_with_a_remedy(quiet: World) -> None:
    quiet.service.down = True
    quiet.slack.scopes.clear()
    for finding in (await report(quiet)).findings:
        assert (finding.state == "ok") == (finding.remedy == ""), finding
        assert not finding.message.endswith("."), finding
        assert finding.remedy == "" or finding.remedy[0].isupper(), finding


async def test_the_doctor_reports_a_token_that_slack_rejects(quiet: World) -> None:
    quiet.slack.auth_error = "token_revoked"
    finding = (await report(quiet))["Slack"]
    assert not finding.ok
    assert "token_revoked" in finding.message
    assert "Bot User OAuth Token" in finding.remedy


async def test_the_doctor_reports_missing_scopes(quiet: World) -> None:
    quiet.slack.scopes -= set(REQUIRED_SCOPES)
    found = (await report(quiet)).all("Slack scope")
    missing = [each.message.partition(" is missing: ")[0] for each in found if not each.ok]
    assert sorted(missing) == sorted(REQUIRED_SCOPES)


async def test_the_doctor_says_which_optional_scopes_are_missing_and_what_the_settings_lose(
    quiet: World,
) -> None:
    quiet.slack.scopes -= set(OPTIONAL_SCOPES)
    shown = await report(quiet, MAX_SCRIPT="5000", JOIN_PUBLIC_CHANNELS="yes")
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


async def test_the_doctor_says_why_videos_are_not_shown_in_slack(quiet: World) -> None:
    quiet.slack.scopes.update(OPTIONAL_SCOPES)
    assert (await report(quiet, MEDIA_HOSTS="cdn.example.com")).all("Slack scope") == []
    quiet.slack.scopes -= {"files:write", "files:read"}
    assert (await report(quiet)).all("Slack scope") == []
    found = (await report(quiet, MEDIA_HOSTS="cdn.example.com")).all("Slack scope")
    assert [each.message.partition(": no ")[0] for each in found if "write" in each.message] == [
        "files:write is not granted"
    ]
    assert [each.state for each in found] == ["warning"] * 2
    assert all("Or remove MEDIA_HOSTS." in each.remedy for each in found)


async def test_people_and_channels_are_named_and_those_that_are_not_there_are_errors(
    quiet: World,
) -> None:
    slack = quiet.slack
    ana, ben, cleo = (slack.user(name).id for name in ("ana", "ben", "cleo"))
    studio, vault = slack.channel("studio").id, slack.channel("vault").id
    found = await report(
        quiet,
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
        quiet,
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
    quiet: World,
) -> None:
    quiet.slack.scopes -= set(OPTIONAL_SCOPES)
    found = await report(quiet, APPROVERS="U0TYPO000,U0OTHER00", VIDEO_USERS="S0614TZR7")
    assert found.all("APPROVERS") == []
    assert "approvers: U0OTHER00, U0TYPO000 (Slack doesn't say who or what that is)" in [
        each.message for each in found.all("people")
    ]
    [groups] = [each for each in found.all("Slack scope") if "usergroups" in each.message]
    assert "user groups in VIDEO_USERS and TRAINING_USERS do not count" in groups.message
    assert groups.remedy.endswith("Or name people in place of user groups.")
    url = f"http://127.0.0.1:{free_port()}/api/"
    found = await report(quiet, SLACK_API_URL=url, ADMIN_USERS="U0TYPO000")
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


async def test_what_the_bot_does_in_slack_is_tried_and_nothing_is_left(quiet: World) -> None:
    slack = quiet.slack
    slack.scopes.update(OPTIONAL_SCOPES)
    slack.share_delay = timedelta(seconds=1)
    found = await posting(quiet, "#studio")
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
        assert quiet.calls(method)


async def test_what_slack_does_not_allow_is_named_and_the_rest_is_deleted(quiet: World) -> None:
    slack = quiet.slack
    slack.scopes -= {"files:write", "im:write"}
    found = await posting(quiet, slack.channel("lobby").id)
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
        found = await posting(quiet, channel, ADMIN_USERS="")
        assert found == {
            "post a message": gone,
            "write to a person": "ok: not tried: ADMIN_USERS is not set",
        }
    slack.faults.always(
        "chat.delete", CannedResponse(200, {"ok": False, "error": "cant_delete_message"})
    )
    found = await posting(quiet, "#studio")
    assert found["delete it all"] == "error: refused: cant_delete_message"


async def test_the_doctor_reports_a_service_that_is_not_there(quiet: World) -> None:
    gone = f"http://127.0.0.1:{free_port()}"
    finding = (await report(quiet, VIDEO_API_URL=gone))["video service"]
    assert not finding.ok
    assert "the connection was refused" in finding.message
    assert "VIDEO_API_URL" in finding.remedy


async def test_the_doctor_judges_what_the_service_answers(
    quiet: World, subtests: pytest.Subtests
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
            quiet.service.faults.always("read_video", answer)
            finding = (await report(quiet))["video service"]
            assert finding.state == state
            assert said in finding.message


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
    await world.after(world.ana.command("/video"), minutes=1)
    finding = (await report(world))["readiness"]
    assert (finding.state, finding.remedy[:11]) == ("error", "Restart it.")


TLS = Path(__file__).parent.parent / "data" / "tls"


@contextlib.asynccontextmanager
async def tls_server(certificate: str) -> AsyncIterator[str]:
    """Run a server that has a certificate and says nothing; yield its address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / certificate)

    async def hang_up(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
        pass

    async with listening(hang_up, tls=context) as port:
        yield f"https://127.0.0.1:{port}"


@contextlib.asynccontextmanager
async def silent_server() -> AsyncIterator[str]:
    """Run a server that accepts connections and never answers; yield its address."""

    async def wait(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with listening(wait) as port:
        yield f"http://127.0.0.1:{port}"


@contextlib.asynccontextmanager
async def proxy(status: int) -> AsyncIterator[str]:
    """Run a proxy that opens no connection; yield its address."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()

    async with listening(refuse) as port:
        yield f"http://127.0.0.1:{port}"


async def test_a_certificate_that_is_not_accepted_is_named(quiet: World, tmp_path: Path) -> None:
    # In a process, as the certificates that are trusted are read when a library is imported.
    async with (
        tls_server("expired.pem") as expired,
        tls_server("other-name.pem") as other,
        tls_server("self-signed.pem") as unknown,
    ):
        environ = quiet.environment("0") | {
            "SSL_CERT_FILE": str(TLS / "ca.pem"),
            "SLACK_API_URL": f"{expired}/api/",
            "VIDEO_API_URL": other,
        }
        shown = await bot("doctor", "--json", environ=environ, folder=tmp_path)
        environ["VIDEO_API_URL"] = unknown
        again = await bot("doctor", "--json", environ=environ, folder=tmp_path)
    refused = "cannot be reached: its TLS certificate is not accepted, or it does not speak TLS"
    for answer in (shown, again):
        found = {each["check"]: each for each in json.loads(answer.out)}
        assert found["Slack"]["message"] == found["video service"]["message"] == refused
        assert found["video service"]["state"] == "error"
        assert answer.code == 1


@pytest.mark.parametrize("status", [407, 403, None])
async def test_a_proxy_that_refuses_is_named(status: int | None, quiet: World) -> None:
    async with contextlib.AsyncExitStack() as stack:
        address = f"http://user:hush-hush@127.0.0.1:{free_port()}"
        if status is not None:
            address = await stack.enter_async_context(proxy(status))
        found = await report(
            quiet,
            HTTPS_PROXY=address,
            SLACK_API_URL="https://slack.example/",
            VIDEO_API_URL="https://videos.example",
        )
    for name, host in (("Slack", "slack.example"), ("video service", "videos.example")):
        said = "cannot be reached: the proxy does not answer, or opens no connection to it"
        assert found[name].message == said
        assert f"list {host} in NO_PROXY" in found[name].remedy
    assert "hush-hush" not in str(found.findings)


async def test_all_checks_together_take_no_longer_than_one_time_out(quiet: World) -> None:
    loop = asyncio.get_running_loop()
    async with silent_server() as silent:
        environ = quiet.environment(str(free_port())) | {
            "SLACK_API_URL": f"{silent}/api/",
            "VIDEO_API_URL": silent,
        }
        begun = loop.time()
        found = await report_of(environ, call_timeout=5)
        taken = loop.time() - begun
    for name in ("Slack", "video service"):
        assert "no answer within 5 s" in found[name].message
    assert taken < 9.9  # one after the other they would take 10 s


async def test_people_of_whom_slack_says_nothing_in_time_are_named_by_their_ids(
    quiet: World,
) -> None:
    quiet.slack.faults.always("users.info", Hang())
    environ = quiet.environment(str(free_port()))
    environ["ADMIN_USERS"] = "U001,U002"
    found = await report_of(environ, call_timeout=0.5)
    assert "U001, U002 (Slack doesn't say" in found["people"].message


async def test_a_check_that_fails_itself_is_one_line_and_hides_no_other(quiet: World) -> None:
    found = await report(quiet, DATABASE_URL=f"sqlite:///{'x' * 300}")
    assert found["database"].message == "the check failed: File name too long"
    quiet.slack.faults.next("auth.test", CannedResponse(200, [["not an object"]]))
    found = await report(quiet)
    assert not found["Slack"].ok
    assert found["video service"].ok
    assert found["database"].ok


async def test_a_clock_that_differs_from_slacks_is_named(quiet: World) -> None:
    for ahead_s, state, said in (
        (10, "ok", "within "),
        (-30, "warning", "s ahead of Slack's"),
        (250, "error", "s behind Slack's: from 5 minutes on, all requests"),
    ):
        quiet.slack.clock_ahead = timedelta(seconds=ahead_s)
        finding = (await report(quiet))["clock"]
        assert finding.state == state
        assert said in finding.message
        assert state == "ok" or "NTP" in finding.remedy
    quiet.socket_mode = True
    quiet.slack.clock_ahead = timedelta(hours=1)
    assert (await report(quiet))["clock"].state == "warning", "no request is refused for it"


async def test_a_setting_that_is_set_twice_is_named(quiet: World) -> None:
    environ = quiet.environment("0") | {"MAX_PER_DAY": "5", "COMMAND_PREFIX": ""}
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
    assert warned == ["everything else"], "where settings are missing"


async def test_each_wrong_setting_is_one_error_with_its_own_remedy(quiet: World) -> None:
    found = await report(quiet, SLACK_BOT_TOKEN="", VIDEO_API_URL="foo", MAX_SCRIPT="many")
    assert found["SLACK_BOT_TOKEN"].message == "is missing"
    assert "Bot User OAuth Token" in found["SLACK_BOT_TOKEN"].remedy
    assert found["VIDEO_API_URL"].message == "is not a web URL"
    assert found["MAX_SCRIPT"].message == (
        "must be between 1 and 20,000 (in digits alone), not “many”"
    )
    assert found["MAX_SCRIPT"].remedy == "Correct it, or remove it to have the default."
    assert found.findings[-1].name == "everything else"
    assert found.findings[-1].state == "warning"


async def test_the_report_fits_a_screen_with_what_is_wrong_in_full_and_errors_last(
    quiet: World, tmp_path: Path
) -> None:
    environ = quiet.environment(str(free_port())) | {
        "SLACK_SIGNING_SECRET": "0" * 32,
        "ADMIN_USERS": quiet.ben.user.id,
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
    quiet: World, tmp_path: Path
) -> None:
    quiet.service.down = True
    environ = quiet.environment("0")
    shown = await bot("doctor", "--json", environ=environ, folder=tmp_path)
    assert shown.code == 1
    found = json.loads(shown.out)
    assert all(list(each) == ["check", "state", "message", "remedy"] for each in found)
    assert all(isinstance(text, str) for each in found for text in each.values())
    assert {each["state"] for each in found} <= {"ok", "warning", "error"}
    [service] = [each for each in found if each["check"] == "video service"]
    assert (service["state"], service["message"]) == ("error", "does not work: it answered 503")


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return each file of a folder: when it was changed, and what is in it."""
    return {each.name: (each.stat().st_mtime_ns, each.read_bytes()) for each in folder.iterdir()}


@pytest.fixture
async def stopped(quiet: World) -> World:
    """A world with a request that is not done, and a bot that has ended."""
    async with quiet.running_bot():
        await quiet.request_video(quiet.ana)
    return quiet


@on_sqlite_alone
async def test_a_database_that_is_well_is_described(quiet: World) -> None:
    await migrate(quiet.database)
    found = await report(quiet)
    assert found["database"].state == "ok"
    assert "no damage found, up to date" in found["database"].message
    assert str(quiet.database) in found["database"].message
    assert found["bot"].message.startswith("none answers at http://127.0.0.1:")
    assert " GB free" in found["disk space"].message or " MB free" in found["disk space"].message


@on_sqlite_alone
async def test_a_database_with_damaged_pages_is_named(quiet: World) -> None:
    await migrate(quiet.database)
    many_jobs(quiet.database, 100)
    page_overwritten(quiet.database)
    finding = (await report(quiet))["database"]
    assert finding.state == "error"
    assert "Put a backup in its place" in finding.remedy


@on_sqlite_alone
@pytest.mark.parametrize(
    ("free", "state", "said"),
    [(10**6, "error", "1 MB free"), (300 * 10**6, "warning", "300 MB free")],
)
async def test_a_disk_that_is_nearly_full_is_named(
    free: int, state: str, said: str, quiet: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    finding = (await report(quiet))["disk space"]
    assert finding.state == state
    assert said in finding.message
    assert "Make room on the disk" in finding.remedy


@on_sqlite_alone
async def test_nothing_is_changed_or_created_after_a_crash(stopped: World) -> None:
    folder, path = stopped.database.parent, stopped.database
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("UPDATE jobs SET late = 1")
        db.commit()
        left = {name: content for name, (_, content) in contents(folder).items()}
    for name, content in left.items():
        (folder / name).write_bytes(content)
    before = contents(folder)
    assert "bot.db-wal" in before
    found = await report(stopped)
    assert found["database"].state == "ok"
    after = contents(folder)
    assert {name for name in after if after[name] != before.get(name)} <= {"bot.db-shm"}
    assert after.keys() == before.keys()


_JOB = (
    "INSERT INTO jobs (id, request_key, kind, params, user_id, channel, created_at, state, due_at)"
    " VALUES ('broken', 'k', 'video', '{params}', 'U1', 'C1', 1, 'queued', 1)"
)


@pytest.fixture
def url() -> Iterator[str]:
    """Return the URL of a database with tables, which outlives the world."""
    with database_url() as url:
        yield url


def found(url: str) -> dict[str, Finding]:
    return {each.name: each for each in check_database(url)}


async def test_a_server_that_is_well_is_described(url: str, quiet: World) -> None:
    world, world.postgres_url = quiet, url
    world.bot_clock = SystemClock()
    async with world.running_bot():
        lines = await report(world, DATABASE_URL=url)
    assert lines["database"].message.startswith("postgresql://")
    assert "up to date" in lines["database"].message
    assert lines.not_ok() == []


def test_what_is_wrong_is_named_with_its_remedy(url: str) -> None:
    ask(url, _JOB.format(params="{{"))
    ask(url, "UPDATE jobs SET set_aside = 1")
    rows = found(url)["database rows"]
    assert (rows.state, "row broken of jobs" in rows.message) == ("error", True)
    away = found("postgresql://bot:secret@127.0.0.1:1/bot")["database"]
    assert away.state == "error"
    assert away.message == "the database server cannot be reached"
    assert away.remedy == "Start it, or correct the host and port in DATABASE_URL."
    assert "secret" not in str(away)
    with empty_database_url() as empty:
        message = found(empty)["database"].message
        assert f"{len(STEPS)} migrations to apply, which the next start does" in message


def test_a_connection_that_others_may_read_is_named() -> None:
    [finding, _] = check_database("postgresql://bot:secret@127.0.0.2:1/bot")
    assert (finding.name, finding.state) == ("database connection", "warning")
    verified = "postgresql://bot:secret@127.0.0.2:1/bot?sslmode=verify-full&sslrootcert=system"
    assert [each.name for each in check_database(verified)] == ["database"]


async def test_readyz_says_that_the_server_is_away_and_that_it_is_back(
    url: str, quiet: World
) -> None:
    world, world.postgres_url = quiet, url
    name = url.partition("?")[0].rpartition("/")[2]
    server = url.replace(f"/{name}?", "/postgres?")

    def allow(allowed: str) -> None:
        with psycopg.connect(server, autocommit=True) as db:
            db.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS {allowed}".encode())
            db.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
            )

    async with world.running_bot():
        assert (await ready(world))[0] == 200
        allow("false")
        try:
            status, said = await ready(world)
            assert (status, said["ready"]) == (503, False)
            assert (
                "the log and `python -m bot doctor` say why" in said["checks"]["database"]["reason"]
            )
        finally:
            allow("true")
        async with asyncio.timeout(30):
            while (await ready(world))[0] != 200:
                pass
