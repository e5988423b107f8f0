"""The works that wait for a connection to PostgreSQL."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bot.store.database import Transaction

# Works that are committed together at most: each waits for the others.
_MAX_GROUP: Final = 16


@dataclass(slots=True, eq=False)
class Call:
    """A work that waits for its turn, and the future of its caller."""

    work: Callable[[Transaction], Any]
    durable: bool
    answer: asyncio.Future[Any]
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
    """Works in their order, and the workers that wait for one."""

    def __init__(self) -> None:
        self._calls: deque[Call] = deque()
        self._closing = False
        # The last one is woken first.
        self._idle: deque[asyncio.Event] = deque()

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, call: Call) -> None:
        """Add a work after all others."""
        self._calls.append(call)
        self._wake_worker()

    def repeat(self, calls: Sequence[Call]) -> None:
        """Add works before all others: they came earlier."""
        self._calls.extendleft(reversed(calls))
        for _ in calls:
            self._wake_worker()

    async def wait(self, *, is_connected: bool) -> bool:
        """Wait until a work waits; return False when none will any more.

        Workers with a connection are woken first, and of these the last one that had work: so a
        quiet process needs one connection, and none where the server accepts no more.
        """
        while not self._calls:
            if self._closing:
                return False
            wake = asyncio.Event()
            if is_connected:
                self._idle.append(wake)
            else:
                self._idle.appendleft(wake)
            await wake.wait()
        return True

    def take_group(self) -> list[Call]:
        """Return works that may be committed together; none if none wait."""
        group: list[Call] = []
        while self._calls and len(group) < _MAX_GROUP:
            if self._calls[0].alone and group:
                break
            group.append(self._calls.popleft())
            if group[0].alone:
                break
        if self._calls:
            self._wake_worker()
        return group

    def fail_all(self, error: Callable[[], Exception]) -> None:
        """Answer all callers that wait with an error."""
        while self._calls:
            self._calls.popleft().fail(error())

    def close(self) -> None:
        """Let the workers end once no work waits."""
        self._closing = True
        while self._idle:
            self._wake_worker()

    def _wake_worker(self) -> None:
        if self._idle:
            self._idle.pop().set()
