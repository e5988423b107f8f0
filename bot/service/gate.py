"""The gate: which calls the video service takes now; of those it does not: until when, and why.

All of it is in memory: after a restart, the first calls find out again, and each copy of the bot
finds out for itself.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from bot.errors import OutsideError, Refused, Unavailable
from bot.model import Failure
from bot.timings import Clock, Timings, doubled

EVERYBODY: Final = ""
"""Whom a hold concerns that covers every call."""
OUTAGE: Final = frozenset({Failure.SERVICE_DOWN, Failure.SERVICE_TROUBLE})
"""Why calls are held back that show whether the service works."""
_MAX_CALLS: Final = 64  # at the same time
# After a rate limit calls are made one by one. Each time this many succeed, one more is allowed.
_SUCCESSES_PER_CALL: Final = 10
# After this time without a new refusal, a rate limit is forgotten.
_LIMITED_FOR: Final = timedelta(minutes=1)
_BUSY: Final = "The video service is busy."


class Held(Unavailable):
    """A call was not made, or was refused, because its gate is closed.

    ``until`` is when the next try is due, ``failure`` why the gate is closed: a job that waits for
    too long fails with it.
    """

    def __init__(
        self, reason: str, *, until: datetime, failure: Failure, retry_after: timedelta | None
    ) -> None:
        super().__init__(reason, retry_after=retry_after)
        self.until = until
        self.failure = failure


class AccountRefused(Refused):
    """A call was refused, not for what it asked for but for our key or account.

    ``held`` says when the next try is due, and ``accepted_at`` when a call like it was accepted
    last since the start, if one was.
    """

    def __init__(self, error: Refused, held: Held, *, accepted_at: datetime | None) -> None:
        super().__init__(error.reason, code=error.code)
        self.failure = held.failure
        self.held = held
        self.accepted_at = accepted_at


@dataclass(eq=False, slots=True)
class Call:
    """One call: what it is for, and whose it is."""

    path: str
    user: str = ""
    own: Sequence[str] = ()
    """Whom it concerns, beside everybody who calls this path: a person, a replica."""
    asked_for: bool = False
    """It is tried at once, whenever the next try is due: somebody says that it is worth it."""
    has_slot: bool = False
    failed: bool = False
    """It is known to have gone wrong, even if it still waits for its answer."""


@dataclass(slots=True)
class Hold:
    """Why calls are held back, and until when. Then they are tried, one at a time."""

    failure: Failure
    error: OutsideError
    until: datetime
    wait: timedelta
    refusals: int = 1
    """In a row."""
    tried_by: Call | None = None

    @property
    def held(self) -> Held:
        """What to raise in place of a call that it covers."""
        return Held(
            self.error.reason,
            until=self.until,
            failure=self.failure,
            retry_after=self.error.retry_after,
        )


class Gate:
    """Holds calls back, each for a reason of its own, and limits how many are made at a time.

    The caller says how a call went: ``release`` ends a hold, ``hold`` sets the next try. After
    anything else, the next caller tries.

    While others wait, one person's calls get half of the slots at most.

    Args:
        at_start: how many calls are made at the same time before the first success.
        at_rest: the same after a time without calls, or after trouble. Each success allows one
            more.
    """

    def __init__(
        self,
        clock: Clock,
        timings: Timings,
        *,
        at_start: int = _MAX_CALLS,
        at_rest: int = _MAX_CALLS,
    ) -> None:
        self._clock = clock
        self._timings = timings
        self._at_rest = at_rest
        self._allowed = float(at_start)
        self._holds: dict[tuple[Failure, str], Hold] = {}
        self._limited_at: datetime | None = None
        self._calls: Counter[str] = Counter()  # by person
        self._queued: Counter[str] = Counter()  # likewise
        self._changed = asyncio.Event()
        self._is_paused = False
        self._drains = False

    # ── Holds ─────────────────────────────────────────────────────────────────────────────────

    def find(self, failure: Failure, whom: str = EVERYBODY) -> Hold | None:
        """Return a hold, whether or not its next try is due."""
        return self._holds.get((failure, whom))

    def all(self, failure: Failure) -> list[Hold]:
        """Return all holds for one reason."""
        return [hold for (why, _), hold in self._holds.items() if why is failure]

    def hold(
        self,
        failure: Failure,
        error: OutsideError,
        wait: timedelta | None = None,
        *,
        whom: str = EVERYBODY,
        call: Call | None = None,
        pace: float = 1.0,
    ) -> Held:
        """Hold calls back for ``wait``; return what to raise in place of ``error``.

        Without ``wait``, or with none at all, it grows with each try in a row that was in vain:
        ``call`` is one, unless it began before the others were held back. ``pace`` is a factor.
        """
        now = self._clock.now()
        known = self.find(failure, whom)
        if known is None:
            known = self._holds[failure, whom] = Hold(failure, error, now, timedelta(0))
        elif call is None or known.tried_by is call or not self._is_shut(known):
            known.refusals += 1
        known.error = error
        first, longest = self._timings.first_hold, self._timings.max_hold
        known.wait = wait or min(doubled(first, known.refusals, longest) * pace, longest)
        known.until = now + known.wait
        if failure is Failure.UNREACHABLE:
            self._allowed, self._limited_at = 1.0, now
        self._wake()
        return known.held

    def release(self, failure: Failure, whom: str = EVERYBODY) -> Hold | None:
        """End a hold, and return it if there was one."""
        released = self._holds.pop((failure, whom), None)
        if released is not None:
            self._wake()
        return released

    def try_now(self, failure: Failure, whom: str = EVERYBODY) -> None:
        """Let the next caller try, whenever the next try was due."""
        if (hold := self.find(failure, whom)) is not None:
            hold.until = self._clock.now()

    def is_shut(self, failure: Failure, whom: str = EVERYBODY) -> bool:
        """Return whether calls are held back, and no try is due."""
        hold = self.find(failure, whom)
        return hold is not None and self._is_shut(hold)

    @property
    def is_limited(self) -> bool:
        """Whether a call was refused not long ago because there were too many."""
        since = self._limited_at
        return since is not None and timedelta(0) <= self._clock.now() - since < _LIMITED_FOR

    # ── Slots ─────────────────────────────────────────────────────────────────────────────────

    @asynccontextmanager
    async def admit(self, call: Call) -> AsyncIterator[None]:
        """Let the caller make a call, which may have to wait for its turn.

        Raises:
            Held: the gate is closed, or it was not the call's turn in time.
        """
        await self._enter(call)
        try:
            yield
        finally:
            self.leave(call)

    def leave(self, call: Call) -> None:
        """Take the slot from a call, if it has one: it ends, or has no answer for too long."""
        if call.has_slot:
            call.has_slot = False
            self._calls[call.user] -= 1
            for hold in self._holds.values():
                if hold.tried_by is call:
                    hold.tried_by = None
            self._wake()

    def pause(self) -> None:
        """Let nobody in before ``resume``, and before all calls under way have shown how they go.

        Then only as many are let in as after a rest.
        """
        self._is_paused = self._drains = True
        self._allowed = min(self._allowed, self._at_rest)

    def resume(self) -> None:
        """Let callers in again."""
        self._is_paused = False
        self._wake()

    def passed(self) -> None:
        """Note that a call was taken; if all that are allowed are made, allow more."""
        if self._calls.total() >= int(self._allowed):
            more = 1 / (_SUCCESSES_PER_CALL * self._allowed) if self.is_limited else 1.0
            self._allowed = min(_MAX_CALLS, self._allowed + more)
        self.release(Failure.UNREACHABLE)

    async def _enter(self, call: Call) -> None:
        self._queued[call.user] += 1
        try:
            async with asyncio.timeout(self._timings.turn_timeout.total_seconds()):
                while self._must_wait(call):
                    await self._changed.wait()
        except TimeoutError:
            until = self._clock.now() + self._timings.turn_timeout
            raise Held(_BUSY, until=until, failure=Failure.UNREACHABLE, retry_after=None) from None
        finally:
            self._queued[call.user] -= 1
        call.has_slot = True
        self._calls[call.user] += 1
        for hold in self._covering(call):
            hold.tried_by = call

    def _must_wait(self, call: Call) -> bool:
        """Return whether to wait for a turn.

        Raises:
            Held: the gate is closed, and no try is due.
        """
        holds = self._covering(call)
        shut = [each for each in holds if self._is_shut(each)]
        if shut and not call.asked_for:
            raise max(shut, key=lambda each: each.until).held
        self._drains &= self._calls.total() > 0
        if self._is_paused or self._drains or any(each.tried_by for each in holds):
            return True
        limit = self._limit()
        others_wait = self._queued.total() > self._queued[call.user]
        share = max(1, limit // 2) if others_wait else limit
        return self._calls.total() >= limit or self._calls[call.user] >= share

    def _limit(self) -> int:
        """Return how many calls may be made at the same time."""
        if not self._calls.total() and self._queued.total() <= 1 and not self.is_limited:
            self._allowed = min(self._allowed, self._at_rest)  # an earlier rush is no guide
        return 1 if self.find(Failure.UNREACHABLE) is not None else int(self._allowed)

    def _covering(self, call: Call) -> list[Hold]:
        """Return the holds that cover a call."""
        whom = {EVERYBODY, call.path, *call.own}
        return [hold for (_, who), hold in self._holds.items() if who in whom]

    def _is_shut(self, hold: Hold) -> bool:
        # No hold lasts longer because the clock was set back.
        return timedelta(0) < hold.until - self._clock.now() <= hold.wait

    def _wake(self) -> None:
        """Let all callers look again whether it is their turn."""
        self._changed.set()
        self._changed = asyncio.Event()
