"""The engine: takes jobs further one step at a time; the process may die in any step.

A step is chosen by the job's state: ``create`` makes the create call, ``reconcile`` finds out what
an unanswered one made, or waits for approval, ``poll`` reads what was created. Their shared pieces
are in ``steps``.
"""

import logging
from collections.abc import Collection
from typing import Final

from bot.engine.create import create_job
from bot.engine.poll import poll_job
from bot.engine.reconcile import (
    await_approval,
    mark_unconfirmed,
    reconcile_ended,
    reconcile_job,
)
from bot.engine.steps import Runtime, log_fields
from bot.model import Failure, Job, State
from bot.store import Claimed, DatabaseError, soonest

_LOG: Final = logging.getLogger(__name__)
# Create calls under way at a time, and other steps. The worker has more slots than either, so that
# neither waits for the other: not a new request for the polls of many jobs, or these for a service
# that is slow to create.
_MAX_OF_ONE_SORT: Final = 48
# Of what waits for the service to work again: one of them finds out.
_MAX_TO_TRY: Final = 4
_TO_CREATE: Final = frozenset({State.QUEUED, State.CREATING})


class Engine:
    """The ``Work`` of the worker for jobs."""

    def __init__(self, runtime: Runtime) -> None:
        self.due = runtime.store.jobs.due
        self._runtime = runtime
        self._reported_kinds: set[str] = set()

    async def claim(self, limit: int, held: Collection[Job] = ()) -> Claimed[Job]:
        """Lease up to ``limit`` due jobs that are not ``held`` by this process."""
        free_creates, free_others = _free(held)
        # Half of what may begin: what was begun is finished at the same pace.
        creates = min(free_creates, -(-limit // 2))
        runtime = self._runtime
        kinds = runtime.kinds.values()
        # The service creates none of these now.
        down = [each.name for each in kinds if runtime.service.is_down(each.path)]
        now = runtime.clock.now()
        if any(runtime.service.next_try(kind.path) for kind in kinds):
            creates = min(creates, _MAX_TO_TRY)
        claimed = await runtime.store.jobs.claim(
            now,
            limit,
            [job.id for job in held],
            creates=creates,
            others=free_others,
            down=down,
        )
        claimed.full = min(_free([*held, *claimed])) <= 0
        # Those that wait for the end of an outage are tried when its gate says so.
        tries = [runtime.service.next_try(runtime.kinds[name].path) for name in down]
        latest = [now + runtime.timings.max_wait] if down else []
        ahead = [at for at in tries if at is not None and at > now]
        claimed.next_due = soonest([claimed.next_due, *ahead, *latest])
        return claimed

    async def step(self, job: Job) -> None:
        """Take a claimed job one step further."""
        if job.kind not in self._runtime.kinds:
            if job.kind not in self._reported_kinds:
                self._reported_kinds.add(job.kind)
                _LOG.error("jobs of an unknown kind wait", extra=log_fields(job))
            return  # until its lease ends
        match job.state:
            case State.WAITING_FOR_APPROVAL:
                await await_approval(self._runtime, job)
            case State.QUEUED:
                await create_job(self._runtime, job)
            case State.CREATING:
                _LOG.warning("a create call was interrupted", extra=log_fields(job))
                await mark_unconfirmed(self._runtime, job)
            case State.UNCONFIRMED:
                await reconcile_job(self._runtime, job)
            case State.RUNNING | State.OVERDUE:
                await poll_job(self._runtime, job)
            case State.SUCCEEDED | State.FAILED:
                await reconcile_ended(self._runtime, job)

    async def hasten(self, failures: Collection[Failure]) -> None:
        """Try the jobs again soon whose calls failed, or that ``failures`` held back."""
        self.due.set()
        runtime = self._runtime
        while hastened := await runtime.store.jobs.hasten(runtime.clock.now(), failures):
            _LOG.info("jobs are tried again", extra={"jobs": hastened})

    async def newest_made(self) -> tuple[str, str] | None:
        """Return the path and the id of what was created last, if that is known."""
        try:
            newest = await self._runtime.store.jobs.fetch_newest_made()
        except DatabaseError:
            return None
        kind = self._runtime.kinds.get(newest[0]) if newest is not None else None
        return None if newest is None or kind is None else (kind.path, newest[1])


def _free(held: Collection[Job]) -> tuple[int, int]:
    """Return how many more jobs to be created may be claimed, and how many others."""
    creates = sum(job.state in _TO_CREATE for job in held)
    return _MAX_OF_ONE_SORT - creates, _MAX_OF_ONE_SORT - (len(held) - creates)
