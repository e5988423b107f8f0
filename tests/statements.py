"""What the engines ran: the statements and transactions that SQLite or psycopg was given.

They are seen where the libraries take them. A work is what ``Database.run`` was called with; it is
a request's if the task that waits for it is one of the web server's or of Bolt's.
"""

import asyncio
import contextlib
import functools
import importlib
import pkgutil
import re
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import psycopg

import bot.store
from bot.store.database import Query
from bot.store.postgres.engine import PostgresDatabase
from bot.store.sqlite import SQLiteDatabase

_BOT: Final = str(Path(bot.store.__file__).parents[1])
_PARAMETER: Final = re.compile(r"(?<!:):[a-z]\w*")
_NO_STATEMENT: Final = ("COMMIT", "ROLLBACK", "PRAGMA", "SET", "SHOW", "LISTEN")
_SHOWN: Final = 100


@dataclass(slots=True)
class Work:
    """A work that was run, and its statements.

    Attributes:
        of_request: whether a request waited for it.
        asked_at: the moment, on the clock of the recorder, at which it was asked for.
    """

    name: str
    of_request: bool
    asked_at: int
    statements: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Ran:
    """What was run meanwhile.

    Attributes:
        works: in the order in which they were asked for.
        outside: statements outside of every work.
        transactions: how many were begun.
    """

    works: list[Work] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    transactions: int = 0

    @property
    def statements(self) -> int:
        """How many statements, without those that begin and end transactions."""
        return len(self.outside) + sum(len(work.statements) for work in self.works)

    def split(self, at: int) -> tuple["Ran", "Ran"]:
        """Return the first ``at`` works, and all else."""
        return Ran(self.works[:at]), Ran(self.works[at:], self.outside, self.transactions)

    def split_after_requests(self) -> tuple["Ran", "Ran"]:
        """Return all up to the last work that a request waited for, and what came then."""
        return self.split(
            max((at for at, work in enumerate(self.works, 1) if work.of_request), default=0)
        )

    def __str__(self) -> str:
        lines = [f"{self.statements} statements in {len(self.works)} works"]
        for work in self.works:
            lines.append(f"  {work.name} ({'request' if work.of_request else 'background'})")
            lines += [f"    {described(each)}" for each in work.statements]
        lines += [f"  outside of works: {described(each)}" for each in self.outside]
        return "\n".join(lines)


class Recorder:
    """Records what the engines of this process run, from ``take`` to ``take``.

    Attributes:
        clock: says at which moment a work is asked for.
    """

    def __init__(self) -> None:
        self.clock: Callable[[], int] = lambda: 0
        self._ran = Ran()
        self._current = threading.local()

    def take(self) -> Ran:
        """Return what was run since the last call."""
        ran, self._ran = self._ran, Ran()
        return ran

    def add(self, statement: str) -> None:
        """Note a statement, in the thread that runs it."""
        first = statement.split(maxsplit=1)[0].rstrip(";").upper()
        if first == "BEGIN":
            self._ran.transactions += 1
        elif first not in _NO_STATEMENT:
            work = getattr(self._current, "work", None)
            (self._ran.outside if work is None else work.statements).append(statement)

    def recorded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a work that is recorded, of a caller that waits for it in this task."""
        work = Work(_name(function), _is_of_request(), self.clock())
        # By these processes notify each other, once in a while in real time.
        if not work.name.startswith("store.postgres."):
            self._ran.works.append(work)

        def run(*arguments: Any) -> Any:  # noqa: ANN401 - whatever a work takes and returns
            self._current.work = work
            try:
                return function(*arguments)
            finally:
                self._current.work = None

        return run


@contextlib.contextmanager
def recording() -> Iterator[Recorder]:
    """Record what is run on connections that are opened meanwhile."""
    recorder = Recorder()
    with contextlib.ExitStack() as stack:
        connect, execute = sqlite3.connect, psycopg.Cursor.execute

        def connect_traced(*arguments: object, **options: object) -> sqlite3.Connection:
            db: sqlite3.Connection = connect(*arguments, **options)  # type: ignore[call-overload]
            db.set_trace_callback(recorder.add)
            return db

        def execute_traced(
            cursor: psycopg.Cursor[Any], query: object, *arguments: object, **options: object
        ) -> object:
            if isinstance(query, str):
                recorder.add(query)
            return execute(cursor, query, *arguments, **options)  # type: ignore[call-overload]

        stack.enter_context(patch.object(sqlite3, "connect", connect_traced))
        stack.enter_context(patch.object(psycopg.Cursor, "execute", execute_traced))
        for engine in (SQLiteDatabase, PostgresDatabase):
            stack.enter_context(patch.object(engine, "run", _recorded_run(recorder, engine.run)))
        yield recorder


def _recorded_run(recorder: Recorder, run: Callable[..., Any]) -> Callable[..., Any]:
    def run_recorded(database: Any, work: Any, **options: bool) -> Any:  # noqa: ANN401 - as above
        return run(database, recorder.recorded(work), **options)

    return run_recorded


def _is_of_request() -> bool:
    task = asyncio.current_task()
    code = getattr(task and task.get_coro(), "cr_code", None)
    return code is not None and not code.co_filename.startswith(_BOT)


def _name(work: Callable[..., Any]) -> str:
    while isinstance(work, functools.partial):
        work = work.func
    return f"{work.__module__.removeprefix('bot.')}.{work.__qualname__}".replace(".<locals>", "")


def all_queries() -> Iterator[tuple[str, Query]]:
    """Yield each statement of the store with its name."""
    for module in pkgutil.iter_modules(bot.store.__path__):
        contents = vars(importlib.import_module(f"bot.store.{module.name}"))
        for name, value in contents.items():
            for at, query in enumerate(_queries_in(value)):
                yield f"{module.name}.{name}[{at}]", query


def _queries_in(value: object) -> Sequence[Query]:
    if isinstance(value, Query):
        return [value]
    held: Iterable[object] = value if isinstance(value, tuple) else ()
    if isinstance(value, dict):
        held = value.values()
    elif type(value).__module__.startswith(bot.store.__name__):  # such as what tables share
        held = getattr(value, "__dict__", {}).values()
    return [each for each in held if isinstance(each, Query)]


def described(statement: str) -> str:
    """Return the name of a statement of the store, and how it begins."""
    begin = " ".join(statement.split())[:_SHOWN]
    return f"{_name_of(statement).removesuffix('[0]')}: {begin}"


@functools.cache
def _name_of(statement: str) -> str:
    for name, query in all_queries():
        if statement == query.postgres or _pattern(query.sqlite).fullmatch(statement):
            return name
    return "?"


@functools.cache
def _pattern(statement: str) -> re.Pattern[str]:
    """Return a pattern of a statement of SQLite's, with the values put in."""
    return re.compile(".*?".join(map(re.escape, _PARAMETER.split(statement))), re.DOTALL)
