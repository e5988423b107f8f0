"""Requests go before background work, which begins fewer steps while requests are answered."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

from bot.timings import Timings

# Of its free slots, a worker fills a fourth each time while one request waits, and a sixteenth
# however many do: with ten times a second, that is more than half of them in each second.
_BESIDE_ONE: Final = 4
_BESIDE_MANY: Final = 16


class RequestPriority:
    """Slows background work down while requests are being answered.

    Slack gives an answer three seconds and people see a tenth of one; jobs take minutes, and a
    whole job takes several times the processor time of storing its form. So a worker waits for a
    pause between requests, for up to ``max_request_delay``, and then begins the fewer steps the
    more requests wait (``python -m benchmarks ack``).
    """

    def __init__(self, timings: Timings) -> None:
        self._pause_s = timings.request_pause.total_seconds()
        self._max_delay_s = timings.max_request_delay.total_seconds()
        self._in_progress = 0
        self._last_end = float("-inf")

    @contextlib.contextmanager
    def request(self) -> Iterator[None]:
        """Answer a request meanwhile."""
        self._in_progress += 1
        try:
            yield
        finally:
            self._in_progress -= 1
            self._last_end = asyncio.get_running_loop().time()

    def share(self, free: int) -> int:
        """Return how many steps may begin now in ``free`` slots: one at least in any."""
        if self._pause_ends <= asyncio.get_running_loop().time():
            return free
        waiting = max(self._in_progress, 1)  # in a burst, the next one is near
        return max(free // (_BESIDE_ONE * waiting), -(-free // _BESIDE_MANY))

    async def wait_for_pause(self, stop: asyncio.Event) -> None:
        """Return once requests pause, after ``max_request_delay``, or at ``stop``."""
        loop = asyncio.get_running_loop()
        latest = loop.time() + self._max_delay_s
        while not stop.is_set() and loop.time() < min(latest, self._pause_ends):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(min(latest, self._pause_ends)):
                    await stop.wait()

    @property
    def _pause_ends(self) -> float:
        """When requests will have paused for long enough, if none comes until then."""
        last = asyncio.get_running_loop().time() if self._in_progress else self._last_end
        return last + self._pause_s
