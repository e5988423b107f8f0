"""A short story in which people ask for videos and train a replica, told by the sandbox's Slack."""

import asyncio
import contextlib
import signal
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final, TextIO

from bot.app import running
from bot.clock import SystemClock
from bot.model import Patience, Timings
from bot.sandbox.driver import Person
from bot.sandbox.http import free_port
from bot.sandbox.slack import SandboxSlack
from bot.sandbox.transcript import Narrator
from bot.sandbox.video_service import CallbackPlan, Fate, Pace, SandboxVideoService
from bot.sandbox.workspace import Happening, Message
from bot.settings import Settings

_PATIENCE: Final = Patience(
    first=timedelta(seconds=1),
    growth=0.2,
    longest=timedelta(seconds=2),
    soft=timedelta(seconds=20),
    hard=timedelta(minutes=1),
    rare=timedelta(seconds=5),
    end=timedelta(hours=1),
)
TIMINGS: Final = Timings(
    minutes=_PATIENCE,
    hours=_PATIENCE,
    retry=timedelta(milliseconds=200),
    heal=timedelta(seconds=8),
    post_hold=timedelta(seconds=2),
    callback_spacing=timedelta(milliseconds=200),
)
# The sandbox keeps the same time: a person does something about as often as a job is looked at.
_BREATH: Final = _PATIENCE.first
_PACE: Final = Pace(
    queued=_PATIENCE.first,
    generating=2 * _PATIENCE.first,
    training=3 * _PATIENCE.first,
    training_steps=3,
)
_ENOUGH: Final = _PATIENCE.hard

_REPLICA: Final = "r-anna"
_STORY: Final = 5  # three videos, a training, and a video with what was trained


@dataclass(frozen=True, slots=True)
class Stage:
    """Where the story plays: a Slack, a video service and the bot between them."""

    slack: SandboxSlack
    service: SandboxVideoService
    bot_url: str


async def play(out: TextIO, *, keep: bool) -> int:
    """Tell the story on ``out`` and return an exit code; ``keep`` everything running after it."""
    async with _stage() as stage:
        print(_PROGRAMME.format(slack=stage.slack, service=stage.service), file=out, flush=True)
        narrator = Narrator(stage.slack, out)
        try:
            async with asyncio.timeout(_ENOUGH.total_seconds()):
                await _story(stage)
        except TimeoutError:
            print("The story did not come to its end: something is wrong.", file=out)
            return 1
        if keep:
            print(_KEPT.format(stage=stage), file=out, flush=True)
            await _asked_to_end()
        narrator.stop()
    return 0


async def _asked_to_end() -> None:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await ended.wait()


@contextlib.asynccontextmanager
async def _stage() -> AsyncIterator[Stage]:
    clock = SystemClock()
    slack, service = SandboxSlack(clock), SandboxVideoService(clock, pace=_PACE)
    service.add_replica(_REPLICA, "Anna")
    await slack.start()
    await service.start()
    port = free_port()
    bot_url = f"http://127.0.0.1:{port}"
    slack.request_url = f"{bot_url}/slack/events"
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings.read(
            {
                "SLACK_BOT_TOKEN": slack.bot_token,
                "SLACK_SIGNING_SECRET": slack.signing_secret,
                "SLACK_API_URL": slack.api_url,
                "VIDEO_API_URL": service.url,
                "VIDEO_API_KEY": service.api_key,
                "PUBLIC_URL": bot_url,
                "DATABASE_URL": f"sqlite:///{Path(folder) / 'bot.db'}",
                "HOST": "127.0.0.1",
                "PORT": str(port),
            }
        )
        try:
            async with running(settings, clock=clock, timings=TIMINGS):
                yield Stage(slack, service, bot_url)
        finally:
            await service.stop()
            await slack.stop()


async def _story(stage: Stage) -> None:
    """Play it: a mistake, four endings of videos, and a training that leads to the last of them."""
    ana, ben = Person(stage.slack, "ana"), Person(stage.slack, "ben")
    ended = _Endings(stage.slack, _STORY)

    await _ask(ana, "Welcome to the team, Kim!", background="http://localhost/office")
    await _breathe()
    # A mistake was under the link: Ana mends it, and nothing else has to be typed again.
    if (form := ana.modal) is not None:
        await form.submit({"background_url": "https://example.com/office"})
    await _breathe()
    stage.service.next_video(Fate(callback_plan=CallbackPlan(times=0)))
    await _ask(ben, "Our numbers for the third quarter, in one minute.")
    await _breathe()
    reason = "The script contains a name that this replica may not say."
    stage.service.next_video(Fate(end="error", reason=reason))
    await _ask(ana, "A few words on our competitors.")
    await _breathe()
    await _train(ben, "Ben")
    trained = await ended.of(ben, 2)
    await _breathe()
    await ben.click(trained, "Make a video with it")
    if (form := ben.modal) is not None:
        await form.submit({"script": "This is me, and I did not have to say it."})
    await ended.wait()


async def _ask(person: Person, script: str, background: str = "") -> None:
    await person.command("/video", script, "studio")
    if (form := person.modal) is None:
        return
    await _breathe()
    values = {"replica_id": _REPLICA}
    if background:
        await form.choose("background", "background_url")
        values["background_url"] = background
    await form.submit(values)


async def _train(person: Person, name: str) -> None:
    await person.command("/replica", "", "studio")
    if (form := person.modal) is not None:
        await _breathe()
        footage = "https://storage.example.com/ben.mp4"
        await form.submit({"train_video_url": footage, "replica_name": name, "agreed": ["yes"]})


async def _breathe() -> None:
    await asyncio.sleep(_BREATH.total_seconds())


class _Endings:
    """The closing replies: messages of the bot in a thread."""

    def __init__(self, slack: SandboxSlack, expected: int) -> None:
        self._expected = expected
        self._replies: list[Message] = []
        self._news = asyncio.Event()
        slack.subscribe(self._note)

    async def wait(self) -> None:
        """Return when all are there."""
        while len(self._replies) < self._expected:
            await self._next()

    async def of(self, person: Person, number: int) -> Message:
        """Return the so-manieth closing reply to a person, once it is there."""
        while True:
            its = [reply for reply in self._replies if person.user.id in reply.pings]
            if len(its) >= number:
                return its[number - 1]
            await self._next()

    async def _next(self) -> None:
        self._news.clear()
        await self._news.wait()

    def _note(self, happening: Happening) -> None:
        message = happening.message
        if happening.kind == "posted" and message is not None and message.thread_ts:
            self._replies.append(message)
            self._news.set()


_PROGRAMME: Final = """\
The real bot, with a Slack and a video service that run on this machine only:
  Slack          {slack.url}
  video service  {service.url}
What follows is what this Slack received, as the people in it see it.
"""
_KEPT: Final = """\
Everything is left running; Ctrl-C ends it.
  the bot        {stage.bot_url}  (/slack/events, /callbacks/…, /healthz, /readyz)
  Slack          {stage.slack.url}  (its Web API below /api/)
  video service  {stage.service.url}  (its interface below /v2/, its videos below /watch/)
"""
