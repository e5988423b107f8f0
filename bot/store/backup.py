"""Copies a database into one file that can be put in its place, also while a bot uses it."""

import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

from bot.store.database import DatabaseCorrupt, DatabaseError, DatabaseInUse, to_ms
from bot.store.migrate import MOVED
from bot.store.sqlite import (
    FileLock,
    beside,
    check_file,
    describe,
    is_corrupt,
    read_only,
    require_file,
    steps_in_sqlite,
)

_PAGES: Final = 1000  # copied at a time: between them, a signal is obeyed
_RESTORED: Final = Path(__file__).parent / "restored.sql"


def back_up(
    source: Path,
    target: Path,
    now: datetime,
    *,
    replace: bool,
    progress: Callable[[str], object] = str,
) -> int:
    """Copy a database to a file, check the copy, and return its size in bytes.

    It is as the database was at one moment, and is there as a whole or not at all.

    Args:
        source: the database. A bot may be using it.
        target: the file; its folder is there.
        now: the time.
        replace: whether a file that is there is replaced.
        progress: is told how far it is, again and again.

    Raises:
        DatabaseError: there is no backup; what was at ``target`` is as it was.
    """
    _check_source(source, target)
    if target.exists() and not replace:
        raise DatabaseError(
            f"{target} is there already: choose another name, or add --force to replace it."
        )
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".backup-") as folder:
            copy = Path(folder) / target.name
            os.close(os.open(copy, os.O_WRONLY | os.O_CREAT, 0o600))
            with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as db:
                db.row_factory = sqlite3.Row
                _copy_pages(source, db, progress)
                db.execute("PRAGMA journal_mode = DELETE").fetchall()  # one file, without a log
                # One that was moved can be used again as what it is: a backup of that day.
                db.execute(f"DELETE FROM migrations WHERE name = '{MOVED}'")  # noqa: S608 - ours
                _check(db, source)
                db.execute("BEGIN")
                for statement in _RESTORED.read_text().split(";"):
                    db.execute(statement, {"now": to_ms(now)})
                db.execute("COMMIT")
            size = copy.stat().st_size
            copy.replace(target)
    except (sqlite3.Error, OSError) as error:
        at_fault = source if is_corrupt(error) else target
        raise DatabaseError(f"There is no backup: {describe(at_fault, error)}") from error
    return size


def _copy_pages(path: Path, db: sqlite3.Connection, progress: Callable[[str], object]) -> None:
    def tell(_: int, left: int, total: int) -> None:
        progress(f"copying: {total - left:,} of {total:,} pages")

    with _reading(path) as source:
        # In a transaction: the bot's commits would make it begin again.
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        source.backup(db, pages=_PAGES, progress=tell)


def _check_source(path: Path, target: Path) -> None:
    require_file(path)
    own = [path.resolve(), *(beside(path, ending) for ending in ("-wal", "-shm", "-lock"))]
    if target.resolve() in own or (target.exists() and target.samefile(path)):
        raise DatabaseError(f"{target} is the database itself: give the backup another name.")
    check_file(path)


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
        with read_only(path) as db:
            yield db
    finally:
        lock.release()


def _check(db: sqlite3.Connection, path: Path) -> None:
    """Check a copy of the database at ``path``: all of its pages, and which version made it."""
    [found] = db.execute("PRAGMA integrity_check(1)").fetchone()
    if found != "ok":
        raise DatabaseCorrupt(
            f"There is no backup: {path} is damaged ({' '.join(found.split())}). Run python -m bot "
            "doctor, and keep the backups that there are."
        )
    steps_in_sqlite(db, path)
