"""The HTTP server: Slack's requests, the video service's callbacks, and health checks.

How Slack signs: https://docs.slack.dev/authentication/verifying-requests-from-slack.
"""

import hashlib
import hmac
import json
import logging
import re
import time
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Final

from aiohttp import hdrs, web
from slack_bolt.async_app import AsyncApp
from slack_bolt.request.async_request import AsyncBoltRequest

from bot.masking import Mask
from bot.metrics import CONTENT_TYPE, Metrics
from bot.model import token_hash
from bot.slack.context import HandlerContext
from bot.store import DatabaseError
from bot.tasks import RequestPriority
from bot.timings import Clock
from bot.web.callbacks import MAX_CALLBACK_BYTES, IdFinder
from bot.web.connections import LimitedServer
from bot.web.health import Readiness

_LOG: Final = logging.getLogger(__name__)
# A form comes back as the bot made it, with what was typed: at most 30 kB. The largest that Slack
# opens has 250 kB (view_too_large, https://docs.slack.dev/reference/methods/views.open).
_MAX_REQUEST_BYTES: Final = 256 * 1024
_TIMESTAMP: Final = re.compile(r"[0-9]{1,12}", re.ASCII)
_SIGNATURE: Final = re.compile(r"v0=[0-9a-f]{64}", re.ASCII)
_MAX_SIGNATURE_AGE: Final = timedelta(minutes=5)
_FORM: Final = "application/x-www-form-urlencoded"
_NOT_KEPT: Final = {hdrs.CACHE_CONTROL: "no-store"}
_LOG_INTERVAL: Final = timedelta(minutes=1)  # between two log lines


