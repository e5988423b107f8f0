"""The connection to a SQLite file: aiosqlite's, opened by one process at a time."""

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import aiosqlite

from bot.store.database import DatabaseCorrupt, DatabaseInUse, to_its_end
from bot.store.sqlite_file import FileLock, beside, check_file, connect, translated

_LOG: Final = logging.getLogger(__name__)
_T = TypeVar("_T")

# Between two tries to get a file that another process has, in seconds.
_LOCK_INTERVAL_S: Final = 0.1


class Connection(aiosqlite.Connection):
    """aiosqlite's connection, which also runs a function of ours in its thread, in one hop.

    A hop for each statement costs four times as much under load. ``_execute`` is aiosqlite's own,
    and not public: therefore its minor version is pinned, and ``tests/test_sqlite.py`` tests this.
    """

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
    loop = asyncio.get_running_loop()
    begun = loop.time()
    waits = False
    while True:
        try:
            lock = FileLock(path)  # not in a thread, which would have it after a cancellation
            try:
                await asyncio.to_thread(refuse_mixed, path)
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
            if not waits:
                waits = True
                extra = {"file": str(path), "at_most_s": round(lock_timeout.total_seconds())}
                _LOG.warning("waiting for another process to close the database", extra=extra)
        await asyncio.sleep(_LOCK_INTERVAL_S)
    if (waited := loop.time() - begun) > 1:
        _LOG.info("waited for another process to close the database", extra={"s": int(waited)})
    try:
        yield connection
    finally:
        try:
            await to_its_end(connection.close())
        finally:
            lock.release()


def refuse_mixed(path: Path) -> None:
    """Refuse a backup that was put beside the log of another file: SQLite would apply that to it.

    Only for a process that has not opened it: to close a file takes SQLite's locks of it away.
    """
    wal = beside(path, "-wal")
    with translated(path):
        if not path.exists() or not wal.exists() or not wal.stat().st_size:
            return
        with path.open("rb") as file:
            header = file.read(20)
    # A file that is used with a log says so (https://sqlite.org/fileformat2.html, 1.3.3).
    if header.startswith(b"SQLite format 3\0") and header[18:] == b"\1\1":
        raise DatabaseCorrupt(
            f"{wal} belongs to another file than {path}, which is a backup: move the log away."
        )


def is_interrupted(error: Exception) -> bool:
    """Return whether a statement was ended to let others go first."""
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT


def is_log_emptied(db: sqlite3.Connection) -> bool:
    """Move all of the log into the database; return False while a reader still needs it."""
    [[timeout]] = db.execute("PRAGMA busy_timeout").fetchall()
    db.execute("PRAGMA busy_timeout = 0").fetchall()
    try:
        busy, _, _ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        db.execute(f"PRAGMA busy_timeout = {timeout}").fetchall()
    return not busy
