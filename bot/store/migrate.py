"""The steps that make the tables of a database: its engine's schema file, then migrations.

``migrations/README.md`` says how to change them.
"""

import hashlib
import logging
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final, Literal

from bot.store.database import DatabaseError

_LOG: Final = logging.getLogger(__name__)

_HERE: Final = Path(__file__).parent
MIGRATIONS: Final = _HERE / "migrations"
#: The name under which the schema file stands among the migrations of a database.
SCHEMA: Final = "schema"
#: Stands among the migrations of a database that was moved, with its new address for a checksum:
#: so older versions refuse it too.
MOVED: Final = "moved"
# The name of a migration that takes away what an older version uses ends so.
_CONTRACT: Final = "_contract"
MAKE: Final = (
    "CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY, checksum TEXT NOT NULL)"
)


def steps(engine: Literal["sqlite", "postgres"]) -> dict[str, str]:
    """Return the SQL of the schema file and of each migration, by its name, in their order."""
    files = {SCHEMA: _HERE / f"schema.{engine}.sql"}
    files |= {file.stem: file for file in sorted((MIGRATIONS / engine).glob("*.sql"))}
    return {name: file.read_text(encoding="utf-8") for name, file in files.items()}


def checksum(sql: str) -> str:
    """Return what is stored of a step's text, which never changes once it has landed."""
    return hashlib.sha256(sql.encode()).hexdigest()


def pending_steps(
    done: Mapping[str, str | None] | None, files: Mapping[str, str], database: str, to_begin: str
) -> list[str]:
    """Return the names of the steps that are not done; those of a newer version may be.

    A newer version has only added to the tables, so that this version can go on with them: a host
    may start it again in the middle of a deploy, or an operator go back to it.

    Args:
        done: the checksums of the steps that are done, by their names; None in an empty database.
        files: the steps of this version.
        database: what the database is called.
        to_begin: how to begin with an empty one.

    Raises:
        DatabaseError: another version made it, and this one cannot use it; or everything in it was
            moved to another one.
    """
    if done is None:
        return list(files)
    if MOVED in done:
        raise DatabaseError(
            f"everything in this database was moved to {done[MOVED]}: set DATABASE_URL to that. To "
            "go back to the day of the move, make a copy that can be used with python -m bot backup"
        )
    newer = sorted(done.keys() - files.keys())
    last = max(files.keys() - {SCHEMA}, default="")
    others = [name for name in newer if name < last]
    others += [name for name in files.keys() & done.keys() if done[name] != checksum(files[name])]
    if SCHEMA not in done or others:
        raise DatabaseError(
            f"{database} was made by a version that was never released: this one cannot use it. "
            f"To begin with an empty one, {to_begin}: then all that people asked for is forgotten. "
            "To keep it, install the version again that made it."
        )
    for name in newer:
        if name.endswith(_CONTRACT):
            raise DatabaseError(
                f"the database was made by a newer version (it has {name}): "
                "install that version again"
            )
    return [name for name in files if name not in done]


def warn_of_newer(done: Iterable[str], files: Collection[str]) -> None:
    """Log that a newer version has added to the tables."""
    if newer := sorted(set(done).difference(files)):
        remedy = "what that version stored may be left alone until it runs again: install it again"
        _LOG.warning(
            "a newer version has added to the tables",
            extra={"migration": newer[-1], "remedy": remedy},
        )
