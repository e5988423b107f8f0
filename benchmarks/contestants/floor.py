"""What the machine allows: a bare socket server, bare durable inserts, bare HTTP exchanges."""

import argparse
import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.contestants import announce, asked_to_end
from benchmarks.load import connected
from benchmarks.payloads import get, json_post

_ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
_PARAMS: Final = '{"replica_id": "r-anna-42", "script": "Welcome to the team, Kim!"}'


class _Server(asyncio.Protocol):
    """Answers 200 to whatever comes in one piece."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            self._transport = transport

    def data_received(self, _: bytes) -> None:
        if self._transport is not None:
            self._transport.write(_ANSWER)


async def serve() -> None:
    """Answer 200 until the process is asked to end."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Server, "127.0.0.1", 0)
    announce(port=server.sockets[0].getsockname()[1])
    await asked_to_end()
    server.close()


def insert(file: Path, number: int) -> list[float]:
    """Insert ``number`` rows into a new database, each durable; return the seconds of each."""
    took = []
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE jobs (id TEXT PRIMARY KEY, params TEXT, created_at INTEGER)")
        for each in range(number):
            began = time.perf_counter()
            # Without BEGIN each statement is a transaction of its own.
            db.execute("INSERT INTO jobs VALUES (?, ?, ?)", (f"job{each}", _PARAMS, each))
            took.append(time.perf_counter() - began)
    return took


async def exchange(slack: int, service: int, number: int, rest: float) -> list[float]:
    """Read a video, edit a message and post one, ``number`` times; return the seconds of the three.

    ``rest`` is how many seconds pass between two times.
    """
    took = []
    async with connected(service, 1) as [reads], connected(slack, 1) as [posts]:
        message = {"channel": "C1", "ts": "1700000000.000100", "text": "x" * 2000}
        three = (
            (reads, get(service, "/v2/videos/v1")),
            (posts, json_post(slack, "/api/chat.update", message)),
            (posts, json_post(slack, "/api/chat.postMessage", message)),
        )
        for _ in range(number):
            await asyncio.sleep(rest)
            began = time.perf_counter()
            for connection, request in three:
                await connection.exchange(request)
            took.append(time.perf_counter() - began)
    return took


def main(arguments: Sequence[str] | None = None) -> None:
    """Do what is asked for and print it as one line."""
    parser = argparse.ArgumentParser()
    parts = parser.add_subparsers(dest="part", required=True)
    parts.add_parser("serve")
    inserts = parts.add_parser("insert")
    inserts.add_argument("file", type=Path)
    inserts.add_argument("number", type=int)
    exchanges = parts.add_parser("exchange")
    exchanges.add_argument("slack", type=int)
    exchanges.add_argument("service", type=int)
    exchanges.add_argument("number", type=int)
    exchanges.add_argument("rest", type=float)
    chosen = parser.parse_args(arguments)
    if chosen.part == "serve":
        asyncio.run(serve())
    elif chosen.part == "insert":
        announce(seconds=insert(chosen.file, chosen.number))
    else:
        took = exchange(chosen.slack, chosen.service, chosen.number, chosen.rest)
        announce(seconds=asyncio.run(took))


if __name__ == "__main__":
    main()
