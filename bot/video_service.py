"""The video service's client: create and read, by path, with three failures out.

The service's interface: POST creates and GET reads, ``x-api-key`` on both, JSON, 200 on success.
What its errors look like is not laid down, so anything else is sorted by what it may have cost.
"""

import asyncio
import json
import logging
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import aiohttp

from bot.clock import Clock
from bot.errors import OutsideError, Refused, Unavailable, Uncertain
from bot.links import without_keys
from bot.model import Failure
from bot.timings import ServiceTimings

_LOG: Final = logging.getLogger(__name__)
_MAX_BODY: Final = 1024 * 1024
_MAX_REASON: Final = 500
_CONNECTIONS: Final = 64
_LONGEST_WAIT: Final = timedelta(days=1)
_PACKED: Final = frozenset({"gzip", "x-gzip", "deflate"})
_TOO_LONG: Final = "The video service's answer is too long to be one."


class VideoService:
    """Creates and reads what the service makes.

    A key or an account that was refused stops new create calls: ``admit_create`` raises
    ``Refused`` until a cheap read passes (401) or, after a while, one create call succeeds (402).
    """

    def __init__(
        self,
        base_url: str,
        api_key: str,
        *,
        clients: "Clients",
        clock: Clock,
        timings: ServiceTimings,
    ) -> None:
        self._base_url = base_url
        self._headers = {
            "x-api-key": api_key,
            "accept": "application/json",
            "accept-encoding": "gzip",
        }
        # Whoever has no connection by half of the time, from the pool or a new one, has sent
        # nothing: that can be told only before the time for the whole call is up, which _call sees
        # to. Nothing else has a limit: none per read would hold back a body that drips.
        self._limits = aiohttp.ClientTimeout(connect=timings.call_timeout.total_seconds() / 2)
        self._clients = clients
        self._clock = clock
        self._timings = timings
        self._closed: Refused | None = None
        self._recheck_at = clock.now()

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
            self._close_on(error)
            raise
        self._open()
        return answer

    async def read(self, path: str, remote_id: str) -> Any:  # noqa: ANN401 - any JSON
        """GET ``remote_id`` below ``path`` and return the JSON of the answer.

        Raises:
            Refused: the service does not know it, or does not know us.
            Unavailable: ask again later. A read changes nothing, so it is never uncertain.
        """
        if remote_id in {".", ".."}:
            raise Refused("There is nothing with this id.", code="404")
        try:
            answer = await self._call("GET", f"{path}/{quote(remote_id, safe='')}")
        except Uncertain as error:
            raise Unavailable(error.reason) from error
        except Refused as error:
            if _failure_of(error) is Failure.KEY_REJECTED:
                self._close_on(error)
            else:
                self._know_us()
            raise
        self._know_us()
        return answer

    async def refusal(self) -> Refused | None:
        """Return why a create call would be refused now; None where one may be made.

        It may read from the service, so it can take as long as a call: the caller sets a deadline.
        """
        if self._closed is None or self._trial_due():
            return None
        if _failure_of(self._closed) is Failure.KEY_REJECTED and self._recheck_due():
            self._recheck_at = self._clock.now() + self._timings.recheck_key
            with suppress(OutsideError):
                await self.check()
        return self._closed

    @property
    def known_refusal(self) -> Refused | None:
        """Why create calls are refused, as far as is known without asking the service."""
        return self._closed

    async def admit_create(self) -> None:
        """Let the caller make one create call; call this before recording an attempt.

        Without credit, one caller is admitted after a while, to see whether there is credit again.

        Raises:
            Refused: the key or the account is refused, and no call was made.
        """
        if (refusal := await self.refusal()) is not None:
            raise refusal
        if self._closed is not None:
            # The trial call: everybody else is refused until it has succeeded.
            self._recheck_at = self._clock.now() + self._timings.recheck_credit

    async def check(self) -> None:
        """Read something that is not there, to see whether the service knows us.

        Raises:
            Refused: it turns our key away.
            Unavailable: it cannot be reached or does not work.
        """
        try:
            await self.read("/v2/videos", "is-anyone-there")
        except Refused as error:
            if error.code in {"401", "403"}:
                raise

    def _trial_due(self) -> bool:
        out_of_credit = self._closed and _failure_of(self._closed) is Failure.OUT_OF_CREDIT
        return bool(out_of_credit) and self._recheck_due()

    def _recheck_due(self) -> bool:
        wait = self._recheck_at - self._clock.now()
        # No refusal lasts longer because the clock was set back.
        return not timedelta(0) < wait <= self._timings.recheck_credit

    def _close_on(self, error: Refused) -> None:
        failure = _failure_of(error)
        if failure is None:
            return
        key = failure is Failure.KEY_REJECTED
        wait = self._timings.recheck_key if key else self._timings.recheck_credit
        self._recheck_at = self._clock.now() + wait
        if self._closed is None:
            _LOG.error("the video service refuses new work", extra={"code": error.code})
        self._closed = error

    def _know_us(self) -> None:
        """Note that the service let our key pass."""
        if self._closed is not None and _failure_of(self._closed) is Failure.KEY_REJECTED:
            self._open()

    def _open(self) -> None:
        if self._closed is not None:
            _LOG.info("the video service takes new work again")
        self._closed = None

    async def _call(self, method: str, path: str, body: dict[str, str] | None = None) -> Any:  # noqa: ANN401
        try:
            async with asyncio.timeout(self._timings.call_timeout.total_seconds()):
                return await self._exchange(method, path, body)
        except TimeoutError as error:
            raise Uncertain("The video service did not answer in time.") from error

    async def _exchange(self, method: str, path: str, body: dict[str, str] | None) -> Any:  # noqa: ANN401
        client = self._clients.reading if body is None else self._clients.creating
        with _translated():
            async with client.request(
                method,
                self._base_url + path,
                headers=self._headers,
                json=body,
                allow_redirects=False,
                timeout=self._limits,
            ) as response:
                if HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES:
                    return _json(await _content(response))
                content = b""
                with suppress(Uncertain):  # its status says enough
                    content = await _content(response)
                raise self._failure(response, content)

    def _failure(self, response: aiohttp.ClientResponse, body: bytes) -> OutsideError:
        status = response.status
        # Some services quote the key that they turn away, and what they were sent.
        shown = body.replace(self._headers["x-api-key"].encode(), b"***")
        said = without_keys(_reason(shown))
        reason = said or f"The video service answered {status} without saying why."
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            wait = _retry_after(response.headers.get("retry-after", ""), self._clock.now())
            return Unavailable(reason, retry_after=wait)
        if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
            return Refused(reason, code=str(status))
        return Uncertain(reason)


