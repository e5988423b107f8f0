"""A bot, a Slack and a video service that talk over real HTTP, under a manual clock."""

import asyncio
import contextlib
import json
import os
import random
import tempfile
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

from bot.app import FEATURES, Bot, running
from bot.settings import Settings
from bot.slack.context import Feature
from bot.timings import Clock, Timings
from sandbox import events
from sandbox.clock import ManualClock
from sandbox.delivery import balanced_to
from sandbox.driver import Modal, Person
from sandbox.faults import CannedResponse, Reset
from sandbox.http import free_port
from sandbox.running import APP
from sandbox.scenarios import CallbackPlan, Scenario
from sandbox.slack import Call, SandboxSlack
from sandbox.slack_objects import Message
from sandbox.video_service import Operation, Request, SandboxVideoService
from tests.databases import HasDatabase, migrate
from tests.leaks import LeakDetector
from tests.modes import bot_with
from tests.notifications import Notifications
from tests.watched_clock import WatchedClock

_T = TypeVar("_T")

REPLICA = "r-anna-42"
#: What a test sets that sends more than the defaults allow.
NO_LIMITS: Final = {
    "MAX_OPEN_PER_USER": "1000000",
    "MAX_PER_USER_PER_DAY": "1000000",
    "MAX_PER_DAY": "1000000",
}
FOOTAGE = "https://storage.example.com/anna.mp4?X-Amz-Signature=4f00ta9e"

_START_CHECK: Final = "/v2/videos/is-anyone-there"
_MAX_START_CHECK_S: Final = 5.0
#: How long Slack waits for an answer: longer than its own time, as this is real time and a busy
#: machine may need it. Tests in which something does not answer in time set Slack's own.
PATIENCE: Final = timedelta(seconds=20)
_SHARED_MEMORY: Final = Path("/dev/shm")
#: For folders that need no disk; None means the default folder for temporary files.
MEMORY: Final = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else None


