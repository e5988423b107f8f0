"""The SQLite file: one connection, one owner, changes committed in groups, numbered migrations."""

import asyncio
import contextlib
import functools
import logging
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeAlias, TypeVar

from bot.datafile import StoreError, begin_log, beside, is_damage, is_trouble, opened, told
from bot.timings import Timings

__all__ = [
    "Database",
    "StoreError",
    "Tables",
    "Trouble",
    "all_rows",
    "first_row",
    "insistent",
    "migrate",
    "moment_of",
    "ms_of",
    "repeatable",
    "transaction",
]

_LOG: Final = logging.getLogger(__name__)
_T = TypeVar("_T")
_P = ParamSpec("_P")

_MIGRATIONS: Final = Path(__file__).parent / "migrations"
# So many changes are committed together at the most: each waits for the others.
_GROUP: Final = 64


class Trouble(StoreError):
    """The database takes nothing from anybody at the moment, which is in the log already."""


@dataclass(slots=True)
class _Call:
    """A method's body on its way to the owner of the connection, and its answer on the way back."""

    body: Callable[[sqlite3.Connection], Any]
    lasts: bool
    answer: asyncio.Future[Any]


# What became of a call: its result, or why nothing of it was done.
_Outcome: TypeAlias = tuple[_Call, Any, Exception | None]


class Tables(Protocol):
    """Whoever keeps tables in a database."""

    @property
    def database(self) -> "Database":
        """The database that they are in."""


_Tables = TypeVar("_Tables", bound=Tables)


def transaction(
    method: Callable[Concatenate[_Tables, sqlite3.Connection, _P], _T],
) -> Callable[Concatenate[_Tables, _P], Coroutine[Any, Any, _T]]:
    """Run a method inside a transaction; its caller hears of it once that is committed.

    A caller that is cancelled gives up the answer, not the work. Where a neighbour in its group
    fails, a method is run once more: it changes nothing but the database.

    Raises:
        StoreError: nothing was done.
    """
    return _owned(method)


def insistent(
    method: Callable[Concatenate[_Tables, sqlite3.Connection, _P], _T],
) -> Callable[Concatenate[_Tables, _P], Coroutine[Any, Any, _T]]:
    """Run a method inside a transaction that writes down what nobody could find out anew.

    While the database takes nothing it is tried again and again. Its caller has the row in hand all
    the time: nobody takes up a row of which more is known than stands in it.

    Raises:
        StoreError: nothing was done, and nothing will be.
    """
    return _owned(method, insists=True)


def repeatable(
    method: Callable[Concatenate[_Tables, sqlite3.Connection, _P], _T],
) -> Callable[Concatenate[_Tables, _P], Coroutine[Any, Any, _T]]:
    """Run a method inside a transaction that a power cut may undo: it reads, or is done again then.

    It outlives the process all the same, and is on the disk with the next change that has to be.

    Raises:
        StoreError: nothing was done.
    """
    return _owned(method, lasts=False)


