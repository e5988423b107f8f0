"""Notifications between the copies of a world: each is received before the clock goes on."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, Collection
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet

import psycopg

from bot.app import Bot
from bot.store.database import Query
from bot.store.postgres.engine import PostgresDatabase

_TIMEOUT_S: Final = 60.0
_PREFIX: Final = "mark-"
_NUMBERS: Final = itertools.count()
_SEND: Final = Query("SELECT pg_notify('bot_homes', :mark)")
_notifies: Final = psycopg.AsyncConnection.notifies
_listening: Final[WeakSet[psycopg.AsyncConnection[Any]]] = WeakSet()
#: By the mark that is under way: released by each connection that has received it.
_arrivals: Final[dict[str, asyncio.Semaphore]] = {}


async def _observed(
    connection: psycopg.AsyncConnection[Any],
    *,
    timeout: float | None = None,  # noqa: ASYNC109 - as there
) -> AsyncGenerator[psycopg.Notify, None]:
    """Yield what a connection is notified of, without the marks."""
    _listening.add(connection)
    async with contextlib.aclosing(_notifies(connection, timeout=timeout)) as received:
        async for each in received:
            if each.payload in _arrivals:
                _arrivals[each.payload].release()
            elif not each.payload.startswith(_PREFIX):
                yield each


psycopg.AsyncConnection.notifies = _observed  # type: ignore[assignment,method-assign]

_notify: Final = PostgresDatabase._notify


@dataclass
class _Sent:
    """How often a database has notified others; locked while it does."""

    times: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


_sent: Final[WeakKeyDictionary[PostgresDatabase, _Sent]] = WeakKeyDictionary()


async def _counted(database: PostgresDatabase) -> None:
    sent = _sent.setdefault(database, _Sent())
    async with sent.lock:
        if database._has_changed.is_set():
            sent.times += 1
            await _notify(database)


PostgresDatabase._notify = _counted  # type: ignore[assignment,method-assign]


async def notified(database: PostgresDatabase) -> int:
    """Notify the other copies now; return how many times this was done since the start."""
    await database._notify()
    return _sent[database].times


class Notifications:
    """The notifications between the copies of a world, which all run in this process."""

    def __init__(self) -> None:
        self._seen = 0

    async def received(self, copies: Collection[Bot]) -> bool:
        """Wait until each copy was notified of what the others have stored.

        They arrive in real time: without this, the clock might go on before.

        Returns:
            Whether there was anything.
        """
        databases = [
            database
            for copy in copies
            if isinstance(database := copy.store.database, PostgresDatabase)
        ]
        if len(databases) < 2:
            return False
        sent = sum([await notified(database) for database in databases])
        if sent == self._seen:
            return False
        self._seen = sent
        mark = f"{_PREFIX}{next(_NUMBERS)}"
        _arrivals[mark] = arrivals = asyncio.Semaphore(0)
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                while sum(not each.closed for each in _listening) < len(databases):  # noqa: ASYNC110 - no event
                    await asyncio.sleep(0.001)  # it has just been started
                # They arrive in the order of their commits.
                await databases[0].run(lambda tx: tx.all(_SEND, mark=mark), durable=False)
                for _ in databases:
                    await arrivals.acquire()
        finally:
            del _arrivals[mark]
        return True
