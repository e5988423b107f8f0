"""Look for what an unanswered create call made, among what the service lists."""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from bot.attempt import Attempt, Offer
from bot.engine.runtime import Runtime, log_fields
from bot.errors import OutsideError
from bot.kinds import Kind, Unreadable
from bot.kinds.listed import Listed
from bot.model import Job

_LOG: Final = logging.getLogger(__name__)
_TOKEN_HASH: Final = re.compile(r"callbacks/([0-9a-f]{64})\b")
# The next look is when the attempt is three times as old.
_GROWTH: Final = 2


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at the list showed."""

    offer: Offer | None = None
    """The only item that may be the job's."""
    named: bool = False
    """Whether an item has the token of an attempt: it is the attempt's candidate now."""
    next_at: datetime | None = None
    """When to look again; None for not any more."""
    waits_until: datetime | None = None
    """Until when nobody is asked; None if it is time to ask."""


async def look_up(runtime: Runtime, job: Job) -> Look:
    """Look for what the create calls of an unconfirmed job made.

    What has the token of an attempt becomes its candidate, as if a callback had named it. Nothing
    else is adopted without a person: what has the same content may be somebody else's.
    """
    listing, timings = runtime.listing, runtime.timings
    if listing is None or job.offer is not None:
        return Look()
    kind, now = runtime.kinds[job.kind], runtime.clock.now()
    attempts = await runtime.store.jobs.unanswered(job)
    if not attempts:
        return Look()
    age = max(now - attempts[-1].made_at, timings.first_look)
    # When the job is asked about again, there is one look more.
    if age >= timings.look_for + timings.ask_again_after:
        return Look()
    next_at = now + runtime.jittered(age * _GROWTH) if age < timings.look_for else None
    since = attempts[0].made_at - timings.created_before
    try:
        listed = await listing.recent(kind, since)
    except (OutsideError, Unreadable) as error:
        _LOG.info("what the service has could not be listed", extra=log_fields(job, error))
        listed = ()
    for attempt in attempts:
        for each in listed:
            if attempt.token_hash in _TOKEN_HASH.findall(each.callback_url):
                await runtime.store.jobs.name_candidate(attempt, each.id, now)
                return Look(named=True, next_at=next_at)
    offer = await _only_match(runtime, kind, job, attempts, listed)
    return Look(offer, next_at=next_at, waits_until=_waits_until(runtime, job, attempts, offer))


async def _only_match(
    runtime: Runtime, kind: Kind, job: Job, attempts: list[Attempt], listed: Sequence[Listed]
) -> Offer | None:
    """Return what may be the job's, if that is one item alone."""
    alike = {
        each.id: each
        for each in listed
        # What has another token is another's.
        if not each.callback_url
        and not each.snapshot.deleted
        and _is_near(runtime, each.created_at, attempts)
        and kind.resembles(job.params, each.fields)
    }
    free = await runtime.store.jobs.free_ids(kind.name, alike, attempts[-1]) if alike else []
    if len(free) != 1:
        return None
    return Offer(free[0], alike[free[0]].created_at)


def _is_near(runtime: Runtime, created_at: datetime | None, attempts: list[Attempt]) -> bool:
    """Return whether something was created about when one of the attempts was made.

    It is if its time is not known.
    """
    if created_at is None:
        return True
    timings = runtime.timings
    return any(
        -timings.created_before <= created_at - attempt.made_at <= timings.created_within
        for attempt in attempts
    )


def _waits_until(
    runtime: Runtime, job: Job, attempts: list[Attempt], offer: Offer | None
) -> datetime | None:
    """Return until when nobody is asked: a callback may say it, or a later look."""
    if job.asked or (offer is not None and runtime.public_url is None):
        return None
    timings = runtime.timings
    within = timings.look_within if runtime.public_url is None else timings.reconcile_within
    until = attempts[-1].made_at + within
    return until if timedelta(0) < until - runtime.clock.now() <= within else None
