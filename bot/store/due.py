"""Tables with rows that become due: claims, leases and wake-ups, written once for all of them.

``due_at`` means "leave this row alone until then". A claim moves it ahead, which is the lease, and
raises the claim number: a row is written back only under the number that it was claimed with.
"""

import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, TypeVar

from bot.store.database import Query, Row, Topic, Transaction, Value, to_ms
from bot.timings import Timings

_T = TypeVar("_T")
_MAX_WOKEN: Final = 500
# A crash of a PostgreSQL server undoes claims, which do not wait for the disk, while the processes
# that made them go on. In steps of one, the next claim or decision would have their number.
_MIN_STEP: Final = 2
_MAX_STEP: Final = 1 << 16
_WITH_JOBS: Final = {
    "jobs": "jobs",
    "deliveries": "deliveries JOIN jobs ON jobs.id = deliveries.job_id",
}
LOCKED: Final = {
    "jobs": "FOR UPDATE SKIP LOCKED",
    "deliveries": "FOR UPDATE OF jobs, deliveries SKIP LOCKED",
}
"""How rows are locked that a statement selects to change them."""


class Claimed(list[_T]):
    """The items of a claim, and when to claim again.

    Attributes:
        next_due: when the next row is due that is neither held nor claimed; None if none is.
        full: more may begin as soon as something ends that is under way.
    """

    def __init__(
        self, items: Iterable[_T] = (), next_due: datetime | None = None, *, full: bool = False
    ) -> None:
        super().__init__(items)
        self.next_due = next_due
        self.full = full


def soonest(moments: Iterable[datetime | None]) -> datetime | None:
    """Return the first of some moments, of which some may never come; None if none does."""
    return min((each for each in moments if each is not None), default=None)


class DueTable:
    """The statements that all tables with due rows have in common.

    Args:
        name: the table.
        topic: what is notified when a row of it may have become due.
        due: a common table expression ``due`` with the ids that a claim takes, and what it needs.
            It locks them, and passes over rows that another process has locked.
        on_claim: further columns that a claim sets.
        on_wake: further columns that are set where the clock was set back.
    """

    def __init__(
        self, name: str, topic: Topic, *, due: str, on_claim: str = "", on_wake: str = ""
    ) -> None:
        self._topic = topic
        self._claim: Final = Query(
            f"""
            WITH {due}
            UPDATE {name} SET claim = claim + :step, claimed = 1,
                due_at = :lease_end, wait_ms = :lease_end - :now{on_claim}
            WHERE id IN (SELECT id FROM due) RETURNING *
            """  # noqa: S608 - the names are ours
        )
        self._wake_far_future: Final = Query(
            f"""
            WITH far AS (
                SELECT {name}.id FROM {_WITH_JOBS[name]}
                WHERE {name}.due_at > :latest
                    AND ({name}.due_at > :far OR {name}.due_at - {name}.wait_ms > :latest)
                LIMIT :limit {LOCKED[name]}
            )
            UPDATE {name} SET due_at = CASE WHEN claimed = 1 THEN :lease_end ELSE :now END{on_wake}
            WHERE id IN (SELECT id FROM far) RETURNING id
            """  # noqa: S608 - likewise
        )
        self.void_leases: Final = Query(
            f"UPDATE {name} SET due_at = 0, claimed = 0 WHERE claimed = 1"  # noqa: S608 - likewise
        )

    def claim(
        self, tx: Transaction, now: datetime, timings: Timings, **values: Value
    ) -> Sequence[Row]:
        """Lease what the expression ``due`` finds, and return the rows as they are then."""
        times = {"now": to_ms(now), "lease_end": to_ms(now + timings.lease)}
        step = _MIN_STEP + secrets.randbelow(_MAX_STEP)
        return tx.all(self._claim, step=step, **times, **values)

    def wake_far_future(self, tx: Transaction, now: datetime, timings: Timings) -> int:
        """Make rows due that have longer to wait than they were to, or than any wait lasts.

        The clock was set back since, by more than a lease. A claimed row keeps a lease, counted
        from now. Returns the number of rows; more may be left for the next call.
        """
        found = tx.all(
            self._wake_far_future,
            now=to_ms(now),
            lease_end=to_ms(now + timings.lease),
            latest=to_ms(now + timings.lease),
            far=to_ms(now + timings.max_wait + timings.lease),
            limit=_MAX_WOKEN,
        )
        if found:
            tx.notify(self._topic)
        return len(found)


def tell(tx: Transaction, topic: Topic, due_at: int | None, now: int) -> None:
    """Tell the workers of every process when a row is due; None means never.

    Those that wait for something later wake up then, without asking before.
    """
    if due_at is not None:
        tx.notify(topic, "" if due_at <= now else str(due_at))
