"""The corpus of invalid and unusual input: tests/data/*.toml, one class for each table.

A case has a name, what is sent, and what is expected of the bot.
"""

import dataclasses
import gzip
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlencode

from sandbox.faults import CannedResponse
from tests.world import World

_T = TypeVar("_T")
_DATA: Final = Path(__file__).with_name("data")
_FORM_TYPE: Final = "application/x-www-form-urlencoded"


def cases(file: str, table: str, kind: Callable[..., _T]) -> list[_T]:
    """Return the cases of one table of the corpus."""
    corpus = tomllib.loads((_DATA / f"{file}.toml").read_text(encoding="utf-8"))
    return [kind(**case) for case in corpus[table]]


@dataclass(frozen=True, kw_only=True)
class _Case:
    """What the cases of several tables have: ``unit`` comes ``times`` times before ``end``."""

    name: str
    answer: str = ""
    body: str = ""
    hex: str = ""
    unit: str = ""
    times: int = 0
    end: str = ""
    encoding: str = ""
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    path: str = ""
    path_unit: str = ""
    path_times: int = 0


@dataclass(frozen=True, kw_only=True)
class Request(_Case):
    """A whole HTTP request; see invalid_requests.toml."""

    status: int
    method: str = "POST"
    path: str = "/slack/events"
    type: str = _FORM_TYPE
    header_times: int = 0
    payload: str | None = None
    unsigned: bool = False
    secret: str | None = None
    signed_body: str | None = None
    offset_s: int = 0
    timestamp: str = "{now}"
    timestamp_times: int = 1
    uppercase_signature: bool = False


@dataclass(frozen=True, kw_only=True)
class CallbackBody(_Case):
    """The body of a callback; see invalid_callbacks.toml."""

    type: str = "application/json"


@dataclass(frozen=True, kw_only=True)
class CallbackToken(_Case):
    """A token that was never issued."""

    token: str = ""
    status: int = 200


@dataclass(frozen=True, kw_only=True)
class Connection(_Case):
    """What is sent over a raw connection; see invalid_connections.toml."""

    status: int
    send: str = ""
    later: str = ""
    drip: str = ""
    incomplete: bool = False
    responses: int = 0


@dataclass(frozen=True, kw_only=True)
class InvalidPayload(_Case):
    """A payload of Slack with a mistake at one position; see invalid_payloads.toml."""

    base: str
    position: str
    value: str | None = None
    status: int = 200
    private_reply: str = ""
    slack_calls: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class TypedCommand(_Case):
    """A slash command with unusual text; see unusual_text.toml."""

    command: str = "/video"
    text: str = ""
    raw: str = ""
    private_reply: str = ""
    opens: str | None = None
    opens_as_typed: bool = False


@dataclass(frozen=True, kw_only=True)
class FormText(_Case):
    """Text that is typed into a form."""

    script: str = ""
    video_name: str = ""
    replica_name: str = ""
    field: str = "script"

    @property
    def fields(self) -> dict[str, str]:
        """Return the text of each field."""
        there = {"script": self.script, "video_name": self.video_name}
        there["replica_name"] = self.replica_name
        there[self.field] += self.unit * self.times
        return {name: text for name, text in there.items() if text}


@dataclass(frozen=True, kw_only=True)
class ServerResponse(_Case):
    """A response of the video service or of Slack; see invalid_responses.toml."""

    status: int = 200
    json: str = ""
    type: str = "application/json"
    outcome: str = ""
    shown: str = ""
    hidden: str = ""
    method: str = ""
    done: bool = False

    def fault(self, world: World) -> CannedResponse:
        """Return it as a fault of the sandbox."""
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


def body_of(case: Request | CallbackBody, words: Mapping[str, str] | None = None) -> bytes:
    """Return the bytes of a body before compression."""
    if case.hex:
        return bytes.fromhex(case.hex)
    text = case.body
    if isinstance(case, Request) and case.payload is not None:
        return urlencode({"payload": case.payload + case.unit * case.times + case.end}).encode()
    for word, replacement in (words or {}).items():
        text = text.replace(f"{{{word}}}", replacement)
    return (text + case.unit * case.times + case.end).encode()


def encoded(content: bytes, encoding: str) -> bytes:
    """Return a body with its content encoding."""
    return gzip.compress(content, 1) if encoding == "gzip" else content


REQUESTS: Final = cases("invalid_requests", "request", Request)
CALLBACK_BODIES: Final = cases("invalid_callbacks", "body", CallbackBody)
CALLBACK_TOKENS: Final = cases("invalid_callbacks", "token", CallbackToken)
CONNECTIONS: Final = cases("invalid_connections", "socket", Connection)
PAYLOADS: Final = cases("invalid_payloads", "payload", InvalidPayload)
COMMANDS: Final = cases("unusual_text", "command", TypedCommand)
FORM_TEXTS: Final = cases("unusual_text", "typed", FormText)
CREATE_RESPONSES: Final = cases("invalid_responses", "create", ServerResponse)
READ_RESPONSES: Final = cases("invalid_responses", "read", ServerResponse)
SLACK_RESPONSES: Final = cases("invalid_responses", "slack", ServerResponse)
