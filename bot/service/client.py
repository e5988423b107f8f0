"""The video service's client: create, read and list, by path, with three failures out.

The service's interface: POST creates and GET reads, ``x-api-key`` on both, JSON, 200 on success.
``bot.service.errors`` says what everything else means. The HTTP clients below it, and the bodies of
answers, are here too; a body is decompressed with a limit.
"""

import asyncio
import json
import logging
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from http import HTTPStatus
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Final, TypeVar
from urllib.parse import quote

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from bot.errors import OutsideError, Refused, Unavailable, Uncertain
from bot.masking import Mask
from bot.metrics import Metrics
from bot.model import Failure
from bot.outages import Outages
from bot.service.errors import (
    FAILURES,
    HTTP,
    KEY_NOT_ACCEPTED,
    TOO_MANY_CALLS,
    UNKNOWN_ID,
    from_answer,
    http_cause,
    translated,
)
from bot.service.gate import EVERYBODY, OUTAGE, AccountRefused, Call, Gate, Held
from bot.timings import Clock, Timings

CODINGS: Final = frozenset({"gzip", "x-gzip", "deflate"})
"""The values of Content-Encoding that zlib reads."""
GZIP_OR_ZLIB: Final = zlib.MAX_WBITS | 32
"""For ``zlib.decompressobj``: told apart by the header."""


# ── HTTP clients ──────────────────────────────────────────────────────────────────────────────────

_MAX_CONNECTIONS: Final = 64  # for reads, and again for creates
_MAX_BODY_BYTES: Final = 1024 * 1024


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
async def connect(proxy: str | None = None) -> AsyncIterator[Clients]:
    """Open clients that keep no cookies and follow no redirects.

    They call through ``proxy`` if there is one; apart from that they ignore the environment.
    """
    async with (
        _client(proxy, force_close=False) as reading,
        _client(proxy, force_close=True) as creating,
    ):
        yield Clients(reading, creating)


def _client(proxy: str | None, *, force_close: bool) -> httpx.AsyncClient:
    connector = aiohttp.TCPConnector(limit=_MAX_CONNECTIONS, force_close=force_close)
    client = http_client(connector, proxy, accept="application/json")
    client.event_hooks = {"response": [_drop_location]}
    return client


def http_client(
    connector: aiohttp.BaseConnector, proxy: str | None, *, accept: str
) -> httpx.AsyncClient:
    """Return a client that keeps no cookies, follows no redirects and ignores the environment.

    httpx's own pool looks at every waiting request whenever one is done; this transport does not.
    Processor time for a create and a read on loopback, 64 at once: 0.8 ms with this transport,
    2.8 to 3.1 ms with httpx's own (0.6 ms with aiohttp alone).
    """
    jar = aiohttp.DummyCookieJar()
    session = aiohttp.ClientSession(connector=connector, cookie_jar=jar, proxy=proxy)
    # Not used, as the session has its own, which trusts what the system trusts; without it, httpx
    # would spend 20 ms on reading certifi's.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return httpx.AsyncClient(
        transport=AiohttpTransport(client=session, verify=context),
        headers={"accept": accept, "accept-encoding": "identity"},
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        follow_redirects=False,
        timeout=None,  # noqa: S113 - the caller limits the whole
        trust_env=False,
    )


async def _drop_location(response: httpx.Response) -> None:
    """Keep httpx from building the next request of a redirect that it does not follow.

    It would raise ``InvalidURL`` for some addresses ("localhost:80/x"), as it does for one of ours
    that nothing was sent to.
    """
    response.headers.pop("location", None)


