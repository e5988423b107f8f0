"""Keeps the replicas that forms offer as the service lists them, where it can.

No interface document says what a list looks like: it is read tolerantly.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from bot.engine.steps import Runtime
from bot.errors import OutsideError
from bot.kinds import Kind, Unreadable
from bot.kinds.video import is_replica_id
from bot.model import Snapshot
from bot.service.client import VideoService
from bot.store import DatabaseError

_LOG: Final = logging.getLogger(__name__)
_ITEMS: Final = 20
_MAX_PAGES: Final = 25
# Seen: {"data": […], "total_count": 123}
# (https://docs.tavus.io/api-reference/phoenix-replica-model/get-replicas).
_LISTS: Final = ("data", "items", "results")
_TOTALS: Final = ("total_count", "total", "count")


class ReplicaList:
    """Asks for the list every ``list_interval``: one process for all copies of the bot."""

    def __init__(self, runtime: Runtime, kinds: Iterable[Kind]) -> None:
        self._runtime = runtime
        self._kinds = [kind for kind in kinds if kind.catalogued]

    async def run(self) -> None:
        """Keep them until cancelled."""
        while True:
            now = self._runtime.clock.now()
            for kind in self._kinds:
                await self._refresh(kind, now)
            until = now + self._runtime.timings.list_interval
            await self._runtime.clock.wait(asyncio.Event(), until)

    async def _refresh(self, kind: Kind, now: datetime) -> None:
        """Store what is listed of a kind, unless another process has just done that."""
        table, interval = self._runtime.store.replicas, self._runtime.timings.list_interval
        try:
            if not await table.claim_list(kind.name, now, interval):
                return
            listed, complete = await read_list(self._runtime.service, kind)
            found = [each for each in listed if is_replica_id(each.remote_id)]
            await table.learn_listed(found, now, complete=complete)
        except (OutsideError, Unreadable) as error:
            # Those that are known stay. A single failure is no news.
            _LOG.info(
                "the service's replicas could not be listed",
                extra={"kind": kind.name, "error": type(error).__name__},
            )
        except DatabaseError as error:
            _LOG.warning("the service's replicas are not stored", extra={"reason": str(error)})


async def read_list(service: VideoService, kind: Kind) -> tuple[Sequence[Snapshot], bool]:
    """Return what the service lists of a kind, up to 500 items, and whether that is all of it.

    Raises:
        OutsideError, Unreadable: not all of it could be read.
    """
    found: dict[str, Snapshot] = {}
    unreadable, ends = False, False
    for number in range(1, _MAX_PAGES + 1):
        answer = await service.list_page(kind.path, page=number, limit=_ITEMS)
        items = [_item(kind, each) for each in _list_in(kind, answer)]
        unreadable |= None in items
        new = {each.remote_id: each for each in items if each and each.remote_id not in found}
        found |= new
        total = _total_in(answer)
        if not new or len(found) == total:
            # A service that knows no pages repeats the first, whatever comes after it.
            ends = not any(items) or total is None or len(found) >= total
            break
    return [*found.values()], ends and not unreadable


def _list_in(kind: Kind, answer: Any) -> Sequence[Any]:  # noqa: ANN401 - any JSON
    """Return the items in an answer.

    Raises:
        Unreadable: there is no list in it.
    """
    found = answer
    if isinstance(answer, Mapping):
        names = (*_LISTS, kind.path.rpartition("/")[2])
        found = next((answer[name] for name in names if name in answer), None)
    if not isinstance(found, list):
        raise Unreadable("the answer has no list")
    return found


def _total_in(answer: Any) -> int | None:  # noqa: ANN401 - any JSON
    """Return how many items all pages have, if the service says that."""
    totals = [answer.get(name) for name in _TOTALS] if isinstance(answer, Mapping) else []
    return next((each for each in totals if type(each) is int), None)


def _item(kind: Kind, item: Any) -> Snapshot | None:  # noqa: ANN401 - any JSON
    """Return an item; None if it cannot be read."""
    if not isinstance(item, Mapping):
        return None
    remote_id = kind.id_in(item)
    with contextlib.suppress(Unreadable):
        return kind.read(item, remote_id) if remote_id else None
    return None
