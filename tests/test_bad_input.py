"""Rubbish at every door: whatever comes, it is answered calmly, changes nothing, and is not logged.

The cases are data: tests/data/bad_*.toml, each with its name and what is to come of it.
"""

import asyncio
import contextlib
import copy
import gzip
import hashlib
import hmac
import io
import itertools
import json
import logging
import re
import tomllib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import urlencode

import pytest

from bot import log
from bot.timings import Timings
from sandbox.block_kit import Json
from sandbox.delivery import button_action, deliver, encoded, find_button, interact, interaction
from sandbox.driver import Modal
from sandbox.faults import CannedResponse
from sandbox.scenarios import CallbackPlan, Pace
from sandbox.slack_objects import Message
from tests.leaks import _secrets
from tests.world import FOOTAGE, REPLICA, World

_T = TypeVar("_T")
_DATA: Final = Path(__file__).with_name("data")
_FORM: Final = "application/x-www-form-urlencoded"
_HEAD: Final = "Host: bot.example.com\r\nConnection: close\r\n"
# What does not come within this, in real time, is ended by the front door.
_ARRIVES: Final = timedelta(seconds=0.5)
_LONG: Final = 10.0
_LONGEST_LINE: Final = 1000
SOON: Final = Pace(timedelta(0), timedelta(seconds=5), timedelta(seconds=5))
_STEP: Final = 0.02
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] [0-9]{3} ")


class Named(Protocol):
    """A case of the corpus, of whatever sort."""

    @property
    def name(self) -> str:
        """Say what is wrong with it."""


def cases(file: str, table: str, kind: Callable[..., _T]) -> list[_T]:
    """Return the cases of one table of the corpus."""
    corpus = tomllib.loads((_DATA / f"bad_{file}.toml").read_text(encoding="utf-8"))
    return [kind(**case) for case in corpus[table]]


@dataclass(frozen=True, kw_only=True)
class Request:
    """A whole HTTP request; see bad_requests.toml."""

    name: str
    status: int
    says: str = ""
    method: str = "POST"
    path: str = "/slack/events"
    path_unit: str = ""
    path_times: int = 0
    type: str = _FORM
    headers: Mapping[str, str] = field(default_factory=dict)
    header_times: int = 0
    body: str = ""
    hex: str = ""
    payload: str | None = None
    unit: str = ""
    times: int = 0
    end: str = ""
    encoding: str = ""
    unsigned: bool = False
    secret: str | None = None
    signed_body: str | None = None
    at: int = 0
    stamp: str = "{now}"
    stamp_times: int = 1
    shout: bool = False
    twice: str = ""


@dataclass(frozen=True, kw_only=True)
class Body:
    """What comes where callbacks go; see bad_callbacks.toml."""

    name: str
    path: str = ""
    path_unit: str = ""
    path_times: int = 0
    type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""
    hex: str = ""
    unit: str = ""
    times: int = 0
    end: str = ""
    encoding: str = ""


@dataclass(frozen=True, kw_only=True)
class Token:
    """A token that nobody was given."""

    name: str
    token: str = ""
    unit: str = ""
    times: int = 0
    status: int = 200


@dataclass(frozen=True, kw_only=True)
class Bytes:
    """Bytes over a connection; see bad_sockets.toml."""

    name: str
    status: int
    says: str = ""
    send: str = ""
    unit: str = ""
    times: int = 0
    end: str = ""
    later: str = ""
    drip: str = ""
    stalls: bool = False
    answers: int = 0


