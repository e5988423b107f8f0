"""Finds secrets and user content that the bot left where they must not be.

The secrets of a test's world, and whatever its users typed, are the marks. After the test they are
looked for in the log, the database, the calls to Slack and the requests to the video service.
"""

import base64
import contextlib
import html
import json
import logging
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import unquote

from bot.log import _LIBRARY_LEVELS
from sandbox.slack import SandboxSlack
from sandbox.slack_objects import Event
from sandbox.video_service import SandboxVideoService
from tests.databases import Address, all_rows

# Of more marks, only those are looked for whose first characters are in a text. A random run of
# 1,000 jobs has ten thousand, and its database ten million characters.
_FEW: Final = 100
_PREFIX: Final = 6
_WINDOW: Final = 100_000
_ESCAPED: Final = frozenset("%&\\")
_JSON_ESCAPE: Final = re.compile(r"\\u([0-9a-fA-F]{4})|\\(.)", re.DOTALL)


class MarkType(StrEnum):
    """The type of a mark."""

    SECRET = "secret"
    """A token, a key or a capability URL, of the bot or of a callback."""
    QUERY = "query"
    """The query of a link that a user typed. Storage services sign links there."""
    SCRIPT = "script"
    """The script of a video."""
    NAME = "name"
    """The name of a video or a replica."""


@dataclass(frozen=True)
class Mark:
    """A text to look for."""

    type: MarkType
    text: str
    description: str

    @cached_property
    def base64(self) -> str:
        """Return the text in Base64, without padding."""
        return base64.b64encode(self.text.encode()).decode().rstrip("=")

    def is_in(self, text: str) -> bool:
        """Return whether ``text`` contains the mark; a secret also encoded, and in any case."""
        if self.type is not MarkType.SECRET:
            return self.text in text
        assert self.text.isascii()
        folded = self.text.casefold()
        return self.base64 in text or any(folded in view for view in _views(text))

    def around(self, text: str) -> str:
        """Return the part of ``text`` around the mark."""
        at = text.find(self.text)
        return repr(text[max(0, at - 100) : at + 100] if at >= 0 else text[:200])


def find_marks(where: str, texts: Iterable[str], marks: Collection[Mark]) -> Iterator[str]:
    """Yield a sentence for each mark in each of the texts, which are in ``where``."""
    texts = list(texts)
    prefixes = _by_prefix(frozenset(marks)) if len(marks) > _FEW else {}
    if not prefixes:  # mostly, none is in all of them together
        whole = "\n".join(texts)
        marks = [mark for mark in marks if mark.is_in(whole)]
    for text in texts:
        for mark in _possible(prefixes, text) if prefixes else marks:
            if mark.is_in(text):
                yield f"{mark.description} is in {where}: {mark.around(text)}"


@lru_cache(maxsize=4)
def _by_prefix(marks: frozenset[Mark]) -> Mapping[str, set[Mark]]:
    """Return marks by the first characters of the texts that ``is_in`` looks for."""
    found = defaultdict(set)
    for mark in marks:
        for text in (mark.text.casefold(), mark.base64):
            assert len(text) >= _PREFIX
            found[text[:_PREFIX]].add(mark)
    return found


def _possible(prefixes: Mapping[str, set[Mark]], text: str) -> set[Mark]:
    """Return the marks whose first characters are in a text: few of thousands, in one pass."""
    found: set[Mark] = set()
    for view in (text, *_views(text)):
        for start in range(0, len(view), _WINDOW):
            end = min(start + _WINDOW, len(view))
            some = {view[at : at + _PREFIX] for at in range(start, end)}
            for prefix in some.intersection(prefixes):
                found |= prefixes[prefix]
    return found


@lru_cache(maxsize=4)
def _views(text: str) -> tuple[str, ...]:
    """Return a text as it is and as readers see it who decode it, all case-folded."""
    views = [text]
    for _ in range(3):
        if _ESCAPED.isdisjoint(text):
            break
        for decode in (_without_json_escapes, unquote, html.unescape):
            text = decode(text)
            views.append(text)
    return tuple(dict.fromkeys(view.casefold() for view in views))


def _without_json_escapes(text: str) -> str:
    return _JSON_ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else found[2], text)


# In characters. Shorter ones occur in other texts by accident.
_MIN_QUERY: Final = 6
_MIN_TEXT: Final = 12
_MAX_TEXT: Final = 60
_NOT_PRINTABLE: Final = re.compile(rb"[^ -~]+")
_VIEWS: Final = frozenset({"views.open", "views.push", "views.update"})


