"""The HTTP server's connections: limits on their number and on the time for a request.

Anyone on the internet can open connections and send nothing, or only a little at a time.
"""

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from datetime import timedelta
from http import HTTPStatus
from typing import Final

from aiohttp import web

if sys.platform != "win32":
    import resource

# Longer than proxies keep an idle connection (usually a minute), so that they close it first.
_KEEP_ALIVE_S: Final = 75.0
# The limit on open files that the process asks for. Half of them may be connections.
_MAX_OPEN_FILES: Final = 4096
_MAX_OPEN_FILES_ON_WINDOWS: Final = 1000
_BACKLOG: Final = 128


class LimitedServer:
    """An HTTP server that closes connections which are idle, slow or too many.

    The headers of a first request must arrive within ``receive_timeout``, and so must each body.
    Where there are too many connections, the oldest are closed, except those that are protected.
    """

    def __init__(
        self, app: web.Application, *, receive_timeout: timedelta, shutdown_timeout: timedelta
    ) -> None:
        app.middlewares.append(self._on_request)
        self._receive_timeout_s = receive_timeout.total_seconds()
        self._runner = web.AppRunner(
            app,
            access_log=None,
            # Slack signs the bytes as sent, and nothing unsigned is decompressed.
            auto_decompress=False,
            keepalive_timeout=_KEEP_ALIVE_S,
            # After the answer, the rest of a body is read and dropped for this long.
            lingering_time=self._receive_timeout_s,
            shutdown_timeout=shutdown_timeout.total_seconds(),
        )
        self._listener: asyncio.Server | None = None
        self._max_connections = _allowed_open_files() // 2
        # Connections without a complete request so far, and what will close them.
        self._deadlines: dict[web.RequestHandler, asyncio.TimerHandle] = {}
        self._protected: set[web.RequestHandler] = set()

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port, which the system chooses where ``port`` is 0.

        Raises:
            OSError: the address cannot be used.
        """
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        try:
            self._listener = await loop.create_server(self._connect, host, port, backlog=_BACKLOG)
        except OSError:
            await self._runner.cleanup()
            raise
        listening: int = self._listener.sockets[0].getsockname()[1]
        return listening

    async def serve(self) -> None:
        """Accept connections until the server is stopped, which ends this with a cancellation."""
        assert self._listener is not None  # noqa: S101 - start() comes first
        await self._listener.serve_forever()

    async def stop(self) -> None:
        """Accept no more connections, and finish the requests that are being answered."""
        if self._listener is not None:
            self._listener.close()
        self._clear_deadlines(self._deadlines)
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
        except (web.RequestPayloadError, OSError, ValueError, RuntimeError):
            # aiohttp raises RuntimeError for a connection that we closed ourselves.
            raise web.HTTPBadRequest from None
        return bytes(body)

    @contextlib.contextmanager
    def protect(self, request: web.Request) -> Iterator[None]:
        """Do not close the request's connection to make room for others."""
        self._protected.add(request.protocol)
        try:
            yield
        finally:
            self._protected.discard(request.protocol)

    @web.middleware
    async def _on_request(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        self._clear_deadlines([request.protocol])
        try:
            response = await handler(request)
        except web.HTTPException as error:
            error.force_close()
            raise
        if response.status >= HTTPStatus.BAD_REQUEST:
            response.force_close()
        return response

    def _connect(self) -> web.RequestHandler:
        """Return the protocol of a new connection, after making room for it."""
        server = self._runner.server
        assert server is not None  # noqa: S101 - start() sets it up
        # aiohttp lists closed connections too, until their handlers have ended.
        open_ones = [each for each in server.connections if each.transport is not None]
        if (excess := len(open_ones) - self._max_connections + 1) > 0:
            unprotected = [each for each in open_ones if each not in self._protected]
            for each in unprotected[:excess]:
                self._close(each)
        if len(self._deadlines) > 2 * self._max_connections:
            self._clear_deadlines(self._deadlines.keys() - set(open_ones))
        connection = server()
        self._deadlines[connection] = asyncio.get_running_loop().call_later(
            self._receive_timeout_s, self._close, connection
        )
        return connection

    def _close(self, connection: web.RequestHandler) -> None:
        self._clear_deadlines([connection])
        connection.force_close()

    def _clear_deadlines(self, connections: Iterable[web.RequestHandler]) -> None:
        for connection in tuple(connections):
            if (timer := self._deadlines.pop(connection, None)) is not None:
                timer.cancel()


def _allowed_open_files() -> int:
    """Raise this process's limit of open files as far as is useful, and return it.

    Systems start a process with a low limit that it may raise itself.
    """
    if sys.platform == "win32":
        return _MAX_OPEN_FILES_ON_WINDOWS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(_MAX_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted
