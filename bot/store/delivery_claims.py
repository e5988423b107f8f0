"""Claims of deliveries: leases of due deliveries, alone or under a rate limit."""

import asyncio
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from bot.model import Delivery, DeliveryState, Job, Role, State
from bot.store.database import (
    Database,
    Row,
    RowUnreadable,
    Topic,
    Transaction,
    Value,
    to_ms,
)
from bot.store.delivery_rows import RETRIES, delivery_from, retry_from
from bot.store.job_rows import job_from, lock_jobs
from bot.store.sql import Query
from bot.store.unreadable import (
    UnreadableRows,
    due_at_of,
    read_each,
    set_aside,
)
from bot.timings import StoreTimings

# The first posts of each role that are due, and edits apart from them: thousands of cards that are
# due hide no reply, and thousands of edits delay no post.
# To take a video to Slack posts nothing: no limit of a channel covers it. Few are taken at a time,
# as each may take long and needs room on the disk.
_TRANSFERS: Final = "role = 'clip' AND file_id IS NULL"
# A newer version may have added others, and may run beside this one: they are left to its copies.
_KNOWN: Final = "deliveries.role IN ({})".format(", ".join(f"'{role}'" for role in Role))
_POSTS: Final = "NOT (state = 'pending' AND channel IN (EACH :busy_channels))"
_OWED: Final = " UNION ALL ".join(
    f"""SELECT * FROM (
        SELECT id, due_at, state, role, channel FROM deliveries
        WHERE {which} AND due_at <= :now AND state <> 'posted' AND id NOT IN (EACH :held)
            AND state NOT IN (EACH :limited_states)
        ORDER BY due_at LIMIT {limit}
    ) AS {name}"""  # noqa: S608 - the names of the roles are ours
    for name, which, limit in (
        *(
            (f"of_{each}", f"role = '{each}' AND {_POSTS}", ":window")
            for each in Role
            if each is not Role.CLIP
        ),
        ("of_clip", f"role = 'clip' AND file_id IS NOT NULL AND {_POSTS}", ":window"),
        ("transfers", _TRANSFERS, ":free_transfers"),
    )
)
# Of the posts into one channel, only the first few: if Slack refuses them, the others wait.
_CLAIM: Final = Query(
    f"""
    WITH owed AS (
        {_OWED}
    ), posts AS (
        SELECT id FROM (
            SELECT id, due_at, state, role, row_number() OVER (
                PARTITION BY state, channel
                ORDER BY role IN ('card', 'transcript', 'clip'), due_at, id
            ) AS place FROM owed
        ) AS ranked
        WHERE state <> 'pending' OR place <= :posts_at_once
        ORDER BY role IN ('card', 'transcript', 'clip'), due_at, id LIMIT :free_posts
    ), edits AS (
        SELECT id FROM deliveries
        WHERE due_at <= :now AND state = 'posted' AND id NOT IN (EACH :held)
            AND state NOT IN (EACH :limited_states) AND {_KNOWN}
        ORDER BY due_at, id LIMIT :free_edits
    ), candidates AS (
        SELECT id FROM (SELECT id, 1 AS turn FROM posts UNION ALL SELECT id, 2 FROM edits) AS each
        ORDER BY turn LIMIT :limit
    ), due AS (
        SELECT deliveries.id FROM deliveries JOIN jobs ON jobs.id = deliveries.job_id
        WHERE deliveries.id IN (SELECT id FROM candidates) AND deliveries.due_at <= :now
        FOR UPDATE OF jobs, deliveries SKIP LOCKED
    )
    UPDATE deliveries SET claim = claim + 1, claimed = 1,
        due_at = :lease_end, wait_ms = :lease_end - :now
    WHERE id IN (SELECT id FROM due) RETURNING *
    """  # noqa: S608 - likewise
)
_CLAIM_LIMITED: Final = Query(
    f"""
    WITH due AS (
        SELECT deliveries.id FROM deliveries JOIN jobs ON jobs.id = deliveries.job_id
        WHERE deliveries.due_at <= :now AND deliveries.id NOT IN (EACH :held)
            AND deliveries.state = :state
            AND deliveries.channel = coalesce(:channel, deliveries.channel)
            AND NOT (deliveries.role = 'clip' AND deliveries.file_id IS NULL) AND {_KNOWN}
        ORDER BY deliveries.id LIMIT 1 FOR UPDATE OF jobs, deliveries SKIP LOCKED
    )
    UPDATE deliveries SET claim = claim + 1, claimed = 1,
        due_at = :lease_end, wait_ms = :lease_end - :now
    WHERE id IN (SELECT id FROM due) RETURNING *
    """  # noqa: S608 - likewise
)
CARDS: Final = Query("SELECT * FROM deliveries WHERE role = 'card' AND job_id IN (EACH :job_ids)")
_NEXT_DUE: Final = Query(
    f"""
    SELECT min(due_at) AS due_at FROM deliveries
    WHERE due_at IS NOT NULL AND id NOT IN (EACH :held)
        AND CASE WHEN {_TRANSFERS} THEN CAST(:free_transfers AS BIGINT) > 0 ELSE {_POSTS} END
        AND state NOT IN (EACH :limited_states) AND {_KNOWN}
    """  # noqa: S608 - likewise
)
_NEXT_DUE_LIMITED: Final = Query(
    f"""
    SELECT min(due_at) AS due_at FROM deliveries
    WHERE due_at IS NOT NULL AND id NOT IN (EACH :held)
        AND state = :state AND channel = coalesce(:channel, channel) AND NOT ({_TRANSFERS})
        AND {_KNOWN}
    """  # noqa: S608 - likewise
)
_WAKE_FAR_FUTURE: Final = Query(
    """
    WITH far AS (
        SELECT deliveries.id FROM deliveries JOIN jobs ON jobs.id = deliveries.job_id
        WHERE deliveries.due_at > :latest
            AND (deliveries.due_at > :far OR deliveries.due_at - deliveries.wait_ms > :latest)
        LIMIT :limit FOR UPDATE OF jobs, deliveries SKIP LOCKED
    )
    UPDATE deliveries SET due_at = CASE WHEN claimed = 1 THEN :lease_end ELSE :now END
    WHERE id IN (SELECT id FROM far) RETURNING id
    """
)
VOID_LEASES: Final = Query("UPDATE deliveries SET due_at = 0, claimed = 0 WHERE claimed = 1")
_HOLD_EDITS: Final = Query(
    """
    UPDATE deliveries SET due_at = :until
    WHERE due_at < :until AND state = 'posted' AND version > shown_version
    """
)
# Each at ``held_for`` after its failed call at the earliest.
_HASTEN: Final = Query(
    """
    WITH delayed AS (
        SELECT deliveries.id FROM deliveries JOIN jobs ON jobs.id = deliveries.job_id
        WHERE deliveries.due_at > :now AND deliveries.claimed = 0
            AND deliveries.failures > 0 AND deliveries.wait_ms > :held_for
        ORDER BY deliveries.id LIMIT :limit FOR UPDATE OF jobs, deliveries SKIP LOCKED
    )
    UPDATE deliveries SET wait_ms = :held_for, due_at = CASE
            WHEN due_at - wait_ms + :held_for > :now THEN due_at - wait_ms + :held_for
            ELSE :now
        END
    WHERE id IN (SELECT id FROM delayed) RETURNING id
    """
)
_MAX_WOKEN: Final = 500
_WINDOW: Final = 500
"""Due posts of each role among which a claim chooses."""
_POSTS_AT_ONCE: Final = 8
"""Posts into one channel at a time."""
_EDITS_AT_ONCE: Final = 48
_ALL_POSTS_AT_ONCE: Final = 56
"""Edits at a time, and posts. The worker has more slots, so that neither wait for slow ones of the
other sort."""
_TRANSFERS_AT_ONCE: Final = 4


