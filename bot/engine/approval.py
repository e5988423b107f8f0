"""Wait for the approval of a job, and end it when its time is over."""

import logging
from typing import Final

from bot.engine.reconcile import check_candidates
from bot.engine.steps import Runtime, log_fields
from bot.errors import OutsideError
from bot.model import Job

_LOG: Final = logging.getLogger(__name__)


async def await_approval(runtime: Runtime, job: Job) -> None:
    """Leave a job alone that waits for approval, until that expires.

    One that waits to be created again is not, if what an earlier call made turns up.
    """
    now, wait = runtime.clock.now(), runtime.timings.max_wait
    try:
        if job.attempts and await check_candidates(runtime, job):
            return
    except OutsideError as error:
        job = runtime.failed(job, error)
        wait = runtime.retry_delay(job, error)
    until = job.approval.until if job.approval is not None else now
    if now < until:
        await runtime.store.jobs.release(job, now, min(until, now + wait))
    elif await runtime.store.jobs.expire(job, now):
        _LOG.info("ended", extra=log_fields(job))
