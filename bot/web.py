"""The front door: Slack's requests, the service's callbacks, and how the bot is, on one port.

How Slack signs: https://docs.slack.dev/authentication/verifying-requests-from-slack.
"""

import asyncio
import contextlib
import hashlib
import hmac
import json
import logging
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web
from slack_bolt.async_app import AsyncApp
from slack_bolt.request.async_request import AsyncBoltRequest

from bot.clock import Clock
from bot.database import StoreError
from bot.kinds import Kind
from bot.kinds.wire import text_of
from bot.model import token_hash
from bot.store import Store
from bot.timings import Timings

if sys.platform != "win32":
    import resource

_LOG: Final = logging.getLogger(__name__)
_MAX_BODY: Final = 1024 * 1024
_MAX_CALLBACK: Final = 256 * 1024
_LONGEST_ID: Final = 200
_READY_WITHIN: Final = 2.0
_STAMP: Final = re.compile(r"[0-9]{1,12}", re.ASCII)
# Slack's signatures are good for five minutes either way.
_GOOD_FOR: Final = timedelta(minutes=5)
# Longer than proxies keep a connection that rests (a minute, mostly): they close it, not we.
_RESTS: Final = timedelta(seconds=75)
# So many files the process asks to be allowed; half of them may be connections from outside.
_FILES: Final = 4096


@dataclass(frozen=True, slots=True)
class _Reply:
    status: int
    body: str = ""
    content_type: str = "text/plain"

    def to_web(self) -> web.Response:
        return web.Response(status=self.status, text=self.body, content_type=self.content_type)


