"""The real bot in a process that can be killed, between a Slack and a video service that watch."""

import asyncio
import contextlib
import logging
import multiprocessing
import os
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, Literal

import aiohttp
from aiohttp import web

from bot import log
from bot.app import serve
from bot.clock import SystemClock
from bot.database import StoreError
from bot.settings import Settings
from bot.timings import PollSchedule, Timings
from sandbox.block_kit import Json
from sandbox.driver import Modal, Person
from sandbox.http import Server
from sandbox.slack import SandboxSlack
from sandbox.video_service import Operation, Pace, SandboxVideoService
from sandbox.workspace import Message
from tests.canary import Canary
from tests.world import REPLICA

Phase = Literal["before", "after"]
Watcher = Callable[[str, str], Awaitable[None]]

_PATIENCE: Final = PollSchedule(
    first_interval=timedelta(milliseconds=30),
    growth=0,
    max_interval=timedelta(milliseconds=30),
    late_after=timedelta(hours=1),
    overdue_after=timedelta(hours=1),
    overdue_interval=timedelta(hours=1),
    give_up_after=timedelta(hours=1),
)
QUICK: Final = Timings(
    minutes=_PATIENCE,
    jitter=0,
    retry_interval=timedelta(milliseconds=50),
    max_retry_interval=timedelta(milliseconds=200),
    post_hold=timedelta(milliseconds=50),
    callback_spacing=timedelta(milliseconds=30),
    callback_answer=timedelta(0),
    stop_timeout=timedelta(milliseconds=500),
    lock_timeout=timedelta(milliseconds=300),
)
"""Waits that a test can live through: only healing by a callback may take as long as ever."""

# In seconds: nothing here takes that long unless it never comes.
_LONG: Final = 10.0

# A server that has everything imported forks the children: each is there in a few milliseconds.
_CONTEXT: Final = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["pytest", "tests.processes"])


