"""The HTTP clients that the video service is called with, and the bodies of its answers."""

import ssl
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Final

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from bot.compression import CODINGS, decompress
from bot.errors import Uncertain

_MAX_CONNECTIONS: Final = 64  # for reads, and again for creates
_MAX_BODY_BYTES: Final = 1024 * 1024
_TOO_LONG: Final = "The video service's answer is too long."


@dataclass(frozen=True, slots=True)
class Clients:
    """The HTTP clients for reads and for creates.

    A read may be sent twice: aiohttp repeats a GET once, if its connection breaks before an
    answer. It never repeats a POST, and a create call gets a connection of its own: a kept one
    that has gone stale fails in a way that looks like a lost answer.
    """

    reading: httpx.AsyncClient
    creating: httpx.AsyncClient


@asynccontextmanager
async def connect(proxy: str | None = None) -> AsyncIterator[Clients]:
    """Open clients that keep no cookies and follow no redirects.

    They call through ``proxy`` if there is one; apart from that they ignore the environment.
    """
    async with (
        _client(proxy, force_close=False) as reading,
        _client(proxy, force_close=True) as creating,
    ):
        yield Clients(reading, creating)


def _client(proxy: str | None, *, force_close: bool) -> httpx.AsyncClient:
    # httpx's own pool looks at every waiting request whenever one is done; this transport does not.
    # Processor time for a create and a read on loopback, 64 at once: 0.8 ms with this transport,
    # 2.8 to 3.1 ms with httpx's own (0.6 ms with aiohttp alone).
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=_MAX_CONNECTIONS, force_close=force_close),
        cookie_jar=aiohttp.DummyCookieJar(),
        proxy=proxy,
    )
    # Not used, as the session has its own, which trusts what the system trusts; without it, httpx
    # would spend 20 ms on reading certifi's.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return httpx.AsyncClient(
        transport=AiohttpTransport(client=session, verify=context),
        headers={"accept": "application/json", "accept-encoding": "identity"},
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        follow_redirects=False,
        event_hooks={"response": [_drop_location]},
        trust_env=False,
    )


async def _drop_location(response: httpx.Response) -> None:
    """Keep httpx from building the next request of a redirect that it does not follow.

    It would raise ``InvalidURL`` for some addresses ("localhost:80/x"), as it does for one of ours
    that nothing was sent to.
    """
    response.headers.pop("location", None)


async def content_of(response: httpx.Response) -> bytes:
    """Return the body of an answer, decompressed.

    Raises:
        Uncertain: it is longer than an answer can be, or cannot be decompressed.
    """
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > _MAX_BODY_BYTES:
            raise Uncertain(_TOO_LONG)
    if response.headers.get("content-encoding", "").strip().lower() in CODINGS:
        return _decompressed(body)
    return bytes(body)


def _decompressed(body: bytes | bytearray) -> bytes:
    """Decompress a body up to the limit: a gateway may compress although we ask for identity.

    httpx would decompress a chunk whole.
    """
    try:
        content, complete = decompress(body, _MAX_BODY_BYTES + 1)
    except zlib.error as error:
        raise Uncertain("The video service's answer could not be read.") from error
    if len(content) > _MAX_BODY_BYTES:
        raise Uncertain(_TOO_LONG)
    if not complete:
        raise Uncertain("The video service's answer broke off.")
    return content