@dataclass(frozen=True, slots=True)
class Limited:
    """The deliveries that one of Slack's rate limits covers.

    Those in a state: in one channel, or in all.
    """

    state: DeliveryState
    channel: str | None = None


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A claimed delivery with what is needed to write and place it.

    ``card`` is its job's card: the delivery itself, unless that is another message. ``retry`` is
    the card of the job that retries it, if there is one.
    """

    delivery: Delivery
    job: Job
    card: Delivery
    retry: Delivery | None = None
    replica: str = ""
    """The name of the replica that the job uses, if that is known."""


_Claimed: TypeAlias = tuple[list[Outgoing], list[RowUnreadable]]


class DeliveryClaims:
    """The part of ``Deliveries`` that the worker's loop and the sweep use."""

    def __init__(
        self, database: Database, timings: StoreTimings, unreadable: UnreadableRows
    ) -> None:
        self._database = database
        self._timings = timings
        self._unreadable = unreadable

    @property
    def due(self) -> asyncio.Event:
        """Set when a delivery may have become due."""
        return self._database.event(Topic.DELIVERIES)

    async def claim(
        self,
        now: datetime,
        limit: int,
        held: Collection[Delivery] = (),
        limited: Collection[Limited] = (),
    ) -> list[Outgoing]:
        """Lease up to ``limit`` deliveries that are due, the longest waiting first.

        Args:
            now: the time.
            limit: the highest number of deliveries.
            held: those that this process still works on: a clock jump may end leases early.
            limited: what is left to ``claim_limited``.
        """

        def work(tx: Transaction) -> _Claimed:
            claimed = tx.all(
                _CLAIM,
                now=to_ms(now),
                lease_end=to_ms(now + self._timings.lease),
                limit=limit,
                window=_WINDOW,
                posts_at_once=_POSTS_AT_ONCE,
                free_edits=_free_edits(held),
                free_posts=_free_posts(held),
                **_left_out(held, limited),
            )
            return _with_jobs_and_cards(tx, claimed)

        return self._reported(await self._database.run(work, durable=False))

    async def claim_limited(
        self, now: datetime, limited: Limited, held: Collection[Delivery] = ()
    ) -> list[Outgoing]:
        """Lease the first delivery under a rate limit that is due, in the order they were owed."""

        def work(tx: Transaction) -> _Claimed:
            claimed = tx.all(
                _CLAIM_LIMITED,
                now=to_ms(now),
                lease_end=to_ms(now + self._timings.lease),
                state=limited.state.value,
                channel=limited.channel,
                held=[each.id for each in held],
            )
            return _with_jobs_and_cards(tx, claimed)

        return self._reported(await self._database.run(work, durable=False))

    async def next_due(
        self, held: Collection[Delivery] = (), limited: Collection[Limited] = ()
    ) -> datetime | None:
        """Return when the next delivery is due that is neither held nor limited; None if none is.

        In a channel with as many posts under way as are made at a time, more are not due.
        """

        def work(tx: Transaction) -> datetime | None:
            row = tx.one(_NEXT_DUE, **_left_out(held, limited))
            return due_at_of(row)

        return await self._database.run(work, durable=False)

    async def next_due_limited(
        self, limited: Limited, held: Collection[Delivery] = ()
    ) -> datetime | None:
        """Return when the next delivery under a rate limit is due; None if none is owed."""

        def work(tx: Transaction) -> datetime | None:
            row = tx.one(
                _NEXT_DUE_LIMITED,
                held=[each.id for each in held],
                state=limited.state.value,
                channel=limited.channel,
            )
            return due_at_of(row)

        return await self._database.run(work, durable=False)

    async def wake_far_future(self, now: datetime) -> int:
        """Make rows due that have longer to wait than they were to, or than any wait lasts.

        The clock was set back since, by more than a lease. A claimed row keeps a lease, counted
        from now. Returns the number of rows; more may be left for the next call.
        """

        def work(tx: Transaction) -> int:
            found = tx.all(
                _WAKE_FAR_FUTURE,
                now=to_ms(now),
                lease_end=to_ms(now + self._timings.lease),
                latest=to_ms(now + self._timings.lease),
                far=to_ms(now + self._timings.max_wait + self._timings.lease),
                limit=_MAX_WOKEN,
            )
            if found:
                tx.notify(Topic.DELIVERIES)
            return len(found)

        return await self._database.run(work, durable=False)

    async def hasten(self, now: datetime, held_for: timedelta) -> int:
        """Make deliveries due whose call failed: Slack answers again.

        Each is due when ``held_for`` has passed since then. Returns the number of deliveries.
        """

        def work(tx: Transaction) -> int:
            hastened = tx.all(
                _HASTEN,
                now=to_ms(now),
                held_for=round(held_for / timedelta(milliseconds=1)),
                limit=_MAX_WOKEN,
            )
            if hastened:
                tx.notify(Topic.DELIVERIES)
            return len(hastened)

        return await self._database.run(work, durable=False)

    async def void_leases(self) -> None:
        """End all leases. Only for a process that knows that no other one works on them."""

        def work(tx: Transaction) -> None:
            tx.all(VOID_LEASES)

        await self._database.run(work, durable=False)

    def _reported(self, claimed: _Claimed) -> list[Outgoing]:
        """Log what could not be read, and return what could."""
        outgoing, unreadable = claimed
        self._unreadable.report(unreadable)
        return outgoing

    async def hold_edits(self, until: datetime) -> None:
        """Leave the messages that are to be edited alone until then.

        Only for a process that knows that no other one works on them.
        """

        def work(tx: Transaction) -> None:
            tx.all(_HOLD_EDITS, until=to_ms(until))

        await self._database.run(work, durable=False)


