"""The table of deliveries: the outbox of Slack messages that we owe."""

from collections.abc import Collection
from datetime import datetime
from typing import Final

from bot.model import Delivery, DeliveryState, Job, Role, Settlement
from bot.store.database import (
    Topic,
    Transaction,
    optional_ms,
    run_until_stored,
    to_ms,
    wait_ms,
)
from bot.store.delivery_claims import CARDS
from bot.store.delivery_rows import delivery_from
from bot.store.homes import change_home
from bot.store.job_rows import lock_job, lock_jobs
from bot.store.shares import Shares
from bot.store.sql import Query

# What came before may have taken long: the lease begins anew, and outlasts the call.
# A crash of a server may undo a claim, so that two have the same number: one of them sends it.
_MARK_SENDING: Final = Query(
    """
    UPDATE deliveries SET state = 'sending', sent_at = :now,
                          due_at = :lease_end, wait_ms = :lease_end - :now,
                          channel = :channel, thread_ts = :thread_ts, file_id = :file_id
    WHERE id = :id AND claim = :claim AND state = 'pending' RETURNING id
    """
)
# A question that was settled meanwhile, and is not in Slack, is not posted any more.
_RELEASE: Final = Query(
    """
    UPDATE deliveries SET
        state = CASE WHEN settled_as IS NOT NULL AND :state = 'pending' THEN 'withdrawn'
                ELSE :state END,
        channel = :channel, thread_ts = :thread_ts, ts = :ts,
        shown_version = :shown_version, failures = :failures, refusals = :refusals,
        direct = :direct, text_only = :rewrites, file_id = :file_id, claimed = 0,
        due_at = CASE WHEN settled_as IS NOT NULL AND :state = 'pending' THEN NULL
                 WHEN version > :shown_version THEN CAST(:due_with_news AS BIGINT)
                 ELSE CAST(:due_at AS BIGINT) END,
        wait_ms = :wait_ms
    WHERE id = :id AND claim = :claim RETURNING id
    """
)
# Of one that was claimed again meanwhile: an edit that was made late may show what is out of date.
_EDIT_AGAIN: Final = Query(
    """
    UPDATE deliveries SET version = version + 1, due_at = coalesce(due_at, :now)
    WHERE id = :id AND state = 'posted'
    """
)
_CARD_IS_SETTLED: Final = Query(
    """
    UPDATE deliveries SET due_at = :now
    WHERE job_id = :job_id AND role IN ('question', 'reply')
        AND state = 'pending' AND due_at IS NULL
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
_ADD_FILE: Final = Query(
    """
    INSERT INTO deliveries (job_id, role, state, channel, thread_ts, due_at)
    VALUES (:job_id, :role, 'pending', :channel, :thread_ts, :now)
    ON CONFLICT (job_id, role, number) DO NOTHING
    """
)
# One that still has to be posted notifies the person as a new one would.
_ADD_QUESTION: Final = Query(
    """
    INSERT INTO deliveries (job_id, role, number, state, channel, thread_ts, due_at)
    SELECT job_id, 'question',
        (SELECT count(*) FROM deliveries WHERE job_id = :job_id AND role = 'question') + 1,
        'pending', :channel, :thread_ts,
        CASE WHEN state IN ('posted', 'undeliverable') THEN :now END
    FROM deliveries WHERE job_id = :job_id AND role = 'card' AND NOT EXISTS (
        SELECT 1 FROM deliveries
        WHERE job_id = :job_id AND role = 'question' AND state = 'pending'
    )
    """
)
# Until it is known whether it is in Slack, it keeps its time, and is edited after it.
_SETTLE_QUESTION: Final = Query(
    """
    UPDATE deliveries SET settled_as = :settled_as, settled_by = :settled_by,
        version = version + 1, due_at = coalesce(due_at, :now)
    WHERE job_id = :job_id AND role = 'question' AND settled_as IS NULL
        AND state IN ('sending', 'uncertain', 'posted')
    """
)
# One that is still to be posted shows it anyway.
_EDIT_QUESTION: Final = Query(
    """
    UPDATE deliveries SET version = version + 1, due_at = coalesce(due_at, :now)
    WHERE job_id = :job_id AND role = 'question' AND settled_as IS NULL
        AND state IN ('sending', 'uncertain', 'posted')
    """
)
# A worker that has claimed it can no longer mark it as being sent.
_WITHDRAW_QUESTION: Final = Query(
    """
    UPDATE deliveries SET state = 'withdrawn', settled_as = :settled_as, settled_by = :settled_by,
        claim = claim + 1, claimed = 0, due_at = NULL
    WHERE job_id = :job_id AND role = 'question' AND state = 'pending'
    """
)
# A card that is being sent or waits for a retry keeps its time, and is edited after it if needed.
_EDIT_CARD: Final = Query(
    """
    UPDATE deliveries SET version = version + 1, due_at = coalesce(due_at, :now)
    WHERE job_id = :job_id AND role = 'card' AND state <> 'undeliverable'
    """
)
# The reply too: it has the button. One that is not posted yet will not have it.
_EDIT_MESSAGES: Final = Query(
    """
    UPDATE deliveries SET version = version + 1, due_at = coalesce(due_at, :now)
    WHERE job_id = :job_id
        AND (role = 'card' AND state <> 'undeliverable' OR role = 'reply' AND state = 'posted')
    """
)
# Of a card that is about to be stored as posted for the first time.
_RETRIED_BY: Final = Query(
    """
    SELECT jobs.retry_of FROM deliveries JOIN jobs ON jobs.id = deliveries.job_id
    WHERE deliveries.id = :id AND deliveries.state <> 'posted'
    """
)


_MAY_BE_KEPT: Final = Query(
    """
    SELECT 1 FROM deliveries
    WHERE job_id = :job_id AND (ts = :ts OR state IN ('sending', 'uncertain'))
    """
)
_OTHER_AT: Final = Query(
    "SELECT 1 FROM deliveries WHERE job_id = :job_id AND ts = :ts AND id <> :id"
)
_COUNT_UNSENT: Final = Query(
    """
    SELECT count(*) AS number FROM (
        SELECT 1 FROM deliveries WHERE due_at IS NOT NULL AND state <> 'posted' LIMIT 1000
    ) AS found
    """
)


class Deliveries(Shares):
    """The deliveries as their worker uses them."""

    async def count_unsent(self) -> int:
        """Return how many messages wait to be posted, at most 1,000."""

        def work(tx: Transaction) -> int:
            row = tx.one(_COUNT_UNSENT)
            return 0 if row is None else int(row["number"])

        return await self._database.run(work, durable=False)

    async def fetch_card(self, job: Job) -> Delivery:
        """Return the card of a job."""

        def work(tx: Transaction) -> Delivery:
            [row] = tx.all(CARDS, job_ids=[job.id])
            return delivery_from(row)

        return await self._database.run(work, durable=False)

    async def fetch_kept_card(self, job: Job, ts: str) -> Delivery | None:
        """Return the card of a job if the message ``ts`` is a copy of one of the job's messages.

        None too while it is not known where each of them is.
        """

        def work(tx: Transaction) -> Delivery | None:
            if tx.one(_MAY_BE_KEPT, job_id=job.id, ts=ts) is not None:
                return None
            card = delivery_from(tx.all(CARDS, job_ids=[job.id])[0])
            return card if card.state is DeliveryState.POSTED else None

        return await self._database.run(work, durable=False)

    async def is_other(self, delivery: Delivery, ts: str) -> bool:
        """Return whether the message at ``ts`` is another one of the same job."""

        def work(tx: Transaction) -> bool:
            other = tx.one(_OTHER_AT, job_id=delivery.job_id, ts=ts, id=delivery.id)
            return other is not None

        return await self._database.run(work, durable=False)

    async def mark_sending(self, delivery: Delivery, now: datetime) -> bool:
        """Store where a message may be from now on; return whether to send it.

        False means that the delivery was claimed again meanwhile, or is being sent already.
        """

        def work(tx: Transaction) -> bool:
            lock_job(tx, delivery.job_id)
            marked = tx.one(
                _MARK_SENDING,
                id=delivery.id,
                claim=delivery.claim,
                now=to_ms(now),
                lease_end=to_ms(now + self._timings.lease),
                channel=delivery.channel,
                thread_ts=delivery.thread_ts,
                file_id=delivery.file_id,
            )
            return marked is not None

        return await self._database.run(work)

    async def release(
        self,
        delivery: Delivery,
        now: datetime,
        due_at: datetime | None,
        *,
        following: Collection[Role] = (),
    ) -> bool:
        """Store a claimed delivery as it now is, and leave it alone until ``due_at``.

        None means for good, unless there is a newer version to show: then it stays due. Once it is
        known where a card is, what goes into its thread becomes due, and the messages of the job
        that it retries are edited, which link to it. It is stored even if the database is
        unavailable for a while. ``following``: the roles of files that are owed from now on, in the
        thread that the delivery is in, or begins.

        Returns:
            Whether it was stored: False if it was claimed again meanwhile. Then a message in Slack
            is edited once more, since the edit of this claim may have come after a newer one.
        """
        posted = delivery.state is DeliveryState.POSTED
        at = optional_ms(due_at)

        def work(tx: Transaction) -> bool:
            retried = None
            if posted and delivery.role is Role.CARD:
                found = tx.one(_RETRIED_BY, id=delivery.id)
                retried = found["retry_of"] if found is not None else None
            lock_jobs(tx, filter(None, [delivery.job_id, retried]))
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
                rewrites=delivery.rewrites,
                file_id=delivery.file_id,
                due_at=at,
                wait_ms=wait_ms(to_ms(now), due_at),
                due_with_news=to_ms(now) if posted and at is None else at,
            )
            if released is not None and delivery.role is Role.CARD and delivery.state.settled:
                tx.all(_CARD_IS_SETTLED, job_id=delivery.job_id, now=to_ms(now))
            if released is None and posted and not delivery.role.is_file:
                tx.all(_EDIT_AGAIN, id=delivery.id, now=to_ms(now))
            for role in following if released is not None else ():
                tx.all(
                    _ADD_FILE,
                    job_id=delivery.job_id,
                    role=role.value,
                    channel=delivery.channel,
                    thread_ts=delivery.thread_ts or delivery.ts,
                    now=to_ms(now),
                )
            if released is not None and retried is not None:
                edit_messages(tx, retried, to_ms(now))
            tx.notify(Topic.DELIVERIES)
            return released is not None

        return await run_until_stored(
            self._database, work, retry_interval=self._timings.retry_interval
        )


def add_card(tx: Transaction, job: Job, now: int) -> None:
    """Owe the card of a new job."""
    tx.all(_ADD_CARD, job_id=job.id, channel=job.channel, thread_ts=job.thread_ts, now=now)
    tx.notify(Topic.DELIVERIES)
    change_home(tx, job.id, now)


def add_reply(tx: Transaction, job: Job, now: int) -> None:
    """Owe the closing reply of a job, whose row is locked."""
    tx.all(_ADD_REPLY, job_id=job.id, channel=job.channel, thread_ts=job.thread_ts, now=now)
    tx.notify(Topic.DELIVERIES)


def add_question(tx: Transaction, job: Job, now: int) -> None:
    """Owe a question about a job, whose row is locked; an earlier one is no longer open.

    Each is a message of its own: Slack notifies nobody of an edit. One that is still to be posted
    stays the only one.
    """
    tx.all(
        _SETTLE_QUESTION,
        job_id=job.id,
        settled_as=Settlement.ASKED_AGAIN.value,
        settled_by=None,
        now=now,
    )
    tx.all(_ADD_QUESTION, job_id=job.id, channel=job.channel, thread_ts=job.thread_ts, now=now)
    tx.notify(Topic.DELIVERIES)


def edit_question(tx: Transaction, job_id: str, now: int) -> None:
    """Owe an edit of the open question of a job, whose row is locked."""
    tx.all(_EDIT_QUESTION, job_id=job_id, now=now)
    tx.notify(Topic.DELIVERIES)
    change_home(tx, job_id, now)


def settle_question(
    tx: Transaction, job_id: str, settlement: Settlement, user: str | None, now: int
) -> None:
    """Owe an edit of the open question of a job, whose row is locked, if there is one.

    A question that is not in Slack is never posted.

    Args:
        tx: the transaction.
        job_id: the job.
        settlement: how it was settled.
        user: who settled it, if a person did.
        now: the time.
    """
    settled = {"job_id": job_id, "settled_as": settlement.value, "settled_by": user}
    tx.all(_WITHDRAW_QUESTION, **settled)
    tx.all(_SETTLE_QUESTION, now=now, **settled)
    tx.notify(Topic.DELIVERIES)


def edit_card(tx: Transaction, job_id: str, now: int) -> None:
    """Owe an edit of the card of a job, whose row is locked."""
    tx.all(_EDIT_CARD, job_id=job_id, now=now)
    tx.notify(Topic.DELIVERIES)
    change_home(tx, job_id, now)


def edit_messages(tx: Transaction, job_id: str, now: int) -> None:
    """Owe an edit of all messages of an ended job, whose row is locked."""
    tx.all(_EDIT_MESSAGES, job_id=job_id, now=now)
    tx.notify(Topic.DELIVERIES)
    change_home(tx, job_id, now)
