"""Addresses that Slack, or what answers in its place, sends the bot to: none is called."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from bot.errors import Uncertain
from bot.slack.client import open_session, web_client
from bot.slack.errors import translated
from bot.timings import Timings
from sandbox.faults import CannedResponse
from sandbox.http import Server
from sandbox.socket_mode import LINK, OPEN
from tests.slack.test_socket_mode_connections import QUICK, logged
from tests.world import World


class Elsewhere:
    """A server that is not Slack's, and what was asked of it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self.server = Server(app)

    async def _answer(self, request: web.Request) -> web.Response:
        self.asked.append(f"{request.method} {request.path}")
        return web.json_response({"ok": True})


@pytest.fixture
async def elsewhere() -> AsyncIterator[Elsewhere]:
    elsewhere = Elsewhere()
    await elsewhere.server.start()
    yield elsewhere
    await elsewhere.server.stop()


async def test_socket_mode_connects_to_no_unencrypted_address_and_follows_no_redirect(
    quiet_world: World, elsewhere: Elsewhere, caplog: pytest.LogCaptureFixture
) -> None:
    world = quiet_world
    world.socket_mode, world.timings = True, QUICK
    url = elsewhere.server.url
    for address in (f"{url.replace('http', 'ws', 1)}/link/?ticket=t1cket", f"{url}/", "file:///x"):
        world.slack.faults.next(OPEN, CannedResponse(body={"ok": True, "url": address}))
    redirect = CannedResponse(302, "", {"Location": f"{url}/?ticket=t1cket"})
    world.slack.faults.next(OPEN, redirect)
    world.slack.faults.next(LINK, redirect)
    async with world.running_bot():
        assert (await world.ana.command("/video", "help")).ok
    assert elsewhere.asked == []
    assert logged(caplog) == ["Socket Mode is down", "Socket Mode is back"]
    assert "t1cket" not in caplog.text
    assert not world.slack.faults.waiting()


@pytest.mark.parametrize("status", [301, 303, 307])
async def test_no_redirect_of_slacks_is_followed_with_a_text_or_a_token(
    status: int, elsewhere: Elsewhere
) -> None:
    app = web.Application()
    headers = {"Location": f"{elsewhere.server.url}/taken"}

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
    assert elsewhere.asked == []
