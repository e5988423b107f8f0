"""Background tasks: the one place that starts, logs and ends them."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any, Final

from bot.clock import Clock
from bot.log import reference

_LOG: Final = logging.getLogger(__name__)


class BackgroundTasks:
    """Private answers to a person, sent after the request was acknowledged.

    They may be lost with the process: no accepted request depends on them.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` in a task of its own; log what it raises."""
        task = asyncio.create_task(self._logged(work))  # noqa: TID251 - this is the one place
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def spawn_at(
        self, clock: Clock, at: datetime, work: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Run ``work`` at a time by ``clock``; a process that stops before that drops it."""
        task = asyncio.create_task(self._wait(clock, at, work))  # noqa: TID251 - as above
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def settled(self) -> bool:
        """Wait until no task is left but those for later; return whether there was one."""
        busy = bool(self._tasks)
        while self._tasks:
            await asyncio.wait(self._tasks)
        return busy

    async def stop(self, timeout: timedelta) -> None:  # noqa: ASYNC109 - cancels at the end
        """Wait for the tasks for at most ``timeout``, then cancel the rest."""
        for task in tuple(self._waiting):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout.total_seconds())
        for task in tuple(self._tasks):
            task.cancel()
        await self.settled()

    async def _wait(
        self, clock: Clock, at: datetime, work: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        while clock.now() < at:
            await clock.wait(asyncio.Event(), at)
        self.spawn(work())

    async def _logged(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception:  # noqa: BLE001 - no caller awaits the task
            _LOG.exception("a background task failed", extra={"reference": reference()})
