"""A load generator that costs less than what it measures: bare connections, ready-made bytes."""

import asyncio
import contextlib
import gc
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Final

_LENGTH: Final = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.IGNORECASE)
_END: Final = b"\r\n\r\n"
_OK: Final = 200
_TIMEOUT_S: Final = 120.0

Then = Callable[[int, bytes], None]
"""What to do with an answer: its status and its body."""


class Broken(Exception):
    """A server hung up, or answered something else than was expected of it."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What a load took: ``seconds`` from the first request to the last answer.

    ``began`` is when the first one was sent, on the clock of ``time.perf_counter``; ``latencies``
    has the seconds of each request, in the order of the answers.
    """

    began: float
    seconds: float
    latencies: Sequence[float]

    @property
    def per_second(self) -> float:
        """Requests answered in a second."""
        return len(self.latencies) / self.seconds

    def percentile(self, percent: int) -> float:
        """Return the seconds within which ``percent`` % of the requests (1 to 99) were answered."""
        return quantiles(self.latencies, n=100, method="inclusive")[percent - 1]


class Connection(asyncio.Protocol):
    """A connection that is kept, with one request on it at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._then: Then | None = None
        self._broke: Callable[[Exception], None] = lambda _: None

    def ask(self, request: bytes, then: Then, broke: Callable[[Exception], None]) -> None:
        """Send the bytes of a request; call ``then`` with its answer, or ``broke`` without one."""
        self._then, self._broke = then, broke
        if self._transport is None or self._transport.is_closing():
            broke(Broken("the connection is closed"))
            return
        self._transport.write(request)

    async def exchange(self, request: bytes) -> tuple[int, bytes]:
        """Send the bytes of a request and return the status and body of its answer.

        Raises:
            Broken: the connection was closed in place of an answer.
        """
        answer: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()

        def then(status: int, body: bytes) -> None:
            if not answer.done():
                answer.set_result((status, body))

        def broke(error: Exception) -> None:
            if not answer.done():
                answer.set_exception(error)

        self.ask(request, then, broke)
        return await answer

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport: asyncio calls this."""
        if isinstance(transport, asyncio.Transport):
            self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Hand on the answer once all of it is here: asyncio calls this."""
        self._received += data
        end = self._received.find(_END)
        if end < 0:
            return
        length = _LENGTH.search(self._received, 0, end + 2)
        if length is None:
            self._broke(Broken(f"an answer without a length: {self._received[:200]!r}"))
            return
        begin = end + len(_END)
        if len(self._received) < begin + int(length[1]):
            return
        status, body = int(self._received[9:12]), self._received[begin:]
        self._received = b""
        then, self._then = self._then, None
        if then is not None:
            then(status, body)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the request that waits for an answer: asyncio calls this."""
        if self._then is not None:
            self._broke(Broken(f"the server hung up: {exc}"))


@contextlib.asynccontextmanager
async def connected(port: int, number: int) -> AsyncIterator[Sequence[Connection]]:
    """Open ``number`` connections to a port of this machine, and close them at the end.

    Raises:
        OSError: no server listens there.
    """
    loop = asyncio.get_running_loop()
    connections: list[Connection] = []
    try:
        for _ in range(number):
            _, connection = await loop.create_connection(Connection, "127.0.0.1", port)
            connections.append(connection)
        yield connections
    finally:
        for connection in connections:
            connection.close()


async def closed_loop(
    port: int,
    requests: Sequence[bytes],
    at_once: int = 1,
    *,
    good: Callable[[bytes], object] = lambda _: True,
    late: int | None = None,
) -> Taken:
    """Send all requests over ``at_once`` connections, on each the next one after an answer.

    As many connections as requests make a burst: all are sent at the same moment. ``good`` says of
    an answer's body whether it is the one that was wanted; an answer with the status ``late`` is
    one that came too late for Slack, and counts. Connections are opened before the time is taken.

    Raises:
        Broken: an answer is missing, neither 200 nor late, or not good.
        TimeoutError: it takes more than two minutes.
    """
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    rest, busy = iter(requests), 0
    latencies: list[float] = []

    def broke(error: Exception) -> None:
        if not done.done():
            done.set_exception(error)

    def go_on(connection: Connection) -> None:
        nonlocal busy
        request = next(rest, None)
        if request is None:
            busy -= 1
            if not busy and not done.done():
                done.set_result(None)
            return
        began = time.perf_counter()

        def then(status: int, body: bytes) -> None:
            latencies.append(time.perf_counter() - began)
            if (status == _OK and good(body)) or status == late:
                go_on(connection)
            else:
                broke(Broken(f"not the answer that was wanted: {status} {body[:500]!r}"))

        connection.ask(request, then, broke)

    async with connected(port, min(at_once, len(requests))) as connections:
        busy = len(connections)
        with _uncollected():
            began = time.perf_counter()
            for connection in connections:
                go_on(connection)
            async with asyncio.timeout(_TIMEOUT_S):
                await done
            return Taken(began, time.perf_counter() - began, latencies)


async def one_by_one(
    port: int,
    requests: Sequence[bytes],
    rest: float,
    *,
    good: Callable[[bytes], object] = lambda _: True,
) -> Taken:
    """Send all requests over one connection, each after a rest of ``rest`` seconds.

    Raises:
        Broken: an answer is missing, not 200, or not good.
    """
    latencies: list[float] = []
    async with connected(port, 1) as [connection]:
        with _uncollected():
            start = time.perf_counter()
            for request in requests:
                await asyncio.sleep(rest)
                began = time.perf_counter()
                status, body = await connection.exchange(request)
                latencies.append(time.perf_counter() - began)
                if status != _OK or not good(body):
                    raise Broken(f"not the answer that was wanted: {status} {body[:500]!r}")
            return Taken(start, time.perf_counter() - start, latencies)


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Keep the garbage collector of this process out of what is measured."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
