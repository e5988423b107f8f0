"""The video service's client: create and read, by path, with three failures out.

The service's interface: POST creates and GET reads, ``x-api-key`` on both, JSON, 200 on success.
``service_errors`` says what everything else means.
"""

import asyncio
import json
import logging
import ssl
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from bot.clock import Clock
from bot.errors import OutsideError, Refused, Unavailable, Uncertain
from bot.masking import Mask
from bot.model import Failure
from bot.service_errors import FAILURES, KEY_NOT_ACCEPTED, from_answer, translated
from bot.timings import ServiceTimings

_LOG: Final = logging.getLogger(__name__)
_MAX_BODY_BYTES: Final = 1024 * 1024
_COMPRESSED: Final = frozenset({"gzip", "x-gzip", "deflate"})
_TOO_LONG: Final = "The video service's answer is too long."
_MAX_CONNECTIONS: Final = 64  # for reads, and again for creates


class VideoService:
    """Creates and reads what the service makes.

    A key or an account that was refused stops new create calls: ``admission`` raises
    ``Refused`` until a cheap read passes (401) or, after a while, one create call succeeds (402).
    """

    def __init__(
        self,
        base_url: str,
        api_key: str,
        *,
        mask: Mask,
        clients: "Clients",
        clock: Clock,
        timings: ServiceTimings,
    ) -> None:
        self._base_url = base_url
        self._api_key = api_key
        self._mask = mask
        # For the transport, "pool" covers waiting for a connection and opening one: without one by
        # half of the time, nothing was sent. It has to end before the time for the whole call,
        # which _call limits. Nothing else has a limit: one for each read would not stop a body
        # that arrives byte by byte.
        connect_timeout = timings.call_timeout.total_seconds() / 2
        self._timeout = httpx.Timeout(None, pool=connect_timeout)
        self._clients = clients
        self._clock = clock
        self._timings = timings
        self._refused: Refused | None = None
        self._recheck_at = clock.now()
        # Held by the one that finds out whether a refusal still holds: the others wait for it.
        self._checking = asyncio.Lock()

    async def create(self, path: str, body: Mapping[str, str]) -> Any:  # noqa: ANN401 - any JSON
        """POST ``body`` to ``path`` and return the JSON of the answer.

        Raises:
            Refused: it was not created, and would not be the next time.
            Unavailable: it was not created.
            Uncertain: it may have been created.
        """
        try:
            answer = await self._call("POST", path, dict(body))
        except Refused as error:
            self._stop_creates(error)
            raise
        self._allow_creates()
        return answer

    async def read(self, path: str, remote_id: str) -> Any:  # noqa: ANN401 - any JSON
        """GET ``remote_id`` below ``path`` and return the JSON of the answer.

        Raises:
            Refused: the service does not know the id, or refuses our key.
            Unavailable: ask again later. A read changes nothing, so it is never uncertain.
        """
        if remote_id in {".", ".."}:
            raise Refused("There is nothing with this id.", code="404")
        try:
            answer = await self._call("GET", f"{path}/{quote(remote_id, safe='')}")
        except Uncertain as error:
            raise Unavailable(error.reason) from error
        except Refused as error:
            if FAILURES.get(error.code) is Failure.KEY_REJECTED:
                self._stop_creates(error)
            elif error.code not in KEY_NOT_ACCEPTED:
                self._accept_key()
            raise
        self._accept_key()
        return answer

    async def check(self) -> None:
        """Read something that does not exist, to see whether the service accepts our key.

        Raises:
            Refused: it refuses our key.
            Unavailable: it cannot be reached or does not work.
        """
        try:
            await self.read("/v2/videos", "is-anyone-there")
        except Refused as error:
            if error.code in KEY_NOT_ACCEPTED:
                raise

    # ── Refused keys and accounts ─────────────────────────────────────────────────────────────

    async def refusal(self) -> Refused | None:
        """Return why a create call would be refused now; None if one may be made.

        It may read from the service, or wait for another caller who does or tries a create call:
        it can take as long as a call, and the caller sets a deadline.
        """
        if self._refused is None:
            return None
        async with self._checking:
            return await self._checked_refusal()

    async def _checked_refusal(self) -> Refused | None:
        if self._refused is None or not self._recheck_due():
            return self._refused
        if FAILURES[self._refused.code] is Failure.OUT_OF_CREDIT:
            return None
        self._recheck_at = self._clock.now() + self._timings.recheck_key
        with suppress(OutsideError):
            await self.check()
        return self._refused

    @property
    def known_refusal(self) -> Refused | None:
        """Why create calls are refused, as far as is known without asking the service."""
        return self._refused

    @asynccontextmanager
    async def admission(self) -> AsyncIterator[None]:
        """Let the caller make one create call; enter this before recording an attempt.

        Without credit, one caller is admitted after a while, to see whether there is credit again.
        The others wait until its call has ended. A call that certainly did nothing shows nothing:
        then the next caller is admitted.

        Raises:
            Refused: the key or the account is refused, and no call was made.
        """
        if self.known_refusal is None:
            yield
            return
        async with self._checking:
            if (refusal := await self._checked_refusal()) is not None:
                raise refusal
            if self._refused is not None:
                try:
                    yield
                except Uncertain:
                    self._recheck_at = self._clock.now() + self._timings.recheck_credit
                    raise
                return
        yield

    def _recheck_due(self) -> bool:
        wait = self._recheck_at - self._clock.now()
        # No refusal lasts longer because the clock was set back.
        return not timedelta(0) < wait <= self._timings.recheck_credit

    def _stop_creates(self, error: Refused) -> None:
        failure = FAILURES.get(error.code)
        if failure is None:
            return
        key = failure is Failure.KEY_REJECTED
        wait = self._timings.recheck_key if key else self._timings.recheck_credit
        self._recheck_at = self._clock.now() + wait
        if self._refused is None:
            _LOG.error("the video service refuses new work", extra={"code": error.code})
        self._refused = error

    def _accept_key(self) -> None:
        """Note that the service accepted our key."""
        if self._refused and FAILURES[self._refused.code] is Failure.KEY_REJECTED:
            self._allow_creates()

    def _allow_creates(self) -> None:
        if self._refused is not None:
            _LOG.info("the video service accepts new work again")
        self._refused = None

    # ── Calls ─────────────────────────────────────────────────────────────────────────────────

    async def _call(self, method: str, path: str, body: dict[str, str] | None = None) -> Any:  # noqa: ANN401
        client = self._clients.reading if body is None else self._clients.creating
        with translated():
            async with (
                asyncio.timeout(self._timings.call_timeout.total_seconds()),
                client.stream(
                    method,
                    self._base_url + path,
                    headers={"x-api-key": self._api_key},
                    json=body,
                    timeout=self._timeout,
                ) as response,
            ):
                if response.is_success:
                    # Some services quote the key in what they answer.
                    return self._mask.json(json.loads(await _content(response)))
                content = b""
                with suppress(Uncertain), translated():  # the status says enough
                    content = await _content(response)
                raise from_answer(response, content, mask=self._mask, now=self._clock.now())


