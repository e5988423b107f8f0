"""The SQLite engine: one connection in a thread of its own, and works committed in groups."""

import asyncio
import contextlib
import json
import logging
import sqlite3
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar, cast

import aiosqlite

from bot.metrics import Metrics
from bot.store.database import (
    Call,
    Database,
    DatabaseCorrupt,
    DatabaseError,
    DatabaseInUse,
    DatabaseUnavailable,
    DatabaseUncertain,
    Query,
    Row,
    Topic,
    Transaction,
    Value,
    to_its_end,
    until_free,
)
from bot.store.migrate import migrate_sqlite, refuse_other_versions
from bot.store.sqlite_file import (
    FileLock,
    OpenFiles,
    check_file,
    connect,
    describe,
    find_writer,
    is_about_file,
    is_busy,
    is_corrupt,
    is_unwritten,
)
from bot.timings import Timings

_LOG: Final = logging.getLogger(__name__)
_T = TypeVar("_T")


class Connection(aiosqlite.Connection):
    """aiosqlite's connection, which also runs a function of ours in its thread, in one hop.

    A hop for each statement costs four times as much under load. ``_execute`` is aiosqlite's own,
    and not public: therefore its minor version is pinned, and a test uses it.
    """

    async def open(self) -> None:
        """Open it, or raise once its thread has ended, which reports to the event loop."""
        try:
            await self
        except BaseException:
            await to_its_end(asyncio.to_thread(self._thread.join))
            raise

    async def run(self, function: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run ``function`` with SQLite's own connection, after all functions submitted before."""
        result: _T = await self._execute(function, self._conn)  # type: ignore[no-untyped-call]
        return result

    def interrupt_now(self) -> None:
        """Have the statement fail that runs in the connection's thread, if one does."""
        self._conn.interrupt()


@contextlib.asynccontextmanager
async def opened(path: Path, lock_timeout: timedelta) -> AsyncIterator[Connection]:
    """Open a database for this process alone; wait for another process until the timeout."""
    connection, lock = await until_free(
        partial(_connect, path),
        DatabaseInUse,
        lock_timeout,
        "waiting for another process to close the database",
    )
    try:
        yield connection
    finally:
        try:
            await to_its_end(connection.close())
        finally:
            lock.release()


async def _connect(path: Path) -> tuple[Connection, FileLock]:
    lock = FileLock(path)  # not in a thread, which would have it after a cancellation
    try:
        await asyncio.to_thread(check_file, path)
        await asyncio.to_thread(refuse_other_versions, path)
        connection = Connection(partial(connect, path), iter_chunk_size=64)
        await connection.open()
    except BaseException:
        lock.release()
        raise
    return connection, lock


# Works that are committed together at most: each waits for the others.
_MAX_GROUP: Final = 64
_LOCK_TIMEOUT: Final = Timings().lock_timeout


class _FileError(Exception):
    """The file or its disk failed, not the statement: ``__cause__`` says how.

    ``uncertain``: the next start may find what was committed.
    """

    def __init__(self, *, uncertain: bool) -> None:
        super().__init__()
        self.uncertain = uncertain


# The outcome of a call: its result, or the error, after which nothing of it was stored.
_Outcome: TypeAlias = tuple[Any, Exception | None]


@dataclass(slots=True)
class _Done:
    """What became of a group."""

    outcomes: list[_Outcome]
    """In the order of the group."""
    notified: set[tuple[Topic, str]] = field(default_factory=set)
    wrote: bool = False
    synced: bool = False
    """A change reached the disk."""
    commits: list[tuple[float, bool]] = field(default_factory=list)
    """The seconds that each commit of a change took, and whether it waited for the disk."""


class SQLiteDatabase(Database):
    """A file that no other bot has open.

    Works wait in one queue and are committed in groups, in one transaction in the connection's
    thread. If one of a group fails, each runs once more, in a transaction of its own.

    A disk that accepts no writes is logged once, and tried again with the next work. It works again
    once a change has reached it: one that a power cut may undo proves nothing. A file that is
    damaged is not used any more: even its record of paid calls may be wrong.
    """

    is_sole_process = True

    def __init__(
        self, connection: Connection, path: Path, files: OpenFiles, metrics: Metrics
    ) -> None:
        super().__init__()
        self._metrics = metrics
        self._connection = connection
        self._path = path
        self._files = files
        self._waiting: deque[Call] = deque()
        self._group: list[Call] = []
        self._arrived = asyncio.Event()
        self._problem: DatabaseError | None = None
        self._syncs = True
        self._gives_way = False
        self._committer = asyncio.create_task(self._commit_groups())  # noqa: TID251 - see close
        self._committer.add_done_callback(self._committer_ended)

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls, path: Path, lock_timeout: timedelta, metrics: Metrics | None = None
    ) -> AsyncIterator["SQLiteDatabase"]:
        """Open the file at ``path`` and bring its tables up to date.

        Args:
            path: the file; it is made if it is not there.
            lock_timeout: how long to wait for another process to close it.
            metrics: where commits are measured.

        Raises:
            DatabaseInUse: another process has it.
            DatabaseCorrupt: it is damaged.
            DatabaseError: it cannot be opened or written, or is another program's.
        """
        async with opened(path, lock_timeout) as connection:
            await connection.run(partial(migrate_sqlite, path=path))
            files = await connection.run(partial(OpenFiles, path))
            database = cls(connection, path, files, metrics or Metrics())
            try:
                yield database
            finally:
                await to_its_end(database.close())

    def _add(self, call: Call) -> None:
        self._waiting.append(call)
        self._arrived.set()
        if self._gives_way:
            self._connection.interrupt_now()

    async def compact(self, *, give_way: bool) -> bool:
        """Rewrite the file and empty its log; see ``Database.compact``.

        Splitting a page leaves copies of rows in its free space, which ``secure_delete`` does not
        overwrite (https://sqlite.org/pragma.html#pragma_secure_delete). VACUUM leaves none.
        """
        if self._is_closing.is_set() or self._problem is not None or (give_way and self._group):
            return False
        self._gives_way = give_way
        try:
            return await self._connection.run(self._rewrite)
        except asyncio.CancelledError:
            self._connection.interrupt_now()
            raise
        finally:
            self._gives_way = False

    async def close(self) -> None:
        """Finish the works that wait; later ones raise DatabaseError."""
        self._is_closing.set()
        self._arrived.set()
        await asyncio.wait([self._committer])

    # ── The committer: the only one that uses the connection ──────────────────────────────────

    async def _commit_groups(self) -> None:
        while True:
            while not self._waiting:
                if self._is_closing.is_set():
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
            self._broken = self._problem
            self._unusable.set()
        for call in (*self._group, *self._waiting):
            call.fail(self._problem or DatabaseError("the database is closed"))
        self._waiting.clear()

    async def _commit(self, group: Sequence[Call]) -> None:
        """Run the works of a group and answer their callers."""
        if self._broken is not None:
            done = _Done([(None, self._broken)] * len(group))  # it is damaged
        else:
            done = await self._connection.run(partial(self._run_group, group))
        answers = [(result, error and self._for_caller(error)) for result, error in done.outcomes]
        failed = any(isinstance(error, _FileError) for _, error in done.outcomes)
        for seconds, durable in done.commits:
            self._metrics.committed(seconds, durable=durable)
        if failed:
            self._metrics.database_failed()
        if done.synced and self._problem is not None and not failed:
            _LOG.info("the database works again")
            self._problem = None
            self.wake_all()  # what failed may have been stored
        for topic, subject in done.notified:
            self.receive(topic, subject)
        for call, (result, problem) in zip(group, answers, strict=True):
            if problem is None:
                call.succeed(result)
            else:
                call.fail(problem)

    def _for_caller(self, error: Exception) -> Exception:
        """Return the error for a caller; what is wrong with the file is logged the first time."""
        if isinstance(error, _FileError) and isinstance(error.__cause__, Exception):
            return self._note(error.__cause__, uncertain=error.uncertain)
        if isinstance(error, sqlite3.Error):
            refused = DatabaseError(f"the database says: {error}")
            refused.__cause__ = error
            return refused
        return error

    def _note(self, error: Exception, *, uncertain: bool) -> DatabaseError:
        kind: type[DatabaseError] = DatabaseUncertain if uncertain else DatabaseUnavailable
        if is_corrupt(error):
            kind = DatabaseCorrupt
        problem = kind(describe(self._path, error))
        problem.__cause__ = error
        if str(problem) != str(self._problem):
            writer = find_writer(self._path) if is_busy(error) else {}
            extra = {"reason": str(problem), **writer}
            _LOG.error("the database does not work", extra=extra)
        self._problem = problem
        if is_corrupt(error):
            self._broken = problem
            self._unusable.set()
        return problem

    # ── In the connection's thread ────────────────────────────────────────────────────────────

    def _run_group(self, group: Sequence[Call], db: sqlite3.Connection) -> _Done:
        """Run works in one transaction; if one fails, each in a transaction of its own."""
        done = _Done([])
        try:
            self._check_files(db, done)
            try:
                self._run_transaction(db, group, done)
            except _FileError:
                raise
            except Exception:  # noqa: BLE001 - each then runs alone, and its caller gets it
                self._run_each_alone(db, group, done)
            self._check_files(db, done)
        except _FileError as error:
            return _Done([(None, error)] * len(group))
        return done

    def _run_each_alone(self, db: sqlite3.Connection, group: Sequence[Call], done: _Done) -> None:
        for call in group:
            try:
                self._run_transaction(db, [call], done)
            except _FileError as error:
                # Those before it are committed: only the others get the error.
                done.outcomes += [(None, error)] * (len(group) - len(done.outcomes))
                return
            except Exception as error:  # noqa: BLE001 - its caller gets it
                done.outcomes.append((None, error))

    def _run_transaction(self, db: sqlite3.Connection, group: Sequence[Call], done: _Done) -> None:
        tx, before = _Transaction(db), db.total_changes
        durable, wrote = any(call.durable for call in group), False  # until it is committed
        try:
            self._wait_for_disk(db, wanted=durable)
            db.execute("BEGIN IMMEDIATE")
            # A generator makes another error of StopIteration, which no future takes.
            outcomes = list[_Outcome]((call.work(tx), None) for call in group)
            wrote = db.total_changes > before
            began = time.perf_counter()
            db.execute("COMMIT")
            if wrote:
                done.commits.append((time.perf_counter() - began, durable))
        except BaseException as error:
            with contextlib.suppress(sqlite3.Error):  # SQLite may have done so itself
                db.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error) and is_about_file(error):
                uncertain = wrote and not is_unwritten(error)
                raise _FileError(uncertain=uncertain) from error
            raise
        done.outcomes += outcomes
        done.notified |= tx.notified
        done.wrote |= wrote
        done.synced |= wrote and durable

    def _rewrite(self, db: sqlite3.Connection) -> bool:
        try:
            self._files.check(db)
            db.execute("VACUUM")
            try:
                busy, _, _ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                return not busy  # a reader may still need the log
            finally:
                self._files.record(db)
        except (sqlite3.Error, OSError) as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
                return False  # to let others go first
            raise DatabaseError(describe(self._path, error)) from error

    def _check_files(self, db: sqlite3.Connection, done: _Done) -> None:
        try:
            self._files.check(db)
        except (sqlite3.Error, OSError) as error:
            raise _FileError(uncertain=done.wrote) from error

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


class _Transaction(Transaction):
    """The engine's ``Transaction``; what it notifies is sent after the commit."""

    def __init__(self, db: sqlite3.Connection) -> None:
        super().__init__()
        self._db = db

    def all(self, query: Query, **values: Value) -> list[Row]:
        for name in query.lists:
            values[name] = json.dumps(values[name])
        return cast(list[Row], self._db.execute(query.sqlite, values).fetchall())

    def lock(self, query: Query, **values: Value) -> None:
        """Do nothing: there is one writer."""


async def migrate(path: Path) -> list[str]:
    """Bring the tables of the database at ``path`` up to date; return what was applied.

    Raises:
        DatabaseError: it cannot be opened or written, it is damaged, or another process has it.
    """
    async with opened(path, _LOCK_TIMEOUT) as connection:
        return await connection.run(partial(migrate_sqlite, path=path))