class WebServer(LimitedServer):
    """Answers what Slack signed and what comes with a callback's token, and nothing else.

    A signed request that comes again is handled again: what it changes is kept from happening twice
    by the database, in every process. Without a signing secret, nothing of Slack is accepted here.
    """

    def __init__(
        self,
        bolt: AsyncApp,
        signing_secret: str | None,
        ctx: HandlerContext,
        *,
        mask: Mask,
        priority: RequestPriority,
        shutdown_timeout: timedelta,
        readiness: Readiness,
        report_token: str,
        metrics: Metrics,
    ) -> None:
        self._bolt = bolt
        self._signing_secret = (signing_secret or "").encode()
        self._ctx = ctx
        self._ids = IdFinder(ctx.kinds.values())
        self._mask = mask
        self._priority = priority
        self._readiness = readiness
        self._authorization = f"Bearer {report_token}".encode()
        self._metrics = metrics
        self._wrong_signatures = _Rejections(
            "requests with a wrong signature: is SLACK_SIGNING_SECRET right?", ctx.clock
        )
        self._stale_timestamps = _Rejections(
            "requests whose time is not this machine's: if they are Slack's, set its clock (NTP)",
            ctx.clock,
        )
        app = web.Application()
        if signing_secret is not None:
            app.router.add_post("/slack/events", self._on_slack)
        app.router.add_route("*", "/callbacks/{token}", self._on_callback)
        app.router.add_get("/healthz", self._on_health)
        app.router.add_get("/readyz", self._on_ready)
        app.router.add_get("/metrics", self._on_metrics)
        super().__init__(
            app, receive_timeout=ctx.timings.receive_timeout, shutdown_timeout=shutdown_timeout
        )

    # ── Slack ─────────────────────────────────────────────────────────────────────────────────

    async def _on_slack(self, request: web.Request) -> web.Response:
        timestamp = request.headers.get("X-Slack-Request-Timestamp", "")
        signature = request.headers.get("X-Slack-Signature", "")
        if not (_TIMESTAMP.fullmatch(timestamp) and _SIGNATURE.fullmatch(signature)):
            return web.Response(status=HTTPStatus.UNAUTHORIZED)
        ahead_s = round(self._ctx.clock.now().timestamp()) - int(timestamp)
        if abs(ahead_s) > _MAX_SIGNATURE_AGE.total_seconds():
            self._stale_timestamps.add(clock_ahead_s=ahead_s)
            return web.Response(status=HTTPStatus.UNAUTHORIZED)
        if (request.content_length or 0) > _MAX_REQUEST_BYTES:
            return web.Response(status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        body = await self.read_body(request, _MAX_REQUEST_BYTES + 1)
        if len(body) > _MAX_REQUEST_BYTES:
            return web.Response(status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        # Bolt parses a body before it looks at the signature: nothing unsigned may get there.
        if not self._is_signed(body, timestamp, signature):
            self._wrong_signatures.add()
            return web.Response(status=HTTPStatus.UNAUTHORIZED)
        began = time.perf_counter()
        with self.protect(request), self._priority.request():
            return await self._dispatch(request, body, began)

    def _is_signed(self, body: bytes, timestamp: str, signature: str) -> bool:
        """Return whether Slack signed exactly these bytes."""
        base = b":".join((b"v0", timestamp.encode(), body))
        digest = hmac.new(self._signing_secret, base, hashlib.sha256).hexdigest()
        return hmac.compare_digest(f"v0={digest}", signature)

    async def _dispatch(self, received: web.Request, body: bytes, began: float) -> web.Response:
        try:
            request = _bolt_request(received, body.decode())
        except (ValueError, TypeError, AttributeError, LookupError, RecursionError):
            return web.Response(status=HTTPStatus.BAD_REQUEST)
        try:
            response = await self._bolt.async_dispatch(request)
        except Exception as error:  # noqa: BLE001 - Bolt raises for shapes that it does not expect
            _LOG.error("a Slack request cannot be read", extra={"error": type(error).__name__})
            return web.Response(status=HTTPStatus.BAD_REQUEST)
        finally:
            self._metrics.acknowledged(request.body, time.perf_counter() - began)
        return web.Response(
            status=response.status, text=response.body, headers=response.first_headers()
        )

    # ── The video service ─────────────────────────────────────────────────────────────────────

    async def _on_callback(self, request: web.Request) -> web.Response:
        """Store that a callback came, and answer the same whatever its token and body are.

        How long the answer takes may reveal whether the token is known. That is harmless: a token
        has 256 bits of randomness and cannot be guessed.
        """
        try:
            body = await self.read_body(request, MAX_CALLBACK_BYTES)
        except web.HTTPException:
            body = b""
        encoding = request.headers.get(hdrs.CONTENT_ENCODING, "")
        named = {
            kind: remote_id
            for kind, remote_id in self._ids.find(body, encoding, request.query_string).items()
            if self._mask(remote_id) == remote_id  # what holds a secret is no id
        }
        with self.protect(request):
            try:
                await self._ctx.store.jobs.record_callback(
                    token_hash(request.match_info["token"]), named, self._ctx.clock.now()
                )
            except DatabaseError as error:
                _LOG.error("a callback could not be stored", extra={"reason": str(error)})
                return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE)
        return web.Response(text="ok")

    # ── Health ────────────────────────────────────────────────────────────────────────────────

    async def _on_health(self, _: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _on_ready(self, request: web.Request) -> web.Response:
        """Say whether the bot is ready; the rest is for who runs it.

        Where a request comes from shows nothing: a proxy on this machine passes strangers' on.
        """
        report, _ = await self._readiness.report()
        given = request.headers.get(hdrs.AUTHORIZATION, "").encode(errors="replace")
        is_operator = hmac.compare_digest(given, self._authorization)
        said = report if is_operator else {"ready": report["ready"]}
        status = HTTPStatus.OK if report["ready"] else HTTPStatus.SERVICE_UNAVAILABLE
        return web.json_response(said, status=status, headers=_NOT_KEPT)

    async def _on_metrics(self, _: web.Request) -> web.Response:
        _report, body = await self._readiness.report()
        return web.Response(body=body, headers={hdrs.CONTENT_TYPE: CONTENT_TYPE, **_NOT_KEPT})


def _bolt_request(received: web.Request, body: str) -> AsyncBoltRequest:
    """Return a request of Slack for Bolt, a form as the JSON that Bolt also accepts.

    The signature does not cover headers, and some of them choose what Bolt runs: it gets none but
    the type of the body.

    Slack sends an interaction as the field ``payload`` of a form, and a command as a form of its
    values. Bolt reads forms with urllib, which takes longer than all the rest of an answer (180 of
    330 µs for 6 kB; the parser of aiohttp's URLs takes 10), and loses a command whose text has the
    word "payload".

    Raises:
        ValueError, TypeError, AttributeError, LookupError, RecursionError: the body is not such a
            request.
    """
    content_type = received.headers.get(hdrs.CONTENT_TYPE, "")
    if content_type.startswith(_FORM) and not body.startswith("{"):
        fields = received.rel_url.build(query_string=body, encoded=True).query
        body = fields["payload"] if "payload" in fields else json.dumps(dict(fields))
        if not body:
            raise ValueError("the payload is empty")
        content_type = "application/json"
    request = AsyncBoltRequest(body=body, headers={hdrs.CONTENT_TYPE: content_type})
    if not isinstance(request.body.get("event", {}), dict):
        raise TypeError("the event is no object")
    return request


class _Rejections:
    """Counts requests that are turned away for one reason, and logs it at most once a minute.

    Args:
        event: the log line.
    """

    def __init__(self, event: str, clock: Clock) -> None:
        self._event = event
        self._clock = clock
        self._count = 0
        self._logged_at: datetime | None = None

    def add(self, **details: object) -> None:
        """Count one more, and log how many there were since the last line if that is due.

        ``details`` are of this one.
        """
        self._count += 1
        now = self._clock.now()
        if self._logged_at is None or not timedelta(0) <= now - self._logged_at < _LOG_INTERVAL:
            _LOG.warning(self._event, extra={"count": self._count, **details})
            self._count, self._logged_at = 0, now
