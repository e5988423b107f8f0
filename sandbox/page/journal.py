"""The journal of updates, numbered so that a page can resume after a lost connection."""

import asyncio
import contextlib
import itertools
import secrets
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from sandbox.block_kit import Json

_MAX_UPDATES: Final = 5_000


@dataclass(frozen=True)
class Update:
    """An update of the page; ``audience`` are user ids, or None for the panel."""

    number: int
    name: str
    data: Callable[[], Json]
    audience: frozenset[str] | None


class Journal:
    """The last updates. A cursor names the position after one of them."""

    def __init__(self) -> None:
        # The cursors of another run of the sandbox are invalid here.
        self._run = secrets.token_hex(4)
        self._updates: deque[Update] = deque(maxlen=_MAX_UPDATES)
        self._last = 0
        self._listeners: set[asyncio.Event] = set()

    @property
    def last(self) -> int:
        """Return the number of the newest update."""
        return self._last

    def cursor(self, number: int) -> str:
        """Return the cursor for the position after an update."""
        return f"{self._run}-{number}"

    def place(self, cursor: str) -> int | None:
        """Return the number of the update before a cursor; None if it is invalid or too old."""
        run, _, digits = cursor.rpartition("-")
        if run != self._run or not (digits.isascii() and digits.isdecimal()):
            return None
        number = int(digits)
        return number if self._last - len(self._updates) <= number <= self._last else None

    def note(self, name: str, data: Callable[[], Json], audience: frozenset[str] | None) -> None:
        """Add an update; ``data`` is called when it is sent."""
        self._last += 1
        self._updates.append(Update(self._last, name, data, audience))
        self.wake()

    def after(self, number: int) -> list[Update]:
        """Return the updates after ``number``, oldest first."""
        newer = itertools.takewhile(lambda update: update.number > number, reversed(self._updates))
        return list(newer)[::-1]

    @contextlib.contextmanager
    def listening(self) -> Iterator[asyncio.Event]:
        """Yield an event that is set with each update; the listener clears it."""
        updated = asyncio.Event()
        self._listeners.add(updated)
        try:
            yield updated
        finally:
            self._listeners.discard(updated)

    def wake(self) -> None:
        """Wake all listeners."""
        for updated in self._listeners:
            updated.set()
