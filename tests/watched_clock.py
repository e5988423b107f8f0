"""A clock from which tests see when the bot has nothing left to do."""

import asyncio
from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any, Final

from bot.app import Bot
from bot.timings import Clock

#: The parts of a bot that wait on its clock when they have nothing to do.
_PARTS: Final = frozenset(
    {
        *("engine", "messenger", "home publisher", "memory", "sweep", "list of replicas"),
        "check of the video service",
    }
)


class WatchedClock:
    """A clock that knows which tasks wait on it: a loop that does has nothing to do."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waits: dict[asyncio.Task[Any] | None, asyncio.Event] = {}
        self._changed = asyncio.Event()

    def now(self) -> datetime:
        """Return the present moment of the clock."""
        return self._clock.now()

    async def wait(self, event: asyncio.Event, until: datetime | None = None) -> None:
        """Return when ``event`` is set or ``until`` has come."""
        task = asyncio.current_task()
        self._waits[task] = event
        self._changed.set()
        try:
            await self._clock.wait(event, until)
        finally:
            del self._waits[task]

    def is_idle(self, task: asyncio.Task[Any]) -> bool:
        """Return whether a task waits for an event that is not set, or has ended."""
        event = self._waits.get(task)
        return task.done() or (event is not None and not event.is_set())

    async def settled(self, find_busy: Callable[[], Collection[asyncio.Task[Any]]]) -> bool:
        """Wait until ``find_busy`` finds no task; return whether it found any."""
        busy = False
        while tasks := find_busy():
            busy = True
            self._changed.clear()
            change = asyncio.ensure_future(self._changed.wait())  # noqa: TID251 - ended below
            await asyncio.wait([change, *tasks], return_when=asyncio.FIRST_COMPLETED)
            change.cancel()
        return busy

    def busy_parts(
        self, bot: Bot, names: Collection[str] = _PARTS
    ) -> Collection[asyncio.Task[Any]]:
        """Return the tasks of these parts of a bot that do something now, or soon."""
        parts = [part for part in bot._parts if part.get_name() in names]
        assert len(parts) == len(names), "a part has another name"
        return [part for part in parts if not self.is_idle(part)]

    async def bot_settled(self, bot: Bot) -> bool:
        """Wait until nothing is due or under way in a bot; return whether anything was."""
        return await self.settled(
            lambda: [
                *(step for worker in bot._workers for step in worker._steps),
                *bot._background._tasks,
                *self.busy_parts(bot),
            ]
        )
