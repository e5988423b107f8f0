"""Erases what people wrote, and the links, of jobs that ended longer ago than they are kept."""

import asyncio
import logging
from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from bot.clock import Clock
from bot.database import StoreError
from bot.kinds import Kind
from bot.store import Store
from bot.timings import Timings

_LOG: Final = logging.getLogger(__name__)


class Sweep:
    """Looks from time to time for jobs that are old enough."""

    def __init__(
        self,
        store: Store,
        kinds: Iterable[Kind],
        clock: Clock,
        timings: Timings,
        retention: timedelta,
    ) -> None:
        self._store = store
        self._kept = {kind.name: kind.kept_params for kind in kinds}
        self._clock = clock
        self._timings = timings
        self._retention = retention
        self._parked = asyncio.Event()

    async def run(self) -> None:
        """Erase what is due, again and again, until cancelled."""
        never = asyncio.Event()
        while True:
            now = self._clock.now()
            try:
                while erased := await self._store.jobs.erase(now - self._retention, self._kept):
                    _LOG.info("erased old scripts and links", extra={"jobs": erased})
            except StoreError as error:
                _LOG.error("old scripts could not be erased", extra={"reason": str(error)})
            until = now + self._timings.sweep_interval
            while self._clock.now() < until:
                self._parked.set()
                await self._clock.wait(never, until)
                self._parked.clear()

    async def settled(self) -> bool:
        """Return when nothing is due or under way; say whether anything was."""
        busy = not self._parked.is_set()
        await self._parked.wait()
        return busy
