"""Calls to the outside: the one rule for proxies, and the limit on Slack's answers."""

import tracemalloc
import zlib
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from bot.errors import Uncertain
from bot.ops.doctor import examine
from bot.settings import Settings, SettingsError
from bot.slack.client import open_session, web_client
from bot.slack.errors import translated
from bot.timings import Timings
from sandbox.delivery import deliver
from sandbox.http import Server
from tests.invalid_input import command
from tests.proxy import Proxy
from tests.world import World

MIB = 1024 * 1024

# ── Proxies ───────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    async with Proxy().running() as proxy:
        yield proxy


BOTH = {"SLACK_API_URL": "https://slack.example/api/", "VIDEO_API_URL": "https://videos.example"}
SLACK, SERVICE = "CONNECT slack.example:443", "CONNECT videos.example:443"


async def test_slack_and_the_service_are_called_through_the_proxy_of_the_environment(
    quiet_world: World, proxy: Proxy
) -> None:
    world = quiet_world
    async with world.running_bot(SLACK_API_URL=BOTH["SLACK_API_URL"], HTTPS_PROXY=proxy.url):
        await deliver(world.slack, command(world, ""))
        await world.settle()
    assert set(proxy.asked) == {SLACK}
    proxy.asked.clear()
    admin, service = world.ana.user.id, BOTH["VIDEO_API_URL"]
    async with world.running_bot(VIDEO_API_URL=service, HTTPS_PROXY=proxy.url, ADMIN_USERS=admin):
        await deliver(world.slack, command(world, "status some-id"))
        await world.settle()
    assert set(proxy.asked) == {SERVICE}


async def test_doctor_calls_through_the_proxy_too(quiet_world: World, proxy: Proxy) -> None:
    environ = quiet_world.environment("0") | BOTH | {"https_proxy": proxy.url}
    findings = {finding.name: finding async for finding in examine(environ)}
    assert not findings["Slack"].ok
    assert set(proxy.asked) == {SLACK, SERVICE}


async def test_hosts_in_no_proxy_are_called_directly(quiet_world: World, proxy: Proxy) -> None:
    environ = quiet_world.environment("0") | BOTH | {"HTTPS_PROXY": proxy.url}
    _ = [finding async for finding in examine(environ | {"NO_PROXY": "slack.example"})]
    assert set(proxy.asked) == {SERVICE}
    proxy.asked.clear()
    _ = [finding async for finding in examine(environ | {"NO_PROXY": ".example"})]
    assert proxy.asked == []


async def test_this_machine_is_called_without_a_proxy(quiet_world: World, proxy: Proxy) -> None:
    async with quiet_world.running_bot(HTTPS_PROXY=proxy.url, HTTP_PROXY=proxy.url):
        await quiet_world.request_video(quiet_world.ana)
    assert proxy.asked == []


async def test_slacks_library_does_not_look_for_a_proxy_itself(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"):
        monkeypatch.setenv(name, proxy.url)
    async with open_session(None) as session:
        assert web_client("xoxb-1", "https://slack.example/api/", session).proxy is None


def test_what_is_no_proxy_is_refused(quiet_world: World, subtests: pytest.Subtests) -> None:
    for url in ("proxy:3128", "https://proxy:3128", "http://:1", "http://a:b"):
        with (
            subtests.test(url=url),
            pytest.raises(SettingsError, match=r"HTTPS_PROXY is not the address of a proxy"),
        ):
            Settings.read(quiet_world.environment("0") | {"HTTPS_PROXY": url})


# ── Answers ───────────────────────────────────────────────────────────────────────────────────


async def test_an_answer_of_slacks_is_read_up_to_a_limit_however_it_is_compressed() -> None:
    packer = zlib.compressobj(9, wbits=31)
    packed = b"".join(packer.compress(b" " * MIB) for _ in range(200)) + packer.flush()
    app = web.Application()

    async def answer(_: web.Request) -> web.Response:
        headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
        return web.Response(body=packed, headers=headers)

    app.router.add_post("/{path:.*}", answer)
    server = Server(app)
    await server.start()
    tracemalloc.start()
    try:
        async with open_session(None) as session:
            client = web_client("xoxb-1", f"{server.url}/", session)
            with pytest.raises(Uncertain):
                async with translated(Timings().call_timeout):
                    await client.api_call("chat.postMessage")
            with pytest.raises(Uncertain):
                async with translated(Timings().call_timeout):
                    await (await session.post(f"{server.url}/", json={"text": "x"})).read()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        await server.stop()
    assert peak < 50 * MIB, "200 MiB were decompressed"