@dataclass(frozen=True, kw_only=True)
class Payload:
    """A payload of Slack's with something wrong at one place; see bad_payloads.toml."""

    name: str
    of: str
    at: str
    put: str | None = None
    unit: str = ""
    times: int = 0
    status: int = 200
    says: str = ""
    tells: str = ""
    does: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command as somebody types it; see bad_words.toml."""

    name: str
    command: str = "/video"
    text: str = ""
    raw: str = ""
    unit: str = ""
    times: int = 0
    says: str = ""
    tells: str = ""
    opens: str | None = None
    opens_as_typed: bool = False


@dataclass(frozen=True, kw_only=True)
class Typed:
    """What somebody types into a form."""

    name: str
    script: str = ""
    video_name: str = ""
    replica_name: str = ""
    unit: str = ""
    times: int = 0
    of: str = "script"

    @property
    def fields(self) -> dict[str, str]:
        """Return what stands in which field."""
        there = {"script": self.script, "video_name": self.video_name}
        there["replica_name"] = self.replica_name
        there[self.of] += self.unit * self.times
        return {name: text for name, text in there.items() if text}


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What the other side answers; see bad_answers.toml."""

    name: str
    status: int = 200
    json: str = ""
    body: str = ""
    hex: str = ""
    unit: str = ""
    times: int = 0
    end: str = ""
    type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    encoding: str = ""
    comes: str = ""
    shows: str = ""
    hides: str = ""
    method: str = ""
    done: bool = False
    says: str = ""

    def fault(self, world: World) -> CannedResponse:
        """Return it as the sandbox gives it."""
        text = self.json + self.body + self.unit * self.times + self.end
        content = bytes.fromhex(self.hex) or text.encode()
        headers = {"Content-Type": self.type} if self.type else {}
        if self.encoding:
            content = gzip.compress(content, 1)
            headers["Content-Encoding"] = "gzip"
        if "cut off" in self.encoding:
            content = content[:-12]
        for name, value in self.headers.items():
            headers[name] = value.replace("{service}", world.service.url)
        return CannedResponse(self.status, content, headers, done=self.done)


REQUESTS: Final = cases("requests", "request", Request)
BODIES: Final = cases("callbacks", "body", Body)
TOKENS: Final = cases("callbacks", "token", Token)
SOCKETS: Final = cases("sockets", "socket", Bytes)
PAYLOADS: Final = cases("payloads", "payload", Payload)
COMMANDS: Final = cases("words", "command", Command)
TYPED: Final = cases("words", "typed", Typed)
CREATES: Final = cases("answers", "create", Reply)
READS: Final = cases("answers", "read", Reply)
SLACKS: Final = cases("answers", "slack", Reply)


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    head: str
    body: str


class Door:
    """The way into a running bot, and what holds behind whoever went through it."""

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

    async def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Send a request as it stands, which no client would, and return the answer."""
        lines = [f"{method} {path} HTTP/1.1"]
        lines += [f"{name}: {text}" for name, text in headers.items()]
        if "Host" in headers:
            lines.append("Connection: close")
        else:
            lines += _HEAD.split("\r\n")[:-1]
        lines.append(f"Content-Length: {len(body)}")
        return answer_of(await self.exchange("\r\n".join([*lines, "", ""]).encode() + body))

    async def exchange(
        self,
        content: bytes,
        *,
        later: bytes = b"",
        drip: bytes = b"",
        hangs_up: bool = False,
    ) -> bytes:
        """Open a connection, send, and return all that comes until the door closes it."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.world.bot.port)
        received = bytearray()

        async def listen() -> None:
            with contextlib.suppress(ConnectionError):
                while chunk := await reader.read(1 << 16):
                    received.extend(chunk)

        async def talk() -> None:
            with contextlib.suppress(ConnectionError):
                writer.write(content)
                await writer.drain()
                if later:
                    await asyncio.sleep(_STEP)
                    writer.write(later)
                while drip:
                    writer.write(drip)
                    await asyncio.sleep(_STEP)

        talking = asyncio.ensure_future(talk())  # noqa: TID251 - ended below
        try:
            async with asyncio.timeout(_LONG):
                await (talking if hangs_up else listen())
        finally:
            talking.cancel()
            writer.close()
        return bytes(received)

    async def is_as_ever(self, told: str = "", does: Sequence[str] = ()) -> None:
        """Check that the bot works, has done nothing, and has logged nothing that it should not.

        Args:
            told: what was answered.
            does: the methods of Slack's that were called meanwhile.
        """
        await self.is_calm(told)
        called = [call.method for call in self.world.slack.calls[self._calls :]]
        self._calls += len(called)
        made, self._made = self._made, self._effects()
        assert called == list(does)
        assert self._made == made, "something was made or posted"

    async def is_calm(self, told: str = "") -> None:
        """Check that the bot works, and has logged nothing that it should not."""
        await self.world.settle()
        self.logs_nothing_odd(told)
        assert (await self.send("GET", "/healthz", {}, b"")).body == "ok"
        good = await deliver(self.world.slack, command(self.world, "help"))
        assert good.ok
        assert "open the form" in good.body

    def logs_nothing_odd(self, told: str = "") -> None:
        """Check what was logged since the last time: nobody was surprised, and nothing got out."""
        logged = self.logged[self._seen :]
        self._seen += len(logged)
        assert "Traceback" not in logged, logged
        assert "***" not in logged, logged
        assert max(map(len, logged.splitlines()), default=0) < _LONGEST_LINE
        for mark in _secrets(self.world):
            assert not mark.is_in(told), f"{mark.description} is in the answer"
            assert not mark.is_in(logged), f"{mark.description} is in the log"

    def _effects(self) -> tuple[int, ...]:
        """Return how much the service was asked to make, and how much was posted."""
        creates = [
            *self.world.requests_for("create_video"),
            *self.world.requests_for("create_replica"),
        ]
        return (len(creates), len(self.world.posts()))


