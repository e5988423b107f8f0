"""Gates: hold calls back that the video service would refuse, and find out when it no longer does.

All of it is in memory: after a restart, the first call finds out again, and each copy of the bot
finds out for itself.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Final

from bot.clock import Clock
from bot.errors import OutsideError, Refused, Unavailable
from bot.model import Failure
from bot.timings import Timings

_MAX_CALLS: Final = 64  # at the same time
# After a rate limit calls are made one by one. Each time this many succeed, one more is allowed.
_SUCCESSES_PER_CALL: Final = 10
# After this time without a new refusal, a rate limit is forgotten.
_LIMITED_FOR: Final = timedelta(minutes=1)


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


class Gate:
    """Closes after a refusal. When the next try is due, it lets one call through at a time.

    The caller says how that call went: ``passed`` opens the gate, ``close`` sets the next try.
    After anything else, the next caller tries.
    """

    def __init__(self, failure: Failure, clock: Clock, timings: Timings) -> None:
        self._failure = failure
        self._clock = clock
        self._timings = timings
        self._refusal: OutsideError | None = None
        self._wait = timedelta(0)
        self._next_try = clock.now()
        self._refusals = 0
        self._calls = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.passed_at: datetime | None = None  # since the start

    @property
    def refusal(self) -> OutsideError | None:
        """Why the gate is closed; None while it is open."""
        return self._refusal

    @property
    def next_try(self) -> datetime | None:
        """When the next call is let through; None while it is open."""
        return None if self._refusal is None else self._next_try

    @asynccontextmanager
    async def admit(self) -> AsyncIterator[None]:
        """Let the caller make one call, which may have to wait for its turn.

        Raises:
            Held: the gate is closed, or it was not the caller's turn in time.
        """
        await self._enter()
        try:
            yield
        finally:
            self._calls -= 1
            self._wake()

    def close(self, error: OutsideError, wait: timedelta | None = None) -> Held:
        """Hold calls back for ``wait``; return what to raise in place of ``error``.

        Without ``wait``, or with none at all, it grows with each refusal in a row.
        """
        self._refusals += 1
        self._refusal = error
        self._wait = wait or self._timings.gate_back_off(self._refusals)
        self._next_try = self._clock.now() + self._wait
        self._wake()
        return self._held(self._next_try)

    def passed(self) -> bool:
        """Note that a call was not refused; return whether that opened the gate."""
        opened = self._refusal is not None
        self._refusal, self._refusals, self.passed_at = None, 0, self._clock.now()
        self._wake()
        return opened

    def try_now(self) -> None:
        """Let the next caller try, whenever the next try was due."""
        self._next_try = self._clock.now()

    def _limit(self) -> int:
        """Return how many calls may be made at the same time."""
        return _MAX_CALLS if self._refusal is None else 1

    async def _enter(self) -> None:
        try:
            async with asyncio.timeout(self._timings.turn_timeout.total_seconds()):
                while self._must_wait():
                    turn = asyncio.get_running_loop().create_future()
                    self._waiting.append(turn)
                    await turn
        except TimeoutError:
            self._wake()  # its turn may have come just now
            raise self._held(self._clock.now() + self._timings.turn_timeout) from None
        except asyncio.CancelledError:
            self._wake()
            raise
        self._calls += 1

    def _must_wait(self) -> bool:
        """Return whether to wait for a turn.

        Raises:
            Held: the gate is closed, and no try is due.
        """
        if self._is_shut():
            raise self._held(self._next_try)
        return self._calls >= self._limit()

    def _is_shut(self) -> bool:
        left = self._next_try - self._clock.now()
        # No gate stays closed for longer because the clock was set back.
        return self._refusal is not None and timedelta(0) < left <= self._wait

    def _wake(self) -> None:
        """Let as many callers look again as there is room for; all, if they are in vain."""
        room = len(self._waiting) if self._is_shut() else self._limit() - self._calls
        while self._waiting and room > 0:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                room -= 1

    def _held(self, until: datetime) -> Held:
        error = self._refusal
        return Held(
            error.reason if error else "The video service is busy.",
            until=until,
            failure=self._failure,
            retry_after=error.retry_after if isinstance(error, Unavailable) else None,
        )


class RateGate(Gate):
    """The gate for a rate limit: it also limits how many calls are made at the same time.

    A service that takes a few calls a second refuses one call in each second, not all that wait.

    Args:
        first_calls: how many calls are made at the same time after a time without any. Each success
            allows one more.
    """

    def __init__(self, clock: Clock, timings: Timings, *, first_calls: int = _MAX_CALLS) -> None:
        super().__init__(Failure.UNREACHABLE, clock, timings)
        self._first_calls = first_calls
        self._allowed = float(first_calls)
        self._refused_at: datetime | None = None

    @property
    def limited(self) -> bool:
        """Whether a call was refused not long ago."""
        if self._refused_at is None:
            return False
        return timedelta(0) <= self._clock.now() - self._refused_at < _LIMITED_FOR

    def close(self, error: OutsideError, wait: timedelta | None = None) -> Held:
        """Hold calls back for ``wait``, then make them one by one."""
        self._allowed = 1.0
        self._refused_at = self._clock.now()
        return super().close(error, wait)

    def passed(self) -> bool:
        """Note that a call was not refused; if all that were allowed are made, allow more."""
        if self._calls >= int(self._allowed):
            more = 1 / (_SUCCESSES_PER_CALL * self._allowed) if self.limited else 1.0
            self._allowed = min(_MAX_CALLS, self._allowed + more)
        return super().passed()

    def _limit(self) -> int:
        if not self._calls and not self._waiting and not self.limited:
            self._allowed = float(self._first_calls)  # an earlier rush is no guide
        return min(int(self._allowed), super()._limit())
