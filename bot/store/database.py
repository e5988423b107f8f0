"""The port: what the store needs from a database, whichever engine implements it.

SQLite has one writer at a time. On PostgreSQL there are several, in several processes: statements
lock rows with ``FOR UPDATE``, which ``Query`` leaves out for SQLite.
"""

import asyncio
import logging
import re
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cached_property
from typing import Any, ClassVar, Final, Protocol, TypeAlias, TypeVar, cast

from bot.errors import OperatorError
from bot.metrics import Metrics

_ROW_LOCK: Final = re.compile(r"\bFOR UPDATE\b(?: OF \w+(?:, \w+)*)?(?: SKIP LOCKED)?")
_LIST: Final = re.compile(r"\bEACH :(\w+)")
_IN_LIST: Final = re.compile(r"\b(NOT )?IN \(EACH :(\w+)\)")
_LOG: Final = logging.getLogger(__name__)
_BEGIN_AGAIN_S: Final = 0.1
# Serial works that are committed together at most: in smaller groups they would wait for each other
# too.
_MAX_SERIAL_GROUP: Final = 64
_ENDED: Final = (
    "the database is not used any more: a part of the bot that uses it has ended unexpectedly. "
    "Restart the bot."
)
_PARAMETER: Final = re.compile(r"(?<!:):([a-z]\w*)")


