"""A Slack and a video service that answer at once, with the least that is right."""

import asyncio
import contextlib
import itertools
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

from benchmarks.load import Broken

_LENGTH: Final = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.IGNORECASE)
_CHUNKED: Final = re.compile(rb"\r\ntransfer-encoding:", re.IGNORECASE)
_END: Final = b"\r\n\r\n"
# In JSON or in a form: slack_sdk sends either, by method.
_CHANNEL: Final = re.compile(rb'\bchannel(?:": ?"|=)([A-Z0-9]+)')
_IN_THREAD: Final = re.compile(rb'\bthread_ts(?:": ?"|=)[0-9]')
_FIELDS: Final = re.compile(rb'"(video_name|replica_name|script)": ?("(?:[^"\\]|\\.)*")')
# What the bot reads to see whether the service accepts its key. No case counts it.
_CHECK: Final = "is-anyone-there"
_CREATED: Final = "2026-03-02T09:00:00.000Z"
_TS: Final = 1_700_000_000
# A database that is used again has what an earlier service of this process has made.
_IDS: Final = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Call:
    """A request that arrived: ``what`` is Slack's method, or "create" or "read" at the service.

    ``id`` is what is created or read there.
    """

    what: str
    body: bytes
    id: str = ""

    @property
    def in_thread(self) -> bool:
        """Whether it posts into a thread: a closing reply."""
        return _IN_THREAD.search(self.body) is not None

    @property
    def channel(self) -> str:
        """The channel that it names."""
        found = _CHANNEL.search(self.body)
        return found[1].decode() if found else ""


class Fake:
    """An HTTP server that answers each request at once.

    ``counts`` has how many calls of each sort came; ``seen`` is called with each before its answer.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.seen: Callable[[Call], None] = lambda _: None
        self.port = 0
        self.sequence = itertools.count(1)

    def answer(self, method: str, path: str, body: bytes) -> bytes:
        """Return the JSON that goes out with 200."""
        raise NotImplementedError

    def note(self, call: Call) -> None:
        """Count a call, and pass it to ``seen``."""
        self.counts[call.what] += 1
        self.seen(call)

    @contextlib.asynccontextmanager
    async def runs(self) -> AsyncIterator[None]:
        """Listen on a port that the system chooses, and stop at the end."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Exchange(self), "127.0.0.1", 0, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()


class FakeSlack(Fake):
    """Slack's Web API below ``/api/``; everywhere else it takes what is sent to a response_url."""

    def answer(self, method: str, path: str, body: bytes) -> bytes:  # noqa: ARG002 - all are POST
        """Return the answer of a method of Slack's: each message gets a ``ts`` of its own."""
        called = path.rpartition("/api/")[2] if "/api/" in path else "response_url"
        call = Call(called.partition("?")[0], body)
        self.note(call)
        match call.what:
            case "chat.postMessage" | "chat.update" | "chat.postEphemeral":
                ts = f"{_TS}.{next(self.sequence):06d}"
                return b'{"ok":true,"channel":"%b","ts":"%b"}' % (
                    call.channel.encode() or b"C1",
                    ts.encode(),
                )
            case "views.open" | "views.update":
                return b'{"ok":true,"view":{"id":"V1"}}'
            case "conversations.open":
                return b'{"ok":true,"channel":{"id":"D1"}}'
            case "conversations.history" | "conversations.replies":
                return b'{"ok":true,"messages":[],"has_more":false}'
            case "auth.test":
                return b'{"ok":true,"team_id":"T000000001","user_id":"U1","bot_id":"B1"}'
            case "users.info":
                return b'{"ok":true,"user":{"team_id":"T000000001"}}'
            case _:
                return b'{"ok":true}'


class FakeService(Fake):
    """The video service: ``status_of(id)`` is what a read says of a video; replicas are trained.

    A read of an id says the same each time, but for the status. An id that was never created is
    taken for a video with the script "Hello.".
    """

    def __init__(self) -> None:
        super().__init__()
        self.status_of: Callable[[str], str] = lambda _: "ready"
        self._made: dict[str, bytes] = {}

    def answer(self, method: str, path: str, body: bytes) -> bytes:
        """Return the answer to a create call or a read."""
        replica = path.startswith("/v2/replicas")
        remote_id = path.rpartition("/")[2]
        if method == "POST":
            remote_id = f"{'r' if replica else 'v'}{next(_IDS)}"
            self.note(Call("create", body, remote_id))
            return self._replica(remote_id, "training") if replica else self._new(remote_id, body)
        if remote_id == _CHECK:
            return self._video(remote_id, "ready")
        self.note(Call("read", body, remote_id))
        if replica:
            return self._replica(remote_id, "completed")
        return self._video(remote_id, self.status_of(remote_id))

    def _new(self, video_id: str, body: bytes) -> bytes:
        fields = dict(_FIELDS.findall(body))
        self._made[video_id] = fields.get(b"script", b'"Hello."')
        return json.dumps(
            {
                "video_id": video_id,
                "video_name": json.loads(fields.get(b"video_name", b'""')),
                "status": "queued",
                "hosted_url": f"https://videos.example.com/{video_id}",
                "created_at": _CREATED,
            }
        ).encode()

    def _video(self, video_id: str, status: str) -> bytes:
        script = self._made.get(video_id, b'"Hello."').decode()
        link = f"https://videos.example.com/{video_id}"
        return (
            f'{{"video_id":"{video_id}","status":"{status}","data":{{"script":{script}}},'
            f'"download_url":"{link}.mp4","stream_url":"{link}.m3u8","hosted_url":"{link}",'
            f'"status_details":"","created_at":"{_CREATED}","updated_at":"{_CREATED}"}}'
        ).encode()

    def _replica(self, replica_id: str, status: str) -> bytes:
        return json.dumps(
            {
                "replica_id": replica_id,
                "replica_name": "Anna",
                "thumbnail_video_url": f"https://videos.example.com/{replica_id}.mp4",
                "training_progress": "100/100",
                "status": status,
                "created_at": _CREATED,
                "updated_at": _CREATED,
                "error_message": None,
            }
        ).encode()


@dataclass(frozen=True, slots=True)
class Outside:
    """All that the bot talks to."""

    slack: FakeSlack
    service: FakeService


@contextlib.asynccontextmanager
async def outside() -> AsyncIterator[Outside]:
    """Run a fake Slack and a fake video service in this process."""
    both = Outside(FakeSlack(), FakeService())
    async with both.slack.runs(), both.service.runs():
        yield both


class _Exchange(asyncio.Protocol):
    """One connection of a client: its requests are answered in turn."""

    def __init__(self, fake: Fake) -> None:
        self._fake = fake
        self._transport: asyncio.Transport | None = None
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(_END)) >= 0:
            if _CHUNKED.search(self._received, 0, end + 2):
                raise Broken("a request in chunks: the fakes read none")
            length = _LENGTH.search(self._received, 0, end + 2)
            begin = end + len(_END)
            whole = begin + (int(length[1]) if length else 0)
            if len(self._received) < whole:
                return
            method, path, _ = self._received[: self._received.index(b"\r\n")].decode().split(" ")
            body = self._received[begin:whole]
            self._received = self._received[whole:]
            answer = self._fake.answer(method, path, body)
            if self._transport is not None:
                self._transport.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                    b"Content-Length: %d\r\n\r\n%b" % (len(answer), answer)
                )
