"""What people had created, by calendar month of UTC: what may have cost money, as limits count it.

The attempts themselves are counted. Before those of a deleted job go, they are added to a table.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from bot.store.database import Database, Row, Transaction, from_ms, to_ms
from bot.store.sql import Query
from bot.store.unreadable import number, read_each, reading, text

# One statement sees one moment: an attempt that is added to the table meanwhile is counted once.
_OF_MONTH: Final = Query(
    """
    SELECT user_id, kind, CAST(sum(created) AS BIGINT) AS created,
        CAST(sum(spoken_ms) AS BIGINT) AS spoken_ms
    FROM (
        SELECT user_id, kind, count(*) AS created, coalesce(sum(spoken_ms), 0) AS spoken_ms
        FROM attempts
        WHERE (outcome IS NULL OR outcome IN ('created', 'uncertain'))
            AND made_at >= :since AND made_at < :until
        GROUP BY user_id, kind
        UNION ALL
        SELECT user_id, kind, created, spoken_ms FROM spending WHERE month = :month
    ) AS found
    GROUP BY user_id, kind
    """
)
_OF_JOBS: Final = Query(
    """
    SELECT id, user_id, kind, made_at, coalesce(spoken_ms, 0) AS spoken_ms FROM attempts
    WHERE (outcome IS NULL OR outcome IN ('created', 'uncertain')) AND job_id IN (EACH :ids)
    """
)
_ADD: Final = Query(
    """
    INSERT INTO spending (month, user_id, kind, created, spoken_ms)
    VALUES (:month, :user, :kind, :created, :spoken_ms)
    ON CONFLICT (month, user_id, kind) DO UPDATE
    SET created = spending.created + excluded.created,
        spoken_ms = spending.spoken_ms + excluded.spoken_ms
    """
)


@dataclass(frozen=True, slots=True)
class PersonSpending:
    """What a person had created in a month."""

    user: str
    created: Mapping[str, int] = field(default_factory=dict)
    """How many create calls may have cost money, by kind of job."""
    spoken: timedelta = timedelta(0)
    """About how long the scripts take to speak, by their words."""


@dataclass(frozen=True, slots=True)
class MonthSpending:
    """What everybody had created in a month."""

    since: datetime
    """The first moment of the month."""
    people: Sequence[PersonSpending] = ()
    """Those with the most create calls first."""

    @property
    def created(self) -> Mapping[str, int]:
        """How many create calls of all people may have cost money, by kind of job."""
        total: dict[str, int] = defaultdict(int)
        for person in self.people:
            for kind, count in person.created.items():
                total[kind] += count
        return total

    @property
    def spoken(self) -> timedelta:
        """About how long all scripts take to speak."""
        return sum((person.spoken for person in self.people), timedelta(0))


class Spending:
    """What people had created."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of_month(self, moment: datetime) -> MonthSpending:
        """Return what everybody had created in the month of a moment."""
        return await self._database.run(lambda tx: spending_of_month(tx.all, moment), durable=False)


def spending_of_month(all_rows: Callable[..., Sequence[Row]], moment: datetime) -> MonthSpending:
    """Return what everybody had created in the month of a moment.

    ``all_rows`` runs a query with its values in the database.
    """
    since = month_start(moment)
    until = month_start(since + timedelta(days=31))
    people: dict[str, dict[str, int]] = defaultdict(dict)
    spoken: dict[str, int] = defaultdict(int)
    for row in all_rows(_OF_MONTH, since=to_ms(since), until=to_ms(until), month=_name(since)):
        people[row["user_id"]][row["kind"]] = row["created"]
        spoken[row["user_id"]] += row["spoken_ms"]
    found = [
        PersonSpending(user, created, timedelta(milliseconds=spoken[user]))
        for user, created in people.items()
    ]
    found.sort(key=lambda each: (-sum(each.created.values()), -each.spoken, each.user))
    return MonthSpending(since, found)


def month_start(moment: datetime) -> datetime:
    """Return the first moment of a moment's month, in UTC."""
    moment = moment.astimezone(UTC)
    return datetime(moment.year, moment.month, 1, tzinfo=UTC)


def keep_spending(tx: Transaction, job_ids: Sequence[str]) -> None:
    """Add the attempts of jobs to the sums, in the transaction that deletes them."""
    attempts, _ = read_each(_charged, tx.all(_OF_JOBS, ids=job_ids))
    sums: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for key, spoken_ms in attempts:
        sums[key].append(spoken_ms)
    # In order, so that no two processes wait for each other.
    for (month, user, kind), spoken in sorted(sums.items()):
        tx.all(_ADD, month=month, user=user, kind=kind, created=len(spoken), spoken_ms=sum(spoken))


def _charged(row: Row) -> tuple[tuple[str, str, str], int]:
    with reading("attempts", row):
        month = _name(from_ms(row["made_at"]))
        return (month, text(row["user_id"]), text(row["kind"])), number(row["spoken_ms"])


def _name(moment: datetime) -> str:
    return f"{moment:%Y-%m}"
