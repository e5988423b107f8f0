"""The wire log: each request between Slack, the bot and the video service, without its secrets."""

import contextlib
import itertools
import json
import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import parse_qsl

from aiohttp import web
from aiohttp.typedefs import Handler

from bot.timings import Clock
from sandbox.block_kit import Json

Side: TypeAlias = Literal["slack", "bot", "service"]

#: How many exchanges are kept.
MAX_EXCHANGES: Final = 500
_MAX_BODY_BYTES: Final = 32_000
MASK: Final = "•••"
NO_ANSWER: Final = "no answer"
DROPPED: Final = "the connection was dropped"

# Links that grant access, and tokens, anywhere in a text.
_SECRET: Final = re.compile(
    r"(?P<kept>/callbacks/|/respond/)[^/?#\s\"<>|]+|\bxox[a-z]-[\w-]+"
    r"|(?P<query>[?&][^=&#\s\"]*(?:sig|signature|ticket|token|key|secret|credential|password)[^=&#\s\"]*=)"
    r"[^&#\s\"<>|]+",
    re.IGNORECASE,
)
_OPERATIONS: Final = {
    ("POST", "videos"): "create_video",
    ("GET", "videos"): "read_video",
    ("POST", "replicas"): "create_replica",
    ("GET", "replicas"): "read_replica",
}


@dataclass(eq=False)
class Exchange:
    """One request and its response.

    ``status`` and ``took`` are None while it is open; ``failed`` is why it ended without a status.
    """

    id: int
    at: datetime
    sender: Side
    receiver: Side
    method: str
    path: str
    request: bytes
    status: int | None = None
    response: bytes = b""
    took: timedelta | None = None
    failed: str | None = None

    def answered(self, status: int, body: bytes) -> None:
        """Record the response."""
        self.status, self.response = status, body[:_MAX_BODY_BYTES]


class Wire:
    """The log of the last exchanges, oldest first.

    ``secrets`` are texts to mask anywhere, besides what looks like a secret.
    """

    def __init__(self, clock: Clock) -> None:
        self.secrets: set[str] = set()
        self.exchanges: deque[Exchange] = deque(maxlen=MAX_EXCHANGES)
        self._clock = clock
        self._numbers = itertools.count(1)
        self._subscribers: list[Callable[[Exchange], None]] = []

    @contextlib.contextmanager
    def exchange(
        self, sender: Side, receiver: Side, method: str, path: str, body: bytes
    ) -> Iterator[Exchange]:
        """Record a request that is sent now; the body records the response."""
        exchange = Exchange(
            next(self._numbers),
            self._clock.now(),
            sender,
            receiver,
            method,
            path,
            body[:_MAX_BODY_BYTES],
        )
        self.exchanges.append(exchange)
        self._publish(exchange)
        began = time.monotonic()
        try:
            yield exchange
        finally:
            exchange.took = timedelta(seconds=time.monotonic() - began)
            if exchange.status is None:
                exchange.failed = exchange.failed or NO_ANSWER
            self._publish(exchange)

    async def served(
        self, receiver: Side, request: web.Request, handler: Handler
    ) -> web.StreamResponse:
        """Handle a request of the bot, and record it with the response."""
        body = await request.read()
        with self.exchange("bot", receiver, request.method, request.path, body) as exchange:
            try:
                response = await handler(request)
            except web.HTTPException as error:
                exchange.answered(error.status, (error.text or "").encode())
                raise
            if request.transport is None or request.transport.is_closing():
                exchange.failed = DROPPED
            else:
                content = response.body if isinstance(response, web.Response) else None
                exchange.answered(response.status, content if isinstance(content, bytes) else b"")
        return response

    def subscribe(self, subscriber: Callable[[Exchange], None]) -> Callable[[], None]:
        """Call ``subscriber`` when a request is sent and when it ends; return how to undo it."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    def shown(self, exchange: Exchange) -> Json:
        """Return an exchange as readable JSON, with its secrets masked."""
        request = _read(exchange.request)
        took = exchange.took
        return {
            "id": exchange.id,
            "at": exchange.at.timestamp(),
            "from": exchange.sender,
            "to": exchange.receiver,
            "method": exchange.method,
            "path": self._masked(exchange.path),
            "about": self._masked(_about(exchange, request)),
            "status": exchange.status,
            "duration_ms": None if took is None else round(took.total_seconds() * 1000, 1),
            "failed": exchange.failed,
            "request": self._masked(request),
            "response": self._masked(_read(exchange.response)),
        }

    def _masked(self, value: Any) -> Any:  # noqa: ANN401 - whatever JSON holds
        match value:
            case str():
                for secret in self.secrets:
                    value = value.replace(secret, MASK)
                return _SECRET.sub(_mask, value)
            case dict():
                return {
                    self._masked(key): MASK if key == "token" else self._masked(each)
                    for key, each in value.items()
                }
            case list():
                return [self._masked(each) for each in value]
        return value

    def _publish(self, exchange: Exchange) -> None:
        for subscriber in tuple(self._subscribers):
            subscriber(exchange)


def _mask(match: re.Match[str]) -> str:
    return f"{match['kept'] or match['query'] or ''}{MASK}"


def _read(body: bytes) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Return the value of a body: JSON, a form with the JSON inside it, or text; None if empty."""
    text = body.decode(errors="replace")
    if not text:
        return None
    if (value := _json(text)) is not None:
        return value
    if re.fullmatch(r"[\w.%*+-]+=\S*", text):
        form = parse_qsl(text, keep_blank_values=True)
        return {name: _nested(part) for name, part in form}
    return text


def _nested(text: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    value = _json(text) if text.startswith(("{", "[")) else None
    return text if value is None else value


def _json(text: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _about(exchange: Exchange, request: object) -> str:
    """Return what a request is for, in a few words."""
    parts = exchange.path.strip("/").split("/")
    match (exchange.sender, exchange.receiver):
        case ("bot", "slack"):
            return "response_url" if parts[0] == "respond" else parts[-1]
        case ("bot", "service"):
            name = parts[1].partition("?")[0] if len(parts) > 1 else ""
            if exchange.method == "GET" and parts[2:] == []:
                return f"list_{name}"
            return _OPERATIONS.get((exchange.method, name), exchange.path)
        case ("service", _):
            return "callback"
    match request:
        case {"command": str(command)}:
            return command
        case {"payload": {"type": str(kind)} as payload}:
            return f"{kind} {_of(payload)}".strip()
        case {"event": {"type": str(kind)}}:
            return kind
    return ""


def _of(payload: Json) -> str:
    match payload:
        case {"actions": [{"action_id": str(name)}, *_]} | {"action_id": str(name)}:
            return name
        case {"view": {"callback_id": str(name)}} | {"callback_id": str(name)}:
            return name
    return ""
