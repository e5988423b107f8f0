"""The table of jobs: each change in the life of a job, all or nothing.

Each method is one transaction. It locks the job's row first, and writes a claimed job only under
the number that it was claimed with. What queues a job costs money, and has limits; one that needs
approval waits for that first, and of those who decide, the first one counts.
"""

import json
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, TypeAlias, TypeVar

from bot.model import (
    Approval,
    ApprovalPolicy,
    Attempt,
    Delivery,
    Failure,
    Job,
    Request,
    Role,
    Settlement,
    State,
    notice_day,
)
from bot.store.database import (
    Database,
    Query,
    Row,
    Topic,
    Transaction,
    Value,
    optional_ms,
    optional_span_ms,
    run_until_stored,
    span_ms,
    to_ms,
    wait_ms,
)
from bot.store.deliveries import (
    add_approvals,
    add_below,
    add_card,
    add_direct,
    add_notice_of_day,
    add_question,
    edit_card,
    edit_messages,
    lock_asked,
    settle_question,
)
from bot.store.due import (
    Claimed,
    DueRows,
    DueTable,
    UnreadableRows,
    due_at_of,
    read_each,
    tell,
)
from bot.store.job_rows import (
    BIND,
    CANDIDATES,
    CHARGED,
    CLOSE,
    DELETE_AUDIT,
    DROP_CANDIDATE,
    ERASE_DETAILS,
    NO_OTHER_HAS_IT,
    SET_CANDIDATE,
    SET_CANDIDATE_OF_CALLBACK,
    SET_CANDIDATE_OF_PERSON,
    AddedCandidate,
    AuditAction,
    add_attempt,
    approval_columns,
    attempt_from,
    can_adopt,
    changing_columns,
    get_attempt,
    job_from,
    lock_alone,
    lock_job,
    lock_only,
    record,
    snapshot_text,
)
from bot.store.memory import TypicalDurations, script_band
from bot.store.replicas import FACE, FACE_COLUMNS, next_revision, own, remove
from bot.store.usage import (
    OPEN_COLUMN,
    USED,
    USED_COLUMNS,
    Bound,
    LimitReached,
    Limits,
    LimitsInForce,
    LimitsTable,
    NotAllowed,
    count,
    day_of,
    give_back,
    not_allowed,
    periods,
    reached_limit,
)
from bot.timings import Timings

_BY_ID: Final = Query("SELECT * FROM jobs WHERE id = :id")
_BY_REQUEST: Final = Query("SELECT * FROM jobs WHERE request_key = :key")
_OPEN_QUESTIONS: Final = Query(
    """
    SELECT * FROM jobs
    WHERE due_at IS NOT NULL AND state = 'unconfirmed' AND asked > 0 AND user_id <> :user
    ORDER BY created_at LIMIT :limit
    """
)
_BY_REMOTE_ID: Final = Query(
    """
    SELECT jobs.* FROM attempts JOIN jobs ON jobs.id = attempts.job_id
    WHERE attempts.kind = :kind AND lower(attempts.remote_id) = lower(:remote_id)
        AND attempts.remote_id IS NOT NULL
    """
)
_OF_USER: Final = Query(
    """
    SELECT * FROM jobs WHERE user_id = :user AND kind = :kind
    ORDER BY created_at DESC LIMIT :limit
    """
)
_OF_HOME: Final = Query(
    """
    SELECT * FROM jobs WHERE user_id = :user
    ORDER BY CASE WHEN ended_at IS NULL THEN 0 ELSE 1 END, created_at DESC
    LIMIT :limit OFFSET :skip
    """
)
FINISHED_VIDEOS: Final = Query(
    """
    SELECT * FROM jobs WHERE kind = 'video' AND state = 'succeeded'
    ORDER BY ended_at DESC LIMIT 20
    """
)
_NEWEST_MADE: Final = Query(
    """
    SELECT kind, remote_id FROM attempts WHERE remote_id IS NOT NULL ORDER BY id DESC LIMIT 1
    """
)
_COUNTS: Final = Query(
    """
    SELECT (SELECT count(*) FROM (
            SELECT 1 FROM jobs WHERE ended_at IS NULL AND held_by = 'service_down' LIMIT 1000
        ) AS down) AS held,
        (SELECT count(*) FROM (
            SELECT 1 FROM deliveries WHERE due_at IS NOT NULL AND state <> 'posted' LIMIT 1000
        ) AS owed) AS unsent,
        (SELECT count(*) FROM jobs
            WHERE ended_at IS NULL AND state = 'waiting_for_approval') AS to_approve
    """
)
_IN_PUBLIC: Final = Query(
    """
    SELECT jobs.* FROM (
        SELECT job_id FROM deliveries WHERE public = 1 ORDER BY id DESC LIMIT :limit
    ) AS posted JOIN jobs ON jobs.id = posted.job_id
    WHERE jobs.kind = :kind
    """
)
_MAX_SEARCHED: Final = 1000
_RETRY: Final = Query("SELECT * FROM jobs WHERE retry_of = :id")
_RETRIED: Final = Query("SELECT retry_of FROM jobs WHERE retry_of IN (EACH :ids)")
_HASTEN_STEPS: Final = 10
# What waits for the end of an outage stays due. It is looked at once an hour: its time may be over.
_WAITS: Final = "held_by = 'service_down' AND kind IN (EACH :down)"
DUE: Final = DueTable(
    "jobs",
    Topic.JOBS,
    # Those to be created in the order of their turns, so that nobody waits behind all the jobs of
    # somebody else; then the others.
    due=f"""creates AS (
                SELECT id FROM jobs
                WHERE due_at <= :now AND state IN ('queued', 'creating') AND id NOT IN (EACH :held)
                    AND (held_by IS NULL OR NOT ({_WAITS} AND due_at > :stale))
                ORDER BY turn_at, due_at LIMIT :creates FOR UPDATE SKIP LOCKED
            ), others AS (
                SELECT id FROM jobs
                WHERE due_at <= :now AND state NOT IN ('queued', 'creating')
                    AND id NOT IN (EACH :held)
                ORDER BY due_at LIMIT (
                    SELECT CASE WHEN :limit - count(*) < :others THEN :limit - count(*)
                           ELSE :others END FROM creates
                ) FOR UPDATE SKIP LOCKED
            ), due AS (
                -- They are no more than that, which PostgreSQL has to know to use the index.
                SELECT id FROM creates UNION ALL SELECT id FROM others LIMIT :limit
            )""",  # noqa: S608 - the words are ours
    # ``read_at`` is set now, not when the answer is there: a callback that comes meanwhile waits
    # too. A row that is claimed long after it was due was not watched meanwhile, or the clock was
    # set ahead: that time does not count for the job's age.
    on_claim=""", wake_at = NULL,
                started_at = CASE WHEN due_at > 0 AND due_at < :late THEN started_at + :now - due_at
                             ELSE started_at END,
                read_at = CASE WHEN state IN ('running', 'overdue') OR EXISTS (
                    SELECT 1 FROM attempts
                    WHERE job_id = jobs.id AND remote_id IS NULL AND candidate_id IS NOT NULL
                ) THEN :now ELSE read_at END""",
    on_wake=", started_at = started_at - (due_at - wait_ms - :now)",
)
# What is due and was not claimed, of sorts of which more may begin; else the first that is due
# later. So nobody looks at all that has to wait.
_NEXT_DUE: Final = Query(
    f"""
    SELECT min(due_at) AS due_at FROM (
        SELECT * FROM (
            SELECT due_at FROM jobs
            WHERE due_at <= :now AND state IN ('queued', 'creating') AND id NOT IN (EACH :held)
                AND (held_by IS NULL OR NOT ({_WAITS}))
            ORDER BY due_at LIMIT :creates
        ) AS creates
        UNION ALL SELECT * FROM (
            SELECT due_at FROM jobs
            WHERE due_at <= :now AND state NOT IN ('queued', 'creating')
                AND id NOT IN (EACH :held)
            ORDER BY due_at LIMIT :others
        ) AS others
        UNION ALL SELECT * FROM (
            SELECT due_at FROM jobs WHERE due_at > :now AND id NOT IN (EACH :held)
            ORDER BY due_at LIMIT 1
        ) AS later
    ) AS next
    """  # noqa: S608 - likewise
)
# For whichever copy of the bot claims them, they no longer wait for what held them back.
_HASTEN: Final = Query(
    """
    WITH delayed AS (
        SELECT id FROM jobs
        WHERE due_at > :latest AND claimed = 0 AND ended_at IS NULL
            AND (failures > 0 OR held_by IN (EACH :held_by))
        ORDER BY id LIMIT :limit FOR UPDATE SKIP LOCKED
    ), spread AS (
        SELECT id, (row_number() OVER (ORDER BY id) - 1) % :steps * :interval AS own_wait
        FROM delayed
    )
    UPDATE jobs SET due_at = :now + own_wait, held_by = NULL, held_until = NULL
    FROM spread WHERE spread.id = jobs.id RETURNING jobs.id
    """
)
_T = TypeVar("_T")
# Without letters and digits that look alike, so that an id can be read out and typed.
_ALPHABET: Final = "23456789abcdefghjkmnpqrstvwxyz"
_ID_LENGTH: Final = 10
_TURN: Final = timedelta(minutes=10)
"""A person's waiting jobs take their turns as if one were submitted in this time."""
_NEXT_TURN: Final = """(
        SELECT CASE WHEN max(turn_at) + :turn > :now THEN max(turn_at) + :turn ELSE :now END
        FROM jobs AS waiting WHERE ended_at IS NULL AND state = 'queued' AND user_id = {user}
    )"""
