"""Clocks that are moved by hand, for tests and to skip long waits."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from bot.timings import Clock


class ManualClock:
    """A clock that stands still until ``advance`` pushes it.

    A component that works in the background registers a coroutine function with ``settles_with``,
    which waits for its current work and returns whether there was any. ``advance`` stops at each
    moment that a task waits for, and lets all components settle before it goes on.
    """

    def __init__(self, start: datetime = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)) -> None:
        self._now = start
        self._waiting: dict[asyncio.Event, datetime] = {}
        self._waits: set[tuple[asyncio.Event, asyncio.Event]] = set()
        self._workers: list[Callable[[], Awaitable[bool]]] = []

    def now(self) -> datetime:
        """Return the moment that the clock stands at."""
        return self._now

    async def wait(self, event: asyncio.Event, until: datetime | None = None) -> None:
        """Return when ``event`` is set or the clock was pushed to ``until``."""
        if event.is_set() or (until is not None and until <= self._now):
            # Yield nevertheless: a loop that waits for nothing must not starve the others.
            await asyncio.sleep(0)
            return
        alarm = asyncio.Event()
        if until is not None:
            self._waiting[alarm] = until
        self._waits.add((event, alarm))
        waits = [asyncio.ensure_future(each.wait()) for each in (event, alarm)]  # noqa: TID251
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._waiting.pop(alarm, None)
            for each in waits:
                each.cancel()
            try:
                await asyncio.wait(waits)
            finally:
                self._waits.discard((event, alarm))

    def settles_with(self, worker: Callable[[], Awaitable[bool]]) -> Callable[[], None]:
        """Let ``settle`` wait for ``worker`` too; call what is returned to undo it."""
        self._workers.append(worker)
        return lambda: self._workers.remove(worker)

    async def settle(self) -> None:
        """Wait until no registered component has anything left to do at this moment."""
        # A caller that repeats this until something is there lets it come.
        await asyncio.sleep(0)
        while (  # noqa: ASYNC110 - there is no event for it
            self._is_resuming() or any([await worker() for worker in tuple(self._workers)])
        ):
            await asyncio.sleep(0)

    async def advance(self, by: timedelta) -> None:
        """Push the clock, stopping at each moment that a task waits for; let all work settle."""
        target = self._now + by
        await self.settle()
        while (due := min(self._waiting.values(), default=target)) < target:
            self._now = max(self._now, due)
            self._set_alarms()
            await self.settle()
        self._now = target
        self._set_alarms()
        await self.settle()

    def set(self, moment: datetime) -> None:
        """Put the clock to ``moment``, backwards too, as a person or a time server may.

        Every wait checks it again, as it does within half a minute with the system clock.
        """
        self._now = moment
        for _, alarm in self._waits:
            alarm.set()

    def _is_resuming(self) -> bool:
        """Return whether a wait is over whose task has not resumed yet."""
        return any(event.is_set() or alarm.is_set() for event, alarm in self._waits)

    def _set_alarms(self) -> None:
        for alarm, until in tuple(self._waiting.items()):
            if until <= self._now:
                del self._waiting[alarm]
                alarm.set()


class TrailingClock:
    """A clock that lags behind another one, by less and less as parts of the lag are skipped."""

    def __init__(self, clock: Clock, lag: timedelta) -> None:
        self.lag = lag
        self._clock = clock
        self._waiting: set[asyncio.Event] = set()

    def now(self) -> datetime:
        """Return the present moment, less what it lags behind."""
        return self._clock.now() - self.lag

    async def wait(self, event: asyncio.Event, until: datetime | None = None) -> None:
        """Return when ``event`` is set, ``until`` has come, or some of the lag is skipped."""
        if event.is_set():
            await asyncio.sleep(0)
            return
        alarm = asyncio.Event()
        self._waiting.add(alarm)
        setting = asyncio.ensure_future(_set_with(event, alarm))  # noqa: TID251 - ended below
        try:
            await self._clock.wait(alarm, None if until is None else until + self.lag)
        finally:
            self._waiting.discard(alarm)
            setting.cancel()
            await asyncio.wait([setting])

    def skip(self, by: timedelta) -> None:
        """Let time pass at once, up to the present moment."""
        self.lag = max(self.lag - by, timedelta(0))
        for alarm in self._waiting:
            alarm.set()


async def _set_with(event: asyncio.Event, alarm: asyncio.Event) -> None:
    await event.wait()
    alarm.set()
