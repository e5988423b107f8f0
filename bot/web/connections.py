"""The HTTP server's connections: limits on their number, and on a request's time and memory.

Anyone on the internet can open connections and send nothing, a little at a time, or too much.

These guards override methods of aiohttp's protocol. Other servers for Python do not replace them:
granian and hypercorn limit the time for a request's head or between two reads, uvicorn neither,
and none of them closes the oldest connection of too many, limits the time for a body, or the
memory of all unfinished requests together. tests/web/test_connections.py fails if aiohttp changes.
"""

import asyncio
import contextlib
import resource
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from http import HTTPStatus
from typing import Final

from aiohttp import StreamReader, hdrs, web

# Longer than proxies keep an idle connection (usually a minute), so that they close it first.
_KEEP_ALIVE_S: Final = 75.0
# The limit on open files that the process asks for. Half of them may be connections.
_MAX_OPEN_FILES: Final = 4096
_BACKLOG: Final = 128
# Slack and the proxy in front send about 20. Small headers take 50 times their size in memory.
_MAX_HEADERS: Final = 64
# Of all requests together that nobody is known to have sent: where it is exceeded, the oldest go.
# Slack's come complete, a few kB within milliseconds, so theirs are never the oldest.
_MAX_UNVERIFIED_BYTES: Final = 8 * 1024 * 1024
# What the system keeps of a connection until the bot reads it, all at once: read in portions of
# asyncio's 256 KiB, 2,000 bodies took 167 MB instead of 67.
_RECEIVE_BUFFER_BYTES: Final = 16 * 1024
# What the bot reads of a connection before it turns to others and to complete requests.
_READ_BYTES: Final = 2 * 1024
# What a line takes in memory besides its own bytes: a chunk of one byte takes 110, in two lines.
_BYTES_PER_LINE: Final = 50
_CONTINUE: Final = "100-continue"