# The newest job with a fingerprint that has not failed and that a person may see, if it can be a
# finished one.
_SAME: Final = """
    SELECT id FROM jobs
    WHERE fingerprint = :fingerprint AND created_at > :since AND state <> 'failed'
        AND (user_id = :user OR channel = :seen_in OR CAST(:sees_all AS BIGINT) = 1)
    ORDER BY CASE WHEN state = 'succeeded' THEN 0 ELSE 1 END, created_at DESC LIMIT 1
"""
# All that a submission asks. An overdue job may stay open for weeks: it does not count as open. The
# states are in one list: of two with an OR between them, SQLite takes the index of all jobs of the
# person.
_FORM: Final = Query(
    f"""
    SELECT (SELECT id FROM jobs WHERE request_key = :key) AS submitted,
        (SELECT id FROM jobs WHERE retry_of = :retry_of) AS retry,
        ({_SAME}) AS same,
        {OPEN_COLUMN},
        {FACE_COLUMNS},
        {USED_COLUMNS}
    """  # noqa: S608 - our own text
)
_ADD: Final = Query(
    f"""
    INSERT INTO jobs (id, request_key, kind, params, user_id, channel, thread_ts,
                      created_at, state, due_at, turn_at, typical_ms, slow_ms, script_band,
                      retry_of, fingerprint, wait_ms, approval_asked, approval_until,
                      counted_on, owner, asks_owner, tell_channel)
    VALUES (:id, :key, :kind, :params, :user, :channel, :thread_ts,
            :now, :state, :due_at, {_NEXT_TURN.format(user=":user")},
            :typical_ms, :slow_ms, :script_band, :retry_of, :fingerprint, :wait_ms,
            :approval_asked, :approval_until, :counted_on, :owner, :asks_owner, :tell_channel)
    """  # noqa: S608 - likewise
)
_CREATE_AGAIN: Final = Query(
    """
    UPDATE jobs SET state = 'queued', asked = 0, asked_at = :now, failures = 0,
                    due_at = :now, claim = claim + 1, claimed = 0, counted_on = :day
    WHERE id = :id
    """
)
_WAIT_AGAIN: Final = Query(
    """
    UPDATE jobs SET state = 'waiting_for_approval', due_at = :due_at, wait_ms = :wait_ms,
        approval_asked = :approval_asked, approval_until = :approval_until,
        decided_by = NULL, decided_at = NULL,
        owner = :owner, asks_owner = :asks_owner
    WHERE id = :id
    """
)
# An older version of the bot, which does not know the state, may have set the row aside.
_APPROVE: Final = Query(
    f"""
    UPDATE jobs SET state = 'queued', decided_by = :user, decided_at = :now,
        turn_at = {_NEXT_TURN.format(user="jobs.user_id")},
        due_at = :now, wait_ms = 0, claim = claim + 1, claimed = 0, set_aside = 0
    WHERE id = :id
    """  # noqa: S608 - likewise
)
_DECIDE: Final = Query("UPDATE jobs SET decided_by = :user, decided_at = :now WHERE id = :id")
_ASKED: Final = Query("UPDATE jobs SET approval_asked = :asked WHERE id = :id")
_GIVE_UP: Final = Query(
    """
    UPDATE deliveries SET state = 'undeliverable', due_at = NULL, claimed = 0
    WHERE id = :id AND claim = :claim RETURNING id
    """
)
_STILL_ASKED: Final = Query(
    """
    SELECT addressee FROM deliveries
    WHERE job_id = :job_id AND role = 'approval' AND direct = 1 AND state <> 'undeliverable'
        AND settled_as IS NULL
    ORDER BY number
    """
)
_WAITING: Final = Query(
    """
    SELECT * FROM jobs
    WHERE ended_at IS NULL AND state = 'waiting_for_approval' AND CASE asks_owner
        WHEN 0 THEN user_id <> :user AND :approves = 1
        ELSE owner = :user OR approval_asked LIKE :asked END
    ORDER BY created_at LIMIT :limit
    """
)
# What others had made with a person's replicas, or trained of them.
_OF_OWNER: Final = Query(
    """
    SELECT * FROM jobs WHERE owner = :owner ORDER BY created_at DESC LIMIT :limit
    """
)
_OF_DAY: Final = Query(
    """
    SELECT * FROM jobs
    WHERE owner = :owner AND state = 'succeeded' AND ended_at >= :since AND ended_at < :until
    ORDER BY ended_at LIMIT 1000
    """
)
_SETTLEMENTS: Final = {
    Failure.CANCELLED: (Settlement.CANCELLED, AuditAction.CANCELLED),
    Failure.WITHDRAWN: (Settlement.CANCELLED, AuditAction.CANCELLED),
    Failure.DECLINED: (Settlement.DECLINED, AuditAction.DECLINED),
    Failure.NOT_APPROVED: (Settlement.UNANSWERED, AuditAction.EXPIRED),
    Failure.STOPPED: (Settlement.CANCELLED, AuditAction.STOPPED),
    Failure.STOPPED_BY_ADMIN: (Settlement.CANCELLED, AuditAction.STOPPED),
    Failure.STOPPED_BY_OWNER: (Settlement.CANCELLED, AuditAction.CANCELLED),
}
"""How what waits for a person is settled if its job fails so, and what is recorded."""
_MAX_JOBS: Final = 200
_MAX_AUDIT_ROWS: Final = 500
"""Jobs, and rows of the audit, that are erased or deleted in one transaction: others wait."""
_TO_ERASE: Final = Query(
    """
    SELECT * FROM jobs WHERE erased = 0 AND ended_at IS NOT NULL AND ended_at < :before
    ORDER BY ended_at LIMIT :limit FOR UPDATE SKIP LOCKED
    """
)
# The new claim number keeps a worker that has the job from writing its snapshot back.
_ERASE: Final = Query(
    """
    UPDATE jobs SET params = :params, snapshot = :snapshot, reason = '', erased = 1,
        fingerprint = NULL, claim = claim + 1
    WHERE id = CAST(:id AS TEXT)
    """
)
# A row with a time is worked on: an id to look up, a message that is owed.
_TO_DELETE: Final = Query(
    """
    SELECT id FROM jobs
    WHERE erased = 1 AND due_at IS NULL AND ended_at < :before AND NOT EXISTS (
        SELECT 1 FROM deliveries WHERE job_id = jobs.id AND due_at IS NOT NULL
    )
    ORDER BY ended_at LIMIT :limit FOR UPDATE SKIP LOCKED
    """
)
_DELETE: Final = (
    Query("DELETE FROM deliveries WHERE job_id IN (EACH :ids)"),
    Query("DELETE FROM attempts WHERE job_id IN (EACH :ids)"),
    Query("DELETE FROM jobs WHERE id IN (EACH :ids)"),
)
# With the erasing, so that a process that ends after it leaves the compaction to the next one.
_MARK_TO_COMPACT: Final = Query("INSERT INTO compactions (id) VALUES (1) ON CONFLICT DO NOTHING")
_IS_TO_COMPACT: Final = Query("SELECT id FROM compactions")
_MARK_COMPACTED: Final = Query("DELETE FROM compactions")
# What came before may have taken long: the lease begins anew, and outlasts the call.
_BEGIN_CREATING: Final = Query(
    """
    UPDATE jobs SET state = 'creating', attempts = attempts + 1,
        due_at = :lease_end, wait_ms = :lease_end - :now
    WHERE id = :id AND claim = :claim AND state = 'queued' AND wake_at IS NULL AND NOT EXISTS (
        SELECT 1 FROM replicas WHERE lower(id) = lower(:face) AND removed_at IS NOT NULL
    ) RETURNING id
    """
)
_CHECK_NOW: Final = Query(
    """
    UPDATE jobs SET due_at = :now, claim = claim + 1, claimed = 0
    WHERE id = :id AND state = 'unconfirmed' AND attempts = :attempts RETURNING id
    """
)
_POSTPONE_TURNS: Final = Query(
    """
    WITH waiting AS (
        SELECT id FROM jobs
        WHERE ended_at IS NULL AND state = 'queued' AND user_id = :user AND turn_at < :turn_at
        FOR UPDATE SKIP LOCKED
    )
    UPDATE jobs SET turn_at = :turn_at WHERE id IN (SELECT id FROM waiting)
    """
)
_LOCK_WAITING_FOR: Final = Query(
    """
    SELECT id FROM jobs WHERE waits_for = :remote_id AND ended_at IS NULL ORDER BY id FOR UPDATE
    """
)
_LOCK_OF_TOKEN: Final = Query(
    """
    SELECT jobs.id, jobs.kind, jobs.state, attempts.id AS attempt_id
    FROM attempts JOIN jobs ON jobs.id = attempts.job_id
    WHERE attempts.token_hash = :token_hash FOR UPDATE OF jobs
    """
)
# The states in which the service is polled.
POLLED: Final = frozenset({State.RUNNING, State.OVERDUE})
# In which state a person can do what ends a job.
_CLOSED_FROM: Final = {
    Failure.CANCELLED: {State.UNCONFIRMED},
    Failure.WITHDRAWN: {State.WAITING_FOR_APPROVAL},
    Failure.STOPPED: POLLED,
    Failure.STOPPED_BY_ADMIN: POLLED,
}