async def content_of(response: httpx.Response) -> bytes:
    """Return the body of an answer, decompressed: a gateway may compress what we ask for as it is.

    httpx would decompress a chunk whole, however large that becomes.

    Raises:
        Uncertain: it is longer than an answer can be, or broke off.
        zlib.error: it cannot be decompressed.
    """
    body = bytearray()
    is_compressed = response.headers.get("content-encoding", "").strip().lower() in CODINGS
    decompressor = zlib.decompressobj(GZIP_OR_ZLIB) if is_compressed else None
    async for chunk in response.aiter_raw():
        body += decompressor.decompress(chunk, _MAX_BODY_BYTES + 1) if decompressor else chunk
        if len(body) > _MAX_BODY_BYTES:
            raise Uncertain("The video service's answer is too long.")
    if decompressor is not None and not decompressor.eof:
        raise Uncertain("The video service's answer broke off.")
    return bytes(body)


# ── The service's client ──────────────────────────────────────────────────────────────────────────

_LOG: Final = logging.getLogger(__name__)
_T = TypeVar("_T")
_REMEDY: Final = "is VIDEO_API_URL right, and reachable from here?"
_REMEDIES: Final = {
    Failure.KEY_REJECTED: "is VIDEO_API_KEY right?",
    Failure.OUT_OF_CREDIT: "top up its account",
}
_CREATES_AT_REST: Final = 4
"""Creates at the same time after a rest or trouble: each may become a question to a person."""
_NEUTRAL: Final = ("/v2/videos", "is-anyone-there")
"""What is read to see whether the service answers: nothing has this id."""
_UNAUTHORIZED: Final = "401"
_SERVER_ERROR: Final = http_cause(HTTPStatus.INTERNAL_SERVER_ERROR)
_UNREADABLE: Final = Unavailable("The video service's answer couldn't be read.", cause="broken")
# Longer answers are read in a thread. Masking may take 3 ms for each 1,000 bytes of an answer that
# is made for that, and 0.02 ms for one that the interface describes.
_LONG_BYTES: Final = 4096
# Somebody else is to have the next try.
_OWN_PACE: Final = 1.5


