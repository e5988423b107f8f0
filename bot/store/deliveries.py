"""The table of deliveries: the outbox of Slack messages that we owe."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from bot.model import Delivery, DeliveryState, Job, Role
from bot.store.database import (
    Database,
    Row,
    Topic,
    Transaction,
    optional_moment,
    optional_ms,
    run_until_stored,
    to_ms,
)
from bot.store.job_rows import job_from, lock_job, lock_jobs
from bot.store.sql import Query
from bot.timings import StoreTimings

_CLAIM: Final = Query(
    """
    WITH due AS (
        SELECT deliveries.id FROM deliveries JOIN jobs ON jobs.id = deliveries.job_id
        WHERE deliveries.due_at <= :now AND deliveries.id NOT IN (EACH :held)
        ORDER BY deliveries.due_at LIMIT :limit FOR UPDATE OF jobs, deliveries SKIP LOCKED
    )
    UPDATE deliveries SET claim = claim + 1, claimed = 1, due_at = :lease_end
    WHERE id IN (SELECT id FROM due) RETURNING *
    """
)
_CARDS: Final = Query("SELECT * FROM deliveries WHERE role = 'card' AND job_id IN (EACH :job_ids)")
_NEXT_DUE: Final = Query(
    """
    SELECT min(due_at) AS due_at FROM deliveries
    WHERE due_at IS NOT NULL AND id NOT IN (EACH :held)
    """
)
_MARK_SENDING: Final = Query(
    """
    UPDATE deliveries SET state = 'sending', sent_at = :now,
                          channel = :channel, thread_ts = :thread_ts
    WHERE id = :id AND claim = :claim AND state <> 'posted' RETURNING id
    """
)
_RELEASE: Final = Query(
    """
    UPDATE deliveries SET state = :state, channel = :channel, thread_ts = :thread_ts, ts = :ts,
        shown_version = :shown_version, failures = :failures, refusals = :refusals,
        direct = :direct, text_only = :text_only, claimed = 0,
        due_at = CASE WHEN version > :shown_version THEN :due_with_news ELSE :due_at END
    WHERE id = :id AND claim = :claim RETURNING id
    """
)
_CARD_IS_SETTLED: Final = Query(
    """
    UPDATE deliveries SET due_at = :now
    WHERE job_id = :job_id AND role = 'reply' AND state = 'pending' AND due_at IS NULL
    """
)
_WAKE_FAR_FUTURE: Final = Query(
    """
    WITH far AS (
        SELECT deliveries.id FROM deliveries JOIN jobs ON jobs.id = deliveries.job_id
        WHERE deliveries.due_at > :far LIMIT :limit FOR UPDATE OF jobs, deliveries SKIP LOCKED
    )
    UPDATE deliveries SET due_at = CASE WHEN claimed = 1 THEN :lease_end ELSE :now END
    WHERE id IN (SELECT id FROM far) RETURNING id
    """
)
_VOID_LEASES: Final = Query("UPDATE deliveries SET due_at = 0, claimed = 0 WHERE claimed = 1")
_HOLD_EDITS: Final = Query(
    """
    UPDATE deliveries SET due_at = :until
    WHERE due_at < :until AND state = 'posted' AND version > shown_version
    """
)
_ADD_CARD: Final = Query(
    """
    INSERT INTO deliveries (job_id, role, state, channel, thread_ts, due_at)
    VALUES (:job_id, 'card', 'pending', :channel, :thread_ts, :now)
    """
)
_ADD_REPLY: Final = Query(
    """
    INSERT INTO deliveries (job_id, role, state, channel, thread_ts, due_at)
    -- It goes into its card's thread, and is not due before that is known.
    SELECT job_id, 'reply', 'pending', :channel, :thread_ts,
        CASE WHEN state IN ('posted', 'undeliverable') THEN :now END
    FROM deliveries WHERE job_id = :job_id AND role = 'card'
    """
)
# A card that is being sent or waits for a retry keeps its time, and is edited after it if needed.
_EDIT_CARD: Final = Query(
    """
    UPDATE deliveries SET version = version + 1, due_at = coalesce(due_at, :now)
    WHERE job_id = :job_id AND role = 'card' AND state <> 'undeliverable'
    """
)
_MAX_WOKEN: Final = 500


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A claimed delivery with what is needed to write and place it.

    ``card`` is its job's card: the delivery itself, unless that is the reply.
    """

    delivery: Delivery
    job: Job
    card: Delivery


