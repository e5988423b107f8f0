"""The bot in a process that is killed by plan, between the sandbox's Slack and video service."""

import asyncio
import contextlib
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Final

import aiohttp
from aiohttp import web

from bot.clock import SystemClock
from bot.timings import PollSchedule, Timings
from sandbox.block_kit import Json
from sandbox.http import Server
from sandbox.scenarios import Pace
from sandbox.slack import DEFAULT_SCOPES, FILE_CONTENT, SandboxSlack
from sandbox.slack_objects import Event, Message
from sandbox.video_service import Operation, RateLimit, SandboxVideoService
from tests.chaos.plan import Kill, Plan, PlannedFaults
from tests.crash import delivery_key, role_of
from tests.processes import BotProcess, Phase
from tests.world import NO_LIMITS, REPLICA

_SCHEDULE: Final = PollSchedule(
    first_interval=timedelta(milliseconds=150),
    growth=0.2,
    max_interval=timedelta(milliseconds=600),
    late_after=timedelta(seconds=4),
    overdue_after=timedelta(seconds=8),
    overdue_interval=timedelta(seconds=1),
    give_up_after=timedelta(seconds=15),
)
TIMINGS: Final = Timings(
    minutes=_SCHEDULE,
    hours=_SCHEDULE,
    max_wait=timedelta(seconds=10),
    call_timeout=timedelta(milliseconds=700),
    lease=timedelta(seconds=3),
    retry_interval=timedelta(milliseconds=100),
    max_retry_interval=timedelta(milliseconds=800),
    reconcile_within=timedelta(seconds=2),
    ask_again_after=timedelta(seconds=3),
    close_after=timedelta(seconds=3),
    callback_spacing=timedelta(milliseconds=100),
    recheck_key=timedelta(milliseconds=200),
    recheck_credit=timedelta(milliseconds=500),
    first_hold=timedelta(milliseconds=100),
    max_hold=timedelta(milliseconds=800),
    turn_timeout=timedelta(milliseconds=200),
    hasten_within=timedelta(milliseconds=300),
    post_hold=timedelta(milliseconds=800),
    pause=timedelta(milliseconds=500),
    post_interval=timedelta(milliseconds=50),
    call_interval=timedelta(milliseconds=50),
    replica_max_age=timedelta(seconds=2),
    stop_timeout=timedelta(seconds=2),
    socket_heartbeat=timedelta(milliseconds=400),
    reconnect_interval=timedelta(milliseconds=20),
    max_reconnect_interval=timedelta(milliseconds=200),
    max_socket_wait=timedelta(milliseconds=500),
)
"""The bot's waits, shortened so that a run of a minute covers a week."""

_PACE: Final = Pace(
    queued=timedelta(milliseconds=100),
    generating=timedelta(milliseconds=700),
    training=timedelta(seconds=2),
    training_steps=4,
)
_HISTORY: Final = frozenset(scope for scope in DEFAULT_SCOPES if scope.endswith(":history"))
# A kill whose moment has not come by then takes place at once.
_MOMENT_TIMEOUT_S: Final = 2.5


