"""What waits: how many jobs are open, how many rows are due, and since when the oldest is."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from bot.model import State
from bot.store.database import Database, Transaction, from_ms, to_ms
from bot.store.sql import Query

_MAX_AGE: Final = timedelta(seconds=5)
_OPEN: Final = [state.value for state in State if not state.ended]
# By state, which the index of open jobs begins with: ended ones are not read.
_JOBS: Final = Query(
    """
    SELECT kind, state, count(*) AS number FROM jobs
    WHERE ended_at IS NULL AND state IN (EACH :open) GROUP BY kind, state
    """
)
_TABLES: Final = ("jobs", "deliveries")
_DUE: Final = {
    table: Query(f"SELECT count(*) AS number FROM {table} WHERE due_at <= :now")  # noqa: S608 - ours
    for table in _TABLES
}
_OLDEST: Final = {
    table: Query(
        f"SELECT due_at FROM {table} WHERE due_at > 0 AND due_at <= :now"  # noqa: S608 - ours
        " ORDER BY due_at LIMIT 1"
    )
    for table in _TABLES
}
_AT_ONCE: Final = {
    table: Query(
        f"SELECT due_at FROM {table} WHERE due_at <= 0 ORDER BY due_at LIMIT 1"  # noqa: S608 - ours
    )
    for table in _TABLES
}


@dataclass(frozen=True, slots=True)
class Figures:
    """What waits at one moment."""

    at: datetime
    jobs: Mapping[tuple[str, str], int]
    """How many have not ended, by kind and state."""
    due: Mapping[str, int]
    """How many rows are due and not claimed, by table: "jobs" and "deliveries"."""
    oldest_due: Mapping[str, timedelta]
    """For how long the oldest of them is due, by table; 0 if none is."""


class Backlog:
    """What waits in the tables of jobs and deliveries.

    What is due at once has no time of its own: it counts as due since this was first asked for.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._started_at: datetime | None = None
        self._figures: Figures | None = None

    async def oldest_due(self, now: datetime) -> Mapping[str, timedelta]:
        """Return for how long the oldest row of each table is due that nobody has claimed."""
        since = self._asked_since(now)
        return await self._database.run(lambda tx: _oldest(tx, now, since), durable=False)

    async def figures(self, now: datetime) -> Figures:
        """Return what waits, as it was at most five seconds ago."""
        known = self._figures
        if known is None or not timedelta(0) <= now - known.at < _MAX_AGE:
            since = self._asked_since(now)
            known = await self._database.run(lambda tx: _count(tx, now, since), durable=False)
            self._figures = known
        return known

    def _asked_since(self, now: datetime) -> datetime:
        self._started_at = min(self._started_at or now, now)
        return self._started_at


def _count(tx: Transaction, now: datetime, since: datetime) -> Figures:
    jobs = {(row["kind"], row["state"]): row["number"] for row in tx.all(_JOBS, open=_OPEN)}
    due = {}
    for table, query in _DUE.items():
        row = tx.one(query, now=to_ms(now))
        due[table] = row["number"] if row is not None else 0
    return Figures(now, jobs, due, _oldest(tx, now, since))


def _oldest(tx: Transaction, now: datetime, since: datetime) -> Mapping[str, timedelta]:
    """Return for how long the oldest rows are due; those that are due at once, since ``since``."""
    waiting = {}
    for table in _TABLES:
        row = tx.one(_OLDEST[table], now=to_ms(now))
        moments = [now if row is None else from_ms(row["due_at"])]
        if tx.one(_AT_ONCE[table]) is not None:
            moments.append(since)
        waiting[table] = now - min(moments)
    return waiting
