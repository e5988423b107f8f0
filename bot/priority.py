"""Who goes first: a person who waits for an answer, before the work that nobody watches."""

import asyncio
import contextlib
from collections.abc import Iterator

from bot.timings import Timings


class PeopleFirst:
    """Lets work in the background wait while people are being answered, but not for long.

    Slack gives an answer three seconds, and a person sees each tenth of one; jobs take minutes.
    """

    def __init__(self, timings: Timings) -> None:
        self._pause = timings.breath.total_seconds()
        self._patience = timings.give_way.total_seconds()
        self._waiting = 0
        self._last = float("-inf")

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """Answer somebody meanwhile."""
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
            self._last = asyncio.get_running_loop().time()

    async def turn(self) -> None:
        """Return when nobody waits and the last answer has left, or when it was long enough."""
        loop = asyncio.get_running_loop()
        latest = loop.time() + self._patience
        while (now := loop.time()) < latest:
            wait = self._pause if self._waiting else self._last + self._pause - now
            if wait <= 0:
                return
            await asyncio.sleep(min(wait, latest - now))