COLUMNS: Final[Mapping[tuple[str, str], frozenset[MarkType]]] = {
    # The create call sends it, and "Edit and retry" fills it in again. Erased after a while.
    ("jobs", "params"): frozenset({MarkType.QUERY, MarkType.SCRIPT, MarkType.NAME}),
    # The service repeats the script, which is the transcript in the closing reply.
    ("jobs", "snapshot"): frozenset({MarkType.SCRIPT, MarkType.NAME}),
    # Every user picks replicas by name.
    ("replicas", "name"): frozenset({MarkType.NAME}),
    ("replicas", "search_name"): frozenset({MarkType.NAME}),
}
"""The columns that may hold marks, with the types allowed there. No other column may."""


class Inspected(Protocol):
    """The parts of a world that are searched."""

    slack: SandboxSlack
    service: SandboxVideoService

    @property
    def address(self) -> Address:
        """Where the database is."""


@dataclass(frozen=True)
class _Job:
    id: str
    user: str
    channel: str
    params: Mapping[str, str]
    asked: Sequence[str] = ()
    """The ids of who was asked to approve it: a channel, or people."""


@dataclass
class _ShownForm:
    """A form as a user saw it; ``opened``: newly opened, not updated."""

    user: str
    text: str
    opened: bool


class _Records(logging.Handler):
    """Keeps the log records that the bot's own configuration would write."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.texts: list[str] = []
        self.secrets: set[Mark] = set()

    def emit(self, record: logging.LogRecord) -> None:
        for name, level in _LIBRARY_LEVELS.items():
            if f"{record.name}.".startswith(f"{name}.") and record.levelno < _level(level):
                return
        parts = [record.getMessage(), *map(str, vars(record).values())]
        if record.exc_info:
            parts.append(logging.Formatter().formatException(record.exc_info))
        self.texts.append(" ".join(parts))

    def taken(self) -> list[str]:
        texts, self.texts = self.texts, []
        return texts


_RECORDS: Final = _Records()


@contextlib.contextmanager
def log_recorded() -> Iterator[None]:
    """Record the log meanwhile; search at the end what no detector has searched."""
    bot, root = logging.getLogger("bot"), logging.getLogger()
    level = bot.level
    bot.setLevel(logging.INFO)
    root.addHandler(_RECORDS)
    try:
        yield
    finally:
        root.removeHandler(_RECORDS)
        bot.setLevel(level)
        texts, secrets = _RECORDS.taken(), set(_RECORDS.secrets)
        _RECORDS.secrets.clear()
    _raise_on(find_marks("the log", texts, secrets))


@dataclass
class LeakDetector:
    """Follows a world from its start; ``check`` searches it once all of it has stopped."""

    world: Inspected
    logs: Sequence[Path] = ()
    """Files with the log and the output of bot processes."""
    _shown: list[_ShownForm] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.world.slack.subscribe(self._follow)

    def check(self) -> None:
        """Raise ``AssertionError`` if a mark is where it must not be."""
        rows = list(all_rows(self.world.address))
        jobs = [
            _Job(
                row["id"], row["user_id"], row["channel"], _params_of(row["params"]), _asked_of(row)
            )
            for table, row in rows
            if table == "jobs"
        ]
        secrets, typed = frozenset(_secrets(self.world)), _typed(self.world, jobs)
        _RECORDS.secrets |= secrets
        logged = [*_RECORDS.taken(), *(_content(path) for path in self.logs)]
        _raise_on(
            [
                *find_marks("the log", logged, secrets | typed),
                *find_marks("a secret's place in the log", [_masked(self.logs)], {_MASKED}),
                *find_marks("the database", _stored(self.world.address), secrets),
                *_in_columns(rows, secrets | typed),
                *find_marks(
                    "a call to the service", _requests(self.world), _hidden_from_service(secrets)
                ),
                *_in_slack(self.world.slack, jobs, secrets, typed),
                *_in_forms(self.world.slack, self._shown, jobs, secrets),
            ]
        )

    def _follow(self, event: Event) -> None:
        view = event.view
        if view is not None and event.kind in {"modal_opened", "modal_updated"}:
            opened = event.kind == "modal_opened" and view.previous_id is None
            self._shown.append(_ShownForm(view.user, _json(view.body), opened))


def secrets_found(world: Inspected, logs: Iterable[Path]) -> list[str]:
    """Return where secrets are in the logs, the database and the calls to Slack."""
    secrets, calls = set(_secrets(world)), (_json(call.arguments) for call in world.slack.calls)
    return [
        *find_marks("the log", map(_content, logs), secrets),
        *find_marks("the database", _stored(world.address), secrets),
        *find_marks("a call to Slack", calls, secrets),
    ]


_CALLBACK: Final = "a callback's token"
# The log masks secrets as a last resort: no record may depend on that.
_MASKED: Final = Mark(MarkType.SECRET, "***", "something that was masked")


def _secrets(world: Inspected) -> Iterator[Mark]:
    yield Mark(MarkType.SECRET, world.slack.bot_token, "the bot's token")
    yield Mark(MarkType.SECRET, world.slack.signing_secret, "the signing secret")
    yield Mark(MarkType.SECRET, world.slack.socket_mode.app_token, "the app-level token")
    key = world.service.api_key
    yield Mark(MarkType.SECRET, key, "the service's key")
    yield Mark(MarkType.SECRET, key[: len(key) * 3 // 4], "most of the service's key")
    for request in world.service.requests:
        if isinstance(request.body, dict) and (url := request.body.get("callback_url")):
            yield Mark(MarkType.SECRET, str(url).rpartition("/")[2], _CALLBACK)
    for key in world.slack._response_urls:
        yield Mark(MarkType.SECRET, key, "a response_url")


def _params_of(stored: str) -> Mapping[str, str]:
    """Return the parameters of a job, none if a test has damaged them."""
    with contextlib.suppress(ValueError):
        if isinstance(params := json.loads(stored), dict):
            return params
    return {}


def _hidden_from_service(secrets: Iterable[Mark]) -> frozenset[Mark]:
    """Return the secrets that the service must not see: all but callback tokens."""
    return frozenset(mark for mark in secrets if mark.description != _CALLBACK)


def _typed(world: Inspected, jobs: Iterable[_Job]) -> set[Mark]:
    submitted = [job.params for job in jobs]
    submitted += [
        request.body for request in world.service.requests if isinstance(request.body, dict)
    ]
    return {mark for params in submitted for mark in _marks_of(params)}


def _marks_of(params: Mapping[str, Any]) -> Iterator[Mark]:
    for name, value in params.items():
        if not isinstance(value, str) or name == "callback_url":
            continue
        if name.endswith("_url"):
            for part in re.split("[?#&]", value)[1:]:
                if len(part) >= _MIN_QUERY:
                    yield Mark(MarkType.QUERY, part, f"the query of a {name}")
        elif name == "script" or name.endswith("_name"):
            lines = [line.strip() for line in value.splitlines()]
            type_ = MarkType.SCRIPT if name == "script" else MarkType.NAME
            for line in lines[:3]:
                if len(line) >= _MIN_TEXT:
                    yield Mark(type_, line[:_MAX_TEXT], f"a {name}")


def _in_columns(
    rows: Iterable[tuple[str, Mapping[str, Any]]], marks: Collection[Mark]
) -> Iterator[str]:
    texts = defaultdict[tuple[str, str], set[str]](set)
    for table, row in rows:
        for column, value in row.items():
            if isinstance(value, str):
                texts[table, column].add(value)
    for place, values in texts.items():
        allowed = COLUMNS.get(place, frozenset())
        banned = frozenset(mark for mark in marks if mark.type not in allowed)
        yield from find_marks(f"the column {'.'.join(place)}", map(_decoded, values), banned)


def _decoded(value: str) -> str:
    """Return a text that is stored, without the escapes of JSON."""
    if value.startswith(("{", "[", '"')):
        with contextlib.suppress(ValueError):
            return _json(json.loads(value))
    return value


def _in_slack(
    slack: SandboxSlack, jobs: Sequence[_Job], secrets: frozenset[Mark], typed: set[Mark]
) -> Iterator[str]:
    typed_too = secrets | {mark for mark in typed if mark.type is MarkType.QUERY}

    @cache
    def of_other_jobs(than: str | None) -> frozenset[Mark]:
        return _scripts_but([job for job in jobs if job.id == than], jobs)

    @cache
    def not_listed_with(than: str | None) -> frozenset[Mark]:
        """Return those that a question does not list: of other people, or from other channels."""
        of = {(job.user, job.channel) for job in jobs if job.id == than}
        return _scripts_but([job for job in jobs if (job.user, job.channel) in of], jobs)

    @cache
    def of_other_users(than: str | None) -> frozenset[Mark]:
        return _scripts_but([job for job in jobs if job.user == than], jobs)

    for call in slack.calls:
        text = _json(call.arguments)
        banned = secrets if call.method in _VIEWS else typed_too
        yield from find_marks(f"a call of {call.method}", [text], banned)
        if call.method.startswith("chat."):
            job_id, role = _job_of(slack, call.arguments)
            others = not_listed_with(job_id) if role == "question" else of_other_jobs(job_id)
            yield from find_marks("a message about another job", [text], others)
    for ephemeral in slack._ephemerals.values():
        text = ephemeral.text + _json(ephemeral.blocks)
        others = of_other_users(ephemeral.visible_to)
        yield from find_marks("an ephemeral message", [text], typed_too)
        yield from find_marks("an ephemeral message to another user", [text], others)


def _job_of(
    slack: SandboxSlack, arguments: Mapping[str, Any]
) -> tuple[str, str] | tuple[None, None]:
    """Return the id of the job that a message is about and its role, from its metadata."""
    metadata = arguments.get("metadata")
    with contextlib.suppress(KeyError):
        message = slack.find(str(arguments.get("channel")), str(arguments.get("ts")))
        metadata = metadata or (message and message.metadata)
    found = re.search(r'"message": *"(\w+)/(\w+)', _json(metadata).replace("\\", ""))
    return (found[1], found[2]) if found else (None, None)


def _in_forms(
    slack: SandboxSlack, shown: Iterable[_ShownForm], jobs: Sequence[_Job], secrets: frozenset[Mark]
) -> Iterator[str]:
    """Search forms: what a user typed may be filled in for that user alone.

    An updated form holds what was typed into it. A newly opened one is filled in from a job or from
    the text after the command. Those who are asked to approve a job may read all of it.
    """
    for form in shown:
        yield from find_marks("a form", [form.text], secrets)
        if form.opened:
            theirs = [
                job
                for job in jobs
                if job.user == form.user
                or _is_asked(slack, job, form.user)
                # An admin answers for somebody else, with the titles that the message has.
                or f"choice {job.id}:" in form.text
            ]
            private = _scripts_but(theirs, jobs, MarkType.SCRIPT, MarkType.QUERY)
            yield from find_marks("a form of another user", [form.text], private)


def _is_asked(slack: SandboxSlack, job: _Job, user: str) -> bool:
    """Return whether a user was asked to approve a job, alone or in a channel."""
    channels = [slack.channels[each] for each in job.asked if each in slack.channels]
    return user in job.asked or any(user in channel.members for channel in channels)


def _asked_of(row: Mapping[str, Any]) -> Sequence[str]:
    """Return who was asked to approve a job; in an old table, nobody."""
    asked = dict(row).get("approval_asked")
    return json.loads(asked) if asked else ()


def _scripts_but(theirs: Iterable[_Job], jobs: Iterable[_Job], *types: MarkType) -> frozenset[Mark]:
    """Return the marks of jobs other than ``theirs``: scripts, or those of these types."""
    typed = {mark for job in jobs for mark in _marks_of(job.params)}
    own = {mark for job in theirs for mark in _marks_of(job.params)}
    # A text that is part of their own is theirs too.
    return frozenset(
        mark
        for mark in typed - own
        if mark.type in (types or (MarkType.SCRIPT,))
        and not any(mark.text in each.text for each in own)
    )


def _requests(world: Inspected) -> Iterator[str]:
    for request in world.service.requests:
        yield f"{request.path} {_json(request.body)}"


def _stored(address: Address) -> Iterator[str]:
    """Yield the printable ASCII of each file: all that secrets, also encoded, consist of.

    On PostgreSQL it is the rows.
    """
    if isinstance(address, str):
        yield from (f"{table} {_json(row)}" for table, row in all_rows(address))
        return
    for path in (address, address.with_name(f"{address.name}-wal")):
        if path.is_file():
            yield _NOT_PRINTABLE.sub(b"\n", path.read_bytes()).decode("ascii")


def _content(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace") if path.is_file() else ""


def _masked(logs: Iterable[Path]) -> str:
    return "".join(map(_content, logs))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _level(name: str) -> int:
    return logging.getLevelNamesMapping()[name]


def _raise_on(found: Iterable[str]) -> None:
    leaks = sorted(set(found))
    assert not leaks, "\n".join(leaks)