class World(HasDatabase):
    """A Slack, a video service, a clock and the bot, which ``running_bot`` starts and stops.

    With ``socket_mode``, the bot is started without a signing secret and opens a connection.
    """

    def __init__(self, folder: Path, timings: Timings | None = None) -> None:
        self.clock = ManualClock()
        self.bot_clock: Clock = self.clock
        self.slack = SandboxSlack(self.clock)
        self.slack.response_timeout = self.slack.socket_mode.response_timeout = PATIENCE
        self.slack.app = APP
        events.follow(self.slack)
        self.service = SandboxVideoService(self.clock)
        self.service.add_replica(REPLICA, "Anna")
        self.timings = timings or Timings(jitter=0)
        self.pauses: Mapping[str, Any] = {
            # Few tests need these waits, which are in real time.
            **dict.fromkeys(("claim_interval", "request_pause", "report_max_age"), timedelta(0)),
            # Most tests ask for the same video again and again, some with the clock set back.
            "same_within": timedelta(days=-400),
            # In real time: a busy machine may need longer for an answer.
            "name_timeout": PATIENCE,
            # Few change memory behind the bot's back or set its clock, and many let days pass.
            "memory_interval": timedelta(minutes=10),
            "sweep_interval": timedelta(hours=1),
        }
        self.socket_mode = False
        self.database = folder / "bot.db"
        self.ana = Person(self.slack, "ana")
        self.ben = Person(self.slack, "ben")
        self.bot: Bot
        self.operator: dict[str, str]
        """The headers with which /readyz says everything."""
        self._running_bots = list[Bot]()
        self._notifications = Notifications()

    @contextlib.asynccontextmanager
    async def running_sandbox(self) -> AsyncIterator[None]:
        """Start the sandbox's servers and stop them; raise if anything secret got out."""
        leak_detector = LeakDetector(self)
        self.clock.settles_with(lambda: self._notifications.received(self._running_bots))
        with self.database_there():
            await self.slack.start()
            await self.service.start()
            try:
                yield
            finally:
                await self.service.stop()
                await self.slack.stop()
            leak_detector.check()

    @contextlib.asynccontextmanager
    async def running_bot(
        self, *, callbacks: bool = True, features: Sequence[Feature] = FEATURES, **changed: str
    ) -> AsyncIterator[Bot]:
        """Start the bot on its database with these settings, and stop it at the end."""
        if self.postgres_url is None and not self.database.exists():
            self.database.write_bytes(await _empty_database())
        # The public URL needs the port before the bot listens on one.
        port = str(free_port())
        values = self.environment(port, callbacks=callbacks) | changed
        settings = Settings.read(values)
        self.operator = {"Authorization": f"Bearer {settings.report_token}"}
        before = len(self.service.requests)
        opened = self.slack.socket_mode.opened
        clock = WatchedClock(self.bot_clock)
        async with running(
            settings,
            clock=clock,
            timings=replace(self.timings, **self.pauses),
            rng=random.Random(1),  # noqa: S311 - for jitter
            features=features,
        ) as self.bot:
            if "SLACK_APP_TOKEN" in values:
                self.slack.socket_mode.enabled = True
                # That of a bot before may not have ended yet.
                await self.slack.socket_mode.reached(
                    opened=opened + 1, connections=len(self._running_bots) + 1
                )
            else:
                self.slack.request_url = f"http://127.0.0.1:{self.bot.port}/slack/events"
            await self._let_start_checks_end(clock, before)
            bot = self.bot
            leave = self.clock.settles_with(lambda: clock.bot_settled(bot))
            self._running_bots.append(bot)
            try:
                yield bot
            finally:
                self._running_bots.remove(bot)
                leave()

    @contextlib.asynccontextmanager
    async def running_copies(self, number: int = 2, /, **settings: str) -> AsyncIterator[list[Bot]]:
        """Start several copies of the bot on one PostgreSQL database; see ``at``.

        A request that is not sent with ``at`` reaches the last one. The callback of what one has
        created reaches the next one.
        """
        ports = [str(free_port()) for _ in range(number)]
        async with contextlib.AsyncExitStack() as stack:
            copies = []
            for own, other in zip(ports, [*ports[1:], ports[0]], strict=True):
                callbacks_to = f"http://127.0.0.1:{other}"
                values: dict[str, Any] = {"PORT": own, "PUBLIC_URL": callbacks_to, **settings}
                copies.append(await stack.enter_async_context(self.running_bot(**values)))
            yield copies

    async def at(self, copy: Bot, action: Awaitable[_T]) -> _T:
        """Await something that a person does, whose requests reach this copy."""
        with balanced_to(f"http://127.0.0.1:{copy.port}/slack/events"):
            return await action

    async def _let_start_checks_end(self, clock: WatchedClock, before: int) -> None:
        """Wait for the checks of the start, and forget the harmless read: it is in no story."""
        with contextlib.suppress(TimeoutError):  # of a side that does not answer
            async with asyncio.timeout(_MAX_START_CHECK_S):
                await self.bot._background.settled()
                names = ["check of the video service"]
                await clock.settled(lambda: clock.busy_parts(self.bot, names))
        requests = self.service.requests
        requests[before:] = [each for each in requests[before:] if each.path != _START_CHECK]

    def environment(self, port: str, *, callbacks: bool = True) -> dict[str, str]:
        """Return the environment variables of a bot in this world."""
        values = environment_of(self.slack, self.service, self.database_setting, port)
        if self.socket_mode:
            del values["SLACK_SIGNING_SECRET"]
            values["SLACK_APP_TOKEN"] = self.slack.socket_mode.app_token
        if callbacks:
            values["PUBLIC_URL"] = f"http://127.0.0.1:{port}"
        return values

    def settings_of(self, request: pytest.FixtureRequest) -> dict[str, Any]:
        """Return the settings with which a test is marked; see ``tests.modes.bot_with``."""
        marked = request.node.get_closest_marker(bot_with.name)
        ids = {name: self.slack.user(name).id for name in ("ana", "ben", "cleo")}
        return {
            name: value.format_map(ids) if isinstance(value, str) else value
            for name, value in (marked.kwargs if marked else {}).items()
        }

    async def make_by_hand(self, script: str, scenario: Scenario | None = None) -> str:
        """Create a video at the service past the bot; return its id."""
        if scenario is not None:
            self.service.next_video(scenario)
        async with self.slack.session.post(
            f"{self.service.url}/v2/videos",
            json={"script": script, "replica_id": REPLICA},
            headers={"x-api-key": self.service.api_key},
        ) as answer:
            return str((await answer.json())["video_id"])

    async def advance(self, **duration: float) -> None:
        """Move the clock ahead, and let the bot do all that becomes due meanwhile."""
        await self.clock.advance(timedelta(**duration))

    async def settle(self) -> None:
        """Wait until the bot has nothing left to do now."""
        await self.clock.settle()

    async def after(self, action: Awaitable[_T], **duration: float) -> _T:
        """Await something that a person does, and what the bot does then; return its response."""
        response = await action
        await (self.advance(**duration) if duration else self.settle())
        return response

    async def open_form(
        self, person: Person, text: str = "", channel: str = "studio", command: str = "/video"
    ) -> Modal:
        """Type the command and return the form that it opened."""
        answer = await person.command(command, text, channel)
        assert answer.ok
        return person.form

    async def submit_form(
        self,
        person: Person,
        values: Mapping[str, Any],
        text: str = "",
        channel: str = "studio",
        command: str = "/video",
    ) -> Modal:
        """Open a form, submit it once with these values, and return it, accepted or not."""
        form = await self.open_form(person, text, channel, command)
        await form.submit(values)
        return form

    async def open_form_and_remove_bot(
        self, person: Person, channel: str = "vault", command: str = "/video"
    ) -> Modal:
        """Open a form in a private channel that the bot is removed from before it is submitted.

        Otherwise the form is refused: the bot has to be in a private channel to post there.
        """
        self.slack.change_channel(channel, with_bot=True)
        form = await self.open_form(person, channel=channel, command=command)
        await self.settle()
        self.slack.change_channel(channel, with_bot=False)
        return form

    async def request_video(
        self, person: Person, values: Mapping[str, Any] | None = None, channel: str = "studio"
    ) -> Message:
        """Submit the video form and return the card as it was first posted."""
        form = await self.open_form(person, channel=channel)
        typed = {"replica_id": REPLICA, "script": "Hello, world.", **(values or {})}
        return await self._submit(form, typed, channel)

    async def request_replica(
        self, person: Person, values: Mapping[str, Any] | None = None, channel: str = "studio"
    ) -> Message:
        """Submit the replica form and return the card as it was first posted."""
        form = await self.open_form(person, channel=channel, command="/replica")
        typed = {"train_video_url": FOOTAGE, "agreed": ["yes"], **(values or {})}
        return await self._submit(form, typed, channel)

    async def loses_create(self, *, made: bool = True, **typed: Any) -> Message:  # noqa: ANN401 - as in a form
        """Have a create call of Ana's lose its answer; return the card that asks her about it."""
        self.service.callback_plan = CallbackPlan(times=0)
        self.service.faults.next("create_video", Reset(done=made))
        card = await self.request_video(self.ana, typed)
        await self.advance(minutes=16)
        assert "Needs an answer" in self.now(card).text
        return self.now(card)

    async def _submit(self, form: Modal, typed: Mapping[str, Any], channel: str) -> Message:
        before = {message.ts for message in self.slack.messages(channel)}
        await form.submit(typed)
        assert not form.is_open, form.errors
        await self.settle()
        if {message.ts for message in self.slack.messages(channel)} <= before:
            await self.card_time()
        [card] = [m for m in self.slack.messages(channel) if m.ts not in before]
        return card

    def creates_slowly(self) -> None:
        """Have the service take the next video two seconds late: its card is there before."""
        waits = CannedResponse(429, "", {"Retry-After": "2"})
        self.service.faults.next("create_video", waits)

    async def card_time(self) -> None:
        """Let the cards be posted of requests that have not changed since they were made."""
        await self.clock.advance(self.timings.card_delay)

    async def details(self, person: Person, card: Message) -> "Details":
        """Open the details of a card's job, close them, and return what they say."""
        answer = await person.click(self.now(card), "Details")
        assert answer.ok
        shown = Details(person.form.view.body)
        await person.form.close()
        return shown

    def last_replica_id(self) -> str:
        """Return the id of the replica that the service created last."""
        return list(self.service.replicas)[-1]

    def now(self, message: Message) -> Message:
        """Return a message in its current version."""
        found = self.slack.find(message.channel, message.ts)
        assert found is not None
        return found

    def replies(self, card: Message) -> list[Message]:
        """Return the replies in the thread of a card, without questions."""
        thread = self.slack.thread(card.channel, card.ts)
        return [m for m in thread if m.ts != card.ts and not is_question(m)]

    def reply(self, card: Message) -> Message:
        """Return the reply in the thread of a card: there is one."""
        [reply] = self.replies(card)
        return reply

    def questions(self, card: Message) -> list[Message]:
        """Return what the person was asked about the job of a card, wherever, oldest first."""
        job = delivery_of(card).partition("/")[0]
        asked = [m for m in self.posts() if is_question(m)]
        return [m for m in asked if delivery_of(m).partition("/")[0] == job]

    def question(self, card: Message) -> Message:
        """Return the open question about the job of a card: there is one."""
        [asked] = [m for m in self.questions(card) if "I found it" in str(m.blocks)]
        return asked

    def posts(self) -> list[Message]:
        """Return the bot's messages in all conversations, oldest first; no ephemerals."""
        everything = [
            message
            for channel in self.slack.channels
            for top in self.slack.messages(channel)
            for message in {m.ts: m for m in [top, *self.slack.thread(channel, top.ts)]}.values()
        ]
        return sorted((m for m in everything if m.is_from_bot), key=lambda m: m.ts)

    def created_count(self) -> int:
        """Return how many videos the service has created."""
        return len(self.service.videos)

    def requests_for(self, operation: Operation) -> list[Request]:
        """Return the service's requests for one operation, oldest first."""
        return [request for request in self.service.requests if request.operation == operation]

    def calls(self, method: str) -> list[Call]:
        """Return the calls of one Slack method, oldest first."""
        return [call for call in self.slack.calls if call.method == method]

    def ephemerals(self, person: Person, channel: str = "studio") -> list[str]:
        """Return the texts that only this person sees in a channel, oldest first."""
        return [message.text for message in self.slack.ephemerals(person.user.id, channel)]


