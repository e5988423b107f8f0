"""Copies a database into one file that can be put in its place, also while a bot uses it."""

import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

from bot.store.copying import copy_to_file, require_current
from bot.store.database import (
    DatabaseCorrupt,
    DatabaseError,
    DatabaseInUse,
    DatabaseMoved,
    to_ms,
)
from bot.store.engines import open_snapshot
from bot.store.migrate import MOVED, check_tables
from bot.store.sqlite_connection import refuse_mixed
from bot.store.sqlite_file import FileLock, beside, check_file, describe, is_corrupt, read_only

_PAGES: Final = 1000  # copied at a time: between them, a signal is obeyed
_OLDEST: Final = "0012_set_aside"  # has all columns that are written here
# A job that waits to be created is created some time after the backup, perhaps. If the backup is
# restored, it must not be created again: in the copy its create call has begun, as after a kill.
# What that made is found out by asking, and nobody knows a token that has this hash.
_ASSUME_ATTEMPTS: Final = """
    INSERT INTO attempts (job_id, user_id, kind, token_hash, made_at)
    SELECT id, user_id, kind, lower(hex(randomblob(32))), :now FROM jobs WHERE state = 'queued'
"""
_ASSUME_CREATING: Final = """
    UPDATE jobs SET state = 'creating', attempts = attempts + 1, claim = claim + 1, claimed = 0,
        wait_ms = 0, due_at = CASE WHEN set_aside = 0 THEN 0 END
    WHERE state = 'queued'
"""

_KNOWS_COPIES: Final = "0026_copies"
# Until the backup is restored, what waits to be posted is posted, and so are replies to what runs:
# the bot looks for them before it posts any. A file without an id cannot be looked for; its reply
# says where the whole text is. What is posted may be edited: it says again what is true then, and
# a question has its buttons.
_COPIES: Final = """
    UPDATE jobs SET copied = 1 WHERE ended_at IS NULL OR id IN (
        SELECT job_id FROM deliveries WHERE state IN ('pending', 'sending', 'uncertain'));
    UPDATE deliveries SET sent_at = NULL WHERE state = 'pending';
    UPDATE deliveries SET state = 'undeliverable', due_at = NULL, claim = claim + 1, claimed = 0
    WHERE role IN ('transcript', 'clip') AND state = 'pending' AND file_id IS NULL;
    UPDATE deliveries SET version = version + 1, due_at = coalesce(due_at, 0)
    WHERE state = 'posted' AND set_aside = 0 AND settled_as IS NULL
        AND role IN ('card', 'question', 'approval')
        AND job_id IN (SELECT id FROM jobs WHERE ended_at IS NULL);
"""


def back_up(source: Path | str, target: Path, now: datetime, *, replace: bool) -> int:
    """Copy a database to a file, check the copy, and return its size in bytes.

    It is as the database was at one moment, and is there as a whole or not at all.

    Args:
        source: the database, a file or the URL of a PostgreSQL database. A bot may be using it.
        target: the file, of SQLite; its folder is there.
        now: the time.
        replace: whether a file that is there is replaced.

    Raises:
        DatabaseError: there is no backup; what was at ``target`` is as it was.
    """
    if isinstance(source, Path):
        _check_source(source, target)
    _check_target(target, replace=replace)
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".backup-") as folder:
            copy = Path(folder) / target.name
            os.close(os.open(copy, os.O_WRONLY | os.O_CREAT, 0o600))
            with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as db:
                db.row_factory = sqlite3.Row
                if isinstance(source, Path):
                    _copy_pages(source, db)
                else:
                    _copy_rows(source, copy)
                db.execute("PRAGMA journal_mode = DELETE").fetchall()  # one file, without a log
                # One that was moved can be used again as what it is: a backup of that day.
                db.execute(f"DELETE FROM migrations WHERE name = '{MOVED}'")  # noqa: S608 - ours
                migrations = _check(db, source if isinstance(source, Path) else target)
                db.execute("BEGIN")
                if _KNOWS_COPIES in migrations:
                    for statement in _COPIES.split(";"):
                        db.execute(statement)
                db.execute(_ASSUME_ATTEMPTS, {"now": to_ms(now)})
                db.execute(_ASSUME_CREATING)
                db.execute("COMMIT")
            size = copy.stat().st_size
            copy.replace(target)
            sync_folder(target.parent)
    except (sqlite3.Error, OSError) as error:
        raise DatabaseError(
            f"There is no backup: {describe(_at_fault(source, target, error), error)}"
        ) from error
    return size


def _at_fault(source: Path | str, target: Path, error: Exception) -> Path:
    return source if isinstance(source, Path) and is_corrupt(error) else target


def _copy_pages(path: Path, db: sqlite3.Connection) -> None:
    with _reading(path) as source:
        # In a transaction: the bot's commits would make it begin again.
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        source.backup(db, pages=_PAGES, progress=lambda *_: None)


def _copy_rows(url: str, copy: Path) -> None:
    with open_snapshot(url) as snapshot:
        # One that was moved is a backup of that day.
        with contextlib.suppress(DatabaseMoved):
            require_current(snapshot, "the database")
        copy_to_file(snapshot, copy)


def _check_source(path: Path, target: Path) -> None:
    if not path.exists():
        raise DatabaseError(
            f"{path} is not there: set DATABASE_URL to the bot's database, or run this in the "
            "folder that the bot runs in."
        )
    own = [path.resolve(), *(beside(path, ending) for ending in ("-wal", "-shm", "-lock"))]
    if target.resolve() in own or (target.exists() and target.samefile(path)):
        raise DatabaseError(f"{target} is the database itself: give the backup another name.")
    check_file(path)


def _check_target(target: Path, *, replace: bool) -> None:
    if target.is_dir():
        raise DatabaseError(f"{target} is a folder: add a name for the file.")
    if target.exists() and not replace:
        raise DatabaseError(
            f"{target} is there already: choose another name, or add --force to replace it."
        )


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database to be read, and keep a bot from starting on it if none runs on it now."""
    try:
        lock = FileLock(path)
    except DatabaseInUse:
        address = f"{path.absolute().as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(address, uri=True, isolation_level=None)) as db:
            yield db
        return
    try:
        refuse_mixed(path)
        with read_only(path) as db:
            yield db
    finally:
        lock.release()


def _check(db: sqlite3.Connection, path: Path) -> list[str]:
    """Check a copy of the database at ``path``: all of its pages, and its tables.

    Returns the names of its migrations.
    """
    [found] = db.execute("PRAGMA integrity_check(1)").fetchone()
    if found != "ok":
        raise DatabaseCorrupt(
            f"There is no backup: {path} is damaged ({' '.join(found.split())}). Run python -m bot "
            "doctor, and keep the backups that there are."
        )
    migrations = check_tables(db, path)
    if _OLDEST not in migrations:
        raise DatabaseError(
            f"There is no backup: an older version made {path}. Bring it up to date first with "
            "python -m bot migrate."
        )
    return migrations


def sync_folder(folder: Path) -> None:
    """Have the name of a file reach the disk; SQLite has done so for its content."""
    if os.name == "posix":
        file = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