_SAVE_TEXT: Final = """
    UPDATE jobs SET state = :state, failures = :failures, remote_id = :remote_id,
        snapshot = :snapshot, late = :late, slow = :slow,
        started_at = :started_at, read_at = :read_at, asked_at = :asked_at, asked = :asked,
        orphaned_ids = :orphaned_ids, held_by = :held_by, held_until = :held_until,
        waits_for = :waits_for, missing_since = :missing_since,
        claimed = 0, wake_at = NULL, wait_ms = :wait_ms,
        due_at = CASE WHEN wake_at < coalesce({due_at}, wake_at + 1) THEN wake_at ELSE {due_at} END
    WHERE id = :id AND claim = :claim AND {may_be} RETURNING due_at
    """
_SAVE: Final = Query(_SAVE_TEXT.format(due_at=":due_at", may_be="(ended_at IS NULL OR :ended = 1)"))
# A callback that named the same id before may have come too early to be a reason to read.
_SAVE_CREATED: Final = Query(
    _SAVE_TEXT.format(
        due_at="""(SELECT CASE WHEN lower(candidate_id) = lower(:remote_id)
            THEN CAST(:now AS BIGINT) ELSE CAST(:due_at AS BIGINT) END
            FROM attempts WHERE id = :attempt_id)""",
        may_be=f"ended_at IS NULL AND {NO_OTHER_HAS_IT}",
    )
)
# A candidate that was not checked yet is checked after the end. Under an old claim number, a job
# is ended only by a read of the remote id that it still has. In these states it has made no create
# call, or one that certainly made nothing: what is counted for that is given back.
_END: Final = Query(
    """
    UPDATE jobs SET state = :state, failure = :failure, reason = :reason, snapshot = :snapshot,
        failures = 0, ended_at = :now, claim = claim + 1, claimed = 0,
        counted_on = CASE WHEN state IN ('waiting_for_approval', 'queued', 'creating')
                     THEN counted_on END,
        due_at = CASE WHEN EXISTS (
            SELECT 1 FROM attempts
            WHERE job_id = :id AND remote_id IS NULL AND candidate_id IS NOT NULL
        ) THEN CAST(:now AS BIGINT) END
    WHERE id = :id AND ended_at IS NULL AND (claim = :claim OR remote_id = :remote_id)
    RETURNING due_at, counted_on
    """
)
# While a worker has the job, it may have been read too early to show what it was woken for: it is
# due again as soon as the worker has stored what was read, however often it is woken meanwhile.
_WAKE: Final = Query(
    """
    UPDATE jobs SET woken_at = :now,
        wake_at = CASE WHEN claimed = 1 THEN
            CASE WHEN read_at > :spaced AND read_at <= :now THEN read_at + :spacing ELSE :now END
        END,
        due_at = CASE WHEN claimed = 1 THEN due_at
                 WHEN read_at > :spaced AND read_at <= :now THEN read_at + :spacing
                 ELSE :now END,
        claim = CASE WHEN claimed = 1 THEN claim ELSE claim + 1 END
    WHERE id IN (EACH :ids) RETURNING CASE WHEN claimed = 0 THEN due_at END AS due_at
    """
)
_RELEASE_WOKEN: Final = Query(
    """
    UPDATE jobs SET claim = claim + 1, claimed = 0, due_at = wake_at, wake_at = NULL
    WHERE id = :id AND claim = :claim AND wake_at IS NOT NULL AND ended_at IS NULL
    RETURNING due_at
    """
)


class AlreadyRequested(Exception):
    """The same was asked for a short while ago, and nothing was stored.

    Attributes:
        job: what was asked for.
    """

    def __init__(self, job: Job) -> None:
        super().__init__("the same was asked for a short while ago")
        self.job = job


class NobodyToApprove(Exception):
    """A request needs approval, nobody but its user could give it, and nothing was stored."""


_NotStored: TypeAlias = NotAllowed | AlreadyRequested | LimitReached | NobodyToApprove


