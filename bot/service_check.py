"""Checks at the start whether the video service answers and accepts our key, until it does."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, Final

from bot.clock import Clock
from bot.errors import OutsideError, Refused
from bot.timings import Timings
from bot.video_service import VideoService

_LOG: Final = logging.getLogger(__name__)


class ServiceCheck:
    """Reads something harmless from the service while it is not known that it works.

    Args:
        service: logs what is wrong, and that it is right again.
        spawn: runs a check that nobody waits for.
    """

    def __init__(
        self,
        service: VideoService,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        clock: Clock,
        timings: Timings,
    ) -> None:
        self._service = service
        self._spawn = spawn
        self._clock = clock
        self._timings = timings
        self._in_doubt = asyncio.Event()
        self._checked_at: datetime | None = None
        self._is_checking = False
        self._is_forbidden = False

    def check(self) -> None:
        """Check in the background, unless that is under way."""
        if not self._is_checking:
            self._is_checking, self._checked_at = True, self._clock.now()
            self._spawn(self._check())

    def refresh(self) -> None:
        """Check, if nothing has shown for a while that the service answers."""
        now, interval = self._clock.now(), self._timings.recheck_side
        moments = (self._checked_at, self._service.outages.last_answer)
        if not any(each and abs(now - each) < interval for each in moments):
            self.check()

    async def run(self) -> None:
        """Check again now and then after a check that failed."""
        never = asyncio.Event()
        while True:
            await self._clock.wait(self._in_doubt)
            await self._clock.wait(never, self._clock.now() + self._timings.recheck_side)
            if self._in_doubt.is_set():
                self.check()

    async def _check(self) -> None:
        try:
            await self._service.verify()
            self._in_doubt.clear()
        except OutsideError as error:
            self._in_doubt.set()
            self._report(error)
        finally:
            self._is_checking = False

    def _report(self, error: OutsideError) -> None:
        """Log a refusal that may be about the key, and closes no gate."""
        if isinstance(error, Refused) and error.code == "403" and not self._is_forbidden:
            self._is_forbidden = True
            _LOG.warning("the video service forbids reads: is VIDEO_API_KEY right?")
