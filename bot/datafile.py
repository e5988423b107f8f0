"""The database's file: looked over, opened for one process alone, and what may be wrong with it."""

import asyncio
import contextlib
import logging
import os
import sqlite3
import struct
from collections.abc import AsyncIterator, Collection
from datetime import timedelta
from pathlib import Path
from typing import Final

_LOG: Final = logging.getLogger(__name__)

# Between two tries to get a file that another process has, in seconds.
_AGAIN: Final = 0.1
# What is wrong and what to do, by SQLite's primary result code (https://sqlite.org/rescode.html).
_REMEDIES: Final = {
    sqlite3.SQLITE_BUSY: (
        "is in use by another process: only one bot may run on a database, and nothing else may "
        "have it open meanwhile, no backup and no sqlite3 shell. End the other one"
    ),
    sqlite3.SQLITE_FULL: "cannot take anything more, because its disk is full. Make room there",
    sqlite3.SQLITE_IOERR: (
        "cannot be read or written: its disk is full, may only be read, or is broken. "
        "Look after the disk"
    ),
    sqlite3.SQLITE_READONLY: (
        "may only be read. Give it and its folder to the user that the bot runs as, and see that "
        "the disk can be written"
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "cannot be opened. Its folder must be there, and belong with all that is in it to the "
        "user that the bot runs as"
    ),
    sqlite3.SQLITE_CORRUPT: "is damaged",
    sqlite3.SQLITE_NOTADB: "is not a database, or its beginning is damaged",
}
_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_TABLES: Final = "SELECT name FROM sqlite_schema WHERE type = 'table'"
# How a write-ahead log begins, in either order of bytes
# (https://sqlite.org/fileformat2.html#the_write_ahead_log).
_WAL_HEADER: Final = 32
# The files that were looked over ahead, as they were then.
_well: Final[dict[Path, list[tuple[int, int, int]]]] = {}
_WAL_ORDER: Final = {b"\x37\x7f\x06\x82": "<", b"\x37\x7f\x06\x83": ">"}


class StoreError(Exception):
    """The database did not take or give what it was asked: nothing of it was done."""


class InUseError(StoreError):
    """Another process has the file."""


def beside(path: Path, ending: str) -> Path:
    """Return one of the files that SQLite keeps beside a database: ``-wal`` or ``-shm``."""
    return path.with_name(path.name + ending)


def is_trouble(error: Exception) -> bool:
    """Return whether an error of SQLite's is about the file, and not about what was asked of it."""
    return _code(error) in _REMEDIES


def is_damage(error: Exception) -> bool:
    """Return whether an error of SQLite's says that the file is damaged."""
    return _code(error) in _DAMAGE


def told(path: Path, error: Exception) -> str:
    """Return what is wrong with a database and what to do, for whoever runs the bot."""
    if isinstance(error, FileNotFoundError):
        return (
            f"{path} is no longer where it was, or another file is. Put it back, and the bot goes "
            "on; or start the bot anew with what is there."
        )
    if isinstance(error, OSError):
        return f"{path} {_REMEDIES[sqlite3.SQLITE_CANTOPEN]} ({error.strerror})."
    said = f"{path} {_REMEDIES.get(_code(error) or 0, 'cannot be used')} ({error})."
    return f"{said} {_restore(path)}" if is_damage(error) else said


def look_ahead(path: Path) -> None:
    """Read all of a database before it is needed: ``look`` is spared it, if nothing changes."""
    state = _state(path)
    with contextlib.suppress(StoreError):
        look(path)
        _well[path] = state


def look(path: Path) -> None:
    """Read all of a database that no bot has open, and change nothing.

    What keeps it from being read is left for ``opened`` to find, unless it is one of these:

    Raises:
        StoreError: it is damaged, another program's, or another process has it.
    """
    if _well.pop(path, None) == _state(path):
        return
    wal = beside(path, "-wal")
    logged = _size(wal)
    if not _size(path):
        if logged > _WAL_HEADER:
            raise StoreError(
                f"{path} is missing or empty, but there is {wal}, with what was accepted last. Put "
                "the file back that belongs to it; or move it away, to begin with an empty one."
            )
        return
    # Where nothing is beside it nobody has it open, and nothing need be put there to read it.
    alone = not wal.exists() and not beside(path, "-journal").exists()
    way = "mode=ro&immutable=1" if alone else "mode=ro"
    try:
        with contextlib.closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?{way}", uri=True, timeout=0)
        ) as db:
            _refuse_foreign(path, [name for (name,) in db.execute(_TABLES)])
            # Only after an end in bad order indexes are held against their tables: it takes long.
            check = "integrity_check" if logged else "quick_check"
            [found] = db.execute(f"PRAGMA {check}(1)").fetchone()
    except sqlite3.Error as error:
        if is_damage(error) or _code(error) == sqlite3.SQLITE_BUSY:
            raise _refusal(path, error) from error
        return
    if found != "ok":
        raise StoreError(f"{path} is damaged ({' '.join(found.split())}). {_restore(path)}")
    if logged >= _WAL_HEADER and not _is_log(wal):
        raise StoreError(
            f"{wal} is damaged, and with it what was accepted last. {_restore(path)} Or move only "
            f"{wal.name} away, to go on without that: then something may be made twice."
        )


