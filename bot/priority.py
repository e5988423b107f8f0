"""Requests go before background work: a claim waits while requests are being answered."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Final

from bot.timings import Timings

# While requests are answered, a fourth of the slots is filled: each step under way delays them.
_BESIDE_REQUESTS: Final = 4
# While forms wait to be stored. Measured on PostgreSQL: a whole job takes six times the processor
# time of storing its form.
_IN_OVERLOAD: Final = 2


class RequestPriority:
    """Delays background work while requests are being answered, but not for long.

    Slack gives an answer three seconds and people see a tenth of one; jobs take minutes. With many
    requests at once, the bot answers several times as many of them per second this way
    (``python -m benchmarks ack``). A request counts for ``max_request_time``: one that takes longer
    waits for somebody else, such as Slack opening a form.

    While forms wait long to be stored, background work is held back further: other copies of the
    bot, and the server of the database, may share what this one leaves free.

    Args:
        timings: how long.
        storing_for: returns for how many seconds forms have been waiting to be stored.
    """

    def __init__(self, timings: Timings, storing_for: Callable[[], float]) -> None:
        self._max_request_s = timings.max_request_time.total_seconds()
        self._pause_s = timings.request_pause.total_seconds()
        self._max_delay_s = timings.max_request_delay.total_seconds()
        self._max_overload_delay_s = timings.max_overload_delay.total_seconds()
        self._slow_store_s = timings.slow_store.total_seconds()
        self._storing_for = storing_for
        self._in_progress = 0
        self._last_start = self._last_end = float("-inf")

    @contextlib.contextmanager
    def request(self) -> Iterator[None]:
        """Answer a request meanwhile."""
        loop = asyncio.get_running_loop()
        self._last_start = loop.time()
        self._in_progress += 1
        try:
            yield
        finally:
            self._in_progress -= 1
            self._last_end = loop.time()

    def slots(self, number: int) -> int:
        """Return how many of a worker's slots may be filled now."""
        if self._is_overloaded:
            return _IN_OVERLOAD
        is_busy = self._busy_until(asyncio.get_running_loop().time()) is not None
        return number // _BESIDE_REQUESTS if is_busy else number

    async def wait_for_pause(self, stop: asyncio.Event) -> None:
        """Return once no request is being answered, after the longest delay, or at ``stop``."""
        loop = asyncio.get_running_loop()
        longest = self._max_overload_delay_s if self._is_overloaded else self._max_delay_s
        latest = loop.time() + longest
        while not stop.is_set() and (now := loop.time()) < latest:
            if (busy_until := self._busy_until(now)) is None:
                return
            # No longer than a pause: a request may be answered meanwhile.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(min(busy_until, latest, now + self._pause_s)):
                    await stop.wait()

    @property
    def _is_overloaded(self) -> bool:
        return self._storing_for() > self._slow_store_s

    def _busy_until(self, now: float) -> float | None:
        """Return until when background work waits, as things are; None if it does not."""
        if self._is_overloaded:
            return now + self._pause_s
        busy_until = self._last_end + self._pause_s
        if self._in_progress:
            busy_until = max(busy_until, self._last_start + self._max_request_s)
        return busy_until if busy_until > now else None
