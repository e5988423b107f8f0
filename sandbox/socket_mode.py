"""Socket Mode: Slack's requests as envelopes over WebSockets that the app opens.

https://docs.slack.dev/apis/events-api/using-socket-mode
"""

import asyncio
import contextlib
import itertools
import json
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from http import HTTPStatus
from typing import Final, Literal, TypeAlias
from uuid import uuid4

from aiohttp import WSCloseCode, WSMsgType, hdrs, web

from sandbox.block_kit import Json
from sandbox.slack_objects import SlackError

EnvelopeType: TypeAlias = Literal["slash_commands", "interactive", "events_api"]
#: ``too_many_websockets`` is not in the documentation; the SDKs know it:
#: https://github.com/slackapi/node-slack-sdk/issues/1654.
DisconnectReason: TypeAlias = Literal[
    "warning", "refresh_requested", "link_disabled", "too_many_websockets"
]

Hook: TypeAlias = Callable[[Literal["before", "after"], Json], Awaitable[None]]

#: The name of the method that returns the address of a WebSocket.
OPEN: Final = "apps.connections.open"
#: The path of a WebSocket's address.
LINK: Final = "/link/"
_MAX_CONNECTIONS: Final = 10
_HOST: Final = "applink-sandbox"
# For an answer, in real time, as over HTTP.
_TIMEOUT: Final = timedelta(seconds=3)
_PATIENCE_S: Final = 30.0


@dataclass(eq=False)
class _Envelope:
    """What is sent until it is acknowledged."""

    body: Json
    answered: asyncio.Future[Json]
    sent_on: "list[Connection]" = field(default_factory=list)

    @property
    def id(self) -> str:
        return str(self.body["envelope_id"])


@dataclass(eq=False)
class Connection:
    """A WebSocket of the app.

    Attributes:
        is_silent: nothing is read from it or sent on it any more, and it stays open.
        acknowledged: the ids of the envelopes that were acknowledged on it.
    """

    socket: web.WebSocketResponse
    is_silent: bool = False
    acknowledged: list[str] = field(default_factory=list)

    async def send(self, message: Json) -> None:
        """Send a message, unless the connection is silent or gone."""
        if not self.is_silent:
            with contextlib.suppress(ConnectionError):
                await self.socket.send_json(message)


