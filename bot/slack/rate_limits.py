"""When Slack may be called again: after a rate limit, or after the workspace refused the app."""

import logging
from datetime import datetime
from typing import Final

from bot.clock import Clock
from bot.errors import Refused
from bot.timings import DeliveryTimings

_LOG: Final = logging.getLogger(__name__)


class RateLimits:
    """Remembers until when a method is limited in a channel, and all of Slack is paused."""

    def __init__(self, clock: Clock, timings: DeliveryTimings) -> None:
        self._clock = clock
        self._timings = timings
        self._limited: dict[tuple[str, str], datetime] = {}
        self._paused_until: datetime | None = None

    def limit(self, method: str, channel: str, until: datetime) -> None:
        """Make no call of ``method`` for a channel before ``until``: Slack asked to wait."""
        now = self._clock.now()
        self._limited = {key: at for key, at in self._limited.items() if at > now}
        self._limited[method, channel] = until

    def limited_until(self, method: str, channel: str) -> datetime | None:
        """Return until when ``method`` is limited in a channel; None if it is not."""
        until = self._limited.get((method, channel))
        return until if self._is_ahead(until) else None

    def pause(self, error: Refused) -> datetime:
        """Make no call for a while, since the workspace refuses this app; return until when."""
        if self._paused_until is None:
            _LOG.error("Slack accepts nothing from this app", extra={"code": error.code})
        self._paused_until = self._clock.now() + self._timings.pause
        return self._paused_until

    @property
    def paused_until(self) -> datetime | None:
        """Until when no call is made; None if calls are."""
        return self._paused_until if self._is_ahead(self._paused_until) else None

    def resume(self) -> None:
        """End the pause: a call succeeded."""
        if self._paused_until is not None:
            _LOG.info("Slack accepts messages again")
            self._paused_until = None

    def _is_ahead(self, until: datetime | None) -> bool:
        # A wait that is too long is from before the clock was set back.
        now = self._clock.now()
        return until is not None and now < until <= now + self._timings.max_wait
