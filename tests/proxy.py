"""A proxy that shows where the bot connects to."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from tests.tcp import listening


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