class SocketMode:
    """The connections of an app that uses Socket Mode, and what is sent on them.

    An envelope goes to one connection, now this one, now that one. If that connection ends before
    the envelope is acknowledged, or no answer comes within three seconds, the same envelope is sent
    once more, on another connection or the next one, as was seen with Slack:
    https://github.com/slackapi/bolt-js/issues/2487, https://github.com/slackapi/bolt-js/issues/2188.

    Attributes:
        app_token: the app-level token, with the scope ``connections:write``.
        enabled: whether Slack's requests are sent here, and not to the request URL.
        delivers_twice: whether each envelope is sent twice at once.
        connections: the open ones that have been greeted, the oldest first.
        opened: how many connections were greeted.
        refused: messages of the app that Slack would not understand.
        on_envelope: awaited with the payload before an envelope is sent, and before its answer is
            taken, which is lost if this raises ``ConnectionError``.
        response_timeout: how long an answer may take, in real time.
    """

    def __init__(self, app_id: str) -> None:
        self.app_token = f"xapp-1-{app_id}-4711-{secrets.token_hex(16)}"
        self.enabled = False
        self.delivers_twice = False
        self.connections: list[Connection] = []
        self.opened = 0
        self.refused: list[object] = []
        self.on_envelope: Hook | None = None
        self.response_timeout = _TIMEOUT
        self._app_id = app_id
        self._tickets: set[str] = set()
        self._envelopes: dict[str, _Envelope] = {}
        self._waiting: deque[_Envelope] = deque()
        self._numbers = itertools.count()
        self._changed = asyncio.Condition()

    def authenticate(self, method: str, token: str) -> None:
        """Check a token that begins as an app-level token does, or that of ``OPEN``.

        https://docs.slack.dev/reference/methods/apps.connections.open#errors

        Raises:
            SlackError: it is not the one for the method.
        """
        if method != OPEN or token.startswith(("xoxb-", "xoxp-")):
            raise SlackError("not_allowed_token_type")
        if token != self.app_token:
            raise SlackError("invalid_auth")

    def open(self, url: str) -> Json:
        """Return the address of a WebSocket below ``url``, which is valid once."""
        ticket = secrets.token_urlsafe(24)
        self._tickets.add(ticket)
        return {"url": f"{url.replace('http', 'ws', 1)}{LINK}?ticket={ticket}"}

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Serve a WebSocket until it ends."""
        ticket = request.query.get("ticket", "")
        if ticket not in self._tickets or hdrs.UPGRADE not in request.headers:
            return web.Response(status=HTTPStatus.FORBIDDEN)
        self._tickets.discard(ticket)
        socket = web.WebSocketResponse(autoping=False, heartbeat=30.0)
        try:
            await socket.prepare(request)
        except ConnectionError:  # the bot was killed while it waited
            return web.Response()
        connection = Connection(socket)
        if len(self.connections) >= _MAX_CONNECTIONS:
            await connection.send(_disconnect("too_many_websockets"))
            await socket.close()
            return socket
        await connection.send(self._hello())
        await self._set_open(connection, is_open=True)
        try:
            # Slack pings, too: the Node SDK gives a connection up without (serverPingTimeout).
            with contextlib.suppress(ConnectionError):  # of a bot that has just been killed
                await socket.ping(b"Ping from applink-sandbox")
            while self._waiting and not connection.is_silent:
                await self._send(self._waiting.popleft())
            await self._receive(connection)
        finally:
            await self._set_open(connection, is_open=False)
            for envelope in tuple(self._envelopes.values()):
                if envelope.sent_on[-1:] == [connection]:
                    await self._send(envelope)
        return socket

    async def deliver(self, kind: EnvelopeType, payload: Json, *, retry: int = 0) -> Json | None:
        """Send a request in an envelope; return the app's answer, or None if none comes in time.

        ``retry`` is the number of the retry of an event.
        """
        body: Json = {
            "envelope_id": str(uuid4()),
            "type": kind,
            "accepts_response_payload": kind != "events_api",
            "payload": payload,
        }
        if kind == "events_api":
            body |= {"retry_attempt": retry, "retry_reason": "timeout" if retry else ""}
        envelope = _Envelope(body, asyncio.get_running_loop().create_future())
        self._envelopes[envelope.id] = envelope
        if self.on_envelope is not None:
            await self.on_envelope("before", payload)
        for _ in range(2 if self.delivers_twice else 1):
            await self._send(envelope)
        try:
            async with asyncio.timeout(self.response_timeout.total_seconds()):
                return await asyncio.shield(envelope.answered)
        except TimeoutError:
            if kind == "events_api":  # the event itself is sent again
                self._forget(envelope)
            else:
                await self._send(envelope)
            return None

    # ── What goes wrong ───────────────────────────────────────────────────────────────────────────

    async def disconnect(self, reason: DisconnectReason, *, close: bool = True) -> None:
        """Ask for all connections to be replaced, as Slack does every few hours, and close them.

        ``close=False`` leaves them open for now: Slack may warn ten seconds ahead.
        """
        if reason == "link_disabled":
            self.enabled = False
        for connection in tuple(self.connections):
            await connection.send(_disconnect(reason))
            if close:
                await connection.socket.close()

    async def close(self) -> None:
        """Close all connections without a word before."""
        for connection in tuple(self.connections):
            await connection.socket.close(code=WSCloseCode.GOING_AWAY)

    def go_silent(self) -> None:
        """Read and send nothing any more on the connections that are open now."""
        for connection in self.connections:
            connection.is_silent = True

    async def reached(self, *, opened: int = 1, connections: int = 1) -> None:
        """Wait until ``opened`` connections were greeted in all and ``connections`` are open.

        Raises:
            TimeoutError: that takes longer than ten seconds, in real time.
        """
        async with asyncio.timeout(_PATIENCE_S), self._changed:
            await self._changed.wait_for(
                lambda: self.opened >= opened and len(self.connections) == connections
            )

    def stop(self) -> None:
        """Forget what was not answered."""
        for envelope in tuple(self._envelopes.values()):
            self._forget(envelope)
        self._waiting.clear()

    # ── Envelopes ─────────────────────────────────────────────────────────────────────────────────

    async def _send(self, envelope: _Envelope) -> None:
        """Send an envelope on a connection, at most twice, or keep it until there is one."""
        maximum = 4 if self.delivers_twice else 2
        if len(envelope.sent_on) >= maximum:
            self._forget(envelope)
        elif self.connections:
            # Any of them: https://docs.slack.dev/apis/events-api/using-socket-mode#connections
            at = next(self._numbers) % len(self.connections)
            connection = self.connections[at]
            envelope.sent_on.append(connection)
            await connection.send(envelope.body)
        elif envelope not in self._waiting:
            self._waiting.append(envelope)

    async def _receive(self, connection: Connection) -> None:
        async for message in connection.socket:
            if connection.is_silent:
                continue
            if message.type is WSMsgType.PING:
                with contextlib.suppress(ConnectionError):  # it was killed after that
                    await connection.socket.pong(message.data)
            elif message.type is WSMsgType.TEXT:
                await self._take(connection, message.data)

    async def _take(self, connection: Connection, text: str) -> None:
        try:
            answer = json.loads(text)
        except ValueError:
            self.refused.append(text)
            return
        known = isinstance(answer, dict) and answer.keys() <= {"envelope_id", "payload"}
        if not known or not isinstance(answer.get("envelope_id"), str):
            self.refused.append(answer)
            return
        connection.acknowledged.append(answer["envelope_id"])
        envelope = self._envelopes.get(answer["envelope_id"])
        if envelope is None:  # the second answer to what was sent twice, or one that is late
            return
        accepts = envelope.body["accepts_response_payload"]
        # Whether Slack takes an answer from another connection is not documented.
        if connection not in envelope.sent_on or (answer.get("payload") and not accepts):
            self.refused.append(answer)
            return
        if self.on_envelope is not None:
            try:
                await self.on_envelope("after", envelope.body["payload"])
            except ConnectionError:
                return
        if not envelope.answered.done():
            envelope.answered.set_result(answer)
        self._forget(envelope)

    def _forget(self, envelope: _Envelope) -> None:
        self._envelopes.pop(envelope.id, None)
        with contextlib.suppress(ValueError):
            self._waiting.remove(envelope)

    async def _set_open(self, connection: Connection, *, is_open: bool) -> None:
        async with self._changed:
            if is_open:
                self.connections.append(connection)
                self.opened += 1
            else:
                self.connections.remove(connection)
            self._changed.notify_all()

    def _hello(self) -> Json:
        return {
            "type": "hello",
            "connection_info": {"app_id": self._app_id},
            "num_connections": len(self.connections) + 1,
            "debug_info": {
                "host": _HOST,
                "started": "2026-03-02 09:00:00.000",
                "build_number": 54,
                "approximate_connection_time": 18060,
            },
        }


def _disconnect(reason: DisconnectReason) -> Json:
    return {"type": "disconnect", "reason": reason, "debug_info": {"host": _HOST}}
