"""Raw TCP, for what no HTTP library would send or answer; no connection stays open.

One that stayed open would be reported as a leak in whichever test is running when it is collected.
"""

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
