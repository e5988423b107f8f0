"""The table of deliveries: the outbox of Slack messages that we owe."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from bot.model import Delivery, DeliveryState, Job, Role, Settlement, State, notice_day
from bot.store.database import (
    Query,
    Row,
    Topic,
    Transaction,
    from_ms,
    optional_moment,
    optional_ms,
    run_until_stored,
    span_ms,
    to_ms,
    wait_ms,
)
from bot.store.due import (
    LOCKED,
    SET_ASIDE,
    Claimed,
    DueRows,
    DueTable,
    due_at_of,
    number,
    optional_text,
    reading,
    soonest,
    tell,
    text,
)
from bot.store.job_rows import job_from, lock_jobs, lock_only

# The cards of the jobs that retry these.
_RETRIES: Final = Query(
    """
    SELECT deliveries.*, jobs.retry_of FROM jobs JOIN deliveries ON deliveries.job_id = jobs.id
    WHERE jobs.retry_of IN (EACH :job_ids) AND deliveries.role = 'card'
    """
)
# To take a video to Slack posts nothing: no limit of a channel covers it. Few are taken at a time,
# as each may take long and needs room on the disk.
_TRANSFERS: Final = "role = 'clip' AND file_id IS NULL"
# The first of each role, and edits apart from them: thousands of cards that are due hide no reply,
# and thousands of edits delay no post. A newer version may have added other roles, and may run
# beside this one: they are left to its copies.
_KNOWN: Final = ", ".join(f"'{role}'" for role in Role)
_SORTS: Final = {
    **{f"of_{each}": f"state <> 'posted' AND role = '{each}'" for each in Role},
    "of_clip": "state <> 'posted' AND role = 'clip' AND file_id IS NOT NULL",
    "transfers": f"state <> 'posted' AND {_TRANSFERS}",
    "edits": f"state = 'posted' AND role IN ({_KNOWN})",
}
# A reply notifies a person, who waits for it; an edit notifies nobody.
_RANK: Final = """CASE WHEN state = 'posted' THEN 2 ELSE 0 END
    + CASE WHEN role IN ('card', 'transcript', 'clip') THEN 1 ELSE 0 END AS rank"""
_ALL_SORTS: Final = " UNION ALL ".join(
    f"""SELECT * FROM (
        SELECT id, role, state, channel, due_at, '{name}' AS sort, {_RANK} FROM deliveries
        WHERE due_at IS NOT NULL AND {which} AND id NOT IN (EACH :held)
        ORDER BY due_at LIMIT :window
    ) AS {name}"""  # noqa: S608 - the names of the roles are ours
    for name, which in _SORTS.items()
)
_FIRST: Final = Query(f"SELECT * FROM ({_ALL_SORTS}) AS sorts ORDER BY rank, due_at, id")  # noqa: S608 - likewise
# Whose the rows are. A job is never another person's: nothing is locked.
_PEOPLE: Final = Query(
    """
    SELECT DISTINCT jobs.user_id FROM deliveries JOIN jobs ON jobs.id = deliveries.job_id
    WHERE deliveries.id IN (EACH :ids)
    """
)
# Those that became due last, for people of whom none is under way.
_OF_OTHERS: Final = {
    name: Query(
        f"""
        SELECT newest.*, jobs.user_id FROM (
            SELECT id, job_id, role, state, channel, due_at, '{name}' AS sort, {_RANK}
            FROM deliveries
            WHERE due_at IS NOT NULL AND due_at <= :now AND {which} AND id NOT IN (EACH :held)
            ORDER BY due_at DESC LIMIT :window
        ) AS newest JOIN jobs ON jobs.id = newest.job_id
        WHERE jobs.user_id NOT IN (EACH :people) ORDER BY newest.due_at, newest.id
        """  # noqa: S608 - likewise
    )
    for name, which in _SORTS.items()
}
_MARKED_BY_CLAIM: Final = """state = 'pending' AND role IN ('card', 'reply')
                    AND (SELECT copied FROM jobs WHERE jobs.id = job_id) = 0"""
DUE: Final = DueTable(
    "deliveries",
    Topic.DELIVERIES,
    due=f"""due AS (
                SELECT deliveries.id FROM deliveries JOIN jobs ON jobs.id = deliveries.job_id
                WHERE deliveries.id IN (EACH :ids) AND deliveries.due_at <= :now
                {LOCKED["deliveries"]}
            )""",  # noqa: S608 - the words are ours
    # Who claims a card or a reply posts it: the claim marks it, which saves a work for each post.
    # Others may be withdrawn meanwhile, and what a backup may not know is searched for first.
    on_claim=f""",
                sent_at = CASE WHEN {_MARKED_BY_CLAIM} THEN :now ELSE sent_at END,
                state = CASE WHEN {_MARKED_BY_CLAIM} THEN 'sending' ELSE state END""",
)
# Those that are in the way of others wait, one behind the other; where others are found, in turns.
_SPREAD: Final = {
    in_turns: Query(
        f"""
        WITH crowd AS (
            SELECT deliveries.id, deliveries.due_at, jobs.user_id
            FROM deliveries JOIN jobs ON jobs.id = deliveries.job_id
            WHERE deliveries.role = :role AND deliveries.state = :state
                AND deliveries.due_at <= :now
                AND deliveries.channel = coalesce(:channel, deliveries.channel)
            FOR UPDATE OF jobs, deliveries SKIP LOCKED
        ), turns AS (
            SELECT id, due_at, {turn} AS turn FROM crowd
        ), placed AS (
            SELECT id, row_number() OVER (ORDER BY turn, due_at, id) * :interval AS own_wait
            FROM turns
        )
        UPDATE deliveries SET
            due_at = :now + CASE WHEN own_wait < :longest THEN own_wait ELSE :longest END,
            wait_ms = CASE WHEN own_wait < :longest THEN own_wait ELSE :longest END
        FROM placed WHERE placed.id = deliveries.id
        """  # noqa: S608 - the expression is ours
    )
    for in_turns, turn in (
        (False, "0"),
        (True, "row_number() OVER (PARTITION BY user_id ORDER BY due_at, id)"),
    )
}
_CARDS: Final = Query("SELECT * FROM deliveries WHERE role = 'card' AND job_id IN (EACH :job_ids)")
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
        ORDER BY deliveries.due_at, deliveries.id LIMIT :limit
        FOR UPDATE OF jobs, deliveries SKIP LOCKED
    )
    UPDATE deliveries SET wait_ms = :held_for, due_at = CASE
            WHEN due_at - wait_ms + :held_for > :now THEN due_at - wait_ms + :held_for
            ELSE :now
        END
    WHERE id IN (SELECT id FROM delayed) RETURNING id
    """
)
_WINDOW: Final = 100
"""Rows of each role among which a claim chooses: those that are due first."""
_SAMPLE: Final = 10
"""Of the rows of a window that is full, it looks whose every tenth is: if they are of few people,
it looks for those of others behind them."""
_SPREAD_MS: Final = 50
_SPREAD_WITHIN_MS: Final = 60_000
"""Between two that are spread, which is more than Slack takes in a channel; and the longest wait of
one. Then those that are left are spread again."""
_POSTS_AT_ONCE: Final = 8
"""Posts into one channel at a time."""
_AT_ONCE: Final = {"edits": 48, "posts": 56, "transfers": 4}
"""At a time, wherever they go. The worker has more slots, so that neither edits nor posts wait for
slow ones of the other sort."""
# What came before may have taken long: the lease begins anew, and outlasts the call.
_MARK_SENDING: Final = Query(
    """
    UPDATE deliveries SET state = 'sending', sent_at = :now,
                          due_at = :lease_end, wait_ms = :lease_end - :now,
                          channel = :channel, thread_ts = :thread_ts, file_id = :file_id
    WHERE id = :id AND claim = :claim RETURNING id
    """
)
# Nothing that a message asks is open: neither its own question nor one that it lists.
_IS_SETTLED: Final = """settled_as IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM deliveries AS listed
        WHERE listed.listed_in = deliveries.id AND listed.settled_as IS NULL
    )"""
