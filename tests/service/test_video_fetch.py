"""A finished video is fetched only from where it may be, and only if it is one."""

import asyncio
import contextlib
import socket
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from bot.errors import Uncertain
from bot.slack.client import open_session, web_client
from bot.slack.errors import translated
from bot.timings import Timings
from sandbox.faults import CannedResponse, Fault, Hang, Reset
from sandbox.http import Server
from sandbox.player import DOWNLOAD
from sandbox.scenarios import Scenario
from sandbox.socket_mode import LINK, OPEN
from tests.journeys.test_shared_files import (
    GET_URL,
    HERE,
    MP4,
    makes_a_video,
    one_video,
    only_the_link,
)
from tests.service.test_video_service import Listener, listener
from tests.slack.test_socket_mode import QUICK, logged
from tests.tcp import Proxy, listening
from tests.world import World

__all__ = ["listener"]  # a fixture


@pytest.fixture
async def shown(quiet: World) -> AsyncIterator[World]:
    """A world in which videos are shown in Slack."""
    async with quiet.running_bot(MEDIA_HOSTS=HERE):
        await quiet.settle()
        yield quiet


def moved(to: str) -> CannedResponse:
    return CannedResponse(302, "", {"Location": to})


WRONG: Final[dict[str, Fault]] = {
    "to another host": moved("https://cdn.example.com/video.mp4"),
    "to a link-local address": moved("https://169.254.169.254/latest/meta-data"),
    "to this machine": moved("//[::1]/video.mp4"),
    "to another protocol": moved("ftp://127.0.0.1/video.mp4"),
    "to no address": moved("http://["),
    "to itself": moved("?again"),
    "HTML": CannedResponse(200, "<html>Sign in to watch</html>"),
    "empty": CannedResponse(200, b""),
    "too large": CannedResponse(200, MP4 + bytes(200_000)),
    "too large, in chunks": CannedResponse(200, MP4 + bytes(200_000), chunked=True),
    "404": CannedResponse(404, "Gone"),
    "reset": Reset(),
    "no answer": Hang(),
}


@pytest.mark.parametrize("fault", WRONG.values(), ids=WRONG)
async def test_what_is_no_video_from_an_allowed_host_leaves_the_link(
    fault: Fault, quiet: World
) -> None:
    limit = timedelta(seconds=0.2 if isinstance(fault, Hang) else 20)
    quiet.timings = replace(quiet.timings, max_video_bytes=200_000, transfer_timeout=limit)
    quiet.service.faults.always(DOWNLOAD, fault)
    async with quiet.running_bot(MEDIA_HOSTS=HERE):
        await quiet.settle()
        await makes_a_video(quiet, minutes=30)
    only_the_link(quiet)
    assert not quiet.calls(GET_URL)
    # A host that may answer later is asked 13 times. A broken connection is tried again at once.
    assert 1 <= len(quiet.service.downloads.paths) <= 2 * 13


async def test_a_redirect_to_another_name_of_an_allowed_host_is_not_followed(shown: World) -> None:
    world = shown
    world.service.faults.next(
        DOWNLOAD, moved(f"http://localhost:{urlsplit(world.service.url).port}/files/anna.mp4")
    )
    world.service.add_replica("anna", "Anna")
    await makes_a_video(world)
    only_the_link(world)
    assert len(world.service.downloads.paths) == 1


async def test_a_redirect_to_an_allowed_host_and_a_moment_without_it_do_no_harm(
    shown: World,
) -> None:
    world = shown
    world.service.faults.next(
        DOWNLOAD, Reset(), CannedResponse(429, "Wait"), moved("?signed=1"), moved("?signed=2")
    )
    await makes_a_video(world)
    one_video(world)
    assert len(world.service.downloads.paths) == 5


