"""The SQLite engine: its file, and one connection in a thread of its own that commits in groups."""

import asyncio
import contextlib
import fcntl
import json
import logging
import os
import shutil
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, cast

import aiosqlite

from bot.metrics import Metrics
from bot.store.database import (
    Call,
    Committed,
    Database,
    DatabaseCorrupt,
    DatabaseError,
    DatabaseInUse,
    DatabaseUnavailable,
    DatabaseUncertain,
    Query,
    Row,
    Transaction,
    Value,
    to_its_end,
    until_free,
)
from bot.store.migrate import MAKE, checksum, pending_steps, steps, warn_of_newer

_LOG: Final = logging.getLogger(__name__)
_T = TypeVar("_T")

# What is wrong and what to do, by SQLite's primary result code (https://sqlite.org/rescode.html).
_REMEDIES: Final = {
    sqlite3.SQLITE_BUSY: (
        "is in use by another process: only one bot may run on a database, and nothing else may "
        "write to it. End the other one"
    ),
    sqlite3.SQLITE_FULL: "cannot take anything more, because its disk is full. Make room there",
    sqlite3.SQLITE_IOERR: (
        "cannot be read or written: its disk is full, may only be read, or is broken. "
        "Check the disk"
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
_UNWRITTEN: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE})
_CORRUPT: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
TABLES: Final = (
    "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name"
)
# How a write-ahead log begins, in either order of bytes
# (https://sqlite.org/fileformat2.html#the_write_ahead_log).
_WAL_HEADER_BYTES: Final = 32
_WAL_BEGINNINGS: Final = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
# For this long a statement waits for another program that has locked the database to write,
# although none may. A work may wait for the group before it as well, and Slack for three seconds.
_BUSY_TIMEOUT_S: Final = 0.7
_WRITER_BYTE: Final = "120"


class FileMoved(OSError):
    """The database is no longer at its path."""


class FileTruncated(OSError):
    """The database or its log is shorter than it was: a part of it is missing."""


def beside(path: Path, ending: str) -> Path:
    """Return a file that belongs to a database: ``-wal``, ``-shm``, or ``-lock``, our own.

    It is beside the database itself, which is where SQLite has its own, not beside a link to it.
    """
    path = path.resolve()
    return path.with_name(path.name + ending)


def is_about_file(error: Exception) -> bool:
    """Return whether an error is about the file or its disk, not about a statement."""
    return _code(error) in _REMEDIES


def is_unwritten(error: Exception) -> bool:
    """Return whether an error of a commit says that its record was not written completely.

    After any other, such as a disk that does not confirm what was written, the record may be in
    the log, and the next start may find it there.
    """
    return getattr(error, "sqlite_errorcode", None) in _UNWRITTEN


def is_corrupt(error: Exception) -> bool:
    """Return whether an error of SQLite's says that the file is damaged."""
    return isinstance(error, FileTruncated) or _code(error) in _CORRUPT


def is_busy(error: BaseException | None) -> bool:
    """Return whether an error of SQLite's says that another process has locked the file."""
    return _code(error) == sqlite3.SQLITE_BUSY


def describe(path: Path, error: Exception) -> str:
    """Return what is wrong with a database and what to do, for the person who runs the bot."""
    if isinstance(error, FileMoved):
        return (
            f"{path} is no longer where it was, or another file is. Put it back, and the bot goes "
            "on; or restart the bot with what is there."
        )
    if isinstance(error, FileTruncated):
        return f"{error} is shorter than it was: a part of it is missing. {_restore(path)}"
    if isinstance(error, OSError):
        return f"{path} {_REMEDIES[sqlite3.SQLITE_CANTOPEN]} ({error.strerror})."
    said = f"{path} {_REMEDIES.get(_code(error) or 0, 'cannot be used')} ({error})."
    return f"{said} {_restore(path)}" if is_corrupt(error) else said


@contextlib.contextmanager
def translated(path: Path, doing: str = "") -> Iterator[None]:
    """Turn errors of SQLite and the system into errors of ours, with a remedy.

    Raises:
        DatabaseCorrupt: the file is damaged.
        DatabaseInUse: another program has locked it.
        DatabaseError: any other error.
    """
    try:
        yield
    except BrokenPipeError:  # it is about what is written of what was read
        raise
    except (sqlite3.Error, OSError) as error:
        kind = DatabaseError
        if is_corrupt(error):
            kind = DatabaseCorrupt
        elif is_busy(error):
            kind = DatabaseInUse
        raise kind(doing + describe(path, error)) from error


