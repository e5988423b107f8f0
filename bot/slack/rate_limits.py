"""When Slack may be called again: after a rate limit, or after the workspace refused the app.

``chat.postMessage`` is limited for each channel, every other method for the workspace:
https://docs.slack.dev/apis/web-api/rate-limits. What a limit covers goes on with one call, and then
one after the other, at the pace that Slack documents. Each copy of the bot learns the limits for
itself: several have a few more calls refused, each of which waits as long as Slack asks.
"""

import logging
from datetime import datetime, timedelta
from typing import Final

from bot.clock import Clock
from bot.errors import OutsideError, Refused, Unavailable
from bot.model import DeliveryState
from bot.store import Limited
from bot.timings import Timings

_LOG: Final = logging.getLogger(__name__)
# After this time without a call, a limit is over.
_FORGET_AFTER: Final = timedelta(minutes=1)


class MethodLimits:
    """Remembers which methods Slack limits in the workspace: for calls that nobody repeats.

    Slack may ask for any wait, but none is longer than ``max_wait``.
    """

    def __init__(self, clock: Clock, max_wait: timedelta) -> None:
        self._clock = clock
        self._max_wait = max_wait
        self._until: dict[str, datetime] = {}

    def note(self, method: str, error: OutsideError) -> None:
        """Note why a call failed: if Slack asks to wait, none is made until then."""
        if isinstance(error, Unavailable) and error.retry_after is not None:
            self._until[method] = self._clock.now() + min(error.retry_after, self._max_wait)

    def until(self, method: str) -> datetime | None:
        """Return until when a method is not called; None for now."""
        until = self._until.get(method)
        return until if is_ahead(until, self._clock.now(), self._max_wait) else None

    def begin(self, method: str, interval: timedelta) -> datetime | None:
        """Note that a call begins and return None, or when to ask again.

        After a limit one call begins, and the others at this ``interval``.
        """
        if (until := self.until(method)) is not None:
            return until
        now = self._clock.now()
        last = self._until.get(method)
        if last is not None and now - last < _FORGET_AFTER:
            self._until[method] = now + interval
        return None


def is_ahead(until: datetime | None, now: datetime, max_wait: timedelta) -> bool:
    """Return whether a wait goes on. One that is too long is from before a clock was set back."""
    return until is not None and now < until <= now + max_wait


class RateLimits:
    """Remembers which calls Slack limits, and until when all of Slack is paused."""

    def __init__(self, clock: Clock, timings: Timings) -> None:
        self._clock = clock
        self._timings = timings
        self._next_calls: dict[Limited, datetime] = {}
        self._paused_until: datetime | None = None

    # ── Posts, edits and searches ─────────────────────────────────────────────────────────────

    def limit(self, limited: Limited, wait: timedelta) -> None:
        """Make no call that is under this limit for ``wait``: Slack asked for that."""
        at = self._clock.now() + min(wait, self._timings.max_wait)
        self._next_calls[limited] = max(at, self._next_calls.get(limited, at))

    def current(self) -> dict[Limited, datetime]:
        """Return the limits, each with the time of its next call."""
        now, longest = self._clock.now(), self._timings.max_wait
        self._next_calls = {
            limited: at if is_ahead(at, now, longest) else min(at, now)
            for limited, at in self._next_calls.items()
            if now - at < _FORGET_AFTER
        }
        return dict(self._next_calls)

    def count(self, limited: Limited) -> None:
        """Note that a call under a limit begins: the next one follows at the pace of the limit."""
        posts = limited.state == DeliveryState.PENDING
        interval = self._timings.post_interval if posts else self._timings.call_interval
        self._next_calls[limited] = self._clock.now() + interval

    # ── All of Slack ──────────────────────────────────────────────────────────────────────────

    def pause(self, error: Refused) -> datetime:
        """Make no call for a while, since the workspace refuses this app; return until when."""
        if self._paused_until is None:
            _LOG.error("Slack accepts nothing from this app", extra={"code": error.code})
        self._paused_until = self._clock.now() + self._timings.pause
        return self._paused_until

    @property
    def paused_until(self) -> datetime | None:
        """Until when no call is made; None if calls are."""
        until, now = self._paused_until, self._clock.now()
        return until if is_ahead(until, now, self._timings.max_wait) else None

    def resume(self) -> None:
        """End the pause: a call succeeded."""
        if self._paused_until is not None:
            _LOG.info("Slack accepts messages again")
            self._paused_until = None
