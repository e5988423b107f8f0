"""The loop that does what is due: claim, one step each, wait for more; and its graceful stop."""

import asyncio
import logging
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final, Generic, Protocol, TypeVar

from bot.clock import Clock
from bot.database import StoreError, Trouble
from bot.log import reference
from bot.priority import PeopleFirst
from bot.timings import Timings

_LOG: Final = logging.getLogger(__name__)
_T = TypeVar("_T")


class Work(Protocol[_T]):
    """A table with rows that become due, and what to do with one."""

    @property
    def due(self) -> asyncio.Event:
        """Set when a row may have become due."""

    async def claim(self, limit: int, in_hand: Collection[_T]) -> Sequence[_T]:
        """Lease up to ``limit`` rows that are due, and not in hand."""

    async def next_due(self, in_hand: Collection[_T]) -> datetime | None:
        """Return when the next row is due that is not in hand."""

    async def step(self, item: _T) -> None:
        """Do one thing for a claimed row, then end it or put it back."""


class Worker(Generic[_T]):
    """Does the work of one table, so many rows at a time.

    A step that fails in a way that nobody foresaw is logged; its row comes back when its lease runs
    out. A row that is in hand is not taken up once more, whatever the clock says of its lease.
    """

    def __init__(
        self,
        work: Work[_T],
        clock: Clock,
        timings: Timings,
        people_first: PeopleFirst,
        *,
        slots: int,
    ) -> None:
        self._work = work
        self._clock = clock
        self._timings = timings
        self._people_first = people_first
        self._slots = slots
        self._last_claim = float("-inf")
        self._steps: dict[asyncio.Task[None], _T] = {}
        self._parked = asyncio.Event()
        self._stopping = False

    @property
    def healthy(self) -> bool:
        """Whether the loop runs."""
        return not self._stopping

    async def run(self) -> None:
        """Do what is due until ``stop``, then give what is under way some time to end."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._turn()
                self._work.due.clear()
                if self._stopping:
                    break
                until = await self._begin(group)
                self._parked.set()
                await self._clock.wait(self._work.due, until)
                self._parked.clear()
            if self._steps:
                await asyncio.wait(self._steps, timeout=self._timings.stop_timeout.total_seconds())
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
        while self._steps or not self._parked.is_set():
            busy = True
            if self._steps:
                await asyncio.wait(self._steps)
            await self._parked.wait()
            await asyncio.sleep(0)
        return busy

    async def _begin(self, group: asyncio.TaskGroup) -> datetime | None:
        """Begin what is due; return when to look again, or None for when something changes."""
        free = self._slots - len(self._steps)
        if not free:
            return None
        in_hand = tuple(self._steps.values())
        try:
            for item in await self._work.claim(free, in_hand):
                self._last_claim = asyncio.get_running_loop().time()
                step = group.create_task(self._guarded(item))
                self._steps[step] = item
                step.add_done_callback(self._finished)
            if len(self._steps) == self._slots:
                return None
            await asyncio.sleep(0)  # what they ask of the database goes first
            return await self._work.next_due(tuple(self._steps.values()))
        except StoreError as error:
            if not isinstance(error, Trouble):
                _LOG.error("nothing could be claimed", extra={"reason": str(error)})
            return self._clock.now() + self._timings.retry_interval

    async def _turn(self) -> None:
        """Return when it is time for the next claim."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(
            self._last_claim + self._timings.claim_interval.total_seconds() - loop.time()
        )
        await self._people_first.turn()

    def _finished(self, step: asyncio.Task[None]) -> None:
        del self._steps[step]
        # Its slot is free, and its row no longer in hand.
        self._work.due.set()

    async def _guarded(self, item: _T) -> None:
        try:
            await self._work.step(item)
        except StoreError as error:
            _LOG.error("a step could not be stored", extra={"reason": str(error)})
        except Exception:  # noqa: BLE001 - whatever it is, the next row must not wait for it
            _LOG.exception("a step failed", extra={"reference": reference()})
