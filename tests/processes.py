"""The real bot in a process that can be killed, between the sandbox's Slack and video service."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Final, Literal

from aiohttp import web

from bot.timings import PollSchedule, SystemClock, Timings
from sandbox.block_kit import Json
from sandbox.driver import Modal, Person
from sandbox.http import Server
from sandbox.scenarios import Pace
from sandbox.slack import FILE_CONTENT, SandboxSlack
from sandbox.slack_objects import Message
from sandbox.video_service import Operation, SandboxVideoService
from tests.bot_process import BotProcess
from tests.crash import delivery_key, forwarded, role_of
from tests.databases import HasDatabase, installed
from tests.leaks import LeakDetector
from tests.world import PATIENCE, REPLICA, environment_of, is_question

Phase = Literal["before", "after"]
MomentHook = Callable[[str, str], Awaitable[None]]

_SCHEDULE: Final = PollSchedule(
    first_interval=timedelta(milliseconds=30),
    growth=0,
    max_interval=timedelta(milliseconds=30),
    late_after=timedelta(hours=1),
    overdue_after=timedelta(hours=1),
    overdue_interval=timedelta(hours=1),
    give_up_after=timedelta(hours=1),
)
QUICK: Final = Timings(
    minutes=_SCHEDULE,
    jitter=0,
    retry_interval=timedelta(milliseconds=50),
    max_retry_interval=timedelta(milliseconds=200),
    card_delay=timedelta(milliseconds=100),
    post_hold=timedelta(milliseconds=50),
    callback_spacing=timedelta(milliseconds=30),
    stop_timeout=timedelta(milliseconds=500),
    lock_timeout=timedelta(milliseconds=300),
    drain=timedelta(0),
)
"""Waits short enough for a test in real time; only ``reconcile_within`` keeps its default."""

FILE_STEPS: Final = {
    "files.getUploadURLExternal": "upload url",
    FILE_CONTENT: "upload",
    "files.completeUploadExternal": "sharing",
    "files.info": "file info",
}

_LEASE: Final = timedelta(seconds=1)
# Many times what anything takes: other work may keep the machine busy.
_TIMEOUT_S: Final = 30.0


class LiveWorld(HasDatabase):
    """A bot that can be killed, a Slack and a video service, all in real time.

    Every message between them is a moment with a name: "before" or "after" and one of

    * ``submission``, ``request`` (another one of Slack's), ``callback``: to the bot;
    * ``create``, ``read``, ``last read`` (which finds the end): to the service;
    * ``card``, ``edit``, ``last edit``, ``reply``, ``search`` (for a post): to Slack;
    * ``upload url``, ``upload``, ``sharing``, ``file info``: likewise, of a file.

    A video ends at the first read after it was read once and its card says that it is running.

    Attributes:
        kill_at: the moment at which the bot is killed. With "before" the call is not carried out,
            with "after" its answer is lost.
        on_moment: awaited at each moment with its name and a text of the video that it is about.
        end_video: ends the video with this id.
        settings: those of the bot beside the necessary ones.
        run_first: called in the bot's process before the bot starts.
        port: where the bot itself listens; Slack and the service send to it through a relay.
    """

    def __init__(self, folder: Path) -> None:
        clock = SystemClock()
        self.slack = SandboxSlack(clock)
        self.slack.response_timeout = PATIENCE
        self.service = SandboxVideoService(clock, pace=Pace(timedelta(0), timedelta(days=1)))
        self.service.add_replica(REPLICA, "Anna")
        self.ana = Person(self.slack, "ana")
        # On PostgreSQL no start ends the leases of an earlier process: they run out.
        self.timings = replace(QUICK, lease=_LEASE) if self.on_postgres else QUICK
        self.callbacks = True
        self.settings: dict[str, str] = {}
        self.database = folder / "bot.db"
        self.log_file = folder / "bot.log"
        self.run_first: Callable[[], None] | None = None
        self.bot: BotProcess
        self.kill_at = ""
        self.moments: list[str] = []
        self.on_moment: MomentHook | None = None
        self.end_video: Callable[[str], None] = self.service.finish
        self._now = clock.now
        self._read: set[str] = set()
        self._changed = asyncio.Event()
        self.port = 0
        relay = web.Application()
        relay.router.add_route("*", "/{path:.*}", self._relay)
        self._relay_server = Server(relay)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["LiveWorld"]:
        """Start the sandbox and the bot and stop them; raise if the bot logged a traceback."""
        leak_detector = LeakDetector(self, logs=[self.log_file])
        self.slack.on_request, self.service.on_request = self._on_slack, self._on_service
        leave = self.slack.subscribe(lambda _: self._changed.set())
        with self.database_there():
            for server in (self.slack, self.service, self._relay_server):
                await server.start()
            self.slack.request_url = f"{self._relay_server.url}/slack/events"
            try:
                await self.start_bot()
                await installed(self.address)
                yield self
            finally:
                await self.bot.kill()
                leave()
                for server in (self._relay_server, self.service, self.slack):
                    await server.stop()
            assert "Traceback" not in (logged := self.log_file.read_text()), logged
            leak_detector.check()

    def spawn_bot(self) -> BotProcess:
        """Start a process of the bot without waiting for it."""
        environ = environment_of(self.slack, self.service, self.database_setting) | self.settings
        if self.callbacks:
            environ["PUBLIC_URL"] = self._relay_server.url
        return BotProcess(environ, self.timings, self.log_file, self.run_first)

    async def start_bot(self) -> None:
        """Start the bot on the world's database and wait until it listens."""
        self.bot = self.spawn_bot()
        self.port = await self.bot.wait_until_listening()

    async def restart_killed_bot(self) -> None:
        """Wait until the bot was killed at ``kill_at``, and start it again."""
        await self.wait_until(lambda: not self.kill_at)
        assert await self.bot.wait() < 0
        await self.start_bot()

    async def wait_until(self, condition: Callable[[], object]) -> None:
        """Wait until ``condition`` is true, checked at each moment and change in Slack."""
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            seen = "\n".join(message.text for message in self.slack.messages("studio"))
            log = self.log_file.read_text()[-4000:]
            raise AssertionError(
                f"timed out after these moments: {self.moments}\n{seen}\n{log}"
            ) from None

    async def request_video(self, script: str = "Hello, world.") -> Modal:
        """Submit the video form as Ana and return it; it stays open if no answer came."""
        await self.ana.command("/video")
        form = self.ana.form
        await form.submit({"replica_id": REPLICA, "script": script})
        return form

    def card(self, script: str = "") -> Message | None:
        """Return the current card of the video with these words, or None."""
        cards = [message for message in self.slack.messages("studio") if script in message.text]
        assert len(cards) < 2
        return cards[0] if cards else None

    def card_says(self, words: str, script: str = "") -> bool:
        """Return whether the card contains these words."""
        card = self.card(script)
        return card is not None and words in card.text

    def replies(self, script: str = "") -> list[Message]:
        """Return the replies in the thread of the card, without questions."""
        return [m for m in self._thread(script) if not is_question(m)]

    def questions(self, script: str = "") -> list[Message]:
        """Return the questions in the thread of the card."""
        return [m for m in self._thread(script) if is_question(m)]

    def _thread(self, script: str) -> list[Message]:
        card = self.card(script)
        return self.slack.thread("studio", card.ts) if card is not None else []

    def edits(self) -> int:
        """Return how many edits were asked for."""
        return len([call for call in self.slack.calls if call.method == "chat.update"])

    def edits_done(self) -> int:
        """Return how many edits were carried out, late ones too."""
        return self.moments.count("after edit") + self.moments.count("after last edit")

    def posts(self) -> int:
        """Return how many cards and replies were posted in all conversations."""
        posts = [call for call in self.slack.calls if call.method == "chat.postMessage" and call.ok]
        return len([post for post in posts if role_of(delivery_key(post.arguments)) != "question"])

    def created_count(self, script: str = "") -> int:
        """Return how many videos with these words the service has created."""
        return len([video for video in self.service.videos.values() if script in video.script])

    async def stop_when_idle(self) -> None:
        """Stop the bot gracefully, and restart it until nothing in the database is due."""
        assert await self.bot.terminate() == 0
        while self._due():
            self.moments.clear()
            await self.start_bot()
            await self.wait_until(lambda: self.moments)
            assert await self.bot.terminate() == 0

    def _due(self) -> bool:
        return bool(
            self.query(
                "SELECT 1 FROM jobs WHERE due_at IS NOT NULL"
                " UNION ALL SELECT 1 FROM deliveries WHERE due_at IS NOT NULL"
            )
        )

    # ── Moments ───────────────────────────────────────────────────────────────────────────────────

    async def _at(self, moment: str, about: str = "") -> None:
        self.moments.append(moment)
        self._changed.set()
        if self.on_moment is not None:
            await self.on_moment(moment, about)
        if moment == self.kill_at:
            await self.bot.kill()
            self.kill_at = ""
            self._changed.set()
            raise web.HTTPServiceUnavailable

    async def _on_slack(self, phase: Phase, method: str, arguments: Json) -> None:
        text = str(arguments.get("text"))
        if method == "chat.postMessage":
            await self._at(f"{phase} {role_of(delivery_key(arguments))}", text)
        elif method == "chat.update":
            ended = "Ready" in text or "Failed" in text
            await self._at(f"{phase} {'last edit' if ended else 'edit'}", text)
        elif method in {"conversations.history", "conversations.replies"}:
            await self._at(f"{phase} search")
        elif method in FILE_STEPS:
            await self._at(f"{phase} {FILE_STEPS[method]}")

    async def _on_service(self, phase: Phase, operation: Operation, path: str) -> None:
        if operation == "create_video":
            body = self.service.requests[-1].body
            made = list(self.service.videos.values())[-1].script if phase == "after" else str(body)
            await self._at(f"{phase} create", made)
            return
        if operation == "read_replica":
            await self._at(f"{phase} look at the replica")
            return
        video = self.service.videos.get(path.rpartition("/")[2])
        if video is None:  # the harmless read of the start
            return
        going = video.ended(self._now()) is None
        if phase == "before" and going:
            if video.video_id in self._read and self.card_says("Rendering", video.script):
                self.end_video(video.video_id)
                going = False
            self._read.add(video.video_id)
        await self._at(f"{phase} {'read' if going else 'last read'}", video.script)

    async def _relay(self, request: web.Request) -> web.Response:
        """Forward a request to the bot, as the router of a host does."""
        body = await request.read()
        name = "submission" if b"view_submission" in body else "request"
        if request.path.startswith("/callbacks/"):
            name = "callback"
        await self._at(f"before {name}")
        answer = await forwarded(request, body, self.port, self.slack.session)
        await self._at(f"after {name}")
        return answer
