"""Find out what an unanswered create call made: by an id with its token, or by asking people.

What such a call made may turn up while its job waits for approval: that wait is here too.
"""

import logging
from dataclasses import replace
from typing import Final, TypeGuard

from bot.engine.steps import Runtime, log_fields
from bot.errors import OutsideError, Refused, Unavailable
from bot.kinds import Comparison, Unreadable, compare_with_job
from bot.model import Attempt, Job, Snapshot, State
from bot.service.errors import UNKNOWN_ID

_LOG: Final = logging.getLogger(__name__)


async def mark_unconfirmed(runtime: Runtime, job: Job) -> None:
    """Wait for a callback that names an id; where none can come, ask at once."""
    now = runtime.clock.now()
    due_at = now if runtime.public_url is None else now + runtime.timings.reconcile_within
    unconfirmed = replace(job, state=State.UNCONFIRMED, failures=0)
    await runtime.store.jobs.record_not_created(
        unconfirmed, outcome="uncertain", now=now, due_at=due_at
    )


async def await_approval(runtime: Runtime, job: Job) -> None:
    """Leave a job alone that waits for approval, until that expires.

    One that waits to be created again is not, if what an earlier call made turns up.
    """
    now, wait = runtime.clock.now(), runtime.timings.max_wait
    try:
        if job.attempts and await check_candidates(runtime, job):
            return
    except OutsideError as error:
        job, wait = runtime.after_failure(job, error)
    until = job.approval.until if job.approval is not None else now
    if now < until:
        await runtime.store.jobs.release(job, now, min(until, now + wait))
    elif await runtime.store.jobs.expire(job, now):
        _LOG.info("ended", extra=log_fields(job))


async def reconcile_job(runtime: Runtime, job: Job) -> None:
    """Check the candidate ids of an unconfirmed job; without a match, ask twice, then close it."""
    timings, now = runtime.timings, runtime.clock.now()
    recheck = timings.max_wait
    try:
        if await check_candidates(runtime, job):
            return
    except OutsideError as error:
        job, recheck = runtime.after_failure(job, error)
        if is_unknown(error):  # it may be there in a moment: nobody is asked meanwhile
            await runtime.store.jobs.release(job, now, now + recheck)
            return
    asked_at = job.asked_at or now
    if job.asked > 1 and now >= asked_at + timings.close_after:
        if await runtime.store.jobs.expire(job, now):
            _LOG.info("ended", extra=log_fields(job))
        return
    asks = not job.asked or (job.asked == 1 and now >= asked_at + timings.ask_again_after)
    if asks:
        job, asked_at = replace(job, asked=job.asked + 1, asked_at=now), now
    wait = timings.ask_again_after if job.asked == 1 else timings.close_after
    due_at = min(asked_at + wait, now + recheck)
    if asks:
        await runtime.store.jobs.ask(job, now, due_at)
    else:
        await runtime.store.jobs.release(job, now, due_at)


async def reconcile_ended(runtime: Runtime, job: Job) -> None:
    """Check the candidate ids of a job that has ended: its card shows what was found.

    Those that cannot be read are read ever more rarely, and not for ever.
    """
    now = runtime.clock.now()
    since_end = now - (job.ended_at or now)
    try:
        if not await check_candidates(runtime, job):
            await runtime.store.jobs.release(job, now, None)
    except OutsideError as error:
        waiting, retry_delay = runtime.after_failure(job, error)
        wait = max(
            retry_delay,
            runtime.jittered(since_end * runtime.schedule(job).growth),
        )
        given_up = since_end >= runtime.timings.check_ended_within
        await runtime.store.jobs.release(waiting, now, None if given_up else now + wait)


async def check_candidates(runtime: Runtime, job: Job) -> bool:
    """Read the candidate ids of a job's attempts, and adopt the first that is not something else.

    A callback came with the attempt's own token, and a person was warned: both are believed unless
    another attempt has the id or it is certainly something else. What the service does not find
    may be too new for it: it is given up after ``check_candidate_within``.

    Returns whether the job has moved on: then the caller leaves it alone.

    Raises:
        OutsideError: none was adopted, and not all could be read.
    """
    kind = runtime.kinds[job.kind]
    unread: OutsideError | None = None
    for attempt in await runtime.store.jobs.candidates(job):
        try:
            snapshot = await runtime.read(
                kind, attempt.candidate_id or "", asked_at=attempt.named_at
            )
        except Unreadable as error:
            unread = Unavailable(f"The answer could not be read: {error}.")
            continue
        except OutsideError as error:
            if is_unknown(error) and not is_new(runtime, attempt):
                await runtime.store.jobs.drop_candidate(attempt)
            else:
                unread = error
            continue
        now = runtime.clock.now()
        if compare_with_job(kind, job, snapshot) is not Comparison.DIFFERENT:
            if await runtime.store.jobs.adopt(_adopting(job, attempt, snapshot), attempt, now):
                await runtime.catalogue(kind, snapshot)
                _LOG.info("found what a create call made", extra=log_fields(job))
                return True
            current = await runtime.store.jobs.fetch(job.id)
            if current is None or current.claim != job.claim:
                return True  # it was claimed again since, and its candidates with it
        _LOG.warning("a candidate id is not what was asked for", extra=log_fields(job))
        await runtime.store.jobs.drop_candidate(attempt)
    if unread is not None:
        raise unread
    return False


def is_unknown(error: Exception) -> TypeGuard[Refused]:
    """Return whether the service does not find what was read."""
    return isinstance(error, Refused) and error.code in UNKNOWN_ID


def is_new(runtime: Runtime, attempt: Attempt) -> bool:
    """Return whether an attempt's candidate was named not long ago."""
    age = runtime.clock.now() - (attempt.named_at or attempt.made_at)
    return abs(age) < runtime.timings.check_candidate_within


def _adopting(job: Job, attempt: Attempt, snapshot: Snapshot) -> Job:
    """Return the job with what an attempt made, orphaned if the job has its own or has ended."""
    if job.remote_id is None and not job.state.ended:
        return replace(
            job,
            state=State.RUNNING,
            remote_id=snapshot.remote_id,
            snapshot=snapshot,
            started_at=attempt.made_at,
            failures=0,
            held_by=None,
            held_until=None,
        )
    return replace(job, orphaned_ids=(*job.orphaned_ids, snapshot.remote_id), failures=0)
