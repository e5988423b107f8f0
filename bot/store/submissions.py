"""What queues a job: a submission, and "Create again"; both cost money, and have limits.

A submission that needs approval waits for that first, however the form was opened.
"""

import json
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias, TypeVar

from bot.model import Job, Request, Settlement, State
from bot.store.approval_messages import add_approvals
from bot.store.audit import AuditAction, record
from bot.store.database import Topic, Transaction, span_ms, to_ms, wait_ms
from bot.store.deliveries import add_card, edit_card, edit_messages, settle_question
from bot.store.durations import recent_durations, script_band
from bot.store.homes import change_homes
from bot.store.job_claims import JobClaims
from bot.store.job_reads import BY_REQUEST, BY_RETRIED
from bot.store.job_rows import job_from, lock_job
from bot.store.limit_changes import limits_in_force
from bot.store.limits import (
    Bound,
    LimitReached,
    NotAllowed,
    lock_limits,
    not_allowed,
    reached_limit,
)
from bot.store.same_again import AlreadyRequested, Viewer, find_same
from bot.store.sql import Query

_T = TypeVar("_T")
# Without letters and digits that look alike, so that an id can be read out and typed.
_ALPHABET: Final = "23456789abcdefghjkmnpqrstvwxyz"
_ID_LENGTH: Final = 10
_TURN: Final = timedelta(minutes=10)
"""A person's waiting jobs take their turns as if one were submitted in this time."""

_ADD: Final = Query(
    """
    INSERT INTO jobs (id, request_key, kind, params, user_id, channel, thread_ts,
                      created_at, state, due_at, turn_at, typical_ms, slow_ms, script_band,
                      retry_of, fingerprint, wait_ms, approval_asked, approval_until)
    VALUES (:id, :key, :kind, :params, :user, :channel, :thread_ts,
            :now, :state, :due_at, :turn_at, :typical_ms, :slow_ms, :script_band,
            :retry_of, :fingerprint, :wait_ms, :approval_asked, :approval_until)
    RETURNING *
    """
)
_LAST_TURN: Final = Query(
    """
    SELECT max(turn_at) AS turn_at FROM jobs
    WHERE ended_at IS NULL AND state = 'queued' AND user_id = :user
    """
)
_CREATE_AGAIN: Final = Query(
    """
    UPDATE jobs SET state = 'queued', asked = 0, asked_at = :now, failures = 0,
                    due_at = :now, claim = claim + 1, claimed = 0
    WHERE id = :id
    """
)


class NobodyToApprove(Exception):
    """A request needs approval, nobody but its user could give it, and nothing was stored."""


_NotStored: TypeAlias = NotAllowed | AlreadyRequested | LimitReached | NobodyToApprove


@dataclass(frozen=True, slots=True)
class Submitted:
    """The result of a submission: its job, and whether that is new."""

    job: Job
    new: bool


