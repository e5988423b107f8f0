"""Moves everything in a database to an empty one, of the other engine or the same."""

import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from bot.store.backup import sync_folder
from bot.store.copying import Copied, copy_to_file, require_current
from bot.store.database import DatabaseError
from bot.store.engines import require_psycopg
from bot.store.migrate import MOVED
from bot.store.snapshot import Snapshot, SQLiteSnapshot
from bot.store.sqlite_connection import refuse_mixed
from bot.store.sqlite_file import FileLock, check_file, connect, translated

Address: TypeAlias = Path | str
_MARK: Final = "INSERT INTO migrations (name, checksum) VALUES (?, ?)"


def move(source: Address, target: Address) -> Copied:
    """Copy everything from one database to another, and mark the first one as moved.

    It is done in one transaction, or not at all. Nobody uses the source meanwhile. Once it is
    marked, no bot starts on it: it would do again what waits in it.

    Raises:
        DatabaseError: nothing was moved, or it says what is not known, or that the mark is missing.
    """
    if source == target or _is_same_file(source, target):
        raise DatabaseError("FROM and TO are the same database")
    for each in (source, target):
        if isinstance(each, str):
            require_psycopg()
    with _opened_source(source, target) as snapshot:
        require_current(snapshot, shown(source))
        if isinstance(target, Path):
            return _move_to_file(snapshot, target)
        from bot.store.copy_to_postgres import open_target  # noqa: PLC0415 - an extra

        with open_target(target) as empty:
            return empty.copy(snapshot)


def shown(address: Address) -> str:
    """Return an address without user, password and options."""
    if isinstance(address, Path):
        return str(address)
    url = urlsplit(address)
    return f"postgresql://{url.netloc.rpartition('@')[2]}{url.path}"


def _is_same_file(source: Address, target: Address) -> bool:
    if isinstance(source, str) or isinstance(target, str):
        return False
    return source.resolve() == target.resolve()


@contextlib.contextmanager
def _opened_source(source: Address, target: Address) -> Iterator[Snapshot]:
    """Have a source for this process alone; mark it at the end, if nothing was raised."""
    if isinstance(source, Path):
        with _opened_file(source, shown(target)) as of_file:
            yield of_file
        return
    from bot.store.postgres_source import open_source  # noqa: PLC0415 - an extra

    with open_source(source, shown(target)) as of_server:
        yield of_server


@contextlib.contextmanager
def _opened_file(path: Path, target: str) -> Iterator[Snapshot]:
    if not path.exists():
        raise DatabaseError(f"{path} is not there: set FROM to the database of the bot")
    lock = FileLock(path)
    try:
        refuse_mixed(path)
        check_file(path, pages="integrity_check")
        with translated(path), contextlib.closing(connect(path)) as db:
            snapshot = SQLiteSnapshot(db, path)
            require_current(snapshot, str(path))
            # Written first: where it cannot be, nothing is moved. It is there once all is moved.
            db.execute("BEGIN IMMEDIATE")
            yield snapshot
            db.execute(_MARK, (MOVED, target))
            _commit_mark(db, path)
    finally:
        lock.release()


def _commit_mark(db: sqlite3.Connection, path: Path) -> None:
    try:
        db.execute("COMMIT")
    except sqlite3.Error as error:
        raise DatabaseError(
            f"Everything was moved, but {path} could not be marked ({error}). Move that file away, "
            "so that no bot starts on it."
        ) from error


def _move_to_file(snapshot: Snapshot, target: Path) -> Copied:
    if target.exists():
        raise DatabaseError(f"TO is not empty: {target} is there already. Choose another name")
    if not target.absolute().parent.is_dir():
        raise DatabaseError(f"the folder of {target} is missing: create it")
    with tempfile.TemporaryDirectory(dir=target.absolute().parent, prefix=".move-") as folder:
        copy = Path(folder) / target.name
        with translated(target):
            os.close(os.open(copy, os.O_WRONLY | os.O_CREAT, 0o600))
            copied = Copied(copy_to_file(snapshot, copy))
            copy.rename(target)
            sync_folder(target.absolute().parent)
    return copied
