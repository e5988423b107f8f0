"""What all sandbox servers stand on: HTTP on loopback, and an scheduler of what is done later."""

import asyncio
import contextlib
import heapq
import itertools
import logging
import socket
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from bot.clock import Clock

_HOST: Final = "127.0.0.1"
_LOOPBACK: Final = (_HOST, "localhost", "[::1]")
#: What a page of the sandbox may load and do: nothing from elsewhere, nothing inline, in no frame.
POLICY: Final = (
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
# How long open requests may take to end once the server stops; aiohttp waits for it twice.
_SHUTDOWN_SECONDS: Final = 0.1

_log = logging.getLogger(__name__)


class Server:
    """An aiohttp application on a port of the loopback interface; it can be started again.

    Only programs of this machine reach it, and a browser is one of them: so a request that gives it
    another name, or comes from another site's page, is refused.

    Attributes:
        port: where it listens, or last listened.
        policy: the Content-Security-Policy of its answers.
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
        runner = web.AppRunner(self._app, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
        await runner.setup()
        try:
            await web.TCPSite(runner, _HOST, port).start()
        except OSError:
            await runner.cleanup()
            raise
        self._runner = runner
        self.port = runner.addresses[0][1]

    async def stop(self) -> None:
        """Listen no more and drop the open requests, those that hang too, in under a second."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        origins = {f"http://{name}:{self.port}" for name in _LOOPBACK}
        origin = request.headers.get(hdrs.ORIGIN)
        if f"http://{request.headers.get(hdrs.HOST, '').lower()}" not in origins:
            return _refused("This server answers to the names of this machine alone.")
        if origin is not None and origin not in origins:
            return _refused("This server answers no other site's pages.")
        return await handler(request)

    async def _harden(self, _request: web.Request, response: web.StreamResponse) -> None:
        response.headers.setdefault("Content-Security-Policy", self.policy)
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"


class Scheduler:
    """What is to be done at later moments of the clock, done one after the other by one task.

    Work that raises is logged and does not keep the rest from being done.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # The number keeps what is due at the same moment in the order in which it came.
        self._entries: list[tuple[datetime, int, Callable[[], Awaitable[object]]]] = []
        self._numbers = itertools.count()
        self._changed = asyncio.Event()
        self._rested = asyncio.Event()
        self._under_way = False
        self._task: asyncio.Task[None] | None = None

    def at(self, moment: datetime, work: Callable[[], Awaitable[object]]) -> None:
        """Have ``work`` done once the clock shows ``moment``."""
        heapq.heappush(self._entries, (moment, next(self._numbers), work))
        self._changed.set()

    def after(self, delay: timedelta, work: Callable[[], Awaitable[object]]) -> None:
        """Have ``work`` done when ``delay`` has passed from now."""
        self.at(self._clock.now() + delay, work)

    async def start(self) -> None:
        """Begin to do what is due."""
        self._changed.set()
        self._task = asyncio.create_task(self._run())  # noqa: TID251 - owned here, ended by `stop`

    async def stop(self) -> None:
        """Break off the work under way, and keep what is not due yet for the next start."""
        if self._task is None:
            return
        task, self._task = self._task, None
        self._changed.set()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        self._rested.set()

    async def settled(self) -> bool:
        """Return once nothing is due or under way, and whether there was anything to do."""
        had_work = False
        while self._task is not None and self._is_busy():
            had_work = True
            self._rested.clear()
            self._changed.set()
            await self._rested.wait()
        return had_work

    def _is_busy(self) -> bool:
        return self._under_way or self._changed.is_set() or self._is_due()

    def _is_due(self) -> bool:
        return bool(self._entries) and self._entries[0][0] <= self._clock.now()

    async def _run(self) -> None:
        # A clock that is just waking up may lose the cancellation: so `stop` shows here too.
        while self._task is not None:
            self._changed.clear()
            while self._is_due():
                await self._do(heapq.heappop(self._entries)[2])
            # No `await` lies between here and the clock's own note of who waits for when.
            self._rested.set()
            await self._clock.wait(self._changed, self._entries[0][0] if self._entries else None)

    async def _do(self, work: Callable[[], Awaitable[object]]) -> None:
        self._under_way = True
        try:
            await work()
        except Exception:  # noqa: BLE001 - whatever it is, the scheduler goes on
            _log.exception("work on the scheduler failed")
        finally:
            self._under_way = False


def _refused(why: str) -> web.Response:
    return web.json_response({"error": why}, status=HTTPStatus.FORBIDDEN)


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port