class Query:
    """A statement, written in the SQL that both engines share, with ``:name`` parameters.

    Two things differ between engines, and are written like this:

    * ``FOR UPDATE`` and ``FOR UPDATE SKIP LOCKED``, with ``OF table, …`` where needed, as
      PostgreSQL has them;
    * ``IN (EACH :names)`` for a parameter that is a list.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.lists = frozenset(_LIST.findall(text))
        """The names of the parameters that are lists."""

    @cached_property
    def sqlite(self) -> str:
        """The statement for SQLite, where a list is passed as JSON."""
        return _LIST.sub(r"SELECT value FROM json_each(:\1)", _ROW_LOCK.sub("", self.text))

    @cached_property
    def postgres(self) -> str:
        """The statement for psycopg, where a list is passed as an array."""
        text = self.text.replace("%", "%%")
        # The type of an empty array follows from the column that it is compared with.
        text = _IN_LIST.sub(
            lambda found: f"{'<> ALL' if found[1] else '= ANY'} (:{found[2]})", text
        )
        return _PARAMETER.sub(r"%(\1)s", text)


_T = TypeVar("_T")

Value: TypeAlias = str | int | Sequence[str] | Sequence[int] | None
"""What a parameter may be. Times are milliseconds since 1970; flags are 0 or 1."""


class DatabaseError(OperatorError):
    """The database failed, and nothing was stored, unless it is ``DatabaseUncertain``."""


class DatabaseUnavailable(DatabaseError):
    """The database cannot be used at the moment. This was logged; try again later."""


class DatabaseUncertain(DatabaseUnavailable):
    """A commit failed in its last step, or was not answered: it may have been stored after all."""


class DatabaseCorrupt(DatabaseError):
    """The content of the database is damaged: it is not used again until it is restored."""


def log_failure(log: logging.Logger, event: str, error: DatabaseError) -> None:
    """Log what could not be done. That it is unavailable or damaged, the database itself logs."""
    if not isinstance(error, DatabaseUnavailable | DatabaseCorrupt):
        log.error(event, extra={"reason": str(error)})


class DatabaseInUse(DatabaseError):
    """Another process has the database, and this engine allows one only."""


class RowUnreadable(DatabaseError):
    """A row cannot be read: it was damaged, or a newer version wrote it. Nothing was stored.

    Attributes:
        table: its table.
        row: its id, or "?" if that is damaged too.
        key: its id as it is stored.
    """

    def __init__(self, table: str, row: str, key: Any) -> None:  # noqa: ANN401 - it may be damaged
        super().__init__(f"row {row} of {table} cannot be read")
        self.table = table
        self.row = row
        self.key = key


class Topic(Enum):
    """What a process may wait for."""

    JOBS = "jobs"
    """A job may have become due, or will be at the time that is the subject, in milliseconds since
    1970."""
    DELIVERIES = "deliveries"
    """Likewise a delivery."""
    HOMES = "homes"
    """What a person's Home tab shows has changed: the subject is their id, with a page after it
    where they have turned to that."""
    MEMORY = "memory"
    """What each process keeps in memory has changed."""


class Alarm(asyncio.Event):
    """An event that says for when it is set: an event of now, unless ``set_at`` says a later time.

    Attributes:
        at: the earliest moment since ``clear``; None without any.
    """

    def __init__(self) -> None:
        super().__init__()
        self.at: datetime | None = None

    def set(self) -> None:
        """Set it for now."""
        self.set_at(_EVER)

    def set_at(self, at: datetime) -> None:
        """Set it for this moment, unless it is set for an earlier one."""
        if self.at is None or at < self.at:
            self.at = at
            super().set()

    def clear(self) -> None:
        """Forget what it was set for."""
        self.at = None
        super().clear()

    def note(self) -> None:
        """Reset the event, but keep ``at``: it is set again for an earlier moment only."""
        super().clear()


_EVER: Final = datetime.min.replace(tzinfo=UTC)

_WRITE: Final = Query("UPDATE migrations SET name = name WHERE name = 'schema'")

ANY: Final = "*"
"""The subject where notifications may have been missed."""


class Row(Protocol):
    """A row, by the names of its columns."""

    def __getitem__(self, column: str, /) -> Any:  # noqa: ANN401 - each column has a type of its own
        """Return the value of a column."""


class Transaction(ABC):
    """What a work may do. Valid only inside the function that it is given to.

    Attributes:
        notified: the topics and subjects that are notified after the commit.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, Any] = {}
        self.notified: set[tuple[Topic, str]] = set()

    @abstractmethod
    def all(self, query: Query, **values: Value) -> Sequence[Row]:
        """Run a statement and return the rows that it selects or returns."""

    def one(self, query: Query, **values: Value) -> Row | None:
        """Run a statement and return its first row; None if there is none."""
        rows = self.all(query, **values)
        return rows[0] if rows else None

    @abstractmethod
    def lock(self, query: Query, **values: Value) -> None:
        """Run a statement that only locks rows, where there are several writers."""

    def once(self, key: Hashable, find: Callable[[], _T]) -> _T:
        """Return what ``find`` returns, or returned for ``key`` earlier in this transaction.

        Works that are committed together share it. What they change is not looked at again.
        """
        if key not in self._known:
            self._known[key] = find()
        return cast(_T, self._known[key])

    def notify(self, topic: Topic, subject: str = "") -> None:
        """Wake the workers of every process once this is committed, and tell them ``subject``."""
        self.notified.add((topic, subject))


@dataclass(slots=True, eq=False)
class Call:
    """A work that waits for its turn, and the future of its caller."""

    work: Callable[[Transaction], Any]
    durable: bool
    serial: bool
    answer: asyncio.Future[Any]
    since: float = field(default_factory=time.monotonic)
    """When it began to wait."""
    alone: bool = False
    """Whether it runs in a transaction of its own."""
    tries: int = 0

    def succeed(self, result: object) -> None:
        """Answer the caller, who may have been cancelled."""
        if not self.answer.done():
            self.answer.set_result(result)

    def fail(self, error: Exception) -> None:
        """Answer the caller with an error, whose cause says nothing of what is stored."""
        if not self.answer.done():
            self.answer.set_exception(error)


