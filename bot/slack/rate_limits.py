"""When Slack may be called again: after a rate limit, or after the workspace refused the app.

``chat.postMessage`` is limited for each channel, every other method for the workspace:
https://docs.slack.dev/apis/web-api/rate-limits. What a limit covers goes on with one call, and then
one after the other, at the pace that Slack documents. Each copy of the bot learns the limits for
itself: several have a few more calls refused, each of which waits as long as Slack asks.
"""

import logging
from datetime import datetime, timedelta
from typing import Final, Generic, TypeVar

from bot.clock import Clock
from bot.errors import OutsideError, Refused
from bot.store import Limited
from bot.timings import Timings

_LOG: Final = logging.getLogger(__name__)
_K = TypeVar("_K")
# After this time without a call, a limit is over.
_FORGET_AFTER: Final = timedelta(minutes=1)


class CallLimits(Generic[_K]):
    """Remembers what Slack limits, such as a method, and when the next call of it may begin.

    Slack may ask for any wait, but none is longer than ``max_wait``.
    """

    def __init__(self, clock: Clock, max_wait: timedelta) -> None:
        self._clock = clock
        self._max_wait = max_wait
        self._next_calls: dict[_K, datetime] = {}

    def limit(self, limited: _K, wait: timedelta) -> None:
        """Make no such call for ``wait``, nor before its next call was due."""
        at = self._clock.now() + min(wait, self._max_wait)
        self._next_calls[limited] = max(at, self.until(limited) or at)

    def note(self, limited: _K, error: OutsideError) -> bool:
        """Note why a call failed; return whether Slack asks to wait, so that none is made now."""
        if error.retry_after is not None:
            self.limit(limited, error.retry_after)
        return error.retry_after is not None

    def until(self, limited: _K) -> datetime | None:
        """Return until when no such call is made; None for now."""
        until = self._next_calls.get(limited)
        return until if is_ahead(until, self._clock.now(), self._max_wait) else None

    def begin(self, limited: _K, interval: timedelta) -> datetime | None:
        """Note that a call begins and return None, or when to ask again.

        After a limit one call begins, and the others at this ``interval``.
        """
        if (until := self.until(limited)) is not None:
            return until
        now = self._clock.now()
        last = self._next_calls.get(limited)
        if last is not None and now - last < _FORGET_AFTER:
            self._next_calls[limited] = now + interval
        return None

    def current(self) -> dict[_K, datetime]:
        """Return the limits, each with the time of its next call."""
        now = self._clock.now()
        self._next_calls = {
            limited: self.until(limited) or min(at, now)
            for limited, at in self._next_calls.items()
            if now - at < _FORGET_AFTER
        }
        return dict(self._next_calls)


def is_ahead(until: datetime | None, now: datetime, max_wait: timedelta) -> bool:
    """Return whether a wait goes on. One that is too long is from before a clock was set back."""
    return until is not None and now < until <= now + max_wait


class RateLimits(CallLimits[Limited]):
    """Remembers which posts, edits and searches Slack limits, and until when all are paused."""

    def __init__(self, clock: Clock, timings: Timings) -> None:
        super().__init__(clock, timings.max_wait)
        self._pause = timings.pause
        self._paused_until: datetime | None = None

    def pause(self, error: Refused) -> datetime:
        """Make no call for a while, since the workspace refuses this app; return until when."""
        if self._paused_until is None:
            _LOG.error("Slack accepts nothing from this app", extra={"code": error.code})
        self._paused_until = self._clock.now() + self._pause
        return self._paused_until

    @property
    def paused_until(self) -> datetime | None:
        """Until when no call is made; None if calls are."""
        until = self._paused_until
        return until if is_ahead(until, self._clock.now(), self._max_wait) else None

    def resume(self) -> None:
        """End the pause: a call succeeded."""
        if self._paused_until is not None:
            _LOG.info("Slack accepts messages again")
            self._paused_until = None