@contextlib.asynccontextmanager
async def opened(path: Path, patience: timedelta) -> AsyncIterator[sqlite3.Connection]:
    """Open a database for this process alone, once nobody else has it or after ``patience``.

    Raises:
        StoreError: it cannot be opened or written, it is damaged, or another process has it.
    """
    loop = asyncio.get_running_loop()
    begun, looked = loop.time(), False
    while True:
        try:
            if not looked:
                await asyncio.to_thread(look, path)
                looked = True
            db = await asyncio.to_thread(_open, path)
            break
        except InUseError:
            if loop.time() - begun >= patience.total_seconds():
                raise
        await asyncio.sleep(_AGAIN)
    if (waited := loop.time() - begun) > 1:
        _LOG.info("waited for another process to let go of the database", extra={"s": int(waited)})
    try:
        yield db
    finally:
        await asyncio.shield(asyncio.to_thread(db.close))


def _open(path: Path) -> sqlite3.Connection:
    try:
        # Not of this thread alone: one thread after the other has it, never two at once.
        db = sqlite3.connect(path, isolation_level=None, timeout=0, check_same_thread=False)
    except sqlite3.Error as error:
        raise _refusal(path, error) from error
    try:
        os.chmod(path, 0o600)  # noqa: PTH101 - people's words are in it
        _take(db, path)
    except BaseException as error:
        db.close()
        if isinstance(error, sqlite3.Error | OSError):
            raise _refusal(path, error) from error
        raise
    # Whoever looked at it may have left this one; nobody uses it now.
    beside(path, "-shm").unlink(missing_ok=True)
    return db


def _take(db: sqlite3.Connection, path: Path) -> None:
    db.row_factory = sqlite3.Row
    # Exclusive: two connections that checkpoint one WAL file can corrupt it before 3.51.3
    # (https://sqlite.org/wal.html#walresetbug).
    db.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
    _refuse_foreign(path, [row["name"] for row in db.execute(_TABLES)])
    for pragma in (
        "synchronous = FULL",
        "foreign_keys = ON",
        # What is erased is not to be read in the file's free pages.
        "secure_delete = ON",
        # Not in a folder of the system's, which may be full and keeps what is erased.
        "temp_store = MEMORY",
    ):
        db.execute(f"PRAGMA {pragma}").fetchall()
    begin_log(db)


def begin_log(db: sqlite3.Connection) -> None:
    """Have changes written to a log first."""
    db.execute("PRAGMA journal_mode = WAL").fetchall()
    # Makes its file, and takes the lock, so that a second process hears of it now.
    db.execute("BEGIN IMMEDIATE")
    db.execute("COMMIT")


def _refuse_foreign(path: Path, tables: Collection[str]) -> None:
    if tables and "migrations" not in tables:
        raise StoreError(f"{path} is another program's database: set DATABASE_URL")


def _refusal(path: Path, error: Exception) -> StoreError:
    kind = InUseError if _code(error) == sqlite3.SQLITE_BUSY else StoreError
    return kind(told(path, error))


def _restore(path: Path) -> str:
    return (
        "The bot leaves it as it is. Put a backup in its place, or move it away to begin with an "
        f"empty one: then all that people asked for is forgotten. If there is a {path.name}-wal, "
        "move it away with the old file."
    )


def _code(error: Exception) -> int | None:
    """Return SQLite's primary result code."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def _state(path: Path) -> list[tuple[int, int, int]]:
    """Return what changes with a database's files."""
    state = []
    for file in (path, beside(path, "-wal")):
        with contextlib.suppress(OSError):  # what is wrong with it is for ``opened`` to find
            at = file.stat()
            state.append((at.st_ino, at.st_size, at.st_mtime_ns))
    return state


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _is_log(wal: Path) -> bool:
    """Return whether a log begins as one: where it does not, SQLite overlooks all that is in it."""
    with wal.open("rb") as file:
        header = file.read(_WAL_HEADER)
    if not any(header):
        return True  # a power cut came before anything was committed in it
    if (order := _WAL_ORDER.get(header[:4])) is None:
        return False
    numbers = struct.unpack(f"{order}6I", header[:24])
    sums = [0, 0]
    for first, second in zip(numbers[::2], numbers[1::2], strict=True):
        sums[0] = (sums[0] + first + sums[1]) & 0xFFFFFFFF
        sums[1] = (sums[1] + second + sums[0]) & 0xFFFFFFFF
    return struct.unpack(">2I", header[24:]) == tuple(sums)