def answer_of(received: bytes) -> Answer:
    head, _, body = received.decode("latin-1").partition("\r\n\r\n")
    words = head.split(maxsplit=2)
    return Answer(int(words[1]) if len(words) > 1 else 0, head, body)


def command(world: World, text: str, name: str = "/video", raw: str = "") -> bytes:
    """Return the body of a command as Slack sends it, with ``raw`` behind the text."""
    channel, user = world.slack.channel("studio"), world.ana.user
    form = {
        "command": name,
        "user_id": user.id,
        "channel_id": channel.id,
        "response_url": world.slack.new_response_url(user.id, channel.id),
        "trigger_id": world.slack.new_trigger(user.id, channel.id),
        "text": text,
    }
    return (urlencode(form) + raw).encode()


def content_of(case: Request | Body, words: Mapping[str, str] | None = None) -> bytes:
    """Return the bytes of a body, before anything packs them."""
    if case.hex:
        return bytes.fromhex(case.hex)
    text = case.body
    if isinstance(case, Request) and case.payload is not None:
        return urlencode({"payload": case.payload + case.unit * case.times + case.end}).encode()
    for word, meant in (words or {}).items():
        text = text.replace(f"{{{word}}}", meant)
    return (text + case.unit * case.times + case.end).encode()


def snapshot_text(content: bytes, encoding: str) -> bytes:
    return gzip.compress(content, 1) if encoding == "gzip" else content


def signature_of(secret: str, stamp: str, body: bytes) -> str:
    base = b":".join([b"v0", stamp.encode(), body])
    return "v0=" + hmac.new(secret.encode(), base, hashlib.sha256).hexdigest()


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """Return the log as a process of the bot writes it; secrets are not even masked in it."""
    monkeypatch.setattr(logging.root, "handlers", [])
    loggers = [logging.root, *map(logging.getLogger, log._LIBRARY_LEVELS)]
    levels = [logger.level for logger in loggers]
    stream = io.StringIO()
    log.configure(stream, "INFO")
    yield stream
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.fixture
async def door(memory: Path, logged: io.StringIO) -> AsyncIterator[Door]:
    """A bot as it always is."""
    world = World(memory)
    async with world.running_sandbox(), world.running_bot():
        yield Door(world, logged)


@pytest.fixture
async def hasty(memory: Path, logged: io.StringIO) -> AsyncIterator[Door]:
    """A bot with short time limits for what does not come."""
    world = World(memory, Timings(jitter=0, receive_timeout=_ARRIVES))
    async with world.running_sandbox(), world.running_bot():
        yield Door(world, logged)


# ── The corpus itself ─────────────────────────────────────────────────────────────────────────