class FrontDoor:
    """Lets in what is signed or has a token, and tells everybody else as little as possible."""

    def __init__(
        self,
        bolt: AsyncApp,
        signing_secret: str,
        store: Store,
        kinds: Iterable[Kind],
        *,
        clock: Clock,
        timings: Timings,
        last_answers: timedelta,
        healthy: Callable[[], bool],
    ) -> None:
        self._bolt = bolt
        self._secret = signing_secret.encode()
        self._store = store
        self._id_fields = {kind.name: kind.id_field for kind in kinds}
        self._clock = clock
        self._healthy = healthy
        self._ears = _Ears(self._application(), timings.receive_timeout, last_answers)

    async def opens(self, host: str, port: int) -> int:
        """Begin to listen; return the port, which the system chooses where ``port`` is 0.

        Raises:
            OSError: the port is taken.
        """
        return await self._ears.open(host, port)

    async def closes(self) -> None:
        """Listen no more, and give the last answers."""
        await self._ears.close()

    def _application(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/slack/events", self._on_slack)
        app.router.add_route("*", "/callbacks/{token}", self._on_callback)
        app.router.add_get("/healthz", self._on_health)
        app.router.add_get("/readyz", self._on_ready)
        return app

    # ── Slack ─────────────────────────────────────────────────────────────────────────────────

    async def _on_slack(self, request: web.Request) -> web.Response:
        if (request.content_length or 0) > _MAX_BODY:
            return web.Response(status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        body = await self._ears.body(request, _MAX_BODY + 1)
        if len(body) > _MAX_BODY:
            return web.Response(status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        timestamp = _only(request, "X-Slack-Request-Timestamp")
        signature = _only(request, "X-Slack-Signature")
        if not self._is_signed(body, timestamp, signature):
            return web.Response(status=HTTPStatus.UNAUTHORIZED)
        # The signature does not cover headers, and there are some that steer Bolt.
        headers = {"Content-Type": request.headers.get("Content-Type", "")}
        with self._ears.attend(request):
            reply = await self._dispatch(body, headers)
        return reply.to_web()

    def _is_signed(self, body: bytes, timestamp: str, signature: str) -> bool:
        """Return whether Slack signed these very bytes, not long ago."""
        if not _STAMP.fullmatch(timestamp):
            return False
        age = self._clock.now().timestamp() - int(timestamp)
        base = b":".join((b"v0", timestamp.encode(), body))
        right = b"v0=" + hmac.new(self._secret, base, hashlib.sha256).hexdigest().encode()
        is_right = hmac.compare_digest(right, signature.encode(errors="replace"))
        return is_right and abs(age) <= _GOOD_FOR.total_seconds()

    async def _dispatch(self, body: bytes, headers: Mapping[str, str]) -> _Reply:
        try:
            request = AsyncBoltRequest(body=body.decode(), headers={**headers})
        except (ValueError, TypeError, AttributeError, RecursionError):
            return _Reply(HTTPStatus.BAD_REQUEST)
        try:
            response = await self._bolt.async_dispatch(request)
        except Exception as error:  # noqa: BLE001 - Bolt trips over shapes that it does not expect
            _LOG.error("a request of Slack's cannot be read", extra={"error": type(error).__name__})
            return _Reply(HTTPStatus.BAD_REQUEST)
        content_type = "application/json" if response.body.startswith("{") else "text/plain"
        return _Reply(response.status, response.body, content_type)

    # ── The service ───────────────────────────────────────────────────────────────────────────

    async def _on_callback(self, request: web.Request) -> web.Response:
        """Store that a callback came, and answer the same whatever its token and body are.

        How long the answer takes may tell whether the token is known. Nobody gains anything by
        that: a token has 256 bits of randomness, so that none is found by trying.
        """
        try:
            body = await self._ears.body(request, _MAX_CALLBACK)
        except web.HTTPException:
            body = b""
        named = self._named(body, request.query)
        with self._ears.attend(request):
            answer = web.Response(text="ok")
            try:
                await self._store.jobs.record_callback(
                    token_hash(request.match_info["token"]), named, self._clock.now()
                )
            except StoreError as error:
                _LOG.error("a callback could not be stored", extra={"reason": str(error)})
                answer = web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE)
        return answer

    def _named(self, body: bytes, query: Mapping[str, str]) -> dict[str, str]:
        """Return the id that a callback names for each kind, wherever it stands in it."""
        try:
            said = json.loads(body)
        except (ValueError, RecursionError):
            said = None
        places: list[Mapping[str, Any]] = [query]
        if isinstance(said, dict):
            places.insert(0, said)
            places += [part for part in said.values() if isinstance(part, dict)]
        named = {}
        for kind, field in self._id_fields.items():
            for place in places:
                found = text_of(place.get(field))
                if found and len(found) <= _LONGEST_ID:
                    named[kind] = found
                    break
        return named

    # ── How it is ─────────────────────────────────────────────────────────────────────────────

    async def _on_health(self, _: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _on_ready(self, _: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(_READY_WITHIN):
                await self._store.database.works()
        except (StoreError, TimeoutError):
            return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, text="no database")
        if not self._healthy():
            return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, text="stopping")
        return web.Response(text="ok")


def _only(request: web.Request, name: str) -> str:
    """Return a header that is there once; of two, nobody knows which one counts."""
    values = request.headers.getall(name, [])
    return values[0] if len(values) == 1 else ""


def _allowed() -> int:
    """Return how many files this process may have open.

    Systems begin with few, and let a process have more that asks.
    """
    if sys.platform == "win32":
        return 1000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


class _Ears:
    """Listens, and lets nobody hold a connection who does not get to the point.

    Headers and body have their time, each of them, and who is turned away is hung up on. Where
    there are too many connections, those go first that have been there longest and are not being
    answered.
    """

    def __init__(self, app: web.Application, limit: timedelta, last_answers: timedelta) -> None:
        app.middlewares.append(self._hear)
        self._limit = limit.total_seconds()
        self._runner = web.AppRunner(
            app,
            access_log=None,
            # What is signed is what came over the wire, and nothing is unpacked for strangers.
            auto_decompress=False,
            keepalive_timeout=_RESTS.total_seconds(),
            # So long the rest of a body is let in and dropped, after the answer.
            lingering_time=self._limit,
            shutdown_timeout=last_answers.total_seconds(),
        )
        self._listener: asyncio.Server | None = None
        self._most = _allowed() // 2
        self._silent: dict[web.RequestHandler, asyncio.TimerHandle] = {}
        self._attended: set[web.RequestHandler] = set()

    async def open(self, host: str, port: int) -> int:
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._admit, host, port, backlog=128)
        listening: int = self._listener.sockets[0].getsockname()[1]
        return listening

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        self._forget(self._silent)
        await self._runner.cleanup()

    async def body(self, request: web.Request, most: int) -> bytes:
        """Return a request's body, or the first ``most`` bytes of it.

        Raises:
            HTTPRequestTimeout: it takes too long to come.
            HTTPBadRequest: it breaks off, or is not what it was announced to be.
        """
        body = bytearray()
        try:
            async with asyncio.timeout(self._limit):
                while len(body) < most:
                    chunk = await request.content.read(most - len(body))
                    if not chunk:
                        break
                    body += chunk
        except TimeoutError:
            raise web.HTTPRequestTimeout from None
        except (web.RequestPayloadError, OSError, ValueError, RuntimeError):
            # A RuntimeError is what aiohttp makes of a connection that we closed ourselves.
            raise web.HTTPBadRequest from None
        return bytes(body)

    @contextlib.contextmanager
    def attend(self, request: web.Request) -> Iterator[None]:
        """Keep the connection of a request that is all here until it is answered."""
        self._attended.add(request.protocol)
        try:
            yield
        finally:
            self._attended.discard(request.protocol)

    @web.middleware
    async def _hear(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        self._forget([request.protocol])
        try:
            answer = await handler(request)
        except web.HTTPException as refusal:
            refusal.force_close()
            raise
        if answer.status >= HTTPStatus.BAD_REQUEST:
            answer.force_close()
        return answer

    def _admit(self) -> web.RequestHandler:
        server = self._runner.server
        assert server is not None  # noqa: S101 - it is set up before anybody is let in
        # Those that were closed stay on the list until what they began has come to an end.
        there = [each for each in server.connections if each.transport is not None]
        if (excess := len(there) - self._most + 1) > 0:
            resting = [each for each in there if each not in self._attended]
            for each in resting[:excess]:
                self._end(each)
        if len(self._silent) > 2 * self._most:
            self._forget(self._silent.keys() - set(there))
        connection = server()
        timer = asyncio.get_running_loop().call_later(self._limit, self._end, connection)
        self._silent[connection] = timer
        return connection

    def _end(self, connection: web.RequestHandler) -> None:
        self._forget([connection])
        connection.force_close()

    def _forget(self, connections: Iterable[web.RequestHandler]) -> None:
        """Wait no longer for the first request over these connections."""
        for connection in tuple(connections):
            if (timer := self._silent.pop(connection, None)) is not None:
                timer.cancel()
