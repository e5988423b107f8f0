"""Faults: what can go wrong with a request to a sandbox server."""

import asyncio
import contextlib
import json
import socket
import struct
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Generic, TypeVar

from aiohttp import hdrs, web

from sandbox.scheduler import Scheduler

_T = TypeVar("_T")

# How often a hanging request checks for its client, and a slow response sends a byte: in real time,
# as clients measure their timeouts.
_TICK_S: Final = 0.02


@dataclass(frozen=True)
class Reset:
    """The connection is reset without a response; ``done``: after the work is done."""

    done: bool = False


@dataclass(frozen=True)
class LateCommit:
    """The connection is reset at once, and the work is done later, by the clock.

    ``hang``: there is no response until the client disconnects, instead of a reset.
    """

    after: timedelta
    hang: bool = False


@dataclass(frozen=True)
class Hang:
    """No response until the client disconnects or the server stops; ``done``: the work is done."""

    done: bool = False


@dataclass(frozen=True)
class CannedResponse:
    """A fixed response in place of the right one; ``done``: the work is done first.

    A ``body`` of type str or bytes is sent unchanged (text that begins with ``<`` as HTML), any
    other value as JSON. ``headers`` override those that follow from the body. ``chunked``: its
    length is not said.
    """

    status: int = 200
    body: object = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    done: bool = False
    chunked: bool = False


@dataclass(frozen=True)
class Truncated:
    """A response of status 200 that breaks off: Content-Length is larger than ``body``."""

    body: str = '{"status": "rea'
    done: bool = False


@dataclass(frozen=True)
class Drip:
    """A response of status 200 that never ends: one space after the other, as JSON allows.

    No timeout of a single read ever strikes.
    """

    done: bool = False


Fault = Reset | LateCommit | Hang | CannedResponse | Truncated | Drip


class Queues(Generic[_T]):
    """What happens to coming requests, in order, by the name of the operation.

    The video service's operations are ``create_video``, ``read_video``, ``create_replica``,
    ``read_replica`` and ``download``; Slack's are the names of its methods, such as
    ``chat.postMessage``.
    """

    def __init__(self) -> None:
        self._next: defaultdict[str, deque[_T]] = defaultdict(deque)

    def next(self, operation: str, *queued: _T) -> None:
        """Apply these to the coming requests of ``operation``, one each, in order."""
        self._next[operation].extend(queued)

    def take(self, operation: str) -> _T | None:
        """Return what happens to the current request; call it once for each."""
        queued = self._next[operation]
        return queued.popleft() if queued else None

    def waiting(self) -> list[tuple[str, _T]]:
        """Return what is queued, in order for each operation."""
        return [(name, each) for name, queued in self._next.items() for each in queued]

    def drop(self, operation: str, queued: _T) -> None:
        """Remove this one if it is still queued; an equal one stays."""
        kept = [each for each in self._next[operation] if each is not queued]
        self._next[operation] = deque(kept)

    def clear(self) -> None:
        """Remove all."""
        self._next.clear()


class Faults(Queues[Fault]):
    """The faults of coming requests, and those of all others."""

    def __init__(self) -> None:
        super().__init__()
        self._always: dict[str, Fault] = {}

    def always(self, operation: str, fault: Fault | None) -> None:
        """Apply ``fault`` to requests of ``operation`` that have none queued; None for none."""
        if fault is None:
            self._always.pop(operation, None)
        else:
            self._always[operation] = fault

    def take(self, operation: str) -> Fault | None:
        """Return the fault of the current request of ``operation``; call it once for each."""
        return super().take(operation) or self._always.get(operation)

    def clear(self) -> None:
        """Remove all faults."""
        super().clear()
        self._always.clear()


async def respond(
    request: web.Request,
    fault: Fault | None,
    work: Callable[[], Awaitable[web.StreamResponse]],
    scheduler: Scheduler,
) -> web.StreamResponse:
    """Respond to ``request`` as ``fault`` says, or with the result of ``work`` if it is None.

    Args:
        request: its body has been read.
        fault: what goes wrong.
        work: does the work and returns the right response; awaited at most once.
        scheduler: runs the work of a late commit.

    Returns:
        The response for aiohttp; it is not sent if the connection was dropped.
    """
    if fault is None:
        return await work()
    if isinstance(fault, LateCommit):
        scheduler.after(fault.after, work)
    elif fault.done:
        await work()
    match fault:
        case CannedResponse():
            return _answer(fault)
        case Hang() | LateCommit(hang=True):
            await hang(request)
        case Reset() | LateCommit():
            _reset(request)
        case Truncated():
            await _truncate(request, fault.body)
        case Drip():
            await _drip(request)
    return web.Response()


def _reset(request: web.Request) -> None:
    if request.transport is not None:
        connection: socket.socket | None = request.transport.get_extra_info("socket")
        if connection is not None:
            # Lingering for no time at all makes the kernel send RST where it would send FIN.
            linger = struct.pack("ii", 1, 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        request.transport.abort()


async def hang(request: web.Request, is_held: Callable[[], bool] = lambda: True) -> None:
    """Wait until the client disconnects or the server stops, or until it is held no longer."""
    while request.transport is not None and is_held():  # noqa: ASYNC110 - aiohttp has no event for it
        await asyncio.sleep(_TICK_S)


def _answer(fault: CannedResponse) -> web.StreamResponse:
    body = fault.body
    if isinstance(body, bytes):
        content, content_type = body, "application/octet-stream"
    elif isinstance(body, str):
        content = body.encode()
        content_type = "text/html" if body.startswith("<") else "text/plain"
    else:
        content, content_type = json.dumps(body).encode(), "application/json"
    headers = {hdrs.CONTENT_TYPE: content_type, **fault.headers}
    response = web.Response(status=fault.status, body=content, headers=headers)
    if fault.chunked:
        response.enable_chunked_encoding()
    return response


async def _truncate(request: web.Request, body: str) -> None:
    content = body.encode()
    response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: "application/json"})
    response.content_length = len(content) + 1000
    with contextlib.suppress(ConnectionError):
        await response.prepare(request)
        await response.write(content)
    if request.transport is not None:
        request.transport.close()


async def _drip(request: web.Request) -> None:
    response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: "application/json"})
    with contextlib.suppress(ConnectionError):
        await response.prepare(request)
        while request.transport is not None:
            await response.write(b" ")
            await asyncio.sleep(_TICK_S)