def test_there_are_more_than_three_hundred_cases_each_with_a_name_of_its_own() -> None:
    groups: list[Sequence[Named]] = [REQUESTS, BODIES, TOKENS, SOCKETS, PAYLOADS]
    groups += [COMMANDS, TYPED, CREATES, READS, SLACKS]
    for group in groups:
        names = [case.name for case in group]
        assert sorted(names) == sorted(set(names))
    assert sum(map(len, groups)) > 300


# ── HTTP ──────────────────────────────────────────────────────────────────────────────────────


async def test_a_request_that_is_no_good_is_turned_away(
    door: Door, subtests: pytest.Subtests
) -> None:
    for case in REQUESTS:
        with subtests.test(case.name):
            answer = await door.send(
                case.method,
                case.path + case.path_unit * case.path_times,
                *signed(door.world, case),
            )
            assert (answer.status, answer.body) == (case.status, answer.body)
            assert case.says in answer.body
            await door.is_as_ever(answer.head + answer.body)


def signed(world: World, case: Request) -> tuple[dict[str, str], bytes]:
    """Return headers and body as Slack would send them, but for what is wrong with this one."""
    body = snapshot_text(content_of(case), case.encoding)
    now = str(int(world.clock.now().timestamp()) + case.at)
    stamps = {"{now}": now, "+now": f"+{now}", "_now": f"{now[:4]}_{now[4:]}"}
    stamp = stamps.get(case.stamp, case.stamp * case.stamp_times)
    secret = world.slack.signing_secret if case.secret is None else case.secret
    over = body if case.signed_body is None else case.signed_body.encode()
    signature = signature_of(secret, stamp, over)
    headers = {"Content-Type": case.type}
    if not case.unsigned:
        headers["X-Slack-Request-Timestamp"] = stamp
        headers["X-Slack-Signature"] = signature.upper() if case.shout else signature
    if case.twice:
        headers[case.twice.lower()] = headers[case.twice]
    if case.encoding:
        headers["Content-Encoding"] = case.encoding
    for name, text in case.headers.items():
        headers[name] = text + "0" * case.header_times
    return headers, body


async def test_what_is_no_http_or_never_whole_is_ended(
    door: Door, subtests: pytest.Subtests
) -> None:
    for case in (each for each in SOCKETS if not each.stalls):
        with subtests.test(case.name):
            hangs_up = case.status == 0
            told = await door.exchange(bytes_of(case), hangs_up=hangs_up)
            judged(case, told)
            await door.is_as_ever(told.decode("latin-1"))


async def test_what_never_comes_to_an_end_is_ended_by_the_door(
    hasty: Door, subtests: pytest.Subtests
) -> None:
    stalling = [case for case in SOCKETS if case.stalls]
    ends = await asyncio.gather(
        *(
            hasty.exchange(
                bytes_of(case), later=case.later.encode("latin-1"), drip=case.drip.encode()
            )
            for case in stalling
        ),
        return_exceptions=True,
    )
    for case, told in zip(stalling, ends, strict=True):
        with subtests.test(case.name):
            assert isinstance(told, bytes), "it was left open"
            judged(case, told)
    await hasty.is_calm()


def bytes_of(case: Bytes) -> bytes:
    text = case.send + case.unit * case.times + case.end
    return text.replace("{head}", _HEAD).encode("latin-1")


def judged(case: Bytes, told: bytes) -> None:
    answer = answer_of(told)
    assert answer.status == case.status, told
    assert case.says.encode() in told
    if case.answers:
        assert len(_STATUS_LINE.findall(told)) == case.answers, told


# ── Callbacks ─────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
async def callbacks(door: Door) -> "Callbacks":
    """A video of Ana's and one of Ben's that are being made, and the token of the first."""
    world = door.world
    world.service.callback_plan = CallbackPlan(times=0)
    await world.request_video(world.ana)
    await world.request_video(world.ben, {"script": "Quite another thing."})
    await world.advance(seconds=30)
    known, other = world.service.videos.values()
    assert known.callback_url is not None
    door = Door(world, door._log)
    return Callbacks(door, known.callback_url.rpartition("/")[2], known.video_id, other.video_id)


@dataclass(frozen=True)
class Callbacks:
    """Where the service calls back."""

    door: Door
    token: str
    known: str
    other: str


