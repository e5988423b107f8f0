"""Requests that are turned away: a log line a minute, with their number."""

import logging
from datetime import datetime, timedelta
from typing import Final

from bot.clock import Clock

_LOG: Final = logging.getLogger(__name__)
_INTERVAL: Final = timedelta(minutes=1)


class Rejections:
    """Counts requests that are turned away for one reason, and logs it at most once a minute.

    Args:
        event: the log line.
    """

    def __init__(self, event: str, clock: Clock) -> None:
        self._event = event
        self._clock = clock
        self._count = 0
        self._logged_at: datetime | None = None

    def add(self) -> None:
        """Count one more, and log how many there were since the last line if that is due."""
        self._count += 1
        now = self._clock.now()
        if self._logged_at is None or not timedelta(0) <= now - self._logged_at < _INTERVAL:
            _LOG.warning(self._event, extra={"count": self._count})
            self._count, self._logged_at = 0, now