class LimitedServer:
    """An HTTP server that closes connections which are idle, slow, too many or too large.

    Each request's head must arrive within ``receive_timeout``, and so must its body. Where there
    are too many connections, the oldest are closed; where unfinished requests are too large
    together, those that began first. Protected connections stay.
    """

    def __init__(
        self, app: web.Application, *, receive_timeout: timedelta, shutdown_timeout: timedelta
    ) -> None:
        app.on_response_prepare.append(_finish_headers)
        self._receive_timeout_s = receive_timeout.total_seconds()
        self._runner = web.AppRunner(app, shutdown_timeout=shutdown_timeout.total_seconds())
        self._listener: asyncio.Server
        self._connections = _Connections(_allowed_open_files() // 2)

    async def start(self, host: str, port: int) -> int:
        """Accept connections; return the port, which the system chooses where ``port`` is 0.

        Raises:
            OSError: the address cannot be used.
        """
        await self._runner.setup()
        server = self._runner.server
        assert server is not None  # noqa: S101 - setup() makes it
        server.request_handler = _answering(server.request_handler)
        self._listener = await asyncio.get_running_loop().create_server(
            lambda: _Connection(server, self._connections, self._receive_timeout_s),
            host,
            port,
            backlog=_BACKLOG,
        )
        for each in self._listener.sockets:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
        listening: int = self._listener.sockets[0].getsockname()[1]
        return listening

    async def stop(self) -> None:
        """Accept no more connections, and finish the requests that are being answered."""
        self._listener.close()
        await self._runner.cleanup()

    async def read_body(self, request: web.Request, max_bytes: int) -> bytes:
        """Return a request's body, or its first ``max_bytes``.

        Raises:
            HTTPRequestTimeout: it did not arrive in time.
            HTTPBadRequest: it is incomplete, or does not match its headers.
        """
        body = bytearray()
        try:
            async with asyncio.timeout(self._receive_timeout_s):
                while len(body) < max_bytes:
                    chunk = await request.content.read(max_bytes - len(body))
                    if not chunk:
                        break
                    body += chunk
        except TimeoutError:
            raise web.HTTPRequestTimeout from None
        except (web.RequestPayloadError, OSError, ValueError):
            raise web.HTTPBadRequest from None
        return bytes(body)

    def protect(self, request: web.Request) -> AbstractContextManager[None]:
        """Do not close the request's connection to make room for others."""
        return self._connections.protect(_connection_of(request))


class _Connections:
    """The open connections but those that are protected, and what came on each; the oldest first.

    A connection counts as new, with nothing that came, when a request of its was answered.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._unverified: dict[_Connection, int] = {}
        self._total = 0  # of the bytes
        self._protected = 0

    def add(self, connection: "_Connection") -> None:
        """Add a connection as the newest, and close the oldest if there are too many."""
        self.discard(connection)
        self._unverified[connection] = 0
        if len(self._unverified) + self._protected > self._limit:
            next(iter(self._unverified)).force_close()

    def discard(self, connection: "_Connection") -> None:
        """Forget a connection, if it is here."""
        self._total -= self._unverified.pop(connection, 0)

    def count(self, connection: "_Connection", size: int) -> None:
        """Count bytes of memory for what came; if it is too much, close the oldest requests."""
        if connection in self._unverified:
            self._unverified[connection] += size
            self._total += size
        while self._total > _MAX_UNVERIFIED_BYTES:
            next(each for each, came in self._unverified.items() if came).force_close()

    @contextlib.contextmanager
    def protect(self, connection: "_Connection") -> Iterator[None]:
        """Do not close this connection to make room for others."""
        self.discard(connection)
        self._protected += 1
        try:
            yield
        finally:
            self._protected -= 1


class _Connection(web.RequestHandler):
    """A connection that is closed where a request does not arrive in time or cannot be read."""

    def __init__(
        self, server: web.Server, connections: _Connections, receive_timeout_s: float
    ) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]
            # Slack signs the bytes as sent, and nothing unsigned is decompressed.
            auto_decompress=False,
            keepalive_timeout=_KEEP_ALIVE_S,
            max_headers=_MAX_HEADERS,
            # After the answer, the rest of a body is read and dropped for this long.
            lingering_time=receive_timeout_s,
        )
        self._connections = connections
        self._receive_timeout_s = receive_timeout_s
        self._is_answering = False
        # Of the last request: what is left of it is dropped after the answer.
        self._body: StreamReader | None = None
        # What closes the connection unless a request's head is complete by then.
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # asyncio's 256 KiB make 90,000 objects where each chunk has one byte. Transports of other
        # event loops have no such attribute.
        if hasattr(transport, "max_size"):
            transport.max_size = _READ_BYTES
        super().connection_made(transport)
        self._connections.add(self)
        self._start_deadline()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._clear_deadline()
        self._connections.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if data and not self._is_answering:
            self._start_deadline()
        self._connections.count(self, len(data) + _BYTES_PER_LINE * data.count(b"\n"))
        try:
            super().data_received(data)
        except Exception:  # noqa: BLE001 - whatever was sent, it is no request
            self.force_close()

    async def start(self) -> None:
        """Answer requests until the connection is closed.

        aiohttp lets through what goes wrong while it makes a request of what it has parsed, such
        as a host that is not valid in punycode, and then leaves the connection open.
        """
        try:
            await super().start()
        except Exception:  # noqa: BLE001 - whatever was sent, it is no request
            self.force_close()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = HTTPStatus.INTERNAL_SERVER_ERROR,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the answer to a request that cannot be parsed, or whose handler failed."""
        response = super().handle_error(request, status, exc, message)
        # aiohttp would name its version and Python's; these answers skip the signal below.
        response.headers["Server"] = ""
        return response

    def force_close(self) -> None:
        """Close the connection at once."""
        self._clear_deadline()
        self._connections.discard(self)
        if self._body is not None:
            # Else who reads it waits for nothing, or fails as if the server had a bug.
            self._body.set_exception(ConnectionResetError("the connection was closed"))
        super().force_close()

    @contextlib.contextmanager
    def answering(self, body: StreamReader) -> Iterator[None]:
        """Answer a request whose head is complete."""
        self._clear_deadline()
        self._is_answering = True
        self._body = body
        try:
            yield
        finally:
            self._is_answering = False
            if self.transport is not None:
                self._connections.add(self)

    def _start_deadline(self) -> None:
        if self._deadline is None and self.transport is not None:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(self._receive_timeout_s, self.force_close)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _answering(
    handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
    """Return a handler that refuses unknown expectations before ``handler`` answers.

    aiohttp quotes them in its answer, and fails where they are not UTF-8.
    """

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        with _connection_of(request).answering(request.content):
            if request.headers.get(hdrs.EXPECT, _CONTINUE).lower() == _CONTINUE:
                return await handler(request)
            refusal = web.Response(status=HTTPStatus.EXPECTATION_FAILED, headers={hdrs.SERVER: ""})
            refusal.force_close()
            return refusal

    return answer


def _connection_of(request: web.BaseRequest) -> _Connection:
    connection = request.protocol
    assert isinstance(connection, _Connection)  # noqa: S101 - it answers no others
    return connection


async def _finish_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Drop the header in which aiohttp names its version and Python's; close after a refusal.

    What is left of a body would be read for nothing.
    """
    response.headers.pop(hdrs.SERVER, None)
    if response.status >= HTTPStatus.BAD_REQUEST or not request.content.is_eof():
        response.force_close()
        response.headers[hdrs.CONNECTION] = "close"


def _allowed_open_files() -> int:
    """Raise this process's limit of open files as far as is useful, and return it.

    Systems start a process with a low limit that it may raise itself.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(_MAX_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted
