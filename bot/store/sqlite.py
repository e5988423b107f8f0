"""The SQLite engine: one connection in a thread of its own, and works committed in groups."""

import asyncio
import contextlib
import json
import logging
import sqlite3
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar, cast

import aiosqlite

from bot.store.database import (
    DatabaseCorrupt,
    DatabaseError,
    DatabaseInUse,
    DatabaseUnavailable,
    Row,
    Topic,
    Transaction,
    Value,
)
from bot.store.migrate import migrate_sqlite
from bot.store.sql import Query
from bot.store.sqlite_file import (
    FileLock,
    OpenFiles,
    check_file,
    connect,
    describe,
    is_about_file,
    is_corrupt,
)
from bot.timings import StoreTimings

_LOG: Final = logging.getLogger(__name__)
_T = TypeVar("_T")

# Works that are committed together at most: each waits for the others.
_MAX_GROUP: Final = 64
# Between two tries to get a file that another process has, in seconds.
_LOCK_INTERVAL_S: Final = 0.1
_LOCK_TIMEOUT: Final = StoreTimings().lock_timeout
_READ: Final = Query("SELECT name FROM migrations")
_WRITE: Final = Query("UPDATE migrations SET name = name")


class Connection(aiosqlite.Connection):
    """aiosqlite's connection, which also runs a function of ours in its thread, in one hop.

    A hop for each statement costs four times as much under load. ``_execute`` is aiosqlite's own,
    and not public: therefore its minor version is pinned, and ``tests/test_sqlite.py`` tests this.
    """

    async def run(self, function: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run ``function`` with SQLite's own connection, after all functions submitted before."""
        result: _T = await self._execute(function, self._conn)  # type: ignore[no-untyped-call]
        return result


@dataclass(slots=True, eq=False)
class _Call:
    """A work that waits for its turn, and the future of its caller."""

    work: Callable[[Transaction], Any]
    durable: bool
    answer: asyncio.Future[Any]


class _FileError(Exception):
    """The file or its disk failed, not the statement: ``__cause__`` says how."""


# The outcome of a call: its result, or the error, after which nothing of it was stored.
_Outcome: TypeAlias = tuple[Any, Exception | None]


@dataclass(frozen=True, slots=True)
class _Done:
    """The outcomes of a group, in its order."""

    outcomes: list[_Outcome]
    topics: set[Topic]
    wrote: bool


class SQLiteDatabase:
    """A file that no other bot has open.

    Works wait in one queue and are committed in groups, in one transaction in the connection's
    thread. If one of a group fails, each runs once more, in a transaction of its own.

    A disk that accepts no writes is logged once, and tried again with the next work. A file that
    is damaged is not used any more: even its record of paid calls may be wrong.
    """

    def __init__(self, connection: Connection, path: Path, files: OpenFiles) -> None:
        self._connection = connection
        self._path = path
        self._files = files
        self._events = {topic: asyncio.Event() for topic in Topic}
        self._waiting: deque[_Call] = deque()
        self._group: list[_Call] = []
        self._arrived = asyncio.Event()
        self._closing = False
        self._problem: DatabaseError | None = None
        self._unusable = asyncio.Event()
        self._syncs = True
        self._committer = asyncio.create_task(self._commit_groups())  # noqa: TID251 - see close
        self._committer.add_done_callback(self._committer_ended)

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, path: Path, lock_timeout: timedelta) -> AsyncIterator["SQLiteDatabase"]:
        """Open the file at ``path`` and bring its tables up to date.

        Args:
            path: the file; it is made if it is not there.
            lock_timeout: how long to wait for another process to close it.

        Raises:
            DatabaseInUse: another process has it.
            DatabaseCorrupt: it is damaged.
            DatabaseError: it cannot be opened or written, or is another program's.
        """
        async with _opened(path, lock_timeout) as connection:
            await connection.run(partial(migrate_sqlite, path=path))
            database = cls(connection, path, OpenFiles(path))
            try:
                yield database
            finally:
                await _to_its_end(database.close())

    @property
    def is_sole_process(self) -> bool:
        """Whether no other process can use this database: always, it is locked."""
        return True

    def event(self, topic: Topic) -> asyncio.Event:
        """Return the event that is set when ``topic`` is notified."""
        return self._events[topic]

    async def run(self, work: Callable[[Transaction], _T], *, durable: bool = True) -> _T:
        """Run ``work`` in a transaction; see ``Database.run``."""
        if self._closing:
            raise DatabaseError("the database is closed")
        if self._unusable.is_set() and self._problem is not None:
            raise self._problem
        answer: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Call(work, durable, answer))
        self._arrived.set()
        return await answer

    async def check(self) -> None:
        """Return if the database works; if it did not, find out by writing to it."""
        query = _READ if self._problem is None else _WRITE
        await self.run(lambda tx: tx.all(query), durable=self._problem is not None)

    async def watch(self) -> None:
        """Wait until the database cannot be used any more, and raise why."""
        await self._unusable.wait()
        assert self._problem is not None  # noqa: S101 - it is set before the event
        raise self._problem

    async def close(self) -> None:
        """Finish the works that wait; later ones raise DatabaseError."""
        self._closing = True
        self._arrived.set()
        await asyncio.wait([self._committer])

    # ── The committer: the only one that uses the connection ──────────────────────────────────

    async def _commit_groups(self) -> None:
        while True:
            while not self._waiting:
                if self._closing:
                    return
                self._arrived.clear()
                await self._arrived.wait()
            while self._waiting and len(self._group) < _MAX_GROUP:
                self._group.append(self._waiting.popleft())
            await self._commit(self._group)
            self._group = []

    def _committer_ended(self, committer: asyncio.Task[None]) -> None:
        """Answer all callers that still wait: nothing else would."""
        error = asyncio.CancelledError() if committer.cancelled() else committer.exception()
        if error is not None:
            _LOG.critical("the task that writes to the database has ended", exc_info=error)
            self._problem = DatabaseUnavailable(
                f"{self._path} is not used any more: the part of the bot that writes to it has "
                "ended unexpectedly. Restart the bot."
            )
            self._problem.__cause__ = error
            self._unusable.set()
        for call in (*self._group, *self._waiting):
            if not call.answer.done():
                call.answer.set_exception(self._problem or DatabaseError("the database is closed"))
        self._waiting.clear()

    async def _commit(self, group: Sequence[_Call]) -> None:
        """Run the works of a group and answer their callers."""
        if self._unusable.is_set():
            done = _Done([(None, self._problem)] * len(group), set(), wrote=False)  # it is damaged
        else:
            done = await self._connection.run(partial(self._run_group, group))
        answers = [(result, error and self._for_caller(error)) for result, error in done.outcomes]
        failed = any(isinstance(error, _FileError) for _, error in done.outcomes)
        if done.wrote and self._problem is not None and not failed:
            _LOG.info("the database works again")
            self._problem = None
        for topic in done.topics:
            self._events[topic].set()
        for call, (result, problem) in zip(group, answers, strict=True):
            if call.answer.done():
                continue  # its caller was cancelled
            if problem is None:
                call.answer.set_result(result)
            else:
                call.answer.set_exception(problem)

    def _for_caller(self, error: Exception) -> Exception:
        """Return the error for a caller; what is wrong with the file is logged the first time."""
        if isinstance(error, _FileError) and isinstance(error.__cause__, Exception):
            return self._note(error.__cause__)
        if isinstance(error, sqlite3.Error):
            refused = DatabaseError(f"the database says: {error}")
            refused.__cause__ = error
            return refused
        if isinstance(error, StopIteration):
            # No future takes one. A generator turns it into the same.
            stopped = RuntimeError("a work raised StopIteration")
            stopped.__cause__ = error
            return stopped
        return error

    def _note(self, error: Exception) -> DatabaseError:
        kind = DatabaseCorrupt if is_corrupt(error) else DatabaseUnavailable
        problem = kind(describe(self._path, error))
        problem.__cause__ = error
        if str(problem) != str(self._problem):
            _LOG.error("the database does not work", extra={"reason": str(problem)})
        self._problem = problem
        if is_corrupt(error):
            self._unusable.set()
        return problem

    # ── In the connection's thread ────────────────────────────────────────────────────────────

    def _run_group(self, group: Sequence[_Call], db: sqlite3.Connection) -> _Done:
        """Run works in one transaction; if one fails, each in a transaction of its own."""
        before = db.total_changes
        topics: set[Topic] = set()
        try:
            self._check_files(db)
            try:
                outcomes = self._run_transaction(db, group, topics)
            except _FileError:
                raise
            except Exception:  # noqa: BLE001 - each then runs alone, and its caller gets it
                outcomes = self._run_each_alone(db, group, topics)
            self._check_files(db)
        except _FileError as error:
            return _Done([(None, error)] * len(group), set(), wrote=False)
        return _Done(outcomes, topics, wrote=db.total_changes > before)

    def _run_each_alone(
        self, db: sqlite3.Connection, group: Sequence[_Call], topics: set[Topic]
    ) -> list[_Outcome]:
        outcomes: list[_Outcome] = []
        for call in group:
            try:
                outcomes += self._run_transaction(db, [call], topics)
            except _FileError as error:
                # Those before it are committed: only the others get the error.
                return outcomes + [(None, error)] * (len(group) - len(outcomes))
            except Exception as error:  # noqa: BLE001 - its caller gets it
                outcomes.append((None, error))
        return outcomes

    def _run_transaction(
        self, db: sqlite3.Connection, group: Sequence[_Call], topics: set[Topic]
    ) -> list[_Outcome]:
        tx = _Transaction(db)
        try:
            self._wait_for_disk(db, wanted=any(call.durable for call in group))
            db.execute("BEGIN IMMEDIATE")
            outcomes: list[_Outcome] = [(call.work(tx), None) for call in group]
            db.execute("COMMIT")
        except BaseException as error:
            with contextlib.suppress(sqlite3.Error):  # SQLite may have done so itself
                db.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error) and is_about_file(error):
                raise _FileError from error
            raise
        topics |= tx.topics
        return outcomes

    def _check_files(self, db: sqlite3.Connection) -> None:
        try:
            self._files.check(db)
        except (sqlite3.Error, OSError) as error:
            raise _FileError from error

    def _wait_for_disk(self, db: sqlite3.Connection, *, wanted: bool) -> None:
        """Have commits wait for the disk from now on, or not.

        This is what ``durable`` means here: a group is committed with ``synchronous = FULL`` if one
        of its works is durable, else with ``NORMAL``. Then a power cut may undo it, but no end of
        the process, and it is on the disk with the next durable commit
        (https://sqlite.org/pragma.html#pragma_synchronous).
        """
        if wanted is not self._syncs:
            # Not execute(), which compiles it only once: SQLite applies it when it compiles it.
            db.executescript(f"PRAGMA synchronous = {'FULL' if wanted else 'NORMAL'}")
            self._syncs = wanted


