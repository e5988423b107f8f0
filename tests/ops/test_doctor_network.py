"""The doctor on what cannot be reached: the cause of each, and no longer than a time-out."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from sandbox.faults import CannedResponse, Hang
from sandbox.http import free_port
from tests.ops.report import report, report_of
from tests.ops.test_command_line import bot
from tests.tcp import listening
from tests.world import World

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


async def test_each_fault_of_a_certificate_is_named(quiet_world: World, tmp_path: Path) -> None:
    # In a process, as the certificates that are trusted are read when a library is imported.
    async with (
        tls_server("expired.pem") as expired,
        tls_server("other-name.pem") as other,
        tls_server("self-signed.pem") as unknown,
    ):
        environ = quiet_world.environment("0") | {
            "SSL_CERT_FILE": str(TLS / "ca.pem"),
            "SLACK_API_URL": f"{expired}/api/",
            "VIDEO_API_URL": other,
        }
        shown = await bot("doctor", "--json", environ=environ, folder=tmp_path)
        environ["VIDEO_API_URL"] = unknown
        again = await bot("doctor", "--json", environ=environ, folder=tmp_path)
    found = {each["check"]: each for each in json.loads(shown.out)}
    refused = "cannot be reached: the TLS certificate of 127.0.0.1 is not accepted"
    assert found["Slack"]["message"] == f"{refused} (certificate has expired)"
    assert found["video service"]["message"].startswith(f"{refused} (IP address mismatch")
    found = {each["check"]: each for each in json.loads(again.out)}
    assert found["video service"]["message"] == f"{refused} (self-signed certificate)"
    assert found["video service"]["state"] == "error"
    assert shown.code == again.code == 1


@pytest.mark.parametrize(
    ("status", "said", "remedy"),
    [
        (
            407,
            "cannot be reached: the proxy opens no connection to videos.example (it answered 407)",
            "If it wants a user name and password (407), put them into HTTPS_PROXY",
        ),
        (
            403,
            "cannot be reached: the proxy opens no connection to videos.example (it answered 403)",
            "NO_PROXY",
        ),
        (None, "cannot be reached: the proxy does not answer", "Check HTTPS_PROXY"),
    ],
)
async def test_a_proxy_that_refuses_is_named(
    status: int | None, said: str, remedy: str, quiet_world: World
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        address = f"http://user:hush-hush@127.0.0.1:{free_port()}"
        if status is not None:
            address = await stack.enter_async_context(proxy(status))
        found = await report(
            quiet_world,
            HTTPS_PROXY=address,
            SLACK_API_URL="https://slack.example/",
            VIDEO_API_URL="https://videos.example",
        )
    assert found["video service"].message == said
    assert remedy in found["video service"].remedy
    assert found["Slack"].message == said.replace("videos.example", "slack.example")
    assert "hush-hush" not in str(found.findings)


async def test_all_checks_together_take_no_longer_than_one_time_out(quiet_world: World) -> None:
    loop = asyncio.get_running_loop()
    async with silent_server() as silent:
        environ = quiet_world.environment(str(free_port())) | {
            "SLACK_API_URL": f"{silent}/api/",
            "VIDEO_API_URL": silent,
        }
        begun = loop.time()
        found = await report_of(environ, call_timeout=5)
        taken = loop.time() - begun
    for name in ("Slack", "video service"):
        assert "no answer within 5 s" in found[name].message
    assert taken < 9.9  # one after the other they would take 10 s


async def test_a_check_that_takes_too_long_is_one_line(quiet_world: World) -> None:
    quiet_world.slack.faults.always("users.info", Hang())
    environ = quiet_world.environment(str(free_port()))
    environ["ADMIN_USERS"] = ",".join(f"U{number:03}" for number in range(20))
    found = await report_of(environ, call_timeout=3)
    assert found["people"].message == "the check did not end in time"
    assert found["Slack"].ok


async def test_a_check_that_fails_itself_is_one_line_and_hides_no_other(
    quiet_world: World,
) -> None:
    found = await report(quiet_world, DATABASE_URL=f"sqlite:///{'x' * 300}")
    assert found["database"].message == "the check failed: File name too long"
    quiet_world.slack.faults.next("auth.test", CannedResponse(200, [["not an object"]]))
    found = await report(quiet_world)
    assert not found["Slack"].ok
    assert found["video service"].ok
    assert found["database"].ok


# ── The clock ─────────────────────────────────────────────────────────────────────────────────


async def test_a_clock_that_differs_from_slacks_is_named(quiet_world: World) -> None:
    for ahead_s, state, said in (
        (20, "ok", "within "),
        (-90, "warning", "s ahead of Slack's"),
        (250, "error", "s behind Slack's: from 5 minutes on, all requests"),
    ):
        quiet_world.slack.clock_ahead = timedelta(seconds=ahead_s)
        finding = (await report(quiet_world))["clock"]
        assert finding.state == state
        assert said in finding.message
        assert state == "ok" or "NTP" in finding.remedy


async def test_with_socket_mode_no_request_is_refused_for_the_clock(quiet_world: World) -> None:
    quiet_world.socket_mode = True
    quiet_world.slack.clock_ahead = timedelta(hours=1)
    found = await report(quiet_world)
    assert found["clock"].state == "warning"
    assert found["Socket Mode"].state == "ok"


async def test_an_app_token_that_slack_rejects_is_named(quiet_world: World) -> None:
    quiet_world.socket_mode = True
    finding = (await report(quiet_world, SLACK_APP_TOKEN="xapp-1-another"))["Socket Mode"]
    assert finding.state == "error"
    assert finding.message == "SLACK_APP_TOKEN is rejected (invalid_auth)"
    assert "connections:write" in finding.remedy


async def test_a_port_that_another_program_has_is_named(quiet_world: World) -> None:
    async with silent_server() as url:
        port = url.rpartition(":")[2]
        finding = (await report_of(quiet_world.environment(port), call_timeout=0.5))["port"]
    assert finding.state == "error"
    assert finding.message.startswith(f"port {port} is taken")
    assert "set PORT to another port" in finding.remedy
