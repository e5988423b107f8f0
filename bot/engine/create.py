"""Create a queued job at the service: one call that may cost money, never repeated on doubt."""

import logging
import secrets
from dataclasses import replace
from datetime import datetime
from typing import Final

from bot.engine.reconcile import check_candidates, is_new, mark_unconfirmed
from bot.engine.steps import SHOWN_FROM, Runtime, log_fields, uncancelled
from bot.errors import OutsideError, Refused, Unavailable, Uncertain
from bot.kinds import Unreadable
from bot.model import Failure, Job, Snapshot, State, token_hash
from bot.service.gate import OUTAGE, AccountRefused, Held
from bot.store import NotAllowed

_LOG: Final = logging.getLogger(__name__)
_WAS_STOPPED: Final = "the bot was stopped for a while"


async def create_job(runtime: Runtime, job: Job) -> None:
    """Make the create call of a queued job.

    The attempt is stored before the call: a process that dies after that leaves a job in
    ``creating``, which is reconciled and not created again.
    """
    kind = runtime.kinds[job.kind]
    try:
        if job.attempts and await check_candidates(runtime, job):
            return
    except OutsideError as error:
        # A person has chosen to create it again: what cannot be read delays that for a while only.
        if any(is_new(runtime, each) for each in await runtime.store.jobs.candidates(job)):
            await _retry_later(runtime, job, error, attempted=False)
            return
    token = secrets.token_urlsafe(32)
    body = dict(job.params)
    if runtime.public_url is not None:
        body["callback_url"] = f"{runtime.public_url}/callbacks/{token}"
    attempt: int | None = None
    if job.held_by is None:
        # Without credit, a new request finds out whether there is some again; and so does one that
        # another copy of the bot made due, which found that there is.
        runtime.service.try_again(kind.path)
    try:
        _, used_id = kind.uses(job.params) or ("", "")
        async with runtime.service.admission(kind.path, job.user, used_id) as call:
            begun_at = runtime.clock.now()
            attempt = await runtime.store.jobs.begin_attempt(job, token_hash(token), begun_at)
            if attempt is None:
                return
            if not runtime.timings.may_call(begun_at, runtime.clock.now()):
                stopped = Unavailable(_WAS_STOPPED)
                await _retry_later(runtime, job, stopped, attempted=True)
                return
            snapshot = await runtime.create(kind, call, body)
    except (NotAllowed, Refused) as error:
        await _end_refused(runtime, job, error)
    except Held as held:
        await _wait_at_gate(runtime, job, held, attempted=attempt is not None)
    except Unavailable as error:
        await _retry_later(runtime, job, error, attempted=True)
    except (Uncertain, Unreadable) as error:
        _LOG.warning("a create call got no usable answer", extra=log_fields(job, error))
        await mark_unconfirmed(runtime, job)
    else:
        await _record_created(runtime, job, attempt, snapshot)


async def _record_created(runtime: Runtime, job: Job, attempt: int, snapshot: Snapshot) -> None:
    """Store the id that the service gave, and plan the first poll."""
    kind, now = runtime.kinds[job.kind], runtime.clock.now()
    running = replace(
        job,
        state=State.RUNNING,
        remote_id=snapshot.remote_id,
        snapshot=snapshot,
        started_at=now,
        failures=0,
        held_by=None,
        held_until=None,
    )
    due_at = now + runtime.jittered(runtime.schedule(job).first_interval)
    # Logged before it is stored: if that fails for good, an operator finds the id here.
    _LOG.info("created", extra=log_fields(running))
    created = runtime.store.jobs.record_created(running, attempt, now=now, due_at=due_at)
    if not await uncancelled(created):
        _LOG.warning("what a create call made could not be bound to it", extra=log_fields(job))
        await mark_unconfirmed(runtime, job)
        return
    if used := kind.uses(job.params):
        _, used_id = used
        await runtime.store.replicas.use(used_id, now)
    # Until its first read it has the name that was asked for.
    await runtime.catalogue(kind, replace(snapshot, facts=job.params))


