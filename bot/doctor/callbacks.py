"""Checks of incoming calls: requests like those of the service and Slack, to the public address.

Where a bot runs, it is called with a token that it counts in its database, and with a request that
is signed as Slack signs. Where none runs, doctor listens in its place for that moment.
"""

import asyncio
import errno
import hashlib
import hmac
import json
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

import aiohttp

from bot.clock import Clock
from bot.doctor.finding import Finding, error, off, ok, warning
from bot.doctor.listener import Listener, listening
from bot.doctor.network import Cause, explain
from bot.settings import Settings
from bot.slack.client import open_session
from bot.store.inspection import find_owner, stored_probe
from bot.timings import Timings

_CALLBACKS: Final = "callbacks"
_EVENTS: Final = "Slack requests"
_PORT: Final = "port"
_MAX_BODY_BYTES: Final = 4096
_NO_BOT_BEHIND: Final = frozenset(
    {HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT}
)


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: bytes
    server: str
    """What the header says that answered, such as nginx."""


async def check_incoming(
    settings: Settings, timings: Timings, clock: Clock
) -> AsyncIterator[Finding]:
    """Yield whether the service and Slack can reach this bot, as far as this machine can tell."""
    owner = await asyncio.to_thread(find_owner, settings.database_address)
    async with AsyncExitStack() as stack:
        listener: Listener | None = None
        if owner is None:
            token = secrets.token_urlsafe(32)
            try:
                listener = await stack.enter_async_context(
                    listening(settings.host, settings.port, token)
                )
            except OSError as failure:
                yield _cannot_listen(settings, failure)
                return
        if settings.public_url is None:
            for finding in _without_url(settings):
                yield finding
            return
        if (address := await _check_address(settings)) is not None:
            yield address
        session = await stack.enter_async_context(
            open_session(settings.proxy_for(settings.public_url))
        )
        caller = _Caller(session, settings, timings, listener)
        callbacks = [_check_callbacks(caller)]
        if settings.slack_app_token is None:
            callbacks.append(_check_events(caller, clock))
        for each in await asyncio.gather(*callbacks):
            yield each


def _cannot_listen(settings: Settings, failure: OSError) -> Finding:
    if isinstance(failure, socket.gaierror) or failure.errno == errno.EADDRNOTAVAIL:
        return error(
            _PORT,
            f"the bot cannot listen: HOST ({settings.host}) is no address of this machine",
            "Set HOST to 0.0.0.0 to listen on all of them, or to 127.0.0.1 behind a proxy here.",
        )
    if failure.errno == errno.EACCES:
        return error(
            _PORT,
            f"the bot may not listen on port {settings.port}",
            "Set PORT to 1024 or more: a proxy in front of the bot can have the other one.",
        )
    return error(
        _PORT,
        f"the bot cannot listen: another program has port {settings.port}",
        "End that program, or set PORT to another one. If it is a bot, it runs on another "
        "database than DATABASE_URL.",
    )


def _without_url(settings: Settings) -> Iterator[Finding]:
    yield off(
        _CALLBACKS,
        "PUBLIC_URL is not set: the bot polls the service, and answers come a few minutes later",
        "Set PUBLIC_URL to an address at which the service reaches the bot.",
    )
    if settings.slack_app_token is None:
        yield warning(
            _EVENTS,
            "neither SLACK_APP_TOKEN nor PUBLIC_URL is set: it is not known how Slack reaches the "
            "bot",
            "Set SLACK_APP_TOKEN to use Socket Mode, or PUBLIC_URL to the address in the Slack "
            "app's request URLs.",
        )


async def _check_address(settings: Settings) -> Finding | None:
    """Return a warning if the service cannot reach the address from where it is."""
    if await _is_private(settings.video_api_url) is not False:
        return None  # the service is in this network too: a test, or one's own
    if await _is_private(settings.public_url or ""):
        host = urlsplit(settings.public_url or "").hostname
        return warning(
            "public address",
            f"{host} is an address of this machine or of a private network: the service cannot "
            "reach it from outside",
            "Set it to a public address. On a laptop, use Socket Mode (SLACK_APP_TOKEN) and leave "
            "PUBLIC_URL out.",
        )
    return None


async def _is_private(url: str) -> bool | None:
    """Return whether a host has only addresses of private networks; None if it has none."""
    host = urlsplit(url).hostname or ""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return None
    return not any(ip_address(str(each[4][0]).partition("%")[0]).is_global for each in found)


