"""Decompression with a limit: a few bytes can become a thousand times as many."""

import zlib
from typing import Final

CODINGS: Final = frozenset({"gzip", "x-gzip", "deflate"})
"""The values of Content-Encoding that ``decompress`` reads."""
_DETECT: Final = zlib.MAX_WBITS | 32  # gzip or zlib, by the header
_RAW: Final = -zlib.MAX_WBITS  # which some programs send as "deflate"


def decompress(body: bytes | bytearray, max_bytes: int) -> tuple[bytes, bool]:
    """Return the content of a compressed body, up to a limit, and whether that is all of it.

    Raises:
        zlib.error: it is not compressed in one of these ways, or is damaged.
    """
    try:
        return _decompress(body, max_bytes, _DETECT)
    except zlib.error:
        return _decompress(body, max_bytes, _RAW)


def _decompress(body: bytes | bytearray, max_bytes: int, wbits: int) -> tuple[bytes, bool]:
    decompressor = zlib.decompressobj(wbits)
    content = decompressor.decompress(body, max_bytes)
    return content, decompressor.eof