async def test_without_a_folder_for_temporary_files_the_link_is_left_and_the_log_says_why(
    shown: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    await makes_a_video(shown)
    only_the_link(shown)
    [row] = shown.query("SELECT state, due_at FROM deliveries WHERE role = 'clip'")
    assert row == {"state": "undeliverable", "due_at": None}
    [said] = [each.__dict__["reason"] for each in caplog.records if "not shared" in each.message]
    assert said == "no temporary file can be written: No such file or directory"


@pytest.mark.parametrize(
    ("link", "hosts"),
    [
        ("https://videos.example.com/v.mp4", "cdn.example.com"),
        ("https://cdn.example.com.evil.example/v.mp4", "cdn.example.com"),
        ("https://example.com/v.mp4", "*.example.com"),
        ("http://cdn.example.com/v.mp4", "cdn.example.com"),
        ("https://cdn.example.com:8443/v.mp4", "cdn.example.com"),
    ],
)
async def test_only_listed_hosts_are_called_and_over_https(
    link: str, hosts: str, quiet: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = note_names(monkeypatch)
    quiet.service.next_video(Scenario(overrides={"download_url": link}))
    async with quiet.running_bot(MEDIA_HOSTS=hosts):
        await quiet.settle()
        await makes_a_video(quiet)
    only_the_link(quiet)
    assert not asked


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
async def test_a_name_that_leads_to_a_private_address_is_not_connected_to(
    address: str, quiet: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name may have a public address whenever somebody asks, and this one for the connection."""
    world, connected = quiet, asyncio.Event()

    async def accept(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
        connected.set()

    async with contextlib.AsyncExitStack() as stack:
        server = listening(accept, address.removeprefix("::ffff:"))
        try:
            port = await stack.enter_async_context(server)
        except OSError:
            pytest.skip("this machine has no IPv6")
        asked = note_names(monkeypatch, address, port)
        link = "https://a.cdn.example.com/v.mp4"
        world.service.next_video(Scenario(overrides={"download_url": link}))
        async with world.running_bot(MEDIA_HOSTS="*.example.com"):
            await world.settle()
            await makes_a_video(world)
            only_the_link(world)
    assert asked == ["a.cdn.example.com"]
    assert not connected.is_set()


async def test_behind_a_proxy_the_proxy_connects(
    quiet: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, asked = quiet, note_names(monkeypatch)
    link = "https://cdn.example.com/v.mp4"
    world.service.next_video(Scenario(overrides={"download_url": link}))
    async with (
        Proxy().running() as proxy,
        world.running_bot(MEDIA_HOSTS="CDN.example.com", HTTPS_PROXY=proxy.url),
    ):
        await world.settle()
        await makes_a_video(world)
    only_the_link(world)
    assert set(proxy.asked) == {"CONNECT cdn.example.com:443"}
    assert not asked


def note_names(monkeypatch: pytest.MonkeyPatch, address: str = "", port: int = 0) -> list[str]:
    """Note which names below example are resolved; they have this address and port."""
    asked, resolve = list[str](), socket.getaddrinfo
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    place = (address, port, 0, 0) if ":" in address else (address, port)

    def resolved(host: str, *arguments: object, **options: object) -> object:
        if "example" not in str(host):
            return resolve(host, *arguments, **options)  # type: ignore[arg-type]
        asked.append(host)
        return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", place)]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    return asked


async def test_socket_mode_connects_to_no_unencrypted_address_and_follows_no_redirect(
    quiet: World, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    quiet.socket_mode, quiet.timings = True, QUICK
    url = listener.server.url
    for address in (f"{url.replace('http', 'ws', 1)}/link/?ticket=t1cket", f"{url}/", "file:///x"):
        quiet.slack.faults.next(OPEN, CannedResponse(body={"ok": True, "url": address}))
    redirect = CannedResponse(302, "", {"Location": f"{url}/?ticket=t1cket"})
    quiet.slack.faults.next(OPEN, redirect)
    quiet.slack.faults.next(LINK, redirect)
    async with quiet.running_bot():
        assert (await quiet.ana.command("/video", "help")).ok
    assert listener.requests == []
    assert logged(caplog) == ["Socket Mode is down", "Socket Mode is back"]
    assert "t1cket" not in caplog.text
    assert not quiet.slack.faults.waiting()


@pytest.mark.parametrize("status", [301, 303, 307])
async def test_no_redirect_of_slacks_is_followed_with_a_text_or_a_token(
    status: int, listener: Listener
) -> None:
    app = web.Application()
    headers = {"Location": f"{listener.server.url}/taken"}

    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, headers=headers)

    app.router.add_route("*", "/{path:.*}", answer)
    server = Server(app)
    await server.start()
    try:
        async with open_session(None) as session:
            client = web_client("xoxb-1", f"{server.url}/", session)
            with pytest.raises(Uncertain):
                async with translated(Timings().call_timeout):
                    await client.chat_postMessage(channel="C1", text="A script.")
            with pytest.raises(Uncertain):
                async with translated(Timings().call_timeout):
                    await session.post(f"{server.url}/", json={"text": "A script."})
    finally:
        await server.stop()
    assert listener.requests == []
