"""Keeps in memory what forms show, so that no form and no keystroke waits for the database."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from math import ceil
from statistics import median
from typing import Final, Protocol

from bot.clock import Clock
from bot.model import Durations
from bot.store.database import (
    Database,
    DatabaseError,
    Query,
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


# ── Typical durations ─────────────────────────────────────────────────────────────────────────

_MAX_JOBS: Final = 100
"""The recent jobs that count."""
_ENOUGH: Final = 10
"""The jobs without which nothing is said of scripts as long, nor of 9 of 10."""
_SHORT: Final = 250
"""Scripts with fewer characters are one band. Each further band ends at twice as many."""

# A job about which a person was asked ended at some time before they answered.
_DURATION: Final = "CASE WHEN asked_at IS NULL THEN ended_at - started_at END"
# Each part has an index in its order: it reads no more rows than it returns.
_RECENT: Final = Query(
    f"""
    SELECT * FROM (
        SELECT {_DURATION} AS duration, 1 AS as_long FROM jobs
        WHERE kind = :kind AND script_band = :band AND state = 'succeeded'
        ORDER BY ended_at DESC LIMIT :limit
    ) AS of_length
    UNION ALL SELECT * FROM (
        SELECT {_DURATION} AS duration, 0 AS as_long FROM jobs
        WHERE kind = :kind AND state = 'succeeded' ORDER BY ended_at DESC LIMIT :limit
    ) AS of_kind
    """  # noqa: S608 - the expression is ours
)


def script_band(script: str | None) -> int | None:
    """Return the band of a script's length, counted from 0: under 250 characters, 500, 1,000."""
    return None if script is None else (len(script) // _SHORT).bit_length()


class TypicalDurations:
    """How long recent jobs took with scripts as long, in memory for what was asked for once.

    They are None where there are no such jobs.
    """

    def __init__(self, database: Database) -> None:
        self._changed = database.event(Topic.MEMORY)
        self._known: dict[tuple[str, int | None], Durations | None] = {}
        self._asked = set[tuple[str, int | None]]()

    def follow(self, kinds: Iterable[str]) -> None:
        """Have those of these kinds read from now on, for scripts of all lengths together."""
        self._asked |= {(kind, None) for kind in kinds}

    def get(self, kind: str, script: str | None) -> Durations | None:
        """Return how long recent jobs of a kind took, for a script as long as this; None at first.

        ``script`` is None for a kind without one, and before there is one. The first time that a
        length is asked for, the answer is that of all lengths.
        """
        of_length: tuple[str, int | None] = (kind, script_band(script))
        if of_length not in self._known:
            self._asked.add(of_length)
            self._changed.set()  # it is read soon
            of_length = (kind, None)
        return self._known.get(of_length)

    def find(self, tx: Transaction, kind: str, script: str | None) -> Durations | None:
        """Return the same, read in a transaction if it is not in memory.

        Works that are committed together share it.
        """
        of_length = kind, script_band(script)
        if of_length in self._known:
            return self._known[of_length]
        return tx.once((_RECENT, *of_length), lambda: _recent_durations(tx, *of_length))

    def learn(self, kind: str, script: str | None, durations: Durations | None) -> None:
        """Keep what was found in a transaction that is committed."""
        self._known[kind, script_band(script)] = durations

    def refresh(self, tx: Transaction, _now: datetime) -> Callable[[], None]:
        """Read those again that were asked for; see ``Memory``."""
        found = {each: _recent_durations(tx, *each) for each in self._asked | self._known.keys()}
        return lambda: self._known.update(found)


def _recent_durations(tx: Transaction, kind: str, band: int | None) -> Durations | None:
    rows = tx.all(_RECENT, kind=kind, band=band, limit=_MAX_JOBS)
    as_long = [row for row in rows if row["as_long"]]
    used = as_long if len(as_long) >= _ENOUGH else [row for row in rows if not row["as_long"]]
    took = sorted(row["duration"] for row in used if row["duration"] is not None)
    if not took:
        return None
    slow = took[ceil(0.9 * len(took)) - 1] if len(took) >= _ENOUGH else None
    return Durations(
        timedelta(milliseconds=round(median(took))),
        None if slow is None else timedelta(milliseconds=slow),
    )
