"""The works that wait for a connection to PostgreSQL."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bot.store.database import Transaction

# Works that are committed together at most: each waits for the others.
_MAX_GROUP: Final = 16
# Of serial works, which would wait for each other in smaller groups too.
_MAX_SERIAL_GROUP: Final = 64


@dataclass(slots=True, eq=False)
class Call:
    """A work that waits for its turn, and the future of its caller."""

    work: Callable[[Transaction], Any]
    durable: bool
    answer: asyncio.Future[Any]
    since: float
    """When it came, on the clock of the event loop."""
    serial: bool = False
    """Whether it waits for a lock that is held by all works like it."""
    alone: bool = False
    """Whether it runs in a transaction of its own."""
    tries: int = 0

    def succeed(self, result: object) -> None:
        """Answer the caller, who may have been cancelled."""
        if not self.answer.done():
            self.answer.set_result(result)

    def fail(self, error: Exception) -> None:
        """Answer the caller with an error.

        It must not have psycopg's error as its cause, whose text may carry what is stored.
        """
        if not self.answer.done():
            self.answer.set_exception(error)


class Queue:
    """Works in their order, and the workers that wait for one.

    Of serial works, one group is under way at a time. They take turns with the others.
    """

    def __init__(self) -> None:
        self._calls: deque[Call] = deque()
        self._serial: deque[Call] = deque()
        self._serial_is_next = False
        self._serial_group: list[Call] | None = None
        self._closing = False
        # The last one is woken first.
        self._idle: deque[asyncio.Event] = deque()

    def __bool__(self) -> bool:
        """Whether a group can be taken."""
        return bool(self._calls or self._waiting_serial)

    @property
    def serial_since(self) -> float | None:
        """When the first serial work came that waits or is under way; None if there is none."""
        first = next(iter(self._serial_group or self._serial), None)
        return None if first is None else first.since

    def add(self, call: Call) -> None:
        """Add a work after all others."""
        (self._serial if call.serial else self._calls).append(call)
        if self:
            self._wake_worker()

    def repeat(self, calls: Sequence[Call]) -> None:
        """Add works before all others: they came earlier."""
        for call in reversed(calls):
            (self._serial if call.serial else self._calls).appendleft(call)
            self._wake_worker()

    async def wait(self, *, is_connected: bool) -> bool:
        """Wait until a work waits; return False when none will any more.

        Workers with a connection are woken first, and of these the last one that had work: so a
        quiet process needs one connection, and none where the server accepts no more.
        """
        while not self:
            if self._closing:  # the worker that has serial works takes those that wait too
                return False
            wake = asyncio.Event()
            if is_connected:
                self._idle.append(wake)
            else:
                self._idle.appendleft(wake)
            await wake.wait()
        return True

    def take_group(self) -> list[Call]:
        """Return works that may be committed together; none if none wait.

        ``end_group`` is to be called with them, once it is known what became of them.
        """
        if self._waiting_serial and (self._serial_is_next or not self._calls):
            group = self._serial_group = _first(self._serial, _MAX_SERIAL_GROUP)
            self._serial_is_next = False
        else:
            group = _first(self._calls, _MAX_GROUP)
            self._serial_is_next = True
        if self:
            self._wake_worker()
        return group

    def end_group(self, group: Sequence[Call]) -> None:
        """Let the next serial works be taken, if these are such."""
        if group is self._serial_group:
            self._serial_group = None

    def fail_all(self, error: Callable[[], Exception]) -> None:
        """Answer all callers that wait with an error."""
        for calls in (self._calls, self._serial):
            while calls:
                calls.popleft().fail(error())

    def close(self) -> None:
        """Let the workers end once no work waits."""
        self._closing = True
        while self._idle:
            self._wake_worker()

    @property
    def _waiting_serial(self) -> bool:
        return bool(self._serial) and self._serial_group is None

    def _wake_worker(self) -> None:
        if self._idle:
            self._idle.pop().set()


def _first(calls: deque[Call], number: int) -> list[Call]:
    """Remove the first works that may be committed together, up to ``number``, and return them."""
    group: list[Call] = []
    while calls and len(group) < number and not (calls[0].alone and group):
        group.append(calls.popleft())
        if group[0].alone:
            break
    return group
