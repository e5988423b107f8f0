"""The loop that does what is due: claim, one step each, wait for more; and its graceful stop."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Final, Generic, Protocol, TypeVar

from bot.clock import Clock
from bot.database import StoreError
from bot.log import reference
from bot.model import Timings

_LOG: Final = logging.getLogger(__name__)
_T = TypeVar("_T")


class Work(Protocol[_T]):
    """A table with rows that become due, and what to do with one."""

    @property
    def due(self) -> asyncio.Event:
        """Set when a row may have become due."""

    async def claim(self, limit: int) -> Sequence[_T]:
        """Lease up to ``limit`` rows that are due."""

    async def next_due(self) -> datetime | None:
        """Return when the next row is due."""

    async def step(self, item: _T) -> None:
        """Do one thing for a claimed row, then end it or put it back."""


class Worker(Generic[_T]):
    """Does the work of one table, so many rows at a time.

    A step that fails in a way that nobody foresaw is logged; its row comes back when its lease runs
    out.
    """

    def __init__(self, work: Work[_T], clock: Clock, timings: Timings, *, slots: int) -> None:
        self._work = work
        self._clock = clock
        self._timings = timings
        self._slots = slots
        self._steps: set[asyncio.Task[None]] = set()
        self._parked = False
        self._stopping = False

    @property
    def healthy(self) -> bool:
        """Whether the loop runs."""
        return not self._stopping

    async def run(self) -> None:
        """Do what is due until ``stop``, then give what is under way some time to end."""
        async with asyncio.TaskGroup() as group:
            while not self._stopping:
                until = await self._begin(group)
                self._parked = True
                await self._clock.wait(self._work.due, until)
                self._parked = False
            if self._steps:
                await asyncio.wait(self._steps, timeout=self._timings.stop.total_seconds())
            for step in self._steps:
                # Its row is marked: the next process takes it up from what it had come to.
                step.cancel()

    def stop(self) -> None:
        """Begin nothing more."""
        self._stopping = True
        self._work.due.set()

    async def settled(self) -> bool:
        """Return when nothing is due or under way; say whether anything was."""
        busy = False
        while self._steps or not self._parked:
            busy = True
            if self._steps:
                await asyncio.wait(self._steps)
            await asyncio.sleep(0)
        return busy

    async def _begin(self, group: asyncio.TaskGroup) -> datetime | None:
        """Begin what is due; return when to look again, or None for when something changes."""
        self._work.due.clear()
        free = self._slots - len(self._steps)
        if not free:
            return None
        try:
            items, until = await asyncio.gather(self._work.claim(free), self._work.next_due())
        except StoreError as error:
            _LOG.error("nothing could be claimed", extra={"reason": str(error)})
            return self._clock.now() + self._timings.retry
        for item in items:
            step = group.create_task(self._guarded(item))
            self._steps.add(step)
            step.add_done_callback(self._finished)
        return until

    def _finished(self, step: asyncio.Task[None]) -> None:
        if len(self._steps) == self._slots:
            self._work.due.set()
        self._steps.discard(step)

    async def _guarded(self, item: _T) -> None:
        try:
            await self._work.step(item)
        except StoreError as error:
            _LOG.error("a step could not be stored", extra={"reason": str(error)})
        except Exception:  # noqa: BLE001 - whatever it is, the next row must not wait for it
            _LOG.exception("a step failed", extra={"reference": reference()})
