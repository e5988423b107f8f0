"""Keeps in memory what forms show, so that no form and no keystroke waits for the database."""

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from math import ceil
from statistics import median
from typing import Final, Protocol

from bot.model import Durations
from bot.setting_values import LONGEST_SCRIPT
from bot.store.database import (
    Database,
    DatabaseError,
    Query,
    Topic,
    Transaction,
    log_failure,
)
from bot.timings import Clock, Timings

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

    async def run(self) -> None:
        """Keep it until cancelled."""
        while True:
            await self._clock.wait(self._changed, self._clock.now() + self._interval)
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


# ── Typical durations ─────────────────────────────────────────────────────────────────────────

_MAX_JOBS: Final = 100
"""The recent jobs that count."""
_ENOUGH: Final = 10
"""The jobs without which nothing is said of scripts as long, nor of 9 of 10."""
_SHORT: Final = 250
"""Scripts with fewer characters are one band. Each further band ends at twice as many."""


def script_band(script: str | None) -> int | None:
    """Return the band of a script's length, counted from 0: under 250 characters, 500, 1,000."""
    return None if script is None else (len(script) // _SHORT).bit_length()


_BANDS: Final = range((LONGEST_SCRIPT // _SHORT).bit_length() + 1)
# Each part has an index in its order: it reads no more rows than it returns. A job about which a
# person was asked ended at some time before they answered.
_RECENT: Final = Query(
    " UNION ALL ".join(
        f"""SELECT * FROM (
            SELECT CASE WHEN asked_at IS NULL THEN ended_at - started_at END AS duration,
                {band} AS band
            FROM jobs WHERE kind = :kind AND {condition} AND state = 'succeeded'
            ORDER BY ended_at DESC LIMIT :limit
        ) AS {name}"""  # noqa: S608 - our own text
        for band, condition, name in (
            (-1, "1 = 1", "of_kind"),
            *((each, f"script_band = {each}", f"of_band_{each}") for each in _BANDS),
        )
    )
)


class TypicalDurations:
    """How long recent jobs took with scripts as long, in memory.

    They are None where there are no such jobs.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, int | None], Durations | None] = {}
        self._kinds: list[str] = []

    def follow(self, kinds: Iterable[str]) -> None:
        """Have those of these kinds read from now on."""
        self._kinds = [*kinds]

    def get(self, kind: str, script: str | None) -> Durations | None:
        """Return how long recent jobs of a kind took, for a script as long as this.

        ``script`` is None for a kind without one, and before there is one: then the answer is that
        of all lengths, as it is where there are too few jobs with scripts as long.
        """
        return self._known.get((kind, script_band(script)))

    def refresh(self, tx: Transaction, _now: datetime) -> Callable[[], None]:
        """Read those of the kinds that are followed; see ``Memory``."""
        found: dict[tuple[str, int | None], Durations | None] = {}
        for kind in self._kinds:
            rows = tx.all(_RECENT, kind=kind, limit=_MAX_JOBS)
            of_kind = [row["duration"] for row in rows if row["band"] == -1]
            found[kind, None] = _durations(of_kind)
            for band in _BANDS:
                as_long = [row["duration"] for row in rows if row["band"] == band]
                found[kind, band] = _durations(as_long if len(as_long) >= _ENOUGH else of_kind)
        return lambda: self._known.update(found)


def _durations(known: Sequence[int | None]) -> Durations | None:
    """Return what recent jobs took, each given in milliseconds if known; None without any."""
    took = sorted(each for each in known if each is not None)
    if not took:
        return None
    slow = took[ceil(0.9 * len(took)) - 1] if len(took) >= _ENOUGH else None
    return Durations(
        timedelta(milliseconds=round(median(took))),
        None if slow is None else timedelta(milliseconds=slow),
    )