class _Caller:
    """Calls the bot at its public address."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        settings: Settings,
        timings: Timings,
        listener: Listener | None,
    ) -> None:
        self._session = session
        self._timings = timings
        self.settings = settings
        self.listener = listener

    async def post(
        self, path: str, body: bytes, headers: dict[str, str] | None = None
    ) -> _Answer | Cause:
        """Return the answer to a call of a path, or why there is none."""
        url = f"{self.settings.public_url}{path}"
        try:
            async with (
                asyncio.timeout(self._timings.call_timeout.total_seconds()),
                self._session.post(
                    url,
                    data=body,
                    headers={"Content-Type": "application/json", **(headers or {})},
                    allow_redirects=False,
                ) as response,
            ):
                content = await response.content.read(_MAX_BODY_BYTES)
                return _Answer(response.status, content, response.headers.get("Server", ""))
        except (aiohttp.ClientError, OSError, ValueError) as failure:
            return explain(failure, url, self._timings.call_timeout, "PUBLIC_URL")


async def _check_callbacks(caller: _Caller) -> Finding:
    listener, path = caller.listener, caller.settings.database_address
    probe = None if listener is not None else await asyncio.to_thread(stored_probe, path)
    token = listener.token if listener is not None else probe.token if probe is not None else None
    if token is None:
        return warning(
            _CALLBACKS,
            "whether they arrive could not be checked: the bot that runs is of an older version",
            "Restart the bot, and run doctor again.",
        )
    answer = await caller.post(f"/callbacks/{token}", b"{}")
    if isinstance(answer, Cause):
        return _unreachable(warning, _CALLBACKS, answer)
    if listener is not None:
        arrived = any(token in each for each in listener.paths)
    else:
        after = await asyncio.to_thread(stored_probe, path)
        arrived = None not in {after, probe} and after != probe
    if not arrived:
        return _wrong(warning, _CALLBACKS, answer, caller)
    if answer.status != HTTPStatus.OK:
        return warning(
            _CALLBACKS,
            f"they reach this bot, but the service gets {answer.status} for an answer",
            "Have the proxy in front of the bot pass its answers on unchanged.",
        )
    return ok(_CALLBACKS, f"the service reaches this bot at {caller.settings.public_url}")


async def _check_events(caller: _Caller, clock: Clock) -> Finding:
    path = "/slack/events"
    listener = caller.listener
    challenge = listener.token if listener is not None else secrets.token_urlsafe(32)
    body = json.dumps({"type": "url_verification", "challenge": challenge}).encode()
    if listener is not None:
        answer = await caller.post(path, body)
        if isinstance(answer, Cause):
            return _unreachable(error, _EVENTS, answer)
        if not any(each.endswith(path) for each in listener.paths):
            return _wrong(error, _EVENTS, answer, caller)
        return ok(_EVENTS, f"Slack's requests to {caller.settings.public_url}{path} arrive here")
    unsigned = await caller.post(path, b"{}")
    if isinstance(unsigned, Cause):
        return _unreachable(error, _EVENTS, unsigned)
    if unsigned.status != HTTPStatus.UNAUTHORIZED:
        return _wrong(error, _EVENTS, unsigned, caller)
    # As Slack does when the address is entered:
    # https://docs.slack.dev/reference/events/url_verification
    signed = await caller.post(path, body, _signature(caller.settings, body, clock))
    if isinstance(signed, Cause):
        return _unreachable(error, _EVENTS, signed)
    if signed.status == HTTPStatus.UNAUTHORIZED:
        return error(
            _EVENTS,
            "a bot answers there, but refuses what is signed with SLACK_SIGNING_SECRET",
            "If the settings have changed since it was started, restart it. If not, another bot "
            "answers there: set PUBLIC_URL to this one's address.",
        )
    if challenge.encode() not in signed.body:
        return _wrong(error, _EVENTS, signed, caller)
    return ok(_EVENTS, f"they reach this bot at {caller.settings.public_url}{path}")


def _signature(settings: Settings, body: bytes, clock: Clock) -> dict[str, str]:
    """Return the headers with which Slack signs a request.

    https://docs.slack.dev/authentication/verifying-requests-from-slack
    """
    secret = settings.slack_signing_secret
    key = secret.get_secret_value() if secret is not None else ""
    timestamp = str(int(clock.now().timestamp()))
    base = b":".join((b"v0", timestamp.encode(), body))
    digest = hmac.new(key.encode(), base, hashlib.sha256).hexdigest()
    return {"X-Slack-Request-Timestamp": timestamp, "X-Slack-Signature": f"v0={digest}"}


_Level = Callable[[str, str, str], Finding]


def _unreachable(level: _Level, name: str, cause: Cause) -> Finding:
    elsewhere = (
        " Some networks keep a machine from its own public address: if PUBLIC_URL/healthz says ok "
        "on a phone, all is well."
    )
    remedy = cause.remedy + (elsewhere if cause.may_be_near else "")
    return level(name, f"PUBLIC_URL {cause.message}", remedy)


def _wrong(level: _Level, name: str, answer: _Answer, caller: _Caller) -> Finding:
    """Return what answers at the public address in place of this bot."""
    where = f"{caller.settings.host}:{caller.settings.port}"
    if answer.status in _NO_BOT_BEHIND:
        return level(
            name,
            f"what answers at PUBLIC_URL does not reach the bot: it says {answer.status}",
            f"Have the proxy there pass requests on to {where}.",
        )
    if 300 <= answer.status < 400:  # noqa: PLR2004 - redirects
        return level(
            name,
            f"PUBLIC_URL sends callers to another address ({answer.status})",
            "Set PUBLIC_URL to that address, with https:// and without a slash at its end.",
        )
    if name == _CALLBACKS and answer.status == HTTPStatus.OK and answer.body == b"ok":
        return level(
            name,
            "another bot answers at PUBLIC_URL, or one on another database",
            f"Have the proxy there pass requests on to {where}, or correct DATABASE_URL.",
        )
    program = f"{answer.server}, " if answer.server else ""
    return level(
        name,
        f"another program answers at PUBLIC_URL, not this bot ({program}{answer.status})",
        f"Correct PUBLIC_URL, or have the proxy there pass requests on to {where}.",
    )