# ── The lock ──────────────────────────────────────────────────────────────────────────────────


class FileLock:
    """The lock of the one bot that uses a database: a system lock on a file beside it.

    It ends with its process, however that ends. Other programs may read the database meanwhile.
    """

    def __init__(self, path: Path) -> None:
        """Take the lock of the database at ``path``.

        Raises:
            DatabaseInUse: another process has it.
            DatabaseError: the folder cannot be written.
        """
        self._path = beside(path, "-lock")
        while True:
            try:
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            except FileNotFoundError as error:
                raise DatabaseError(
                    f"{path} cannot be created: the folder {path.absolute().parent} is missing. "
                    "Create it, or set DATABASE_URL to a file in another one."
                ) from error
            except OSError as error:
                raise DatabaseError(describe(path, error)) from error
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(self._file)
                raise DatabaseInUse(f"{path} {_REMEDIES[sqlite3.SQLITE_BUSY]}.") from error
            # Its last owner may have removed it after it was opened here: then it locks nothing.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(self._file), self._path.stat()):
                    return
            os.close(self._file)

    def release(self) -> None:
        """Release the lock, and remove its file."""
        with contextlib.suppress(OSError):  # the folder may have become read-only
            self._path.unlink()
        os.close(self._file)


def find_writer(path: Path) -> dict[str, object]:
    """Return the process that has locked a database to write, for the log; {} if none is found.

    The lock is on a byte of the shared memory (https://sqlite.org/walformat.html, 2.3). Linux lists
    it like "1: POSIX  ADVISORY  WRITE 1234 08:01:131 120 120":
    https://man7.org/linux/man-pages/man5/proc_locks.5.html
    """
    with contextlib.suppress(OSError, ValueError):
        inode = beside(path, "-shm").stat().st_ino
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            match line.split():
                case [_, "POSIX", _, "WRITE", process, file, start, _] if (
                    start == _WRITER_BYTE and file.endswith(f":{inode}")
                ):
                    name = Path(f"/proc/{process}/comm").read_text(errors="replace").strip()
                    return {"pid": int(process), "application": name}
    return {}


# ── Checking it ───────────────────────────────────────────────────────────────────────────────


def require_file(path: Path) -> None:
    """Require that there is a database, for a command that makes none.

    Raises:
        DatabaseError: there is none.
    """
    if not path.exists():
        raise DatabaseError(
            f"{path} is not there: set DATABASE_URL to the bot's database, or run this in the "
            "folder that the bot runs in."
        )


def check_file(path: Path, *, pages: Literal["", "quick_check", "integrity_check"] = "") -> None:
    """Check that a database is one of ours and undamaged, without changing anything.

    Its header, its size and its log are checked, which takes no time. ``pages`` says how all of it
    is read: quick_check does not compare indexes with their tables, which takes half of the time.
    Other reasons why it cannot be read are left for ``connect`` to report.

    Raises:
        DatabaseCorrupt: it is damaged, or a part of it is missing.
        DatabaseError: it is another program's.
        DatabaseInUse: another process keeps it from being read.
    """
    if path.is_dir():
        raise DatabaseError(f"{path} is a folder: set DATABASE_URL to a file, which may be in it")
    wal = beside(path, "-wal")
    logged = _size(wal)
    if not _size(path):
        if logged > _WAL_HEADER_BYTES:
            raise DatabaseCorrupt(
                f"{path} is missing or empty, but there is {wal}, with what was accepted last. Put "
                "the file back that belongs to it; or move it away, to begin with an empty one."
            )
        return
    found = "ok"
    try:
        if logged and _has_no_log(path):
            raise DatabaseCorrupt(
                f"{wal} belongs to another file than {path}, which is a backup: move the log away."
            )
        with read_only(path) as db:
            tables = {row["name"] for row in db.execute(TABLES)}
            if tables and "migrations" not in tables:
                raise DatabaseError(
                    f"{path} is another program's database: set DATABASE_URL to a file of the "
                    "bot's own"
                )
            if pages:
                [found] = db.execute(f"PRAGMA {pages}(1)").fetchone()
    except (sqlite3.Error, OSError) as error:
        if is_corrupt(error) or is_busy(error):
            with translated(path):
                raise
        return
    if found != "ok":
        raise DatabaseCorrupt(f"{path} is damaged ({' '.join(found.split())}). {_restore(path)}")
    if logged >= _WAL_HEADER_BYTES and not _is_log(wal):
        raise DatabaseCorrupt(
            f"{wal} is damaged, and with it what was accepted last. {_restore(path)} Or move only "
            f"{wal.name} away, to go on without that: then something may be made twice."
        )


