"""The PostgreSQL engine: works in a few threads with a connection each, committed in groups."""

import asyncio
import contextlib
import itertools
import logging
import random
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import psycopg

from bot.metrics import Metrics
from bot.store.database import (
    DatabaseCorrupt,
    DatabaseError,
    DatabaseUnavailable,
    DatabaseUncertain,
    Topic,
    Transaction,
    to_its_end,
)
from bot.store.postgres_errors import Meaning, describe, meaning_of
from bot.store.postgres_link import Committed, Link, ServerLost
from bot.store.postgres_listener import Listener
from bot.store.postgres_migrations import migrate
from bot.store.postgres_queue import Call, Queue
from bot.store.sql import Query
from bot.timings import DatabaseTimings

_LOG: Final = logging.getLogger(__name__)
_T = TypeVar("_T")

_CONNECTIONS: Final = 4
# A group that waits longer for rows of another one gives way, and each of its works runs alone: two
# groups may wait for each other. A work alone takes its locks in order, and serial ones take the
# same lock first.
_GROUP_LOCK_TIMEOUT_MS: Final = 50
_LOCK_TIMEOUT_MS: Final = 2_000
# Of a work that conflicts with those of other processes, or loses its connection.
_MAX_TRIES: Final = 10
_MAX_TRIES_OF_DUPLICATE: Final = 2
_CONFLICT_PAUSE_S: Final = 0.02
# Between two tries to reach a server that is away; it doubles.
_RECONNECT_S: Final = 0.1
_MAX_RECONNECT_S: Final = 1.0
# From a connection that the server refused, while others work, to the next try.
_REFUSED_PAUSE_S: Final = 5.0
_WRITE: Final = Query("UPDATE migrations SET name = name WHERE name = '0001_jobs'")