class Queue:
    """Works in their order. Of serial works, one group is under way at a time: it goes first."""

    def __init__(self, max_group: int) -> None:
        self._max_group = max_group
        self._calls: deque[Call] = deque()
        self._serial: deque[Call] = deque()
        self._serial_is_under_way = False

    def __bool__(self) -> bool:
        """Whether a group can be taken."""
        return bool(self._calls or (self._serial and not self._serial_is_under_way))

    def add(self, call: Call) -> None:
        """Add a work after all others."""
        (self._serial if call.serial else self._calls).append(call)

    def repeat(self, calls: Sequence[Call]) -> None:
        """Add works before all others: they came earlier."""
        for call in reversed(calls):
            (self._serial if call.serial else self._calls).appendleft(call)

    def take_group(self) -> list[Call]:
        """Return works that may be committed together; none if none wait.

        ``end_group`` is to be called with them, once it is known what became of them.
        """
        is_serial = bool(self._serial) and not self._serial_is_under_way
        calls, most = self._calls, self._max_group
        if is_serial:
            calls, most = self._serial, _MAX_SERIAL_GROUP
        group: list[Call] = []
        while calls and len(group) < most and not (group and (group[0].alone or calls[0].alone)):
            group.append(calls.popleft())
        self._serial_is_under_way |= is_serial
        return group

    def take_alone(self) -> list[Call]:
        """Return the works that come next and are each to run in a transaction of their own."""
        alone: list[Call] = []
        while self._calls and self._calls[0].alone:
            alone.append(self._calls.popleft())
        return alone

    def end_group(self, group: Sequence[Call]) -> None:
        """Let the next serial works be taken, if these are such."""
        if group[0].serial:
            self._serial_is_under_way = False

    def fail_all(self, error: DatabaseError) -> None:
        """Answer all callers that wait with an error."""
        for calls in (self._calls, self._serial):
            while calls:
                calls.popleft().fail(type(error)(str(error)))


@dataclass(frozen=True, slots=True)
class Committed:
    """A transaction that is committed."""

    results: Sequence[Any]
    """Of its works, in their order."""
    notified: set[tuple[Topic, str]]
    on_disk: bool
    """Whether it has waited for the disk, and on SQLite had a change to write there."""


