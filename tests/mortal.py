"""A world whose bot can lose its power at any moment, and wakes on what was on the disk then."""

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
from sandbox.video_service import Operation, Pace
from tests.disk import Disk
from tests.world import REPLICA, World

Phase = Literal["before", "after"]

# A clock that is a day ahead for a while makes nobody lose patience; nor does it take two weeks.
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
    # In real time, as these are measured: what hangs takes so long.
    call_timeout=timedelta(seconds=0.3),
    view_timeout=timedelta(seconds=0.3),
    check_timeout=timedelta(seconds=0.3),
    stop_timeout=timedelta(seconds=0.3),
    max_retry_interval=timedelta(minutes=20),
    pause=timedelta(minutes=20),
    create_within=timedelta(days=2),
    close_after=timedelta(days=2),
    sweep_interval=timedelta(hours=6),
)
PACE: Final = Pace(timedelta(seconds=10), timedelta(minutes=1), timedelta(minutes=40), 2)

# The names of some moments; the others have the name of Slack's method.
_MOMENTS: Final = {
    "create_video": "create",
    "create_replica": "create",
    "read_video": "read",
    "read_replica": "read",
    "chat.update": "edit",
    "conversations.history": "search",
    "conversations.replies": "search",
}


class OwnClock:
    """The bot's own clock, which may be wrong: Slack and the service go by the right one."""

    def __init__(self, right: ManualClock) -> None:
        self._right = right
        self._off = timedelta(0)

    def now(self) -> datetime:
        """Return what it shows."""
        return self._right.now() + self._off

    async def wait(self, event: asyncio.Event, until: datetime | None = None) -> None:
        """Return when ``event`` is set, ``until`` has come, or the clock was set."""
        await self._right.wait(event, None if until is None else until - self._off)

    def go_wrong(self, off: timedelta) -> None:
        """Be so far ahead, and have whoever waits look at it again, as happens within a minute."""
        self._off = off
        self._right.set(self._right.now())


