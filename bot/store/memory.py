"""Keeps in memory what forms show, so that no form and no keystroke waits for the database."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, Protocol

from bot.clock import Clock
from bot.store.database import (
    Database,
    DatabaseError,
    Topic,
    Transaction,
    log_failure,
)
from bot.timings import Timings

_LOG: Final = logging.getLogger(__name__)


class InMemory(Protocol):
    """A table of which a part is kept in memory."""

    def refresh(self, tx: Transaction, now: datetime) -> Callable[[], None]:
        """Read what has changed; return what puts it into memory once that is committed."""


class Memory:
    """Reads again what has changed: every ``memory_interval``, and when a process says so.

    A process that changes a table has that in its memory at once. While the database cannot be
    read, memory stays as it is: forms open, and what is submitted is checked exactly.
    """

    def __init__(
        self, database: Database, tables: Sequence[InMemory], clock: Clock, timings: Timings
    ) -> None:
        self._database = database
        self._tables = tables
        self._clock = clock
        self._interval = timings.memory_interval
        self._changed = database.event(Topic.MEMORY)
        self._waiting = asyncio.Event()

    async def run(self) -> None:
        """Keep it until cancelled."""
        while True:
            self._waiting.set()
            await self._clock.wait(self._changed, self._clock.now() + self._interval)
            self._waiting.clear()
            await self.refresh()

    async def refresh(self) -> None:
        """Read what has changed, all in one transaction."""
        self._changed.clear()
        now = self._clock.now()
        try:
            read = await self._database.run(
                lambda tx: [table.refresh(tx, now) for table in self._tables], durable=False
            )
        except DatabaseError as error:
            log_failure(_LOG, "what forms show could not be read", error)
            return
        for remember in read:
            remember()

    async def settled(self) -> bool:
        """Wait until nothing is due or under way; return whether anything was."""
        busy = False
        while self._changed.is_set() or not self._waiting.is_set():
            busy = True
            await asyncio.sleep(0)  # it is set before ``run`` has woken up for it
            await self._waiting.wait()
        return busy