def _left_out(held: Collection[Delivery], limited: Collection[Limited]) -> dict[str, Value]:
    """Return the parameters for the deliveries that a claim leaves out."""
    under_way = Counter(each.channel for each in held if each.state is DeliveryState.PENDING)
    full = [channel for channel, posts in under_way.items() if posts >= _POSTS_AT_ONCE]
    states = {each.state for each in limited if each.channel is None}
    if not _free_edits(held):
        states.add(DeliveryState.POSTED)
    if not _free_posts(held):
        states |= set(DeliveryState) - {DeliveryState.POSTED}
    return {
        "held": [each.id for each in held],
        "busy_channels": [*full, *(each.channel for each in limited if each.channel is not None)],
        "limited_states": [state.value for state in states],
        "free_transfers": max(0, _TRANSFERS_AT_ONCE - sum(each.is_transfer for each in held)),
    }


def _free_edits(held: Collection[Delivery]) -> int:
    """Return how many more edits may begin."""
    return max(0, _EDITS_AT_ONCE - sum(each.state is DeliveryState.POSTED for each in held))


def _free_posts(held: Collection[Delivery]) -> int:
    """Return how many more posts, and searches for them, may begin."""
    posts = sum(each.state is not DeliveryState.POSTED for each in held)
    return max(0, _ALL_POSTS_AT_ONCE - posts)


