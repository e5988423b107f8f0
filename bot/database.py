"""The SQLite file: one connection, one owner, changes committed in groups, numbered migrations."""

import asyncio
import contextlib
import functools
import os
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

import aiosqlite

_T = TypeVar("_T")
_P = ParamSpec("_P")

_MIGRATIONS: Final = Path(__file__).parent / "migrations"
# So many changes are committed together at the most: each waits for the others.
_GROUP: Final = 64


class StoreError(Exception):
    """The database did not take or give what it was asked: nothing of it was done."""


@dataclass(slots=True)
class _Call:
    """A method's body on its way to the owner of the connection, and its answer on the way back."""

    body: Callable[[aiosqlite.Connection], Awaitable[Any]]
    answer: asyncio.Future[Any]


class Tables(Protocol):
    """Whoever keeps tables in a database."""

    @property
    def database(self) -> "Database":
        """The database that they are in."""


_Tables = TypeVar("_Tables", bound=Tables)


def transaction(
    method: Callable[Concatenate[_Tables, aiosqlite.Connection, _P], Awaitable[_T]],
) -> Callable[Concatenate[_Tables, _P], Coroutine[Any, Any, _T]]:
    """Run a method inside a transaction; its caller hears of it once that is committed.

    A caller that is cancelled gives up the answer, not the work.

    Raises:
        StoreError: nothing was done.
    """

    async def call(self: _Tables, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await self.database.transact(lambda db: method(self, db, *args, **kwargs))

    functools.update_wrapper(call, method)
    return call


class Database:
    """An open file, its tables up to date, that nobody else has open.

    Whatever is asked of it goes through one queue and is committed in groups: nobody sees half a
    change, and a caller that is cancelled gives up the answer, not the work.
    """

    def __init__(self, connection: aiosqlite.Connection, path: Path) -> None:
        self._db = connection
        self._path = path
        self._file = path.stat().st_ino
        self._queue: asyncio.Queue[_Call | None] = asyncio.Queue()
        self._closed = False

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, path: Path) -> AsyncIterator["Database"]:
        """Open the file at ``path`` and bring its tables up to date.

        Raises:
            StoreError: it cannot be opened or written, or another process has it.
        """
        async with _connect(path) as connection:
            await _migrate(connection)
            database = cls(connection, path)
            owner = asyncio.create_task(database._own())  # noqa: TID251 - awaited below
            try:
                yield database
            finally:
                database._closed = True
                database._queue.put_nowait(None)
                await asyncio.shield(asyncio.wait([owner]))

    async def transact(self, body: Callable[[aiosqlite.Connection], Awaitable[_T]]) -> _T:
        """Run ``body`` in a transaction and return its result once that is committed.

        Raises:
            StoreError: nothing of it was done.
        """
        if self._closed:
            raise StoreError("the database is closed")
        answer: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait(_Call(body, answer))
        return await answer

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
        """Run the bodies in one transaction, each of them all or nothing, then tell the callers."""
        results: list[tuple[_Call, Any, Exception | None]] = []
        try:
            await self._db.execute("BEGIN IMMEDIATE")
            for call in group:
                await self._db.execute("SAVEPOINT one")
                try:
                    results.append((call, await call.body(self._db), None))
                except Exception as error:  # noqa: BLE001 - it is its caller's, not its neighbours'
                    await self._db.execute("ROLLBACK TO one")
                    results.append((call, None, error))
                await self._db.execute("RELEASE one")
            await self._db.execute("COMMIT")
            self._check_file()
        except (sqlite3.Error, OSError) as error:
            with contextlib.suppress(sqlite3.Error):
                await self._db.execute("ROLLBACK")
            results = [(call, None, error) for call in group]
        for call, result, failure in results:
            if call.answer.done():
                continue  # its caller was cancelled
            if failure is None:
                call.answer.set_result(result)
            elif isinstance(failure, sqlite3.Error | OSError):
                told = StoreError(f"the database says: {failure}")
                told.__cause__ = failure
                call.answer.set_exception(told)
            else:
                call.answer.set_exception(failure)

    def _check_file(self) -> None:
        """Raise ``OSError`` where the file is gone: SQLite would go on and commit to nowhere."""
        if self._path.stat().st_ino != self._file:
            raise FileNotFoundError(f"another file has taken the place of {self._path}")


@contextlib.asynccontextmanager
async def _connect(path: Path) -> AsyncIterator[aiosqlite.Connection]:
    try:
        # Tried here: where it cannot be opened, aiosqlite's thread may outlive the event loop.
        sqlite3.connect(path).close()
        os.chmod(path, 0o600)  # noqa: PTH101 - people's words are in it
        db = await aiosqlite.connect(path, isolation_level=None, timeout=1)
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"{path} cannot be opened: {error}") from error
    try:
        db.row_factory = sqlite3.Row
        try:
            # Exclusive: two connections that checkpoint one WAL file can corrupt it before 3.51.3
            # (https://sqlite.org/wal.html#walresetbug).
            await db.execute_fetchall("PRAGMA locking_mode = EXCLUSIVE")
            tables = {row["name"] for row in await all_rows(db, "SELECT name FROM sqlite_master")}
            if tables and "migrations" not in tables:
                raise StoreError(f"{path} is another program's database: set DATABASE_URL")
            for pragma in (
                "journal_mode = WAL",
                "synchronous = FULL",
                "foreign_keys = ON",
                # What is erased is not to be read in the file's free pages.
                "secure_delete = ON",
            ):
                await db.execute_fetchall(f"PRAGMA {pragma}")
            # Takes the lock, so that a second process hears of it now.
            await db.execute("BEGIN IMMEDIATE")
            await db.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                raise StoreError(
                    f"{path} is in use by another process: only one bot may run on a database"
                ) from error
            raise StoreError(f"{path} cannot be used: {error}") from error
        except sqlite3.DatabaseError as error:
            raise StoreError(f"{path} is not a database that can be read: {error}") from error
        yield db
    finally:
        await asyncio.shield(db.close())


async def migrate(path: Path) -> list[str]:
    """Bring the tables of the database at ``path`` up to date; return what was applied.

    Raises:
        StoreError: the file cannot be opened or written, or another process has it.
    """
    async with _connect(path) as db:
        return await _migrate(db)


async def _migrate(db: aiosqlite.Connection) -> list[str]:
    try:
        await db.execute("CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY)")
        done = {row["name"] for row in await all_rows(db, "SELECT name FROM migrations")}
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
                await db.executescript(f"BEGIN IMMEDIATE;\n{sql};\n{mark};\nCOMMIT;")
            except sqlite3.Error:
                await db.execute("ROLLBACK")
                raise
    except sqlite3.Error as error:
        raise StoreError(f"the tables could not be brought up to date: {error}") from error
    return new


async def all_rows(
    db: aiosqlite.Connection, sql: str, values: Mapping[str, Any] | None = None
) -> list[sqlite3.Row]:
    """Return what a statement selects or returns."""
    return list(await db.execute_fetchall(sql, values or {}))


async def first_row(
    db: aiosqlite.Connection, sql: str, values: Mapping[str, Any]
) -> sqlite3.Row | None:
    """Return the first row of what a statement selects or returns, None where there is none."""
    rows = await all_rows(db, sql, values)
    return rows[0] if rows else None


def ms_of(moment: datetime) -> int:
    """Return a moment as it is stored: milliseconds since 1970, UTC."""
    return round(moment.timestamp() * 1000)


def moment_of(ms: int | None) -> datetime | None:
    """Return a stored moment."""
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)
