"""Calls to Slack: its client without cookies, redirects and retries, what calls show, and limits.

``chat.postMessage`` is limited for each channel, every other method for the workspace:
https://docs.slack.dev/apis/web-api/rate-limits. What a limit covers goes on with one call, and then
one after the other, at the pace that Slack documents. Each copy of the bot learns the limits for
itself: several have a few more calls refused, each of which waits as long as Slack asks.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, Final, Generic, TypeVar
from urllib.parse import urlsplit

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bot.errors import OutsideError, Refused
from bot.metrics import Metrics
from bot.outages import Outages
from bot.slack.errors import outside_error
from bot.timings import Clock, Timings

_LOG: Final = logging.getLogger(__name__)
EVERYTHING: Final = ""
"""What is limited, beside Slack's methods, while the workspace accepts nothing from this app."""
_K = TypeVar("_K")
TOKEN_REFUSED: Final = frozenset(
    {
        *("account_inactive", "invalid_auth", "not_authed"),
        *("token_expired", "token_revoked"),
    }
)
"""Slack's codes for a token that it does not accept, whatever the call:
https://docs.slack.dev/reference/methods/auth.test#errors."""
# It is called with the app-level token.
_OTHER_TOKEN: Final = frozenset({"apps.connections.open"})
_READ_BYTES: Final = 64 * 1024
# A page of messages of others (conversations.history) has a few MB at most.
_MAX_ANSWER_BYTES: Final = 8 * 1024 * 1024
# After this time without a call, a limit is over.
_FORGET_AFTER: Final = timedelta(minutes=1)


class SlackCalls:
    """Observes each call to Slack.

    Args:
        outages: learns when Slack answered.
        metrics: counts the calls.
        clock, timings: how long Slack may ask to wait.
    """

    def __init__(self, outages: Outages, metrics: Metrics, clock: Clock, timings: Timings) -> None:
        self.outages = outages
        self._metrics = metrics
        self.limits: CallLimits[str] = CallLimits(clock, timings.max_wait)
        """Those of the methods, by their names, and ``EVERYTHING``, as far as calls show them."""
        self.in_doubt = asyncio.Event()
        """Set while it is not known that Slack accepts our token."""
        self.in_doubt.set()
        self.refusal = ""
        """The code with which Slack refuses our token; "" if it accepts it, or was not asked."""

    @contextlib.contextmanager
    def observed(self, method: str) -> Iterator[None]:
        """Observe a call of ``method``, and raise what it raises."""
        with self._metrics.call("slack", method, outside_error):
            try:
                yield
            except Exception as error:
                self._note(method, outside_error(error))
                raise
            self._note(method, None)

    def _note(self, method: str, failure: OutsideError | None) -> None:
        if failure is not None:
            self.limits.note(method, failure)
            if not isinstance(failure, Refused):
                return
        self.outages.note_answer()
        if method in _OTHER_TOKEN:
            return
        refusal = failure.code if failure is not None and failure.code in TOKEN_REFUSED else ""
        before, self.refusal = self.refusal, refusal
        if refusal and not before:
            _LOG.error(
                "Slack refuses SLACK_BOT_TOKEN: install the app again, copy its Bot User OAuth "
                "Token, and restart the bot with it",
                extra={"code": refusal},
            )
            self.in_doubt.set()
        elif before and not refusal:
            _LOG.info("Slack accepts SLACK_BOT_TOKEN again")


class _LimitedResponse(aiohttp.ClientResponse):
    """A response whose body has a limit, which counts what it is decompressed to."""

    async def read(self) -> bytes:
        """Return the body.

        Raises:
            aiohttp.ClientPayloadError: it is longer than an answer of Slack's can be.
        """
        if self._body is None:
            body = bytearray()
            async for chunk in self.content.iter_chunked(_READ_BYTES):
                body += chunk
                if len(body) > _MAX_ANSWER_BYTES:
                    self.close()
                    raise aiohttp.ClientPayloadError("The answer is too long.")
            self._body = bytes(body)
        return await super().read()


class _ObservedClient(AsyncWebClient):
    """A client whose calls are observed, whatever makes them."""

    def __init__(self, calls: SlackCalls | None, **settings: Any) -> None:  # noqa: ANN401 - the SDK's
        super().__init__(**settings)
        self._calls = calls

    async def api_call(
        self,
        api_method: str,
        **arguments: Any,  # noqa: ANN401 - the SDK's
    ) -> AsyncSlackResponse:
        """Call a method of Slack's."""
        with self._calls.observed(api_method) if self._calls else contextlib.nullcontext():
            return await super().api_call(api_method, **arguments)


