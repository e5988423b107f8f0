"""The PostgreSQL engine: works in a few threads with a connection each, committed in groups."""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar

import psycopg
from psycopg import errors, sql
from psycopg.rows import DictRow, dict_row

from bot.metrics import Metrics
from bot.store.database import (
    DatabaseError,
    DatabaseUnavailable,
    DatabaseUncertain,
    Row,
    Topic,
    Transaction,
    Value,
)
from bot.store.postgres_migrations import migrate_postgres
from bot.store.sql import Query

_LOG: Final = logging.getLogger(__name__)
_T = TypeVar("_T")

_CONNECTIONS: Final = 4
# Works that are committed together at most: each waits for the others.
_MAX_GROUP: Final = 16
# A group that waits longer for rows of another one gives way, and each of its works runs alone: two
# groups may wait for each other. A work alone takes its locks in order.
_GROUP_LOCK_TIMEOUT_MS: Final = 50
_LOCK_TIMEOUT_MS: Final = 5_000
_STATEMENT_TIMEOUT_MS: Final = 30_000
_CONNECT_TIMEOUT_S: Final = 5
# Of a work that conflicts with those of other processes.
_MAX_TRIES: Final = 10
# Wakes this process if a notification was lost.
_SLOW_POLL_S: Final = 5.0
_RECONNECT_S: Final = 1.0
_CHANNEL: Final = "bot_{}"
_WRITE: Final = Query("UPDATE migrations SET name = name WHERE name = '0001_jobs'")

_Connection: TypeAlias = psycopg.Connection[DictRow]
# The outcome of a call: its result, or the error, after which nothing of it was stored.
_Outcome: TypeAlias = tuple[Any, Exception | None]
# Nothing was committed, and the same work may succeed now.
_CONFLICTS: Final = (errors.SerializationFailure, errors.DeadlockDetected, errors.LockNotAvailable)


@dataclass(slots=True, eq=False)
class _Call:
    """A work that waits for its turn, and the future of its caller."""

    work: Callable[[Transaction], Any]
    durable: bool
    answer: asyncio.Future[Any]


@dataclass(slots=True)
class _Done:
    """What became of a group."""

    outcomes: list[_Outcome] = field(default_factory=list)
    """In the order of the group."""
    topics: set[Topic] = field(default_factory=set)
    commits: list[tuple[float, bool]] = field(default_factory=list)
    """The seconds that each commit took, and whether it waited for the disk."""


class _Lost(Exception):
    """The server cannot be used: ``__cause__`` says why.

    Nothing was stored unless ``uncertain``.
    """

    def __init__(self, *, uncertain: bool) -> None:
        super().__init__()
        self.uncertain = uncertain


