"""The canary: where secrets and people's words may be after a test, and that they are nowhere else.

Nothing is planted for it: whatever a test has the bot keep to itself, or has people type, is a mark
that is looked for in all that the bot left behind.
"""

import base64
import contextlib
import json
import logging
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote

from bot.log import _QUIETED
from sandbox.slack import SandboxSlack
from sandbox.video_service import SandboxVideoService
from sandbox.workspace import Event

# Shorter ones stand in other texts by accident.
_SHORTEST_QUERY: Final = 6
_SHORTEST_WORDS: Final = 12
_LONGEST: Final = 60
_VIEWS: Final = frozenset({"views.open", "views.push", "views.update"})
_LISTENS: Final = "bot"


class Sort(StrEnum):
    """What a mark is."""

    SECRET = "secret"
    """A token, a key, or a link that gives a right: the bot's, or a callback's."""
    QUERY = "query"
    """Of a link that somebody typed. Storage signs links there: it is as good as a key."""
    SCRIPT = "script"
    """What somebody had a replica say."""
    NAME = "name"
    """What somebody called a video or a replica."""


COLUMNS: Final[Mapping[tuple[str, str], frozenset[Sort]]] = {
    # What the create call sends, and what "Edit and retry" fills in again; erased after a while.
    ("jobs", "params"): frozenset({Sort.QUERY, Sort.SCRIPT, Sort.NAME}),
    # The service says back what it made: the script is the transcript below the closing reply.
    ("jobs", "snapshot"): frozenset({Sort.SCRIPT, Sort.NAME}),
    # Everybody picks replicas by name, written in capitals or not.
    ("replicas", "name"): frozenset({Sort.NAME}),
    ("replicas", "sought"): frozenset({Sort.NAME}),
}
"""The columns that may hold marks, and of which sort. Of all others, and all other tables, none."""


@dataclass(frozen=True)
class Mark:
    """Something to look for."""

    sort: Sort
    text: str
    what: str

    @cached_property
    def forms(self) -> tuple[str, ...]:
        """Return it as it is, and secrets as a link and a header would have them too."""
        if self.sort is not Sort.SECRET:
            return (self.text,)
        encoded = base64.b64encode(self.text.encode()).decode().rstrip("=")
        return tuple({self.text, quote(self.text, safe=""), encoded})

    def is_in(self, text: str) -> bool:
        """Return whether it stands there."""
        return any(form in text for form in self.forms)


class Watched(Protocol):
    """A world, as far as it is looked at."""

    slack: SandboxSlack
    service: SandboxVideoService
    database: Path


@dataclass(frozen=True)
class _Job:
    id: str
    user: str
    params: Mapping[str, str]


@dataclass
class _Shown:
    """A form as somebody had it on the screen; ``opened``: it is a new one."""

    user: str
    text: str
    opened: bool