def open_session(proxy: str | None) -> aiohttp.ClientSession:
    """Return a session for calls to Slack, through ``proxy`` if there is one."""
    redirects = aiohttp.TraceConfig()
    redirects.on_request_redirect.append(_refuse_redirect)
    return aiohttp.ClientSession(
        cookie_jar=aiohttp.DummyCookieJar(),
        response_class=_LimitedResponse,
        proxy=proxy,
        trace_configs=[redirects],
    )


async def _refuse_redirect(
    _session: aiohttp.ClientSession,
    _context: SimpleNamespace,
    redirect: aiohttp.TraceRequestRedirectParams,
) -> None:
    """Keep aiohttp from sending what is for Slack, such as a text, to another address."""
    redirect.response.close()
    raise SlackApiError("Slack answered with a redirect.", redirect.response)  # type: ignore[no-untyped-call]


def web_client(
    token: str,
    base_url: str,
    session: aiohttp.ClientSession,
    timeout_s: float = 30,
    calls: SlackCalls | None = None,
) -> AsyncWebClient:
    """Return the client of Slack's methods; ``calls`` observes them."""
    client = _ObservedClient(
        calls,
        token=token,
        base_url=base_url,
        session=session,
        timeout=max(1, round(timeout_s)),
        # By default it sends again after a dropped connection: a message would be posted twice.
        retry_handlers=[],
    )
    client.proxy = None  # it reads the environment itself; the session has the one that counts
    return client


def is_slacks(url: str, api: str) -> bool:
    """Return whether a URL is one of Slack's: only such a host is sent the token, or a script.

    Raises:
        ValueError: it is no URL.
    """
    parts, ours = urlsplit(url), urlsplit(api)
    if (parts.scheme, parts.netloc) == (ours.scheme, ours.netloc):
        return True
    return parts.scheme == "https" and (parts.hostname or "").endswith(".slack.com")


# ── When Slack may be called again ────────────────────────────────────────────────────────────────


class CallLimits(Generic[_K]):
    """Remembers what Slack limits, such as a method, and when the next call of it may begin.

    Slack may ask for any wait, but none is longer than ``max_wait``.
    """

    def __init__(self, clock: Clock, max_wait: timedelta) -> None:
        self._clock = clock
        self._max_wait = max_wait
        self._next_calls: dict[_K, datetime] = {}

    def limit(self, limited: _K, wait: timedelta) -> datetime:
        """Make no such call for ``wait``, nor before its next call was due; return until when."""
        at = self._clock.now() + min(wait, self._max_wait)
        self._next_calls[limited] = max(at, self.until(limited) or at)
        return self._next_calls[limited]

    def end(self, limited: _K) -> None:
        """End a limit: a call was accepted."""
        self._next_calls.pop(limited, None)

    def note(self, limited: _K, error: OutsideError) -> bool:
        """Note why a call failed; return whether Slack asks to wait, so that none is made now."""
        if error.retry_after is not None:
            self.limit(limited, error.retry_after)
        return error.retry_after is not None

    def until(self, limited: _K) -> datetime | None:
        """Return until when no such call is made; None for now."""
        until, now = self._next_calls.get(limited), self._clock.now()
        # One that is too long is from before the clock was set back.
        is_ahead = until is not None and now < until <= now + self._max_wait
        return until if is_ahead else None

    def begin(self, limited: _K, interval: timedelta) -> datetime | None:
        """Note that a call begins and return None, or when to ask again.

        After a limit one call begins, and the others at this ``interval``.
        """
        if (until := self.until(limited)) is not None:
            return until
        now = self._clock.now()
        last = self._next_calls.get(limited)
        if last is not None and now - last < _FORGET_AFTER:
            self._next_calls[limited] = now + interval
        return None

    def current(self) -> dict[_K, datetime]:
        """Return the limits, each with the time of its next call."""
        now = self._clock.now()
        self._next_calls = {
            limited: self.until(limited) or min(at, now)
            for limited, at in self._next_calls.items()
            if now - at < _FORGET_AFTER
        }
        return dict(self._next_calls)