class Jobs(DueRows):
    """The jobs, from their submission to their deletion.

    Attributes:
        approvals: which jobs need approval, and whose.
        durations: how long recent jobs took.
    """

    table = DUE

    def __init__(
        self,
        database: Database,
        timings: Timings,
        limits: LimitsTable,
        unreadable: UnreadableRows,
        approvals: ApprovalPolicy,
    ) -> None:
        super().__init__(database, timings, unreadable)
        self._limits = limits
        self._trainings = limits.settings.trainings
        self.approvals = approvals
        self.durations = TypicalDurations()

    # ── Reading ───────────────────────────────────────────────────────────────────────────────

    async def fetch(self, job_id: str) -> Job | None:
        """Return the job with this id."""
        return await self._find(_BY_ID, id=job_id)

    async def fetch_by_remote_id(self, kind: str, remote_id: str) -> Job | None:
        """Return the job whose create call made ``remote_id``, in whatever case, if one did."""
        return await self._find(_BY_REMOTE_ID, kind=kind, remote_id=remote_id)

    async def fetch_by_request(self, key: str) -> Job | None:
        """Return the job that the request with this key made, if it came before."""
        return await self._find(_BY_REQUEST, key=key)

    async def list_for_user(self, user: str, kind: str, limit: int) -> list[Job]:
        """Return a person's jobs of one kind, newest first."""
        return await self._list(_OF_USER, user=user, kind=kind, limit=limit)

    async def list_running_first(self, user: str, skip: int, limit: int) -> list[Job]:
        """Return a person's jobs of all kinds: first those that run, then the others, newest first.

        ``skip`` is how many of them to leave out first.
        """
        return await self._list(_OF_HOME, user=user, skip=skip, limit=limit)

    async def list_finished_videos(self) -> list[Job]:
        """Return the last videos that were made, of all people together."""
        return await self._list(FINISHED_VIDEOS)

    async def list_questions_to_others(self, user: str, limit: int) -> list[Job]:
        """Return the jobs of which only a person can say what happened, but not this person's."""
        return await self._list(_OPEN_QUESTIONS, user=user, limit=limit)

    async def fetch_retry(self, job: Job) -> Job | None:
        """Return the job that retries a failed one, if there is one."""
        return await self._find(_RETRY, id=job.id)

    async def list_retried(self, job_ids: Sequence[str]) -> set[str]:
        """Return those of the jobs with these ids that were retried."""
        rows = await self._database.run(lambda tx: tx.all(_RETRIED, ids=job_ids), durable=False)
        return {row["retry_of"] for row in rows}

    async def find_made(
        self, user: str, kind: str, matches: Callable[[Job], bool], *, in_public: bool
    ) -> list[Job]:
        """Return the jobs of one kind that match and have succeeded, newest first.

        They are among a person's newest thousand and, with ``in_public``, among the newest thousand
        whose replies were posted in channels that were public then.
        """
        jobs: dict[str, Job] = {}
        for query in (_OF_USER, _IN_PUBLIC) if in_public else (_OF_USER,):
            found = await self._list(query, user=user, kind=kind, limit=_MAX_SEARCHED)
            jobs |= {job.id: job for job in found if job.state is State.SUCCEEDED and matches(job)}
        return sorted(jobs.values(), key=lambda job: job.created_at, reverse=True)

    async def fetch_newest_made(self) -> tuple[str, str] | None:
        """Return the kind and the remote id of what was created last, as far as is known."""
        row = await self._database.run(lambda tx: tx.one(_NEWEST_MADE), durable=False)
        return None if row is None else (row["kind"], row["remote_id"])

    async def count_waiting(self) -> Row:
        """Return how many jobs and messages wait.

        At most 1,000 jobs for the end of an outage of the service (``held``), at most 1,000
        messages to be posted (``unsent``), and jobs for approval (``to_approve``).
        """
        [row] = await self._database.run(lambda tx: tx.all(_COUNTS), durable=False)
        return row

    async def candidates(self, job: Job) -> list[Attempt]:
        """Return the job's attempts that have a candidate id."""
        return await self._database.run(
            lambda tx: self._unreadable.read_each(attempt_from, tx.all(CANDIDATES, job_id=job.id)),
            durable=False,
        )

    async def _find(self, query: Query, **values: Value) -> Job | None:
        row = await self._database.run(lambda tx: tx.one(query, **values), durable=False)
        return job_from(row) if row else None

    async def _list(self, query: Query, **values: Value) -> list[Job]:
        return await self._database.run(
            lambda tx: self._unreadable.read_each(job_from, tx.all(query, **values)), durable=False
        )

    # ── What the worker's loop uses ───────────────────────────────────────────────────────────

    async def claim(
        self,
        now: datetime,
        limit: int,
        held: Collection[str] = (),
        *,
        creates: int | None = None,
        others: int | None = None,
        down: Collection[str] = (),
    ) -> Claimed[Job]:
        """Lease jobs that are due: first those to be created, in turn, then the longest waiting.

        Args:
            now: the time.
            limit: the highest number of jobs.
            held: those that this process still works on: a clock jump may end leases early.
            creates: the highest number of jobs to be created, if that is lower.
            others: the highest number of others, if that is lower.
            down: the kinds that the service creates none of now: what waits for it is left out.

        Returns:
            The jobs. Of a sort of which none may be claimed, none counts as due.
        """

        def work(tx: Transaction) -> Claimed[Job]:
            rows = DUE.claim(
                tx,
                now,
                self._timings,
                down=list(down),
                stale=to_ms(now - self._timings.max_wait),
                late=to_ms(now - self._timings.lease),
                limit=limit,
                creates=limit if creates is None else min(creates, limit),
                others=limit if others is None else others,
                held=list(held),
            )
            found = self._unreadable.read_each(job_from, sorted(rows, key=_turn), claimed=tx)
            next_due = due_at_of(
                tx.one(
                    _NEXT_DUE,
                    now=to_ms(now),
                    held=[*held, *(job.id for job in found)],
                    down=list(down),
                    creates=int(creates != 0),
                    others=int(others != 0),
                )
            )
            if limit and not rows and next_due is not None and next_due <= now:
                # Other transactions have locked what is due.
                next_due = now + self._timings.claim_interval
            return Claimed([replace(job, visible_before=job.visible) for job in found], next_due)

        return await self._database.run(work, durable=False)

    async def release(self, job: Job, now: datetime, due_at: datetime | None) -> bool:
        """Store a claimed job as it now is, and leave it alone until ``due_at``.

        If it was woken since it was claimed, it is due for that soon.

        Returns:
            Whether it was stored: False also if it was claimed again meanwhile, or has ended.
        """
        edits = job.visible != job.visible_before
        return await self._database.run(
            lambda tx: save(tx, job, due_at, to_ms(now), edits=edits), durable=False
        )

    async def hasten(self, now: datetime, failures: Collection[Failure]) -> int:
        """Make jobs due whose call failed, or was held back by ``failures``: that is over.

        They are due one after the other within ``hasten_within``, so that the calls do not all come
        at once. Returns the number of jobs; more may be left for the next call.
        """
        return await self._make_due(
            _HASTEN,
            now=to_ms(now),
            latest=to_ms(now + self._timings.hasten_within),
            held_by=[each.value for each in failures],
            steps=_HASTEN_STEPS,
            interval=span_ms(self._timings.hasten_within / _HASTEN_STEPS),
        )

    # ── Submitting ────────────────────────────────────────────────────────────────────────────

    async def submit(
        self,
        request: Request,
        now: datetime,
        *,
        seen_in: str | None = None,
        sees_all: bool = False,
        groups: frozenset[str] = frozenset(),
    ) -> Job:
        """Store a job and owe its card, or find the job that this request made before.

        With ``seen_in``, it is not stored if its user may see that the same was asked for recently:
        beside their own requests, what was posted in that channel, or with ``sees_all`` any.
        ``groups`` are the user groups that they are in, of those that limits name.

        A job is retried once: a second retry finds the first one. The messages of the job that is
        retried change with it.

        Raises:
            NotAllowed: it is not within the limits.
            AlreadyRequested: the same was asked for recently.
            LimitReached: its user has to wait.
            NobodyToApprove: it needs approval, and nobody else may give it.
        """
        new_id = "".join(_ALPHABET[n % len(_ALPHABET)] for n in secrets.token_bytes(_ID_LENGTH))

        known = self._limits.known
        script = request.params.get("script")
        usual = self.durations.get(request.kind, script)
        values: dict[str, Value] = {
            "key": request.key,
            "retry_of": request.retry_of,
            "face": request.params.get("replica_id", ""),
            "fingerprint": request.fingerprint if seen_in is not None else None,
            "since": to_ms(now - self._timings.same_within),
            "seen_in": seen_in,
            "sees_all": int(sees_all),
            **periods(request.user, now),
        }

        def work(tx: Transaction) -> tuple[Job | _NotStored, LimitsInForce, Row | None]:
            lock_alone(tx, "limits")
            retried = lock_job(tx, request.retry_of) if request.retry_of is not None else None
            [form] = tx.all(_FORM, **values)
            is_known = form["revision"] == known.revision
            limits = known if is_known else self._limits.read(tx)
            if found := _found_or_outside(tx, form, request, limits.limits, groups):
                return found, limits, None
            job = self._as_to_be_approved(
                Job(
                    id=new_id,
                    kind=request.kind,
                    params=request.params,
                    user=request.user,
                    channel=request.channel,
                    thread_ts=request.thread_ts,
                    created_at=now,
                    due_at=now,
                    typical_duration=usual.typical if usual else None,
                    slow_after=usual.slow if usual else None,
                    retry_of=retried["id"] if retried is not None else None,
                    owner=request.owner,
                    tell_channel=request.tell_channel,
                ),
                form,
                request.user,
                now,
            )
            if isinstance(job, NobodyToApprove):
                return job, limits, None
            # Nothing is refused after this.
            if reached := reached_limit(limits.limits, form, now, open_jobs=form["open_jobs"]):
                return reached, limits, None
            count(tx, request, self._trainings, day_of(now), to_ms(now))
            tx.all(
                _ADD,
                id=job.id,
                key=request.key,
                kind=job.kind,
                params=json.dumps(dict(job.params)),
                user=job.user,
                channel=job.channel,
                thread_ts=job.thread_ts,
                now=to_ms(now),
                state=job.state.value,
                turn=span_ms(_TURN),
                typical_ms=optional_span_ms(job.typical_duration),
                slow_ms=optional_span_ms(job.slow_after),
                script_band=script_band(script),
                retry_of=job.retry_of,
                fingerprint=request.fingerprint,
                counted_on=day_of(now),
                tell_channel=int(job.tell_channel),
                **approval_columns(job, now),
            )
            if job.approval is not None:
                self._ask(tx, job, job.approval.asked, now)
            if job.owner is not None and job.kind in self._trainings:
                add_direct(tx, job, Role.NOTICE, job.owner, to_ms(now))
            add_card(tx, job, self._timings.card_delay)
            if retried is not None:
                edit_messages(tx, retried["id"], to_ms(now))
                tx.notify(Topic.HOMES, retried["user_id"])
            tx.notify(Topic.JOBS)
            return job, limits, form

        result, limits, used_before = await self._database.run(work, serial=True)
        self._limits.learn(limits)
        if used_before is not None:
            self._limits.learn_count(request.user, now, used_before)
        return _stored(result)

    async def create_again(
        self,
        job_id: str,
        attempts: int,
        user: str,
        now: datetime,
        groups: frozenset[str] = frozenset(),
    ) -> bool:
        """Queue an unconfirmed job once more, as ``user`` chose.

        One approval is for one create call that may cost money: if it needs approval, and they
        cannot give it, it waits for that once more. ``attempts`` create calls were begun for it
        when they chose. ``groups`` are the user groups that they are in, of those that limits
        name.

        Returns:
            Whether it was queued, or waits: False if it is no longer unconfirmed, or another
            attempt was begun since. So a button counts once, however often it is pressed.

        Raises:
            NotAllowed: they may not ask for its kind. The job stays as it is.
            LimitReached: too many create calls were made in a day or month. Likewise.
            NobodyToApprove: it needs approval, and nobody else may give it. Likewise.
        """

        def work(tx: Transaction) -> bool | _NotStored:
            lock_alone(tx, "limits")
            row = lock_asked(tx, job_id)
            if row is None or (row["state"], row["attempts"]) != (State.UNCONFIRMED, attempts):
                return False
            limits = self._limits.read(tx).limits
            if not limits.allows_person(row["kind"], user, groups):
                return NotAllowed(Bound.PERSON, limits)
            job = job_from(row)
            [used] = tx.all(FACE, face=job.params.get("replica_id", ""))
            if used["face_removed"] is not None:
                return NotAllowed(Bound.REPLICA, limits)
            again = self._as_to_be_approved(job, used, user, now)
            if isinstance(again, NobodyToApprove):
                return again
            [counted] = tx.all(USED, **periods(row["user_id"], now))
            if reached := reached_limit(limits, counted, now):
                return reached
            count(tx, job, self._trainings, day_of(now), to_ms(now))
            tx.all(_CREATE_AGAIN, id=job_id, now=to_ms(now), day=day_of(now))
            edit_card(tx, job_id, row["user_id"], to_ms(now))
            settle_question(tx, job_id, Settlement.CREATED_AGAIN, user, to_ms(now))
            if again.state is State.WAITING_FOR_APPROVAL and again.approval is not None:
                tx.all(_WAIT_AGAIN, id=job_id, **approval_columns(again, now))
                self._ask(tx, again, again.approval.asked, now)
            record(tx, AuditAction.CREATED_AGAIN, user=user, at=to_ms(now), job_id=job_id)
            tx.notify(Topic.JOBS)
            return True

        return _stored(await self._database.run(work, serial=True))

    # ── Approval ──────────────────────────────────────────────────────────────────────────────

    async def approve(self, job_id: str, attempts: int, user: str, now: datetime) -> bool:
        """Queue a job that waits for approval, as ``user`` chose.

        One that waited for its owner's waits for the approvers' then, if it needs theirs and the
        owner cannot give it. ``attempts`` create calls were begun for it when they chose.

        Returns:
            Whether that was done: False if it no longer waits, or for the approval of another
            attempt; if its time is over, or if this person may not decide about it.
        """

        def work(tx: Transaction) -> bool:
            job = self._to_decide(lock_job(tx, job_id), attempts, user, now)
            if job is None:
                return False
            self._settle(tx, job, Settlement.APPROVED, user, now, action=AuditAction.APPROVED)
            if job.asks_owner and self._needs_approvers(job, user):
                asked = self.approvals.asked(job.user)
                waiting = self._as_waiting(replace(job, asks_owner=False), asked, now)
                tx.all(_WAIT_AGAIN, id=job_id, **approval_columns(waiting, now))
                self._ask(tx, waiting, asked, now)
            else:
                tx.all(_APPROVE, id=job_id, user=user, now=to_ms(now), turn=span_ms(_TURN))
            edit_card(tx, job_id, job.user, to_ms(now))
            tx.notify(Topic.JOBS)
            return True

        return await self._database.run(work)

    async def decline(
        self, job_id: str, attempts: int, user: str, reason: str, now: datetime
    ) -> bool:
        """End a job that waits for approval, as ``user`` chose; see ``approve``."""

        def work(tx: Transaction) -> bool:
            lock_alone(tx, "limits")
            job = self._to_decide(lock_job(tx, job_id), attempts, user, now)
            if job is None:
                return False
            return self._close(tx, job, Failure.DECLINED, user, now, reason=reason)

        return await self._database.run(work, serial=True)

    async def give_up_asking(self, delivery: Delivery, now: datetime) -> None:
        """Give up a claimed approval: its channel refuses it, or its addressee is not to have it.

        Where a channel was asked, each approver is asked directly; where an owner was, the admins
        are, unless somebody else who may decide is asked.
        """

        def work(tx: Transaction) -> None:
            row = lock_job(tx, delivery.job_id)
            given_up = tx.one(_GIVE_UP, id=delivery.id, claim=delivery.claim)
            if row is None or given_up is None or row["state"] != State.WAITING_FOR_APPROVAL:
                return
            job, policy = job_from(row), self.approvals
            asked = [each["addressee"] for each in tx.all(_STILL_ASKED, job_id=job.id)]
            is_owners = job.asks_owner and delivery.addressee == job.owner
            if not delivery.direct:
                asked = [*policy.people(job.user)]
                self._ask(tx, job, asked, now)
            elif is_owners and not policy.admins.intersection(asked):
                asked = sorted(policy.admins - {job.user})
                self._ask(tx, job, asked, now)
            tx.all(_ASKED, id=job.id, asked=json.dumps(asked))
            edit_card(tx, job.id, job.user, to_ms(now))

        await self._database.run(work)

    async def list_to_approve(self, user: str, limit: int) -> list[Job]:
        """Return the jobs that wait for approval and that ``user`` may decide about, if any."""
        approves = int(user in self.approvals.everybody)
        asked = f'%"{user}"%'
        return await self._list(_WAITING, user=user, approves=approves, asked=asked, limit=limit)

    async def list_of_owner(self, owner: str, limit: int) -> list[Job]:
        """Return what others asked for with the replicas of a person, newest first."""
        return await self._list(_OF_OWNER, owner=owner, limit=limit)

    async def list_of_day(self, job: Job) -> list[Job]:
        """Return what was made on the day of a job, for others, with the replicas of its owner."""
        day = notice_day(job.ended_at or job.created_at)
        until = to_ms(day + timedelta(days=1))
        return await self._list(_OF_DAY, owner=job.owner, since=to_ms(day), until=until)

    async def stop_training(self, job_id: str, user: str, now: datetime) -> bool:
        """End a training of ``user``, who did not ask for it, and remove what it has made.

        Returns:
            Whether that was done: False while its create call is under way, or if the person in the
            footage is somebody else.
        """

        def work(tx: Transaction) -> bool:
            lock_alone(tx, "limits")
            row = lock_asked(tx, job_id)
            if (
                row is None
                or row["owner"] != user
                or row["kind"] not in self._trainings
                or row["state"] == State.CREATING
            ):
                return False
            job, at = job_from(row), to_ms(now)
            if job.remote_id is not None:
                remove(tx, job.remote_id, user, next_revision(tx), at)
            if not job.state.ended:
                self._close(tx, job, Failure.STOPPED_BY_OWNER, user, now)
            return True

        return await self._database.run(work, serial=True)

    def _needs_approvers(self, job: Job, user: str) -> bool:
        """Return whether a job needs an approval of the workspace's that ``user`` cannot give."""
        needed = self.approvals.is_needed(job.params.get("script"))
        return needed and not self.approvals.may_decide(user, job.user)

    def _bind(self, tx: Transaction, job: Job, attempt_id: int, remote_id: str, now: int) -> None:
        """Bind what an attempt made; a replica belongs to the person in the footage."""
        tx.all(BIND, id=attempt_id, remote_id=remote_id)
        if job.kind in self._trainings:
            name = job.params.get("replica_name", "")
            owner, named = job.owner or job.user, get_attempt(tx, attempt_id)["user_supplied"]
            own(tx, remote_id, owner, name, now, named=named)
            if job.failure is Failure.STOPPED_BY_OWNER:
                remove(tx, remote_id, owner, next_revision(tx), now)

    def _as_to_be_approved(
        self, job: Job, face: Row, user: str, now: datetime
    ) -> Job | NobodyToApprove:
        """Return a job with the owner and the approval that its next create call needs.

        ``face`` has the ``FACE_COLUMNS`` of its replica, and ``user`` wants the call.
        """
        needed = self._needs_approvers(job, user)
        asked = self.approvals.asked(job.user) if needed else ()
        if needed and not asked:
            return NobodyToApprove()
        owner: str | None = face["face_owner"] or job.owner
        if owner == job.user:
            owner = None
        asks_owner = face["face_asks"] == 1 and owner not in {None, user}
        if asks_owner and owner is not None:
            asked = (owner,)
        job = replace(job, owner=owner, asks_owner=asks_owner)
        return self._as_waiting(job, asked, now) if asked else job

    def _as_waiting(self, job: Job, asked: tuple[str, ...], now: datetime) -> Job:
        """Return a job as it waits for the approval of those who are asked."""
        until = now + self._timings.approve_within
        return replace(
            job,
            state=State.WAITING_FOR_APPROVAL,
            approval=Approval(asked, until),
            due_at=min(until, now + self._timings.max_wait),
        )

    def _ask(self, tx: Transaction, job: Job, asked: Sequence[str], now: datetime) -> None:
        """Owe the messages that ask for approval; Home tabs list it."""
        add_approvals(tx, job, asked, to_ms(now), to_ms(now - self._timings.ask_anew_after))
        self._notify_approvers(tx, job)

    def _notify_approvers(self, tx: Transaction, job: Job) -> None:
        for each in self.approvals.everybody | {job.owner or job.user}:
            tx.notify(Topic.HOMES, each)

    def _to_decide(self, row: Row | None, attempts: int, user: str, now: datetime) -> Job | None:
        """Return the job of a locked row if ``user`` can decide about its next attempt now."""
        waits = (State.WAITING_FOR_APPROVAL, attempts)
        if row is None or (row["state"], row["attempts"]) != waits:
            return None
        job = job_from(row)
        if not self.approvals.may_settle(user, job):
            return None
        return job if job.approval is not None and now < job.approval.until else None

    def _settle(
        self,
        tx: Transaction,
        job: Job,
        settlement: Settlement,
        user: str | None,
        now: datetime,
        *,
        action: AuditAction,
        reason: str = "",
    ) -> None:
        """Record how it went, and owe the edits of approvals; Home tabs that list it change."""
        record(tx, action, user=user, at=to_ms(now), job_id=job.id, detail=reason)
        settle_question(tx, job.id, settlement, user, to_ms(now))
        self._notify_approvers(tx, job)
        tx.notify(Topic.HOMES, job.user)

    def _close(
        self,
        tx: Transaction,
        job: Job,
        failure: Failure,
        user: str | None,
        now: datetime,
        *,
        reason: str = "",
    ) -> bool:
        """Settle and end a job, as ``user`` chose, or because nobody decided in time.

        Returns:
            Whether it was ended; see ``end``.
        """
        by_approver = failure is not Failure.STOPPED_BY_OWNER
        if user is not None and by_approver and job.state is State.WAITING_FOR_APPROVAL:
            tx.all(_DECIDE, id=job.id, user=user, now=to_ms(now))
        settlement, action = _SETTLEMENTS[failure]
        self._settle(tx, job, settlement, user, now, action=action, reason=reason)
        return end(tx, _failed(job, failure, reason), self._trainings, to_ms(now))

    # ── Erasing and deleting ──────────────────────────────────────────────────────────────────

    async def is_to_compact(self) -> bool:
        """Return whether jobs were erased or deleted since ``mark_compacted``."""
        return await self._database.run(lambda tx: bool(tx.one(_IS_TO_COMPACT)), durable=False)

    async def mark_compacted(self) -> None:
        """Store that nothing erased or deleted can be read any more in the database."""
        await self._database.run(lambda tx: tx.all(_MARK_COMPACTED))

    async def erase(
        self,
        before: datetime,
        kept: Mapping[str, frozenset[str]],
        kept_of_made: Mapping[str, frozenset[str]],
    ) -> int:
        """Erase what people wrote and the links of jobs that ended ``before``; return how many.

        ``kept`` names, by kind, the parameters that stay, and ``kept_of_made`` parameters and facts
        that stay of a job that has succeeded. Of a job that cannot be read, none do. Some may be
        left for the next call.
        """

        def work(tx: Transaction) -> int:
            rows = tx.all(_TO_ERASE, before=to_ms(before), limit=_MAX_JOBS)
            if rows:
                tx.all(_MARK_TO_COMPACT)
            jobs, unreadable = read_each(job_from, rows)
            for error in unreadable:
                tx.all(_ERASE, id=error.key, params="{}", snapshot=None)
            for job in jobs:
                is_made = job.state is State.SUCCEEDED
                of_made = kept_of_made.get(job.kind, frozenset()) if is_made else frozenset()
                params = _only(job.params, kept.get(job.kind, frozenset()) | of_made)
                snapshot = job.snapshot and replace(
                    job.snapshot, reason="", facts=_only(job.snapshot.facts, of_made)
                )
                tx.all(
                    _ERASE, id=job.id, params=json.dumps(params), snapshot=snapshot_text(snapshot)
                )
            return len(rows)

        return await self._database.run(work)

    async def delete(self, before: datetime) -> int:
        """Delete erased jobs that ended ``before``, with their attempts and deliveries.

        A job that still owes a message, or has an id to look up, stays.

        Returns:
            How many were deleted. Some may be left for the next call.
        """

        def work(tx: Transaction) -> int:
            ids = [row["id"] for row in tx.all(_TO_DELETE, before=to_ms(before), limit=_MAX_JOBS)]
            if ids:
                tx.all(_MARK_TO_COMPACT)
                for query in _DELETE:
                    tx.all(query, ids=ids)
            return len(ids)

        return await self._database.run(work)

    async def forget_audit(self, erase_before: datetime, delete_before: datetime) -> int:
        """Erase the details of what people did in the audit, and delete what is older.

        Returns:
            Of how many rows. Some may be left for the next call.
        """

        def work(tx: Transaction) -> int:
            erased = tx.all(ERASE_DETAILS, before=to_ms(erase_before), limit=_MAX_AUDIT_ROWS)
            deleted = tx.all(DELETE_AUDIT, before=to_ms(delete_before), limit=_MAX_AUDIT_ROWS)
            if erased or deleted:
                tx.all(_MARK_TO_COMPACT)
            return len(erased) + len(deleted)

        return await self._database.run(work)

    # ── Creating ──────────────────────────────────────────────────────────────────────────────

    async def begin_attempt(self, job: Job, token_hash: str, now: datetime) -> int | None:
        """Store that a create call may cost money from now on; return the attempt's id.

        None means that the job must not be created: the lease was lost, or it was woken meanwhile.

        Raises:
            NotAllowed: its replica was removed since it was asked for.
        """

        def work(tx: Transaction) -> int | NotAllowed | None:
            times = {"now": to_ms(now), "lease_end": to_ms(now + self._timings.lease)}
            face = job.params.get("replica_id", "")
            if tx.one(_BEGIN_CREATING, id=job.id, claim=job.claim, face=face, **times) is not None:
                return add_attempt(tx, job, token_hash, to_ms(now))
            # A callback may have named what an earlier attempt made.
            if not release_woken(tx, job, to_ms(now)):
                [known] = tx.all(FACE, face=face)
                if known["face_removed"] is not None:
                    return NotAllowed(Bound.REPLICA, self._limits.current)
            return None

        return _stored(await self._database.run(work))

    async def record_created(
        self, job: Job, attempt_id: int, *, now: datetime, due_at: datetime
    ) -> bool:
        """Bind what a create call made to its attempt, and store ``job``, which has its id.

        A callback that came before the answer makes the job due at once. It is stored even if the
        database is unavailable for a while.

        Returns:
            Whether it was bound: False if the id belongs to another attempt, where nothing is
            stored, or if the job was claimed again: then the id is a candidate, and the job is due.
        """
        assert job.remote_id is not None  # noqa: S101 - the caller has just received it
        remote_id = job.remote_id

        def work(tx: Transaction) -> bool:
            lock_only(tx, job.id)
            if save(tx, job, due_at, to_ms(now), made_by=attempt_id):
                self._bind(tx, job, attempt_id, remote_id, to_ms(now))
                return True
            named: dict[str, Value] = {"kind": job.kind, "remote_id": remote_id}
            if tx.one(SET_CANDIDATE, attempt_id=attempt_id, now=to_ms(now), **named) is not None:
                wake(tx, [job.id], now, self._timings)
            return False

        return await run_until_stored(
            self._database, work, retry_interval=self._timings.retry_interval
        )

    async def record_not_created(
        self,
        job: Job,
        *,
        outcome: str,
        now: datetime,
        due_at: datetime,
        turn_at: datetime | None = None,
    ) -> None:
        """Store how the job's last create call went, which gave no id, and release ``job``.

        A candidate that a callback named meanwhile makes it due at once. It is stored even if the
        database is unavailable for a while. With ``turn_at``, the waiting jobs of its user have no
        turn before.
        """

        def work(tx: Transaction) -> None:
            lock_only(tx, job.id)
            at = now if tx.one(CANDIDATES, job_id=job.id) is not None else due_at
            if save(tx, job, at, to_ms(now)):
                tx.all(CLOSE, job_id=job.id, outcome=outcome)
                if turn_at is not None:
                    tx.all(_POSTPONE_TURNS, user=job.user, turn_at=to_ms(turn_at))

        await run_until_stored(self._database, work, retry_interval=self._timings.retry_interval)

    async def record_callback(
        self, token_hash: str, named: Mapping[str, str], now: datetime
    ) -> None:
        """Record a callback, which is only a reason to read the job.

        ``named`` has the id that it named, by kind of job. A job whose id is known is woken; an id
        for an attempt that has none becomes a candidate. A job that is being created is left
        alone, or two workers would create two.
        """

        def work(tx: Transaction) -> None:
            job = tx.one(_LOCK_OF_TOKEN, token_hash=token_hash)
            if job is None:
                return
            # Read once the job is locked: the id may have been bound meanwhile.
            attempt = get_attempt(tx, job["attempt_id"])
            if attempt["remote_id"] is not None:
                if job["state"] in POLLED:
                    wake(tx, [job["id"]], now, self._timings)
            elif (remote_id := named.get(job["kind"])) is not None:
                tx.all(
                    SET_CANDIDATE_OF_CALLBACK, id=attempt["id"], remote_id=remote_id, now=to_ms(now)
                )
                if job["state"] != State.CREATING:
                    wake(tx, [job["id"]], now, self._timings)

        await self._database.run(work)

    # ── Candidates, and what a person decides ─────────────────────────────────────────────────

    async def adopt(self, job: Job, attempt: Attempt, now: datetime) -> bool:
        """Bind what ``attempt`` was found to have made, and store ``job``, which shows it.

        Returns:
            Whether it was bound: False if another attempt has the id, another candidate has taken
            its place, or the job was claimed again.
        """
        assert attempt.candidate_id is not None  # noqa: S101 - it is what was verified
        remote_id = attempt.candidate_id

        def work(tx: Transaction) -> bool:
            lock_alone(tx, "limits")
            before = lock_asked(tx, job.id)
            due_at, at = None if job.state.ended else now, to_ms(now)
            if (
                before is None
                or not can_adopt(tx, job.kind, attempt)
                or not save(tx, job, due_at, at)
            ):
                return False
            self._count_adopted(tx, before, attempt, at)
            self._bind(tx, job, attempt.id, remote_id, at)
            self._notify_approvers(tx, job)
            if attempt.user_supplied:
                by = attempt.named_by
                settle_question(tx, job.id, Settlement.FOUND, by, at)
                record(tx, AuditAction.FOUND, user=by, at=at, job_id=job.id, detail=remote_id)
            else:
                settle_question(tx, job.id, Settlement.TURNED_UP, None, at)
            return True

        return await self._database.run(work, serial=True)

    def _count_adopted(self, tx: Transaction, before: Row, attempt: Attempt, now: int) -> None:
        """Have a job count once for each of its attempts that may have cost money."""
        # One to be created again was counted again for a create call that is never sent now.
        spare = before["state"] in {State.QUEUED, State.WAITING_FOR_APPROVAL}
        # An attempt that made nothing, it seemed, was given back, or its count waits with the job.
        counts = get_attempt(tx, attempt.id)["outcome"] in CHARGED
        if spare and counts:
            give_back(tx, job_from(before), self._trainings, before["counted_on"], now)
        elif not spare and not counts:
            count(tx, job_from(before), self._trainings, day_of(attempt.made_at), now)

    async def ask(self, job: Job, now: datetime, due_at: datetime) -> bool:
        """Owe a question about a claimed job, and leave ``job``, which counts it, until ``due_at``.

        A message that has asked its person about others for less than a day lists it; one that asks
        again, for less than half a day.

        Returns:
            Whether it is owed: False if the job was woken or claimed again meanwhile.
        """
        listable = now - self._timings.ask_again_after / (2 if job.asked > 1 else 1)

        def work(tx: Transaction) -> bool:
            lock_alone(tx, "questions")
            lock_asked(tx, job.id)
            at = to_ms(now)
            if release_woken(tx, job, at) or not save(tx, job, due_at, at):
                return False
            add_question(tx, job, to_ms(now), to_ms(listable))
            return True

        return await self._database.run(work, serial=True)

    async def add_candidate(
        self, job_id: str, attempts: int, remote_id: str, user: str, now: datetime
    ) -> AddedCandidate:
        """Have an id verified that ``user`` gave, unless a callback named another one.

        It is about an unconfirmed job for which ``attempts`` create calls were begun.
        """

        def work(tx: Transaction) -> AddedCandidate:
            if tx.one(_CHECK_NOW, id=job_id, attempts=attempts, now=to_ms(now)) is None:
                return AddedCandidate.SETTLED
            tx.notify(Topic.JOBS)
            unread_since = to_ms(now - self._timings.check_candidate_within)
            stored = tx.one(
                SET_CANDIDATE_OF_PERSON,
                job_id=job_id,
                remote_id=remote_id,
                user=user,
                now=to_ms(now),
                unread_since=unread_since,
            )
            return AddedCandidate.STORED if stored else AddedCandidate.OTHER_UNCHECKED

        return await self._database.run(work)

    async def drop_candidate(self, attempt: Attempt) -> None:
        """Remove a candidate that does not match, unless another one has taken its place."""

        def work(tx: Transaction) -> None:
            lock_only(tx, attempt.job_id)
            tx.all(DROP_CANDIDATE, id=attempt.id, remote_id=attempt.candidate_id)

        await self._database.run(work)

    # ── Waking and ending ─────────────────────────────────────────────────────────────────────

    async def wake(self, job: Job, now: datetime) -> None:
        """Make a job that the service works on due for a poll soon."""

        def work(tx: Transaction) -> None:
            row = lock_job(tx, job.id)
            if row is not None and row["state"] in POLLED:
                wake(tx, [job.id], now, self._timings)

        await self._database.run(work, durable=False)

    async def wake_waiting(self, remote_id: str, now: datetime) -> None:
        """Make the jobs due that wait for ``remote_id``, which another job has made."""

        def work(tx: Transaction) -> None:
            if waiting := tx.all(_LOCK_WAITING_FOR, remote_id=remote_id):
                wake(tx, [row["id"] for row in waiting], now, self._timings)

        await self._database.run(work, durable=False)

    async def finish(self, job: Job, now: datetime) -> bool:
        """End a job as ``job`` says, and owe its closing reply.

        It is stored even if the database is unavailable for a while.

        Returns:
            Whether it was ended: False if it had ended before, or if it has no id of the
            service's and was claimed or woken meanwhile. Of several callers, one wins.
        """
        uncreated = job.remote_id is None

        def work(tx: Transaction) -> bool:
            if uncreated:
                lock_alone(tx, "limits")
            lock_only(tx, job.id)
            if uncreated and release_woken(tx, job, to_ms(now)):
                return False
            ended = end(tx, job, self._trainings, to_ms(now))
            if ended and job.failure is not None:
                tx.all(CLOSE, job_id=job.id, outcome=job.failure.value)
            return ended

        return await run_until_stored(
            self._database,
            work,
            retry_interval=self._timings.retry_interval,
            serial=uncreated,
        )

    async def close(
        self, job_id: str, attempts: int, failure: Failure, user: str, now: datetime
    ) -> bool:
        """End a job, as ``user`` chose: ``failure`` says what they did.

        ``attempts`` create calls were begun for it when they chose. What the service makes of it is
        no longer followed.

        Returns:
            Whether it was ended: False if it is in another state, or another attempt was begun
            since.
        """

        def work(tx: Transaction) -> bool:
            lock_alone(tx, "limits")
            row = lock_asked(tx, job_id)
            if (
                row is None
                or row["state"] not in _CLOSED_FROM[failure]
                or row["attempts"] != attempts
            ):
                return False
            return self._close(tx, job_from(row), failure, user, now)

        return await self._database.run(work, serial=True)

    async def expire(self, job: Job, now: datetime) -> bool:
        """End a claimed job whose question was not answered, or that nobody approved in time.

        Returns:
            Whether it was ended: False if an answer, a decision or a callback came meanwhile.
        """

        def work(tx: Transaction) -> bool:
            lock_alone(tx, "limits")
            row = lock_asked(tx, job.id)
            if (
                row is None
                or (row["state"], row["claim"]) != (job.state, job.claim)
                or release_woken(tx, job, to_ms(now))
            ):
                return False
            if job.state is State.WAITING_FOR_APPROVAL:
                return self._close(tx, job, Failure.NOT_APPROVED, None, now)
            settle_question(tx, job.id, Settlement.UNANSWERED, None, to_ms(now))
            return end(tx, _failed(job, Failure.UNANSWERED), self._trainings, to_ms(now))

        return await self._database.run(work, serial=True)


