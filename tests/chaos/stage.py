"""The bot in a process that is killed by plan, between a Slack and a video service that record."""

import asyncio
import contextlib
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
from sandbox.slack import DEFAULT_SCOPES, SandboxSlack
from sandbox.video_service import Operation, SandboxVideoService
from sandbox.workspace import Event, Message
from tests.chaos.plan import Kill, Plan, Planned
from tests.processes import BotProcess, Phase
from tests.world import REPLICA

_PATIENCE: Final = PollSchedule(
    first_interval=timedelta(milliseconds=150),
    growth=0.2,
    max_interval=timedelta(milliseconds=600),
    late_after=timedelta(seconds=4),
    overdue_after=timedelta(seconds=8),
    overdue_interval=timedelta(seconds=1),
    give_up_after=timedelta(seconds=15),
)
TIMINGS: Final = Timings(
    minutes=_PATIENCE,
    hours=_PATIENCE,
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
    post_hold=timedelta(milliseconds=500),
    pause=timedelta(milliseconds=500),
    replica_max_age=timedelta(seconds=2),
    stop_timeout=timedelta(seconds=2),
)
"""The bot's own waits, so short that a run of a minute holds a week of them."""

_PACE: Final = Pace(
    queued=timedelta(milliseconds=100),
    generating=timedelta(milliseconds=700),
    training=timedelta(seconds=2),
    training_steps=4,
)
_HISTORY: Final = frozenset(scope for scope in DEFAULT_SCOPES if scope.endswith(":history"))
# In seconds: so long a kill waits for its moment, and then it strikes wherever the bot is.
_MOMENT_COMES: Final = 2.5


class Stage:
    """The sandbox, the bot's process, and the relay through which the outside reaches it.

    Attributes:
        posted: every message that the bot has put into a conversation, as it was then.
        deaths: how often it was killed, by what the moment was.
    """

    def __init__(self, plan: Plan, folder: Path, *, may_look: bool) -> None:
        clock = SystemClock()
        scopes = DEFAULT_SCOPES if may_look else DEFAULT_SCOPES - _HISTORY
        self.slack = SandboxSlack(clock, scopes=scopes)
        self.service = SandboxVideoService(clock, pace=_PACE)
        self.service.add_replica(REPLICA, "Anna")
        self.service.next_video(*plan.scenarios)
        self.slack.faults = self._slack_faults = Planned(plan.faults)
        self.service.faults = self._service_faults = Planned(plan.faults)
        self.database = folder / "bot.db"
        self.log_file = folder / "bot.log"
        self.posted: list[Message] = []
        self.deaths: Counter[str] = Counter()
        self._kills = plan.kills
        self._bot: BotProcess | None = None
        self._port = 0
        self._deadly: str | None = None
        self._died = asyncio.Event()
        self._done = 0
        relay = web.Application()
        relay.router.add_route("*", "/{path:.*}", self._relay)
        self._relay_server = Server(relay)

    @property
    def url(self) -> str:
        """Return where the outside reaches the bot, dead or alive."""
        return self._relay_server.url

    @property
    def share(self) -> float:
        """Return how much of the plan's killing is done, from 0 to 1."""
        return self._done / len(self._kills) if self._kills else 1.0

    @property
    def met(self) -> Counter[str]:
        """Return how many faults were met, by operation."""
        return self._slack_faults.met + self._service_faults.met

    @contextlib.asynccontextmanager
    async def runs(self) -> AsyncIterator[None]:
        """Start the sandbox and the bot; end both."""
        self.slack.on_request, self.service.on_request = self._on_slack, self._on_service
        leave = self.slack.subscribe(self._note)
        for server in (self.slack, self.service, self._relay_server):
            await server.start()
        self.slack.request_url = f"{self.url}/slack/events"
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
        """Kill the bot as the plan says, and start it each time again."""
        for kill in self._kills:
            await self._meet(kill)
            await asyncio.sleep(kill.rest.total_seconds())
            if kill.again is not None:
                self._bot = self._process()
                await asyncio.sleep(kill.again.total_seconds())
                await self._die("while it starts")
            await self._start()
            self._done += 1

    def calm(self) -> None:
        """Let everything go well from here on."""
        self._slack_faults.clear()
        self._service_faults.clear()

    async def stop(self) -> int:
        """Ask the bot to end, and return its exit code."""
        assert self._bot is not None
        bot, self._bot = self._bot, None
        return await bot.terminate()

    # ── Dying ─────────────────────────────────────────────────────────────────────────────────

    async def _meet(self, kill: Kill) -> None:
        if kill.moment is None:
            await asyncio.sleep(kill.after.total_seconds())
            await self._die("at random")
            return
        self._died.clear()
        self._deadly = kill.moment
        try:
            async with asyncio.timeout(_MOMENT_COMES):
                await self._died.wait()
        except TimeoutError:
            self._deadly = None
            await self._die("at random")

    async def _die(self, moment: str) -> None:
        bot, self._bot = self._bot, None
        if bot is not None:
            await bot.kill()
            self.deaths[moment] += 1

    async def _start(self) -> None:
        self._bot = self._process()
        self._port = await self._bot.wait_until_listening()

    def _process(self) -> BotProcess:
        environ = {
            "SLACK_BOT_TOKEN": self.slack.bot_token,
            "SLACK_SIGNING_SECRET": self.slack.signing_secret,
            "SLACK_API_URL": self.slack.api_url,
            "VIDEO_API_URL": self.service.url,
            "VIDEO_API_KEY": self.service.api_key,
            "PUBLIC_URL": self.url,
            "DATABASE_URL": f"sqlite:///{self.database}",
            "HOST": "127.0.0.1",
            "PORT": "0",
        }
        return BotProcess(environ, TIMINGS, self.log_file)

    async def _at(self, moment: str) -> None:
        if moment == self._deadly:
            self._deadly = None
            await self._die(moment)
            self._died.set()
            raise web.HTTPServiceUnavailable

    # ── What passes between the bot and the outside ───────────────────────────────────────────

    async def _on_slack(self, phase: Phase, method: str, arguments: Json) -> None:
        match method:
            case "chat.postMessage":
                await self._at(f"{phase} {'reply' if arguments.get('thread_ts') else 'card'}")
            case "chat.update":
                await self._at(f"{phase} edit")
            case "conversations.history" | "conversations.replies":
                await self._at(f"{phase} search")
            case "views.open":
                await self._at(f"{phase} form")

    async def _on_service(self, phase: Phase, operation: Operation, _path: str) -> None:
        await self._at(f"{phase} {'create' if operation.startswith('create') else 'read'}")

    async def _relay(self, request: web.Request) -> web.Response:
        """Hand a request on to the bot, as the router of a host does."""
        body = await request.read()
        what = "submission" if b"view_submission" in body else "request"
        if request.path.startswith("/callbacks/"):
            what = "callback"
        await self._at(f"before {what}")
        try:
            async with self.slack.session.request(
                request.method,
                f"http://127.0.0.1:{self._port}{request.path_qs}",
                data=body,
                headers=request.headers,
            ) as answer:
                status, said = answer.status, await answer.read()
        except aiohttp.ClientError:
            raise web.HTTPBadGateway from None
        await self._at(f"after {what}")
        return web.Response(status=status, body=said)

    def _note(self, event: Event) -> None:
        message = event.message
        if event.kind == "posted" and message is not None and message.is_from_bot:
            self.posted.append(message)
