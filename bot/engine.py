"""What becomes of a job: one step at a time, each of them safe to die in."""

import contextlib
import logging
import random
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from bot.clock import Clock
from bot.errors import OutsideError, Refused, Unavailable, Uncertain
from bot.kinds import Kind, Unreadable
from bot.model import Attempt, Failure, Job, Snapshot, State, Verdict, token_hash
from bot.store import Store
from bot.timings import PollSchedule, Timings, lateness, until_next_read
from bot.video_service import FAILURES, UNKNOWN_ID, VideoService

_LOG: Final = logging.getLogger(__name__)
_SHOWN: Final = 100
# So many unknown words are told of: a service that has ever new ones fills no log.
_ODD_WORDS: Final = 100


class Engine:
    """Takes claimed jobs one step further.

    ``nudge`` tells a person that a job has a question for them; it may fail without harm.
    """

    def __init__(
        self,
        store: Store,
        service: VideoService,
        kinds: Mapping[str, Kind],
        *,
        clock: Clock,
        timings: Timings,
        rng: random.Random,
        public_url: str | None,
        nudge: Callable[[Job], Awaitable[None]],
    ) -> None:
        self.due = store.jobs_due
        self._store = store
        self._service = service
        self._kinds = kinds
        self._clock = clock
        self._timings = timings
        self._rng = rng
        self._public_url = public_url
        self._nudge = nudge
        self._odd_words: set[tuple[str, str]] = set()

    async def claim(self, limit: int, in_hand: Collection[Job] = ()) -> Sequence[Job]:
        """Lease up to ``limit`` jobs that are due, and not in hand."""
        ids = [job.id for job in in_hand]
        return await self._store.jobs.claim(self._clock.now(), limit, ids)

    async def next_due(self, in_hand: Collection[Job] = ()) -> datetime | None:
        """Return when the next job is due that is not in hand."""
        return await self._store.jobs.next_due([job.id for job in in_hand])

    async def step(self, job: Job) -> None:
        """Take a claimed job one step further."""
        match job.state:
            case State.QUEUED:
                await self._create(job)
            case State.CREATING:
                await self._miss(job)
            case State.UNCONFIRMED:
                await self._ask(job)
            case State.RUNNING | State.OVERDUE:
                await self._read(job)
            case State.SUCCEEDED | State.FAILED:
                await self._look_after(job)

    # ── Creating ──────────────────────────────────────────────────────────────────────────────

    async def _create(self, job: Job) -> None:
        kind = self._kinds[job.kind]
        try:
            if job.attempts and await self._heal(job):
                return
        except OutsideError as error:
            await self._wait_for_service(job, error, called=False)
            return
        try:
            await self._service.admit_create()
        except Refused as error:
            await self._end_refused(job, error)
            return
        token = secrets.token_urlsafe(32)
        attempt = await self._store.jobs.begin_attempt(job, token_hash(token), self._clock.now())
        if attempt is None:
            return
        body = kind.body(job.params)
        if self._public_url is not None:
            body["callback_url"] = f"{self._public_url}/callbacks/{token}"
        try:
            answer = await self._service.create(kind.path, body)
            snapshot = kind.created(answer)
        except Refused as error:
            await self._end_refused(job, error)
        except Unavailable as error:
            await self._wait_for_service(job, error, called=True)
        except (Uncertain, Unreadable) as error:
            _LOG.warning("a create call got no usable answer", extra=_about(job, error))
            await self._leave_open(job)
        else:
            await self._go_on(job, attempt, snapshot)

    async def _go_on(self, job: Job, attempt: int, snapshot: Snapshot) -> None:
        kind, now = self._kinds[job.kind], self._clock.now()
        running = replace(
            job,
            state=State.RUNNING,
            remote_id=snapshot.remote_id,
            snapshot=snapshot,
            started_at=now,
            failures=0,
        )
        due_at = now + self._jittered(self._patience(job).first_interval)
        # Before it is stored: where that fails for good, a person finds its id here.
        _LOG.info("created", extra=_about(running))
        if not await self._store.jobs.record_created(running, attempt, now=now, due_at=due_at):
            _LOG.warning("what a create call made could not be bound to it", extra=_about(job))
            await self._leave_open(job)
            return
        if used := kind.uses(job.params):
            await self._store.replicas.use(used[1], now)
        # Until its first read it is known by what was asked for.
        await self._learn(kind, replace(snapshot, facts=job.params))

    async def _end_refused(self, job: Job, error: Refused) -> None:
        failed = replace(
            job,
            state=State.FAILED,
            failure=FAILURES.get(error.code, Failure.REFUSED),
            reason=error.reason,
        )
        await self._end(failed)

    async def _wait_for_service(self, job: Job, error: OutsideError, *, called: bool) -> None:
        """Put a job back, or end it in the end; ``called``: a create call was begun for it."""
        now = self._clock.now()
        if now - (job.asked_at or job.created_at) >= self._timings.create_within:
            failed = replace(
                job, state=State.FAILED, failure=Failure.UNREACHABLE, reason=error.reason
            )
            await self._end(failed)
            return
        waiting = replace(job, state=State.QUEUED, failures=job.failures + 1)
        due_at = now + self._back_off(waiting, error)
        if called:
            await self._store.jobs.record_not_created(
                waiting, outcome="unavailable", now=now, due_at=due_at
            )
        else:
            await self._store.jobs.release(waiting, now, due_at)

    # ── Not knowing whether it was created ────────────────────────────────────────────────────

    async def _miss(self, job: Job) -> None:
        """Take up a job whose create call was cut off: what it did is not known."""
        _LOG.warning("a create call was cut off", extra=_about(job))
        await self._leave_open(job)

    async def _leave_open(self, job: Job) -> None:
        """Wait for a callback to clear things up; without an address for it none will come."""
        now = self._clock.now()
        due_at = now if self._public_url is None else now + self._timings.reconcile_within
        unconfirmed = replace(job, state=State.UNCONFIRMED, failures=0)
        await self._store.jobs.record_not_created(
            unconfirmed, outcome="uncertain", now=now, due_at=due_at
        )

    async def _ask(self, job: Job) -> None:
        """Look at what callbacks named; else ask the person, ask again, and in the end give up."""
        now = self._clock.now()
        look_again = self._timings.max_wait
        try:
            if await self._heal(job):
                return
        except OutsideError as error:
            job = replace(job, failures=job.failures + 1)
            look_again = self._back_off(job, error)
        asked_at = job.asked_at or now
        if job.asked > 1 and now >= asked_at + self._timings.close_after:
            if await self._store.jobs.expire(job, now):
                _LOG.info("ended", extra=_about(job))
            return
        asks = not job.asked or (job.asked == 1 and now >= asked_at + self._timings.ask_again_after)
        if asks:
            job, asked_at = replace(job, asked=job.asked + 1, asked_at=now), now
        wait = self._timings.ask_again_after if job.asked == 1 else self._timings.close_after
        due_at = min(asked_at + wait, now + look_again)
        if await self._store.jobs.release(job, now, due_at) and asks:
            await self._nudge(job)

    async def _heal(self, job: Job) -> bool:
        """Check the ids that something named for this job's attempts; return whether it moved on.

        Raises:
            OutsideError: the service could not be asked.
        """
        kind = self._kinds[job.kind]
        unread: OutsideError | None = None
        for attempt in await self._store.jobs.candidates(job):
            remote_id = attempt.candidate_id or ""
            try:
                snapshot = await self._fetch(kind, remote_id)
            except Unreadable as error:
                unread = Unavailable(f"The answer could not be read: {error}.")
                continue
            except OutsideError as error:
                if isinstance(error, Refused) and error.code in UNKNOWN_ID:
                    await self._store.jobs.drop_candidate(attempt)
                else:
                    unread = error
                continue
            now = self._clock.now()
            vouched = attempt.user_supplied and not kind.can_compare(snapshot)
            if vouched or kind.matches(job.params, snapshot):
                if await self._store.jobs.adopt(_with(job, attempt, snapshot), attempt, now):
                    await self._learn(kind, snapshot)
                    _LOG.info("found what a create call made", extra=_about(job))
                    return True
                current = await self._store.jobs.fetch(job.id)
                if current is None or current.claim != job.claim:
                    return True  # somebody else has it now, and the hint with it
            _LOG.warning("a named id is not what was asked for", extra=_about(job))
            await self._store.jobs.drop_candidate(attempt)
        if unread is not None:
            raise unread
        return False

    async def _look_after(self, job: Job) -> None:
        """Look at what was named for a job after its end: its card tells of it."""
        now = self._clock.now()
        try:
            if not await self._heal(job):
                await self._store.jobs.release(job, now, None)
        except OutsideError as error:
            waiting = replace(job, failures=job.failures + 1)
            await self._store.jobs.release(waiting, now, now + self._back_off(waiting, error))

    # ── Reading ───────────────────────────────────────────────────────────────────────────────

    async def _read(self, job: Job) -> None:
        kind, remote_id = self._kinds[job.kind], job.remote_id or ""
        if job.attempts > 1:
            # What an earlier create call made is not worth waiting for.
            with contextlib.suppress(OutsideError):
                if await self._heal(job):
                    return
        try:
            snapshot = await self._look(kind, remote_id)
        except (OutsideError, Unreadable) as error:
            await self._go_without(job, error)
            return
        match snapshot.verdict:
            case Verdict.SUCCEEDED:
                await self._end(replace(job, state=State.SUCCEEDED, snapshot=snapshot))
            case Verdict.FAILED:
                await self._end(
                    replace(
                        job,
                        state=State.FAILED,
                        failure=Failure.SERVICE_FAILED,
                        reason=snapshot.reason,
                        snapshot=snapshot,
                    )
                )
            case Verdict.GOING:
                self._notice(kind, snapshot)
                going = replace(job, snapshot=snapshot, failures=0)
                if replica_id := await self._trains(kind, going):
                    await self._wait_for_replica(going, replica_id)
                else:
                    # A video that has waited for its replica begins only now.
                    began = job.started_at if job.waits_for is None else self._clock.now()
                    await self._wait(replace(going, waits_for=None, started_at=began))

    async def _fetch(self, kind: Kind, remote_id: str) -> Snapshot:
        return kind.read(await self._service.read(kind.path, remote_id), remote_id)

    async def _look(self, kind: Kind, remote_id: str) -> Snapshot:
        """Read something that is known to be ours or in use here, and learn of it.

        Raises:
            OutsideError, Unreadable: it could not be read.
        """
        snapshot = await self._fetch(kind, remote_id)
        await self._learn(kind, snapshot)
        return snapshot

    async def _learn(self, kind: Kind, snapshot: Snapshot) -> None:
        """Offer what was read where others can use it, and go on with what waits for it."""
        if kind.catalogued:
            now = self._clock.now()
            await self._store.replicas.learn(snapshot, now)
            if snapshot.verdict is not Verdict.GOING:
                await self._store.jobs.wake_waiting(snapshot.remote_id, now)

    async def _trains(self, kind: Kind, job: Job) -> str | None:
        """Return the id of the job's replica while that is still in training."""
        used = kind.uses(job.params)
        if used is None or job.snapshot is None or not kind.is_waiting(job.snapshot):
            return None
        used_kind, replica_id = self._kinds[used[0]], used[1]
        known = await self._store.replicas.get(replica_id)
        if known is None or known.verdict in {Verdict.SUCCEEDED, Verdict.FAILED}:
            return None
        fresh = self._clock.now() - self._timings.hours.first_interval
        if known.read_at is not None and fresh < known.read_at <= self._clock.now():
            return replica_id if _in_progress(used_kind, known.status) else None
        try:
            snapshot = await self._look(used_kind, replica_id)
        except (OutsideError, Unreadable) as error:
            gone = isinstance(error, Refused) and error.code in UNKNOWN_ID
            return replica_id if _in_progress(used_kind, known.status) and not gone else None
        return replica_id if _in_progress(used_kind, snapshot.status) else None

    async def _wait_for_replica(self, job: Job, replica_id: str) -> None:
        """Leave a video alone while its replica trains: its own time begins after that."""
        now, patience = self._clock.now(), self._timings.hours
        if now - job.created_at >= patience.give_up_after:
            await self._end(replace(job, state=State.FAILED, failure=Failure.TIMED_OUT))
            return
        waiting = replace(
            job, state=State.RUNNING, late=False, waits_for=replica_id, started_at=now, read_at=now
        )
        since = replace(waiting, started_at=job.created_at)
        wait = until_next_read(since, self._timings, patience, now)
        await self._store.jobs.release(waiting, now, now + self._jittered(wait))

    async def _go_without(self, job: Job, error: OutsideError | Unreadable) -> None:
        """Go on without a read. An id that the service does not know may be too new for it."""
        if isinstance(error, Refused) and error.code in UNKNOWN_ID:
            if job.late:
                await self._end(
                    replace(job, state=State.FAILED, failure=Failure.NOT_FOUND, reason=error.reason)
                )
            else:
                await self._wait(job)
            return
        waiting = replace(job, failures=job.failures + 1)
        await self._wait(waiting, at_least=self._back_off(waiting, error))

    async def _wait(self, job: Job, at_least: timedelta = timedelta(0)) -> None:
        now, patience = self._clock.now(), self._patience(job)
        if now - (job.started_at or job.created_at) >= patience.give_up_after:
            await self._end(replace(job, state=State.FAILED, failure=Failure.TIMED_OUT))
            return
        state, late = lateness(job, patience, now)
        going = replace(job, state=state, late=late, read_at=now)
        wait = max(until_next_read(going, self._timings, patience, now), at_least)
        await self._store.jobs.release(going, now, now + self._jittered(wait))

    def _notice(self, kind: Kind, snapshot: Snapshot) -> None:
        status = snapshot.status.casefold()
        word = (kind.name, status[:_SHOWN])
        new = status not in kind.in_progress and word not in self._odd_words
        if new and len(self._odd_words) < _ODD_WORDS:
            self._odd_words.add(word)
            _LOG.warning(
                "the service uses an unknown status", extra={"kind": kind.name, "status": word[1]}
            )

    # ── Parts of the above ────────────────────────────────────────────────────────────────────

    async def _end(self, job: Job) -> None:
        if await self._store.jobs.finish(job, self._clock.now()):
            _LOG.info("ended", extra=_about(job))

    def _patience(self, job: Job) -> PollSchedule:
        hours = job.waits_for is not None or self._kinds[job.kind].schedule == "hours"
        return self._timings.hours if hours else self._timings.minutes

    def _jittered(self, wait: timedelta) -> timedelta:
        return self._timings.jittered(wait, self._rng)

    def _back_off(self, job: Job, error: Exception) -> timedelta:
        asked_for = error.retry_after if isinstance(error, Unavailable) else None
        return self._jittered(asked_for or self._timings.back_off(job.failures))


def _with(job: Job, attempt: Attempt, snapshot: Snapshot) -> Job:
    """Return the job with what one of its create calls was found to have made."""
    if job.remote_id is None and not job.state.ended:
        return replace(
            job,
            state=State.RUNNING,
            remote_id=snapshot.remote_id,
            snapshot=snapshot,
            started_at=attempt.made_at,
            failures=0,
        )
    return replace(job, orphaned_ids=(*job.orphaned_ids, snapshot.remote_id), failures=0)


def _in_progress(kind: Kind, status: str) -> bool:
    """Return whether a status means that. An unknown one holds no job back."""
    return status.casefold() in kind.in_progress


def _about(job: Job, error: Exception | None = None) -> dict[str, str]:
    about = {"job": job.id, "kind": job.kind, "state": job.state.value}
    if job.remote_id:
        about["remote_id"] = job.remote_id[:_SHOWN]
    if error is not None:
        # Not its words: the service may quote in them what somebody wrote.
        about["error"] = type(error).__name__
    return about
