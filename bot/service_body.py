"""The body of an answer of the video service: of a limited length, decompressed."""

import zlib
from typing import Final

import httpx

from bot.compression import CODINGS, decompress
from bot.errors import Uncertain

_MAX_BODY_BYTES: Final = 1024 * 1024
_TOO_LONG: Final = "The video service's answer is too long."


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
