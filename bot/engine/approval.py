"""Wait for the approval of a job, and end it when its time is over."""

import logging
from typing import Final

from bot.engine.runtime import Runtime, log_fields
from bot.model import Job

_LOG: Final = logging.getLogger(__name__)


async def await_approval(runtime: Runtime, job: Job) -> None:
    """Leave a job alone that waits for approval, until that expires."""
    now = runtime.clock.now()
    until = job.approval.until if job.approval is not None else now
    if now < until:
        due_at = min(until, now + runtime.timings.max_wait)
        await runtime.store.jobs.release(job, now, due_at)
    elif await runtime.store.jobs.expire_approval(job, now):
        _LOG.info("ended", extra=log_fields(job))