def _failure_of(error: Refused) -> Failure | None:
    """Return what a refusal says of our account, if it is about that."""
    return FAILURES.get(error.code)


UNKNOWN_ID: Final = frozenset({"400", "404", "410"})
"""The HTTP statuses of a read that say that there is nothing with its id: 400 was seen for that."""
FAILURES: Final = {"401": Failure.KEY_REJECTED, "402": Failure.OUT_OF_CREDIT}
"""The HTTP statuses that say that no create call will be taken, whatever it asks for."""


@dataclass(frozen=True, slots=True)
class Clients:
    """The HTTP clients for both sorts of calls.

    A read may be sent twice: aiohttp repeats a GET by itself, once, where its connection breaks
    before an answer. It never repeats a POST, and a create call gets a connection of its own: a
    kept one that has gone stale fails in a way that cannot be told from a lost answer.
    """

    reading: aiohttp.ClientSession
    creating: aiohttp.ClientSession


@asynccontextmanager
async def connect() -> AsyncIterator[Clients]:
    """Open clients that keep no cookies and read no settings from the environment."""
    async with (
        _client(aiohttp.TCPConnector(limit=_CONNECTIONS)) as reading,
        _client(aiohttp.TCPConnector(limit=_CONNECTIONS, force_close=True)) as creating,
    ):
        yield Clients(reading, creating)


def _client(connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        # An answer is unpacked here, and only as far as one may go.
        auto_decompress=False,
        trust_env=False,
    )


@contextmanager
def _translated() -> Iterator[None]:
    """Turn what aiohttp and the socket raise into our failures.

    Only ``ClientConnectorError`` (name not found, refused, TLS) and ``ConnectionTimeoutError`` say
    that nothing was sent.
    """
    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        raise Unavailable("The video service cannot be reached.") from error
    except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, OSError) as error:
        raise Uncertain("The connection to the video service broke.") from error
    except (aiohttp.ClientError, ValueError) as error:
        raise Uncertain("The video service's answer could not be read.") from error


async def _content(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    with _translated():
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > _MAX_BODY:
                raise Uncertain(_TOO_LONG)
    if response.headers.get("content-encoding", "").strip().lower() in _PACKED:
        return _unpacked(body)
    return bytes(body)


def _unpacked(body: bytes | bytearray) -> bytes:
    """Unpack an answer, and no more of it than one may have: little can be a lot, packed."""
    unpacking = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        content = unpacking.decompress(body, _MAX_BODY + 1)
    except zlib.error as error:
        raise Uncertain("The video service's answer could not be read.") from error
    if len(content) > _MAX_BODY:
        raise Uncertain(_TOO_LONG)
    if not unpacking.eof:
        raise Uncertain("The video service's answer broke off.")
    return content


def _json(body: bytes) -> Any:  # noqa: ANN401 - any JSON
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Uncertain("The video service's answer could not be read.") from error


def _reason(body: bytes) -> str:
    """Return what an error's body says: its ``error``, its ``message``, or itself if it is text."""
    text = body.decode(errors="replace").strip()
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return "" if text.startswith("<") else _cut(text)
    if isinstance(answer, dict):
        for name in ("error", "message"):
            if isinstance(said := answer.get(name), str) and said.strip():
                return _cut(said)
        return ""
    return _cut(answer) if isinstance(answer, str) else ""


def _cut(text: str) -> str:
    # Halves of characters, left over where somebody cut a text, can be neither stored nor sent.
    words = " ".join(text.encode(errors="replace").decode().split())
    return words if len(words) <= _MAX_REASON else words[: _MAX_REASON - 1] + "…"


def _retry_after(value: str, now: datetime) -> timedelta | None:
    """Return the wait that a ``Retry-After`` header asks for: seconds or a date (RFC 9110)."""
    try:
        wait = timedelta(seconds=int(value))
    except OverflowError:
        wait = _LONGEST_WAIT
    except ValueError:
        try:
            wait = parsedate_to_datetime(value) - now
        except (ValueError, TypeError, OverflowError):
            return None
    return min(max(wait, timedelta(0)), _LONGEST_WAIT)