METHODS: Final = ("POST", "PUT", "GET", "DELETE", "PATCH", "OPTIONS", "PROPFIND")


async def test_a_callback_that_says_anything_gets_the_same_answer_and_is_not_believed(
    callbacks: Callbacks, subtests: pytest.Subtests
) -> None:
    door, world = callbacks.door, callbacks.door.world
    words = {"known": callbacks.known, "other": callbacks.other}
    for case in BODIES:
        with subtests.test(case.name):
            body = snapshot_text(content_of(case, words), case.encoding)
            query = case.path.replace("{other}", callbacks.other) + case.path_unit * case.path_times
            headers = {"Content-Type": case.type, **case.headers}
            if case.encoding:
                headers["Content-Encoding"] = case.encoding
            for method in METHODS if len(body) < 1000 else METHODS[:1]:
                known, unknown = [
                    await door.send(method, f"/callbacks/{token}{query}", headers, body)
                    for token in (callbacks.token, "x" * 43)
                ]
                assert (known.status, known.body) == (200, "ok")
                assert without_date(known) == without_date(unknown)
            await door.is_as_ever(known.head)
    await world.advance(minutes=10)
    # Each of them is told once, as it is, to whom it belongs.
    assert len(world.posts()) == 4
    assert world.created_count() == 2
    for card in [message for message in world.posts() if message.thread_ts is None]:
        [reply] = world.replies(card)
        assert "is ready" in reply.text
        assert "evil" not in reply.text + world.now(card).text


def without_date(answer: Answer) -> tuple[str, str]:
    lines = [line for line in answer.head.split("\r\n") if not line.startswith("Date:")]
    return "\n".join(lines), answer.body


async def test_a_token_that_nobody_was_given_opens_nothing(
    callbacks: Callbacks, subtests: pytest.Subtests
) -> None:
    door, token = callbacks.door, callbacks.token
    body = json.dumps({"video_id": callbacks.known, "status": "ready"}).encode()
    words = {
        "known": token,
        "short": token[:-1],
        "capitals": token.upper(),
        "hash": hashlib.sha256(token.encode()).hexdigest(),
    }
    reads = len(door.world.requests_for("read_video"))
    for case in TOKENS:
        with subtests.test(case.name):
            tried = case.token + case.unit * case.times
            for word, meant in words.items():
                tried = tried.replace(f"{{{word}}}", meant)
            answer = await door.send("POST", f"/callbacks/{tried}", {}, body)
            assert answer.status == case.status, answer
            await door.is_as_ever()
            assert len(door.world.requests_for("read_video")) == reads


# ── Payloads ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Scene:
    """People with their videos and forms, and the good payloads of what they could do next."""

    door: Door
    bases: Mapping[str, Callable[[], Json]]
    words: Mapping[str, str]


@pytest.fixture
async def scene(memory: Path, logged: io.StringIO) -> AsyncIterator[Scene]:
    """Ana does not know whether her video was made; another one of hers, and one of Ben's, are."""
    world = World(memory, Timings(jitter=0))
    async with world.running_sandbox(), world.running_bot(callbacks=False):
        world.service.faults.next("create_video", CannedResponse(500))
        doubtful = world.now(await world.request_video(world.ana))
        other = await world.request_video(world.ana, {"script": "Another one."})
        bens = await world.request_video(world.ben, {"script": "Quite another thing."})
        await world.ana.click(doubtful, "I found it")
        await world.advance(seconds=30)
        words = {
            "ben": world.ben.user.id,
            "anas": job_of(doubtful),
            "ANAS": job_of(doubtful).upper(),
            "anas other": job_of(other),
            "bens": job_of(bens),
            "bens video": list(world.service.videos)[1],
        }
        payloads = await bases(world, doubtful)
        yield Scene(Door(world, logged), payloads, words)


def job_of(card: Message) -> str:
    found = re.search(r"No. (\w+)", str(card.blocks))
    assert found is not None
    return found[1]


_NUMBERS: Final = itertools.count()


