"""A PostgreSQL server on this machine, as durable as it comes, and what it costs. Linux only."""

import contextlib
import itertools
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psycopg
from psycopg import sql

from benchmarks.process import processor, processor_of_ended_children
from tests import postgres_server

_NUMBERS: Final = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs; ``url`` is its maintenance database."""

    url: str
    pid: int

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """Create a database and return its URL; drop it at the end."""
        name = f"benchmark{next(_NUMBERS)}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
            try:
                yield self.url.replace("/postgres?", f"/{name}?")
            finally:
                drop = sql.SQL("DROP DATABASE {} WITH (FORCE)")
                connection.execute(drop.format(sql.Identifier(name)))

    def processor(self) -> float:
        """Return the seconds of processor time of all its processes, also of those that ended."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        total = processor_of_ended_children(self.pid)
        for child in children:
            with contextlib.suppress(FileNotFoundError):  # it has just ended
                total += processor(int(child))
        return total


@contextlib.contextmanager
def server() -> Iterator[Server]:
    """Run a server in a folder of its own, with its default settings; stop it at the end."""
    with tempfile.TemporaryDirectory() as folder:
        running = postgres_server.Server(Path(folder), **postgres_server.DURABLE)
        running.create()
        running.start()
        try:
            yield Server(running.url, running.pid)
        finally:
            running.stop()


def commits(url: str) -> int:
    """Return how many transactions of a database have ended, except those of this function."""
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database"
            " WHERE datname = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0])


def connections(url: str) -> int:
    """Return how many connections a database has, without the one of this function."""
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchone()
    assert row is not None
    return int(row[0])
