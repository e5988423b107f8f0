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

from bot.clock import Clock
from sandbox.block_kit import Json

Side: TypeAlias = Literal["slack", "bot", "service"]

#: So many exchanges are remembered, and so many bytes of each body.
LENGTH: Final = 500
_BODY_BYTES: Final = 32_000
MASK: Final = "•••"
NO_ANSWER: Final = "no answer"
DROPPED: Final = "the connection was dropped"

# Links that are a right in themselves, and tokens, wherever they stand in a text.
_SECRET: Final = re.compile(
    r"(?P<kept>/callbacks/|/respond/)[^/?#\s\"<>|]+|\bxox[a-z]-[\w-]+"
    r"|(?P<query>[?&][^=&#\s\"]*(?:sig|signature|token|key|secret|credential|password)[^=&#\s\"]*=)"
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
    """One request and what came of it.

    ``status`` and ``took`` are None as long as it is under way; ``failed`` says why there is no
    status although it is over.
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
        """Note the answer."""
        self.status, self.response = status, body[:_BODY_BYTES]


class Wire:
    """The last exchanges, oldest first, and who follows them.

    ``secrets`` are texts that are masked wherever they stand, besides what looks like a secret.
    """

    def __init__(self, clock: Clock) -> None:
        self.secrets: set[str] = set()
        self.exchanges: deque[Exchange] = deque(maxlen=LENGTH)
        self._clock = clock
        self._numbers = itertools.count(1)
        self._followers: list[Callable[[Exchange], None]] = []

    @contextlib.contextmanager
    def exchange(
        self, sender: Side, receiver: Side, method: str, path: str, body: bytes
    ) -> Iterator[Exchange]:
        """Note a request that goes out now; what came of it is to be noted before the end."""
        exchange = Exchange(
            next(self._numbers),
            self._clock.now(),
            sender,
            receiver,
            method,
            path,
            body[:_BODY_BYTES],
        )
        self.exchanges.append(exchange)
        self._tell(exchange)
        began = time.monotonic()
        try:
            yield exchange
        finally:
            exchange.took = timedelta(seconds=time.monotonic() - began)
            if exchange.status is None:
                exchange.failed = exchange.failed or NO_ANSWER
            self._tell(exchange)

    async def served(
        self, receiver: Side, request: web.Request, handler: Handler
    ) -> web.StreamResponse:
        """Have a request of the bot answered, and note both."""
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

    def subscribe(self, follower: Callable[[Exchange], None]) -> Callable[[], None]:
        """Call ``follower`` when a request goes out and when it is over, until undone."""
        self._followers.append(follower)
        return lambda: self._followers.remove(follower)

    def shown(self, exchange: Exchange) -> Json:
        """Return an exchange as JSON for a developer to read, with its secrets masked."""
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
            "request": self._legible(request),
            "response": self._legible(_read(exchange.response)),
        }

    def _legible(self, value: object) -> object:
        try:
            return self._masked(value)
        except RecursionError:
            return "(nested too deeply to be shown)"

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

    def _tell(self, exchange: Exchange) -> None:
        for follower in tuple(self._followers):
            follower(exchange)


def _mask(match: re.Match[str]) -> str:
    return f"{match['kept'] or match['query'] or ''}{MASK}"


def _read(body: bytes) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Return what a body says: JSON, a form with the JSON inside it, or text; None if empty."""
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
    """Return in a few words what a request is for."""
    parts = exchange.path.strip("/").split("/")
    match (exchange.sender, exchange.receiver):
        case ("bot", "slack"):
            return "response_url" if parts[0] == "respond" else parts[-1]
        case ("bot", "service"):
            name = parts[1] if len(parts) > 1 else ""
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
