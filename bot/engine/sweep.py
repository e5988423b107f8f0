"""Housekeeping: forget old jobs, and wake rows that a wrong clock keeps from work.

``erase`` and ``delete`` of ``bot.store.jobs`` forget them; what outlives that, each kind says.
"""

import asyncio
import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from bot.kinds import Kind
from bot.store import DatabaseError, Store, log_failure
from bot.timings import Clock, Timings

_LOG: Final = logging.getLogger(__name__)

_MAX_TRIES: Final = 60
"""Sweeps in which erased texts are to become unreadable without anybody waiting for it."""


class Sweep:
    """Sweeps every ``sweep_interval``, and whenever the clock may have been set.

    Args:
        retention: how long the scripts and links of an ended job are kept, but for the name and the
            link of what was made. After as long again, and at least ``keep_ended_for``, nothing is
            kept.
    """

    def __init__(
        self,
        store: Store,
        kinds: Iterable[Kind],
        clock: Clock,
        timings: Timings,
        retention: timedelta,
    ) -> None:
        self._store = store
        self._kinds = list(kinds)
        self._clock = clock
        self._timings = timings
        self._retention = retention
        self._keep_ended_for = max(2 * retention, timings.keep_ended_for)
        self._erased_at: datetime | None = None
        # The process before this one may have ended between the erasing and the compaction.
        self._tries_to_compact = _MAX_TRIES

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            now = self._clock.now()
            await self._wake_far_future(now)
            interval = self._timings.erase_interval
            # If it was done in the future, the clock has been set back since.
            if self._erased_at is None or not timedelta(0) <= now - self._erased_at < interval:
                await self._erase(now)
            if self._tries_to_compact:
                await self._compact()
            # Only one wait: it ends within half a minute, also where the clock is set back.
            await self._clock.wait(asyncio.Event(), now + self._timings.sweep_interval)

    async def _wake_far_future(self, now: datetime) -> None:
        try:
            for table in (self._store.jobs, self._store.deliveries):
                while woken := await table.wake_far_future(now):
                    _LOG.warning("rows were due too late: the clock was set", extra={"rows": woken})
        except DatabaseError as error:
            log_failure(_LOG, "rows could not be swept", error)

    async def _erase(self, now: datetime) -> None:
        """Do what is done at the start and rarely after it."""
        kept = {kind.name: kind.kept_params for kind in self._kinds}
        of_made = {kind.name: kind.kept_of_made for kind in self._kinds}
        before = now - self._retention
        try:
            while erased := await self._store.jobs.erase(before, kept, of_made):
                _LOG.info("erased old scripts and links", extra={"jobs": erased})
                self._tries_to_compact = _MAX_TRIES
            while deleted := await self._store.jobs.delete(now - self._keep_ended_for):
                _LOG.info("deleted old jobs", extra={"jobs": deleted})
                self._tries_to_compact = _MAX_TRIES
            while await self._store.jobs.forget_audit(
                now - self._retention, now - self._keep_ended_for
            ):
                self._tries_to_compact = _MAX_TRIES
            await self._store.limits.forget_days(now)
        except DatabaseError as error:
            log_failure(_LOG, "old jobs could not be erased", error)
        else:
            self._erased_at = now

    async def _compact(self) -> None:
        """Make what was erased unreadable, when nobody waits; in the end, also if somebody does."""
        self._tries_to_compact -= 1
        try:
            if not await self._store.jobs.is_to_compact():
                self._tries_to_compact = 0
            elif await self._store.database.compact(give_way=self._tries_to_compact > 0):
                await self._store.jobs.mark_compacted()
                self._tries_to_compact = 0
        except DatabaseError as error:
            log_failure(_LOG, "the database could not be compacted", error)