class _Transaction:
    """The engine's ``Transaction``; its topics are notified after the commit."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.topics: set[Topic] = set()

    def all(self, query: Query, **values: Value) -> list[Row]:
        for name in query.lists:
            values[name] = json.dumps(values[name])
        return cast(list[Row], self._db.execute(query.sqlite, values).fetchall())

    def one(self, query: Query, **values: Value) -> Row | None:
        rows = self.all(query, **values)
        return rows[0] if rows else None

    def notify(self, topic: Topic) -> None:
        self.topics.add(topic)


async def migrate(path: Path, lock_timeout: timedelta = _LOCK_TIMEOUT) -> list[str]:
    """Bring the tables of the database at ``path`` up to date; return what was applied.

    Raises:
        DatabaseError: it cannot be opened or written, it is damaged, or another process has it.
    """
    async with _opened(path, lock_timeout) as connection:
        return await connection.run(partial(migrate_sqlite, path=path))


@contextlib.asynccontextmanager
async def _opened(path: Path, lock_timeout: timedelta) -> AsyncIterator[Connection]:
    """Open a database for this process alone; wait for another process until the timeout."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    while True:
        try:
            lock = await asyncio.to_thread(FileLock, path)
            try:
                await asyncio.to_thread(check_file, path)
                connection = Connection(partial(connect, path), iter_chunk_size=64)
                await connection
            except BaseException:
                lock.release()
                raise
            break
        except DatabaseInUse:
            if loop.time() - begun >= lock_timeout.total_seconds():
                raise
        await asyncio.sleep(_LOCK_INTERVAL_S)
    if (waited := loop.time() - begun) > 1:
        _LOG.info("waited for another process to close the database", extra={"s": int(waited)})
    try:
        yield connection
    finally:
        try:
            await _to_its_end(connection.close())
        finally:
            lock.release()


async def _to_its_end(closing: Coroutine[Any, Any, None]) -> None:
    """Await ``closing`` to its end, however often the caller is cancelled meanwhile.

    Raises:
        CancelledError: the caller was cancelled, and ``closing`` has ended.
    """
    task = asyncio.create_task(closing)  # noqa: TID251 - it ends here
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled
