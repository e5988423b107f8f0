"""The clock: the only place that asks the operating system for the time."""

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

# The wall clock may be set during a wait: it is read at least this often.
_CHECK_INTERVAL: Final = timedelta(seconds=30)


class Clock(Protocol):
    """The time, for the bot and its sandbox. Tests have one that they move by hand."""

    def now(self) -> datetime:
        """Return the present moment, aware, in UTC."""

    async def wait(self, event: asyncio.Event, until: datetime | None = None) -> None:
        """Return when ``event`` is set or ``until`` has come, whichever is first.

        It may return early: check the event and the time again.
        """


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """Return the present moment, aware, in UTC."""
        return datetime.now(UTC)  # noqa: TID251 - the one place

    async def wait(self, event: asyncio.Event, until: datetime | None = None) -> None:
        """Return when ``event`` is set, ``until`` has come, or after half a minute."""
        limit = _CHECK_INTERVAL if until is None else min(_CHECK_INTERVAL, until - self.now())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, limit.total_seconds())):
                await event.wait()


def deadline(after: timedelta) -> float:
    """Return a moment from now, by the event loop's clock."""
    return asyncio.get_running_loop().time() + after.total_seconds()
