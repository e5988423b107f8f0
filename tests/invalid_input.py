"""A bot that invalid and unusual input is sent to, and the checks that it is unharmed."""

import asyncio
import contextlib
import copy
import hashlib
import hmac
import io
import itertools
import logging
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import pytest

from bot import log
from bot.timings import Timings
from sandbox.block_kit import Json
from sandbox.delivery import deliver
from sandbox.driver import Modal
from sandbox.scenarios import Pace
from sandbox.slack_objects import APP, TEAM
from tests.leaks import _secrets
from tests.tcp import Streams, connected
from tests.world import World

_HEAD: Final = "Host: bot.example.com\r\nConnection: close\r\n"
# In real time.
_RECEIVE_TIMEOUT: Final = timedelta(seconds=0.5)
_TIMEOUT_S: Final = 30.0
_LOOKUPS: Final = frozenset({"auth.test", "bots.info", "conversations.info", "users.info"})
_MAX_LOG_LINE: Final = 1000
FAST: Final = Pace(timedelta(0), timedelta(seconds=5), timedelta(seconds=5))
_STEP_S: Final = 0.02
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] [0-9]{3} ")


@dataclass(frozen=True)
class Response:
    """The response to an HTTP request."""

    status: int
    head: str
    body: str


class BotUnderTest:
    """A running bot, with ways to send it anything and checks that it came to no harm."""

    def __init__(self, world: World, logged: io.StringIO) -> None:
        self.world = world
        self._log = logged
        self._seen = 0
        self._calls = len(world.slack.calls)
        self._made = self._effects()

    @property
    def logged(self) -> str:
        """Return the log so far."""
        return self._log.getvalue()

    async def send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> Response:
        """Send a request exactly as given, which no HTTP client would do."""
        lines = [f"{method} {path} HTTP/1.1"]
        lines += [f"{name}: {text}" for name, text in headers.items()]
        if "Host" in headers:
            lines.append("Connection: close")
        else:
            lines += _HEAD.split("\r\n")[:-1]
        lines.append(f"Content-Length: {len(body)}")
        return parse_response(await self.exchange("\r\n".join([*lines, "", ""]).encode() + body))

    def connected(self) -> AbstractAsyncContextManager[Streams]:
        """Open a connection to the bot, and close it."""
        return connected(self.world.bot.port)

    async def exchange(
        self, content: bytes, *, later: bytes = b"", drip: bytes = b"", disconnects: bool = False
    ) -> bytes:
        """Open a connection, send, and return all that is received until the bot closes it.

        Args:
            content: what is sent first.
            later: what is sent after a moment.
            drip: what is sent then, again and again.
            disconnects: close the connection when all is sent.
        """
        received = bytearray()

        async def listen(reader: asyncio.StreamReader) -> None:
            with contextlib.suppress(ConnectionError):
                while chunk := await reader.read(1 << 16):
                    received.extend(chunk)

        async def talk(writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                writer.write(content)
                await writer.drain()
                if later:
                    await asyncio.sleep(_STEP_S)
                    writer.write(later)
                while drip:
                    writer.write(drip)
                    await asyncio.sleep(_STEP_S)

        async with asyncio.timeout(_TIMEOUT_S), self.connected() as (reader, writer):
            talking = asyncio.ensure_future(talk(writer))  # noqa: TID251 - ended below
            try:
                await (talking if disconnects else listen(reader))
            finally:
                talking.cancel()
        return bytes(received)

    async def check_unchanged(self, answer: str = "", slack_calls: Sequence[str] = ()) -> None:
        """Check that the bot works, has had no effect, and has logged nothing unusual.

        Args:
            answer: what it answered last.
            slack_calls: the methods of Slack that it has called since the last check, without
                those by which it looks up people and channels.
        """
        await self.check_works(answer)
        calls = self.world.slack.calls[self._calls :]
        self._calls += len(calls)
        called = [call.method for call in calls if call.method not in _LOOKUPS]
        made, self._made = self._made, self._effects()
        assert called == list(slack_calls)
        assert self._made == made, "something was created or posted"

    async def check_works(self, answer: str = "") -> None:
        """Check that the bot works and has logged nothing unusual."""
        await self.world.settle()
        self.check_log(answer)
        assert (await self.send("GET", "/healthz", {}, b"")).body == "ok"
        good = await deliver(self.world.slack, command(self.world, "help"))
        assert good.ok
        assert "open the form" in good.body

    def check_log(self, answer: str = "") -> None:
        """Check the log since the last check: no traceback, no secret, no long line."""
        logged = self.logged[self._seen :]
        self._seen += len(logged)
        assert "Traceback" not in logged, logged
        assert "***" not in logged, logged
        assert max(map(len, logged.splitlines()), default=0) < _MAX_LOG_LINE
        for mark in _secrets(self.world):
            assert not mark.is_in(answer), f"{mark.description} is in the answer"
            assert not mark.is_in(logged), f"{mark.description} is in the log"

    def _effects(self) -> tuple[int, ...]:
        """Return the numbers of create calls and of posts."""
        creates = [
            *self.world.requests_for("create_video"),
            *self.world.requests_for("create_replica"),
        ]
        return (len(creates), len(self.world.posts()))


def parse_response(received: bytes) -> Response:
    head, _, body = received.decode("latin-1").partition("\r\n\r\n")
    words = head.split(maxsplit=2)
    return Response(int(words[1]) if len(words) > 1 else 0, head, body)


def command(world: World, text: str, name: str = "/video", raw: str = "") -> bytes:
    """Return the body of a command as Slack sends it, with ``raw`` after the text."""
    channel, user = world.slack.channel("studio"), world.ana.user
    form = {
        "command": name,
        "user_id": user.id,
        "channel_id": channel.id,
        "response_url": world.slack.new_response_url(user.id, channel.id),
        "trigger_id": world.slack.new_trigger(user.id, channel.id),
        "team_id": TEAM,
        "api_app_id": APP,
        "text": text,
    }
    return (urlencode(form) + raw).encode()


def signature_of(secret: str, stamp: str, body: bytes) -> str:
    base = b":".join([b"v0", stamp.encode(), body])
    return "v0=" + hmac.new(secret.encode(), base, hashlib.sha256).hexdigest()


_NUMBERS: Final = itertools.count()


def submitted_view(form: Modal) -> Json:
    """Return the view of a submission, with an id of its own as if the form was opened again."""
    view: Json = copy.deepcopy(form.view.payload())
    view["id"] = view["root_view_id"] = f"V0{next(_NUMBERS)}"
    return view


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """Return the log as the bot writes it, but without masking any secrets."""
    monkeypatch.setattr(logging.root, "handlers", [])
    loggers = [logging.root, *map(logging.getLogger, log._LIBRARY_LEVELS)]
    levels = [logger.level for logger in loggers]
    stream = io.StringIO()
    log.configure(stream, "INFO")
    yield stream
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.fixture
async def bot(memory: Path, logged: io.StringIO) -> AsyncIterator[BotUnderTest]:
    """A bot of which ana is an admin: her ids of all sorts reach the service."""
    world = World(memory)
    admin = world.ana.user.id
    async with world.running_sandbox(), world.running_bot(ADMIN_USERS=admin):
        yield BotUnderTest(world, logged)


@pytest.fixture
async def impatient_bot(memory: Path, logged: io.StringIO) -> AsyncIterator[BotUnderTest]:
    """A bot with short time limits for what does not come."""
    world = World(memory, Timings(jitter=0, receive_timeout=_RECEIVE_TIMEOUT))
    async with world.running_sandbox(), world.running_bot():
        yield BotUnderTest(world, logged)