class MortalWorld(World):
    """A world in which whatever passes between bot and others is a moment with a name.

    A moment is "before" or "after" and one of

    * ``submission``, ``request`` (another one of Slack's), ``callback``: to the bot;
    * ``create``, ``read``: to the service;
    * ``card``, ``reply``, ``edit``, ``search`` (for a post), or a method's own name: to Slack.

    Attributes:
        deadly: the power goes at this moment: the work of the call is not done before it, and its
            answer is lost after it.
        down_for: how long it stays away.
        unanswered: so many submissions are lost on the way back.
        deaths: how often the power went.
        others: the ids of what the service has that the bot never asked for.
        is_dead: it is gone.
        witness: called at each moment with its name and, for a post, the mark that it carries.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, TIMINGS)
        self.service.pace = PACE
        self.cleo = Person(self.slack, "cleo")
        self.bot_clock = self.own_clock = OwnClock(self.clock)
        self.disk = Disk(self.database)
        self.deadly: str | None = None
        self.down_for = timedelta(0)
        self.unanswered = 0
        self.deaths = 0
        self.witness: Callable[[str, str], None] = lambda _moment, _about: None
        self.callbacks = True
        self.others = frozenset[str]()
        self.is_dead = False
        self._died = asyncio.Event()
        self._left = b"", b""
        self._heard = 0, 0
        self._everything = contextlib.AsyncExitStack()
        self._running: contextlib.AbstractAsyncContextManager[Bot]
        relay = web.Application()
        relay.router.add_route("*", "/{path:.*}", self._relay)
        self._relay_server = Server(relay)

    async def begin(self, *, callbacks: bool) -> None:
        """Start everything."""
        await self._everything.enter_async_context(self.running_sandbox())
        await self._make_others()
        self.service.on_request, self.slack.on_request = self._on_service, self._on_slack
        await self._relay_server.start()
        self._everything.push_async_callback(self._relay_server.stop)
        await self._start(callbacks=callbacks)

    async def _make_others(self) -> None:
        """Have somebody else make a video, as people do in their account at the service."""
        async with self.slack.session.post(
            f"{self.service.url}/v2/videos",
            json={"script": "Words of others.", "replica_id": REPLICA},
            headers={"x-api-key": self.service.api_key},
        ) as answer:
            answer.raise_for_status()
        self.service.requests.clear()
        self.others = frozenset({*self.service.videos, *self.service.replicas})

    async def end(self) -> None:
        """Stop everything."""
        with contextlib.suppress(AttributeError):  # it did not come to a start
            await self._stop()
        await self._everything.aclose()

    async def restart(self, *, callbacks: bool) -> None:
        """Have the bot stop in good order and start again, with or without a public address."""
        await self._stop()
        await self._start(callbacks=callbacks)

    async def die(self) -> None:
        """Have the power go now."""
        self._die()
        await self._wake()

    async def live_through(self, deed: Coroutine[Any, Any, None]) -> bool:
        """Do something; where the power goes meanwhile, wake the bot and return False."""
        doing = asyncio.ensure_future(deed)  # noqa: TID251 - ended below
        dying = asyncio.ensure_future(self._died.wait())  # noqa: TID251 - likewise
        await asyncio.wait([doing, dying], return_when=asyncio.FIRST_COMPLETED)
        dying.cancel()
        if not self._died.is_set():
            doing.result()
            return True
        doing.cancel()
        await asyncio.gather(doing, dying, return_exceptions=True)
        await self._wake()
        return False

    # ── The power ─────────────────────────────────────────────────────────────────────────────

    async def _start(self, *, callbacks: bool) -> None:
        self.callbacks = callbacks
        values: dict[str, Any] = {
            "PORT": "0",
            "ADMIN_USERS": self.cleo.user.id,
            "RETENTION_DAYS": "2",
        }
        if callbacks:
            values["PUBLIC_URL"] = self._relay_server.url
        self._running = self.running_bot(callbacks=callbacks, **values)
        await self._running.__aenter__()
        self.slack.request_url = f"{self._relay_server.url}/slack/events"
        self.disk.watch(self.bot.store.database._db)

    async def _stop(self) -> None:
        await self._running.__aexit__(None, None, None)
        self.disk.leave()

    def _die(self) -> None:
        """Keep what is on the disk: whatever the bot does from here on has not happened."""
        self._left = self.disk.certain()
        self._heard = len(self.service.requests), len(self.slack.calls)
        self.is_dead, self.deadly = True, None
        self._died.set()

    async def _wake(self) -> None:
        self.deaths += 1
        self.service.faults.clear()
        self.slack.faults.clear()
        await self._stop()
        self.disk.put_back(self._left)
        requests, calls = self._heard
        del self.service.requests[requests:], self.slack.calls[calls:]
        await self.clock.advance(self.down_for)
        self.is_dead = False
        self._died.clear()
        await self._start(callbacks=self.callbacks)

    # ── Moments ───────────────────────────────────────────────────────────────────────────────

    def _at(self, moment: str, about: str = "") -> None:
        if self.is_dead:
            raise web.HTTPServiceUnavailable
        self.witness(moment, about)
        if moment == self.deadly:
            self._die()
            raise web.HTTPServiceUnavailable

    async def _on_service(self, phase: Phase, operation: Operation, _path: str) -> None:
        self._at(f"{phase} {_MOMENTS[operation]}")

    async def _on_slack(self, phase: Phase, method: str, arguments: Json) -> None:
        if method == "chat.postMessage":
            mark = mark_of(arguments)
            self._at(f"{phase} {mark.rpartition('/')[2]}", mark)
        else:
            self._at(f"{phase} {_MOMENTS.get(method, method)}")

    async def _relay(self, request: web.Request) -> web.Response:
        """Hand a request on to the bot, as the router of a host does."""
        body = await request.read()
        what = "submission" if b"view_submission" in body else "request"
        if request.path.startswith("/callbacks/"):
            what = "callback"
        self._at(f"before {what}")
        try:
            async with self.slack.session.request(
                request.method,
                f"http://127.0.0.1:{self.bot.port}{request.path_qs}",
                data=body,
                headers=request.headers,
            ) as answer:
                status, said, kind = answer.status, await answer.read(), answer.content_type
        except aiohttp.ClientError:
            raise web.HTTPBadGateway from None
        self._at(f"after {what}")
        if what == "submission" and self.unanswered:
            self.unanswered -= 1
            raise web.HTTPGatewayTimeout
        return web.Response(status=status, body=said, content_type=kind)


def mark_of(arguments: Json) -> str:
    """Return the mark that a post carries: ``<job>/<role>``; "" where it has none."""
    metadata = arguments.get("metadata") or {}
    metadata = json.loads(metadata) if isinstance(metadata, str) else metadata
    return str(metadata.get("event_payload", {}).get("message", ""))