async def _content(response: httpx.Response) -> bytes:
    """Return the body of an answer, decompressed.

    Raises:
        Uncertain: it is longer than an answer can be, or cannot be decompressed.
    """
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > _MAX_BODY_BYTES:
            raise Uncertain(_TOO_LONG)
    if response.headers.get("content-encoding", "").strip().lower() in _COMPRESSED:
        return _decompressed(body)
    return bytes(body)


def _decompressed(body: bytes | bytearray) -> bytes:
    """Decompress a body up to the limit: a gateway may compress although we ask for identity.

    httpx would decompress a chunk whole, and a few bytes can become a thousand times as many.
    """
    decompressor = zlib.decompressobj(zlib.MAX_WBITS | 32)  # detects gzip and zlib
    try:
        content = decompressor.decompress(body, _MAX_BODY_BYTES + 1)
    except zlib.error as error:
        raise Uncertain("The video service's answer could not be read.") from error
    if len(content) > _MAX_BODY_BYTES:
        raise Uncertain(_TOO_LONG)
    if not decompressor.eof:
        raise Uncertain("The video service's answer broke off.")
    return content


@dataclass(frozen=True, slots=True)
class Clients:
    """The HTTP clients for reads and for creates.

    A read may be sent twice: aiohttp repeats a GET once, if its connection breaks before an
    answer. It never repeats a POST, and a create call gets a connection of its own: a kept one
    that has gone stale fails in a way that looks like a lost answer.
    """

    reading: httpx.AsyncClient
    creating: httpx.AsyncClient


@asynccontextmanager
async def connect() -> AsyncIterator[Clients]:
    """Open clients that keep no cookies, follow no redirects and ignore the environment."""
    async with _client(force_close=False) as reading, _client(force_close=True) as creating:
        yield Clients(reading, creating)


def _client(*, force_close: bool) -> httpx.AsyncClient:
    # httpx's own pool looks at every waiting request whenever one is done; this transport does not.
    # Processor time for a create and a read on loopback, 64 at once: 0.8 ms with this transport,
    # 2.8 to 3.1 ms with httpx's own (0.6 ms with aiohttp alone).
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=_MAX_CONNECTIONS, force_close=force_close),
        cookie_jar=aiohttp.DummyCookieJar(),
    )
    # Not used, as the session has its own, which trusts what the system trusts; without it, httpx
    # would spend 20 ms on reading certifi's.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return httpx.AsyncClient(
        transport=AiohttpTransport(client=session, verify=context),
        headers={"accept": "application/json", "accept-encoding": "identity"},
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        follow_redirects=False,
        event_hooks={"response": [_drop_location]},
        trust_env=False,
    )


async def _drop_location(response: httpx.Response) -> None:
    """Keep httpx from building the next request of a redirect that it does not follow.

    It would raise ``InvalidURL`` for some addresses ("localhost:80/x"), as it does for one of ours
    that nothing was sent to.
    """
    response.headers.pop("location", None)
