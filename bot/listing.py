"""Lists what the service has, where the operator says that it can: in pages, and not for ever."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from bot.clock import Clock
from bot.drift import DriftLog
from bot.errors import OutsideError, Unavailable
from bot.kinds import Kind, Unreadable
from bot.kinds.drift import Drift, DriftType
from bot.kinds.listed import Listed, Page, page_of
from bot.timings import CallTimings
from bot.video_service import VideoService

# With scripts of 3,000 characters, such a page is far below the longest answer.
_ITEMS: Final = 20
_MAX_RECENT_PAGES: Final = 5
_MAX_PAGES: Final = 25
# After an outage many jobs look for what they made: one list serves them all.
_FRESH_FOR: Final = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class _Kept:
    """The last list of a kind, or why there was none."""

    at: datetime
    since: datetime
    found: Sequence[Listed] | OutsideError | Unreadable


class Listing:
    """The service's lists of videos and replicas."""

    def __init__(
        self, service: VideoService, drift: DriftLog, clock: Clock, timings: CallTimings
    ) -> None:
        self._service = service
        self._drift = drift
        self._clock = clock
        self._timeout_s = timings.call_timeout.total_seconds()
        self._kept: dict[str, _Kept] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def recent(self, kind: Kind, since: datetime) -> Sequence[Listed]:
        """Return what is listed of a kind, at least back to ``since``, up to 100 items.

        All calls together take no longer than one call may: a lease outlasts that.

        Raises:
            OutsideError, Unreadable: not all of it could be read.
        """
        async with self._locks[kind.name]:
            kept = self._kept.get(kind.name)
            age = self._clock.now() - kept.at if kept is not None else _FRESH_FOR
            if kept is None or since < kept.since or not timedelta(0) <= age < _FRESH_FOR:
                found = await self._read_recent(kind, since)
                kept = self._kept[kind.name] = _Kept(self._clock.now(), since, found)
        if isinstance(kept.found, Exception):
            raise kept.found
        return kept.found

    async def everything(self, kind: Kind) -> tuple[Sequence[Listed], bool]:
        """Return what is listed of a kind, up to 500 items, and whether that is all of it.

        Raises:
            OutsideError, Unreadable: not all of it could be read.
        """
        found: dict[str, Listed] = {}
        unreadable, ends = 0, False
        for number in range(1, _MAX_PAGES + 1):
            page = await self._page(kind, number)
            new = {each.id: each for each in page.items if each.id not in found}
            found |= new
            unreadable += page.unreadable
            if not new or len(found) == page.total:
                # A service that knows no pages repeats the first, whatever comes after it.
                ends = not page.items or page.total is None or len(found) >= page.total
                break
        return [*found.values()], ends and not unreadable

    async def _read_recent(
        self, kind: Kind, since: datetime
    ) -> Sequence[Listed] | OutsideError | Unreadable:
        found: dict[str, Listed] = {}
        try:
            async with asyncio.timeout(self._timeout_s):
                for number in range(1, _MAX_RECENT_PAGES + 1):
                    page = await self._page(kind, number)
                    # A service that knows no pages repeats the first.
                    new = {each.id: each for each in page.items if each.id not in found}
                    found |= new
                    if not new or len(found) == page.total or _is_before(page, since):
                        break
        except TimeoutError:
            return Unavailable("The video service took too long to list what it has.")
        except (OutsideError, Unreadable) as error:
            return error
        return [*found.values()]

    async def _page(self, kind: Kind, number: int) -> Page:
        with self._drift.watching(kind):
            page = page_of(
                kind, await self._service.list_page(kind.path, page=number, limit=_ITEMS)
            )
        if page.unreadable:
            self._drift.note(kind.name, Drift(DriftType.UNREADABLE, "list"))
        return page


def _is_before(page: Page, since: datetime) -> bool:
    """Return whether all of a page is known to be older: the newest come first."""
    return all(each.created_at is not None and each.created_at < since for each in page.items)
