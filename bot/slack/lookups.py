"""What Slack says about a person or a channel: asked in the background, and kept for a while."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any, Final, Generic, Protocol, TypeVar

from bot.clock import Clock

_T = TypeVar("_T")
_MAX_KEPT: Final = 10_000


class Background(Protocol):
    """Runs work that no request waits for."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work``; a process that stops waits for it."""

    def spawn_at(
        self, clock: Clock, at: datetime, work: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Run ``work`` at a time by ``clock``; a process that stops before that drops it."""


class Lookups(Generic[_T]):
    """Answers about ids, the last 10,000 of them.

    Args:
        ask: asks Slack about an id; None if there was no answer.
        background: runs the question.
        clock: dates the answers.
        max_age: after this time an answer is asked for again. Until there is a new one, it counts.
    """

    def __init__(
        self,
        ask: Callable[[str], Awaitable[_T | None]],
        background: Background,
        clock: Clock,
        max_age: timedelta,
    ) -> None:
        self._ask = ask
        self._background = background
        self._clock = clock
        self._max_age = max_age
        self._answers: OrderedDict[str, tuple[datetime, _T]] = OrderedDict()
        self._asking: dict[str, asyncio.Event] = {}

    def prepare(self, key: str) -> None:
        """Ask about an id in the background, unless a fresh answer is known."""
        if not self._is_fresh(key) and key not in self._asking:
            self._asking[key] = asyncio.Event()
            self._background.spawn(self._look_up(key))

    def known(self, key: str) -> _T | None:
        """Return the last answer about an id, without asking."""
        answer = self._answers.get(key)
        return None if answer is None else answer[1]

    def forget(self, key: str) -> None:
        """Ask again the next time about an id, whose answer may have changed."""
        self._answers.pop(key, None)

    async def get(self, key: str, deadline: float) -> _T | None:
        """Return a fresh answer about an id, or at the deadline the last one, if any.

        ``deadline`` is by the event loop's clock.
        """
        self.prepare(key)
        if (asking := self._asking.get(key)) is not None:
            try:
                async with asyncio.timeout_at(deadline):
                    await asking.wait()
            except TimeoutError:
                pass
        return self.known(key)

    async def _look_up(self, key: str) -> None:
        try:
            answer = await self._ask(key)
            if answer is not None:
                self._answers[key] = (self._clock.now(), answer)
                self._answers.move_to_end(key)
                if len(self._answers) > _MAX_KEPT:
                    self._answers.popitem(last=False)
        finally:
            self._asking.pop(key).set()

    def _is_fresh(self, key: str) -> bool:
        answer = self._answers.get(key)
        return answer is not None and abs(self._clock.now() - answer[0]) <= self._max_age
