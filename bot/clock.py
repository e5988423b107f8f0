"""The time, and waiting for it: the only place that asks the operating system what time it is."""

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

# The wall clock may be set while we wait: look at it at least this often.
_LOOK_AGAIN: Final = timedelta(seconds=30)


class Clock(Protocol):
    """What the bot and its sandbox know of time. A test pushes one by hand."""

    def now(self) -> datetime:
        """Return the present moment, aware, in UTC."""

    async def wait(self, event: asyncio.Event, until: datetime | None = None) -> None:
        """Return when ``event`` is set or ``until`` has come, whichever is first.

        It may return early: look at the event and the time again.
        """


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """Return the present moment, aware, in UTC."""
        return datetime.now(UTC)  # noqa: TID251 - the one place

    async def wait(self, event: asyncio.Event, until: datetime | None = None) -> None:
        """Return when ``event`` is set, ``until`` has come, or after half a minute."""
        limit = _LOOK_AGAIN if until is None else min(_LOOK_AGAIN, until - self.now())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, limit.total_seconds())):
                await event.wait()