# ── Changes of a row, each of which wakes its worker and has its card edited ──────────────────


def save(
    tx: Transaction,
    job: Job,
    due_at: datetime | None,
    now: int,
    *,
    made_by: int | None = None,
    edits: bool = True,
) -> bool:
    """Store a claimed job as it now is, due at ``due_at``, and wake its worker for that.

    If it was woken since it was claimed, it is due for that soon.

    Args:
        tx: the transaction.
        job: the job.
        due_at: when it is due; None for never.
        now: the time, in milliseconds since 1970.
        made_by: the attempt that has made its remote id, which no other attempt may have. If a
            callback has named that id, the job is due at once. Its row is locked.
        edits: whether its card shows what has changed.

    Returns:
        Whether it was stored: False if it was claimed again meanwhile, or has ended.
    """
    saved = tx.one(
        _SAVE if made_by is None else _SAVE_CREATED,
        id=job.id,
        kind=job.kind,
        claim=job.claim,
        ended=int(job.state.ended),
        attempt_id=made_by,
        now=now,
        due_at=optional_ms(due_at),
        wait_ms=wait_ms(now, due_at),
        **changing_columns(job),
    )
    if saved is None:
        return False
    tell(tx, Topic.JOBS, saved["due_at"], now)
    if edits:
        edit_card(tx, job.id, job.user, now)
    return True


