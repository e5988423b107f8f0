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
from tests.report import report, report_of
from tests.test_command_line import bot
from tests.world import World

TLS = Path(__file__).parent / "data" / "tls"


@contextlib.asynccontextmanager
async def tls_server(certificate: str) -> AsyncIterator[str]:
    """Run a server that has a certificate and says nothing; yield its address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / certificate)

    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(close, "127.0.0.1", 0, ssl=context)
    async with server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@contextlib.asynccontextmanager
async def silent_server() -> AsyncIterator[str]:
    """Run a server that accepts connections and never answers; yield its address."""
    release = asyncio.Event()

    async def wait(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        writer.close()

    server = await asyncio.start_server(wait, "127.0.0.1", 0)
    async with server:
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            release.set()


@contextlib.asynccontextmanager
async def proxy(status: int) -> AsyncIterator[str]:
    """Run a proxy that opens no connection; yield its address."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


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
            "PUBLIC_URL": unknown,
        }
        shown = await bot("doctor", "--json", environ=environ, folder=tmp_path)
    found = {each["check"]: each for each in json.loads(shown.out)}
    assert (
        found["Slack"]["message"]
        == "cannot be reached: the TLS certificate of 127.0.0.1 has expired"
    )
    assert (
        found["video service"]["message"]
        == "cannot be reached: the TLS certificate there is not for 127.0.0.1"
    )
    for name in ("callbacks", "Slack requests"):
        assert (
            "nobody that this machine trusts has signed the TLS certificate of"
            in found[name]["message"]
        )
    assert found["Slack requests"]["state"] == "error"
    assert shown.code == 1


@pytest.mark.parametrize(
    ("status", "said", "remedy"),
    [
        (
            407,
            "cannot be reached: the proxy wants a user name and password (407)",
            "Put them into HTTPS_PROXY",
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
    assert found["proxy"].message.endswith("for Slack and the video service")
    assert "hush-hush" not in str(found.findings)


async def test_all_checks_together_take_no_longer_than_one_time_out(quiet_world: World) -> None:
    loop = asyncio.get_running_loop()
    async with silent_server() as silent:
        environ = quiet_world.environment(str(free_port())) | {
            "SLACK_API_URL": f"{silent}/api/",
            "VIDEO_API_URL": silent,
            "PUBLIC_URL": f"{silent}/bot",
        }
        begun = loop.time()
        found = await report_of(environ, call_timeout=2)
        taken = loop.time() - begun
    for name in ("Slack", "video service", "callbacks", "Slack requests"):
        assert "no answer within 2 s" in found[name].message
    assert taken < 7  # one after the other they would take 8 s


async def test_what_was_found_before_a_time_out_is_reported(quiet_world: World) -> None:
    quiet_world.slack.faults.always("bots.info", Hang())
    found = await report_of(quiet_world.environment(str(free_port())), call_timeout=1)
    assert [each.state for each in found.all("Slack")] == ["ok", "error"]


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


@pytest.mark.parametrize(
    ("ahead", "state", "said"),
    [
        (timedelta(seconds=20), "ok", "within "),
        (timedelta(seconds=-90), "warning", "s ahead of Slack's"),
        (timedelta(seconds=250), "error", "s behind Slack's: from 5 minutes on, all requests"),
    ],
)
async def test_a_clock_that_differs_from_slacks_is_named(
    ahead: timedelta, state: str, said: str, quiet_world: World
) -> None:
    quiet_world.slack.clock_ahead = ahead
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
    assert found.all("Slack requests") == []
    assert found.all("signing secret") == []


async def test_an_app_token_that_slack_rejects_is_named(quiet_world: World) -> None:
    quiet_world.socket_mode = True
    finding = (await report(quiet_world, SLACK_APP_TOKEN="xapp-1-another"))["Socket Mode"]
    assert finding.state == "error"
    assert finding.message == "Slack rejects SLACK_APP_TOKEN (invalid_auth)"
    assert "connections:write" in finding.remedy