_empty: Final = list[bytes]()


async def _empty_database() -> bytes:
    """Return a file with all tables, made once: to migrate takes longer than many tests."""
    if not _empty:
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
            path = Path(folder) / "bot.db"
            await migrate(path)
            _empty.append(path.read_bytes())
    return _empty[0]


def environment_of(
    slack: SandboxSlack, service: SandboxVideoService, database: str, port: str = "0"
) -> dict[str, str]:
    """Return the environment variables of a bot between these, which no limits hold up."""
    return {
        "SLACK_BOT_TOKEN": slack.bot_token,
        "SLACK_SIGNING_SECRET": slack.signing_secret,
        "SLACK_API_URL": slack.api_url,
        "VIDEO_API_URL": service.url,
        "VIDEO_API_KEY": service.api_key,
        "DATABASE_URL": database,
        "HOST": "127.0.0.1",
        "PORT": port,
        **NO_LIMITS,
    }


def delivery_of(message: Message) -> str:
    """Return ``<job>/<role>`` from the metadata of a message of the bot; "" without any."""
    payload = (message.metadata or {}).get("event_payload", {})
    return str(payload.get("message", ""))


def is_question(message: Message) -> bool:
    """Return whether a message asks if a create call made something, or did once."""
    return "/question-" in delivery_of(message)


