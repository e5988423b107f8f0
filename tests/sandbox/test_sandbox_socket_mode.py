"""The sandbox's Socket Mode is as strict as Slack's.

https://docs.slack.dev/apis/events-api/using-socket-mode
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from sandbox.clock import ManualClock
from sandbox.slack import SandboxSlack
from sandbox.socket_mode import OPEN


@pytest.fixture
async def slack() -> AsyncIterator[SandboxSlack]:
    slack = SandboxSlack(ManualClock())
    await slack.start()
    yield slack
    await slack.stop()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def call(slack: SandboxSlack, session: aiohttp.ClientSession, method: str, token: str) -> Any:  # noqa: ANN401 - JSON
    headers = {"Authorization": f"Bearer {token}"}
    async with session.post(slack.api_url + method, headers=headers) as answer:
        return await answer.json()


class App:
    """A program that opens connections and acknowledges what it is told to."""

    def __init__(self, slack: SandboxSlack, session: aiohttp.ClientSession) -> None:
        self._slack, self._session = slack, session

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        opened = await call(self._slack, self._session, OPEN, self._slack.socket_mode.app_token)
        async with self._session.ws_connect(opened["url"]) as socket:
            yield socket


async def test_only_the_app_level_token_opens_a_connection_and_it_does_nothing_else(
    slack: SandboxSlack, session: aiohttp.ClientSession
) -> None:
    app_token = slack.socket_mode.app_token
    refused = {
        (OPEN, slack.bot_token): "not_allowed_token_type",
        (OPEN, "xapp-1-other"): "invalid_auth",
        ("auth.test", app_token): "not_allowed_token_type",
    }
    for (method, token), error in refused.items():
        assert (await call(slack, session, method, token))["error"] == error
    url = (await call(slack, session, OPEN, app_token))["url"]
    async with session.ws_connect(url) as socket:
        hello = await socket.receive_json()
    assert (hello["type"], hello["num_connections"]) == ("hello", 1)
    # An address is valid once.
    with pytest.raises(aiohttp.WSServerHandshakeError):
        await session.ws_connect(url)
    assert app_token not in str([slack.wire.shown(each) for each in slack.wire.exchanges])
    assert url.partition("ticket=")[2] not in str(list(map(slack.wire.shown, slack.wire.exchanges)))


async def test_messages_of_another_shape_and_answers_that_are_not_accepted_are_noted(
    slack: SandboxSlack, session: aiohttp.ClientSession
) -> None:
    app = App(slack, session)
    async with app.connected() as socket, app.connected() as other:
        for each in (socket, other):
            await each.receive_json()
        answered = asyncio.ensure_future(  # noqa: TID251 - awaited below
            slack.socket_mode.deliver("events_api", {"type": "event_callback"})
        )
        envelope = await socket.receive_json()
        assert (envelope["retry_attempt"], envelope["retry_reason"]) == (0, "")
        acknowledged = {"envelope_id": envelope["envelope_id"]}
        with_payload = acknowledged | {"payload": {"text": "Hi"}}
        await socket.send_str("{")
        await socket.send_json({"id": 1})
        # An event takes no payload: https://docs.slack.dev/apis/events-api/using-socket-mode
        await socket.send_json(with_payload)
        await socket.send_json(acknowledged)
        assert await answered == acknowledged
    assert slack.socket_mode.refused == ["{", {"id": 1}, with_payload]