class Environment:
    """The sandbox, the bot's process, and the relay through which the outside reaches it.

    Attributes:
        admin: who may answer every question.
        posted: every message that the bot posted, as it was then.
        kills_by_moment: the number of kills by moment.
        disturbances: the number of disturbed connections of Socket Mode by what was done to them.
    """

    def __init__(
        self, plan: Plan, folder: Path, *, can_search: bool, socket_mode: bool = False
    ) -> None:
        clock = SystemClock()
        # With groups:read, forms would be refused instead of answered in direct messages.
        scopes = DEFAULT_SCOPES - {"groups:read"} - (set() if can_search else _HISTORY)
        self.slack = SandboxSlack(clock, scopes=scopes)
        self.admin = self.slack.user("cleo")
        self.service = SandboxVideoService(clock, pace=_PACE)
        self.service.add_replica(REPLICA, "Anna")
        self.service.next_video(*plan.scenarios)
        self.slack.faults = self._slack_faults = PlannedFaults(plan.faults)
        self.service.faults = self._service_faults = PlannedFaults(plan.faults)
        self.database = folder / "bot.db"
        self.log_file = folder / "bot.log"
        self.posted: list[Message] = []
        self.kills_by_moment: Counter[str] = Counter()
        self.disturbances: Counter[str] = Counter()
        self.slack.socket_mode.enabled = self._socket_mode = socket_mode
        self._kills = plan.kills
        self._spells = plan.spells
        self._quotes = itertools.cycle(plan.quotes)
        self._bot: BotProcess | None = None
        self._port = 0
        self._kill_at: str | None = None
        self._killed = asyncio.Event()
        self._kills_done = 0
        relay = web.Application()
        relay.router.add_route("*", "/{path:.*}", self._relay)
        self._relay_server = Server(relay)

    @property
    def url(self) -> str:
        """Return the bot's public URL, which stays the same over restarts."""
        return self._relay_server.url

    @property
    def progress(self) -> float:
        """Return the share of the planned kills that is done, from 0 to 1."""
        return self._kills_done / len(self._kills) if self._kills else 1.0

    @property
    def faults_hit(self) -> Counter[str]:
        """Return the number of faults that were hit, by operation."""
        return self._slack_faults.faults_hit + self._service_faults.faults_hit

    @property
    def address(self) -> Path:
        """Return where the database is."""
        return self.database

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start the sandbox and the bot, and stop both at the end."""
        self.slack.on_request, self.service.on_request = self._on_slack, self._on_service
        leave = self.slack.subscribe(self._note)
        for server in (self.slack, self.service, self._relay_server):
            await server.start()
        self.slack.request_url = f"{self.url}/slack/events"
        self.slack.socket_mode.on_envelope = self._on_envelope
        try:
            await self._start()
            yield
        finally:
            if self._bot is not None:
                await self._bot.kill()
            leave()
            for server in (self._relay_server, self.service, self.slack):
                await server.stop()

    async def kill(self) -> None:
        """Kill the bot as planned, and restart it each time."""
        for kill in self._kills:
            await self._wait_and_kill(kill)
            await asyncio.sleep(kill.downtime.total_seconds())
            if kill.kill_again_after is not None:
                self._bot = self._process()
                await asyncio.sleep(kill.kill_again_after.total_seconds())
                await self._kill("during the start")
            await self._start()
            self._kills_done += 1

    async def turn_away(self) -> None:
        """Let the service turn everybody away for a while, again and again, until cancelled."""
        service = self.service
        try:
            for spell in self._spells:
                await asyncio.sleep(spell.after.total_seconds())
                service.key_revoked = spell.why == "key"
                service.out_of_credit = spell.why == "credit"
                if spell.why == "rate":
                    until = self.slack.clock.now() + spell.duration
                    service.rate_limited = RateLimit(until, timedelta(seconds=1))
                await asyncio.sleep(spell.duration.total_seconds())
                service.key_revoked = service.out_of_credit = False
        finally:
            service.key_revoked = service.out_of_credit = False

    async def disturb_sockets(self, rng: random.Random) -> None:
        """Do to the connections of Socket Mode all that Slack and networks do, until cancelled."""
        socket = self.slack.socket_mode
        try:
            while self._socket_mode:
                await asyncio.sleep(rng.uniform(0.1, 1.0))
                what = rng.choice(("silent", "closed", "warning", "refreshed", "twice"))
                match what:
                    case "silent":
                        socket.go_silent()
                    case "closed":
                        await socket.close()
                    case "warning":
                        await socket.disconnect("warning", close=False)
                    case "refreshed":
                        await socket.disconnect("refresh_requested")
                    case "twice":
                        socket.delivers_twice = not socket.delivers_twice
                self.disturbances[what] += 1
        finally:
            socket.delivers_twice = False

    def stop_faults(self) -> None:
        """Inject no faults from here on."""
        self._slack_faults.clear()
        self._service_faults.clear()

    async def stop(self) -> int:
        """Send SIGTERM to the bot and return its exit code."""
        assert self._bot is not None
        bot, self._bot = self._bot, None
        return await bot.terminate()

    # ── Kills ─────────────────────────────────────────────────────────────────────────────────────

    async def _wait_and_kill(self, kill: Kill) -> None:
        if kill.moment is None:
            await asyncio.sleep(kill.delay.total_seconds())
            await self._kill("at random")
            return
        self._killed.clear()
        self._kill_at = kill.moment
        try:
            async with asyncio.timeout(_MOMENT_TIMEOUT_S):
                await self._killed.wait()
        except TimeoutError:
            self._kill_at = None
            await self._kill("at random")

    async def _kill(self, moment: str) -> None:
        bot, self._bot = self._bot, None
        if bot is not None:
            await bot.kill()
            self.kills_by_moment[moment] += 1

    async def _start(self) -> None:
        self._bot = self._process()
        self._port = await self._bot.wait_until_listening()

    def _process(self) -> BotProcess:
        environ = {
            "SLACK_BOT_TOKEN": self.slack.bot_token,
            **self._slack_secret(),
            "SLACK_API_URL": self.slack.api_url,
            "VIDEO_API_URL": self.service.url,
            "VIDEO_API_KEY": self.service.api_key,
            "PUBLIC_URL": self.url,
            "DATABASE_URL": f"sqlite:///{self.database}",
            "ADMIN_USERS": self.admin.id,
            "HOST": "127.0.0.1",
            "PORT": "0",
            "MAX_SCRIPT": "20000",
            "MEDIA_HOSTS": "127.0.0.1",
            **NO_LIMITS,
        }
        return BotProcess(environ, TIMINGS, self.log_file)

    def _slack_secret(self) -> dict[str, str]:
        if self._socket_mode:
            return {"SLACK_APP_TOKEN": self.slack.socket_mode.app_token}
        return {"SLACK_SIGNING_SECRET": self.slack.signing_secret}

    async def _at(self, moment: str) -> None:
        if moment == self._kill_at:
            self._kill_at = None
            await self._kill(moment)
            self._killed.set()
            raise web.HTTPServiceUnavailable

    # ── Moments ───────────────────────────────────────────────────────────────────────────────────

    async def _on_slack(self, phase: Phase, method: str, arguments: Json) -> None:
        match method:
            case "chat.postMessage":
                await self._at(f"{phase} {role_of(delivery_key(arguments))}")
            case "chat.update":
                await self._at(f"{phase} edit")
            case "conversations.history" | "conversations.replies":
                await self._at(f"{phase} search")
            case "views.open":
                await self._at(f"{phase} form")
            case "files.getUploadURLExternal":
                await self._at(f"{phase} upload url")
            case _ if method == FILE_CONTENT:
                await self._at(f"{phase} upload")
            case "files.completeUploadExternal":
                await self._at(f"{phase} sharing")
            case "files.info":
                await self._at(f"{phase} file info")

    async def _on_service(self, phase: Phase, operation: Operation, _path: str) -> None:
        self.service.quotes_key = next(self._quotes)
        await self._at(f"{phase} {'create' if operation.startswith('create') else 'read'}")

    async def _relay(self, request: web.Request) -> web.Response:
        """Forward a request to the bot, as the router of a host does."""
        body = await request.read()
        name = "submission" if b"view_submission" in body else "request"
        if request.path.startswith("/callbacks/"):
            name = "callback"
        await self._at(f"before {name}")
        try:
            async with self.slack.session.request(
                request.method,
                f"http://127.0.0.1:{self._port}{request.path_qs}",
                data=body,
                headers=request.headers,
            ) as answer:
                status, content = answer.status, await answer.read()
        except aiohttp.ClientError:
            raise web.HTTPBadGateway from None
        await self._at(f"after {name}")
        return web.Response(status=status, body=content)

    async def _on_envelope(self, phase: Phase, payload: Json) -> None:
        """Kill the bot before an envelope is sent to it, or before its answer is taken."""
        name = "submission" if payload.get("type") == "view_submission" else "request"
        try:
            await self._at(f"{phase} {name}")
        except web.HTTPServiceUnavailable:
            if phase == "after":
                raise ConnectionError from None

    def _note(self, event: Event) -> None:
        message = event.message
        if event.kind == "posted" and message is not None and message.is_from_bot:
            self.posted.append(message)