class Details:
    """A modal that is only read."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.body = body

    @property
    def text(self) -> str:
        """Its rich texts, a line for each paragraph."""
        return "\n".join(_paragraphs(self.body["blocks"]))

    def __str__(self) -> str:
        return json.dumps(self.body, ensure_ascii=False)


def _paragraphs(elements: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for each in elements:
        if all("elements" in inner for inner in each["elements"]):
            yield from _paragraphs(each["elements"])
        else:
            yield "".join(
                inner.get("text", inner.get("fallback", "")) for inner in each["elements"]
            )


def number_of(card: Message) -> str:
    """Return the id of a job from its card."""
    [number] = [each["value"] for each in buttons_of(card.blocks) if _label(each) == "Details"]
    return str(number)


def buttons_of(blocks: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the buttons among some blocks, and what menus with dots offer."""
    found = [each for block in blocks for each in block.get("elements", [])]
    return [
        button
        for each in found
        for button in ([each] if each.get("type") == "button" else _offered(each))
    ]


def labels(message: Message) -> list[str]:
    """Return the labels of a message's buttons."""
    return [_label(each) for each in buttons_of(message.blocks)]


def _label(button: Mapping[str, Any]) -> str:
    return str(button["text"]["text"])


def _offered(menu: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    options = menu["options"] if menu.get("type") == "overflow" else []
    return [{**option, "action_id": menu["action_id"]} for option in options]


async def offered_ids(form: Modal, query: str = "") -> list[str]:
    """Return the ids that the replica picker of a form offers."""
    return [option["value"] for option in await form.suggest("replica_id", query)]