def release_woken(tx: Transaction, job: Job, now: int) -> bool:
    """Make a claimed job due again, with nothing stored, if it was woken since it was claimed."""
    released = tx.one(_RELEASE_WOKEN, id=job.id, claim=job.claim)
    if released is None:
        return False
    tell(tx, Topic.JOBS, released["due_at"], now)
    return True


def end(tx: Transaction, job: Job, trainings: Collection[str], now: int) -> bool:
    """End a job as ``job`` says, owe its closing reply, and give back what is counted in vain.

    Its row is locked. Where the job may not have been created yet,
    ``lock_alone(tx, "limits")`` comes first.
    ``trainings`` are the kinds of jobs that are trainings.

    Returns:
        Whether it was ended: False if it had ended before, or if it was claimed again meanwhile and
        what is known of it may be out of date.
    """
    ended = tx.one(
        _END,
        id=job.id,
        claim=job.claim,
        remote_id=job.remote_id,
        state=job.state.value,
        failure=job.failure and job.failure.value,
        reason=job.reason,
        snapshot=snapshot_text(job.snapshot),
        now=now,
    )
    if ended is None:
        return False
    tell(tx, Topic.JOBS, ended["due_at"], now)
    edit_card(tx, job.id, job.user, now)
    add_below(tx, job, Role.REPLY, now)
    if job.owner is not None and job.state is State.SUCCEEDED and job.kind not in trainings:
        add_notice_of_day(tx, job, now)
    give_back(tx, job, trainings, ended["counted_on"], now)
    return True


