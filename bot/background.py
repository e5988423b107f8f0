"""Work that nobody waits for: the one place that owns such tasks, and ends them."""

import asyncio
import logging
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, Final

from bot.log import reference

_LOG: Final = logging.getLogger(__name__)


class Background:
    """Answers that go out after Slack has been told that its request arrived.

    They may be lost with the process: nothing that was accepted depends on them.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Have it done."""
        task = asyncio.create_task(self._guarded(work))  # noqa: TID251 - this is the one place
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settled(self) -> bool:
        """Return when nothing is under way; say whether anything was."""
        busy = bool(self._tasks)
        while self._tasks:
            await asyncio.wait(self._tasks)
        return busy

    async def stop(self, within: timedelta) -> None:
        """Give what is under way so much time, then end it."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within.total_seconds())
        for task in tuple(self._tasks):
            task.cancel()
        await self.settled()

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception:  # noqa: BLE001 - nobody else would hear of it
            _LOG.exception("an answer could not be given", extra={"reference": reference()})
