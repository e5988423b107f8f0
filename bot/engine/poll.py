"""Read what was created until the service says how it ended, or its time is up."""

import contextlib
from dataclasses import replace
from datetime import datetime, timedelta

from bot.engine.reconcile import check_candidates, is_unknown
from bot.engine.steps import SHOWN_FROM, Runtime
from bot.errors import OutsideError
from bot.kinds import DriftType, Kind, Unreadable
from bot.log import word
from bot.model import Failure, Job, State, Verdict
from bot.service.gate import Held
from bot.timings import PollSchedule, Timings


async def poll_job(runtime: Runtime, job: Job) -> None:
    """Read a running or overdue job and end it, or plan its next poll."""
    kind, remote_id = runtime.kinds[job.kind], job.remote_id or ""
    if job.attempts > 1:
        # What an earlier attempt made is checked too, but must not delay the job.
        with contextlib.suppress(OutsideError):
            if await check_candidates(runtime, job):
                return
    try:
        snapshot = await runtime.read(kind, remote_id, asked_at=job.woken_at)
        await runtime.catalogue(kind, snapshot)
    except (OutsideError, Unreadable) as error:
        await _postpone_unread(runtime, job, error)
        return
    match snapshot.verdict:
        case Verdict.SUCCEEDED:
            await runtime.finish(replace(job, state=State.SUCCEEDED, snapshot=snapshot))
        case Verdict.FAILED:
            await runtime.finish(
                replace(
                    job,
                    state=State.FAILED,
                    failure=Failure.SERVICE_FAILED,
                    reason=snapshot.reason,
                    snapshot=snapshot,
                )
            )
        case Verdict.GOING:
            if not _in_progress(kind, snapshot.status):
                status = word(snapshot.status)
                runtime.drift.note(kind.name, DriftType.UNKNOWN_STATUS, status)
            going = replace(
                job,
                snapshot=snapshot,
                failures=0,
                missing_since=None,
                held_by=None,
                held_until=None,
            )
            if awaited_id := await _awaited_id(runtime, kind, going):
                await _wait_for_used(runtime, going, awaited_id)
            else:
                # A job that has waited for what it uses begins only now.
                started_at = job.started_at if job.waits_for is None else runtime.clock.now()
                await _plan_poll(runtime, replace(going, waits_for=None, started_at=started_at))


async def _awaited_id(runtime: Runtime, kind: Kind, job: Job) -> str | None:
    """Return the id of what the service has to finish before it begins with a job, if anything.

    Its own training polls it. It is read here where nothing has read it lately: somebody else may
    train it.
    """
    used = kind.uses(job.params)
    if used is None or job.snapshot is None or not kind.is_waiting(job.snapshot):
        return None
    used_kind, known = runtime.kinds.get(used[0]), runtime.store.replicas.get(used[1])
    if used_kind is None or known is None or known.verdict in {Verdict.SUCCEEDED, Verdict.FAILED}:
        return None
    status, interval = known.status, runtime.schedule_of(used_kind).first_interval
    if known.read_at is None or abs(runtime.clock.now() - known.read_at) >= interval:
        try:
            snapshot = await runtime.read(used_kind, used[1])
            await runtime.catalogue(used_kind, snapshot)
            status = snapshot.status
        except (OutsideError, Unreadable) as error:
            status = "" if is_unknown(error) else status
    return used[1] if _in_progress(used_kind, status) else None


def _in_progress(kind: Kind, status: str) -> bool:
    """Return whether a status is known to mean unfinished work; an unknown one delays no job."""
    return status.casefold() in kind.in_progress


async def _wait_for_used(runtime: Runtime, job: Job, used_id: str) -> None:
    """Plan the next poll of a job that waits for what it uses; its own time begins after that."""
    now = runtime.clock.now()
    waiting = replace(
        job,
        state=State.RUNNING,
        late=False,
        slow=False,
        waits_for=used_id,
        started_at=now,
        read_at=now,
    )
    schedule = runtime.schedule(waiting)
    if now - job.created_at >= schedule.give_up_after:
        await runtime.finish(replace(job, state=State.FAILED, failure=Failure.TIMED_OUT))
        return
    since_asked = replace(waiting, started_at=job.created_at)
    wait = poll_interval(since_asked, runtime.timings, schedule, now)
    await runtime.store.jobs.release(waiting, now, now + runtime.jittered(wait))


async def _postpone_unread(runtime: Runtime, job: Job, error: OutsideError | Unreadable) -> None:
    """Plan the next poll after a failed one.

    An unknown id may be too new for the service, or a gateway may have answered in its place.
    """
    if is_unknown(error):
        now = runtime.clock.now()
        job = replace(job, missing_since=min(job.missing_since or now, now))
        if job.late and now - (job.missing_since or now) >= runtime.timings.missing_within:
            await runtime.finish(
                replace(job, state=State.FAILED, failure=Failure.NOT_FOUND, reason=error.reason)
            )
        else:
            await _plan_poll(runtime, job)
        return
    waiting, retry_delay = runtime.after_failure(job, error)
    if isinstance(error, Held) and error.until - runtime.clock.now() >= SHOWN_FROM:
        waiting = replace(waiting, held_by=error.failure, held_until=error.until)
    await _plan_poll(runtime, waiting, at_least=retry_delay)


async def _plan_poll(runtime: Runtime, job: Job, at_least: timedelta = timedelta(0)) -> None:
    """Release a job until its next poll, late or overdue by its age; give up in the end."""
    now, schedule = runtime.clock.now(), runtime.schedule(job)
    job = replace(job, started_at=_started_at(job, runtime.timings, now))
    age = now - (job.started_at or job.created_at)
    if age >= schedule.give_up_after:
        await runtime.finish(replace(job, state=State.FAILED, failure=Failure.TIMED_OUT))
        return
    going = replace(
        job,
        state=State.OVERDUE if age >= schedule.overdue_after else State.RUNNING,
        late=age >= schedule.late_after,
        slow=job.slow_after is not None and age > job.slow_after,
        read_at=now,
    )
    wait = max(poll_interval(going, runtime.timings, schedule, now), at_least)
    await runtime.store.jobs.release(going, now, now + runtime.jittered(wait))


def _started_at(job: Job, timings: Timings, now: datetime) -> datetime | None:
    """Return when a claimed job was started, by a clock that may have been set since its claim."""
    step = now - (job.read_at or now)
    set_meanwhile = not timedelta(0) <= step <= timings.lease
    return job.started_at + step if job.started_at and set_meanwhile else job.started_at


def poll_interval(job: Job, timings: Timings, schedule: PollSchedule, now: datetime) -> timedelta:
    """Return the time from now to the next poll of a job that goes on, before jitter.

    It grows with the job's age. A callback resets it to seconds, from which it grows again: what
    was announced may be readable only a moment later. A clock that was set back shortens nothing.
    """
    wait = schedule.overdue_interval
    if job.state is not State.OVERDUE:
        age = abs(now - (job.started_at or job.created_at))
        wait = min(max(schedule.first_interval, age * schedule.growth), schedule.max_interval)
    if job.woken_at is not None:
        wait = min(wait, max(timings.callback_spacing, abs(now - job.woken_at)))
    return wait
