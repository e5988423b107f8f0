"""What has happened, numbered, so that a page whose line broke off goes on where it was."""

import asyncio
import contextlib
import itertools
import secrets
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from sandbox.block_kit import Json

_LENGTH: Final = 5_000


@dataclass(frozen=True)
class Event:
    """Something that a page is told; ``audience`` are user ids, None for the other side's panel."""

    number: int
    name: str
    data: Callable[[], Json]
    audience: frozenset[str] | None


class Journal:
    """The last events, and a cursor that names the place between two of them."""

    def __init__(self) -> None:
        # Another run of the sandbox numbers other events: its cursors are not ours.
        self._run = secrets.token_hex(4)
        self._events: deque[Event] = deque(maxlen=_LENGTH)
        self._last = 0
        self._listeners: set[asyncio.Event] = set()

    @property
    def last(self) -> int:
        """Return the number of the newest event."""
        return self._last

    def cursor(self, number: int) -> str:
        """Return the cursor for the place behind the event ``number``."""
        return f"{self._run}-{number}"

    def place(self, cursor: str) -> int | None:
        """Return the number of the event that a cursor stands behind; None if it is too old."""
        run, _, digits = cursor.rpartition("-")
        if run != self._run or not (digits.isascii() and digits.isdecimal()):
            return None
        number = int(digits)
        return number if self._last - len(self._events) <= number <= self._last else None

    def note(self, name: str, data: Callable[[], Json], audience: frozenset[str] | None) -> None:
        """Add an event; ``data`` is asked for what to say when somebody is told."""
        self._last += 1
        self._events.append(Event(self._last, name, data, audience))
        self.wake()

    def after(self, number: int) -> list[Event]:
        """Return the events behind the event ``number``, oldest first."""
        newer = itertools.takewhile(lambda event: event.number > number, reversed(self._events))
        return list(newer)[::-1]

    @contextlib.contextmanager
    def listening(self) -> Iterator[asyncio.Event]:
        """Give what is set with each event that comes; whoever waits clears it."""
        news = asyncio.Event()
        self._listeners.add(news)
        try:
            yield news
        finally:
            self._listeners.discard(news)

    def wake(self) -> None:
        """Let everybody who listens look up."""
        for news in self._listeners:
            news.set()