def copied(form: Modal) -> Json:
    """Return a form as it is sent off, as if it had been opened anew."""
    view: Json = copy.deepcopy(form.view.payload())
    view["id"] = view["root_view_id"] = f"V0{next(_NUMBERS)}"
    return view


async def bases(world: World, doubtful: Message) -> Mapping[str, Callable[[], Json]]:
    """Return what makes each sort of good payload; each would have an effect as it is."""
    ana, studio = world.ana, world.slack.channel("studio")

    def sent(kind: str, form: Modal) -> Json:
        view = copied(form)
        return {**interaction(world.slack, ana.user, kind, studio), "view": view}

    id_form = ana.modal
    assert id_form is not None
    await id_form._fill_in(id_form._field("remote_id"), "v-mine")
    form = await world.open_form(ana)
    await form._fill_in(form._field("replica_id"), REPLICA)
    await form._fill_in(form._field("script"), "Hello, world.")
    training = await world.open_form(ana, command="/replica")
    await training._fill_in(training._field("train_video_url"), FOOTAGE)
    await training._fill_in(training._field("agreed"), ["yes"])

    def button(name: str) -> Json:
        block, element = find_button(doubtful.blocks, name)
        url = world.slack.new_response_url(ana.user.id, studio.id)
        return {
            **interaction(world.slack, ana.user, "block_actions", studio),
            "channel": {"id": studio.id},
            "response_url": url,
            "actions": [button_action(world.slack, block, element)],
        }

    def unknown_button() -> Json:
        there = button("Cancel request")
        there["actions"][0]["value"] = "23456789ab"
        return there

    def choice() -> Json:
        action = {"action_id": "video_background", "block_id": "background"}
        return {**sent("block_actions", form), "actions": [{**action, "type": "radio_buttons"}]}

    def query() -> Json:
        asked = {"block_id": "replica_id", "action_id": "video_replica", "value": "ann"}
        return {**sent("block_suggestion", form), **asked}

    return {
        "form": lambda: sent("view_submission", form),
        "training": lambda: sent("view_submission", training),
        "id": lambda: sent("view_submission", id_form),
        "button": lambda: button("Cancel request"),
        "unknown button": unknown_button,
        "choice": choice,
        "query": query,
    }


def spoiled(payload: Json, case: Payload, words: Mapping[str, str]) -> str:
    """Return a payload as JSON with another value, or none, at one place."""
    *way, last = [int(step) if step.isdecimal() else step for step in case.at.split(".")]
    place: Any = payload
    for step in way:
        place = place[step]
    if case.put is None:
        del place[last]
        return json.dumps(payload)
    put = case.put.replace("…", case.unit * case.times)
    for word, meant in words.items():
        put = put.replace(f"{{{word}}}", meant)
    place[last] = "@@"
    # As it is written, not as Python would write it.
    return json.dumps(payload).replace('"@@"', put)


async def test_a_payload_with_something_wrong_in_it_is_told_and_changes_nothing(
    scene: Scene, subtests: pytest.Subtests
) -> None:
    door, world = scene.door, scene.door.world
    for case in PAYLOADS:
        with subtests.test(case.name):
            text = spoiled(scene.bases[case.of](), case, scene.words)
            answer = await deliver(world.slack, urlencode({"payload": text}).encode())
            assert (answer.status, answer.body) == (case.status, answer.body)
            assert case.says in answer.body
            does = [*case.does, *(["response_url"] if case.tells else [])]
            await door.is_as_ever(answer.body, does)
            if case.tells:
                assert case.tells in str(world.slack.calls[-1].arguments["text"])


@pytest.mark.parametrize("of", ["form", "training", "id", "button", "choice", "query"])
async def test_the_same_payload_with_nothing_wrong_has_its_effect(scene: Scene, of: str) -> None:
    world = scene.door.world
    calls = len(world.slack.calls)
    answer = await deliver(world.slack, encoded(scene.bases[of]()))
    await world.settle()
    assert answer.ok
    if of == "query":
        assert "Anna" in answer.body
    elif of == "id":
        assert "can't find it" in answer.body
    else:
        assert len(world.slack.calls) > calls


