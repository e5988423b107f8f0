"""Outages of the other side: one log line when it goes, and one when it is back."""

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Final

from bot.clock import Clock

_LOG: Final = logging.getLogger(__name__)
# Failed calls in a row that make an outage: one alone is no news.
_MIN_FAILURES: Final = 2
_MAX_ODD: Final = 1_000


class Outages:
    """Knows whether one side answers, from the calls that are made anyway.

    A call that failed while another one was answered says nothing more about the side until it
    succeeds: one video that cannot be read is no outage, however often it is read.

    Args:
        side: its name in the log, such as "Slack".
        clock: says how long an outage took.
        on_end: called when the side answers again.
    """

    def __init__(self, side: str, clock: Clock, on_end: Callable[[], None] = lambda: None) -> None:
        self._side = side
        self._clock = clock
        self._on_end = on_end
        self._failures = 0
        self._since: datetime | None = None
        self._failing: set[str] = set()  # since the last answer
        self._odd: set[str] = set()

    def failed(self, cause: str, call: str = "") -> None:
        """Note a call without an answer; ``cause`` is a word of ``bot.causes``.

        ``call`` tells calls for different things apart.
        """
        if call in self._odd:
            return
        if call:
            self._failing.add(call)
        self._since = self._since or self._clock.now()
        self._failures += 1
        if self._failures == _MIN_FAILURES:
            _LOG.warning(f"{self._side} is down", extra={"cause": cause})

    def answered(self, call: str = "") -> None:
        """Note a call with an answer."""
        if len(self._odd) + len(self._failing) > _MAX_ODD:
            self._odd.clear()
        self._odd = (self._odd | self._failing) - {call}
        self._failing = set()
        was_down, since = self._failures >= _MIN_FAILURES, self._since
        self._failures, self._since = 0, None
        if not was_down or since is None:
            return
        seconds = round((self._clock.now() - since).total_seconds())
        _LOG.warning(f"{self._side} is back", extra={"down_s": seconds})
        self._on_end()
