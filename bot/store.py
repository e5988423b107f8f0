"""The tables and all SQL: what must survive the process. Each public method is all or nothing."""

import asyncio
import contextlib
import json
import secrets
import sqlite3
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Final

from bot.database import (
    Database,
    all_rows,
    first_row,
    insistent,
    moment_of,
    ms_of,
    repeatable,
    transaction,
)
from bot.model import Attempt, Delivery, DeliveryState, Failure, Job, Request, Role, State
from bot.replicas import Replicas
from bot.rows import (
    attempt_of,
    bare,
    delivery_of,
    job_of,
    ms_or_none,
    packed,
    span_of,
    values_of,
)
from bot.timings import Timings

# Without letters and digits that look alike, so that an id can be read out and typed.
_ALPHABET: Final = "23456789abcdefghjkmnpqrstvwxyz"
_ID_LENGTH: Final = 10
# "How long do such jobs take" looks at so many of the last ones.
_RECENT: Final = 20
# The states in which the service is read.
_READ: Final = frozenset({State.RUNNING, State.OVERDUE})
_NOT_IN_HAND: Final = "id NOT IN (SELECT value FROM json_each(:in_hand))"
# So many ended jobs are erased in one go: others wait for it.
_ERASE: Final = 200


@dataclass(frozen=True, slots=True)
class Submitted:
    """What became of a submission: the job that stands for it, and whether it was new."""

    job: Job
    new: bool


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A claimed delivery with what is needed to write and place it.

    ``card`` is its job's card: the delivery itself, unless that is the reply.
    """

    delivery: Delivery
    job: Job
    card: Delivery


class Store:
    """Jobs, attempts and deliveries; and ``replicas``, in the same database.

    ``jobs_due`` and ``deliveries_due`` are set when a row may have become due.
    """

    def __init__(self, database: Database, timings: Timings) -> None:
        self.jobs_due = asyncio.Event()
        self.deliveries_due = asyncio.Event()
        self.database = database
        self.replicas = Replicas(database)
        self._timings = timings
        self.jobs = SimpleNamespace(
            submit=self.submit,
            fetch=self.job,
            fetch_by_remote_id=self.job_of_remote,
            fetch_by_request=self.job_of_request,
            list_for_user=self.jobs_of,
            claim=self.claim_jobs,
            next_due=self.next_job_due,
            begin_attempt=self.begin_attempt,
            record_created=self.created,
            record_not_created=self.not_created,
            release=self.put_back,
            finish=self.end,
            cancel=self.give_up,
            expire=self.lapse,
            candidates=self.hints,
            drop_candidate=self.drop_hint,
            adopt=self.adopt,
            create_again=self.create_again,
            add_candidate=self.take_hint,
            wake=self.wake,
            wake_waiting=self.wake_waiting,
            record_callback=self.call_back,
            erase=self.erase,
            wake_far_future=self.wake_far_future_jobs,
        )
        self.deliveries = SimpleNamespace(
            claim=self.claim_deliveries,
            fetch_card=self.card,
            next_due=self.next_delivery_due,
            mark_sending=self.mark_sending,
            release=self.settle,
            wake_far_future=self.wake_far_future_deliveries,
        )

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, path: Path, timings: Timings) -> AsyncIterator["Store"]:
        """Open the database and void what an earlier process had claimed.

        Raises:
            StoreError: the file cannot be opened or written, or another process has it.
        """
        async with Database.open(path, timings) as database:
            store = cls(database, timings)
            await store._void_leases()
            yield store

    # ── What people ask for and about ─────────────────────────────────────────────────────────

    @transaction
    def submit(self, db: sqlite3.Connection, request: Request, now: datetime) -> Submitted:
        """Store a job and owe its card, or find the job that this request made before."""
        self.jobs_due.set()
        self.deliveries_due.set()
        values = {
            "id": "".join(_ALPHABET[n % len(_ALPHABET)] for n in secrets.token_bytes(_ID_LENGTH)),
            "request_key": request.key,
            "kind": request.kind,
            "params": json.dumps(dict(request.params)),
            "user_id": request.user,
            "channel": request.channel,
            "thread_ts": request.thread_ts,
            "now": ms_of(now),
            "usual": _usual(db, request.kind),
        }
        new = first_row(
            db,
            """
            INSERT INTO jobs (id, request_key, kind, params, user_id, channel, thread_ts,
                              created_at, state, due_at, usual)
            VALUES (:id, :request_key, :kind, :params, :user_id, :channel, :thread_ts,
                    :now, 'queued', :now, :usual)
            ON CONFLICT (request_key) DO NOTHING RETURNING id
            """,
            values,
        )
        if new is None:
            found = all_rows(db, "SELECT * FROM jobs WHERE request_key = :request_key", values)
            return Submitted(job_of(found[0]), new=False)
        db.execute(
            """
            INSERT INTO deliveries (job_id, role, posting, channel, thread_ts, due_at)
            VALUES (:id, 'card', 'owed', :channel, :thread_ts, :now)
            """,
            values,
        )
        job = Job(
            id=new["id"],
            kind=request.kind,
            params=request.params,
            user=request.user,
            channel=request.channel,
            thread_ts=request.thread_ts,
            created_at=now,
            due_at=now,
        )
        return Submitted(job, new=True)

    @repeatable
    def job(self, db: sqlite3.Connection, job_id: str) -> Job | None:
        """Return the job with this id of ours."""
        row = first_row(db, "SELECT * FROM jobs WHERE id = :id", {"id": job_id})
        return job_of(row) if row else None

    @repeatable
    def job_of_remote(self, db: sqlite3.Connection, kind: str, remote_id: str) -> Job | None:
        """Return the job whose create call made ``remote_id``, if one of ours did."""
        row = first_row(
            db,
            """
            SELECT jobs.* FROM attempts JOIN jobs ON jobs.id = attempts.job_id
            WHERE attempts.kind = :kind AND attempts.remote_id = :remote_id
            """,
            {"kind": kind, "remote_id": remote_id},
        )
        return job_of(row) if row else None

    @repeatable
    def jobs_of(self, db: sqlite3.Connection, user: str, kind: str, limit: int) -> list[Job]:
        """Return a person's jobs of one kind, newest first."""
        rows = all_rows(
            db,
            """
            SELECT * FROM jobs WHERE user_id = :user AND kind = :kind
            ORDER BY created_at DESC LIMIT :limit
            """,
            {"user": user, "kind": kind, "limit": limit},
        )
        return [job_of(row) for row in rows]

    # ── Jobs ──────────────────────────────────────────────────────────────────────────────────

    @repeatable
    def claim_jobs(
        self,
        db: sqlite3.Connection,
        now: datetime,
        limit: int,
        in_hand: Collection[str] = (),
    ) -> list[Job]:
        """Lease up to ``limit`` jobs that are due, those that wait longest first.

        Those ``in_hand`` are left out: a clock that jumps ends leases before their time.
        """
        rows = all_rows(
            db,
            f"""
            UPDATE jobs SET claim = claim + 1, claimed = 1, due_at = :lease,
                -- Now, not when the answer is there: what calls back meanwhile has to wait too.
                read_at = CASE WHEN state IN ('running', 'overdue') OR EXISTS (
                    SELECT 1 FROM attempts
                    WHERE job_id = jobs.id AND remote_id IS NULL AND hint IS NOT NULL
                ) THEN :now ELSE read_at END
            WHERE id IN (
                SELECT id FROM (SELECT id FROM jobs WHERE due_at <= :now AND {_NOT_IN_HAND}
                                ORDER BY due_at LIMIT :limit)
                UNION ALL
                SELECT id FROM (SELECT id FROM jobs WHERE due_at > :parked AND {_NOT_IN_HAND}
                                LIMIT :limit)
                LIMIT :limit
            ) RETURNING *
            """,  # noqa: S608 - a constant
            self._lease(now, limit, in_hand),
        )
        return [job_of(row) for row in rows]

    @repeatable
    def next_job_due(
        self, db: sqlite3.Connection, in_hand: Collection[str] = ()
    ) -> datetime | None:
        """Return when the next job is due that is not in hand; None while there is none."""
        [row] = all_rows(
            db,
            f"SELECT min(due_at) AS due FROM jobs WHERE due_at IS NOT NULL AND {_NOT_IN_HAND}",  # noqa: S608
            {"in_hand": json.dumps(list(in_hand))},
        )
        return moment_of(row["due"])

    @transaction
    def begin_attempt(
        self, db: sqlite3.Connection, job: Job, token_hash: str, now: datetime
    ) -> int | None:
        """Write down that a create call may cost money from now on; return the attempt's id.

        None means that the job is no longer ours to work on, and must not be created.
        """
        marked = first_row(
            db,
            """
            UPDATE jobs SET state = 'creating', attempts = attempts + 1
            WHERE id = :id AND claim = :claim AND state = 'queued' RETURNING id
            """,
            {"id": job.id, "claim": job.claim},
        )
        if marked is None:
            return None
        [row] = all_rows(
            db,
            """
            INSERT INTO attempts (job_id, kind, token_hash, made_at)
            VALUES (:job, :kind, :token_hash, :now) RETURNING id
            """,
            {"job": job.id, "kind": job.kind, "token_hash": token_hash, "now": ms_of(now)},
        )
        return int(row["id"])

    @insistent
    def created(
        self, db: sqlite3.Connection, job: Job, attempt: int, *, now: datetime, due_at: datetime
    ) -> bool:
        """Bind what a create call made to its attempt, and go on with ``job``, which carries it.

        A callback that came before the answer makes the job due at once. Returns False where the
        id belongs to another attempt or the job has moved on: then the id is a hint to look at.
        """
        assert job.remote_id is not None  # noqa: S101 - the caller has just received it
        row = first_row(
            db, "SELECT job_id, hint, kind FROM attempts WHERE id = :id", {"id": attempt}
        )
        assert row is not None  # noqa: S101 - attempts are never deleted
        announced = row["hint"] == job.remote_id
        free = _is_free(db, job.kind, job.remote_id, attempt)
        if free and self._save(db, job, now if announced else due_at, now):
            _bind(db, attempt, job.remote_id)
            return True
        db.execute(
            "UPDATE attempts SET hint = :hint WHERE id = :id",
            {"id": attempt, "hint": job.remote_id},
        )
        self._wake(db, job.id, now)
        return False

    @insistent
    def not_created(
        self,
        db: sqlite3.Connection,
        job: Job,
        *,
        outcome: str,
        now: datetime,
        due_at: datetime,
    ) -> None:
        """Write down how the job's last create call went, which gave no id, and put ``job`` back.

        An id that a callback named meanwhile makes it due at once.
        """
        values = {"job": job.id, "outcome": outcome}
        db.execute(
            "UPDATE attempts SET outcome = :outcome WHERE job_id = :job AND outcome IS NULL", values
        )
        hinted = first_row(
            db,
            """
            SELECT 1 FROM attempts
            WHERE job_id = :job AND remote_id IS NULL AND hint IS NOT NULL
            """,
            values,
        )
        self._save(db, job, now if hinted else due_at, now)

    @repeatable
    def put_back(
        self, db: sqlite3.Connection, job: Job, now: datetime, due_at: datetime | None
    ) -> bool:
        """Store a claimed job as it now is, and leave it alone until ``due_at``.

        Returns False, and changes nothing, where it was woken or claimed again meanwhile.
        """
        return self._save(db, job, due_at, now)

    @insistent
    def end(self, db: sqlite3.Connection, job: Job, now: datetime) -> bool:
        """End a job as ``job`` says, and owe its closing reply.

        Returns False, and changes nothing, where it has ended before: of many, one wins.
        """
        ended = self._end(db, job, now, "ended_at IS NULL")
        if ended and job.failure is not None:
            db.execute(
                "UPDATE attempts SET outcome = :why WHERE job_id = :job AND outcome IS NULL",
                {"why": job.failure.value, "job": job.id},
            )
        return ended

    @transaction
    def give_up(self, db: sqlite3.Connection, job_id: str, now: datetime) -> bool:
        """End an unconfirmed job as given up; return False where it no longer is one."""
        row = first_row(db, "SELECT * FROM jobs WHERE id = :id", {"id": job_id})
        if row is None:
            return False
        ended = replace(job_of(row), state=State.FAILED, failure=Failure.CANCELLED)
        return self._end(db, ended, now, "state = 'unconfirmed'")

    @transaction
    def lapse(self, db: sqlite3.Connection, job: Job, now: datetime) -> bool:
        """End a claimed job whose question nobody answered.

        Returns False, and changes nothing, where somebody did meanwhile, or a callback came.
        """
        ended = replace(job, state=State.FAILED, failure=Failure.UNANSWERED)
        return self._end(db, ended, now, "state = 'unconfirmed' AND claim = :claim")

    @repeatable
    def hints(self, db: sqlite3.Connection, job: Job) -> list[Attempt]:
        """Return the job's attempts for which something named an id that nobody has checked."""
        rows = all_rows(
            db,
            """
            SELECT * FROM attempts
            WHERE job_id = :job AND remote_id IS NULL AND hint IS NOT NULL ORDER BY id
            """,
            {"job": job.id},
        )
        return [attempt_of(row) for row in rows]

    @transaction
    def drop_hint(self, db: sqlite3.Connection, attempt: Attempt) -> None:
        """Forget a hint that named something else."""
        db.execute(
            "UPDATE attempts SET hint = NULL WHERE id = :id AND hint = :hint",
            {"id": attempt.id, "hint": attempt.candidate_id},
        )

    @transaction
    def adopt(self, db: sqlite3.Connection, job: Job, attempt: Attempt, now: datetime) -> bool:
        """Bind what ``attempt`` was found to have made, and store ``job``, which tells of it.

        Returns False, and changes nothing, where another attempt has the id or the job moved on.
        """
        assert attempt.candidate_id is not None  # noqa: S101 - what was checked is the hint
        if not _is_free(db, job.kind, attempt.candidate_id, attempt.id):
            return False
        if not self._save(db, job, None if job.state.ended else now, now):
            return False
        _bind(db, attempt.id, attempt.candidate_id)
        return True

    @transaction
    def create_again(self, db: sqlite3.Connection, job_id: str, now: datetime) -> bool:
        """Have an unconfirmed job created once more; return False where it no longer is one."""
        moved = first_row(
            db,
            """
            UPDATE jobs SET state = 'queued', asked = 0, asked_at = :now, failures = 0,
                            due_at = :now, claim = claim + 1, claimed = 0
            WHERE id = :id AND state = 'unconfirmed' RETURNING id
            """,
            {"id": job_id, "now": ms_of(now)},
        )
        if moved is not None:
            self._edit_card(db, job_id, now)
            self.jobs_due.set()
        return moved is not None

    @transaction
    def take_hint(self, db: sqlite3.Connection, job_id: str, hint: str, now: datetime) -> bool:
        """Have an id checked that a person gave; return False where nobody waits for one."""
        moved = first_row(
            db,
            """
            UPDATE jobs SET due_at = :now, claim = claim + 1, claimed = 0
            WHERE id = :id AND state = 'unconfirmed' RETURNING id
            """,
            {"id": job_id, "now": ms_of(now)},
        )
        if moved is None:
            return False
        db.execute(
            """
            UPDATE attempts SET hint = :hint, vouched = 1 WHERE id = (
                SELECT max(id) FROM attempts WHERE job_id = :job AND remote_id IS NULL)
            """,
            {"job": job_id, "hint": hint},
        )
        self.jobs_due.set()
        return True

    @repeatable
    def wake(self, db: sqlite3.Connection, job: Job, now: datetime) -> None:
        """Have a running job read soon."""
        if job.state in _READ:
            self._wake(db, job.id, now)

    @repeatable
    def wake_waiting(self, db: sqlite3.Connection, replica_id: str, now: datetime) -> None:
        """Have the videos read that wait for a replica."""
        rows = all_rows(
            db,
            "SELECT id FROM jobs WHERE waits_for = :replica AND ended_at IS NULL",
            {"replica": replica_id},
        )
        for row in rows:
            self._wake(db, row["id"], now)

    @transaction
    def call_back(
        self, db: sqlite3.Connection, token_hash: str, named: Mapping[str, str], now: datetime
    ) -> None:
        """Take a callback for what it is: a reason to look.

        ``named`` has the id that it named, by kind of job. A job whose id is known is woken; an id
        for an attempt that has none is kept to be checked. A job that is being created is left
        alone, or two workers would create two.
        """
        row = first_row(
            db,
            """
            SELECT attempts.id, attempts.kind, attempts.job_id, attempts.remote_id, jobs.state
            FROM attempts JOIN jobs ON jobs.id = attempts.job_id
            WHERE attempts.token_hash = :token_hash
            """,
            {"token_hash": token_hash},
        )
        if row is None:
            return
        if row["remote_id"] is not None:
            if row["state"] in _READ:
                self._wake(db, row["job_id"], now)
            return
        hint = named.get(row["kind"])
        if hint is None:
            return
        db.execute(
            "UPDATE attempts SET hint = :hint, vouched = 0 WHERE id = :id",
            {"id": row["id"], "hint": hint},
        )
        if row["state"] != State.CREATING:
            self._wake(db, row["job_id"], now)

    @transaction
    def erase(
        self, db: sqlite3.Connection, before: datetime, kept: Mapping[str, frozenset[str]]
    ) -> int:
        """Erase what people wrote and the links of jobs that ended ``before``; return how many.

        ``kept`` names, by kind, the parameters that stay. Some may be left for the next call.
        """
        rows = all_rows(
            db,
            """
            SELECT * FROM jobs WHERE erased = 0 AND ended_at IS NOT NULL AND ended_at < :before
            ORDER BY ended_at LIMIT :limit
            """,
            {"before": ms_of(before), "limit": _ERASE},
        )
        for job in map(job_of, rows):
            keep = kept.get(job.kind, frozenset())
            params = {name: value for name, value in job.params.items() if name in keep}
            db.execute(
                """
                UPDATE jobs SET params = :params, snapshot = :snapshot, reason = '', erased = 1
                WHERE id = :id
                """,
                {
                    "id": job.id,
                    "params": json.dumps(params),
                    "snapshot": job.snapshot and packed(bare(job.snapshot)),
                },
            )
        return len(rows)

    # ── Deliveries ────────────────────────────────────────────────────────────────────────────

    @repeatable
    def claim_deliveries(
        self,
        db: sqlite3.Connection,
        now: datetime,
        limit: int,
        in_hand: Collection[int] = (),
    ) -> list[Outgoing]:
        """Lease up to ``limit`` deliveries that are due, those that wait longest first.

        Those ``in_hand`` are left out, as for jobs.
        """
        claimed = all_rows(
            db,
            f"""
            UPDATE deliveries SET claim = claim + 1, claimed = 1, due_at = :lease WHERE id IN (
                SELECT id FROM (SELECT id FROM deliveries WHERE due_at <= :now AND {_NOT_IN_HAND}
                                ORDER BY due_at LIMIT :limit)
                UNION ALL
                SELECT id FROM (SELECT id FROM deliveries WHERE due_at > :parked AND {_NOT_IN_HAND}
                                LIMIT :limit)
                LIMIT :limit
            ) RETURNING *
            """,  # noqa: S608 - a constant
            self._lease(now, limit, in_hand),
        )
        if not claimed:
            return []
        jobs = all_rows(
            db,
            "SELECT * FROM jobs WHERE id IN (SELECT value FROM json_each(:ids))",
            {"ids": json.dumps([row["job_id"] for row in claimed])},
        )
        cards = [row for row in claimed if row["role"] == Role.CARD]
        if replies := [row["job_id"] for row in claimed if row["role"] == Role.REPLY]:
            cards += all_rows(
                db,
                """
                SELECT * FROM deliveries
                WHERE role = 'card' AND job_id IN (SELECT value FROM json_each(:ids))
                """,
                {"ids": json.dumps(replies)},
            )
        # A post calls somebody: it goes before the edits of cards.
        claimed.sort(key=lambda row: bool(row["posting"] == DeliveryState.POSTED))
        its_job = {row["id"]: job_of(row) for row in jobs}
        its_card = {row["job_id"]: delivery_of(row) for row in cards}
        return [
            Outgoing(delivery_of(row), its_job[row["job_id"]], its_card[row["job_id"]])
            for row in claimed
        ]

    @repeatable
    def card(self, db: sqlite3.Connection, job: Job) -> Delivery:
        """Return the card of a job."""
        [row] = all_rows(
            db, "SELECT * FROM deliveries WHERE job_id = :job AND role = 'card'", {"job": job.id}
        )
        return delivery_of(row)

    @repeatable
    def job_of_request(self, db: sqlite3.Connection, key: str) -> Job | None:
        """Return the job that a request made, if it came before."""
        row = first_row(db, "SELECT * FROM jobs WHERE request_key = :key", {"key": key})
        return job_of(row) if row else None

    @repeatable
    def next_delivery_due(
        self, db: sqlite3.Connection, in_hand: Collection[int] = ()
    ) -> datetime | None:
        """Return when the next delivery is due that is not in hand; None while nothing is owed."""
        [row] = all_rows(
            db,
            f"""
            SELECT min(due_at) AS due FROM deliveries WHERE due_at IS NOT NULL AND {_NOT_IN_HAND}
            """,  # noqa: S608 - a constant
            {"in_hand": json.dumps(list(in_hand))},
        )
        return moment_of(row["due"])

    @transaction
    def mark_sending(self, db: sqlite3.Connection, delivery: Delivery, now: datetime) -> bool:
        """Write down where a message may be from now on; return whether to send it."""
        row = first_row(
            db,
            """
            UPDATE deliveries SET posting = 'sending', sent_at = :now,
                                  channel = :channel, thread_ts = :thread_ts
            WHERE id = :id AND claim = :claim AND posting <> 'posted' RETURNING id
            """,
            {
                "id": delivery.id,
                "claim": delivery.claim,
                "now": ms_of(now),
                "channel": delivery.channel,
                "thread_ts": delivery.thread_ts,
            },
        )
        return row is not None

    @insistent
    def settle(
        self,
        db: sqlite3.Connection,
        delivery: Delivery,
        now: datetime,
        due_at: datetime | None,
    ) -> bool:
        """Store a claimed delivery as it now is; leave it alone until ``due_at``, None for good.

        Where something newer is to be said it stays due, and once it is known where a card is, its
        reply is. Returns False, and changes nothing, where it was claimed again meanwhile.
        """
        row = first_row(
            db,
            """
            UPDATE deliveries SET posting = :posting, channel = :channel, thread_ts = :thread_ts,
                ts = :ts, shown = :shown, failures = :failures, refusals = :refusals,
                direct = :direct, plain = :plain,
                claimed = 0, due_at = CASE
                    WHEN :due_at IS NOT NULL THEN :due_at
                    WHEN :posting = 'posted' AND wanted > :shown THEN :now END
            WHERE id = :id AND claim = :claim RETURNING id
            """,
            {
                "id": delivery.id,
                "claim": delivery.claim,
                "posting": delivery.state.value,
                "channel": delivery.channel,
                "thread_ts": delivery.thread_ts,
                "ts": delivery.ts,
                "shown": delivery.shown_version,
                "failures": delivery.failures,
                "refusals": delivery.refusals,
                "direct": int(delivery.direct),
                "plain": int(delivery.text_only),
                "due_at": ms_or_none(due_at),
                "now": ms_of(now),
            },
        )
        if row is not None and delivery.role is Role.CARD and delivery.state.settled:
            db.execute(
                """
                UPDATE deliveries SET due_at = :now
                WHERE job_id = :job AND role = 'reply' AND posting = 'owed' AND due_at IS NULL
                """,
                {"job": delivery.job_id, "now": ms_of(now)},
            )
        self.deliveries_due.set()
        return row is not None

    @repeatable
    def wake_far_future_jobs(self, db: sqlite3.Connection, now: datetime) -> int:
        """Make due what is due later than any wait lasts; return how many that were.

        The clock was set back since. Claim numbers stay: what is claimed may be released.
        """
        rows = all_rows(
            db,
            "UPDATE jobs SET due_at = :now WHERE due_at > :latest RETURNING id",
            {"now": ms_of(now), "latest": self._latest(now)},
        )
        if rows:
            self.jobs_due.set()
        return len(rows)

    @repeatable
    def wake_far_future_deliveries(self, db: sqlite3.Connection, now: datetime) -> int:
        """Make due what is due later than any wait lasts, as for jobs."""
        rows = all_rows(
            db,
            "UPDATE deliveries SET due_at = :now WHERE due_at > :latest RETURNING id",
            {"now": ms_of(now), "latest": self._latest(now)},
        )
        if rows:
            self.deliveries_due.set()
        return len(rows)

    # ── Parts of the above ────────────────────────────────────────────────────────────────────

    def _lease(
        self, now: datetime, limit: int, in_hand: Collection[int] | Collection[str]
    ) -> dict[str, int | str]:
        return {
            "now": ms_of(now),
            "lease": ms_of(now + self._timings.lease),
            # Nothing is put that far ahead: the clock was set back since.
            "parked": self._latest(now),
            "limit": limit,
            "in_hand": json.dumps(list(in_hand)),
        }

    def _latest(self, now: datetime) -> int:
        return ms_of(now + self._timings.max_wait + self._timings.lease)

    def _end(self, db: sqlite3.Connection, job: Job, now: datetime, condition: str) -> bool:
        ended = first_row(
            db,
            f"""
            UPDATE jobs SET state = :state, failure = :failure, reason = :reason,
                            snapshot = :snapshot, failures = 0, ended_at = :now,
                            due_at = CASE WHEN EXISTS (
                                SELECT 1 FROM attempts WHERE job_id = :id
                                AND remote_id IS NULL AND hint IS NOT NULL) THEN :now END,
                            claim = claim + 1, claimed = 0
            WHERE id = :id AND {condition} RETURNING id
            """,  # noqa: S608 - one of three constants
            {**values_of(job), "now": ms_of(now)},
        )
        if ended is None:
            return False
        self.jobs_due.set()
        self._edit_card(db, job.id, now)
        db.execute(
            """
            INSERT INTO deliveries (job_id, role, posting, channel, thread_ts, due_at)
            -- It goes into its card's thread: not before it is known where that is.
            SELECT :job, 'reply', 'owed', :channel, :thread_ts,
                CASE WHEN posting IN ('posted', 'lost') THEN :now END
            FROM deliveries WHERE job_id = :job AND role = 'card'
            """,
            {"job": job.id, "channel": job.channel, "thread_ts": job.thread_ts, "now": ms_of(now)},
        )
        return True

    def _save(
        self, db: sqlite3.Connection, job: Job, due_at: datetime | None, now: datetime
    ) -> bool:
        before = first_row(
            db,
            "SELECT * FROM jobs WHERE id = :id AND claim = :claim",
            {"id": job.id, "claim": job.claim},
        )
        if before is None or (before["ended_at"] is not None and not job.state.ended):
            return False
        db.execute(
            """
            UPDATE jobs SET state = :state, failures = :failures, remote_id = :remote_id,
                snapshot = :snapshot, late = :late, started_at = :started_at,
                read_at = :read_at, asked_at = :asked_at, asked = :asked, strays = :strays,
                waits_for = :waits_for,
                due_at = :due_at, claimed = 0
            WHERE id = :id
            """,
            {**values_of(job), "due_at": ms_or_none(due_at)},
        )
        self.jobs_due.set()
        if job_of(before).visible != job.visible:
            self._edit_card(db, job.id, now)
        return True

    def _edit_card(self, db: sqlite3.Connection, job_id: str, now: datetime) -> None:
        # A card that is on its way, or waits for its time, says the newest when it goes.
        db.execute(
            """
            UPDATE deliveries SET wanted = wanted + 1, due_at = coalesce(due_at, :now)
            WHERE job_id = :job AND role = 'card' AND posting <> 'lost'
            """,
            {"job": job_id, "now": ms_of(now)},
        )
        self.deliveries_due.set()

    def _wake(self, db: sqlite3.Connection, job_id: str, now: datetime) -> None:
        # The new claim number keeps whoever reads it now from putting it back to a later time.
        db.execute(
            """
            UPDATE jobs SET woken_at = :now, claim = claim + 1, claimed = 0, due_at =
                CASE WHEN read_at > :earlier AND read_at <= :now THEN read_at + :spacing
                     ELSE :now END
            WHERE id = :job
            """,
            {
                "job": job_id,
                "now": ms_of(now),
                "earlier": ms_of(now - self._timings.callback_spacing),
                "spacing": span_of(self._timings.callback_spacing),
            },
        )
        self.jobs_due.set()

    @transaction
    def _void_leases(self, db: sqlite3.Connection) -> None:
        # This process owns the file: whoever claimed these rows is gone.
        db.execute("UPDATE jobs SET due_at = 0, claimed = 0 WHERE claimed = 1")
        db.execute("UPDATE deliveries SET due_at = 0, claimed = 0 WHERE claimed = 1")