def wake(tx: Transaction, job_ids: Collection[str], now: datetime, timings: Timings) -> None:
    """Make jobs due at once, or a moment after their last read if that was just now."""
    for row in tx.all(
        _WAKE,
        ids=list(job_ids),
        now=to_ms(now),
        spaced=to_ms(now - timings.callback_spacing),
        spacing=span_ms(timings.callback_spacing),
    ):
        tell(tx, Topic.JOBS, row["due_at"], to_ms(now))


def _found_or_outside(
    tx: Transaction, form: Row, request: Request, limits: Limits, groups: frozenset[str]
) -> Job | NotAllowed | AlreadyRequested | None:
    """Return what there is already for a request, or the bound that it is not within."""
    if (found := form["submitted"] or form["retry"]) is not None:
        [row] = tx.all(_BY_ID, id=found)
        return job_from(row)
    if outside := not_allowed(limits, request, groups):
        return outside
    if form["face_removed"] is not None:
        return NotAllowed(Bound.REPLICA, limits)
    if form["same"] is not None:
        jobs, _ = read_each(job_from, tx.all(_BY_ID, id=form["same"]))
        if jobs:  # a damaged one is not offered
            return AlreadyRequested(jobs[0])
    return None


def _turn(row: Row) -> tuple[bool, int]:
    """Return the place of a claimed row among others."""
    waits = row["state"] in {State.QUEUED, State.CREATING}
    return not waits, row["turn_at"] if waits and isinstance(row["turn_at"], int) else 0


def _stored(result: _T | _NotStored) -> _T:
    """Return the result of a work, or raise why it stored nothing: there is nothing to undo."""
    if isinstance(result, _NotStored):
        raise result
    return result


def _failed(job: Job, failure: Failure, reason: str = "") -> Job:
    return replace(job, state=State.FAILED, failure=failure, reason=reason)


def _only(texts: Mapping[str, str], names: frozenset[str]) -> dict[str, str]:
    return {name: text for name, text in texts.items() if name in names}