class Database(ABC):
    """A database that is open, with its tables up to date.

    Works wait in a queue, and groups of them run in one transaction each. If one of a group
    fails, each runs once more in a transaction of its own.
    """

    is_sole_process: ClassVar[bool]
    """Whether no other process can use this database while it is open here.

    Then every lease that is found at the start belongs to a process that has ended.
    """

    def __init__(self, metrics: Metrics, max_group: int) -> None:
        self._metrics = metrics
        self._waiting = Queue(max_group)
        self._workers = set[asyncio.Task[None]]()
        # Why the database does not work, as it was logged, until it works again.
        self._problem: str | None = None
        self._events = {topic: Alarm() for topic in Topic}
        self._receivers: dict[Topic, Callable[[str], None]] = {}
        # Why nothing more is stored, from the time on that it is unusable.
        self._broken: DatabaseError | None = None
        self._unusable = asyncio.Event()
        # Why works fail until it can be used again.
        self._away: DatabaseError | None = None
        self._is_closing = asyncio.Event()

    def event(self, topic: Topic) -> Alarm:
        """Return the event that is set when ``topic`` is notified by any process."""
        return self._events[topic]

    def subscribe(self, topic: Topic, receive: Callable[[str], None]) -> None:
        """Have ``receive`` called with each subject that any process notifies ``topic`` of.

        One may be lost: then ``receive`` is called with ``ANY``, or behind a pooler not at all.
        """
        self._receivers[topic] = receive

    def receive(self, topic: Topic, subject: str = "") -> None:
        """Set the event of a topic, and pass its subject on, if there is one."""
        if topic is not Topic.HOMES and subject.isdigit():
            self._events[topic].set_at(from_ms(int(subject)))
        else:
            self._events[topic].set()
        if subject and topic in self._receivers:
            self._receivers[topic](subject)

    def wake_all(self, subject: str = ANY) -> None:
        """Wake all that wait: notifications may have been missed."""
        for topic in Topic:
            self.receive(topic, subject)

    async def run(
        self, work: Callable[[Transaction], _T], *, durable: bool = True, serial: bool = False
    ) -> _T:
        """Run ``work`` in a transaction and return its result once that is committed.

        ``work`` runs in another thread, together with others in one transaction where many wait.
        It may be run again, if one of these others fails or two processes conflict, because they
        wait for each other's rows or write the same unique value: it has no effects but through
        the transaction. A caller that is cancelled gives up the result, not the work. With
        ``durable=False`` a power cut may undo it: for reads, and for what is repeated at the next
        start. It outlives the process all the same.

        ``serial`` is for works that each take the same lock before any other: those of a process
        run one after the other, so that no more than one transaction of it waits for the lock.

        Raises:
            DatabaseUnavailable: nothing was stored; a later try may succeed.
            DatabaseUncertain: likewise, but it may have been stored: no engine repeats it.
            DatabaseCorrupt: nothing was stored, and nothing will be.
            DatabaseError: nothing was stored: the statement is wrong, or the database is closed.
            Exception: what ``work`` raised; nothing was stored.
        """
        if self._is_closing.is_set():
            raise DatabaseError("the database is closed")
        if error := self._broken or self._away:
            raise type(error)(str(error))
        # A sole process has one connection, which runs all works one group after the other.
        serial = serial and not self.is_sole_process
        call = Call(work, durable, serial, asyncio.get_running_loop().create_future())
        self._waiting.add(call)
        self._start_worker()
        return cast(_T, await call.answer)

    async def check(self) -> None:
        """Return if what is stored now reaches the disk: this writes to find out.

        Raises:
            DatabaseError: it does not.
        """
        await self.run(lambda tx: tx.all(_WRITE))

    @abstractmethod
    async def compact(self, *, give_way: bool) -> bool:
        """Rewrite what is stored, so that nothing can be read any more that was erased or deleted.

        ``give_way`` ends it when a work arrives, or does not begin while one is under way.

        Returns:
            Whether it was done: if not, try again later.

        Raises:
            DatabaseError: it failed, and nothing was changed.
        """

    async def watch(self) -> None:
        """Wait until the database cannot be used any more.

        Raises:
            DatabaseError: always; it says why. The process should end then.
        """
        await self._unusable.wait()
        assert self._broken is not None  # noqa: S101 - it is set before the event
        raise self._broken

    @abstractmethod
    async def close(self) -> None:
        """Finish the works that wait, and close; later ones raise DatabaseError."""

    # ── What engines share ────────────────────────────────────────────────────────────────────

    @abstractmethod
    def _start_worker(self) -> None:
        """Have a connection run what waits, unless all are busy."""

    def _start(self, run: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(run)  # noqa: TID251 - see close
        task.add_done_callback(self._task_ended)
        return task

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        """Have the process end if a task failed: nothing else would run what waits."""
        self._workers.discard(task)
        if task.cancelled() and self._is_closing.is_set():
            return
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None:
            # Without its text, which may carry what is stored.
            shown = RuntimeError(type(error).__name__).with_traceback(error.__traceback__)
            _LOG.critical("a task of the database has ended", exc_info=shown)
            self._end(DatabaseUnavailable(_ENDED))

    def _end(self, error: DatabaseError) -> None:
        """Store nothing more, and have the process end."""
        self._broken = error
        self._unusable.set()
        self._waiting.fail_all(error)

    async def _run_group(
        self, group: Sequence[Call], run: Callable[[], Awaitable[Committed]]
    ) -> None:
        """Run works in one transaction, and answer their callers, or have them repeated.

        ``run`` raises DatabaseUnavailable or DatabaseCorrupt if the database failed, not a work.
        """
        try:
            try:
                committed = await run()
            except (DatabaseUnavailable, DatabaseCorrupt) as error:
                self._on_lost(group, error)
            except Exception as error:  # noqa: BLE001 - its caller gets it
                if len(group) == 1:
                    await self._on_failed(group[0], error)
                else:
                    for call in group:
                        call.alone = True
                    self._repeat(group)
            else:
                self._on_committed(group, committed)
        except BaseException:
            for call in group:
                call.fail(DatabaseUncertain(_ENDED))
            raise

    def _repeat(self, calls: Sequence[Call]) -> None:
        """Have works run before those that wait, unless the database cannot be used now."""
        self._waiting.repeat(calls)
        if error := self._broken or self._away:
            self._waiting.fail_all(error)

    def _on_committed(self, group: Sequence[Call], committed: Committed) -> None:
        if self._problem is not None and self._works_again(committed):
            self._problem = None
            _LOG.info("the database works again")
            self.wake_all()  # what failed may have been stored
        for topic, subject in committed.notified:
            self.receive(topic, subject)
        for call, result in zip(group, committed.results, strict=True):
            call.succeed(result)

    @abstractmethod
    def _works_again(self, committed: Committed) -> bool:
        """Return whether a commit shows that what was wrong is over."""

    @abstractmethod
    def _on_lost(self, group: Sequence[Call], error: DatabaseError) -> None:
        """Answer the callers of works that the database has failed, or have them repeated."""

    @abstractmethod
    async def _on_failed(self, call: Call, error: Exception) -> None:
        """Answer the caller of a work that failed alone, or have it repeated."""


@dataclass(frozen=True, slots=True)
class DatabaseSnapshot:
    """What can be read of a database. Nothing is changed or created."""

    done: Sequence[str]
    """The migrations that are done."""
    pending: list[str]
    """Those that the next start applies."""
    all: Callable[..., Iterator[Row]]
    """Runs a query with its values, and returns its rows, read as they are needed."""


async def run_until_stored(
    database: Database,
    work: Callable[[Transaction], _T],
    *,
    retry_interval: timedelta,
    serial: bool = False,
) -> _T:
    """Run ``work``, and repeat it while the database is unavailable.

    For facts that cannot be found out a second time, such as the id in an answer. The caller has
    the row claimed meanwhile, and no other worker takes it up while this process lives.

    Raises:
        DatabaseError: nothing was stored, and nothing will be.
    """
    while True:
        try:
            return await database.run(work, serial=serial)
        except DatabaseUnavailable:
            await asyncio.sleep(retry_interval.total_seconds())


async def until_free(
    begin: Callable[[], Awaitable[_T]],
    not_yet: type[DatabaseError],
    longest: timedelta,
    waiting: str,
) -> _T:
    """Return what ``begin`` returns, and repeat it while it raises ``not_yet``.

    ``waiting`` is logged once.

    Raises:
        DatabaseError: what it raised last, after ``longest``, or another one.
    """
    loop = asyncio.get_running_loop()
    begun = loop.time()
    waits = False
    while True:
        try:
            return await begin()
        except not_yet as error:
            if loop.time() - begun >= longest.total_seconds():
                raise
            if not waits:
                waits = True
                extra = {"reason": str(error), "at_most_s": round(longest.total_seconds())}
                _LOG.warning(waiting, extra=extra)
        await asyncio.sleep(_BEGIN_AGAIN_S)


async def to_its_end(closing: Coroutine[Any, Any, None]) -> None:
    """Await ``closing`` to its end, however often the caller is cancelled meanwhile.

    Raises:
        CancelledError: the caller was cancelled, and ``closing`` has ended.
    """
    task = asyncio.create_task(closing)  # noqa: TID251 - it ends here
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled


def to_ms(moment: datetime) -> int:
    """Return a moment as it is stored: milliseconds since 1970, UTC."""
    return round(moment.timestamp() * 1000)


def optional_ms(moment: datetime | None) -> int | None:
    """Return a moment as it is stored, if there is one."""
    return None if moment is None else to_ms(moment)


def from_ms(ms: int) -> datetime:
    """Return a stored moment."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def optional_moment(ms: int | None) -> datetime | None:
    """Return a stored moment, if there is one."""
    return None if ms is None else from_ms(ms)


def wait_ms(now: int, due_at: datetime | None) -> int:
    """Return how long a row is to wait that is due at ``due_at``, as it is stored."""
    return 0 if due_at is None else max(0, to_ms(due_at) - now)


def span_ms(duration: timedelta) -> int:
    """Return a duration as it is stored: milliseconds."""
    return round(duration.total_seconds() * 1000)


def optional_span_ms(duration: timedelta | None) -> int | None:
    """Return a duration as it is stored, if there is one."""
    return None if duration is None else span_ms(duration)