@contextlib.contextmanager
def read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database without changing it or the files beside it, or creating any."""
    path = path.resolve()
    with contextlib.ExitStack() as stack:
        wal, journal = beside(path, "-wal"), beside(path, "-journal")
        if not journal.exists() and (not wal.exists() or _size(wal) == _WAL_HEADER_BYTES):
            # No process has it open; or one has just begun its log, or was killed then: with a log
            # that has only a header, SQLite waits for ten seconds for somebody to repair it.
            mode = "mode=ro&immutable=1"
        elif not journal.exists() and beside(path, "-shm").exists():
            # A process that was killed may have left it: it is not repaired
            # (https://sqlite.org/src/file?name=src/os_unix.c, unixOpenSharedMemory).
            mode = "mode=ro&readonly_shm=1"
        else:
            # Reading would create the other file, where somebody has put only these two there; or
            # undo what a process had begun that was killed in its first start.
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            for file in filter(Path.exists, (path, wal, journal)):
                shutil.copyfile(file, folder / file.name)
            path, mode = folder / path.name, "mode=rw"
        address = f"{path.absolute().as_uri()}?{mode}"
        db = sqlite3.connect(address, uri=True, timeout=0)
        stack.enter_context(contextlib.closing(db))
        db.row_factory = sqlite3.Row
        db.text_factory = text_or_bytes
        yield db


def _has_no_log(path: Path) -> bool:
    """Return whether a database is one that is used without a log, such as a backup.

    SQLite would apply the log of another file to it. One that is used with a log says so
    (https://sqlite.org/fileformat2.html, 1.3.3).
    """
    with path.open("rb") as file:
        header = file.read(20)
    return header.startswith(b"SQLite format 3\0") and header[18:] == b"\1\1"


def _is_log(wal: Path) -> bool:
    """Return whether a log begins as one: if it does not, SQLite ignores all that is in it."""
    with wal.open("rb") as file:
        header = file.read(_WAL_HEADER_BYTES)
    # A power cut may have come before anything was committed in it.
    return not any(header) or header.startswith(_WAL_BEGINNINGS)


# ── Using it ──────────────────────────────────────────────────────────────────────────────────


def connect(path: Path) -> sqlite3.Connection:
    """Open the one connection that writes. The caller has the lock.

    Raises:
        DatabaseError: it cannot be opened or written.
    """
    with translated(path):
        db = sqlite3.connect(path, isolation_level=None, timeout=_BUSY_TIMEOUT_S)
        try:
            os.chmod(path, 0o600)  # noqa: PTH101 - people's words are in it
            db.row_factory = sqlite3.Row
            db.text_factory = text_or_bytes
            for pragma in (
                "synchronous = FULL",
                "foreign_keys = ON",
                # Erased text must not remain in the file's free pages.
                "secure_delete = ON",
                # Not in a folder of the system, which may be full and keeps what is erased.
                "temp_store = MEMORY",
            ):
                db.execute(f"PRAGMA {pragma}").fetchall()
            _begin_log(db)
        except BaseException:
            db.close()
            raise
    return db


def text_or_bytes(stored: bytes) -> str | bytes:
    """Return a text of the database; one that is not UTF-8 must not make a whole query fail."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored


class OpenFiles:
    """The files that SQLite has open: whether they are still those at their paths, and whole."""

    def __init__(self, path: Path, db: sqlite3.Connection) -> None:
        self._path = path
        self._wal = beside(path, "-wal")
        self._opened: dict[Path, os.stat_result] = {}
        # Below these sizes, something is missing.
        self._whole: dict[Path, int] = {}
        self.record(db)

    def record(self, db: sqlite3.Connection) -> None:
        """Take the files as they are now: after they were opened, or made smaller."""
        self._opened = {file: file.stat() for file in (self._path, self._wal)}
        [pages], [page] = (
            tuple(db.execute(f"PRAGMA {name}").fetchone()) for name in ("page_count", "page_size")
        )
        # What was committed last is in the log, and changes the file's size later.
        self._whole[self._path] = min(self._opened[self._path].st_size, pages * page)
        self._whole[self._wal] = self._opened[self._wal].st_size

    def check(self, db: sqlite3.Connection) -> None:
        """Check that a commit goes where the next start looks for it.

        SQLite would go on without its files, and its commits would be lost. A log that is gone
        is made again; what was in it is not lost.

        Raises:
            FileMoved: the database itself is gone.
            FileTruncated: a part of the database is missing, or of its log.
        """
        size = self._size_of(self._path)
        if size is None:
            raise FileMoved
        if size < self._whole[self._path]:
            raise FileTruncated(str(self._path))
        logged = self._size_of(self._wal)
        if logged is not None and logged >= self._whole[self._wal]:
            self._whole[self._wal] = logged
            if size != self._opened[self._path].st_size:
                self.record(db)
            return
        # Without a log, everything in it goes into the database.
        try:
            db.execute("PRAGMA journal_mode = DELETE").fetchall()
        except sqlite3.OperationalError as error:
            if _code(error) == sqlite3.SQLITE_IOERR and logged is not None:
                raise FileTruncated(str(self._wal)) from error
            raise
        _begin_log(db)
        self.record(db)
        _LOG.warning("the database's log was gone: made again", extra={"file": str(self._wal)})

    def _size_of(self, path: Path) -> int | None:
        """Return the size of a file; None if it is not the one that was opened."""
        try:
            found = path.stat()
        except OSError:
            return None
        return found.st_size if os.path.samestat(self._opened[path], found) else None


def _begin_log(db: sqlite3.Connection) -> None:
    """Have changes written to a log first; its file is there when this returns."""
    db.execute("PRAGMA journal_mode = WAL").fetchall()
    db.execute("BEGIN IMMEDIATE")
    db.execute("COMMIT")


def _restore(path: Path) -> str:
    return (
        "The bot leaves it as it is. Put a backup in its place, or move it away to begin with an "
        f"empty one: then all that people asked for is forgotten. If there is a {path.name}-wal, "
        "move it away with the old file."
    )


def _code(error: BaseException | None) -> int | None:
    """Return SQLite's primary result code."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


# ── Its tables ────────────────────────────────────────────────────────────────────────────────


def migrate_sqlite(db: sqlite3.Connection, path: Path) -> None:
    """Apply what is missing, each step in a transaction.

    Raises:
        DatabaseError: a step failed, or another version made the database.
    """
    files = steps("sqlite")
    with translated(path, doing="the tables could not be brought up to date: "):
        done, pending = steps_in_sqlite(db, path)
        warn_of_newer(done, files)
        for name in pending:
            mark = f"INSERT INTO migrations VALUES ('{name}', '{checksum(files[name])}')"  # noqa: S608 - ours
            try:
                db.executescript(f"BEGIN IMMEDIATE;\n{MAKE};\n{files[name]};\n{mark};\nCOMMIT;")
            except sqlite3.Error:
                with contextlib.suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
                raise


def steps_in_sqlite(db: sqlite3.Connection, path: Path) -> tuple[list[str], list[str]]:
    """Return the names of the steps that are done, and of those that are pending.

    Raises:
        DatabaseError: another version made the database, and this one cannot use it.
    """
    tables = {row["name"] for row in db.execute(TABLES)}
    done: dict[str, str | None] | None = None
    if tables - {"migrations"}:
        rows = db.execute("SELECT * FROM migrations").fetchall() if "migrations" in tables else []
        # Before there was a schema file, there were no checksums at first.
        done = {str(row.get("name")): row.get("checksum") for row in map(dict, rows)}
    to_begin = f"move the file away (and {path.name}-wal, if it is there)"
    pending = pending_steps(done, steps("sqlite"), str(path), to_begin)
    return sorted(done or ()), pending


def refuse_other_versions(path: Path) -> None:
    """Refuse a database that this version cannot use, without changing anything.

    Other reasons why it cannot be read are left for ``connect`` to report.

    Raises:
        DatabaseError: another version made it.
    """
    with contextlib.suppress(sqlite3.Error, OSError), read_only(path) as db:
        steps_in_sqlite(db, path)


# ── The connection ────────────────────────────────────────────────────────────────────────────


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


class SQLiteDatabase(Database):
    """A file that no other bot has open.

    A group of works takes one trip to the connection's thread.

    A disk that accepts no writes is logged once, and tried again with the next work. It works again
    once a change has reached it: one that a power cut may undo proves nothing. A file that is
    damaged is not used any more: even its record of paid calls may be wrong.
    """

    is_sole_process = True

    def __init__(
        self, connection: Connection, path: Path, files: OpenFiles, metrics: Metrics
    ) -> None:
        super().__init__(metrics, _MAX_GROUP)
        self._connection = connection
        self._path = path
        self._files = files
        self._is_working = False
        self._syncs = True
        self._gives_way = False

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls, path: Path, lock_timeout: timedelta, metrics: Metrics | None = None
    ) -> AsyncIterator["SQLiteDatabase"]:
        """Open the file at ``path`` and bring its tables up to date.

        Args:
            path: the file; it is made if it is not there.
            lock_timeout: how long to wait for another process to close it.
            metrics: where failures are counted.

        Raises:
            DatabaseInUse: another process has it.
            DatabaseCorrupt: it is damaged.
            DatabaseError: it cannot be opened or written, or is another program's.
        """
        connection, lock = await until_free(
            partial(_connect, path),
            DatabaseInUse,
            lock_timeout,
            "waiting for another process to close the database",
        )
        try:
            await connection.run(partial(migrate_sqlite, path=path))
            files = await connection.run(partial(OpenFiles, path))
            database = cls(connection, path, files, metrics or Metrics())
            try:
                yield database
            finally:
                await to_its_end(database.close())
        finally:
            try:
                await to_its_end(connection.close())
            finally:
                lock.release()

    async def compact(self, *, give_way: bool) -> bool:
        """Rewrite the file and empty its log; see ``Database.compact``.

        Splitting a page leaves copies of rows in its free space, which ``secure_delete`` does not
        overwrite (https://sqlite.org/pragma.html#pragma_secure_delete). VACUUM leaves none.
        """
        if (
            self._is_closing.is_set()
            or self._problem is not None
            or (give_way and self._is_working)
        ):
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
        while self._workers:
            await asyncio.wait(self._workers)

    # ── Works ─────────────────────────────────────────────────────────────────────────────────

    def _start_worker(self) -> None:
        if not self._is_working:
            self._is_working = True
            self._workers.add(self._start(self._work()))
        if self._gives_way:
            self._connection.interrupt_now()

    async def _work(self) -> None:
        """Run what waits."""
        while group := self._waiting.take_group():
            in_transaction = partial(self._run_transaction, group)
            await self._run_group(group, partial(self._connection.run, in_transaction))
        self._is_working = False

    def _works_again(self, committed: Committed) -> bool:
        return committed.on_disk

    def _on_lost(self, group: Sequence[Call], error: DatabaseError) -> None:
        self._metrics.database_errors.inc()
        if str(error) != self._problem:
            writer = find_writer(self._path) if is_busy(error.__cause__) else {}
            extra = {"reason": str(error), **writer}
            _LOG.error("the database does not work", extra=extra)
        self._problem = str(error)
        if isinstance(error, DatabaseCorrupt):
            self._end(error)
        # Each of its group would wait as long for a process that has locked the file.
        for call in (*group, *self._waiting.take_alone()):
            call.fail(type(error)(str(error)))

    async def _on_failed(self, call: Call, error: Exception) -> None:
        if isinstance(error, sqlite3.Error):
            error = DatabaseError(f"the database says: {error}")
        call.fail(error)

    # ── In the connection's thread ────────────────────────────────────────────────────────────

    def _run_transaction(self, group: Sequence[Call], db: sqlite3.Connection) -> Committed:
        """Run works in one transaction.

        Raises:
            DatabaseUnavailable: the file or its disk failed; nothing was stored, unless it is
                DatabaseUncertain.
            DatabaseCorrupt: the file is damaged.
            Exception: what a work or one of its statements raised; nothing was stored.
        """
        tx, before = _Transaction(db), db.total_changes
        durable, wrote = any(call.durable for call in group), False  # until it is committed
        self._check_files(db, uncertain=False)
        try:
            self._wait_for_disk(db, wanted=durable)
            db.execute("BEGIN IMMEDIATE")
            # A generator makes another error of StopIteration, which no future takes.
            results = list[Any](call.work(tx) for call in group)
            wrote = db.total_changes > before
            db.execute("COMMIT")
        except BaseException as error:
            with contextlib.suppress(sqlite3.Error):  # SQLite may have done so itself
                db.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error) and is_about_file(error):
                uncertain = wrote and not is_unwritten(error)
                raise self._failure(error, uncertain=uncertain) from error
            raise
        self._check_files(db, uncertain=wrote)
        return Committed(results, tx.notified, durable and wrote)

    def _check_files(self, db: sqlite3.Connection, *, uncertain: bool) -> None:
        try:
            self._files.check(db)
        except (sqlite3.Error, OSError) as error:
            raise self._failure(error, uncertain=uncertain) from error

    def _failure(self, error: Exception, *, uncertain: bool) -> DatabaseError:
        """Return what callers get; ``uncertain``: the next start may find what was committed."""
        reason = describe(self._path, error)
        if is_corrupt(error):
            return DatabaseCorrupt(reason)
        return DatabaseUncertain(reason) if uncertain else DatabaseUnavailable(reason)

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