def _usual(db: sqlite3.Connection, kind: str) -> int | None:
    # In one row: fetching each would cost a form that is sent off as much as all else here.
    [row] = all_rows(
        db,
        """
        SELECT json_group_array(took) AS each FROM (
            SELECT ended_at - started_at AS took FROM jobs
            WHERE kind = :kind AND state = 'succeeded' ORDER BY ended_at DESC LIMIT :limit)
        """,
        {"kind": kind, "limit": _RECENT},
    )
    took = [each for each in json.loads(row["each"]) if each is not None]
    return round(median(took)) if took else None


def _is_free(db: sqlite3.Connection, kind: str, remote_id: str, attempt: int) -> bool:
    """Return whether no attempt but this one has made ``remote_id``."""
    row = first_row(
        db,
        """
        SELECT 1 FROM attempts WHERE kind = :kind AND remote_id = :remote_id AND id <> :attempt
        """,
        {"kind": kind, "remote_id": remote_id, "attempt": attempt},
    )
    return row is None


def _bind(db: sqlite3.Connection, attempt: int, remote_id: str) -> None:
    db.execute(
        """
        UPDATE attempts SET outcome = 'created', remote_id = :remote_id, hint = NULL
        WHERE id = :id
        """,
        {"id": attempt, "remote_id": remote_id},
    )