# A question that was settled meanwhile, and is not in Slack, is not posted any more.
_RELEASE: Final = Query(
    f"""
    UPDATE deliveries SET
        state = CASE WHEN :state = 'pending' AND {_IS_SETTLED} THEN 'withdrawn'
                ELSE :state END,
        channel = :channel, thread_ts = :thread_ts, ts = :ts,
        shown_version = :shown_version, failures = :failures, refusals = :refusals,
        direct = :direct, rewrites = :rewrites, file_id = :file_id, public = :public, claimed = 0,
        due_at = CASE WHEN :state = 'pending' AND {_IS_SETTLED} THEN NULL
                 WHEN version > :shown_version THEN CAST(:due_with_news AS BIGINT)
                 ELSE CAST(:due_at AS BIGINT) END,
        wait_ms = :wait_ms
    WHERE id = :id AND claim = :claim RETURNING due_at, EXISTS (
        SELECT 1 FROM deliveries AS below
        WHERE below.job_id = :job_id AND below.state = 'pending' AND below.due_at IS NULL
    ) AS has_waiting
    """  # noqa: S608 - the condition is ours
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
    WHERE job_id = :job_id AND state = 'pending' AND due_at IS NULL
    """
)
_ADD_BELOW: Final = Query(
    """
    INSERT INTO deliveries (job_id, role, state, channel, thread_ts, due_at)
    -- It goes into its card's thread, and is not due before that is known.
    SELECT job_id, :role, 'pending', :channel, :thread_ts,
        CASE WHEN state IN ('posted', 'undeliverable') THEN :now END
    FROM deliveries WHERE job_id = :job_id AND role = 'card'
    RETURNING due_at
    """
)
_ADD: Final = Query(
    """
    INSERT INTO deliveries (job_id, role, state, channel, thread_ts, due_at, wait_ms)
    VALUES (:job_id, :role, 'pending', :channel, :thread_ts, :now + :wait_ms, :wait_ms)
    ON CONFLICT (job_id, role, number) DO NOTHING
    """
)
# The messages in which the person of a job is asked about something in its channel, newest first.
_ASKING: Final = Query(
    """
    SELECT DISTINCT message.id, message.job_id, message.sent_at
    FROM jobs AS own
    JOIN jobs AS asked ON asked.user_id = own.user_id AND asked.channel = own.channel
    JOIN deliveries AS question ON question.job_id = asked.id
    JOIN deliveries AS message ON message.id = coalesce(question.listed_in, question.id)
    WHERE own.id = :job_id AND asked.ended_at IS NULL AND asked.state = 'unconfirmed'
        AND question.role = 'question' AND question.settled_as IS NULL
        AND message.state IN ('pending', 'sending', 'uncertain', 'posted')
    ORDER BY message.id DESC
    """
)
_ADD_QUESTION: Final = Query(
    """
    INSERT INTO deliveries (job_id, role, number, state, channel, thread_ts, due_at, listed_in)
    SELECT job_id, 'question',
        (SELECT count(*) FROM deliveries WHERE job_id = :job_id AND role = 'question') + 1,
        CASE WHEN listed.place IS NULL THEN 'pending' ELSE 'listed' END, :channel, :thread_ts,
        CASE WHEN listed.place IS NULL AND state IN ('posted', 'undeliverable') THEN :now END,
        listed.place
    FROM deliveries, (SELECT CAST(:listed_in AS BIGINT) AS place) AS listed
    WHERE job_id = :job_id AND role = 'card'
    """
)
_SETTLE: Final = Query(
    """
    UPDATE deliveries SET settled_as = :settled_as, settled_by = :settled_by
    WHERE job_id = :job_id AND role IN ('question', 'approval') AND settled_as IS NULL
        AND state IN ('pending', 'sending', 'uncertain', 'posted', 'listed')
    RETURNING coalesce(listed_in, id) AS message
    """
)
# A worker that has claimed it can no longer mark it as being sent.
_WITHDRAW: Final = Query(
    f"""
    UPDATE deliveries SET state = 'withdrawn', claim = claim + 1, claimed = 0, due_at = NULL
    WHERE id IN (EACH :ids) AND state = 'pending' AND {_IS_SETTLED}
    """  # noqa: S608 - likewise
)
# Until it is known whether it is in Slack, it keeps its time, and is edited after it.
_EDIT_QUESTIONS: Final = Query(
    """
    UPDATE deliveries SET version = version + 1,
        due_at = CASE WHEN state = 'pending' THEN due_at ELSE coalesce(due_at, :now) END
    WHERE id IN (EACH :ids) AND state IN ('pending', 'sending', 'uncertain', 'posted')
    """
)
_LISTED: Final = Query("SELECT * FROM deliveries WHERE listed_in IN (EACH :ids) ORDER BY id")
_JOBS: Final = Query("SELECT * FROM jobs WHERE id IN (EACH :ids)")
# A card that nobody has begun to post is due now: it would say what is out of date. One that is
# being sent or waits for a retry keeps its time, and is edited after it if needed.
_EDIT_CARD: Final = Query(
    """
    UPDATE deliveries SET version = version + 1, due_at = CASE
            WHEN state = 'pending' AND claim = 0 AND due_at > :now THEN :now
            ELSE coalesce(due_at, :now)
        END
    WHERE job_id = :job_id AND role = 'card' AND state <> 'undeliverable'
    RETURNING CASE WHEN claimed = 0 THEN due_at END AS due_at
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
# While it is known where each message of the job is, and none is there.
_KEPT_CARD: Final = Query(
    """
    SELECT * FROM deliveries
    WHERE job_id = :job_id AND role = 'card' AND state = 'posted' AND NOT EXISTS (
        SELECT 1 FROM deliveries
        WHERE job_id = :job_id AND (ts = :ts OR state IN ('sending', 'uncertain'))
    )
    """
)
_OTHER_AT: Final = Query(
    "SELECT 1 FROM deliveries WHERE job_id = :job_id AND ts = :ts AND id <> :id"
)
# It does not wait for the card: that is in another place.
_ADD_ADDRESSED: Final = Query(
    """
    INSERT INTO deliveries (job_id, role, number, state, channel, direct, addressee, due_at)
    SELECT :job_id, :role, coalesce(max(number) + 1, :first), 'pending', :channel, :direct,
        :addressee, :now
    FROM deliveries WHERE job_id = :job_id AND role = :role
    """
)
# The newest message that has asked somebody about a request that its person has cancelled.
_CANCELLED_APPROVAL: Final = Query(
    """
    SELECT deliveries.* FROM jobs JOIN deliveries ON deliveries.job_id = jobs.id
    WHERE jobs.user_id = :user AND CASE WHEN jobs.ended_at IS NULL THEN 0 ELSE 1 END = 1
        AND jobs.created_at > :since AND jobs.failure = 'withdrawn'
        AND deliveries.role = 'approval' AND deliveries.state = 'posted'
        AND deliveries.settled_as = 'cancelled' AND deliveries.sent_at > :since
        AND coalesce(deliveries.addressee, deliveries.channel) = :asked
    ORDER BY deliveries.id DESC LIMIT 1 FOR UPDATE OF jobs, deliveries SKIP LOCKED
    """
)
# A worker that edits it now does that once more, for the new version.
_MOVE_APPROVAL: Final = Query(
    """
    UPDATE deliveries SET job_id = :job_id, settled_as = NULL, settled_by = NULL,
        number = (SELECT coalesce(max(number) + 1, :first) FROM deliveries
                  WHERE job_id = :job_id AND role = 'approval'),
        version = version + 1, due_at = coalesce(due_at, :now)
    WHERE id = :id
    """
)
# One for each person and day.
_ADD_NOTICE_OF_DAY: Final = Query(
    """
    INSERT INTO deliveries
        (job_id, role, day, state, channel, direct, addressee, due_at)
    SELECT :job_id, 'notice', :day, 'pending', :owner, 1, :owner, :now
    WHERE (SELECT max(muted) FROM replicas WHERE owner = :owner) = 0
    ON CONFLICT DO NOTHING
    """
)
_WITHDRAW_NOTICES: Final = Query(
    """
    UPDATE deliveries SET state = 'withdrawn', claim = claim + 1, claimed = 0, due_at = NULL
    WHERE id IN (
        SELECT deliveries.id FROM deliveries JOIN jobs ON jobs.id = deliveries.job_id
        WHERE deliveries.day IS NOT NULL
            AND deliveries.addressee = :user AND deliveries.state = 'pending'
        FOR UPDATE OF jobs, deliveries
    )
    """
)
# By this a click is known that was made before the message was edited.
_ADD_MOVED: Final = Query(
    """
    INSERT INTO deliveries
        (job_id, role, number, state, channel, ts, direct, addressee, settled_as, settled_by)
    VALUES (:job_id, 'approval', :number, 'withdrawn', :channel, :ts, :direct, :addressee,
        :settled_as, :settled_by)
    """
)


@dataclass(frozen=True, slots=True)
class Limited:
    """The deliveries that one of Slack's rate limits covers.

    Those in a state: in one channel, or in all.
    """

    state: str
    channel: str | None = None


_NO_LIMITS: Final[Mapping[Limited, datetime]] = {}


def covering(delivery: Delivery) -> Limited:
    """Return which rate limit the next call for a delivery is under."""
    posts = delivery.state is DeliveryState.PENDING and not delivery.is_transfer
    return Limited(delivery.state, delivery.channel if posts else None)


Asked: TypeAlias = tuple[Delivery, Job]
"""A question and the job that it is about."""


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
    listed: Sequence[Asked] = ()
    """The further questions that its message lists, oldest first."""
    marked_at: datetime | None = None
    """When its claim marked it as being sent; None if its step has to."""


class Deliveries(DueRows):
    """The deliveries as their worker uses them."""

    table = DUE

    async def claim(
        self,
        now: datetime,
        limit: int,
        held: Collection[Delivery] = (),
        limited: Mapping[Limited, datetime] = _NO_LIMITS,
    ) -> Claimed[Outgoing]:
        """Lease deliveries that are due: posts before edits, and replies and questions before both.

        What a rate limit covers is claimed one at a time, from the time on that it names. Where a
        channel takes no more posts at the moment, those that hide others are due later.

        Args:
            now: the time.
            limit: the highest number of deliveries.
            held: those that this process still works on: a clock jump may end leases early.
            limited: the rate limits, each with the time of its next call.
        """

        def work(tx: Transaction) -> Claimed[Outgoing]:
            left_out, passed_over = {each.id for each in held}, False
            while True:
                choice = _Choice(now, limit, held, limited)
                rows = tx.all(_FIRST, held=[*left_out], window=_WINDOW)
                of_others = _of_others(tx, now, rows, left_out)
                choice.choose(rows, of_others)
                ids: list[int] = choice.ids
                claimed = DUE.claim(tx, now, self._timings, ids=ids) if ids else ()
                passed_over |= len(claimed) < len(ids)
                if claimed or not ids:
                    break
                left_out |= {*ids}  # another transaction has them
            for role, crowd in choice.crowds:
                tx.all(
                    _SPREAD[any(row["role"] == role for row in of_others)],
                    role=role,
                    state=str(crowd.state),
                    channel=crowd.channel,
                    now=to_ms(now),
                    interval=_SPREAD_MS,
                    longest=_SPREAD_WITHIN_MS,
                )
            if passed_over:  # who has them may change nothing, and then tells nobody
                choice.left.append(now + self._timings.claim_interval)
            pending = {row["id"] for row in (*rows, *of_others) if row["state"] == "pending"}
            # Another copy may have marked one since, with a lease that is over by this one's clock.
            marked = pending & {
                row["id"]
                for row in claimed
                if row["state"] == "sending" and row["sent_at"] == to_ms(now)
            }
            outgoing = self._with_jobs_and_cards(tx, claimed, marked, now)
            return Claimed(outgoing, soonest(choice.left), full=choice.full)

        return await self._database.run(work)

    def _with_jobs_and_cards(
        self, tx: Transaction, rows: Sequence[Row], marked: Collection[int], now: datetime
    ) -> list[Outgoing]:
        """Return the deliveries of claimed rows; set those aside that cannot be written.

        What the claim has ``marked`` as being sent is pending for its step.
        """
        if not rows:
            return []
        claimed = self._unreadable.read_each(delivery_from, rows, claimed=tx)
        jobs = self._jobs(tx, {each.job_id for each in claimed})
        cards = {each.job_id: each for each in claimed if each.role is Role.CARD}
        if missing := jobs.keys() - cards.keys():
            found = tx.all(_CARDS, job_ids=[*missing])
            read = self._unreadable.read_each(delivery_from, found)
            cards |= {card.job_id: card for card in read}
        failed = [job.id for job in jobs.values() if job.state is State.FAILED]
        found = tx.all(_RETRIES, job_ids=failed) if failed else []
        retry_of = dict(
            self._unreadable.read_each(lambda row: (row["retry_of"], delivery_from(row)), found)
        )
        listed = self._listed_in(tx, [each.id for each in claimed if each.role is Role.QUESTION])
        outgoing = []
        for each in claimed:
            if each.job_id in jobs and each.job_id in cards:
                is_marked = each.id in marked
                outgoing.append(
                    Outgoing(
                        replace(each, state=DeliveryState.PENDING) if is_marked else each,
                        jobs[each.job_id],
                        cards[each.job_id],
                        retry_of.get(each.job_id),
                        listed=listed.get(each.id, ()),
                        marked_at=now if is_marked else None,
                    )
                )
            else:
                tx.all(SET_ASIDE["deliveries"], id=each.id)
        # In the order of their claim: a post notifies a person, who waits most for the last one.
        outgoing.sort(
            key=lambda each: (
                each.delivery.state is DeliveryState.POSTED,
                each.delivery.role is Role.CARD or each.delivery.role.is_file,
            )
        )
        return outgoing

    def _listed_in(self, tx: Transaction, leading: Sequence[int]) -> dict[int, list[Asked]]:
        """Return the further questions that messages list, by the id of the leading one."""
        listed: dict[int, list[Asked]] = {}
        rows = tx.all(_LISTED, ids=leading) if leading else ()
        questions = self._unreadable.read_each(
            lambda row: (row["listed_in"], delivery_from(row)), rows
        )
        # A row that changes what a message says is locked together with that message's.
        jobs = self._jobs(tx, {each.job_id for _, each in questions})
        for leading_id, each in questions:
            if each.job_id in jobs:
                listed.setdefault(leading_id, []).append((each, jobs[each.job_id]))
        return listed

    def _jobs(self, tx: Transaction, ids: Collection[str]) -> dict[str, Job]:
        rows = tx.all(_JOBS, ids=[*ids]) if ids else ()
        return {job.id: job for job in self._unreadable.read_each(job_from, rows)}

    async def hasten(self, now: datetime, held_for: timedelta) -> int:
        """Make deliveries due whose call failed: Slack answers again.

        Each is due when ``held_for`` has passed since then. Returns the number of deliveries.
        """
        return await self._make_due(_HASTEN, now=to_ms(now), held_for=span_ms(held_for))

    async def hold_edits(self, until: datetime) -> None:
        """Leave the messages that are to be edited alone until then.

        Only for a process that knows that no other one works on them.
        """
        await self._database.run(lambda tx: tx.all(_HOLD_EDITS, until=to_ms(until)), durable=False)

    async def fetch_card(self, job: Job) -> Delivery:
        """Return the card of a job."""
        [row] = await self._database.run(lambda tx: tx.all(_CARDS, job_ids=[job.id]), durable=False)
        return delivery_from(row)

    async def fetch_kept_card(self, job: Job, ts: str) -> Delivery | None:
        """Return the card of a job if the message ``ts`` is a copy of one of the job's messages.

        None too while it is not known where each of them is.
        """
        row = await self._database.run(
            lambda tx: tx.one(_KEPT_CARD, job_id=job.id, ts=ts), durable=False
        )
        return delivery_from(row) if row else None

    async def is_other(self, delivery: Delivery, ts: str) -> bool:
        """Return whether the message at ``ts`` is another one of the same job."""
        other = await self._database.run(
            lambda tx: tx.one(_OTHER_AT, job_id=delivery.job_id, ts=ts, id=delivery.id),
            durable=False,
        )
        return other is not None

    async def mark_sending(self, delivery: Delivery, now: datetime) -> bool:
        """Store where a message may be from now on; return whether to send it.

        False means that the delivery was claimed again meanwhile.
        """

        def work(tx: Transaction) -> bool:
            lock_only(tx, delivery.job_id)
            return bool(
                tx.one(
                    _MARK_SENDING,
                    id=delivery.id,
                    claim=delivery.claim,
                    now=to_ms(now),
                    lease_end=to_ms(now + self._timings.lease),
                    channel=delivery.channel,
                    thread_ts=delivery.thread_ts,
                    file_id=delivery.file_id,
                )
            )

        return await self._database.run(work)

    async def release(
        self,
        delivery: Delivery,
        now: datetime,
        due_at: datetime | None,
        *,
        following: Collection[Role] = (),
        retried: str | None = None,
    ) -> bool:
        """Store a claimed delivery as it now is, and leave it alone until ``due_at``.

        None means for good, unless there is a newer version to show: then it stays due. Once it is
        known where a card is, what goes into its thread becomes due. It is stored even if the
        database is unavailable for a while.

        ``following``: the roles of files that are owed from now on, in the thread that the delivery
        is in, or begins. ``retried``: the job whose messages are edited, as they link to this one.

        Returns:
            Whether it was stored: False if it was claimed again meanwhile. Then a message in Slack
            is edited once more, since the edit of this claim may have come after a newer one.
        """
        posted = delivery.state is DeliveryState.POSTED
        at = optional_ms(due_at)

        def work(tx: Transaction) -> bool:
            lock_only(tx, *filter(None, [delivery.job_id, retried]))
            released = tx.one(
                _RELEASE,
                id=delivery.id,
                job_id=delivery.job_id,
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
                public=int(delivery.public),
                due_at=at,
                wait_ms=wait_ms(to_ms(now), due_at),
                due_with_news=to_ms(now) if posted and at is None else at,
            )
            if released is None:
                if posted and not delivery.role.is_file:
                    tx.all(_EDIT_AGAIN, id=delivery.id, now=to_ms(now))
                    tx.notify(Topic.DELIVERIES)
                return False
            tell(tx, Topic.DELIVERIES, released["due_at"], to_ms(now))
            if released["has_waiting"] and delivery.role is Role.CARD and delivery.state.settled:
                tx.all(_CARD_IS_SETTLED, job_id=delivery.job_id, now=to_ms(now))
                tx.notify(Topic.DELIVERIES)
            for role in following:
                tx.all(
                    _ADD,
                    job_id=delivery.job_id,
                    role=role.value,
                    channel=delivery.channel,
                    thread_ts=delivery.thread_ts or delivery.ts,
                    now=to_ms(now),
                    wait_ms=0,
                )
                tx.notify(Topic.DELIVERIES)
            if retried is not None:
                edit_messages(tx, retried, to_ms(now))
            return True

        return await run_until_stored(
            self._database, work, retry_interval=self._timings.retry_interval
        )


def delivery_from(row: Row) -> Delivery:
    """Return a row of the table of deliveries as a value.

    Raises:
        RowUnreadable: its content is damaged.
    """
    with reading("deliveries", row):
        return Delivery(
            id=row["id"],
            job_id=text(row["job_id"]),
            role=Role(row["role"]),
            state=DeliveryState(row["state"]),
            channel=text(row["channel"]),
            thread_ts=optional_text(row["thread_ts"]),
            ts=optional_text(row["ts"]),
            version=number(row["version"]),
            shown_version=number(row["shown_version"]),
            due_at=optional_moment(row["due_at"]),
            claim=number(row["claim"]),
            failures=number(row["failures"]),
            refusals=number(row["refusals"]),
            direct=bool(row["direct"]),
            rewrites=number(row["rewrites"]),
            sent_at=optional_moment(row["sent_at"]),
            number=number(row["number"]),
            settled_as=Settlement(row["settled_as"]) if row["settled_as"] else None,
            settled_by=optional_text(row["settled_by"]),
            addressee=optional_text(row["addressee"]),
            file_id=optional_text(row["file_id"]),
            public=bool(row["public"]),
        )


class _Choice:
    """Which of the rows that are due first are claimed, beside those that are ``held``.

    Attributes:
        ids: those to claim.
        left: when the others are due for which there is room.
        full: there may be room for more when one ends that is held or claimed.
        crowds: what hides others of its role, since it fills the window and has to wait: the role,
            and what is under the same limit.
    """

    def __init__(
        self,
        now: datetime,
        limit: int,
        held: Collection[Delivery],
        limited: Mapping[Limited, datetime],
    ) -> None:
        self.ids: list[int] = []
        self.left: list[datetime] = []
        self.full = False
        self.crowds: set[tuple[str, Limited]] = set()
        self._now = from_ms(to_ms(now))
        self._limit = limit
        self._limited = limited
        self._under_way = Counter[Limited | str]()
        for each in held:
            self._under_way.update(_bounds(covering(each), is_transfer=each.is_transfer))

    def choose(self, rows: Sequence[Row], of_others: Sequence[Row]) -> None:
        """Choose among rows, the first of each sort, and those of others, which go before them.

        Both are in the order of their ranks. Where all that may begin is chosen, it looks no
        further: the next claim does.
        """
        due, waiting = Counter[str](), set[tuple[str, str, Limited]]()
        if of_others:
            first = {row["id"] for row in of_others}
            rest = [row for row in rows if row["id"] not in first]
            # Sorting keeps the order of those of the same rank.
            rows = sorted([*of_others, *rest], key=lambda row: int(row["rank"]))
        for row in rows:
            due_at = due_at_of(row)
            if due_at is None:  # damaged: the sweep finds that it is too late
                continue
            if due_at > self._now:
                self.left.append(due_at)
                continue
            if len(self.ids) == self._limit:
                self.left.append(self._now)
                break
            due[row["sort"]] += 1
            channel = row["channel"] if row["state"] == DeliveryState.PENDING else None
            limited = Limited(row["state"], None if row["sort"] == "transfers" else channel)
            if not self._take(row, limited):
                waiting.add((row["sort"], row["role"], limited))
        self.crowds = {(role, limited) for sort, role, limited in waiting if due[sort] >= _WINDOW}
        if self.crowds:
            self.left.append(self._now)

    def _take(self, row: Row, limited: Limited) -> bool:
        """Choose a row that is due, if there is room for it; return whether its limit allows it."""
        at = self._limited.get(limited, self._now)
        if at > self._now:
            self.left.append(at)
            return False
        bounds = _bounds(limited, is_transfer=row["sort"] == "transfers")
        reached = [each for each in bounds if self._under_way[each] >= self._at_once(each)]
        if reached:
            self.full = True
        else:
            self.ids.append(row["id"])
            self._under_way.update(bounds)
        return limited not in reached

    def _at_once(self, bound: Limited | str) -> int:
        if isinstance(bound, str):
            return _AT_ONCE[bound]
        if bound in self._limited:
            return 1
        return sum(_AT_ONCE.values()) if bound.channel is None else _POSTS_AT_ONCE


def _bounds(limited: Limited, *, is_transfer: bool) -> list[Limited | str]:
    """Return what bounds how many calls are made at a time: the same limit, and the same sort."""
    sort = "edits" if limited.state == DeliveryState.POSTED else "posts"
    return [limited, sort, *(["transfers"] if is_transfer else [])]


def _of_others(
    tx: Transaction, now: datetime, rows: Sequence[Row], left_out: Collection[int]
) -> list[Row]:
    """Return the first row of each person who waits behind the many of a few: mostly of nobody.

    Those of somebody of whom one is under way are left where they are.
    """
    found: dict[tuple[str, str], Row] = {}
    at = to_ms(now)
    due = [row["sort"] for row in rows if isinstance(row["due_at"], int) and row["due_at"] <= at]
    for sort, count in Counter(due).items():
        if count < _WINDOW:
            continue
        sample = [row["id"] for row in rows if row["sort"] == sort][::_SAMPLE]
        people = {row["user_id"] for row in tx.all(_PEOPLE, ids=sample)}
        if 2 * len(people) > len(sample):
            continue
        held = [*left_out]
        people.update(row["user_id"] for row in tx.all(_PEOPLE, ids=held))
        others = tx.all(_OF_OTHERS[sort], now=at, held=held, people=[*people], window=_WINDOW)
        for row in others:
            found.setdefault((sort, row["user_id"]), row)
    return [*found.values()]


def add_card(tx: Transaction, job: Job, delay: timedelta) -> None:
    """Owe the card of a new job, after a delay or as soon as the job changes."""
    now, wait_ms = to_ms(job.created_at), span_ms(delay)
    tx.all(
        _ADD,
        job_id=job.id,
        role=Role.CARD.value,
        channel=job.channel,
        thread_ts=job.thread_ts,
        now=now,
        wait_ms=wait_ms,
    )
    tell(tx, Topic.DELIVERIES, now + wait_ms, now)
    tx.notify(Topic.HOMES, job.user)


def add_below(tx: Transaction, job: Job, role: Role, now: int) -> None:
    """Owe a message in the thread of a job's card, such as its closing reply; its row is locked."""
    at = {"channel": job.channel, "thread_ts": job.thread_ts, "now": now}
    for added in tx.all(_ADD_BELOW, job_id=job.id, role=role.value, **at):
        tell(tx, Topic.DELIVERIES, added["due_at"], now)


def add_direct(tx: Transaction, job: Job, role: Role, person: str | None, now: int) -> None:
    """Owe a person a direct message about a job."""
    tx.all(
        _ADD_ADDRESSED,
        job_id=job.id,
        role=role.value,
        first=0,
        channel=person,
        direct=1,
        addressee=person,
        now=now,
    )
    tx.notify(Topic.DELIVERIES)


def add_notice_of_day(tx: Transaction, job: Job, now: int) -> None:
    """Owe the owner of a replica a message about this day, in which ``job`` was made with it.

    It waits until the day is over, so that it has all of the day.
    """
    day = to_ms(notice_day(from_ms(now)))
    tx.all(_ADD_NOTICE_OF_DAY, job_id=job.id, owner=job.owner, day=day, now=now)
    tx.notify(Topic.DELIVERIES)
    tx.notify(Topic.HOMES, job.owner or "")


def withdraw_notices(tx: Transaction, user: str) -> None:
    """Post no message about a day that a person has not been sent yet."""
    tx.all(_WITHDRAW_NOTICES, user=user)


def lock_asked(tx: Transaction, job_id: str) -> Row | None:
    """Lock the row of a job as ``lock_job`` does, and those whose questions list its question.

    Everything that owes or settles a question begins with this.
    """
    locked: set[str] = set()
    rows: Sequence[Row] = ()
    # What was read before the locks may be out of date.
    while (
        not (ids := {job_id, *(row["job_id"] for row in tx.all(_ASKING, job_id=job_id))}) <= locked
    ):
        rows, locked = lock_jobs(tx, ids), locked | ids
    return next((row for row in rows if row["id"] == job_id), None)


def add_question(tx: Transaction, job: Job, now: int, since: int) -> None:
    """Owe a question about a job; an earlier one is no longer open.

    If the person is asked about something else in the same channel, in a message that is not older
    than ``since``, that lists it. Otherwise it is a message of its own: Slack notifies nobody of an
    edit. One that was still to be posted is withdrawn. ``lock_asked`` was called.
    """
    settle_question(tx, job.id, Settlement.ASKED_AGAIN, None, now)
    asking = tx.all(_ASKING, job_id=job.id)
    leading = [row["id"] for row in asking if row["sent_at"] is None or row["sent_at"] > since][:1]
    tx.all(
        _ADD_QUESTION,
        job_id=job.id,
        channel=job.channel,
        thread_ts=job.thread_ts,
        now=now,
        listed_in=leading[0] if leading else None,
    )
    tx.all(_EDIT_QUESTIONS, ids=leading, now=now)
    tx.notify(Topic.DELIVERIES)


def settle_question(
    tx: Transaction, job_id: str, settlement: Settlement, user: str | None, now: int
) -> None:
    """Owe edits of what is asked about a job, whose row is locked: a question, or its approvals.

    What is not in Slack is never posted, unless it lists something that is open. ``user`` is who
    settled it, if a person did. For a question, ``lock_asked`` was called.
    """
    settled = tx.all(_SETTLE, job_id=job_id, settled_as=settlement.value, settled_by=user)
    messages = [row["message"] for row in settled]
    tx.all(_WITHDRAW, ids=messages)
    tx.all(_EDIT_QUESTIONS, ids=messages, now=now)
    tx.notify(Topic.DELIVERIES)


def edit_card(tx: Transaction, job_id: str, user: str, now: int) -> None:
    """Owe an edit of the card of a job of ``user``'s, whose row is locked."""
    for card in tx.all(_EDIT_CARD, job_id=job_id, now=now):
        tell(tx, Topic.DELIVERIES, card["due_at"], now)
    tx.notify(Topic.HOMES, user)


def edit_messages(tx: Transaction, job_id: str, now: int) -> None:
    """Owe an edit of all messages of an ended job, whose row is locked."""
    tx.all(_EDIT_MESSAGES, job_id=job_id, now=now)
    tx.notify(Topic.DELIVERIES)


def add_approvals(tx: Transaction, job: Job, asked: Sequence[str], now: int, since: int) -> None:
    """Owe the messages that ask for the approval of a job, whose row is locked.

    ``asked`` has the id of a channel, or those of people, who get one each. Where one was asked
    ``since`` then about a request that its person has cancelled, that message asks about this one.
    """
    for id_ in asked:
        is_channel = id_.startswith(("C", "G"))
        first = int(not is_channel)
        if moved := tx.one(_CANCELLED_APPROVAL, user=job.user, since=since, asked=id_):
            tx.all(_MOVE_APPROVAL, id=moved["id"], job_id=job.id, first=first, now=now)
            kept = ("job_id", "number", "channel", "ts", "direct", "addressee")
            settled = ("settled_as", "settled_by")
            tx.all(_ADD_MOVED, **{name: moved[name] for name in (*kept, *settled)})
            continue
        tx.all(
            _ADD_ADDRESSED,
            job_id=job.id,
            role=Role.APPROVAL.value,
            first=first,
            channel=id_,
            direct=int(not is_channel),
            addressee=None if is_channel else id_,
            now=now,
        )
    tx.notify(Topic.DELIVERIES)
