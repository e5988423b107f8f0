"""What the doctor looks for in a database beyond damage of the file: rows that cannot be read."""

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bot.store.attempts import attempt_from
from bot.store.database import Row, RowUnreadable
from bot.store.delivery_rows import delivery_from
from bot.store.installation import installation_from
from bot.store.job_rows import job_from
from bot.store.migrate import check_tables
from bot.store.replicas import replica_from, revision_from
from bot.store.sqlite_file import read_only
from bot.store.unreadable import read_each

_READERS: Final[dict[str, Callable[[Row], object]]] = {
    "jobs": job_from,
    "attempts": attempt_from,
    "deliveries": delivery_from,
    "replicas": replica_from,
    "revisions": revision_from,
    "installation": installation_from,
}


def unreadable_rows(path: Path) -> list[RowUnreadable]:
    """Return the rows that the bot cannot read, in a database that ``check_file`` accepts.

    In one that is older than this version, none are found before it is brought up to date.

    Raises:
        DatabaseError: its tables are not those of this version or an older one.
    """
    found: list[RowUnreadable] = []
    with contextlib.suppress(sqlite3.Error, IndexError), read_only(path) as db:
        check_tables(db, path)
        for table, read in _READERS.items():
            rows = db.execute(f"SELECT * FROM {table}")  # noqa: S608 - our tables
            found += read_each(read, rows)[1]
    return found
