"""The databases of a run: a SQLite file, or a PostgreSQL server that is restarted by plan."""

import asyncio
import contextlib
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypeAlias

import psycopg

from tests.databases import Address
from tests.postgres_server import DURABLE, Server

Shutdown = Literal["fast", "immediate"]
_SIGNALS: Final[Mapping[Shutdown, signal.Signals]] = {
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}
Claims = Mapping[tuple[str, str], int]
"""The claim number of each row that is claimed, by its table and id."""

_MEMORY: Final = Path("/dev/shm")
# The two tables with claims.
_CLAIMED: Final = """
    SELECT 'job', CAST(id AS TEXT), claim FROM jobs WHERE claimed = 1
    UNION ALL SELECT 'delivery', CAST(id AS TEXT), claim FROM deliveries WHERE claimed = 1
"""


class SQLiteFile:
    """A file in the folder of the run, which has no server.

    Attributes:
        path: it, or a file with the content of a server's database once ``close`` was called.
        url: its address, as the setting has it.
        restarts: how often its server was restarted, by how it was shut down.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "bot.db"
        self.url = f"sqlite:///{self.path}"
        self.restarts: dict[str, int] = {}

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Do nothing: the bot makes the file."""
        yield

    @property
    def address(self) -> Address:
        """Return the file."""
        return self.path

    async def claims(self) -> Claims:
        """Return which rows are claimed."""
        with contextlib.closing(sqlite3.connect(self.path)) as db:
            return {(table, id_): claim for table, id_, claim in db.execute(_CLAIMED)}

    async def restart(self, how: Shutdown, downtime_s: float) -> None:
        """Raise: there is no server."""
        raise NotImplementedError

    def was_down_since(self, moment: float) -> bool:
        """Return False: there is no server."""
        del moment
        return False

    async def close(self) -> list[str]:
        """Check the file."""
        with contextlib.closing(sqlite3.connect(self.path)) as db:
            said = [str(row[0]) for row in db.execute("PRAGMA integrity_check")]
            said += [str(row) for row in db.execute("PRAGMA foreign_key_check")]
        return [line for line in said if line != "ok"]


class PostgresServer:
    """A server with a folder in memory, which writes as durably as by default.

    A crash of the server loses what it has not written, and no power cut takes place: so memory
    serves as well as a disk.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "bot.sql"
        self.log_file = folder / "postgres.log"
        self.url = ""
        self.restarts: dict[str, int] = {}
        self._up_since: float | None = None
        self._server: Server

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start the server, and stop and remove it at the end."""
        memory = _MEMORY if _MEMORY.is_dir() else None
        with tempfile.TemporaryDirectory(prefix="postgres-chaos-", dir=memory) as folder:
            self._server = Server(Path(folder), **DURABLE)
            await asyncio.to_thread(self._server.create)
            await asyncio.to_thread(self._server.start)
            self.url = self._server.url
            self._up_since = time.monotonic()
            try:
                yield
            finally:
                await asyncio.to_thread(self._server.stop)
                shutil.copy(Path(folder) / "log", self.log_file)

    @property
    def address(self) -> Address:
        """Return the URL."""
        return self.url

    async def claims(self) -> Claims:
        """Return which rows are claimed."""

        def read() -> Claims:
            with psycopg.connect(self.url) as db:
                return {(table, id_): claim for table, id_, claim in db.execute(_CLAIMED)}

        return await asyncio.to_thread(read)

    async def restart(self, how: Shutdown, downtime_s: float) -> None:
        """Shut the server down, ``immediate`` as in a crash, and start it again."""
        self._up_since = None
        await asyncio.to_thread(self._server.stop, _SIGNALS[how])
        await asyncio.sleep(downtime_s)
        await asyncio.to_thread(self._server.start)
        self._up_since = time.monotonic()
        self.restarts[how] = self.restarts.get(how, 0) + 1

    def was_down_since(self, moment: float) -> bool:
        """Return whether the server was down at or after a time of the monotonic clock."""
        return self._up_since is None or self._up_since >= moment

    async def close(self) -> list[str]:
        """Write all rows to ``path``, which reads each page and so finds what is damaged."""
        command: list[str | Path] = [self._server.programs / "pg_dump", "--file", self.path]
        dump = partial(subprocess.run, [*command, self.url], capture_output=True, text=True)
        done = await asyncio.to_thread(dump, check=False)
        return [done.stderr] if done.returncode else []


RunDatabase: TypeAlias = SQLiteFile | PostgresServer
"""The database of a run."""