class PostgresDatabase:
    """A database on a server, which several processes may use at the same time.

    Works wait in one queue. Each connection takes a group of them, runs it in one transaction, and
    then takes the next one. If one of a group fails, each runs once more in a transaction of its
    own. A work that conflicts with another process is repeated.
    """

    def __init__(self, url: str, metrics: Metrics) -> None:
        self._url = url
        self._metrics = metrics
        self._events = {topic: asyncio.Event() for topic in Topic}
        self._waiting: deque[_Call] = deque()
        self._arrived = asyncio.Condition()
        self._closing = False
        self._problem: str | None = None
        self._threads = ThreadPoolExecutor(_CONNECTIONS, thread_name_prefix="postgres")
        self._connections = [_Link(url) for _ in range(_CONNECTIONS)]
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls, url: str, metrics: Metrics | None = None
    ) -> AsyncIterator["PostgresDatabase"]:
        """Connect, and bring the tables up to date.

        Raises:
            DatabaseError: the server cannot be used, or its tables are another version's.
        """
        await asyncio.to_thread(migrate, url)
        database = cls(url, metrics or Metrics())
        start = asyncio.create_task  # noqa: TID251 - see close
        database._tasks = [start(database._work(link)) for link in database._connections]
        listener = start(database._listen())
        try:
            yield database
        finally:
            await database.close()
            listener.cancel()
            await asyncio.wait([listener])

    @property
    def is_sole_process(self) -> bool:
        """Whether no other process can use this database: never, leases run out."""
        return False

    def event(self, topic: Topic) -> asyncio.Event:
        """Return the event that is set when ``topic`` is notified by any process."""
        return self._events[topic]

    async def run(self, work: Callable[[Transaction], _T], *, durable: bool = True) -> _T:
        """Run ``work`` in a transaction; see ``Database.run``."""
        if self._closing:
            raise DatabaseError("the database is closed")
        answer: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Call(work, durable, answer))
        async with self._arrived:
            self._arrived.notify()
        return await answer

    async def check(self) -> None:
        """Return if a change reaches the disk."""
        await self.run(lambda tx: tx.all(_WRITE))

    async def compact(self, *, give_way: bool) -> bool:
        """Return True: the server's own vacuum frees what was erased."""
        del give_way
        return True

    async def watch(self) -> None:
        """Wait for ever: the server may come back."""
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Finish the works that wait; later ones raise DatabaseError."""
        self._closing = True
        async with self._arrived:
            self._arrived.notify_all()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for link in self._connections:
            link.close()
        self._threads.shutdown()

    # ── In the event loop ─────────────────────────────────────────────────────────────────────

    async def _work(self, link: "_Link") -> None:
        loop = asyncio.get_running_loop()
        while group := await self._next_group():
            done = await loop.run_in_executor(self._threads, link.run_group, group)
            self._note(done)
            for seconds, durable in done.commits:
                self._metrics.committed(seconds, durable=durable)
            for topic in done.topics:
                self._events[topic].set()
            for call, (result, error) in zip(group, done.outcomes, strict=True):
                if call.answer.done():
                    continue  # its caller was cancelled
                if error is None:
                    call.answer.set_result(result)
                else:
                    call.answer.set_exception(_for_caller(error))

    async def _next_group(self) -> list[_Call]:
        """Return works that wait; none when the database is to be closed."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: self._waiting or self._closing)
        group: list[_Call] = []
        while self._waiting and len(group) < _MAX_GROUP:
            group.append(self._waiting.popleft())
        return group

    def _note(self, done: _Done) -> None:
        """Log when the server is lost, and when it is back."""
        lost = [error for _, error in done.outcomes if isinstance(error, _Lost)]
        if lost:
            self._metrics.database_failed()
        if lost and self._problem is None:
            self._problem = _reason(lost[0])
            _LOG.error("the database does not work", extra={"reason": self._problem})
        elif not lost and self._problem is not None:
            self._problem = None
            _LOG.info("the database works again")

    async def _listen(self) -> None:
        """Set the events that other processes notify; all of them now and then."""
        while True:
            try:
                connection = await psycopg.AsyncConnection.connect(
                    self._url, autocommit=True, connect_timeout=_CONNECT_TIMEOUT_S
                )
                async with connection:
                    for topic in Topic:
                        await connection.execute(
                            sql.SQL("LISTEN {}").format(sql.Identifier(_channel(topic)))
                        )
                    while True:
                        async for each in connection.notifies(timeout=_SLOW_POLL_S):
                            self._events[_TOPICS[each.channel]].set()
                        self._wake_all()
            except (psycopg.Error, OSError):
                await asyncio.sleep(_RECONNECT_S)
                self._wake_all()

    def _wake_all(self) -> None:
        for event in self._events.values():
            event.set()


def _max_tries(error: Exception) -> int:
    """Return how often a work may fail with this error before its caller gets it."""
    if isinstance(error, _CONFLICTS):
        return _MAX_TRIES
    if isinstance(error, errors.UniqueViolation):  # another process may have written it just now
        return 2
    return 2 if isinstance(error, _Lost) and not error.uncertain else 1


def _channel(topic: Topic) -> str:
    return _CHANNEL.format(topic.value)


_TOPICS: Final = {_channel(topic): topic for topic in Topic}