class _Records(logging.Handler):
    """Keeps what is logged, as far as it would be heard in earnest."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.texts: list[str] = []
        self.secrets: set[Mark] = set()

    def emit(self, record: logging.LogRecord) -> None:
        for name, level in _QUIETED.items():
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
def listening() -> Iterator[None]:
    """Hear all that is logged meanwhile; what no world was asked about is examined at the end."""
    bot, root = logging.getLogger(_LISTENS), logging.getLogger()
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
    _judge(_found("the log", texts, secrets))


@dataclass
class Canary:
    """Follows a world from its beginning, and examines it when all of it has stopped."""

    world: Watched
    logs: Sequence[Path] = ()
    """Files into which processes of the bot wrote their log, and what they printed."""
    _shown: list[_Shown] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.world.slack.subscribe(self._follow)

    def examine(self) -> None:
        """Raise ``AssertionError`` where something is where it may not be."""
        rows = list(_rows(self.world.database))
        jobs = [
            _Job(row["id"], row["user_id"], json.loads(row["params"]))
            for table, row in rows
            if table == "jobs"
        ]
        secrets, typed = set(_secrets(self.world)), _typed(self.world, jobs)
        _RECORDS.secrets |= secrets
        logged = [*_RECORDS.taken(), *(_content(path) for path in self.logs)]
        _judge(
            [
                *_found("the log", logged, secrets | typed),
                *_found("a secret's place in the log", [_masked(self.logs)], {_MASKED}),
                *_found("the database's file", _files(self.world.database), secrets),
                *_in_columns(rows, secrets | typed),
                *_found("a call to the service", _requests(self.world), _own(secrets)),
                *_in_slack(self.world.slack, jobs, secrets, typed),
                *_in_forms(self._shown, jobs, secrets),
            ]
        )

    def _follow(self, event: Event) -> None:
        view = event.view
        if view is not None and event.kind in {"modal_opened", "modal_updated"}:
            opened = event.kind == "modal_opened" and view.previous_id is None
            self._shown.append(_Shown(view.user, _json(view.body), opened))


# ── Marks ─────────────────────────────────────────────────────────────────────────────────────

_CALLBACK: Final = "a callback's token"
# Whoever writes to a log does not know of the mask: nothing that needs it is to be written at all.
_MASKED: Final = Mark(Sort.SECRET, "***", "something that had to be masked")


def _secrets(world: Watched) -> Iterator[Mark]:
    yield Mark(Sort.SECRET, world.slack.bot_token, "the bot's token")
    yield Mark(Sort.SECRET, world.slack.signing_secret, "the signing secret")
    yield Mark(Sort.SECRET, world.service.api_key, "the service's key")
    for request in world.service.requests:
        if isinstance(request.body, dict) and (url := request.body.get("callback_url")):
            yield Mark(Sort.SECRET, str(url).rpartition("/")[2], _CALLBACK)
    for key in world.slack._response_urls:
        yield Mark(Sort.SECRET, key, "a link to answer at")


def _own(secrets: Iterable[Mark]) -> set[Mark]:
    """Return those that the service has no business with: it is told where to call back."""
    return {mark for mark in secrets if mark.what != _CALLBACK}


def _typed(world: Watched, jobs: Iterable[_Job]) -> set[Mark]:
    asked = [job.params for job in jobs]
    asked += [request.body for request in world.service.requests if isinstance(request.body, dict)]
    return {mark for params in asked for mark in _marks_of(params)}


def _marks_of(params: Mapping[str, Any]) -> Iterator[Mark]:
    for name, value in params.items():
        if not isinstance(value, str) or name == "callback_url":
            continue
        if name.endswith("_url"):
            for part in re.split("[?#&]", value)[1:]:
                if len(part) >= _SHORTEST_QUERY:
                    yield Mark(Sort.QUERY, part, f"the query of a {name}")
        elif name == "script" or name.endswith("_name"):
            lines = [line.strip() for line in value.splitlines()]
            sort = Sort.SCRIPT if name == "script" else Sort.NAME
            for line in lines[:3]:
                if len(line) >= _SHORTEST_WORDS:
                    yield Mark(sort, line[:_LONGEST], f"a {name}")


# ── Places ────────────────────────────────────────────────────────────────────────────────────


def _found(where: str, texts: Iterable[str], marks: Iterable[Mark]) -> Iterator[str]:
    for text in texts:
        for mark in marks:
            if mark.is_in(text):
                yield f"{mark.what} is in {where}: {_around(text, mark)}"


def _in_columns(
    rows: Iterable[tuple[str, Mapping[str, Any]]], marks: Iterable[Mark]
) -> Iterator[str]:
    for table, row in rows:
        for column, value in row.items():
            if isinstance(value, str):
                allowed = COLUMNS.get((table, column), frozenset())
                # As it was before it became JSON.
                text = value if value[:1] not in {"{", "["} else _json(json.loads(value))
                banned = [mark for mark in marks if mark.sort not in allowed]
                yield from _found(f"the column {table}.{column}", [text], banned)


def _in_slack(
    slack: SandboxSlack, jobs: Sequence[_Job], secrets: set[Mark], typed: set[Mark]
) -> Iterator[str]:
    queries = {mark for mark in typed if mark.sort is Sort.QUERY}
    for call in slack.calls:
        text = _json(call.arguments)
        banned = secrets if call.method in _VIEWS else secrets | queries
        yield from _found(f"a call of {call.method}", [text], banned)
        if call.method.startswith("chat."):
            about = _job_of(slack, call.arguments)
            theirs = [job for job in jobs if job.id == about]
            yield from _found("a message about another job", [text], _scripts_but(theirs, jobs))
    for whisper in slack._ephemerals.values():
        text = whisper.text + _json(whisper.blocks)
        theirs = [job for job in jobs if job.user == whisper.visible_to]
        yield from _found("a whisper", [text], secrets | queries)
        yield from _found("a whisper to somebody else", [text], _scripts_but(theirs, jobs))


def _job_of(slack: SandboxSlack, arguments: Mapping[str, Any]) -> str | None:
    """Return the id of the job that a message is about: its metadata says."""
    metadata = arguments.get("metadata")
    with contextlib.suppress(KeyError):
        message = slack.find(str(arguments.get("channel")), str(arguments.get("ts")))
        metadata = metadata or (message and message.metadata)
    found = re.search(r'"message": *"(\w+)/', _json(metadata).replace("\\", ""))
    return found and found[1]


def _in_forms(shown: Iterable[_Shown], jobs: Sequence[_Job], secrets: set[Mark]) -> Iterator[str]:
    """Look at forms: what somebody typed is filled in for them alone.

    A form that changes holds what was typed there. One that opens is filled in from a job, or with
    what stood behind the command.
    """
    for form in shown:
        yield from _found("a form", [form.text], secrets)
        if form.opened:
            theirs = [job for job in jobs if job.user == form.user]
            private = _scripts_but(theirs, jobs, Sort.SCRIPT, Sort.QUERY)
            yield from _found("a form of somebody else", [form.text], private)


def _scripts_but(theirs: Iterable[_Job], jobs: Iterable[_Job], *sorts: Sort) -> set[Mark]:
    """Return what was typed for others than ``theirs``: scripts, or what is of these sorts."""
    typed = {mark for job in jobs for mark in _marks_of(job.params)}
    own = {mark for job in theirs for mark in _marks_of(job.params)}
    # What is part of their own words is theirs too.
    return {
        mark
        for mark in typed - own
        if mark.sort in (sorts or (Sort.SCRIPT,))
        and not any(mark.text in each.text for each in own)
    }


def _requests(world: Watched) -> Iterator[str]:
    for request in world.service.requests:
        yield f"{request.path} {_json(request.body)}"


def _files(database: Path) -> Iterator[str]:
    for path in (database, database.with_name(f"{database.name}-wal")):
        yield _content(path)


def _rows(database: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each row with its table; none where a test took the database away or broke it."""
    # One that a killed process left behind is read with its log; one that is in use, without.
    for how in ("mode=rw", "immutable=1"):
        with contextlib.suppress(sqlite3.DatabaseError):
            path = f"file:{quote(str(database))}?{how}"
            with contextlib.closing(sqlite3.connect(path, uri=True, timeout=0)) as db:
                db.row_factory = sqlite3.Row
                tables = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
                names = [row["name"] for row in tables]
                yield from [
                    (name, dict(row))
                    for name in names
                    for row in db.execute(f'SELECT * FROM "{name}"')  # noqa: S608 - its own names
                ]
            return


def _content(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace") if path.is_file() else ""


def _masked(logs: Iterable[Path]) -> str:
    return "".join(map(_content, logs))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _around(text: str, mark: Mark) -> str:
    at = next(found for form in mark.forms if (found := text.find(form)) >= 0)
    return repr(text[max(0, at - 100) : at + 100])


def _level(name: str) -> int:
    return logging.getLevelNamesMapping()[name]


def _judge(found: Iterable[str]) -> None:
    complaints = sorted(set(found))
    assert not complaints, "\n".join(complaints)
