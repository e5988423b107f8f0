"""Reads something harmless from the video service while it is not known that it works."""

import asyncio
from datetime import datetime, timedelta

from bot.clock import Clock
from bot.timings import Timings
from bot.video_service import VideoService


class ServiceCheck:
    """Resolves doubts about the service: at the start, after calls that failed, while it is down.

    Args:
        service: logs what is wrong, and that it is right again.
    """

    def __init__(self, service: VideoService, clock: Clock, timings: Timings) -> None:
        self._service = service
        self._clock = clock
        self._timings = timings
        self._checked_at: datetime | None = None
        self._waiting = asyncio.Event()
        self._wait: timedelta | None = None
        service.in_doubt.set()

    def refresh(self) -> None:
        """Check, if nothing has shown for a while that the service answers."""
        now, interval = self._clock.now(), self._timings.recheck_side
        moments = (self._checked_at, self._service.outages.last_answer)
        if not any(each and abs(now - each) < interval for each in moments):
            self._service.in_doubt.set()

    async def run(self) -> None:
        """Check when the service is in doubt, and again until it is not."""
        while True:
            self._waiting.set()
            if self._wait is None:
                await self._clock.wait(self._service.in_doubt)
            else:
                await self._clock.wait(asyncio.Event(), self._clock.now() + self._wait)
            self._waiting.clear()
            if self._is_due():
                self._checked_at = self._clock.now()
                self._wait = await self._service.resolve_doubt()

    async def settled(self) -> bool:
        """Wait until no check is due or under way; return whether one was."""
        busy = False
        while not self._waiting.is_set() or (self._wait is None and self._is_due()):
            busy = True
            await self._waiting.wait()
            await asyncio.sleep(0)
        return busy

    def _is_due(self) -> bool:
        return self._wait is not None or self._service.in_doubt.is_set()