class _Link:
    """One connection, which is opened when it is needed. Used by one thread at a time."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: _Connection | None = None

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def run_group(self, group: Sequence[_Call]) -> _Done:
        """Run works in one transaction; if that fails, each in a transaction of its own."""
        done = _Done()
        if len(group) > 1:
            try:
                self._run_transaction(group, done, lock_timeout=_GROUP_LOCK_TIMEOUT_MS)
            except _Lost as error:
                if error.uncertain:
                    return _Done([(None, error)] * len(group))
            except Exception:  # noqa: BLE001, S110 - each then runs alone, and its caller gets it
                pass
            else:
                return done
        for call in group:
            self._run_alone(call, done)
        return done

    def _run_alone(self, call: _Call, done: _Done) -> None:
        for tries in range(1, _MAX_TRIES + 1):
            try:
                self._run_transaction([call], done, lock_timeout=_LOCK_TIMEOUT_MS)
            except Exception as error:  # noqa: BLE001 - its caller gets it
                if tries < _max_tries(error):
                    continue
                done.outcomes.append((None, error))
                return
            else:
                return

    def _run_transaction(self, group: Sequence[_Call], done: _Done, *, lock_timeout: int) -> None:
        """Run works in one transaction.

        Raises:
            _Lost: the server cannot be used.
            Exception: what a work or one of its statements raised; nothing was stored.
        """
        committing = False
        try:
            connection = self._connected()
            tx = _Transaction(connection)
            # With the default, the server's own setting holds, which may wait for a standby too.
            durable = any(call.durable for call in group)
            wait = "DEFAULT" if durable else "off"
            connection.execute(
                f"BEGIN; SET LOCAL synchronous_commit TO {wait};"
                f" SET LOCAL lock_timeout TO {lock_timeout}"
            )
            outcomes: list[_Outcome] = [(call.work(tx), None) for call in group]
            committing = True
            began = time.perf_counter()
            connection.execute("COMMIT")
            done.commits.append((time.perf_counter() - began, durable))
        except BaseException as error:
            lost = self._is_lost(error)
            if lost:
                self.close()
            elif self._connection is not None:
                with contextlib.suppress(psycopg.Error):
                    self._connection.rollback()
            if lost and isinstance(error, psycopg.Error):
                raise _Lost(uncertain=committing) from error
            raise
        done.outcomes += outcomes
        done.topics |= tx.topics
        if tx.topics:
            # After the commit: with it, all commits on the server would wait for each other.
            with contextlib.suppress(psycopg.Error):
                for topic in tx.topics:
                    connection.execute("SELECT pg_notify(%s, '')", [_channel(topic)])

    def _connected(self) -> _Connection:
        if self._connection is None or self._connection.closed:
            self._connection = connect(self._url)
        return self._connection

    def _is_lost(self, error: BaseException) -> bool:
        if self._connection is None or self._connection.closed or self._connection.broken:
            return True
        # The server shuts down, or is not the primary any more.
        return isinstance(
            error, errors.AdminShutdown | errors.CannotConnectNow | errors.ReadOnlySqlTransaction
        )


class _Transaction:
    """The engine's ``Transaction``; its topics are notified after the commit."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self.topics: set[Topic] = set()

    def all(self, query: Query, **values: Value) -> Sequence[Row]:
        cursor = self._connection.execute(query.postgres, values)
        return cursor.fetchall() if cursor.description else []

    def one(self, query: Query, **values: Value) -> Row | None:
        rows = self.all(query, **values)
        return rows[0] if rows else None

    def notify(self, topic: Topic) -> None:
        self.topics.add(topic)


def connect(url: str) -> _Connection:
    """Return a connection whose commits need not reach the disk, unless they say so.

    Raises:
        psycopg.Error: the server cannot be reached, or refuses it.
    """
    return psycopg.connect(
        url,
        autocommit=True,
        row_factory=dict_row,
        connect_timeout=_CONNECT_TIMEOUT_S,
        application_name="replica-videos",
        options=f"-c synchronous_commit=on -c statement_timeout={_STATEMENT_TIMEOUT_MS}",
    )


def migrate(url: str) -> list[str]:
    """Bring the tables up to date; return the names of what was applied.

    Raises:
        DatabaseError: the server cannot be used, or its tables are another version's.
    """
    try:
        with connect(url) as connection:
            return migrate_postgres(connection)
    except psycopg.Error as error:
        raise DatabaseError(f"the database cannot be used: {error}") from error


def _reason(error: Exception) -> str:
    return " ".join(str(error.__cause__ or error).split())


def _for_caller(error: Exception) -> Exception:
    """Return the error for a caller."""
    if isinstance(error, _Lost):
        kind = DatabaseUncertain if error.uncertain else DatabaseUnavailable
        problem: DatabaseError = kind(_reason(error))
    elif isinstance(error, _CONFLICTS):
        problem = DatabaseUnavailable(f"the database is too busy: {_reason(error)}")
    elif isinstance(error, psycopg.Error):
        problem = DatabaseError(f"the database says: {_reason(error)}")
    elif isinstance(error, StopIteration):
        stopped = RuntimeError("a work raised StopIteration")
        stopped.__cause__ = error
        return stopped
    else:
        return error
    problem.__cause__ = error
    return problem
