"""The front door: Slack's requests, the service's callbacks, and how the bot is, on one port.

How Slack signs: https://docs.slack.dev/authentication/verifying-requests-from-slack.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web
from slack_bolt.async_app import AsyncApp
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_sdk.signature import Clock as SecondsClock
from slack_sdk.signature import SignatureVerifier

from bot.clock import Clock
from bot.database import StoreError
from bot.kinds import Kind
from bot.kinds.wire import text_of
from bot.model import token_hash
from bot.store import Store

_LOG: Final = logging.getLogger(__name__)
_MAX_BODY: Final = 1024 * 1024
_MAX_CALLBACK: Final = 256 * 1024
_LONGEST_ID: Final = 200
_BODY_WITHIN: Final = 10.0
_READY_WITHIN: Final = 2.0
# Slack's signatures are good for five minutes either way.
_REMEMBERED: Final = timedelta(minutes=11)


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
        healthy: Callable[[], bool],
    ) -> None:
        self._bolt = bolt
        self._store = store
        self._id_fields = {kind.name: kind.id_field for kind in kinds}
        self._clock = clock
        self._healthy = healthy
        self._verifier = SignatureVerifier(signing_secret, _Seconds(clock))
        self._answers: dict[tuple[str, str], tuple[datetime, asyncio.Future[_Reply]]] = {}

    def application(self) -> web.Application:
        """Return the paths that the bot answers."""
        app = web.Application(client_max_size=_MAX_BODY)
        app.router.add_post("/slack/events", self._on_slack)
        app.router.add_route("*", "/callbacks/{token}", self._on_callback)
        app.router.add_get("/healthz", self._on_health)
        app.router.add_get("/readyz", self._on_ready)
        return app

    # ── Slack ─────────────────────────────────────────────────────────────────────────────────

    async def _on_slack(self, request: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(_BODY_WITHIN):
                body = await request.read()
        except TimeoutError:
            return web.Response(status=HTTPStatus.REQUEST_TIMEOUT)
        timestamp = request.headers.get("X-Slack-Request-Timestamp", "")
        signature = request.headers.get("X-Slack-Signature", "")
        if not self._is_signed(body, timestamp, signature):
            return web.Response(status=HTTPStatus.UNAUTHORIZED)
        # Slack's own header to single out a part of an app is not for strangers to set, and the
        # signature does not cover headers.
        headers = {
            name: value
            for name, value in request.headers.items()
            if not name.lower().startswith("x-slack-bolt-")
        }
        reply = await self._once((timestamp, signature), lambda: self._dispatch(body, headers))
        return reply.to_web()

    def _is_signed(self, body: bytes, timestamp: str, signature: str) -> bool:
        try:
            return self._verifier.is_valid(body, timestamp, signature)
        except (ValueError, TypeError, OverflowError):
            return False

    async def _once(self, key: tuple[str, str], answer: Callable[[], Awaitable[_Reply]]) -> _Reply:
        """Answer a request; one that comes again gets the same answer without any effect.

        An answer that says "try again" is not kept: the next one may.
        """
        now = self._clock.now()
        while self._answers:
            oldest = next(iter(self._answers))
            if now - self._answers[oldest][0] < _REMEMBERED:
                break
            del self._answers[oldest]
        if (known := self._answers.get(key)) is not None:
            return await asyncio.shield(known[1])
        promise: asyncio.Future[_Reply] = asyncio.get_running_loop().create_future()
        self._answers[key] = now, promise
        reply = _Reply(HTTPStatus.SERVICE_UNAVAILABLE)
        try:
            reply = await answer()
        finally:
            promise.set_result(reply)
            if not HTTPStatus.OK <= reply.status < HTTPStatus.MULTIPLE_CHOICES:
                self._answers.pop(key, None)
        return reply

    async def _dispatch(self, body: bytes, headers: Mapping[str, str]) -> _Reply:
        try:
            request = AsyncBoltRequest(body=body.decode(), headers=dict(headers))
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
        """Take note of a callback. Whatever its token and body, the answer is the same."""
        named = self._named(await _some_of(request), request.query)
        try:
            await self._store.call_back(
                token_hash(request.match_info["token"]), named, self._clock.now()
            )
        except StoreError as error:
            _LOG.error("a callback could not be stored", extra={"reason": str(error)})
            return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE)
        return web.Response(text="ok")

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
                await self._store.next_job_due()
        except (StoreError, TimeoutError):
            return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, text="no database")
        if not self._healthy():
            return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, text="stopping")
        return web.Response(text="ok")


class _Seconds(SecondsClock):
    """The clock as Slack's verifier reads it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> float:
        return self._clock.now().timestamp()


async def _some_of(request: web.Request) -> bytes:
    """Return the body of a callback, or as much of it as is worth reading."""
    body = b""
    try:
        async with asyncio.timeout(_BODY_WITHIN):
            while len(body) < _MAX_CALLBACK:
                chunk = await request.content.read(_MAX_CALLBACK - len(body))
                if not chunk:
                    break
                body += chunk
    except (TimeoutError, OSError, ValueError):
        return b""
    return body