class VideoService:
    """Creates and reads what the service makes.

    What the service would refuse, or cannot do now, is held back by a gate: one for creates, one
    for reads, one for lists. ``on_recovery`` is called when creates are no longer held back because
    of the key, the credit or an outage, and at the end of an outage, with what held jobs back.

    Attributes:
        outages: knows since when the service is down.
        in_doubt: set when ``resolve_doubt`` should be called.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str,
        *,
        mask: Mask,
        clients: Clients,
        clock: Clock,
        timings: Timings,
        on_recovery: Callable[[Collection[Failure]], object] = lambda _: None,
        newest_made: Callable[[], Awaitable[tuple[str, str] | None]] | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._metrics = metrics or Metrics()
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
        self._on_recovery = on_recovery
        self._newest_made = newest_made
        self.outages = Outages("the video service", clock, remedy=_REMEDY)
        self.in_doubt = asyncio.Event()
        self._creates = Gate(clock, timings, at_start=1, at_rest=_CREATES_AT_REST)
        self._reads = Gate(clock, timings)
        self._lists = Gate(clock, timings)
        self._confirming = asyncio.Lock()
        self._reading_long = asyncio.Lock()
        self._answers_neutral = False
        """Whether the neutral read was answered, other than by 403, since the start."""
        self._misleads = False
        """Whether the neutral read fails although creates work."""
        self._accepted_at: dict[str, datetime] = {}
        """When something was created last, by path, and when the key was accepted."""
        self._is_forbidden = False
        self._troubles: dict[str, list[tuple[datetime, Call]]] = {}
        """By path, creates that went wrong since the last one that did not."""

    async def create(
        self, call: Call, body: Mapping[str, str], read: Callable[[Any], _T] = lambda answer: answer
    ) -> _T:
        """POST ``body`` and return what ``read`` makes of the answer; only within ``admission``.

        Raises:
            Refused: it was not created, and would not be the next time.
            Unavailable: it was not created. ``Held`` says when to try again.
            Uncertain: it may have been created.
            ValueError: likewise; what ``read`` raises.
        """
        try:
            with self._watch(call):
                made = read(await self._call("POST", call.path, self._creates, call, dict(body)))
        except Refused as error:
            # Services check a request before they fail: it shows little, but costs nothing.
            self._creates.try_now(Failure.SERVICE_DOWN, call.path)
            failure = FAILURES.get(error.code)
            if failure is Failure.OUT_OF_CREDIT:
                wait = self._timings.recheck_credit
                raise self._refuse(failure, error, call.path, wait) from error
            if await self._is_about_key(error):
                raise self._refuse_key(error) from error
            raise
        self._note_made(call)
        return made

    async def read(self, path: str, remote_id: str, *, asked_for: bool = False) -> Any:  # noqa: ANN401 - any JSON
        """GET ``remote_id`` below ``path`` and return the JSON of the answer.

        One that was ``asked_for``, by a callback or a person, does not wait for the next try.

        Raises:
            Refused: the service does not know the id, or refuses our key.
            Unavailable: ask again later. A read changes nothing, so it is never uncertain.
        """
        try:
            return await self._get(path, remote_id, asked_for=asked_for)
        except Refused as error:
            # A 403 is about what is read.
            if error.code == _UNAUTHORIZED and not self.is_key_refused:
                with suppress(Unavailable):
                    if await self._is_about_key(error):
                        self._refuse_key(error)
            raise

    async def list_page(self, path: str, *, page: int, limit: int) -> Any:  # noqa: ANN401 - any JSON
        """GET a page of what is at ``path``, counted from 1, and return the JSON of the answer.

        It is in no contract: only where the operator says that the service can do it. The names of
        the parameters are those of such services
        (https://docs.tavus.io/api-reference/phoenix-replica-model/get-replicas).

        Raises:
            Refused: the service does not list, or refuses our key.
            Unavailable: ask again later.
        """
        query = {"limit": limit, "page": page}
        return await self._call_read(self._lists, Call(path), path, query=query)

    async def check(self) -> None:
        """Read something that does not exist, to see whether the service accepts our key.

        Raises:
            Refused: it refuses our key.
            Unavailable: it cannot be reached or does not work.
        """
        try:
            await self._get(*_NEUTRAL, asked_for=True, is_check=True)
        except Refused as error:
            if error.code in KEY_NOT_ACCEPTED:
                raise
        self._answers_neutral, self._misleads = True, False

    async def resolve_doubt(self) -> timedelta | None:
        """Read something harmless, and hold creates back while that does not work.

        Returns:
            When to read again; None if nothing is in doubt.
        """
        self.in_doubt.clear()
        try:
            await self.check()
        except Held:  # there are too many reads, which says nothing
            if self._creates.find(Failure.SERVICE_DOWN) is not None:
                return self._timings.recheck_down
            self._creates.resume()
            return self._timings.recheck_key if self.is_key_refused else None
        except Unavailable as error:
            if self._shows_outage(error):
                self._creates.resume()
                return self._timings.recheck_down
        except Refused as error:
            # Where reads were never answered otherwise, only a create shows that a key is accepted.
            if error.code == _UNAUTHORIZED or (self._answers_neutral and self.is_key_refused):
                self._refuse_key(error)
            elif not self._is_forbidden:
                self._is_forbidden = True
                _LOG.warning("the video service forbids reads: is VIDEO_API_KEY right?")
        self._end_outage(EVERYBODY)
        self._creates.resume()
        return self._timings.recheck_key if self.is_key_refused else None

    def _shows_outage(self, error: Unavailable) -> bool:
        """Hold all creates back for a harmless read that failed; return whether it shows something.

        Some services fail whatever unknown id is read. Where it never worked since the start, a
        create is tried now and then: where that works, the read shows nothing.
        """
        if self._misleads or (not self._answers_neutral and error.cause == _SERVER_ERROR):
            return False
        if self._answers_neutral:
            self._creates.hold(Failure.SERVICE_DOWN, error, self._timings.max_wait)
        elif self._creates.find(Failure.SERVICE_DOWN) is None:
            self._creates.hold(Failure.SERVICE_DOWN, error, self._timings.max_hold)
        self.outages.keep(EVERYBODY, error.cause)
        return True

    def _end_outage(self, whom: str) -> bool:
        """Let creates in again; return whether they were held back."""
        ended = self._creates.release(Failure.SERVICE_DOWN, whom) is not None
        self.outages.drop(whom)
        if ended:
            self._on_recovery(OUTAGE)
        return ended

    # ── Gates ─────────────────────────────────────────────────────────────────────────────────

    @asynccontextmanager
    async def admission(self, path: str, user: str = "", used: str = "") -> AsyncIterator[Call]:
        """Let the caller make one create call to ``path``; enter this before recording an attempt.

        Args:
            path: where to create.
            user: who asked for it.
            used: the id of the replica that is used, if one is.

        Raises:
            Held: no call may be made now.
        """
        call = Call(path, user, (f"user {user}", *([f"used {used}"] if used else [])))
        async with self._creates.admit(call):
            yield call

    def is_down(self, path: str) -> bool:
        """Return whether no create call to ``path`` is tried now because the service is down."""
        gate = self._creates
        return any(gate.is_shut(Failure.SERVICE_DOWN, whom) for whom in (EVERYBODY, path))

    def next_try(self, path: str) -> datetime | None:
        """Return when a create call is tried, where calls to ``path`` fail; None if they do not."""
        holds = (self._creates.find(Failure.SERVICE_DOWN, whom) for whom in (EVERYBODY, path))
        return max((hold.until for hold in holds if hold is not None), default=None)

    @property
    def is_key_refused(self) -> bool:
        """Whether the service refuses our key, as far as is known without asking it."""
        return self._creates.find(Failure.KEY_REJECTED) is not None

    @property
    def next_credit_try(self) -> datetime | None:
        """When the next create call finds out whether there is credit again.

        None if none was refused for lack of it since one was made.
        """
        return min((each.until for each in self._creates.all(Failure.OUT_OF_CREDIT)), default=None)

    @property
    def is_slowed_down(self) -> bool:
        """Whether it asked to wait before it creates more."""
        return self._creates.find(Failure.UNREACHABLE) is not None

    def try_again(self, path: str) -> None:
        """Let the next create call to ``path`` find out whether there is credit again."""
        self._creates.try_now(Failure.OUT_OF_CREDIT, path)

    async def _is_about_key(self, error: Refused) -> bool:
        """Return whether our key is refused, and not only one request.

        Some services answer 403 to a key that they do not accept, others to ids that they hide: the
        harmless read tells, if it was answered otherwise before, or the newest of what was made.

        Raises:
            Unavailable: it cannot be found out now.
        """
        if error.code not in KEY_NOT_ACCEPTED:
            return False
        async with self._confirming:
            if self.is_key_refused:
                return True
            try:
                await self.check()
            except Refused as refusal:
                if _UNAUTHORIZED in {refusal.code, error.code}:
                    return refusal.code == _UNAUTHORIZED
                return self._answers_neutral or await self._is_newest_forbidden()
            except Unavailable:
                if error.code == _UNAUTHORIZED:
                    raise
                return await self._is_newest_forbidden()
            return False

    async def _is_newest_forbidden(self) -> bool:
        newest = await self._newest_made() if self._newest_made is not None else None
        if newest is None:
            return False
        try:
            await self._get(*newest)
        except Refused as error:
            return error.code not in UNKNOWN_ID
        return False

    def _refuse_key(self, error: Refused) -> OutsideError:
        """Hold creates back until a read passes, of which the next comes before that ends."""
        self.in_doubt.set()
        return self._refuse(Failure.KEY_REJECTED, error, EVERYBODY, 2 * self._timings.recheck_key)

    def _refuse(self, failure: Failure, error: Refused, whom: str, wait: timedelta) -> OutsideError:
        """Hold creates back, and return what to raise: only the first one counts as refused."""
        known = self._creates.find(failure, whom)
        if failure is Failure.KEY_REJECTED and error.code != _UNAUTHORIZED:
            wait = self._timings.recheck_credit if not self._answers_neutral else wait
        held = self._creates.hold(failure, error, wait, whom=whom)
        if known is not None:
            return held
        remedy = _REMEDIES[failure]
        _LOG.error(
            "the video service refuses new work", extra={"code": error.code, "remedy": remedy}
        )
        return AccountRefused(error, held, accepted_at=self._accepted_at.get(whom))

    def _accept(self, failure: Failure, whom: str) -> None:
        """Note that a call was accepted which a hold would have covered."""
        self._accepted_at[whom] = self._clock.now()
        if self._creates.release(failure, whom) is not None:
            _LOG.info("the video service accepts new work again")
            self._on_recovery({failure})

    # ── Outages ───────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def _watch(self, call: Call) -> Iterator[None]:
        """Note a create call that goes wrong, also while it has no answer for too long."""
        hanging = Unavailable("The video service didn't answer in time.", cause="timeout")
        watch = asyncio.get_running_loop().call_later(
            self._timings.hang_after.total_seconds(), self._note_trouble, call, hanging
        )
        try:
            yield
        except (OutsideError, ValueError) as error:
            # An answer that it was not done is one; a service that was not reached gave none.
            is_answer = isinstance(error, Refused | Held) or (
                isinstance(error, Unavailable) and error.cause.startswith(HTTP)
            )
            if not is_answer:
                self._note_trouble(call, error if isinstance(error, OutsideError) else _UNREADABLE)
            raise
        finally:
            watch.cancel()

    def _note_trouble(self, call: Call, error: OutsideError) -> None:
        """Hold back the creates of the call's person and replica; all, if others fail too.

        Nobody else is let in before a harmless read has shown that the service works.
        """
        if call.failed:
            return
        call.failed = True
        gate, now, path = self._creates, self._clock.now(), call.path
        gate.pause()
        self.in_doubt.set()
        within, before = self._timings.outage_within, self._troubles.get(path, [])
        recent = [(at, each) for at, each in before if abs(now - at) <= within]
        holds = [gate.find(Failure.SERVICE_TROUBLE, whom) for whom in call.own]
        # Who had trouble before, and has it still, shows nothing about others.
        is_news = not any(hold and hold.tried_by is call for hold in holds)
        # Of different people and, if any, with different replicas.
        is_outage = is_news and any(not set(call.own) & set(each.own) for _, each in recent)
        if is_outage or gate.find(Failure.SERVICE_DOWN, path):
            gate.hold(Failure.SERVICE_DOWN, error, whom=path, call=call)
            self.outages.keep(path, error.cause)
        if (down := gate.find(Failure.SERVICE_DOWN)) is not None:
            longer = min(2 * down.wait, self._timings.max_wait)
            gate.hold(Failure.SERVICE_DOWN, error, longer)
        if is_news:
            self._troubles[path] = [*recent, (now, call)]
        for whom in call.own:
            gate.hold(Failure.SERVICE_TROUBLE, error, whom=whom, call=call, pace=_OWN_PACE)
        gate.leave(call)

    def _note_made(self, call: Call) -> None:
        """Note that something was created: the path is open, to this person with this replica."""
        path = call.path
        self._troubles.pop(path, None)
        for whom in call.own:
            self._creates.release(Failure.SERVICE_TROUBLE, whom)
        self._accept(Failure.OUT_OF_CREDIT, path)
        self._accept(Failure.KEY_REJECTED, EVERYBODY)
        if not self._answers_neutral:
            self._misleads |= self._end_outage(EVERYBODY)
        self._end_outage(path)

    # ── Calls ─────────────────────────────────────────────────────────────────────────────────

    async def _get(
        self,
        path: str,
        remote_id: str,
        *,
        asked_for: bool = False,
        is_check: bool = False,
    ) -> Any:  # noqa: ANN401
        if remote_id in {".", ".."}:
            raise Refused("Nothing has this ID.", code="404")
        path = f"{path}/{quote(remote_id, safe='')}"
        call = Call(path, asked_for=asked_for)
        try:
            answer = await self._call_read(self._reads, call, path, is_check=is_check)
        except Refused as error:
            if error.code not in KEY_NOT_ACCEPTED:
                self._accept(Failure.KEY_REJECTED, EVERYBODY)
            raise
        self._accept(Failure.KEY_REJECTED, EVERYBODY)
        return answer

    async def _call_read(
        self,
        gate: Gate,
        call: Call,
        path: str,
        *,
        query: Mapping[str, int] | None = None,
        is_check: bool = False,
    ) -> Any:  # noqa: ANN401
        """Make a call that changes nothing, so that it is never uncertain."""
        async with gate.admit(call):
            try:
                return await self._call("GET", path, gate, call, query=query, is_check=is_check)
            except Uncertain as error:
                raise Unavailable(error.reason, cause=error.cause) from error

    async def _call(
        self,
        method: str,
        path: str,
        gate: Gate,
        call: Call,
        body: dict[str, str] | None = None,
        *,
        query: Mapping[str, int] | None = None,
        is_check: bool = False,
    ) -> Any:  # noqa: ANN401
        """Make one call, and note what it shows about the rate limit and about outages."""
        limit = self._timings.call_timeout
        if is_check:
            limit = min(limit, self._timings.hang_after)
        try:
            # Of a read, the last part of the path is an id.
            route = path if body or query else f"{path.rpartition('/')[0]}/{{id}}"
            with self._metrics.call("video_service", f"{method} {route}"):
                answer = await self._send(method, path, body, query, limit)
        except Refused:
            self._note_answer(gate)
            raise
        except OutsideError as error:
            _LOG.debug("a call failed", extra={"method": method, "cause": error.cause})
            if isinstance(error, Unavailable) and error.cause == TOO_MANY_CALLS:
                raise self._limit(gate, call, error) from error
            # One that cannot be read, however often, is no outage: a harmless read finds out. A
            # list that does not work says nothing about the rest; creates are judged elsewhere.
            if gate is self._reads and not is_check:
                self.in_doubt.set()
            raise
        self._note_answer(gate)
        return answer

    def _note_answer(self, gate: Gate) -> None:
        gate.passed()
        self.outages.note_answer()

    def _limit(self, gate: Gate, call: Call, error: Unavailable) -> Held:
        wait = error.retry_after
        if not gate.is_limited and gate.find(Failure.UNREACHABLE) is None:
            extra = {"asked_s": None if wait is None else round(wait.total_seconds())}
            _LOG.warning("the video service limits calls", extra=extra)
        # A read costs nothing: a long wait is not taken at its word.
        if wait is not None and gate is not self._creates:
            wait = min(wait, self._timings.max_hold)
        return gate.hold(Failure.UNREACHABLE, error, wait, call=call)

    async def _send(
        self,
        method: str,
        path: str,
        body: dict[str, str] | None,
        query: Mapping[str, int] | None,
        limit: timedelta,
    ) -> Any:  # noqa: ANN401
        client = self._clients.reading if body is None else self._clients.creating
        with translated():
            async with (
                asyncio.timeout(limit.total_seconds()),
                client.stream(
                    method,
                    self._base_url + path,
                    headers={"x-api-key": self._api_key},
                    params=query,
                    json=body,
                    timeout=self._timeout,
                ) as response,
            ):
                if response.is_success:
                    # Some services quote the key in what they answer.
                    return await self._read_answer(
                        lambda content: self._mask.json(json.loads(content)),
                        await content_of(response),
                    )
                content = b""
                with suppress(Uncertain), translated():  # the status says enough
                    content = await content_of(response)
                read_error = partial(from_answer, response, mask=self._mask)
                raise await self._read_answer(read_error, content)

    async def _read_answer(self, read: Callable[[bytes], _T], content: bytes) -> _T:
        """Read an answer; a long one in a thread, one at a time, so that nothing waits for it."""
        if len(content) <= _LONG_BYTES:
            return read(content)
        async with self._reading_long:
            return await asyncio.to_thread(read, content)