def _with_jobs_and_cards(tx: Transaction, rows: Sequence[Row]) -> _Claimed:
    """Return the deliveries of claimed rows; set those aside that cannot be written."""
    claimed, unreadable = read_each(delivery_from, rows)
    set_aside(tx, unreadable)
    found, errors = read_each(job_from, lock_jobs(tx, {each.job_id for each in claimed}))
    unreadable += errors
    jobs = {job.id: job for job in found}
    cards = {each.job_id: each for each in claimed if each.role is Role.CARD}
    if missing := jobs.keys() - cards.keys():
        read, errors = read_each(delivery_from, tx.all(CARDS, job_ids=[*missing]))
        unreadable += errors
        cards |= {card.job_id: card for card in read}
    failed = [job.id for job in found if job.state is State.FAILED]
    rows = tx.all(RETRIES, job_ids=failed) if failed else []
    retries, errors = read_each(retry_from, rows)
    unreadable += errors
    retry_of = dict(retries)
    outgoing = []
    for each in claimed:
        if each.job_id in jobs and each.job_id in cards:
            job_id = each.job_id
            outgoing.append(Outgoing(each, jobs[job_id], cards[job_id], retry_of.get(job_id)))
        else:
            set_aside(tx, [RowUnreadable("deliveries", str(each.id), each.id)])
    # In the order of their claim: a post notifies a person, and the last one is waited for most.
    outgoing.sort(
        key=lambda each: (
            each.delivery.state is DeliveryState.POSTED,
            each.delivery.role is Role.CARD or each.delivery.role.is_file,
        )
    )
    return outgoing, unreadable
