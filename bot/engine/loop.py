"""The loop that does due work: claim rows, take each one step, release them; its graceful stop."""

import asyncio
import logging
from collections.abc import Collection
from datetime import datetime
from typing import Final, Generic, Protocol, TypeVar

from bot.log import reference
from bot.store import Alarm, Claimed, DatabaseError, log_failure, soonest
from bot.tasks import RequestPriority
from bot.timings import Clock, Timings

_LOG: Final = logging.getLogger(__name__)
_T = TypeVar("_T")


class Work(Protocol[_T]):
    """A table with rows that become due, and what to do with one."""

    @property
    def due(self) -> Alarm:
        """Set for when a row may have become due, as far as that was not said by a claim."""

    async def claim(self, limit: int, held: Collection[_T]) -> Claimed[_T]:
        """Lease up to ``limit`` due rows that are not ``held`` by this process.

        It also says when the next row is due that is neither held nor claimed.
        """

    async def step(self, item: _T) -> None:
        """Take a claimed row one step further, then finish or release it."""


class Worker(Generic[_T]):
    """Does the work of one table, up to ``slots`` rows at a time.

    A step that fails unexpectedly is logged, and its row comes back when its lease runs out. A row
    is not claimed while a step of it is under way, even if the clock says that its lease is over.
    """

    def __init__(
        self,
        work: Work[_T],
        clock: Clock,
        timings: Timings,
        priority: RequestPriority,
        *,
        slots: int,
    ) -> None:
        self._work = work
        self._clock = clock
        self._timings = timings
        self._priority = priority
        self._slots = slots
        self._last_claim = float("-inf")
        # Each with its item and the number of claims until then.
        self._steps: dict[asyncio.Task[bool], tuple[_T, int]] = {}
        self._claims = 0
        self._full = False
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Do what is due until ``stop``; then steps under way have ``stop_timeout`` to end.

        It returns only after ``stop``. An unexpected error of the table is raised.
        """
        async with asyncio.TaskGroup() as steps:
            while not self._stopping.is_set():
                self._work.due.clear()
                look_again_at = await self._start_due(steps)
                await self._wait_until_due(look_again_at)
                await self._space_claims()
            if self._steps:
                await asyncio.wait(self._steps, timeout=self._timings.stop_timeout.total_seconds())
            for step in self._steps:
                # Its row is marked: the next process goes on from there.
                step.cancel()

    def stop(self) -> None:
        """Start no more steps."""
        self._stopping.set()
        self._work.due.set()

    async def _start_due(self, steps: asyncio.TaskGroup) -> datetime | None:
        """Start a step of each due row; return when to look again, None for after a change."""
        free = self._priority.share(self._slots - len(self._steps))
        self._full = free <= 0
        if self._full:
            return None
        self._claims += 1
        try:
            claimed = await self._work.claim(free, [item for item, _ in self._steps.values()])
        except DatabaseError as error:
            log_failure(_LOG, "nothing could be claimed", error)
            return self._clock.now() + self._timings.retry_interval
        if claimed:
            self._last_claim = asyncio.get_running_loop().time()
        for item in claimed:
            step = steps.create_task(self._take_step(item))
            self._steps[step] = item, self._claims
            step.add_done_callback(self._on_step_done)
        self._full = claimed.full or len(self._steps) >= self._slots
        return claimed.next_due

    async def _wait_until_due(self, look_again_at: datetime | None) -> None:
        """Wait until a row is due, ``look_again_at`` or ``stop``.

        The tables tell when they make a row due. For one that is due later nobody looks before.
        """
        due = self._work.due
        while True:
            moment = soonest((look_again_at, due.at))
            if moment is not None and moment <= self._clock.now():
                await asyncio.sleep(0)  # a loop that waits for nothing must not starve the others
                return
            due.note()
            await self._clock.wait(due, moment)
            if not due.is_set():
                return

    async def _space_claims(self) -> None:
        """Wait for ``claim_interval`` since the last claim that found work, and for requests.

        To ``stop`` waits for no request.
        """
        next_claim = self._last_claim + self._timings.claim_interval.total_seconds()
        await asyncio.sleep(next_claim - asyncio.get_running_loop().time())
        await self._priority.wait_for_pause(self._stopping)

    def _on_step_done(self, step: asyncio.Task[bool]) -> None:
        _, claims = self._steps.pop(step)
        went_well = not step.cancelled() and step.result()
        # There is a free slot. Or a claim has left the row out, which may be due, or becomes due
        # when its lease ends.
        if self._full or self._claims > claims or not went_well:
            self._work.due.set()

    async def _take_step(self, item: _T) -> bool:
        """Take a step; return whether it went well."""
        try:
            await self._work.step(item)
        except DatabaseError as error:
            _LOG.error("a step could not be stored", extra={"reason": str(error)})
        except Exception:  # noqa: BLE001 - the other rows go on, whatever it was
            _LOG.exception("a step failed", extra={"reference": reference()})
        else:
            return True
        return False
