"""Socket Mode: what Slack sends, over connections that the bot opens.

https://docs.slack.dev/apis/events-api/using-socket-mode
"""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Final

from aiohttp import ClientSession, ClientWebSocketResponse, ClientWSTimeout, WSMsgType
from slack_bolt.async_app import AsyncApp
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_bolt.response import BoltResponse

from bot.errors import OutsideError, Refused, Unavailable
from bot.log import word
from bot.metrics import Metrics
from bot.outages import Outages
from bot.service.errors import cause_of
from bot.slack.client import is_slacks, open_session
from bot.slack.context import HandlerContext
from bot.slack.errors import translated
from bot.slack.views.blocks import Json
from bot.tasks import BackgroundTasks, RequestPriority
from bot.timings import doubled

_LOG: Final = logging.getLogger(__name__)
_CLOSE_TIMEOUT_S: Final = 1.0
_REMEDY: Final = (
    "is SLACK_APP_TOKEN right, with the scope connections:write, and Socket Mode switched on in "
    "the Slack app?"
)


class SocketMode:
    """Opens a connection to Slack, answers what comes on it, and replaces it when it ends.

    Each envelope is answered on the connection that it came on. The SDK's client would close the
    old connection before it opens the next one, try the same address again, which is valid once,
    and log it (https://github.com/slackapi/python-slack-sdk/issues/1446,
    https://github.com/slackapi/python-slack-sdk/issues/1922).

    Slack sends again what is not acknowledged. As over HTTP, the database keeps what comes twice
    from happening twice.
    """

    def __init__(
        self,
        bolt: AsyncApp,
        ctx: HandlerContext,
        app_token: str,
        *,
        proxy_for: Callable[[str], str | None],
        priority: RequestPriority,
        metrics: Metrics,
    ) -> None:
        self._bolt = bolt
        self._ctx = ctx
        self._app_token = app_token
        self._proxy_for = proxy_for
        self._priority = priority
        self._metrics = metrics
        self._outages = Outages("Socket Mode", ctx.clock)
        self._current: _Connection | None = None
        self._connections: set[_Connection] = set()
        self._receivers = BackgroundTasks()
        self.last_received_at: datetime | None = None
        """When the last message of Slack came, if only a ping."""

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection to Slack now."""
        return self._current is not None and not self._current.socket.closed

    async def run(self) -> None:
        """Keep a connection open until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            connection = await self._connect()
            opened_at = loop.time()
            old, self._current = self._current, connection
            _LOG.info("Socket Mode is connected")
            self._ctx.installation.announce()
            if old is not None:
                self._receivers.spawn(self._retire(old))
            await connection.replace.wait()
            why = connection.reason or connection.cause
            _LOG.info("a connection of Socket Mode has ended", extra={"reason": why})
            # One that worked is replaced however often one ends; only what is refused backs off.
            next_opening = opened_at + self._ctx.timings.reconnect_interval.total_seconds()
            await asyncio.sleep(next_opening - loop.time())

    async def stop(self, timeout: timedelta) -> None:  # noqa: ASYNC109 - closes them at the end
        """Take no more envelopes, answer those that came for at most ``timeout``, and close."""
        await self._receivers.stop(timedelta(0))
        await asyncio.gather(*(each.answers.stop(timeout) for each in self._connections))
        await asyncio.gather(*(each.close() for each in self._connections))

    async def _connect(self) -> "_Connection":
        """Return a connection on which Slack has said hello; try again until there is one."""
        failures, refusal = 0, ""
        while True:
            try:
                connection = await self._open()
            except OutsideError as error:
                failures += 1
                wait = doubled(
                    self._ctx.timings.reconnect_interval,
                    failures,
                    self._ctx.timings.max_reconnect_interval,
                )
                if error.retry_after is not None:
                    wait = max(wait, min(error.retry_after, self._ctx.timings.max_socket_wait))
                if not isinstance(error, Refused):
                    self._outages.failed(error.cause or "unavailable")
                elif error.code != refusal:
                    refusal = error.code
                    extra = {"code": refusal, "remedy": _REMEDY}
                    _LOG.error("Slack refuses to open a connection of Socket Mode", extra=extra)
                await asyncio.sleep(wait.total_seconds())
            else:
                self._outages.answered()
                return connection

    async def _open(self) -> "_Connection":
        """Return a new connection on which Slack has said hello.

        Raises:
            OutsideError: there is none.
        """
        async with translated(self._ctx.timings.call_timeout), contextlib.AsyncExitStack() as stack:
            answer = await self._ctx.client.apps_connections_open(app_token=self._app_token)
            url = str(answer.get("url"))
            # Without encryption, only to where the bot calls Slack so: that is a test.
            if not (
                url.startswith("wss://")
                or is_slacks(url.replace("ws", "http", 1), self._ctx.client.base_url)
            ):
                raise Unavailable("Slack named an unencrypted address.", cause="tls")
            session = await stack.enter_async_context(open_session(self._proxy_for(url)))
            socket = await session.ws_connect(
                url,
                autoping=False,
                # A silent connection ends after one and a half of these: no pong came.
                heartbeat=self._ctx.timings.socket_heartbeat.total_seconds(),
                timeout=ClientWSTimeout(ws_close=_CLOSE_TIMEOUT_S),
            )
            connection = _Connection(session, socket, self)
            self._receivers.spawn(connection.receive())
            await connection.wait_for_hello()
            stack.pop_all()
        self._connections.add(connection)
        return connection

    async def _retire(self, connection: "_Connection") -> None:
        """Close a connection that was replaced, once its envelopes are answered."""
        await connection.answers.settled()
        await connection.close()
        self._connections.discard(connection)

    def note_received(self) -> None:
        """Note that something came on a connection."""
        self.last_received_at = self._ctx.clock.now()

    async def answer(self, connection: "_Connection", envelope_id: str, payload: Json) -> None:
        """Answer an envelope on the connection that it came on."""
        began = time.perf_counter()
        with self._priority.request():
            try:
                request = AsyncBoltRequest(mode="socket_mode", body=payload)
                await connection.send(envelope_id, await self._bolt.async_dispatch(request))
            except ConnectionError:
                _LOG.warning("an answer to Slack could not be sent: its connection has ended")
            except Exception as error:  # noqa: BLE001 - Bolt raises for shapes it does not expect
                _LOG.error("a Slack request cannot be read", extra={"error": type(error).__name__})
        self._metrics.acknowledged(payload, time.perf_counter() - began)


