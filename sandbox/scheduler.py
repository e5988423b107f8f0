"""A scheduler: runs work at later moments of a clock."""

import asyncio
import contextlib
import heapq
import itertools
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from bot.timings import Clock
from sandbox.clock import ManualClock

_log = logging.getLogger(__name__)


class Scheduler:
    """Runs work that is due, one piece after the other, in one task.

    Work that raises is logged and does not stop the rest. A manual clock waits for it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # The number keeps work that is due at the same moment in order.
        self._entries: list[tuple[datetime, int, Callable[[], Awaitable[object]]]] = []
        self._numbers = itertools.count()
        self._changed = asyncio.Event()
        self._idle = asyncio.Event()
        self._is_working = False
        self._task: asyncio.Task[None] | None = None
        self._leave_clock: Callable[[], None] = lambda: None

    def at(self, moment: datetime, work: Callable[[], Awaitable[object]]) -> None:
        """Run ``work`` at ``moment``."""
        heapq.heappush(self._entries, (moment, next(self._numbers), work))
        self._changed.set()

    def after(self, delay: timedelta, work: Callable[[], Awaitable[object]]) -> None:
        """Run ``work`` once ``delay`` has passed."""
        self.at(self._clock.now() + delay, work)

    async def start(self) -> None:
        """Start to run what is due."""
        self._changed.set()
        self._task = asyncio.create_task(self._run())  # noqa: TID251 - owned here, ended by `stop`
        if isinstance(self._clock, ManualClock):
            self._leave_clock = self._clock.settles_with(self._settled)

    async def stop(self) -> None:
        """Cancel the work that is running, and keep what is not due yet for the next start."""
        if self._task is None:
            return
        self._leave_clock()
        task, self._task = self._task, None
        self._changed.set()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        self._idle.set()

    async def _settled(self) -> bool:
        """Return once nothing is due or running; return whether there was anything to do."""
        had_work = False
        while self._task is not None and self._is_busy():
            had_work = True
            self._idle.clear()
            self._changed.set()
            await self._idle.wait()
        return had_work

    def _is_busy(self) -> bool:
        return self._is_working or self._changed.is_set() or self._is_due()

    def _is_due(self) -> bool:
        return bool(self._entries) and self._entries[0][0] <= self._clock.now()

    async def _run(self) -> None:
        # A clock that is just waking up may swallow the cancellation: so check for `stop` here too.
        while self._task is not None:
            self._changed.clear()
            while self._is_due():
                await self._do(heapq.heappop(self._entries)[2])
            # No `await` between here and the clock's own note of who waits for when.
            self._idle.set()
            await self._clock.wait(self._changed, self._entries[0][0] if self._entries else None)

    async def _do(self, work: Callable[[], Awaitable[object]]) -> None:
        self._is_working = True
        try:
            await work()
        except Exception:  # noqa: BLE001 - whatever it is, the scheduler goes on
            _log.exception("scheduled work failed")
        finally:
            self._is_working = False