class Submissions(JobClaims):
    """The part of ``Jobs`` that queues jobs."""

    async def submit(
        self,
        request: Request,
        now: datetime,
        viewer: Viewer | None = None,
        groups: frozenset[str] = frozenset(),
        *,
        asks_directly: bool = False,
    ) -> Submitted:
        """Store a job and owe its card, or find the job that this request made before.

        With a ``viewer``, it is not stored if they may see that the same was asked for recently.
        ``groups`` are the user groups that its user is in, of those that limits name. With
        ``asks_directly``, nothing is posted in the approvers' channel.

        A job is retried once: a second retry finds the first one. The messages of the job that is
        retried change with it.

        Raises:
            NotAllowed: it is not within the limits.
            AlreadyRequested: the same was asked for recently.
            LimitReached: its user has to wait.
            NobodyToApprove: it needs approval, and nobody else may give it.
        """
        new_id = "".join(_ALPHABET[n % len(_ALPHABET)] for n in secrets.token_bytes(_ID_LENGTH))

        needs_approval = self._approvals.is_needed(request.params.get("script"))
        who = self._approvals.people if asks_directly else self._approvals.asked
        asked = who(request.user) if needs_approval else ()
        until = now + self._timings.approve_within
        due_at = min(until, now + self._timings.max_wait) if needs_approval else now

        def work(tx: Transaction) -> Submitted | _NotStored:
            lock_limits(tx)
            retried = lock_job(tx, request.retry_of) if request.retry_of is not None else None
            found = tx.one(BY_REQUEST, key=request.key)
            if found is None and retried is not None:
                found = tx.one(BY_RETRIED, id=retried["id"])
            if found is not None:
                return Submitted(job_from(found), new=False)
            limits = limits_in_force(tx, self._limits)
            if outside := not_allowed(limits, request, groups):
                return outside
            if viewer is not None and request.fingerprint is not None:
                since = now - self._timings.same_within
                if (same := find_same(tx, request.fingerprint, viewer, since)) is not None:
                    return AlreadyRequested(same)
            if needs_approval and not asked:
                return NobodyToApprove()
            # Nothing is refused after this: where it finds room, the job counts.
            if reached := reached_limit(tx, limits, request.user, now, opens=True):
                return reached
            band = script_band(request.params.get("script"))
            usual = recent_durations(tx, request.kind, band)
            [added] = tx.all(
                _ADD,
                id=new_id,
                key=request.key,
                kind=request.kind,
                params=json.dumps(dict(request.params)),
                user=request.user,
                channel=request.channel,
                thread_ts=request.thread_ts,
                now=to_ms(now),
                state=(State.WAITING_FOR_APPROVAL if asked else State.QUEUED).value,
                due_at=to_ms(due_at),
                wait_ms=wait_ms(to_ms(now), due_at),
                turn_at=turn_at(tx, request.user, now),
                typical_ms=None if usual is None else span_ms(usual.typical),
                slow_ms=None if usual is None or usual.slow is None else span_ms(usual.slow),
                script_band=band,
                retry_of=retried["id"] if retried is not None else None,
                fingerprint=request.fingerprint,
                approval_asked=json.dumps(asked) if asked else None,
                approval_until=to_ms(until) if asked else None,
            )
            job = job_from(added)
            if asked:
                change_homes(tx, self._approvals.everybody | {job.user}, to_ms(now))
                add_approvals(tx, job, asked, to_ms(now))
            add_card(tx, job, to_ms(now))
            action, of = AuditAction.ASKED, ""
            if retried is not None:
                edit_messages(tx, retried["id"], to_ms(now))
                action, of = AuditAction.RETRIED, retried["id"]
            record(tx, action, user=request.user, at=to_ms(now), job_id=new_id, detail=of)
            tx.notify(Topic.JOBS)
            return Submitted(job, new=True)

        return _stored(await self._database.run(work, serial=True))

    async def create_again(
        self,
        job_id: str,
        attempts: int,
        user: str,
        now: datetime,
        groups: frozenset[str] = frozenset(),
    ) -> bool:
        """Queue an unconfirmed job once more, as ``user`` chose.

        ``attempts`` create calls were begun for it when they chose. ``groups`` are the user groups
        that they are in, of those that limits name.

        Returns:
            Whether it was queued: False if it is no longer unconfirmed, or another attempt was
            begun since. So a button counts once, however often it is pressed.

        Raises:
            NotAllowed: they may not ask for its kind. The job stays as it is.
            LimitReached: too many create calls were made in a day or month. Likewise.
        """

        def work(tx: Transaction) -> bool | _NotStored:
            lock_limits(tx)
            row = lock_job(tx, job_id)
            if row is None or (row["state"], row["attempts"]) != (State.UNCONFIRMED, attempts):
                return False
            limits = limits_in_force(tx, self._limits)
            if not limits.allows_person(row["kind"], user, groups):
                return NotAllowed(Bound.PERSON, limits)
            if reached := reached_limit(tx, limits, row["user_id"], now, opens=False):
                return reached
            tx.all(_CREATE_AGAIN, id=job_id, now=to_ms(now))
            edit_card(tx, job_id, to_ms(now))
            settle_question(tx, job_id, Settlement.CREATED_AGAIN, user, to_ms(now))
            record(tx, AuditAction.CREATED_AGAIN, user=user, at=to_ms(now), job_id=job_id)
            tx.notify(Topic.JOBS)
            return True

        return _stored(await self._database.run(work, serial=True))


def turn_at(tx: Transaction, user: str, now: datetime) -> int:
    """Return from when on a new job takes its turn: after the user's other jobs that wait."""
    last = tx.one(_LAST_TURN, user=user)
    if last is None or last["turn_at"] is None:
        return to_ms(now)
    return max(to_ms(now), int(last["turn_at"]) + span_ms(_TURN))


def _stored(result: _T | _NotStored) -> _T:
    """Return the result of a work, or raise why it stored nothing: there is nothing to undo."""
    if isinstance(result, _NotStored):
        raise result
    return result
