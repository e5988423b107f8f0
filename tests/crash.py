"""A world whose bot can crash at any moment and restarts with what was on the disk then."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal

import aiohttp
from aiohttp import web

from bot.app import Bot
from bot.timings import PollSchedule, Timings
from sandbox.block_kit import Json
from sandbox.clock import ManualClock
from sandbox.driver import Person
from sandbox.http import Server
from sandbox.scenarios import Pace
from sandbox.video_service import Operation
from tests.disk import Disk, PostgresDisk
from tests.world import REPLICA, World

Phase = Literal["before", "after"]

# Long enough that a clock a day ahead ends no job, and shorter than the two weeks of production.
_MINUTES: Final = PollSchedule(
    first_interval=timedelta(seconds=20),
    growth=1,
    max_interval=timedelta(minutes=20),
    late_after=timedelta(minutes=15),
    overdue_after=timedelta(hours=3),
    overdue_interval=timedelta(hours=5),
    give_up_after=timedelta(days=2),
)
_HOURS: Final = PollSchedule(
    first_interval=timedelta(minutes=5),
    growth=1,
    max_interval=timedelta(minutes=50),
    late_after=timedelta(hours=8),
    overdue_after=timedelta(days=1),
    overdue_interval=timedelta(hours=5),
    give_up_after=timedelta(days=3),
)
TIMINGS: Final = Timings(
    minutes=_MINUTES,
    hours=_HOURS,
    max_wait=timedelta(hours=6),
    jitter=0,
    # In real time: a call that hangs takes this long. On a busy machine, others nearly do.
    call_timeout=timedelta(seconds=1),
    view_timeout=timedelta(seconds=1),
    service_deadline=timedelta(seconds=1),
    stop_timeout=timedelta(seconds=0.3),
    max_retry_interval=timedelta(minutes=20),
    pause=timedelta(minutes=20),
    create_within=timedelta(days=2),
    close_after=timedelta(days=2),
    sweep_interval=timedelta(hours=6),
)
PACE: Final = Pace(timedelta(seconds=10), timedelta(minutes=1), timedelta(minutes=40), 2)

# Moments that are not named after the Slack method.
_MOMENTS: Final = {
    "create_video": "create",
    "create_replica": "create",
    "read_video": "read",
    "read_replica": "read",
    "chat.update": "edit",
    "conversations.history": "search",
    "conversations.replies": "search",
}


class SkewedClock:
    """The bot's clock, which may be wrong; Slack and the service use the true one."""

    def __init__(self, true_clock: ManualClock) -> None:
        self._true = true_clock
        self._offset = timedelta(0)

    def now(self) -> datetime:
        """Return the time that this clock shows."""
        return self._true.now() + self._offset

    async def wait(self, event: asyncio.Event, until: datetime | None = None) -> None:
        """Return when ``event`` is set, at ``until``, or when the clock is set."""
        await self._true.wait(event, None if until is None else until - self._offset)

    def skew_by(self, offset: timedelta) -> None:
        """Run ahead of the true clock by ``offset`` and wake all waiters."""
        self._offset = offset
        self._true.set(self._true.now())


