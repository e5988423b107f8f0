"""What the store knows beside jobs: whose database it is, what was answered, and what waits."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from bot.model import Installation, State
from bot.store.database import Database, Query, Row, Transaction, from_ms, to_ms
from bot.store.due import UnreadableRows, optional_text, reading, text

_GET: Final = Query("SELECT id, team_id, enterprise_id, app_id FROM installation")
_SAVE: Final = Query(
    """
    INSERT INTO installation (id, team_id, enterprise_id, app_id)
    VALUES (1, :team_id, :enterprise_id, :app_id)
    ON CONFLICT (id) DO UPDATE
    SET enterprise_id = excluded.enterprise_id, app_id = excluded.app_id
    WHERE installation.team_id = excluded.team_id
    """
)

# Slack sends an event again within minutes. This is longer than any outage in between.
_KEPT_FOR: Final = timedelta(days=2)
_MARK: Final = Query(
    """
    INSERT INTO answered_messages (channel, ts, answered_at) VALUES (:channel, :ts, :now)
    ON CONFLICT (channel, ts) DO NOTHING RETURNING ts
    """
)
_FORGET: Final = Query("DELETE FROM answered_messages WHERE answered_at < :before")


class Installations:
    """The installation that the database belongs to: its first team stays.

    Beside it, which messages of people were answered with help in the last days.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._unreadable = UnreadableRows()

    async def fetch(self) -> Installation | None:
        """Return the installation; None before it was first saved."""
        return await self._database.run(self._get, durable=False)

    async def save(self, installation: Installation) -> Installation | None:
        """Store what Slack says of the installation, unless the database is another team's.

        Returns:
            What was stored before.
        """

        def work(tx: Transaction) -> Installation | None:
            before = self._get(tx)
            tx.all(
                _SAVE,
                team_id=installation.team_id,
                enterprise_id=installation.enterprise_id,
                app_id=installation.app_id,
            )
            return before

        return await self._database.run(work)

    async def mark_answered(self, channel: str, ts: str, now: datetime) -> bool:
        """Store that a message was answered with help; return False if it was before."""

        def work(tx: Transaction) -> bool:
            tx.all(_FORGET, before=to_ms(now - _KEPT_FOR))
            return tx.one(_MARK, channel=channel, ts=ts, now=to_ms(now)) is not None

        return await self._database.run(work)

    def _get(self, tx: Transaction) -> Installation | None:
        """Return the installation; None if there is none, or if it is damaged: Slack knows it."""
        found = self._unreadable.read_each(installation_from, tx.all(_GET))
        return found[0] if found else None


def installation_from(row: Row) -> Installation:
    """Return the installation of a row.

    Raises:
        RowUnreadable: its content is damaged.
    """
    with reading("installation", row):
        if not (team_id := text(row["team_id"])):
            raise ValueError("the team is empty")
        enterprise_id, app_id = optional_text(row["enterprise_id"]), optional_text(row["app_id"])
        return Installation(team_id, enterprise_id, app_id)


_OPEN: Final = [state.value for state in State if not state.ended]
# By state, which the index of open jobs begins with: ended ones are not read.
_JOBS: Final = Query(
    """
    SELECT kind, state, count(*) AS number FROM jobs
    WHERE ended_at IS NULL AND state IN (EACH :open) GROUP BY kind, state
    """
)
# A job that waits for the end of an outage of the service is not late. What a start has made due at
# once has no time of its own.
_LATE: Final = {"jobs": " AND (held_by IS NULL OR held_by <> 'service_down')", "deliveries": ""}
_DUE: Final = {
    table: Query(
        f"""
        SELECT (SELECT count(*) FROM {table} WHERE due_at <= :now) AS number,
            (SELECT due_at FROM {table} WHERE due_at > 0 AND due_at <= :now{late}
                ORDER BY due_at LIMIT 1) AS oldest
        """  # noqa: S608 - our tables
    )
    for table, late in _LATE.items()
}


@dataclass(frozen=True, slots=True)
class Figures:
    """What waits at one moment."""

    jobs: Mapping[tuple[str, str], int]
    """How many have not ended, by kind and state."""
    due: Mapping[str, int]
    """How many rows are due and not claimed, by table: "jobs" and "deliveries"."""
    oldest_due: Mapping[str, timedelta]
    """For how long the oldest of them is due, by table; 0 if none is."""


def read_figures(tx: Transaction, now: datetime) -> Figures:
    """Return what waits in the tables of jobs and deliveries."""
    jobs = {(row["kind"], row["state"]): row["number"] for row in tx.all(_JOBS, open=_OPEN)}
    due = {table: tx.all(query, now=to_ms(now))[0] for table, query in _DUE.items()}
    waiting = {
        table: now - (now if row["oldest"] is None else from_ms(row["oldest"]))
        for table, row in due.items()
    }
    return Figures(jobs, {table: row["number"] for table, row in due.items()}, waiting)
