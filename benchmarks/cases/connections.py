"""Memory that 2,000 connections take whose requests are never finished.

Each kind of request goes to a new process. What counts is the most memory that the process has held
(VmHWM), over what it held before.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Final

from benchmarks.cases.parts import milliseconds, ours
from benchmarks.measure import Better, Row, Scale

_NUMBER: Final = 2_000
_LIMIT_MB: Final = 100.0
_MB: Final = 1_000_000
_KIB: Final = 1024
_AT_ONCE: Final = 50
# What the bot does not read stays unsent.
_SENT_WITHIN_S: Final = 0.2
_AT_REST_S: Final = 0.5
_HEAD: Final = b"Host: bot.example.com\r\n"


async def run(scale: Scale) -> Sequence[Row]:
    """Measure each kind once: memory is about the same each time."""
    requests = _requests()
    names = ("bodies in chunks of a byte",) if scale.small else tuple(requests)
    rows = []
    for name in names:
        held = await _held(requests[name])
        what = f"{_NUMBER:,} unfinished: {name}"
        limit = "the limit"
        rows.append(
            Row("connections", what, "MB", Better.LOWER, [held], limit, [_LIMIT_MB], goal=1.0)
        )
    return rows


def _requests() -> Mapping[str, bytes]:
    """Return beginnings of requests by what they are."""
    signed = (
        b"POST /slack/events HTTP/1.1\r\n"
        + _HEAD
        + f"X-Slack-Request-Timestamp: {milliseconds() // 1000}\r\n".encode()
        + b"X-Slack-Signature: v0="
        + b"0" * 64
        + b"\r\n"
    )
    length, chunked = b"Content-Length: %d\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n"
    whole, small = 256 * _KIB, 8 * _KIB
    callback = b"POST /callbacks/x HTTP/1.1\r\n" + _HEAD
    get = b"GET / HTTP/1.1\r\n" + _HEAD
    return {
        "bodies of 256 KiB less a byte": signed + length % whole + b"x" * (whole - 1),
        "bodies of 8 KiB less a byte": signed + length % small + b"x" * (small - 1),
        "bodies in chunks of a byte": signed + chunked + b"1\r\nx\r\n" * (16 * _KIB),
        "short bodies in chunks of a byte": signed + chunked + b"1\r\nx\r\n" * 600,
        "callbacks of 64 KiB less a byte": callback + length % (64 * _KIB) + b"x" * (64 * _KIB - 1),
        "callbacks in chunks of a byte": callback + chunked + b"1\r\nx\r\n" * (16 * _KIB),
        "headers of 8 kB": get + (b"X: " + b"a" * 8000 + b"\r\n") * 60,
        "one header of 8 kB": get + b"X: " + b"a" * 8000,
        "60 headers of a byte": get + b"".join(b"X%d: a\r\n" % n for n in range(60)),
        "60 headers and a body": signed.replace(
            _HEAD, b"".join(b"X%d: a\r\n" % n for n in range(60))
        )
        + length % small,
        "half a line": b"GET /" + b"a" * 100,
        "nothing": b"",
    }


async def _held(start: bytes) -> float:
    """Return the megabytes for connections that send ``start`` and wait."""
    slots = asyncio.Semaphore(_AT_ONCE)
    async with ours() as bot, contextlib.AsyncExitStack() as stack:
        before = bot.process.resident()

        async def connect() -> None:
            async with slots:
                with contextlib.suppress(ConnectionError, TimeoutError):
                    _, writer = await asyncio.open_connection("127.0.0.1", bot.process.port)
                    stack.callback(writer.close)
                    writer.write(start)
                    writer.transport.set_write_buffer_limits(0)
                    async with asyncio.timeout(_SENT_WITHIN_S):
                        await writer.drain()

        await asyncio.gather(*(connect() for _ in range(_NUMBER)))
        await asyncio.sleep(_AT_REST_S)
        return (bot.process.peak() - before) / _MB