def _owned(
    method: Callable[Concatenate[_Tables, sqlite3.Connection, _P], _T],
    *,
    insists: bool = False,
    lasts: bool = True,
) -> Callable[Concatenate[_Tables, _P], Coroutine[Any, Any, _T]]:
    async def call(self: _Tables, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await self.database.transact(
            lambda db: method(self, db, *args, **kwargs), insists=insists, lasts=lasts
        )

    functools.update_wrapper(call, method)
    return call


class Database:
    """An open file, its tables up to date, that nobody else has open.

    Whatever is asked of it goes through one queue and is committed in groups: nobody sees half a
    change, and a caller that is cancelled gives up the answer, not the work. What a method asks of
    SQLite is answered from memory in some microseconds, without a trip to a thread. Only a commit
    waits for the disk, and does so in a thread.

    A disk that takes nothing is logged once, and tried with whatever comes next. In a file that is
    damaged nothing is tried any more: even what it says of who has paid for what may be wrong.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path, timings: Timings) -> None:
        self._db = connection
        self._timings = timings
        self._path = path
        self._wal = beside(path, "-wal")
        self._files = {file: file.stat() for file in (self._path, self._wal)}
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="database")
        self._queue: asyncio.Queue[_Call | None] = asyncio.Queue()
        self._trouble: Trouble | None = None
        self._damaged = asyncio.Event()
        self._closed = False
        self._syncs = True

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, path: Path, timings: Timings) -> AsyncIterator["Database"]:
        """Open the file at ``path`` and bring its tables up to date.

        Raises:
            StoreError: it cannot be opened or written, it is damaged, or another process has it.
        """
        async with opened(path, timings.lock_timeout) as connection:
            await asyncio.to_thread(_migrate, connection, path)
            database = cls(connection, path, timings)
            owner = asyncio.create_task(database._own())  # noqa: TID251 - awaited below
            try:
                yield database
            finally:
                database._closed = True
                database._queue.put_nowait(None)
                await asyncio.shield(asyncio.wait([owner]))
                database._thread.shutdown()

    async def transact(
        self,
        body: Callable[[sqlite3.Connection], _T],
        *,
        insists: bool = False,
        lasts: bool = True,
    ) -> _T:
        """Run ``body`` in a transaction and return its result once that is committed.

        What ``lasts`` is on the disk by then, whatever happens to the machine.

        Raises:
            StoreError: nothing of it was done.
        """
        while not self._closed:
            answer: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
            self._queue.put_nowait(_Call(body, lasts, answer))
            try:
                return await answer
            except Trouble:
                if not insists or self._damaged.is_set():
                    raise
            await asyncio.sleep(self._timings.retry_interval.total_seconds())
        raise StoreError("the database is closed")

    async def works(self) -> None:
        """Return if the database works; where it did not, that is found out by writing to it.

        Raises:
            StoreError: it does not work.
        """
        await self.transact(_read if self._trouble is None else _write)

    async def lasts(self) -> None:
        """Wait until the file is found to be damaged.

        Raises:
            StoreError: it is.
        """
        await self._damaged.wait()
        await self.works()

    async def _own(self) -> None:
        while (call := await self._queue.get()) is not None:
            group = [call]
            while len(group) < _GROUP and not self._queue.empty():
                following = self._queue.get_nowait()
                if following is None:
                    self._queue.put_nowait(None)
                    break
                group.append(following)
            await self._commit(group)

    async def _commit(self, group: list[_Call]) -> None:
        """Run the bodies and tell the callers."""
        results: list[_Outcome]
        try:
            if self._damaged.is_set() and self._trouble is not None:
                raise self._trouble
            results = await self._run(group)
        except (sqlite3.Error, OSError, Trouble) as error:
            trouble = self._note(error)
            results = [(call, None, trouble) for call in group]
        for call, result, failure in results:
            if call.answer.done():
                continue  # its caller was cancelled
            if failure is None:
                call.answer.set_result(result)
            else:
                call.answer.set_exception(failure)

    async def _run(self, group: list[_Call]) -> list[_Outcome]:
        """Run the bodies in one transaction; where one fails, each in a transaction of its own."""
        self._see_to_files()
        before = self._db.total_changes
        try:
            results = await self._committed(group)
        except Exception as error:
            if is_trouble(error):
                raise
            # It is its caller's, not its neighbours'.
            results = []
            for call in group:
                try:
                    results.append(await self._alone(call))
                except sqlite3.Error as trouble:
                    # Those before it are committed: only the others may hear that they are not.
                    noted = self._note(trouble)
                    return results + [(each, None, noted) for each in group[len(results) :]]
        self._see_to_files()
        if self._trouble is not None and self._db.total_changes > before:
            _LOG.info("the database works again")
            self._trouble = None
        return results

    async def _alone(self, call: _Call) -> _Outcome:
        try:
            [result] = await self._committed([call])
        except Exception as error:
            if is_trouble(error):
                raise
            return call, None, _to_caller(error)
        return result

    async def _committed(self, group: list[_Call]) -> list[_Outcome]:
        self._sync(wanted=any(call.lasts for call in group))
        before = self._db.total_changes
        try:
            self._db.execute("BEGIN IMMEDIATE")
            results: list[_Outcome] = [(call, call.body(self._db), None) for call in group]
            if self._db.total_changes == before:
                self._db.execute("COMMIT")
            else:
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(self._thread, self._db.execute, "COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):  # SQLite may have done so itself
                self._db.execute("ROLLBACK")
            raise
        return results

    def _sync(self, *, wanted: bool) -> None:
        """Have a commit wait for the disk from now on, or not."""
        if wanted is not self._syncs:
            # No execute(): SQLite obeys where it compiles this, and that would happen only once.
            self._db.executescript(f"PRAGMA synchronous = {'FULL' if wanted else 'NORMAL'}")
            self._syncs = wanted

    def _see_to_files(self) -> None:
        """See that it is still the files at their paths that SQLite has open.

        It would go on without them, and commit to nowhere. A log that is gone is made anew; what
        was in it is not lost.

        Raises:
            FileNotFoundError: the database itself is gone.
        """
        if not self._is_there(self._path):
            raise FileNotFoundError
        if self._is_there(self._wal):
            return
        # Without a log all that was in it goes into the database.
        self._db.execute("PRAGMA journal_mode = DELETE").fetchall()
        begin_log(self._db)
        self._files[self._wal] = self._wal.stat()
        _LOG.warning("the database's log was gone: made anew", extra={"file": str(self._wal)})

    def _is_there(self, path: Path) -> bool:
        try:
            return os.path.samestat(self._files[path], path.stat())
        except OSError:
            return False

    def _note(self, error: Exception) -> Trouble:
        """Return what everybody is told, and log it the first time."""
        if isinstance(error, Trouble):
            return error
        trouble = Trouble(told(self._path, error))
        trouble.__cause__ = error
        if str(trouble) != str(self._trouble):
            _LOG.error("the database does not work", extra={"reason": str(trouble)})
        self._trouble = trouble
        if is_damage(error):
            self._damaged.set()
        return trouble


def _read(db: sqlite3.Connection) -> None:
    all_rows(db, "SELECT name FROM migrations")


def _write(db: sqlite3.Connection) -> None:
    db.execute("UPDATE migrations SET name = name")


def _to_caller(error: Exception) -> Exception:
    if not isinstance(error, sqlite3.Error):
        return error
    refused = StoreError(f"the database says: {error}")
    refused.__cause__ = error
    return refused


async def migrate(path: Path) -> list[str]:
    """Bring the tables of the database at ``path`` up to date; return what was applied.

    Raises:
        StoreError: it cannot be opened or written, it is damaged, or another process has it.
    """
    async with opened(path, Timings().lock_timeout) as db:
        return await asyncio.to_thread(_migrate, db, path)


def _migrate(db: sqlite3.Connection, path: Path) -> list[str]:
    try:
        db.execute("CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY)")
        done = {row["name"] for row in all_rows(db, "SELECT name FROM migrations")}
        files = {file.stem: file for file in sorted(_MIGRATIONS.glob("*.sql"))}
        if unknown := done - files.keys():
            raise StoreError(
                f"the database was made by a newer version (it has {max(unknown)}): "
                "install that version again"
            )
        new = [name for name in files if name not in done]
        for name in new:
            sql = files[name].read_text()
            mark = f"INSERT INTO migrations VALUES ('{name}')"  # noqa: S608 - a file's name of ours
            try:
                db.executescript(f"BEGIN IMMEDIATE;\n{sql};\n{mark};\nCOMMIT;")
            except sqlite3.Error:
                with contextlib.suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
                raise
    except sqlite3.Error as error:
        why = told(path, error)
        raise StoreError(f"the tables could not be brought up to date: {why}") from error
    return new


def all_rows(
    db: sqlite3.Connection, sql: str, values: Mapping[str, Any] | None = None
) -> list[sqlite3.Row]:
    """Return what a statement selects or returns."""
    return db.execute(sql, values or {}).fetchall()


def first_row(db: sqlite3.Connection, sql: str, values: Mapping[str, Any]) -> sqlite3.Row | None:
    """Return the first row of what a statement selects or returns, None where there is none."""
    rows = all_rows(db, sql, values)
    return rows[0] if rows else None


def ms_of(moment: datetime) -> int:
    """Return a moment as it is stored: milliseconds since 1970, UTC."""
    return round(moment.timestamp() * 1000)


def moment_of(ms: int | None) -> datetime | None:
    """Return a stored moment."""
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)
