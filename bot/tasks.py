"""Tasks: those in the background, the parts that run until the bot stops, and who goes first."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterator
from datetime import timedelta
from typing import Any, Final

from bot.errors import OperatorError
from bot.log import reference
from bot.store import DatabaseError
from bot.timings import Timings

_LOG: Final = logging.getLogger(__name__)


class BackgroundTasks:
    """Private answers to a person, sent after the request was acknowledged.

    They may be lost with the process: no accepted request depends on them.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None], *, later: bool = False) -> asyncio.Task[None]:
        """Run ``work`` in a task of its own, which is returned; log what it raises.

        One for ``later`` only waits for its time: nobody waits for it, and the stop drops it.
        """
        tasks = self._waiting if later else self._tasks
        task = asyncio.create_task(self._logged(work))  # noqa: TID251 - this is the one place
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    async def settled(self) -> None:
        """Wait until no task is left but those for later."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def stop(self, timeout: timedelta) -> None:  # noqa: ASYNC109 - cancels at the end
        """Wait for the tasks for at most ``timeout``, then cancel the rest."""
        for task in tuple(self._waiting):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout.total_seconds())
        for task in tuple(self._tasks):
            task.cancel()
        await self.settled()

    async def _logged(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except DatabaseError as error:
            _LOG.warning("a background task stored nothing", extra={"reason": str(error)})
        except Exception:  # noqa: BLE001 - no caller awaits the task
            _LOG.exception("a background task failed", extra={"reference": reference()})


# ── Parts of the bot ──────────────────────────────────────────────────────────────────────────────


class PartFailed(OperatorError):
    """A part of the bot ended by itself; ``str()`` says which to the person who runs the bot."""


def start_part(run: Callable[[], Coroutine[Any, Any, None]], name: str) -> asyncio.Task[None]:
    """Start a part. The bot watches it, and awaits it once it has been cancelled."""
    return asyncio.create_task(run(), name=name)  # noqa: TID251 - it is awaited


# ── Requests go before background work ────────────────────────────────────────────────────────────

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
