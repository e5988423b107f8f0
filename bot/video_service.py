"""The video service's client: create, read and list, by path, with three failures out.

The service's interface: POST creates and GET reads, ``x-api-key`` on both, JSON, 200 on success.
``service_errors`` says what everything else means.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

import httpx

from bot.clock import Clock
from bot.errors import OutsideError, Refused, Unavailable, Uncertain
from bot.masking import Mask
from bot.metrics import Metrics
from bot.model import Failure
from bot.outages import Outages
from bot.service_clients import Clients, content_of
from bot.service_errors import (
    FAILURES,
    KEY_NOT_ACCEPTED,
    TOO_MANY_CALLS,
    from_answer,
    translated,
)
from bot.service_gate import AccountRefused, Gate, Held, RateGate
from bot.timings import Timings

_LOG: Final = logging.getLogger(__name__)
_REMEDY: Final = "is VIDEO_API_URL right, and reachable from here?"
_FIRST_CREATES: Final = 4  # at the same time, before any shows that the service takes more


class VideoService:
    """Creates and reads what the service makes.

    What the service would refuse is held back, each by a gate of its own: calls after a rate limit,
    creates and reads apart; all creates after our key was refused; the creates of one path after
    the account's credit for them was used up. ``on_recovery`` is called when a gate that was closed
    for the key or the credit opens, and at the end of an outage.
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
        on_recovery: Callable[[], None] = lambda: None,
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
        self.outages = Outages("the video service", clock, on_recovery, _REMEDY)
        self._creates = RateGate(clock, timings, first_calls=_FIRST_CREATES)
        self._reads = RateGate(clock, timings)
        self._key = Gate(Failure.KEY_REJECTED, clock, timings)
        self._credits: dict[str, Gate] = {}
        self._confirming = asyncio.Lock()

    async def create(self, path: str, body: Mapping[str, str]) -> Any:  # noqa: ANN401 - any JSON
        """POST ``body`` to ``path`` and return the JSON of the answer; only within ``admission``.

        Raises:
            Refused: it was not created, and would not be the next time.
            Unavailable: it was not created. ``Held`` says when to try again.
            Uncertain: it may have been created.
        """
        credit = self._credit(path)
        try:
            answer = await self._call("POST", path, dict(body))
        except Uncertain as error:
            if credit.refusal is not None:
                credit.close(error, self._timings.recheck_credit)
            raise
        except Refused as error:
            failure = FAILURES.get(error.code)
            if failure is Failure.OUT_OF_CREDIT:
                raise self._close(credit, error, self._timings.recheck_credit) from error
            if failure is Failure.KEY_REJECTED and await self._confirmed():
                raise self._close(self._key, error, self._timings.recheck_key) from error
            raise
        self._open(credit)
        self._open(self._key)
        return answer

    async def read(self, path: str, remote_id: str) -> Any:  # noqa: ANN401 - any JSON
        """GET ``remote_id`` below ``path`` and return the JSON of the answer.

        Raises:
            Refused: the service does not know the id, or refuses our key.
            Unavailable: ask again later. A read changes nothing, so it is never uncertain.
        """
        try:
            return await self._get(path, remote_id)
        except Refused as error:
            if FAILURES.get(error.code) is Failure.KEY_REJECTED and self._key.refusal is None:
                with suppress(Unavailable):
                    if await self._confirmed():
                        self._close(self._key, error, self._timings.recheck_key)
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
        async with self._reads.admit():
            try:
                return await self._call("GET", path, query={"limit": limit, "page": page})
            except Uncertain as error:
                raise Unavailable(error.reason, cause=error.cause) from error

    async def check(self) -> None:
        """Read something that does not exist, to see whether the service accepts our key.

        Raises:
            Refused: it refuses our key.
            Unavailable: it cannot be reached or does not work.
        """
        try:
            await self._get("/v2/videos", "is-anyone-there")
        except Refused as error:
            if error.code in KEY_NOT_ACCEPTED:
                raise

    async def verify(self) -> None:
        """Check as ``check`` does, and hold create calls back if our key is refused.

        Raises:
            Refused, Unavailable: as ``check`` does.
        """
        if self._key.refusal is not None:
            await self._check_key()
            return
        try:
            await self.check()
        except Refused as error:
            if FAILURES.get(error.code) is Failure.KEY_REJECTED:
                raise self._close(self._key, error, self._timings.recheck_key) from error
            raise

    # ── Gates ─────────────────────────────────────────────────────────────────────────────────

    @asynccontextmanager
    async def admission(self, path: str) -> AsyncIterator[None]:
        """Let the caller make one create call to ``path``; enter this before recording an attempt.

        Raises:
            Held: no call may be made now.
        """
        await self._check_key()
        async with self._credit(path).admit(), self._creates.admit():
            yield

    async def key_refusal(self) -> Refused | None:
        """Return what the service says if it refuses our key; None if it accepts it.

        It may read from the service, or wait for another caller who does.
        """
        with suppress(Unavailable):
            await self._check_key()
        return self.known_key_refusal

    @property
    def known_key_refusal(self) -> Refused | None:
        """What the service said when it refused our key, as far as is known without asking it."""
        refusal = self._key.refusal
        return refusal if isinstance(refusal, Refused) else None

    @property
    def is_out_of_credit(self) -> bool:
        """Whether it refused to create something for lack of credit, and has created none since."""
        return any(gate.refusal is not None for gate in self._credits.values())

    @property
    def next_credit_try(self) -> datetime | None:
        """When the next create call finds out whether there is credit again; None if there is."""
        return min((at for gate in self._credits.values() if (at := gate.next_try)), default=None)

    @property
    def is_slowed_down(self) -> bool:
        """Whether it asked to wait before it creates more."""
        return self._creates.refusal is not None

    def try_again(self, path: str) -> None:
        """Let the next create call to ``path`` find out whether there is credit again."""
        self._credit(path).try_now()

    def _credit(self, path: str) -> Gate:
        if path not in self._credits:
            self._credits[path] = Gate(Failure.OUT_OF_CREDIT, self._clock, self._timings)
        return self._credits[path]

    async def _check_key(self) -> None:
        """Find out whether the service accepts our key again, if it is time to.

        Raises:
            Held: it refuses it.
        """
        async with self._key.admit():
            refusal = self._key.refusal
            if refusal is None:
                return
            held: Held | None = None
            try:
                with suppress(OutsideError):
                    await self.check()
            finally:  # also where the caller has run out of time
                if self._key.refusal is not None:
                    held = self._key.close(refusal, self._timings.recheck_key)
            if held is not None:
                raise held

    async def _confirmed(self) -> bool:
        """Return whether our key is refused, and not only one request.

        Raises:
            Unavailable: it cannot be found out now.
        """
        async with self._confirming:
            if self._key.refusal is not None:
                return True
            try:
                await self.check()
            except Refused as error:
                return FAILURES.get(error.code) is Failure.KEY_REJECTED
            return False

    def _close(self, gate: Gate, error: Refused, wait: timedelta) -> OutsideError:
        """Close a gate, and return what to raise: only the first one counts as refused."""
        if gate.refusal is not None:
            return gate.close(error, wait)
        remedy = "is VIDEO_API_KEY right?" if gate is self._key else "top up its account"
        _LOG.error(
            "the video service refuses new work", extra={"code": error.code, "remedy": remedy}
        )
        return AccountRefused(error, gate.close(error, wait), accepted_at=gate.passed_at)

    def _open(self, gate: Gate) -> None:
        if gate.passed():
            _LOG.info("the video service accepts new work again")
            self._on_recovery()

    async def _get(self, path: str, remote_id: str) -> Any:  # noqa: ANN401
        if remote_id in {".", ".."}:
            raise Refused("There is nothing with this id.", code="404")
        path = f"{path}/{quote(remote_id, safe='')}"
        async with self._reads.admit():
            try:
                answer = await self._call("GET", path)
            except Uncertain as error:
                raise Unavailable(error.reason, cause=error.cause) from error
            except Refused as error:
                if error.code not in KEY_NOT_ACCEPTED:
                    self._open(self._key)
                raise
        self._open(self._key)
        return answer

    # ── Calls ─────────────────────────────────────────────────────────────────────────────────

    async def _call(
        self,
        method: str,
        path: str,
        body: dict[str, str] | None = None,
        *,
        query: Mapping[str, int] | None = None,
    ) -> Any:  # noqa: ANN401
        """Make one call, and note what it shows about the rate limit and about outages."""
        gate = self._reads if body is None else self._creates
        call = f"{method} {path}"
        try:
            # Of a read, the last part of the path is an id.
            route = path if body or query else f"{path.rpartition('/')[0]}/{{id}}"
            with self._metrics.call("video_service", f"{method} {route}"):
                answer = await self._send(method, path, body, query)
        except Refused:
            self._note_answer(gate, call)
            raise
        except OutsideError as error:
            _LOG.debug("a call failed", extra={"method": method, "cause": error.cause})
            if isinstance(error, Unavailable) and error.cause == TOO_MANY_CALLS:
                raise self._limit(gate, error) from error
            if query is None:  # a list that does not work says nothing about the rest
                self.outages.failed(error.cause, call)
            raise
        self._note_answer(gate, call)
        return answer

    def _note_answer(self, gate: RateGate, call: str) -> None:
        gate.passed()
        self.outages.answered(call)

    def _limit(self, gate: RateGate, error: Unavailable) -> Held:
        if gate.refusal is None and not gate.limited:
            wait = error.retry_after
            extra = {"asked_s": None if wait is None else round(wait.total_seconds())}
            _LOG.warning("the video service limits calls", extra=extra)
        return gate.close(error, error.retry_after)

    async def _send(
        self,
        method: str,
        path: str,
        body: dict[str, str] | None,
        query: Mapping[str, int] | None,
    ) -> Any:  # noqa: ANN401
        client = self._clients.reading if body is None else self._clients.creating
        with translated():
            async with (
                asyncio.timeout(self._timings.call_timeout.total_seconds()),
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
                    answer = json.loads(await content_of(response))
                    # Some services quote the key in what they answer.
                    return self._mask.json(answer)
                content = b""
                with suppress(Uncertain), translated():  # the status says enough
                    content = await content_of(response)
                raise from_answer(response, content, mask=self._mask, now=self._clock.now())