class Deliveries:
    """The deliveries as their worker uses them."""

    def __init__(self, database: Database, timings: StoreTimings) -> None:
        self._database = database
        self._timings = timings

    @property
    def due(self) -> asyncio.Event:
        """Set when a delivery may have become due."""
        return self._database.event(Topic.DELIVERIES)

    async def claim(self, now: datetime, limit: int, held: Collection[int] = ()) -> list[Outgoing]:
        """Lease up to ``limit`` deliveries that are due, the longest waiting first.

        ``held`` are those that this process still works on: a clock jump may end leases early.
        """

        def work(tx: Transaction) -> list[Outgoing]:
            claimed = tx.all(
                _CLAIM,
                now=to_ms(now),
                lease_end=to_ms(now + self._timings.lease),
                limit=limit,
                held=list(held),
            )
            return _with_jobs_and_cards(tx, [_delivery_from(row) for row in claimed])

        return await self._database.run(work, durable=False)

    async def next_due(self, held: Collection[int] = ()) -> datetime | None:
        """Return when the next delivery is due that is not held; None while nothing is owed."""

        def work(tx: Transaction) -> datetime | None:
            row = tx.one(_NEXT_DUE, held=list(held))
            return optional_moment(row["due_at"]) if row else None

        return await self._database.run(work, durable=False)

    async def fetch_card(self, job: Job) -> Delivery:
        """Return the card of a job."""

        def work(tx: Transaction) -> Delivery:
            [row] = tx.all(_CARDS, job_ids=[job.id])
            return _delivery_from(row)

        return await self._database.run(work, durable=False)

    async def mark_sending(self, delivery: Delivery, now: datetime) -> bool:
        """Store where a message may be from now on; return whether to send it.

        False means that the delivery was claimed again meanwhile, or posted.
        """

        def work(tx: Transaction) -> bool:
            lock_job(tx, delivery.job_id)
            marked = tx.one(
                _MARK_SENDING,
                id=delivery.id,
                claim=delivery.claim,
                now=to_ms(now),
                channel=delivery.channel,
                thread_ts=delivery.thread_ts,
            )
            return marked is not None

        return await self._database.run(work)

    async def release(self, delivery: Delivery, now: datetime, due_at: datetime | None) -> bool:
        """Store a claimed delivery as it now is, and leave it alone until ``due_at``.

        None means for good, unless there is a newer version to show: then it stays due. Once it is
        known where a card is, its reply becomes due. It is stored even if the database is
        unavailable for a while.

        Returns:
            Whether it was stored: False if it was claimed again meanwhile.
        """
        posted = delivery.state is DeliveryState.POSTED
        at = optional_ms(due_at)

        def work(tx: Transaction) -> bool:
            lock_job(tx, delivery.job_id)
            released = tx.one(
                _RELEASE,
                id=delivery.id,
                claim=delivery.claim,
                state=delivery.state.value,
                channel=delivery.channel,
                thread_ts=delivery.thread_ts,
                ts=delivery.ts,
                shown_version=delivery.shown_version,
                failures=delivery.failures,
                refusals=delivery.refusals,
                direct=int(delivery.direct),
                text_only=int(delivery.text_only),
                due_at=at,
                due_with_news=to_ms(now) if posted and at is None else at,
            )
            if released is not None and delivery.role is Role.CARD and delivery.state.settled:
                tx.all(_CARD_IS_SETTLED, job_id=delivery.job_id, now=to_ms(now))
            tx.notify(Topic.DELIVERIES)
            return released is not None

        return await run_until_stored(
            self._database, work, retry_interval=self._timings.retry_interval
        )

    async def wake_far_future(self, now: datetime) -> int:
        """Make rows due that are due later than any wait lasts: the clock was set back since.

        A claimed row keeps a lease, counted from now. Returns the number of rows; more may be left
        for the next call.
        """

        def work(tx: Transaction) -> int:
            found = tx.all(
                _WAKE_FAR_FUTURE,
                now=to_ms(now),
                lease_end=to_ms(now + self._timings.lease),
                far=to_ms(now + self._timings.max_wait + self._timings.lease),
                limit=_MAX_WOKEN,
            )
            if found:
                tx.notify(Topic.DELIVERIES)
            return len(found)

        return await self._database.run(work, durable=False)

    async def void_leases(self) -> None:
        """End all leases. Only for a process that knows that no other one works on them."""

        def work(tx: Transaction) -> None:
            tx.all(_VOID_LEASES)

        await self._database.run(work, durable=False)

    async def hold_edits(self, until: datetime) -> None:
        """Leave the messages that are to be edited alone until then.

        Only for a process that knows that no other one works on them.
        """

        def work(tx: Transaction) -> None:
            tx.all(_HOLD_EDITS, until=to_ms(until))

        await self._database.run(work, durable=False)


def add_card(tx: Transaction, job: Job, now: int) -> None:
    """Owe the card of a new job."""
    tx.all(_ADD_CARD, job_id=job.id, channel=job.channel, thread_ts=job.thread_ts, now=now)
    tx.notify(Topic.DELIVERIES)


def add_reply(tx: Transaction, job: Job, now: int) -> None:
    """Owe the closing reply of a job, whose row is locked."""
    tx.all(_ADD_REPLY, job_id=job.id, channel=job.channel, thread_ts=job.thread_ts, now=now)
    tx.notify(Topic.DELIVERIES)


def edit_card(tx: Transaction, job_id: str, now: int) -> None:
    """Owe an edit of the card of a job, whose row is locked."""
    tx.all(_EDIT_CARD, job_id=job_id, now=now)
    tx.notify(Topic.DELIVERIES)


def _with_jobs_and_cards(tx: Transaction, claimed: list[Delivery]) -> list[Outgoing]:
    if not claimed:
        return []
    jobs = {row["id"]: job_from(row) for row in lock_jobs(tx, {each.job_id for each in claimed})}
    cards = {each.job_id: each for each in claimed if each.role is Role.CARD}
    if missing := jobs.keys() - cards.keys():
        cards |= {row["job_id"]: _delivery_from(row) for row in tx.all(_CARDS, job_ids=[*missing])}
    # A post notifies a person, so it goes before the edits of cards.
    claimed.sort(key=lambda each: each.state is DeliveryState.POSTED)
    return [Outgoing(each, jobs[each.job_id], cards[each.job_id]) for each in claimed]


def _delivery_from(row: Row) -> Delivery:
    return Delivery(
        id=row["id"],
        job_id=row["job_id"],
        role=Role(row["role"]),
        state=DeliveryState(row["state"]),
        channel=row["channel"],
        thread_ts=row["thread_ts"],
        ts=row["ts"],
        version=row["version"],
        shown_version=row["shown_version"],
        due_at=optional_moment(row["due_at"]),
        claim=row["claim"],
        failures=row["failures"],
        refusals=row["refusals"],
        direct=bool(row["direct"]),
        text_only=bool(row["text_only"]),
        sent_at=optional_moment(row["sent_at"]),
    )