# ── Words ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_command_of_any_words_is_answered_and_makes_nothing(
    door: Door, subtests: pytest.Subtests
) -> None:
    world = door.world
    for case in COMMANDS:
        with subtests.test(case.name):
            text = case.text + case.unit * case.times
            answer = await deliver(world.slack, command(world, text, case.command, case.raw))
            assert answer.ok
            assert case.says in answer.body
            opens = text if case.opens_as_typed else case.opens
            does = ["views.open"] * (opens is not None) + ["response_url"] * bool(case.tells)
            assert bool(does) != bool(case.says)
            await door.is_as_ever(answer.body, does)
            if opens is not None:
                assert world.ana.modal is not None
                assert (world.ana.modal.values["script"] or "") == opens
            if case.tells:
                assert case.tells in str(world.slack.calls[-1].arguments["text"])


async def test_what_is_typed_into_a_form_is_sent_as_it_is_and_shown_harmlessly(
    door: Door, subtests: pytest.Subtests
) -> None:
    world, cards = door.world, []
    world.service.pace = SOON
    for case in TYPED:
        with subtests.test(case.name):
            what = "replica" if "replica_name" in case.fields else "video"
            asks = world.request_replica if what == "replica" else world.request_video
            cards.append(await asks(world.ana, case.fields))
            sent = world.requests_for("create_replica" if what == "replica" else "create_video")[
                -1
            ].body
            assert isinstance(sent, dict)
            assert {name: sent[name] for name in case.fields} == {
                name: text.strip() for name, text in case.fields.items()
            }
            await world.ana.command(f"/{what}", f"status {job_of(cards[-1])}")
            await world.ana.command(f"/{what}", "list")
    await world.advance(minutes=1)
    for case, card in zip(TYPED, cards, strict=True):
        with subtests.test(case.name):
            [reply] = world.replies(card)
            for message in (card, world.now(card), reply):
                assert message.pings == {world.ana.user.id}
                assert message.blocks
    await door.is_calm()
    assert "refuses" not in door.logged


# ── Answers ───────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
async def uncalled(memory: Path, logged: io.StringIO) -> AsyncIterator[Door]:
    """A bot that nobody calls back, so that it asks people what it does not know."""
    world = World(memory)
    async with world.running_sandbox(), world.running_bot(callbacks=False):
        yield Door(world, logged)


@dataclass(frozen=True)
class Asker:
    """Somebody who has the form open, and sends it off again and again."""

    world: World
    form: Modal

    async def asks(self, script: str = "Hello, world.") -> Message:
        """Ask for a video, and return its card, as it was posted first."""
        view, before = copied(self.form), len(self.world.slack.messages("studio"))
        view["state"]["values"]["script"]["script"]["value"] = script
        ana, studio = self.world.ana.user, self.world.slack.channel("studio")
        sent = interaction(self.world.slack, ana, "view_submission", studio)
        answer = await interact(self.world.slack, {**sent, "view": view})
        assert (answer.status, answer.body) == (200, "")
        await self.world.settle()
        new = self.world.slack.messages("studio")[before:]
        return new[0] if new else Message("", "", "", "")


@pytest.fixture
async def asker(uncalled: Door) -> Asker:
    """Ana, at the form."""
    world = uncalled.world
    form = await world.open_form(world.ana)
    await form._fill_in(form._field("replica_id"), REPLICA)
    await form._fill_in(form._field("script"), "Hello, world.")
    return Asker(world, form)


async def test_whatever_a_create_call_is_answered_it_is_made_once_or_asked_about(
    uncalled: Door, asker: Asker, subtests: pytest.Subtests
) -> None:
    door, world = uncalled, uncalled.world
    for case in CREATES:
        with subtests.test(case.name):
            world.service.faults.next("create_video", case.fault(world))
            creates = len(world.requests_for("create_video"))
            card = await asker.asks()
            if case.comes == "again":
                assert not world.replies(card)
                await world.advance(seconds=5)
                creates += 1
            assert len(world.requests_for("create_video")) == creates + 1
            assert outcome(world, card) == case.comes.replace("again", "made")
            if case.comes == "asks":
                await world.ana.click(world.now(card), "Cancel request")
                await world.settle()
                assert len(world.replies(card)) == 1
            harmless(world, card)
            door.logs_nothing_odd()
    await door.is_calm()


