"""Requests go before background work: a claim waits while requests are being answered."""

import asyncio
import contextlib
from collections.abc import Iterator

from bot.timings import WorkTimings


class RequestPriority:
    """Delays background work while requests are being answered, but not for long.

    Slack gives an answer three seconds and people see a tenth of one; jobs take minutes. With many
    requests at once, the bot answers several times as many of them per second this way
    (``python -m benchmarks ack``). A request counts for ``max_request_time``: one that takes longer
    waits for somebody else, such as Slack opening a form.
    """

    def __init__(self, timings: WorkTimings) -> None:
        self._max_request_s = timings.max_request_time.total_seconds()
        self._pause_s = timings.request_pause.total_seconds()
        self._max_delay_s = timings.max_request_delay.total_seconds()
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

    @property
    def requests_in_progress(self) -> bool:
        """Whether requests are being answered, or were a moment ago."""
        return self._busy_until(asyncio.get_running_loop().time()) is not None

    async def wait_for_pause(self, stop: asyncio.Event) -> None:
        """Return once no request is being answered, after the longest delay, or at ``stop``."""
        loop = asyncio.get_running_loop()
        latest = loop.time() + self._max_delay_s
        while not stop.is_set() and (now := loop.time()) < latest:
            if (busy_until := self._busy_until(now)) is None:
                return
            # No longer than a pause: a request may be answered meanwhile.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(min(busy_until, latest, now + self._pause_s)):
                    await stop.wait()

    def _busy_until(self, now: float) -> float | None:
        """Return until when background work waits, as things are; None if it does not."""
        busy_until = self._last_end + self._pause_s
        if self._in_progress:
            busy_until = max(busy_until, self._last_start + self._max_request_s)
        return busy_until if busy_until > now else None
