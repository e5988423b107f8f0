"""Outages of Slack and of the video service: one log line when a side goes, one when it is back."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from bot.timings import Clock

_LOG: Final = logging.getLogger(__name__)
# Failed calls in a row that make an outage: one alone is no news.
_MIN_FAILURES: Final = 2


@dataclass(frozen=True, slots=True)
class Outage:
    """A time without an answer that goes on."""

    since: datetime
    cause: str
    """Of the last failed call: a word of ``bot.service.errors``."""


class Outages:
    """Knows whether one side answers, from the calls that are made anyway.

    Args:
        side: its name in the log, such as "Slack".
        clock: says how long an outage took.
        on_end: called when the side answers again.
        remedy: what to check, for the log.
    """

    def __init__(
        self,
        side: str,
        clock: Clock,
        on_end: Callable[[], object] = lambda: None,
        remedy: str = "",
    ) -> None:
        self._side = side
        self._clock = clock
        self._on_end = on_end
        self._remedy = remedy
        self._failures = 0
        self._since: datetime | None = None
        self._cause = ""
        self._down: set[str] = set()
        """The parts that do not answer: what ``keep`` named, and "" for what ``failed`` showed."""
        self.last_answer: datetime | None = None
        """When the side answered last; None before the first answer since the start."""

    @property
    def current(self) -> Outage | None:
        """The outage that goes on, if one does."""
        return Outage(self._since, self._cause) if self._since and self._down else None

    def failed(self, cause: str) -> None:
        """Note a call without an answer; ``cause`` is a word of ``bot.service.errors``."""
        self._since = self._since or self._clock.now()
        self._failures += 1
        # Before the first answer since the start, one failed call is enough.
        if self._failures >= (_MIN_FAILURES if self.last_answer is not None else 1):
            self.keep("", cause)

    def keep(self, part: str, cause: str) -> None:
        """Note that a part of the side is down, until ``drop``, whatever other calls show."""
        self._since, self._cause = self._since or self._clock.now(), cause
        if not self._down:
            extra = {"cause": cause, "remedy": self._remedy}
            _LOG.warning(f"{self._side} is down", extra=extra)
        self._down.add(part)

    def drop(self, part: str) -> None:
        """Note that a part of the side works again."""
        outage = self.current
        self._down.discard(part)
        if self._down:
            return
        self._since = None
        if outage is not None:
            seconds = round((self._clock.now() - outage.since).total_seconds())
            _LOG.warning(f"{self._side} is back", extra={"down_s": seconds})
            self._on_end()

    def note_answer(self) -> None:
        """Note an answer that says nothing about other calls."""
        self.last_answer = self._clock.now()

    def answered(self) -> None:
        """Note a call with an answer."""
        self.note_answer()
        self._failures = 0
        self.drop("")
