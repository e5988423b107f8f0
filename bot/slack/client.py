"""The client of Slack's Web API: no cookies, redirects or retries, and answers have a limit."""

from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse
from slack_sdk.webhook.async_client import AsyncWebhookClient

from bot.slack.calls import SlackCalls

_READ_BYTES: Final = 64 * 1024
# A page of messages of others (conversations.history) has a few MB at most.
_MAX_ANSWER_BYTES: Final = 8 * 1024 * 1024


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
        if self._calls is None:
            return await super().api_call(api_method, **arguments)
        with self._calls.observed(api_method):
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


def webhook_client(url: str, session: aiohttp.ClientSession) -> AsyncWebhookClient:
    """Return the client of one ``response_url``."""
    client = AsyncWebhookClient(url, session=session, retry_handlers=[])
    client.proxy = None  # as above
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