class CrashingWorld(World):
    """A world in which every message to or from the bot is a moment with a name.

    A moment is "before" or "after" and one of

    * ``submission``, ``request`` (another one of Slack's), ``callback``: to the bot;
    * ``create``, ``read``: to the service;
    * ``card``, ``question``, ``reply``, ``edit``, ``search`` (for a post), or a method's own name:
      to Slack.

    Attributes:
        crash_at: the moment of the next crash. With "before" the call is not carried out, with
            "after" its answer is lost.
        downtime: from a crash to the restart.
        lost_answers: the number of submissions whose answers will be lost.
        crash_count: the crashes until now.
        settings: more settings of the bot.
        foreign_ids: the ids of resources at the service that the bot did not create.
        is_crashed: whether the bot is down.
        on_moment: called with each moment's name and, for a post, its delivery key.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, TIMINGS)
        self.service.pace = PACE
        self.cleo = Person(self.slack, "cleo")
        self.bot_clock = self.skewed_clock = SkewedClock(self.clock)
        self.disk: Disk | PostgresDisk = Disk(self.database)
        self.crash_at: str | None = None
        self.downtime = timedelta(0)
        self.lost_answers = 0
        self.crash_count = 0
        self.on_moment: Callable[[str, str], None] = lambda _moment, _about: None
        self.callbacks = True
        self.settings: dict[str, str] = {}
        self.foreign_ids = frozenset[str]()
        self.is_crashed = False
        self._crashed = asyncio.Event()
        self._put_back: Callable[[], None] = lambda: None
        self._recorded = 0, 0
        self._stack = contextlib.AsyncExitStack()
        self._running: contextlib.AbstractAsyncContextManager[Bot]
        relay = web.Application()
        relay.router.add_route("*", "/{path:.*}", self._relay)
        self._relay_server = Server(relay)

    async def start(self, *, callbacks: bool) -> None:
        """Start the sandbox and the bot."""
        await self._stack.enter_async_context(self.running_sandbox())
        if self.postgres_url is not None:
            self.disk = PostgresDisk(self.postgres_url)
            self._stack.callback(self.disk.close)
        await self._create_foreign()
        self.service.on_request, self.slack.on_request = self._on_service, self._on_slack
        await self._relay_server.start()
        self._stack.push_async_callback(self._relay_server.stop)
        await self._start_bot(callbacks=callbacks)

    async def _create_foreign(self) -> None:
        """Create a video at the service without the bot, as a user of the same account would."""
        async with self.slack.session.post(
            f"{self.service.url}/v2/videos",
            json={"script": "A foreign script.", "replica_id": REPLICA},
            headers={"x-api-key": self.service.api_key},
        ) as answer:
            answer.raise_for_status()
        self.service.requests.clear()
        self.foreign_ids = frozenset({*self.service.videos, *self.service.replicas})

    async def stop(self) -> None:
        """Stop the bot and the sandbox."""
        with contextlib.suppress(AttributeError):  # it never started
            await self._stop_bot()
        await self._stack.aclose()

    async def restart(self, *, callbacks: bool) -> None:
        """Stop the bot gracefully and start it again, with or without a public URL."""
        await self._stop_bot()
        await self._start_bot(callbacks=callbacks)
        await self._leases_end()

    async def crash(self) -> None:
        """Crash the bot now and restart it."""
        self._crash()
        await self._recover()

    async def survives(self, action: Coroutine[Any, Any, None]) -> bool:
        """Run an action; if the bot crashes meanwhile, restart it and return False."""
        running = asyncio.ensure_future(action)  # noqa: TID251 - ended below
        crashing = asyncio.ensure_future(self._crashed.wait())  # noqa: TID251 - likewise
        await asyncio.wait([running, crashing], return_when=asyncio.FIRST_COMPLETED)
        crashing.cancel()
        if not self._crashed.is_set():
            running.result()
            return True
        running.cancel()
        await asyncio.gather(running, crashing, return_exceptions=True)
        await self._recover()
        return False

    # ── Crashes ───────────────────────────────────────────────────────────────────────────────────

    async def _start_bot(self, *, callbacks: bool) -> None:
        self.callbacks = callbacks
        values: dict[str, Any] = {
            "PORT": "0",
            "ADMIN_USERS": self.cleo.user.id,
            "RETENTION_DAYS": "2",
            "MAX_SCRIPT": "20000",
            **self.settings,
        }
        if callbacks:
            values["PUBLIC_URL"] = self._relay_server.url
        self._running = self.running_bot(callbacks=callbacks, **values)
        await self._running.__aenter__()
        self.slack.request_url = f"{self._relay_server.url}/slack/events"
        await self.disk.watch(self.bot.store.database)

    async def _stop_bot(self) -> None:
        await self._running.__aexit__(None, None, None)
        self.disk.leave()

    def _crash(self) -> None:
        """Save the content of the disk: the bot's later actions are undone."""
        self._put_back = self.disk.saved()
        self._recorded = len(self.service.requests), len(self.slack.calls)
        self.is_crashed, self.crash_at = True, None
        self._crashed.set()

    async def _recover(self) -> None:
        self.crash_count += 1
        self.service.faults.clear()
        self.slack.faults.clear()
        await self._stop_bot()
        self._put_back()
        requests, calls = self._recorded
        del self.service.requests[requests:], self.slack.calls[calls:]
        await self.clock.advance(self.downtime)
        self.is_crashed = False
        self._crashed.clear()
        await self._start_bot(callbacks=self.callbacks)
        await self._leases_end()

    async def _leases_end(self) -> None:
        """Wait for the end of the leases of the bot before: only the start on SQLite voids them."""
        if self.postgres_url is not None:
            await self.clock.advance(self.timings.lease)

    # ── Moments ───────────────────────────────────────────────────────────────────────────────────

    def _at(self, moment: str, about: str = "") -> None:
        if self.is_crashed:
            raise web.HTTPServiceUnavailable
        self.on_moment(moment, about)
        if moment == self.crash_at:
            self._crash()
            raise web.HTTPServiceUnavailable

    async def _on_service(self, phase: Phase, operation: Operation, _path: str) -> None:
        self._at(f"{phase} {_MOMENTS[operation]}")

    async def _on_slack(self, phase: Phase, method: str, arguments: Json) -> None:
        if method == "chat.postMessage":
            key = delivery_key(arguments)
            self._at(f"{phase} {role_of(key)}", key)
        else:
            self._at(f"{phase} {_MOMENTS.get(method, method)}")

    async def _relay(self, request: web.Request) -> web.Response:
        """Forward a request to the bot, as the router of a host does."""
        body = await request.read()
        name = "submission" if b"view_submission" in body else "request"
        if request.path.startswith("/callbacks/"):
            name = "callback"
        self._at(f"before {name}")
        answer = await forwarded(request, body, self.bot.port, self.slack.session)
        self._at(f"after {name}")
        if name == "submission" and self.lost_answers:
            self.lost_answers -= 1
            raise web.HTTPGatewayTimeout
        return answer


async def forwarded(
    request: web.Request, body: bytes, port: int, session: aiohttp.ClientSession
) -> web.Response:
    """Send a request on to a bot, as the router of a host does, and return its answer."""
    try:
        async with session.request(
            request.method,
            f"http://127.0.0.1:{port}{request.path_qs}",
            data=body,
            headers=request.headers,
        ) as answer:
            return web.Response(
                status=answer.status, body=await answer.read(), content_type=answer.content_type
            )
    except aiohttp.ClientError:
        raise web.HTTPBadGateway from None


def role_of(key: str) -> str:
    """Return the role in a delivery's key."""
    return key.rpartition("/")[2].partition("-")[0]


def delivery_key(arguments: Json) -> str:
    """Return ``<job>/<role>`` from the metadata of a post, "" without metadata.

    That of a question ends in its number: ``<job>/question-1``.
    """
    metadata = arguments.get("metadata") or {}
    metadata = json.loads(metadata) if isinstance(metadata, str) else metadata
    return str(metadata.get("event_payload", {}).get("message", ""))
