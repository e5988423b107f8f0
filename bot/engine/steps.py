"""What all steps of a job share: the components that they call, and a few operations."""

import asyncio
import logging
import random
import re
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from bot.errors import Unavailable
from bot.kinds import DriftLog, Kind
from bot.model import Job, Snapshot, Verdict
from bot.service.client import VideoService
from bot.service.gate import Call, Held
from bot.store import Store
from bot.timings import Clock, PollSchedule, Timings

_LOG: Final = logging.getLogger(__name__)
_T = TypeVar("_T")
# How long a cancelled step may go on with storing an outcome, in seconds.
_LAST_WRITE_S: Final = 1.0
SHOWN_FROM: Final = timedelta(seconds=10)
"""A card does not change because a call is held back for a shorter time."""
# An id that is anything else, such as a link or a sentence, is not logged.
_LOGGED_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,100}")


@dataclass(frozen=True)
class Runtime:
    """What a step works with."""

    store: Store
    service: VideoService
    kinds: Mapping[str, Kind]
    """The registered kinds by name. Jobs of other kinds wait for an operator."""
    clock: Clock
    timings: Timings
    rng: random.Random
    public_url: str | None
    """Where the service can call back; None leaves everything to polling."""
    drift: DriftLog

    async def read(
        self, kind: Kind, remote_id: str, *, asked_at: datetime | None = None
    ) -> Snapshot:
        """Read something from the service, whether a job of ours made it or not.

        If that was asked for just now, at ``asked_at``, it waits for no rate limit.

        Raises:
            OutsideError, Unreadable: it could not be read.
        """
        # Since the last look for due work.
        is_new = asked_at is not None and (
            abs(self.clock.now() - asked_at) <= self.timings.slow_poll
        )
        answer = await self.service.read(kind.path, remote_id, asked_for=is_new)
        self.drift.compare(kind, answer, created=False)
        return kind.read(answer, remote_id)

    async def create(self, kind: Kind, call: Call, body: Mapping[str, str]) -> Snapshot:
        """Make a create call; only within ``VideoService.admission``.

        Raises:
            OutsideError: as ``VideoService.create`` does.
            Unreadable: something was created, and its answer names no id.
        """

        def read(answer: Any) -> Snapshot:  # noqa: ANN401 - any JSON
            self.drift.compare(kind, answer, created=True)
            return kind.created(answer)

        return await self.service.create(call, body, read)

    async def catalogue(self, kind: Kind, snapshot: Snapshot) -> None:
        """Store what was read if other jobs can use it, and wake those that wait for it."""
        if not kind.catalogued:
            return
        now = self.clock.now()
        await self.store.replicas.learn(snapshot, now)
        if snapshot.verdict is not Verdict.GOING:
            await self.store.jobs.wake_waiting(snapshot.remote_id, now)

    async def finish(self, job: Job) -> None:
        """End a job as ``job`` says; of several that try, the first one wins."""
        if await self.store.jobs.finish(job, self.clock.now()):
            _LOG.info("ended", extra=log_fields(job))

    def schedule(self, job: Job) -> PollSchedule:
        """Return the poll schedule of a job: that of what it waits for, while it does."""
        kind = self.kinds[job.kind]
        if job.waits_for is not None and (used := kind.uses(job.params)) is not None:
            kind = self.kinds.get(used[0], kind)
        return self.schedule_of(kind)

    def schedule_of(self, kind: Kind) -> PollSchedule:
        """Return the poll schedule of a kind."""
        return self.timings.hours if kind.schedule == "hours" else self.timings.minutes

    def jittered(self, wait: timedelta) -> timedelta:
        """Return ``wait`` and a random share more, so that jobs do not poll in step."""
        return self.timings.jittered(wait, self.rng)

    def after_failure(self, job: Job, error: Exception) -> tuple[Job, timedelta]:
        """Return a job after a failed call, and how long to wait before the next one."""
        if isinstance(error, Held):  # which is no failure of the job
            return job, self.jittered(max(error.until - self.clock.now(), timedelta(0)))
        failed = replace(job, failures=job.failures + 1)
        asked_for = error.retry_after if isinstance(error, Unavailable) else None
        return failed, self.jittered(asked_for or self.timings.back_off(failed.failures))


async def uncancelled(write: Coroutine[Any, Any, _T]) -> _T:
    """Await a write of an outcome that must not be lost when the process is asked to end.

    Where the caller is cancelled, the write still has a second.

    Raises:
        CancelledError: the caller was cancelled, whether the write ended or not.
    """
    task = asyncio.create_task(write)  # noqa: TID251 - awaited or cancelled below
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task], timeout=_LAST_WRITE_S)
        if not task.cancel():
            task.exception()  # retrieved, or asyncio would log it
        raise


def log_fields(job: Job, error: Exception | None = None) -> dict[str, str]:
    """Return what the log says about a job: nothing that people wrote."""
    fields = {"job": job.id, "kind": job.kind, "state": job.state.value}
    if job.remote_id:
        fields["remote_id"] = job.remote_id if _LOGGED_ID.fullmatch(job.remote_id) else "other"
    if error is not None:
        # Only its type: the service may quote in its message what a person wrote.
        fields["error"] = type(error).__name__
    return fields