async def test_whatever_a_read_is_answered_the_video_is_told_once_as_it_is(
    uncalled: Door, asker: Asker, subtests: pytest.Subtests
) -> None:
    door, world = uncalled, uncalled.world
    cards = []
    for case in READS:
        # Each is read for the first time at a moment of its own, and meets its answer then.
        cards.append(await asker.asks())
        world.service.faults.next("read_video", case.fault(world))
        await world.advance(seconds=0.1)
    assert not world.requests_for("read_video")
    await world.advance(seconds=10)
    read = [request.path.rpartition("/")[2] for request in world.requests_for("read_video")]
    assert read == list(world.service.videos), "each of them once, and nothing else"
    await door.is_calm()
    for case, card, video in zip(READS, cards, read, strict=True):
        with subtests.test(case.name):
            assert outcome(world, card) == case.comes.replace("going", "made")
            harmless(world, card, case)
            await world.ana.command("/video", f"status {job_of(card)}")
            if case.comes == "going":
                world.service.finish(video)
    await door.is_calm()
    await world.advance(minutes=5)
    for case, card in zip(READS, cards, strict=True):
        with subtests.test(case.name):
            assert outcome(world, card) == case.comes.replace("going", "ready")
            harmless(world, card, case)
    await door.is_calm()


def outcome(world: World, card: Message) -> str:
    """Return what became of a video, as its card and its thread say."""
    text, replies = world.now(card).text, world.replies(card)
    words = {"Your answer is needed": "asks", "Rendering": "made"}
    words |= {"Failed": "fails", "Ready": "ready"}
    [found] = [what for word, what in words.items() if word in text] or [text]
    assert len(replies) == (found in {"fails", "ready"}), replies
    return found


def harmless(world: World, card: Message, case: Reply | None = None) -> None:
    """Check that what the service said is shown, and does nothing."""
    messages = [world.now(card), *world.replies(card)]
    told = "".join(message.text + json.dumps(message.blocks) for message in messages)
    assert all(message.pings == {world.ana.user.id} for message in messages)
    if case is not None:
        assert case.shows in told
        assert not case.hides or case.hides not in told


async def test_whatever_slack_answers_to_a_post_or_an_edit_the_message_is_there_once(
    uncalled: Door, asker: Asker, subtests: pytest.Subtests
) -> None:
    door, world = uncalled, uncalled.world
    world.service.pace = SOON
    searches = [case for case in SLACKS if case.method == "conversations.history"]
    others = [case for case in SLACKS if case.method in {"chat.postMessage", "chat.update"}]
    # What is lost is looked for half a minute later, in the same order: so these come first.
    for case in [*searches, *others]:
        if case in searches:
            world.slack.faults.next("chat.postMessage", CannedResponse(503, b""))
        world.slack.faults.next(case.method, case.fault(world))
        await asker.asks(case.name)
        await world.advance(seconds=0.1)
        door.logs_nothing_odd()
    await world.advance(minutes=15)
    for case in [*searches, *others]:
        with subtests.test(case.name):
            about = [message for message in world.posts() if f"“{case.name}”" in message.text]
            [card] = [message for message in about if message.thread_ts is None]
            [reply] = world.replies(card)
            assert "Ready" in card.text
            assert "is ready" in reply.text
    assert len(world.posts()) == 2 * len([*searches, *others])
    await door.is_calm()


async def test_whatever_slack_answers_to_a_form_or_a_whisper_the_bot_goes_on(
    uncalled: Door, subtests: pytest.Subtests
) -> None:
    door, world = uncalled, uncalled.world
    for case in SLACKS:
        if case.method in {"views.open", "response_url"}:
            with subtests.test(case.name):
                text = "Hello." if case.method == "views.open" else "status v-nobody"
                world.slack.faults.next(case.method, case.fault(world))
                answer = await world.ana.command("/video", text)
                assert answer.ok
                assert case.says in answer.body
                await door.is_calm()
    assert not world.posts()
