"""The bot on a stage: a short story told in the terminal, or a page to use it on."""

import asyncio
import contextlib
import signal
import tempfile
import threading
import webbrowser
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final, TextIO

from bot.app import running
from bot.clock import Clock, SystemClock
from bot.settings import Settings
from bot.timings import PollSchedule, Timings
from sandbox import tour
from sandbox.clock import TrailingClock
from sandbox.driver import Person
from sandbox.http import free_port
from sandbox.page.server import PORT, Page
from sandbox.slack import SandboxSlack
from sandbox.transcript import Narrator
from sandbox.video_service import CallbackPlan, Pace, SandboxVideoService, Scenario
from sandbox.workspace import App, Event, Message, SlashCommand

_PATIENCE: Final = PollSchedule(
    first_interval=timedelta(seconds=1),
    growth=0.2,
    max_interval=timedelta(seconds=2),
    late_after=timedelta(seconds=20),
    overdue_after=timedelta(minutes=1),
    overdue_interval=timedelta(seconds=5),
    give_up_after=timedelta(hours=1),
)
TIMINGS: Final = Timings(
    minutes=_PATIENCE,
    hours=_PATIENCE,
    retry_interval=timedelta(milliseconds=200),
    reconcile_within=timedelta(seconds=8),
    post_hold=timedelta(seconds=2),
    callback_spacing=timedelta(milliseconds=200),
)
# The sandbox keeps the same time: a person does something about as often as a job is looked at.
_BREATH: Final = _PATIENCE.first_interval
_PACE: Final = Pace(
    queued=_PATIENCE.first_interval,
    generating=2 * _PATIENCE.first_interval,
    training=3 * _PATIENCE.first_interval,
    training_steps=3,
)
_ENOUGH: Final = _PATIENCE.overdue_after

# On the page a person watches: long enough to see how things move, short enough to wait for.
_PAGE_PATIENCE: Final = PollSchedule(
    first_interval=timedelta(seconds=1),
    growth=0.1,
    max_interval=timedelta(seconds=2),
    late_after=timedelta(minutes=1),
    overdue_after=timedelta(minutes=3),
    overdue_interval=timedelta(seconds=5),
    give_up_after=timedelta(hours=1),
)
_PAGE_TIMINGS: Final = Timings(
    minutes=_PAGE_PATIENCE,
    hours=_PAGE_PATIENCE,
    call_timeout=timedelta(seconds=10),
    retry_interval=timedelta(milliseconds=500),
    reconcile_within=timedelta(seconds=10),
    recheck_key=timedelta(seconds=5),
    recheck_credit=timedelta(seconds=10),
    post_hold=timedelta(seconds=3),
    pause=timedelta(seconds=5),
    callback_spacing=timedelta(milliseconds=200),
)
_PAGE_PACE: Final = Pace(
    queued=timedelta(seconds=3),
    generating=timedelta(seconds=12),
    training=timedelta(seconds=40),
    training_steps=20,
)

#: What the app's manifest tells Slack; a test holds the two together.
APP: Final = App(
    "Replica Videos",
    (
        SlashCommand(
            "/video", "Make a video from a script", "[script] | list | status <id> | help"
        ),
        SlashCommand(
            "/replica",
            "Train a replica from footage, and choose among those there are",
            "list | status <id> | add <id> | default <id> | help",
        ),
    ),
    takes_messages=False,
)
_REPLICA: Final = "r-anna"
# Browsers that would take over the terminal.
_IN_TERMINAL: Final = frozenset({"elinks", "links", "lynx", "w3m", "www-browser"})
_STORY: Final = 5  # three videos, a training, and a video with what was trained


@dataclass(frozen=True, slots=True)
class Stage:
    """Where the story plays: a Slack, a video service and the bot between them."""

    slack: SandboxSlack
    service: SandboxVideoService
    bot_url: str


async def play(out: TextIO) -> int:
    """Tell the story on ``out`` and return an exit code."""
    async with _stage(SystemClock(), _PACE, TIMINGS) as stage:
        print(_PROGRAMME.format(slack=stage.slack, service=stage.service), file=out, flush=True)
        narrator = Narrator(stage.slack, out)
        try:
            async with asyncio.timeout(_ENOUGH.total_seconds()):
                await _story(stage)
        except TimeoutError:
            print("The story did not come to its end: something is wrong.", file=out)
            return 1
        narrator.stop()
    return 0


async def show(out: TextIO, *, port: int | None, browser: bool) -> int:
    """Serve the page until the process is asked to end, and return an exit code.

    Args:
        out: is told where the page is.
        port: where to listen, or on one of the next ports; None for the usual one.
        browser: whether to open it in the person's browser.
    """
    ended = _asked_to_end()
    clock = TrailingClock(SystemClock(), tour.AGO)
    async with _stage(clock, _PAGE_PACE, _PAGE_TIMINGS) as stage:
        page = Page(stage.slack, stage.service, stage.bot_url)
        await page.start(port or PORT)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ENOUGH.total_seconds()):
                    await tour.begin(stage.slack, stage.service, _REPLICA, clock)
            is_there = port is None or page.url.endswith(f":{port}")
            opening = "Open" if is_there else f"Port {port} is taken: open"
            print(_SHOWN.format(opening=opening, page=page, stage=stage), file=out, flush=True)
            if browser:
                # Some browsers keep the caller waiting: nobody else needs to.
                threading.Thread(target=_open, args=(page.url,), daemon=True).start()
            await ended.wait()
        finally:
            await page.stop()
    return 0


def _open(url: str) -> None:
    with contextlib.suppress(webbrowser.Error):
        found = webbrowser.get()
        if getattr(found, "name", "") not in _IN_TERMINAL:
            found.open(url)


def _asked_to_end() -> asyncio.Event:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    return ended


@contextlib.asynccontextmanager
async def _stage(clock: Clock, pace: Pace, timings: Timings) -> AsyncIterator[Stage]:
    slack, service = SandboxSlack(clock), SandboxVideoService(clock, pace=pace)
    slack.app = APP
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
            async with running(settings, clock=clock, timings=timings):
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
    stage.service.next_video(Scenario(callback_plan=CallbackPlan(times=0)))
    await _ask(ben, "Our numbers for the third quarter, in one minute.")
    await _breathe()
    reason = "The script contains a name that this replica may not say."
    stage.service.next_video(Scenario(end="error", reason=reason))
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

    def _note(self, event: Event) -> None:
        message = event.message
        if event.kind == "posted" and message is not None and message.thread_ts:
            self._replies.append(message)
            self._news.set()


_PROGRAMME: Final = """\
The real bot, with a Slack and a video service that run on this machine only:
  Slack          {slack.url}
  video service  {service.url}
What follows is what this Slack received, as the people in it see it.
"""
_SHOWN: Final = """\
{opening} {page.url} in a browser: a sandbox to use the bot in, as one would in Slack.
Everything in it runs on this machine only; Ctrl-C ends it, and nothing is kept.

  the bot        {stage.bot_url}
  Slack          {stage.slack.url}
  video service  {stage.service.url}
"""