async def _end_refused(runtime: Runtime, job: Job, error: NotAllowed | Refused) -> None:
    """End a job that was refused, unless it waits already for what it was refused for."""
    if isinstance(error, NotAllowed):
        await runtime.finish(replace(job, state=State.FAILED, failure=Failure.STOPPED_BY_OWNER))
        return
    failure = Failure.REFUSED
    if isinstance(error, AccountRefused):
        failure = error.failure
        if job.held_by is failure and not _accepted_since(job, error.accepted_at):
            await _wait_at_gate(runtime, job, error.held, attempted=True)
            return
    await runtime.finish(replace(job, state=State.FAILED, failure=failure, reason=error.reason))


def _accepted_since(job: Job, accepted_at: datetime | None) -> bool:
    """Return whether a call was accepted after the time that a job was first held back for.

    Another copy of the bot, or a process before this one, may have held it back.
    """
    return accepted_at is not None and (job.held_until is None or accepted_at >= job.held_until)


async def _retry_later(runtime: Runtime, job: Job, error: OutsideError, *, attempted: bool) -> None:
    """Queue a job again that was not created, or end it when that has gone on for too long.

    ``attempted`` says whether an attempt was begun, which is then closed.
    """
    now = runtime.clock.now()
    if now - _queued_at(job) >= runtime.timings.create_within:
        await runtime.finish(
            replace(job, state=State.FAILED, failure=Failure.UNREACHABLE, reason=error.reason)
        )
        return
    failed, wait = runtime.after_failure(replace(job, state=State.QUEUED), error)
    await _queue_again(runtime, failed, now + wait, attempted=attempted)


async def _wait_at_gate(runtime: Runtime, job: Job, held: Held, *, attempted: bool) -> None:
    """Queue a job again that was held back, or end it when that has gone on for too long.

    ``attempted`` says whether its own call was refused. That may be the job's own fault: all are
    due when the next try is, and those of other people have their turn before those of this one.
    """
    now = runtime.clock.now()
    if now - _queued_at(job) >= runtime.timings.create_within:
        failure = Failure.UNREACHABLE if held.failure in OUTAGE else held.failure
        await runtime.finish(replace(job, state=State.FAILED, failure=failure, reason=held.reason))
        return
    queued = replace(job, state=State.QUEUED)
    if held.failure is Failure.SERVICE_DOWN:
        # It stays due: claims leave it out while the service is down.
        queued = replace(queued, held_by=held.failure, held_until=None)
        await _queue_again(runtime, queued, now, attempted=attempted)
        return
    wait = held.until - now
    if wait >= SHOWN_FROM and held.failure is not job.held_by:  # the card says it once
        queued = replace(queued, held_by=held.failure, held_until=held.until)
    if wait < SHOWN_FROM:  # the service is only busy: at random, or the same jobs would be first
        _, wait = runtime.after_failure(job, held)
    due_at = now + min(wait, runtime.timings.max_wait)
    turn_at = held.until if attempted else None
    await _queue_again(runtime, queued, due_at, attempted=attempted, turn_at=turn_at)


def _queued_at(job: Job) -> datetime:
    """Return when a job was queued: asked for, to be created again, or approved last."""
    approved_at = job.approval.decided_at if job.approval is not None else None
    return max(filter(None, (job.created_at, job.asked_at, approved_at)))


async def _queue_again(
    runtime: Runtime,
    queued: Job,
    due_at: datetime,
    *,
    attempted: bool,
    turn_at: datetime | None = None,
) -> None:
    """Release a queued job; ``attempted`` says whether an attempt was begun, which is closed.

    From ``turn_at`` on its user's waiting jobs have their turns, if that is later.
    """
    now = runtime.clock.now()
    if attempted:
        await runtime.store.jobs.record_not_created(
            queued, outcome="unavailable", now=now, due_at=due_at, turn_at=turn_at
        )
    else:
        await runtime.store.jobs.release(queued, now, due_at)
