"""The files and databases that are in use: what remains after a kill or a power cut."""

import contextlib
import os
import sqlite3
import struct
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import rows, sql

from bot.store.database import Database
from bot.store.postgres.engine import PostgresDatabase
from bot.store.sqlite import SQLiteDatabase
from tests.world import MEMORY

# https://sqlite.org/fileformat2.html#the_write_ahead_log
_HEADER: Final = 32
_FRAME: Final = struct.Struct(">II8s8s")
# https://sqlite.org/pragma.html#pragma_synchronous
_FULL: Final = 2


@dataclass(frozen=True)
class Rows:
    """What a database's files hold: rows by id, and the bytes themselves."""

    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    attempts: list[dict[str, Any]] = field(default_factory=list)
    deliveries: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By ``<job>/<role>``, for questions ``<job>/question-<number>``, as they are marked."""
    raw: bytes = b""
    usage: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class _Mark:
    """How far a log is certain to be on the disk, and when the database was last written then."""

    written: int = 0
    salt: bytes = b""
    end: int = _HEADER


class Disk:
    """The files of a database that is in use.

    The file itself is opened once and stays open: closing it would take the locks of this whole
    process from it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = path.with_name(f"{path.name}-wal")
        self._file: int | None = None
        self._syncs, self._commits = True, False
        # Statements are seen in the connection's own thread.
        self._looking = threading.Lock()
        self._certain = self._known = _Mark()

    async def watch(self, database: Database) -> None:
        """Start watching the file, which must exist, and record which commits are durable."""
        assert isinstance(database, SQLiteDatabase)
        self._file = os.open(self._path, os.O_RDONLY)
        self._certain = self._known = self._mark()

        # In one hop: the bot is running, and changes the mode between any two.
        def begin(db: sqlite3.Connection) -> None:
            [row] = db.execute("PRAGMA synchronous")
            self._syncs = tuple(row) == (_FULL,)
            db.set_trace_callback(self._see)

        await database._connection.run(begin)

    def leave(self) -> None:
        """Stop watching a file that is no longer used."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def left(self) -> tuple[bytes, bytes]:
        """Return the bytes of the database and of its log."""
        before, log = b"", b""
        # Read twice: pages may be on their way from the log to the database.
        while (now := self._content()) != before:
            before, log = now, self._log.read_bytes() if self._log.exists() else b""
        return now, log

    def certain(self) -> tuple[bytes, bytes]:
        """Return what of it a power cut leaves: no commit that waited for no disk."""
        with self._looking:
            self._look()
        now, log = self.left()
        if self._path.stat().st_mtime_ns != self._certain.written:
            return now, log  # SQLite waits for the disk before it moves anything from the log
        return now, log[: self._certain.end if log[16:24] == self._certain.salt else 0]

    def _see(self, statement: str) -> None:
        """Record a statement that begins: the ones before it are done."""
        with self._looking:
            self._look()
            self._commits = statement == "COMMIT"
            if statement.startswith("PRAGMA synchronous"):
                self._syncs = statement.endswith("FULL")

    def _look(self) -> None:
        """Record what the last statement, which may still be running, has written."""
        if self._commits:
            before, self._known = self._known, self._mark()
            # SQLite waits for the disk only where it has written something.
            if self._syncs and self._known != before:
                self._certain = self._known

    def _mark(self) -> _Mark:
        """Return how far the log goes now."""
        with self._log.open("rb") as log:
            header = log.read(_HEADER)
            salt, page = header[16:24], int.from_bytes(header[8:12], "big")
            at = end = self._known.end if salt == self._known.salt else _HEADER
            while len(frame := os.pread(log.fileno(), _FRAME.size, at)) == _FRAME.size:
                _, size_after_commit, its_salt, _ = _FRAME.unpack(frame)
                if its_salt != salt:
                    break  # it is left over from before the log was reset
                at += _FRAME.size + page
                end = at if size_after_commit else end
        return _Mark(self._path.stat().st_mtime_ns, salt, end)

    def put_back(self, left: tuple[bytes, bytes]) -> None:
        """Restore the files to an earlier state."""
        for path, content in zip((self._path, self._log), left, strict=True):
            path.write_bytes(content)

    def saved(self) -> Callable[[], None]:
        """Save what a power cut would leave now; return what puts it back."""
        return partial(self.put_back, self.certain())

    def rows(self, *, after_power_cut: bool = False) -> Rows:
        """Return what a process would find that opened what is left now."""
        left = self.certain() if after_power_cut else self.left()
        with _opened(left) as db:
            return Rows(
                {row["id"]: dict(row) for row in db.execute("SELECT * FROM jobs")},
                [dict(row) for row in db.execute("SELECT * FROM attempts")],
                {delivery_key(row): dict(row) for row in db.execute("SELECT * FROM deliveries")},
                b"".join(left),
                [dict(row) for row in db.execute("SELECT * FROM usage")],
            )

    def complaints(self) -> list[str]:
        """Return what SQLite finds wrong with it."""
        with _opened(self.left()) as db:
            found = [row[0] for row in db.execute("PRAGMA integrity_check")]
            found += [tuple(row) for row in db.execute("PRAGMA foreign_key_check")]
        return [str(each) for each in found if each != "ok"]

    def _content(self) -> bytes:
        if self._file is None:
            return self._path.read_bytes()
        return os.pread(self._file, os.fstat(self._file).st_size, 0)


def delivery_key(row: Mapping[str, Any] | sqlite3.Row) -> str:
    """Return ``<job>/<role>`` of a delivery, for a question with its number."""
    number = f"-{row['number']}" if row["number"] else ""
    return f"{row['job_id']}/{row['role']}{number}"


@contextlib.contextmanager
def _opened(left: tuple[bytes, bytes]) -> Any:  # noqa: ANN401 - a generator of a connection
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        copy = Disk(Path(folder) / "copy.db")
        copy.put_back(left)
        with contextlib.closing(sqlite3.connect(copy._path)) as db:
            db.row_factory = sqlite3.Row
            yield db


_TABLES: Final = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
_TERMINATE: Final = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


class PostgresDisk:
    """What a ``Disk`` is on SQLite: a kill of the bot leaves all that is committed."""

    def __init__(self, url: str) -> None:
        self._connection: psycopg.Connection[dict[str, Any]] = psycopg.connect(
            url, autocommit=True, row_factory=rows.dict_row
        )
        self._connection.execute("SET default_transaction_isolation TO 'repeatable read'")
        self._tables = [row["tablename"] for row in self._connection.execute(_TABLES)]

    async def watch(self, database: Database) -> None:
        """Check that this is what the bot uses."""
        assert isinstance(database, PostgresDatabase)

    def leave(self) -> None:
        """Do nothing: the connection may stay."""

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def saved(self) -> Callable[[], None]:
        """Save what is committed now; return what puts it back."""
        content = {}
        with self._connection.transaction(), self._connection.cursor() as cursor:
            for table in self._tables:
                copy = sql.SQL("COPY {} TO STDOUT").format(sql.Identifier(table))
                with cursor.copy(copy) as copied:
                    content[table] = b"".join(bytes(block) for block in copied)
        return partial(self._put_back, content)

    def _put_back(self, left: Mapping[str, bytes]) -> None:
        self._connection.execute(_TERMINATE)
        with self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.execute("SET LOCAL session_replication_role TO replica")  # no foreign keys
            names = sql.SQL(", ").join(map(sql.Identifier, self._tables))
            cursor.execute(sql.SQL("TRUNCATE {}").format(names))
            for table, content in left.items():
                copy = sql.SQL("COPY {} FROM STDIN").format(sql.Identifier(table))
                with cursor.copy(copy) as copied:
                    copied.write(content)

    def rows(self) -> Rows:
        """Return what a process would find that connects now."""
        with self._connection.transaction():
            jobs, attempts, deliveries, usage = (
                self._connection.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608 - ours
                for table in ("jobs", "attempts", "deliveries", "usage")
            )
        return Rows(
            {row["id"]: row for row in jobs},
            attempts,
            {delivery_key(row): row for row in deliveries},
            usage=usage,
        )

    def complaints(self) -> list[str]:
        """Return nothing: the server checks its keys itself."""
        return []
