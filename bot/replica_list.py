"""Keeps the replicas that forms offer as the service lists them."""

import asyncio
import logging
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from bot.clock import Clock
from bot.errors import OutsideError
from bot.kinds import Kind, Unreadable
from bot.kinds.video import is_replica_id
from bot.listing import Listing
from bot.store import DatabaseError, Store
from bot.timings import ListTimings

_LOG: Final = logging.getLogger(__name__)


class ReplicaList:
    """Asks for the list every ``list_interval``: one process for all copies of the bot."""

    def __init__(
        self,
        store: Store,
        listing: Listing | None,
        kinds: Iterable[Kind],
        clock: Clock,
        timings: ListTimings,
    ) -> None:
        self._store = store
        self._listing = listing
        self._kinds = [kind for kind in kinds if kind.catalogued]
        self._clock = clock
        self._timings = timings
        self._waiting = asyncio.Event()

    async def run(self) -> None:
        """Keep them until cancelled."""
        while True:
            now = self._clock.now()
            if self._listing is not None:
                for kind in self._kinds:
                    await self._refresh(self._listing, kind, now)
            self._waiting.set()
            await self._clock.wait(asyncio.Event(), now + self._timings.list_interval)
            self._waiting.clear()

    async def settled(self) -> bool:
        """Wait until nothing is due or under way; return whether anything was."""
        busy = not self._waiting.is_set()
        await self._waiting.wait()
        return busy

    async def _refresh(self, listing: Listing, kind: Kind, now: datetime) -> None:
        """Store what is listed of a kind, unless another process has just done that."""
        table, interval = self._store.listed_replicas, self._timings.list_interval
        try:
            if not await table.claim(kind.name, now, interval):
                return
            listed, complete = await listing.everything(kind)
            found = [each.snapshot for each in listed if is_replica_id(each.id)]
            await table.store(found, now, complete=complete)
        except (OutsideError, Unreadable) as error:
            # Those that are known stay. A single failure is no news.
            _LOG.info(
                "the service's replicas could not be listed",
                extra={"kind": kind.name, "error": type(error).__name__},
            )
        except DatabaseError as error:
            _LOG.warning("the service's replicas are not stored", extra={"reason": str(error)})
