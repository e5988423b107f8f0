"""Raw TCP, for what no HTTP library would send or answer, and a proxy; no connection stays open."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def listening(
    answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    host: str = "127.0.0.1",
    port: int = 0,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[int]:
    """Run a server on ``port``, or on any free one; yield that. It hangs up after each answer.

    Those that are still being answered at the end are cut.
    """
    connections = dict[asyncio.Task[None], asyncio.StreamWriter]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A client may send too little or too much, or go.
        with contextlib.suppress(asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            await answer(reader, writer)
        if not writer.is_closing():
            writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(serve(reader, writer))  # noqa: TID251 - awaited below
        connections[task] = writer

    server = await asyncio.start_server(accept, host, port, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task, writer in connections.items():
            task.cancel()
            if not writer.is_closing():
                writer.transport.abort()
        await asyncio.gather(*connections, return_exceptions=True)


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[Streams]:
    """Open a connection to a port of this machine, and close it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


class Proxy:
    """A proxy that opens no connections, and records which were asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.url = ""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Proxy"]:
        async with listening(self._refuse) as port:
            self.url = f"http://127.0.0.1:{port}"
            yield self

    async def _refuse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.asked.append(head.decode().partition(" HTTP/")[0])
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
