"""The database of a world: a file of SQLite, or a database on a PostgreSQL server."""

import asyncio
import contextlib
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import psycopg
from psycopg import rows, sql

from bot.store import engines
from bot.store.database import Query, Value
from bot.store.engines import pending_migrations
from tests.postgres import database_url

# Many times what anything takes: other work may keep the machine busy.
_TIMEOUT_S: Final = 30.0

_MIGRATIONS: Final = Path(__file__).parent.parent / "bot/store/migrations/sqlite"
#: What makes the tables of a new database, in order.
STEPS: Final = ["schema", *sorted(path.stem for path in _MIGRATIONS.glob("*.sql"))]

Address: TypeAlias = Path | str
"""The path of a file, or the URL of a database."""

_SQLITE_TABLES: Final = "SELECT name FROM sqlite_master WHERE type = 'table'"
_POSTGRES_TABLES: Final = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"


async def migrate(address: Address) -> list[str]:
    """Bring the tables of a database up to date; return the names of what was applied."""
    pending = pending_migrations(address)
    await engines.migrate(address)
    return pending


class HasDatabase:
    """A world with a database, on the engine that the test runs on.

    Attributes:
        on_postgres: whether it is on PostgreSQL; of the class, for all that do not say.
        database: the file, on SQLite.
        postgres_url: the URL, on PostgreSQL while the world runs.
    """

    on_postgres: bool = False
    database: Path
    postgres_url: str | None = None

    @contextlib.contextmanager
    def database_there(self) -> Iterator[None]:
        """Have a database of PostgreSQL, if one is needed."""
        with contextlib.ExitStack() as stack:
            if self.on_postgres and self.postgres_url is None:
                self.postgres_url = stack.enter_context(database_url())
            yield

    @property
    def address(self) -> Address:
        """Return where the database is."""
        return self.database if self.postgres_url is None else self.postgres_url

    @property
    def database_setting(self) -> str:
        """Return the value of DATABASE_URL."""
        return self.postgres_url or f"sqlite:///{self.database}"

    def query(self, statement: str, **values: Value) -> list[dict[str, Any]]:
        """Run a statement as ``Query`` has them; return its rows."""
        return query(self.address, statement, **values)


def query(address: Address, statement: str, **values: Value) -> list[dict[str, Any]]:
    """Run a statement as ``Query`` has them, and commit it; return its rows."""
    if isinstance(address, str):
        with psycopg.connect(address, row_factory=rows.dict_row) as connection:
            cursor = connection.execute(Query(statement).postgres, values)
            return cursor.fetchall() if cursor.description else []
    with contextlib.closing(sqlite3.connect(address)) as db, db:
        db.row_factory = sqlite3.Row
        return [dict(row) for row in db.execute(Query(statement).sqlite, values)]


async def installed(address: Address) -> None:
    """Wait until a bot in another process has stored whose it is: it serves nobody before.

    It asks Slack beside listening. On a busy machine that may take longer than a request waits.
    """
    async with asyncio.timeout(_TIMEOUT_S):
        while not await asyncio.to_thread(query, address, "SELECT 1 FROM installation"):
            pass


def all_rows(address: Address) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each row with its table; none where a test removed or damaged the database."""
    if isinstance(address, Path):
        return _all_rows_of_file(address)
    with psycopg.connect(address, row_factory=rows.dict_row) as connection:
        tables = [row["tablename"] for row in connection.execute(_POSTGRES_TABLES)]
        select = sql.SQL("SELECT * FROM {}")
        return iter(
            [
                (name, row)
                for name in tables
                for row in connection.execute(select.format(sql.Identifier(name)))
            ]
        )


def _all_rows_of_file(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    # A file that a killed process left is read with its write-ahead log, one in use without.
    for how in ("mode=rw", "immutable=1"):
        with contextlib.suppress(sqlite3.DatabaseError):
            address = f"file:{quote(str(file))}?{how}"
            with contextlib.closing(sqlite3.connect(address, uri=True, timeout=0)) as db:
                db.row_factory = sqlite3.Row
                db.text_factory = partial(str, encoding="utf-8", errors="replace")
                names = [row["name"] for row in db.execute(_SQLITE_TABLES)]
                yield from [
                    (name, dict(row))
                    for name in names
                    for row in db.execute(f'SELECT * FROM "{name}"')  # noqa: S608 - its own names
                ]
            return


_CHARGED: Final = {None, "created", "uncertain"}
_WAITING: Final = {"queued", "waiting_for_approval"}
Row = Mapping[str, Any]


def usage_differences(
    jobs: Iterable[Row], attempts: Iterable[Row], usage: Iterable[Row]
) -> list[str]:
    """Return the people, and "all", of whom other numbers are counted than there are.

    A request counts from its form on, and each of its create calls that may have cost money. Days
    are forgotten after a while: their numbers are compared with those of all people alone.
    """
    expected: Counter[tuple[str, bool]] = Counter()
    for row in [
        *(each for each in attempts if each["outcome"] in _CHARGED),
        *(each for each in jobs if each["state"] in _WAITING),
    ]:
        for who in (row["user_id"], ""):
            expected[who, row["kind"] == "replica"] += 1
    counted: Counter[tuple[str, bool]] = Counter()
    of_people: defaultdict[str, Counter[str]] = defaultdict(Counter)
    found = []
    for row in usage:
        numbers = {"videos": row["videos"], "trainings": row["trainings"], "ms": row["spoken_ms"]}
        found += [f"{row['who']} in {row['period']}" for each in numbers.values() if each < 0]
        of_people[row["period"]].update({n: v if row["who"] else -v for n, v in numbers.items()})
        if len(row["period"]) == len("2026-11"):
            counted[row["who"], False] += row["videos"]
            counted[row["who"], True] += row["trainings"]
    found += [f"all in {period}" for period, sums in of_people.items() if any(sums.values())]
    for key in expected.keys() | counted.keys():
        if expected[key] != counted[key]:
            who, what = key[0] or "all", "trainings" if key[1] else "videos"
            found.append(f"{who}: {counted[key]} {what} counted, {expected[key]} there")
    return sorted(set(found))


def usage_differences_in(address: Address) -> list[str]:
    """Return the same of a database."""
    return usage_differences(
        query(address, "SELECT user_id, kind, state FROM jobs"),
        query(address, "SELECT user_id, kind, outcome FROM attempts"),
        query(address, "SELECT * FROM usage"),
    )