class _Connection:
    """One connection, from its opening to its end."""

    def __init__(
        self,
        session: ClientSession,
        socket: ClientWebSocketResponse,
        owner: SocketMode,
    ) -> None:
        self.replace = asyncio.Event()
        """Set when another connection is needed: Slack says so, or this one has ended."""
        self.reason = ""
        """Slack's reason to end it, if it said one."""
        self.answers = BackgroundTasks()
        """To its envelopes."""
        self._session = session
        self.socket = socket
        self._owner = owner
        self._is_greeted = False
        self._greeted_or_ended = asyncio.Event()

    @property
    def cause(self) -> str:
        """Why it has ended: a word of ``bot.service.errors``, or "closed"."""
        error = self.socket.exception()
        return "closed" if error is None else cause_of(error)

    async def receive(self) -> None:
        """Take what comes, until the connection ends."""
        try:
            async for message in self.socket:
                self._owner.note_received()
                if message.type is WSMsgType.PING:
                    await self.socket.pong(message.data)
                elif message.type is WSMsgType.TEXT:
                    self._read(message.data)
        except ConnectionError:  # it ended before the pong was sent
            pass
        finally:
            self._greeted_or_ended.set()
            self.replace.set()

    async def wait_for_hello(self) -> None:
        """Return once Slack has said hello.

        Raises:
            Unavailable: the connection ended before that.
        """
        await self._greeted_or_ended.wait()
        if not self._is_greeted:
            raise Unavailable("Slack said no hello.", cause=self.reason or self.cause)

    async def close(self) -> None:
        """Close it, in little more than a second."""
        await self.socket.close()
        await self._session.close()

    async def send(self, envelope_id: str, response: BoltResponse) -> None:
        """Send the answer to an envelope. One that failed is not acknowledged: it comes again."""
        if response.status == HTTPStatus.OK:
            payload = {"payload": json.loads(response.body)} if response.body else {}
            await self.socket.send_json({"envelope_id": envelope_id, **payload})

    def _read(self, text: str) -> None:
        try:
            message = json.loads(text)
        except (ValueError, RecursionError):
            message = None
        match message:
            case {"type": "hello"}:
                self._is_greeted = True
                self._greeted_or_ended.set()
            case {"type": "disconnect"}:
                self.reason = word(str(message.get("reason")))
                self.replace.set()
            # Bolt reads the type of an event before any check of ours.
            case {"type": str(), "envelope_id": str(id_), "payload": dict(payload)} if isinstance(
                payload.get("event", {}), dict
            ):
                self.answers.spawn(self._owner.answer(self, id_, payload))
            case _:
                _LOG.error("a message of Slack cannot be read: it is no envelope")
