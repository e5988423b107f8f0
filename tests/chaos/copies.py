"""The copies of the bot, each a process, and the load balancer in front of them."""

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

import aiohttp
from aiohttp import web

from bot.timings import Timings
from tests.bot_process import BotProcess
from tests.chaos.databases import RunDatabase

# How often the balancer asks each copy whether it is ready, and how long it waits for the answer.
_CHECK_INTERVAL_S: Final = 0.1
_CHECK_TIMEOUT_S: Final = 1.0
# For a copy that has just started: outages of Slack and the service may keep it from being ready.
_READY_TIMEOUT_S: Final = 5.0
_START_TIMEOUT_S: Final = 60.0
_SERVER_ERROR: Final = 500


class Copy:
    """A copy of the bot: one process after the other.

    Attributes:
        number: from 1 on.
        log_file: the log of all its processes.
        is_ready: what the balancer heard from it last.
        port: where its process listens; 0 before it does.
        process: the one that was started last; None before the first.
    """

    def __init__(
        self,
        number: int,
        environ: Callable[[], Mapping[str, str]],
        timings: Timings,
        log_file: Path,
        clock_offset: timedelta,
    ) -> None:
        self.number = number
        self.log_file = log_file
        self.is_ready = False
        self.port = 0
        self.process: BotProcess | None = None
        self._environ = environ
        self._timings = timings
        self._clock_offset = clock_offset

    @property
    def is_up(self) -> bool:
        """Return whether it has a process."""
        return self.process is not None

    def spawn(self) -> BotProcess:
        """Start a process without waiting for it."""
        self.is_ready, self.port = False, 0
        self.process = BotProcess(
            self._environ(), self._timings, self.log_file, clock_offset=self._clock_offset
        )
        return self.process

    async def kill(self) -> None:
        """Kill the process, if there is one."""
        self.is_ready, self.port = False, 0
        process, self.process = self.process, None
        if process is not None:
            await process.kill()

    async def terminate(self) -> int:
        """Send SIGTERM to the process, which says "not ready" then, and return its exit code."""
        assert self.process is not None
        process = self.process
        code = await process.terminate()
        self.is_ready, self.port, self.process = False, 0, None
        return code

    def calls_from(self, port: int) -> bool:
        """Return whether the process has a connection from this local port."""
        if self.process is None:
            return False
        found = False
        with contextlib.suppress(OSError):
            root = Path(f"/proc/{self.process.pid}")
            rows = [line.split() for line in (root / "net/tcp").read_text().splitlines()[1:]]
            inodes = {row[9] for row in rows if row[1].endswith(f":{port:04X}")}
            for file in (root / "fd").iterdir():
                with contextlib.suppress(OSError):  # closed meanwhile
                    found |= str(file.readlink())[len("socket:[") : -1] in inodes
        return found


class Copies:
    """All copies, and the balancer, which sends a request to any that says that it is ready.

    If none does, it sends it to any that runs, as AWS's balancers do:
    https://docs.aws.amazon.com/elasticloadbalancing/latest/application/target-group-health-checks.html

    Attributes:
        failed: requests that got no answer, or a server's error, from a copy that had not said that
            it was not ready, though nobody killed it and the database was there.
        ended: copies that ended by themselves.
        exit_codes: those of the processes that got SIGTERM, and how many had each.
    """

    def __init__(self, copies: Sequence[Copy], database: RunDatabase, rng: random.Random) -> None:
        self.all = tuple(copies)
        self.current = list(copies)
        self.failed: list[str] = []
        self.ended: list[str] = []
        self.exit_codes: Counter[int] = Counter()
        self._database = database
        self._rng = rng
        self._killed: set[BotProcess] = set()

    @property
    def up(self) -> list[Copy]:
        """Return those that have a process."""
        return [copy for copy in self.current if copy.is_up]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start all copies and the balancer, and kill what is left of them at the end."""
        try:
            async with asyncio.TaskGroup() as group:
                for copy in self.current:
                    group.create_task(self.start(copy))
            async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as checks:
                tasks = [checks.create_task(self._check(copy, session)) for copy in self.all]
                yield
                for task in tasks:
                    task.cancel()
        finally:
            for copy in self.all:
                await copy.kill()

    async def start(self, copy: Copy) -> None:
        """Start a copy, again if the database was away, as a host does."""
        async with asyncio.timeout(_START_TIMEOUT_S):
            while True:
                began = time.monotonic()
                process = copy.spawn()
                try:
                    port = await process.wait_until_listening()
                except (AssertionError, EOFError):
                    if process in self._killed:
                        return
                    if not self._database.was_down_since(began):
                        raise
                    await process.kill()
                else:
                    copy.port = 0 if process in self._killed else port
                    return

    async def kill(self, copy: Copy) -> None:
        """Kill a copy."""
        self._note_end(copy)
        if copy.process is not None:
            self._killed.add(copy.process)
        await copy.kill()

    async def replace(self, copy: Copy) -> None:
        """Replace a copy as in a deploy, and wait until the new one is ready."""
        await self.terminate(copy)
        await self.start(copy)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_READY_TIMEOUT_S):
                while not copy.is_ready:
                    await asyncio.sleep(_CHECK_INTERVAL_S)

    async def terminate(self, copy: Copy) -> None:
        """Send SIGTERM to a copy."""
        self._note_end(copy)
        self.exit_codes[await copy.terminate()] += 1

    def choose(self) -> Copy | None:
        """Return a copy for a request; None if none runs."""
        ready = [copy for copy in self.current if copy.is_ready]
        found = ready or [copy for copy in self.current if copy.port]
        return self._rng.choice(found) if found else None

    def calling(self, port: int) -> Copy | None:
        """Return the copy that calls from this port, or any if that is not known."""
        found = [copy for copy in self.up if copy.calls_from(port)] or self.up
        return self._rng.choice(found) if found else None

    async def forward(
        self, copy: Copy, request: web.Request, body: bytes, session: aiohttp.ClientSession
    ) -> web.Response:
        """Send a request to a copy and return its answer.

        Raises:
            HTTPBadGateway: there is none.
        """
        began, process, was_ready = time.monotonic(), copy.process, copy.is_ready
        status, content = 0, b""
        try:
            async with session.request(
                request.method,
                f"http://127.0.0.1:{copy.port}{request.path_qs}",
                data=body,
                headers=request.headers,
            ) as answer:
                content = await answer.read()
                status = answer.status
        except aiohttp.ClientError as error:
            content = repr(error).encode()
        excused = process in self._killed or self._database.was_down_since(began)
        if was_ready and not excused and (not status or status >= _SERVER_ERROR):
            self.failed.append(
                f"copy {copy.number}: {request.path} {status} {content[:200].decode()}"
            )
        if not status:
            raise web.HTTPBadGateway
        return web.Response(status=status, body=content)

    def _note_end(self, copy: Copy) -> None:
        if copy.process is not None and copy.process.has_ended:
            self.ended.append(f"copy {copy.number}")

    async def _check(self, copy: Copy, session: aiohttp.ClientSession) -> None:
        """Ask a copy again and again whether it is ready, until cancelled."""
        timeout = aiohttp.ClientTimeout(total=_CHECK_TIMEOUT_S)
        while True:
            process = copy.process
            is_ready = False
            if process is not None and copy.port:
                with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                    url = f"http://127.0.0.1:{copy.port}/readyz"
                    async with session.get(url, timeout=timeout) as answer:
                        is_ready = answer.status == web.HTTPOk.status_code
            if copy.process is process:
                copy.is_ready = is_ready
            await asyncio.sleep(_CHECK_INTERVAL_S)