class BotProcess:
    """The bot in a process of its own, from the moment this is made.

    ``first`` is done in that process before anything else.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        timings: Timings,
        log_file: Path,
        first: Callable[[], None] | None = None,
    ) -> None:
        self._hears, tells = _CONTEXT.Pipe(duplex=False)
        self._process = _CONTEXT.Process(
            target=_live, args=(dict(environ), timings, log_file, tells, first), daemon=True
        )
        self._process.start()
        tells.close()

    @property
    def pid(self) -> int:
        """Its number, which is none before it runs."""
        assert self._process.pid is not None
        return self._process.pid

    async def listens(self) -> int:
        """Return the port on which it listens, once it does."""
        port = await asyncio.to_thread(self._hear)
        assert isinstance(port, int), f"the bot does not start: {port}"
        return port

    async def says(self) -> str:
        """Return why it does not start."""
        return str(await asyncio.to_thread(self._hear))

    async def dies(self) -> int:
        """Kill it, as the kernel or a power cut would, and return its exit code."""
        self._process.kill()
        return await self.ends()

    async def stops(self) -> int:
        """Ask it to end, as a host does, and return its exit code."""
        self._process.terminate()
        return await self.ends()

    async def ends(self) -> int:
        """Return its exit code, once it has ended."""
        await asyncio.to_thread(self._process.join, _LONG)
        assert self._process.exitcode is not None, "the bot does not end"
        return self._process.exitcode

    def _hear(self) -> object:
        return self._hears.recv() if self._hears.poll(_LONG) else "it says nothing"


class LiveWorld:
    """A bot that can be killed, with a Slack and a video service, all of them in real time.

    Whatever passes between them is a moment with a name: "before" or "after" and one of

    * ``submission``, ``request`` (another one of Slack's), ``callback``: to the bot;
    * ``create``, ``read``, ``last read`` (that finds the end): to the service;
    * ``card``, ``edit``, ``last edit``, ``reply``, ``search`` (for a post): to Slack.

    A video goes on until its card says that it is being made and it was read, and then ends at the
    next read.

    Attributes:
        deadly: at this moment the bot is killed: the work of the call is not done before it, and
            its answer is lost after it.
        watcher: awaited at each moment with its name and what it is about: words of the video.
        end_video: how a video ends, by its id.
        first: done in the bot's process before it begins.
        port: where the bot itself listens; Slack and the service send to it through a relay.
    """

    def __init__(self, folder: Path) -> None:
        clock = SystemClock()
        self.slack = SandboxSlack(clock)
        self.service = SandboxVideoService(clock, pace=Pace(timedelta(0), timedelta(days=1)))
        self.service.add_replica(REPLICA, "Anna")
        self.ana = Person(self.slack, "ana")
        self.timings = QUICK
        self.callbacks = True
        self.database = folder / "bot.db"
        self.log_file = folder / "bot.log"
        self.first: Callable[[], None] | None = None
        self.bot: BotProcess
        self.deadly = ""
        self.moments: list[str] = []
        self.watcher: Watcher | None = None
        self.end_video: Callable[[str], None] = self.service.finish
        self._now = clock.now
        self._read: set[str] = set()
        self._news = asyncio.Event()
        self.port = 0
        relay = web.Application()
        relay.router.add_route("*", "/{path:.*}", self._relay)
        self._relay_server = Server(relay)

    @contextlib.asynccontextmanager
    async def runs(self) -> AsyncIterator["LiveWorld"]:
        """Start the sandbox and the bot, and end them; nothing may have gone unforeseen."""
        canary = Canary(self, logs=[self.log_file])
        self.slack.on_request, self.service.on_request = self._on_slack, self._on_service
        leave = self.slack.subscribe(lambda _: self._news.set())
        for server in (self.slack, self.service, self._relay_server):
            await server.start()
        self.slack.request_url = f"{self._relay_server.url}/slack/events"
        try:
            await self.starts()
            yield self
        finally:
            await self.bot.dies()
            leave()
            for server in (self._relay_server, self.service, self.slack):
                await server.stop()
        assert "Traceback" not in self.log_file.read_text()
        canary.examine()

    def begins(self) -> BotProcess:
        """Make a process of the bot."""
        environ = {
            "SLACK_BOT_TOKEN": self.slack.bot_token,
            "SLACK_SIGNING_SECRET": self.slack.signing_secret,
            "SLACK_API_URL": self.slack.api_url,
            "VIDEO_API_URL": self.service.url,
            "VIDEO_API_KEY": self.service.api_key,
            "DATABASE_URL": f"sqlite:///{self.database}",
            "HOST": "127.0.0.1",
            "PORT": "0",
        }
        if self.callbacks:
            environ["PUBLIC_URL"] = self._relay_server.url
        return BotProcess(environ, self.timings, self.log_file, self.first)

    async def starts(self) -> None:
        """Start the bot on its database and wait until it listens."""
        self.bot = self.begins()
        self.port = await self.bot.listens()

    async def restarts(self) -> None:
        """Wait until the deadly moment came and the bot is dead, and start it again."""
        await self.until(lambda: not self.deadly)
        assert await self.bot.ends() < 0
        await self.starts()

    async def until(self, happened: Callable[[], object]) -> None:
        """Wait until something has happened that Slack, the service or a moment shows."""
        try:
            async with asyncio.timeout(_LONG):
                while not happened():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            seen = "\n".join(message.text for message in self.slack.messages("studio"))
            log = self.log_file.read_text()[-4000:]
            raise AssertionError(
                f"it did not happen; what did: {self.moments}\n{seen}\n{log}"
            ) from None

    async def request_video(self, script: str = "Hello, world.") -> Modal:
        """Have Ana ask for a video, and return the form; it stays open if no answer came."""
        await self.ana.command("/video")
        form = self.ana.modal
        assert form is not None
        await form.submit({"replica_id": REPLICA, "script": script})
        return form

    def card(self, script: str = "") -> Message | None:
        """Return the card of the video with these words as it stands now, if it is there."""
        cards = [message for message in self.slack.messages("studio") if script in message.text]
        assert len(cards) < 2
        return cards[0] if cards else None

    def says(self, words: str, script: str = "") -> bool:
        """Return whether the card says something."""
        card = self.card(script)
        return card is not None and words in card.text

    def replies(self, script: str = "") -> list[Message]:
        """Return what was posted into the thread of the card."""
        card = self.card(script)
        return self.slack.thread("studio", card.ts) if card is not None else []

    def posts(self) -> int:
        """Return how many messages were posted, wherever that was."""
        posts = [call for call in self.slack.calls if call.method == "chat.postMessage"]
        return len([call for call in posts if call.ok])

    def created_count(self, script: str = "") -> int:
        """Return how many videos with these words the service has made."""
        return len([video for video in self.service.videos.values() if script in video.script])

    async def rests(self) -> None:
        """End the bot in good order, with nothing left that another one would do or say."""
        assert await self.bot.stops() == 0
        while self._due():
            self.moments.clear()
            await self.starts()
            await self.until(lambda: self.moments)
            assert await self.bot.stops() == 0

    def _due(self) -> int:
        with contextlib.closing(sqlite3.connect(self.database)) as db:
            [due] = db.execute(
                "SELECT (SELECT count(*) FROM jobs WHERE due_at IS NOT NULL)"
                " + (SELECT count(*) FROM deliveries WHERE due_at IS NOT NULL)"
            ).fetchone()
        return int(due)

    # ── Moments ───────────────────────────────────────────────────────────────────────────────

    async def _at(self, moment: str, about: str = "") -> None:
        self.moments.append(moment)
        self._news.set()
        if self.watcher is not None:
            await self.watcher(moment, about)
        if moment == self.deadly:
            await self.bot.dies()
            self.deadly = ""
            self._news.set()
            raise web.HTTPServiceUnavailable

    async def _on_slack(self, phase: Phase, method: str, arguments: Json) -> None:
        text = str(arguments.get("text"))
        if method == "chat.postMessage":
            await self._at(f"{phase} {'reply' if arguments.get('thread_ts') else 'card'}", text)
        elif method == "chat.update":
            ended = "Ready" in text or "Failed" in text
            await self._at(f"{phase} {'last edit' if ended else 'edit'}", text)
        elif method in {"conversations.history", "conversations.replies"}:
            await self._at(f"{phase} search")

    async def _on_service(self, phase: Phase, operation: Operation, path: str) -> None:
        if operation == "create_video":
            body = self.service.requests[-1].body
            made = list(self.service.videos.values())[-1].script if phase == "after" else str(body)
            await self._at(f"{phase} create", made)
            return
        if operation == "read_replica":
            await self._at(f"{phase} look at the replica")
            return
        video = self.service.videos[path.rpartition("/")[2]]
        going = video.ended(self._now()) is None
        if phase == "before" and going:
            if video.video_id in self._read and self.says("In the making", video.script):
                self.end_video(video.video_id)
                going = False
            self._read.add(video.video_id)
        await self._at(f"{phase} {'read' if going else 'last read'}", video.script)

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
                f"http://127.0.0.1:{self.port}{request.path_qs}",
                data=body,
                headers=request.headers,
            ) as answer:
                status, said = answer.status, await answer.read()
        except aiohttp.ClientError:
            raise web.HTTPBadGateway from None
        await self._at(f"after {what}")
        return web.Response(status=status, body=said)


# ── In the child ──────────────────────────────────────────────────────────────────────────────


class _Herald(logging.Handler):
    """Tells on which port the bot listens, when its log says so."""

    def __init__(self, tells: Connection) -> None:
        super().__init__()
        self._tells = tells

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == "listening":
            self._tells.send(vars(record)["port"])


def _live(
    environ: Mapping[str, str],
    timings: Timings,
    log_file: Path,
    tells: Connection,
    first: Callable[[], None] | None,
) -> None:
    if first is not None:
        first()
    settings = Settings.read(environ)
    with log_file.open("a") as stream:
        # What is printed is as good as logged.
        for printed in (1, 2):
            os.dup2(stream.fileno(), printed)
        log.configure(stream, logging.INFO, secrets=settings.secrets)
        logging.getLogger("bot.app").addHandler(_Herald(tells))
        try:
            asyncio.run(serve(settings, timings=timings))
        except StoreError as error:
            tells.send(str(error))
            sys.exit(1)
