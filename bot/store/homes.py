"""The table of Home tabs: which are due to be published, each newest version once."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from bot.store.database import Database, Topic, Transaction, from_ms, span_ms, to_ms
from bot.store.sql import Query
from bot.timings import HomeTimings

# What is being published may be too old to show a change: it is due again after that.
_DUE_AGAIN: Final = """
    changed = 1, due_at = CASE
        WHEN homes.claimed = 1 THEN homes.due_at
        WHEN homes.not_before > :now THEN homes.not_before
        ELSE :now
    END
"""
_CHANGED: Final = Query(
    f"""
    UPDATE homes SET {_DUE_AGAIN}
    WHERE user_id = (SELECT user_id FROM jobs WHERE id = :job_id) AND (claimed = 1 OR changed = 0)
    """  # noqa: S608 - our own text
)
_CHANGED_OF: Final = Query(
    f"""
    UPDATE homes SET {_DUE_AGAIN} WHERE user_id IN (
        SELECT user_id FROM homes WHERE user_id IN (EACH :users) AND (claimed = 1 OR changed = 0)
        ORDER BY user_id FOR UPDATE
    )
    """  # noqa: S608 - our own text
)
_OPEN: Final = Query(
    f"""
    INSERT INTO homes (user_id, page, due_at, changed) VALUES (:user, :page, :now, 1)
    ON CONFLICT (user_id) DO UPDATE SET page = :page, failures = 0, {_DUE_AGAIN}
    """  # noqa: S608 - our own text
)
# A row that is due later than any of its waits was released under a clock that was set back.
_CLAIM: Final = Query(
    """
    WITH due AS (
        SELECT user_id FROM homes
        WHERE due_at IS NOT NULL AND (due_at <= :now OR due_at > :latest)
            AND user_id NOT IN (EACH :held)
        ORDER BY due_at LIMIT :limit FOR UPDATE SKIP LOCKED
    )
    UPDATE homes SET due_at = :lease_ends, claim = claim + 1, claimed = 1, changed = 0
    WHERE user_id IN (SELECT user_id FROM due) RETURNING user_id, page, claim, failures
    """
)
# Of one that was claimed again meanwhile: what was published late may be out of date.
_PUBLISH_AGAIN: Final = Query(
    f"UPDATE homes SET {_DUE_AGAIN} WHERE user_id = :user"  # noqa: S608 - our own text
)
_NEXT_DUE: Final = Query(
    """
    SELECT min(due_at) AS due_at FROM homes
    WHERE due_at IS NOT NULL AND user_id NOT IN (EACH :held)
    """
)
_RELEASE: Final = Query(
    """
    UPDATE homes SET claimed = 0, failures = :failures, not_before = :not_before,
        changed = CASE WHEN CAST(:due_at AS BIGINT) IS NULL THEN changed ELSE 1 END,
        due_at = CASE WHEN CAST(:due_at AS BIGINT) IS NOT NULL THEN :due_at
                 WHEN changed = 1 THEN CAST(:not_before AS BIGINT) END
    WHERE user_id = :user AND claim = :claim RETURNING user_id
    """
)
VOID_LEASES: Final = Query(
    "UPDATE homes SET claimed = 0, changed = 1, due_at = 0 WHERE claimed = 1"
)


@dataclass(frozen=True, slots=True)
class Home:
    """A Home tab that is due, claimed by a worker."""

    user: str
    page: int
    """Which part of the list of jobs it shows, counted from 0."""
    claim: int
    failures: int = 0
    """How many calls in a row found Slack out of reach."""


class Homes:
    """The Home tabs of those who have opened theirs."""

    def __init__(self, database: Database, timings: HomeTimings) -> None:
        self._database = database
        self._timings = timings

    @property
    def due(self) -> asyncio.Event:
        """Set when one may have become due."""
        return self._database.event(Topic.HOMES)

    async def open(self, user: str, page: int, now: datetime) -> None:
        """Make a user's Home tab due, on this page."""

        def work(tx: Transaction) -> None:
            tx.all(_OPEN, user=user, page=page, now=to_ms(now))
            tx.notify(Topic.HOMES)

        await self._database.run(work)

    async def claim(self, now: datetime, limit: int, held: Collection[Home]) -> list[Home]:
        """Lease up to ``limit`` that are due and not ``held``."""

        def work(tx: Transaction) -> list[Home]:
            rows = tx.all(
                _CLAIM,
                now=to_ms(now),
                latest=to_ms(now + self._timings.max_wait),
                lease_ends=to_ms(now + self._timings.lease),
                held=[each.user for each in held],
                limit=limit,
            )
            return [
                Home(row["user_id"], row["page"], row["claim"], row["failures"]) for row in rows
            ]

        return await self._database.run(work, durable=False)

    async def next_due(self, held: Collection[Home]) -> datetime | None:
        """Return when the next one is due that is not ``held``."""

        def work(tx: Transaction) -> datetime | None:
            row = tx.one(_NEXT_DUE, held=[each.user for each in held])
            return None if row is None or row["due_at"] is None else from_ms(row["due_at"])

        return await self._database.run(work, durable=False)

    async def release(
        self, home: Home, now: datetime, *, failures: int = 0, due_at: datetime | None = None
    ) -> None:
        """Leave a claimed one alone until ``due_at``, or without it until there is a change."""

        def work(tx: Transaction) -> None:
            released = tx.one(
                _RELEASE,
                user=home.user,
                claim=home.claim,
                failures=failures,
                not_before=to_ms(now) + span_ms(self._timings.home_interval),
                due_at=None if due_at is None else to_ms(due_at),
            )
            if released is None:
                tx.all(_PUBLISH_AGAIN, user=home.user, now=to_ms(now))
            tx.notify(Topic.HOMES)

        await self._database.run(work)

    async def void_leases(self) -> None:
        """End the leases of an earlier process: what it was publishing is due."""

        def work(tx: Transaction) -> None:
            tx.all(VOID_LEASES)

        await self._database.run(work)


def change_home(tx: Transaction, job_id: str, now: int) -> None:
    """Make the Home tab of a job's user due, if they have opened it."""
    tx.all(_CHANGED, job_id=job_id, now=now)
    tx.notify(Topic.HOMES)


def change_homes(tx: Transaction, users: Collection[str], now: int) -> None:
    """Make the Home tabs of these users due, of those who have opened theirs.

    It locks their rows in order. A work that changes another Home tab too names all of them here
    first: else two works might wait for each other.
    """
    tx.all(_CHANGED_OF, users=sorted(users), now=now)
    tx.notify(Topic.HOMES)
