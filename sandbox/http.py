"""HTTP servers on the loopback interface, for every part of the sandbox."""

import contextlib
import itertools
import os
import socket
from contextvars import ContextVar
from http import HTTPStatus
from typing import Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

_HOST: Final = "127.0.0.1"
# Below those that a system gives to connections, and for port 0:
# https://blog.fpmurphy.com/2015/02/ip-dynamic-port-range.html
_CHOSEN_BY_HAND: Final = range(20_000, 32_768)
# Processes that were started soon after each other choose among different ports: what one has
# chosen, another one would find free until the first one listens there.
_CHOICES: Final = len(_CHOSEN_BY_HAND) // 512
_NUMBERS: Final = itertools.count()
_LOOPBACK: Final = (_HOST, "localhost", "[::1]")
#: What a page of the sandbox may load and do: nothing from elsewhere, nothing inline, in no frame.
POLICY: Final = (
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
#: The port from which the request came that is being answered; 0 elsewhere.
CALLER_PORT: Final[ContextVar[int]] = ContextVar("CALLER_PORT", default=0)
# For open requests to end once the server stops; aiohttp waits for it twice.
_SHUTDOWN_TIMEOUT_S: Final = 0.1


class Server:
    """An aiohttp application on a port of the loopback interface. It can be started again.

    Only programs on this machine reach it, but a browser is one of them: requests under another
    host name, or from another site's page, are refused.

    Attributes:
        port: where it listens, or last listened.
        policy: the Content-Security-Policy of its responses.
    """

    def __init__(self, app: web.Application) -> None:
        app.middlewares.insert(0, self._guard)
        app.on_response_prepare.append(self._harden)
        self._app = app
        self._runner: web.AppRunner | None = None
        self.port = 0
        self.policy = POLICY

    @property
    def url(self) -> str:
        """Return where it listens, or last listened, such as ``http://127.0.0.1:41233``."""
        return f"http://{_HOST}:{self.port}"

    async def start(self, port: int = 0) -> None:
        """Listen on ``port``, or on any free one.

        Raises:
            OSError: the port is taken.
        """
        runner = web.AppRunner(self._app, access_log=None, shutdown_timeout=_SHUTDOWN_TIMEOUT_S)
        await runner.setup()
        try:
            await web.TCPSite(runner, _HOST, port).start()
        except OSError:
            await runner.cleanup()
            raise
        self._runner = runner
        self.port = runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening and drop all open requests, in under a second."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        origins = {f"http://{name}:{self.port}" for name in _LOOPBACK}
        origin = request.headers.get(hdrs.ORIGIN)
        if f"http://{request.headers.get(hdrs.HOST, '').lower()}" not in origins:
            return _refused("This server answers only to the names of this machine.")
        if origin is not None and origin not in origins:
            return _refused("This server does not answer other sites' pages.")
        if request.transport is not None:
            CALLER_PORT.set(request.transport.get_extra_info("peername")[1])
        return await handler(request)

    async def _harden(self, _request: web.Request, response: web.StreamResponse) -> None:
        response.headers.setdefault("Content-Security-Policy", self.policy)
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"


def _refused(reason: str) -> web.Response:
    return web.json_response({"error": reason}, status=HTTPStatus.FORBIDDEN)


def free_port() -> int:
    """Return a free port of the loopback interface that no connection is given meanwhile."""
    first = _CHOSEN_BY_HAND.start + os.getpid() % 512 * _CHOICES
    while True:
        port = first + next(_NUMBERS) % _CHOICES
        with socket.socket() as probe, contextlib.suppress(OSError):
            # Connections that have ended keep no server from a port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((_HOST, port))
            return port