class PostgresDatabase:
    """A database on a server, which several processes may use at the same time.

    Works wait in one queue. Each connection takes a group of them, and runs it in one transaction.
    Serial works are taken by one connection at a time: more would wait for its lock.
    If one of a group fails, each runs once more in a transaction of its own. What was certainly not
    committed is repeated: after a conflict with another process, and after a lost connection. While
    the server is away, works wait for ``max_database_wait``, then they fail at once.
    """

    def __init__(self, url: str, metrics: Metrics, timings: DatabaseTimings) -> None:
        self._metrics = metrics
        self._timings = timings
        self._events = {topic: asyncio.Event() for topic in Topic}
        self._waiting = Queue()
        self._is_closing = asyncio.Event()
        # What was logged, until a commit succeeds.
        self._problem: str | None = None
        # Why nothing more is stored.
        self._broken: DatabaseError | None = None
        self._unusable = asyncio.Event()
        self._is_back = asyncio.Event()
        self._is_back.set()
        # Why works fail at once: the server is away for long.
        self._away: DatabaseUnavailable | None = None
        self._notifying = asyncio.Lock()
        self._notifications = 0
        self._threads = ThreadPoolExecutor(_CONNECTIONS, thread_name_prefix="postgres")
        self._links = [Link(url) for _ in range(_CONNECTIONS)]
        self._listener = Listener(
            url,
            lambda topic: self._events[topic].set(),
            poll_interval=timings.slow_poll,
            pooled_poll_interval=timings.pooled_slow_poll,
        )
        start = asyncio.create_task  # noqa: TID251 - see close
        self._workers = [start(self._work(link)) for link in self._links]
        self._running = dict[Link, Sequence[Call]]()
        endless = (self._listener.run, self._notify_others, self._end_silent)
        self._endless = [start(run()) for run in endless]
        for task in (*self._workers, *self._endless):
            task.add_done_callback(self._task_ended)

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        url: str,
        metrics: Metrics | None = None,
        timings: DatabaseTimings | None = None,
    ) -> AsyncIterator["PostgresDatabase"]:
        """Connect, and bring the tables up to date; wait for a server that is just starting.

        Raises:
            DatabaseError: the server cannot be used, or its tables are another version's.
        """
        timings = timings or DatabaseTimings()
        loop = asyncio.get_running_loop()
        begun, waits = loop.time(), False
        while True:
            try:
                await asyncio.to_thread(migrate, url)
                break
            except DatabaseUnavailable as error:
                if loop.time() - begun >= timings.lock_timeout.total_seconds():
                    raise
                if not waits:
                    waits = True
                    extra = {"reason": str(error)}
                    _LOG.warning("waiting for the database server", extra=extra)
            await asyncio.sleep(_RECONNECT_S)
        database = cls(url, metrics or Metrics(), timings)
        try:
            yield database
        finally:
            await to_its_end(database.close())

    @property
    def is_sole_process(self) -> bool:
        """Whether no other process can use this database: never, leases run out."""
        return False

    def event(self, topic: Topic) -> asyncio.Event:
        """Return the event that is set when ``topic`` is notified by any process."""
        return self._events[topic]

    async def run(
        self, work: Callable[[Transaction], _T], *, durable: bool = True, serial: bool = False
    ) -> _T:
        """Run ``work`` in a transaction; see ``Database.run``."""
        if self._is_closing.is_set():
            raise DatabaseError("the database is closed")
        if error := self._broken or self._away:
            raise type(error)(str(error))
        loop = asyncio.get_running_loop()
        call = Call(work, durable, loop.create_future(), loop.time(), serial)
        self._waiting.add(call)
        result: _T = await call.answer
        return result

    async def notified(self) -> int:
        """Notify the other processes now; return how many times this was done since the start."""
        async with self._notifying:
            if (work := self._listener.take_notification()) is not None:
                self._notifications += 1
                with contextlib.suppress(DatabaseError):  # their slow poll finds it
                    await self.run(work, durable=False)
        return self._notifications

    def storing_for(self) -> float:
        """Return for how many seconds the first serial work has been waiting; 0 if none is."""
        since = self._waiting.serial_since
        return 0.0 if since is None else asyncio.get_running_loop().time() - since

    async def check(self) -> None:
        """Return if a change reaches the disk."""
        await self.run(lambda tx: tx.all(_WRITE))

    async def compact(self, *, give_way: bool) -> bool:
        """Return True: the server's own vacuum frees what was erased."""
        del give_way
        return True

    async def watch(self) -> None:
        """Wait until the database cannot be used any more: a server that is away may come back."""
        await self._unusable.wait()
        assert self._broken is not None  # noqa: S101 - it is set before the event
        raise self._broken

    async def close(self) -> None:
        """Finish the works that wait; later ones raise DatabaseError.

        Those that the server does not finish within ``max_database_wait`` fail.
        """
        self._is_closing.set()
        for task in self._endless:
            task.cancel()
        self._waiting.close()
        if not self._is_back.is_set():
            self._give_up("the server is away")
        longest = self._timings.max_database_wait.total_seconds()
        _, busy = await asyncio.wait(self._workers, timeout=longest)
        while busy:
            self._give_up("the database is closed")
            for link in self._links:
                link.end_if_silent(0)
            _, busy = await asyncio.wait(busy, timeout=_RECONNECT_S)
        await asyncio.wait(self._endless)
        for link in self._links:
            link.close()
        self._threads.shutdown()

    # ── Works and connections ─────────────────────────────────────────────────────────────────

    async def _work(self, link: Link) -> None:
        """Run what waits on one connection, until the database is closed and nothing waits."""
        while await self._waiting.wait(is_connected=link.is_open):
            if link.is_open or await self._open(link):
                await self._run_group(link)
        if link.is_open and (work := self._listener.take_notification()) is not None:
            with contextlib.suppress(Exception):  # the slow poll of the others finds the work
                await self._in_thread(link, [work], durable=False)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        """Answer all callers if a task failed: a worker's group would wait for ever."""
        if task.cancelled() and self._is_closing.is_set():
            return
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None:
            return
        kind = type(error).__name__  # its text may carry what is stored
        _LOG.critical("a task of the database has ended", extra={"error": kind})
        self._broken = DatabaseUnavailable(
            "the database is not used any more: a part of the bot that uses it has ended "
            "unexpectedly. Restart the bot."
        )
        self._unusable.set()
        for call in itertools.chain.from_iterable(self._running.values()):
            call.fail(DatabaseUncertain(str(self._broken)))
        self._refuse_waiting()

    async def _run_group(self, link: Link) -> None:
        group = self._running[link] = self._waiting.take_group()
        if not group:
            return
        try:
            await self._run_works(link, group)
        finally:
            self._waiting.end_group(group)

    async def _run_works(self, link: Link, group: Sequence[Call]) -> None:
        alone = len(group) == 1
        durable = any(call.durable for call in group)
        in_order = alone or group[0].serial
        try:
            committed = await self._in_thread(
                link, [call.work for call in group], durable=durable, in_order=in_order
            )
        except ServerLost as error:
            self._on_lost(group, error)
        except Exception as error:  # noqa: BLE001 - its caller gets it
            if alone:
                await self._on_failed(group[0], error)
            else:
                for call in group:
                    call.alone = True
                self._repeat(group)
        else:
            self._on_committed(group, committed, durable=durable)

    async def _in_thread(
        self,
        link: Link,
        works: Sequence[Callable[[Transaction], Any]],
        *,
        durable: bool,
        in_order: bool = True,
    ) -> Committed:
        def run() -> Committed:
            timeout = _LOCK_TIMEOUT_MS if in_order else _GROUP_LOCK_TIMEOUT_MS
            return link.run(works, durable=durable, lock_timeout_ms=timeout)

        return await asyncio.get_running_loop().run_in_executor(self._threads, run)

    # ── What became of a group ────────────────────────────────────────────────────────────────

    def _on_committed(self, group: Sequence[Call], committed: Committed, *, durable: bool) -> None:
        if self._problem is not None:
            self._problem = None
            _LOG.info("the database works again")
        self._metrics.committed(committed.seconds, durable=durable)
        for topic in committed.topics:
            self._events[topic].set()
        self._listener.tell_others(committed.topics)
        for call, result in zip(group, committed.results, strict=True):
            call.succeed(result)

    def _on_lost(self, group: Sequence[Call], error: ServerLost) -> None:
        """Repeat what was certainly not committed, and nothing else."""
        if error.uncertain:
            self._note(str(error))
            for call in group:
                call.fail(DatabaseUncertain(f"a commit was not answered: {error}"))
            return
        for call in group:
            call.tries += 1
        for call in group:
            if call.tries >= _MAX_TRIES:
                self._note(str(error))
                call.fail(DatabaseUnavailable(str(error)))
        self._repeat([call for call in group if call.tries < _MAX_TRIES])

    async def _on_failed(self, call: Call, error: Exception) -> None:
        """Repeat a work that conflicted with another process, or fail it."""
        if not isinstance(error, psycopg.Error):
            call.fail(error)
            return
        meaning = meaning_of(error)
        limits = {Meaning.CONFLICT: _MAX_TRIES, Meaning.DUPLICATE: _MAX_TRIES_OF_DUPLICATE}
        call.tries += 1
        if call.tries < limits.get(meaning, 0):
            if meaning is Meaning.CONFLICT:
                pause = random.uniform(0, _CONFLICT_PAUSE_S * call.tries)  # noqa: S311 - jitter
                await asyncio.sleep(pause)
            self._repeat([call])
            return
        reason = describe(error)
        if meaning is Meaning.CORRUPT:
            self._note(reason)
            self._broken = DatabaseCorrupt(f"{reason}: restore the server's last backup")
            self._unusable.set()
            call.fail(self._broken)
            self._refuse_waiting()
        elif meaning is Meaning.UNAVAILABLE:
            self._note(reason)
            call.fail(DatabaseUnavailable(reason))
        elif meaning is Meaning.CONFLICT:
            self._note(reason)
            call.fail(DatabaseUnavailable(f"the database is too busy: {reason}"))
        else:
            call.fail(DatabaseError(f"the database says: {reason}"))

    def _repeat(self, calls: Sequence[Call]) -> None:
        self._waiting.repeat(calls)
        if self._broken or self._away:
            self._refuse_waiting()

    # ── A server that is away ─────────────────────────────────────────────────────────────────

    async def _open(self, link: Link) -> bool:
        """Open a connection, as soon as the server is back; return whether that went well."""
        await self._is_back.wait()
        if not self._waiting:
            return False
        try:
            await asyncio.get_running_loop().run_in_executor(self._threads, link.open)
        except ServerLost as error:
            if any(other.is_open for other in self._links):
                await self._pause(_REFUSED_PAUSE_S)
            elif self._is_back.is_set():
                await self._wait_for_server(link, error)
            return link.is_open
        return True

    async def _wait_for_server(self, link: Link, error: ServerLost) -> None:
        """Try to connect until it works, while works wait for a moment, and later ones fail."""
        self._is_back.clear()
        self._note(str(error))
        longest = self._timings.max_database_wait.total_seconds()
        refuse = asyncio.get_running_loop().call_later(longest, self._give_up, str(error))
        pause = _RECONNECT_S
        try:
            while not self._is_closing.is_set() and not link.is_open:
                await self._pause(pause * random.uniform(0.8, 1.2))  # noqa: S311 - jitter
                pause = min(2 * pause, _MAX_RECONNECT_S)
                with contextlib.suppress(ServerLost):
                    await asyncio.get_running_loop().run_in_executor(self._threads, link.open)
        finally:
            refuse.cancel()
            self._is_back.set()
        if self._is_closing.is_set():
            self._give_up(str(error))
        else:
            self._away = None

    def _give_up(self, reason: str) -> None:
        self._away = DatabaseUnavailable(reason)
        self._refuse_waiting()

    def _refuse_waiting(self) -> None:
        """Fail the works that wait."""
        reason = str(self._broken or self._away or self._problem or "the database is closed")
        self._waiting.fail_all(lambda: DatabaseUnavailable(reason))

    def _note(self, reason: str) -> None:
        """Log why the database does not work, once until it works again."""
        self._metrics.database_failed()
        if self._problem is None:
            _LOG.error("the database does not work", extra={"reason": reason})
        self._problem = reason

    async def _pause(self, seconds: float) -> None:
        """Wait, but not once the database is to be closed."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._is_closing.wait(), seconds)

    async def _end_silent(self) -> None:
        """End connections on which a statement has no answer: the server, or the way, is gone."""
        silence = self._timings.database_silence.total_seconds()
        while True:
            await asyncio.sleep(silence / 4)
            for link in self._links:
                link.end_if_silent(silence)

    async def _notify_others(self) -> None:
        while True:
            await self._listener.changed()
            await self.notified()
