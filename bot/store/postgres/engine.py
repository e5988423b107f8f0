"""The PostgreSQL engine: works in a few threads with a connection each, committed in groups."""

import asyncio
import contextlib
import logging
import os
import random
import re
import secrets
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import psycopg
from psycopg import IsolationLevel, errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import DictRow, dict_row

from bot.metrics import Metrics
from bot.store.database import (
    Call,
    Committed,
    Database,
    DatabaseError,
    DatabaseSnapshot,
    DatabaseUnavailable,
    DatabaseUncertain,
    Query,
    Row,
    Topic,
    Transaction,
    Value,
    to_its_end,
    until_free,
)
from bot.store.migrate import MAKE, checksum, pending_steps, steps, warn_of_newer
from bot.timings import Timings

_LOG: Final = logging.getLogger(__name__)
_T = TypeVar("_T")
Connection: TypeAlias = psycopg.Connection[DictRow]
_AsyncConnection: TypeAlias = psycopg.AsyncConnection[DictRow]

# Of parameters that the URL may set itself:
# https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PARAMKEYWORDS
_DEFAULTS: Final[Mapping[str, str | int]] = {
    "application_name": "replica-videos",
    "connect_timeout": 3,  # seconds, for each host
    # After a failover, the name may lead to a replica, or a host of several be one.
    "target_session_attrs": "read-write",
    # A machine that is gone says nothing: else its end would be noticed after two hours.
    "keepalives_idle": 10,  # seconds
    "keepalives_interval": 5,  # seconds
    "keepalives_count": 2,
    "tcp_user_timeout": 15_000,  # milliseconds
}
_STATEMENT_TIMEOUT_MS: Final = 10_000
# A process that is gone in the middle of a transaction has rows locked until then.
_IDLE_TIMEOUT_MS: Final = 10_000
# Others may have set another one, on the connection that a pooler gives to a transaction.
OWN_PATH: Final = "SET LOCAL search_path TO DEFAULT"
# Not in the options of the connection, which a pooler refuses, or gives to another's transaction.
_BEGIN: Final = (
    f"BEGIN ISOLATION LEVEL READ COMMITTED; {OWN_PATH};"
    " SET LOCAL synchronous_commit TO {commit};"
    " SET LOCAL lock_timeout TO {lock_timeout_ms};"
    f" SET LOCAL statement_timeout TO {_STATEMENT_TIMEOUT_MS};"
    f" SET LOCAL idle_in_transaction_session_timeout TO {_IDLE_TIMEOUT_MS}"
)


# A pooler answers with a process id of its own making when a connection begins.
_PID: Final = "SELECT pg_backend_pid() AS pid"
# A statement is prepared once it was run as often as that. Measured with 300 jobs at once: the
# server takes 5.2 ms of processor time for a job, and 7.6 ms without.
_PREPARED_AFTER: Final = 2
# More than the bot has.
_MAX_PREPARED: Final = 500


class Link:
    """One connection, which is opened when it is needed. Used by one thread at a time.

    Not of psycopg_pool: after a lost connection that tries again after one and three seconds, where
    a restart of the server within two goes unnoticed here, and it does not say why it has none.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Connection | None = None
        # In real time; None outside of transactions.
        self._last_asked_at: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, which may be lost without its having been noticed."""
        return self._connection is not None

    def open(self) -> None:
        """Open the connection.

        Raises:
            DatabaseUnavailable: it cannot be opened.
        """
        try:
            self._connection = connect(self._url)
            [row] = self._connection.execute(_PID).fetchall()
        except psycopg.Error as error:
            self.close()
            raise DatabaseUnavailable(connect_problem(error)[0]) from error
        if row["pid"] == self._connection.info.backend_pid:
            self._connection.prepare_threshold = _PREPARED_AFTER
            self._connection.prepared_max = _MAX_PREPARED

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def is_silent(self, seconds: float) -> bool:
        """Return whether a statement has had no answer for ``seconds``."""
        asked_at = self._last_asked_at
        return asked_at is not None and time.monotonic() - asked_at >= seconds

    def end_if_silent(self, seconds: float) -> None:
        """Have the statement fail that has had no answer for ``seconds``, if one does.

        May be called from any thread.
        """
        connection = self._connection
        if connection is None or not self.is_silent(seconds):
            return
        with (
            contextlib.suppress(psycopg.Error, OSError),
            socket.socket(fileno=os.dup(connection.fileno())) as copy,
        ):
            copy.shutdown(socket.SHUT_RDWR)

    def run(self, group: Sequence[Call], *, lock_timeout_ms: int) -> Committed:
        """Run works in one transaction.

        Raises:
            DatabaseUnavailable: the server cannot be used; nothing was stored, unless it is
                DatabaseUncertain.
            Exception: what a work or one of its statements raised; nothing was stored.
        """
        assert self._connection is not None  # noqa: S101 - it was opened
        connection, tx, committing = self._connection, _Transaction(self), False
        durable = any(call.durable for call in group)
        begin = _BEGIN.format(commit="on" if durable else "off", lock_timeout_ms=lock_timeout_ms)
        try:
            self.execute(begin)
            # A generator makes another error of StopIteration, which no future takes.
            results = list[Any](call.work(tx) for call in group)
            committing = True
            answer = self.execute("COMMIT").statusmessage
        except BaseException as error:
            lost = connection.closed or (
                isinstance(error, psycopg.Error) and meaning_of(error) is Meaning.LOST
            )
            if lost:
                self.close()
            else:
                with contextlib.suppress(psycopg.Error):
                    connection.rollback()
            if lost and isinstance(error, psycopg.Error):
                kind = DatabaseUncertain if committing else DatabaseUnavailable
                reason = "a commit was not answered: " if committing else ""
                raise kind(reason + describe(error)) from error
            raise
        finally:
            self._last_asked_at = None
        if answer != "COMMIT":  # it says ROLLBACK, and raises nothing
            raise DatabaseError("a work went on after one of its statements had failed")
        return Committed(results, tx.notified, durable)

    def execute(
        self, statement: str, values: Mapping[str, Value] | None = None
    ) -> psycopg.Cursor[DictRow]:
        """Run a statement, in a transaction.

        Raises:
            psycopg.Error: it failed.
        """
        assert self._connection is not None  # noqa: S101 - it was opened
        self._last_asked_at = time.monotonic()
        return self._connection.execute(statement, values)


class _Transaction(Transaction):
    """The engine's ``Transaction``; what it notifies is sent after the commit."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._execute = link.execute

    def all(self, query: Query, **values: Value) -> Sequence[Row]:
        try:
            cursor = self._execute(query.postgres, values)
        except (psycopg.DataError, UnicodeEncodeError) as error:
            if getattr(error, "sqlstate", None) is not None:
                raise
            # Nothing was sent: PostgreSQL's texts have no NUL, and are UTF-8.
            cursor = self._execute(query.postgres, {n: _storable(v) for n, v in values.items()})
        return cursor.fetchall() if cursor.description else []

    def lock(self, query: Query, **values: Value) -> None:
        self.all(query, **values)


def connect(url: str, **parameters: str) -> Connection:
    """Return a new connection, for statements that are each a transaction.

    ``parameters`` are libpq's, before those of the URL.

    Raises:
        psycopg.Error: the server cannot be reached, or refuses it.
    """
    # No prepared statements, before it is known that no pooler is in between: that may lead the
    # next transaction to another connection.
    connection = psycopg.connect(
        autocommit=True,
        row_factory=dict_row,
        prepare_threshold=None,
        **parameters_of(url, **parameters),
    )
    # Of its transactions, whatever the server's own default is.
    connection.isolation_level = IsolationLevel.READ_COMMITTED
    return connection


COMMAND: Final = "replica-videos command"
"""The name of a connection that nobody takes for a bot's, from its first moment to its last."""


def name_of_bots(url: str) -> str:
    """Return the name by which the server knows the connections of bots.

    Raises:
        psycopg.Error: the URL cannot be read.
    """
    # https://www.postgresql.org/docs/current/runtime-config-logging.html#GUC-APPLICATION-NAME
    return str(parameters_of(url)["application_name"])[:63]


def parameters_of(url: str, **parameters: str) -> dict[str, Any]:
    """Return libpq's parameters of a connection: ``parameters``, the URL's, then our own.

    Raises:
        psycopg.Error: it cannot be read.
    """
    return {**_DEFAULTS, **conninfo_to_dict(url), "client_encoding": "utf8", **parameters}


def _storable(value: Value) -> Value:
    """Return a value with "?" for what no text of PostgreSQL's can hold."""
    if isinstance(value, str):
        return value.replace("\0", "?").encode(errors="replace").decode()
    if isinstance(value, Sequence):
        return [_storable(each) for each in value]  # type: ignore[return-value]
    return value


# ── Its tables ──────────────────────────────────────────────────────────────────────────────────

# Of our own choosing: a migration holds it, so that several copies may start at once.
_LOCK: Final = 7_208_455_310_092_411
# All who use a table wait behind a migration that waits for it: therefore it gives way soon. An
# index is made without CONCURRENTLY, which no transaction allows: with a million jobs writers wait
# for about a second.
_MIGRATION_LOCK_TIMEOUT_MS: Final = 2_000

# Tables are made in the first schema of the path, which may not have been there at first.
_WHERE_TABLES_ARE: Final = (
    "SELECT set_config('search_path', quote_ident(nspname), true) FROM pg_namespace"
    " WHERE oid = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('migrations'))"
)
_DONE: Final = "SELECT name, checksum FROM migrations ORDER BY name"


def migrate(url: str) -> list[str]:
    """Bring the tables up to date; return the names of what was applied.

    Raises:
        DatabaseUnavailable: the server cannot be reached at the moment.
        DatabaseError: the server cannot be used, or its tables are another version's.
    """
    # Each migration is a transaction: what was not committed is applied by the next try.
    with translated(), connect(url) as connection:
        return migrate_postgres(connection)


def migrate_postgres(connection: Connection) -> list[str]:
    """Apply what is missing, each step in a transaction; return the names of what was applied.

    Raises:
        DatabaseError: another version made the database, and this one cannot use it.
        psycopg.Error: a step failed, perhaps because somebody has locked the tables; those before
            it stay.
    """
    files = steps("postgres")
    with connection.transaction():
        connection.execute(OWN_PATH)
        done, pending = steps_in_postgres(connection)
    warn_of_newer(done, files)
    applied: list[str] = []
    while pending:
        with connection.transaction():
            pending = _apply_next(connection, files, applied)
    return applied


def steps_in_postgres(connection: Connection) -> tuple[list[str], list[str]]:
    """Return the names of the steps that are done, and of those that are pending.

    Raises:
        DatabaseError: another version made the database, or it cannot be used.
        psycopg.Error: it cannot be read.
    """
    encoding = connection.info.parameter_status("server_encoding")
    if encoding not in {"UTF8", None}:  # a pooler may not say
        raise DatabaseError(
            f"the database's encoding is {encoding}, which cannot hold what people write: "
            "create one with ENCODING 'UTF8' TEMPLATE template0, and name it in DATABASE_URL"
        )
    # With IF NOT EXISTS, the right to create tables would be needed where there is nothing to do.
    [found] = connection.execute("SELECT to_regclass('migrations') AS migrations").fetchall()
    rows = connection.execute(_DONE).fetchall() if found["migrations"] is not None else []
    done = {row["name"]: row["checksum"] for row in rows}
    to_begin = "create another database, and name it in DATABASE_URL"
    return list(done), pending_steps(done or None, steps("postgres"), "the database", to_begin)


def _apply_next(connection: Connection, files: Mapping[str, str], applied: list[str]) -> list[str]:
    """Apply the first that is missing, unless another process has meanwhile; return the others."""
    # It may take long, and its server's own limit is for requests.
    connection.execute(
        f"{OWN_PATH}; SET LOCAL statement_timeout TO 0;"
        f" SET LOCAL lock_timeout TO {_MIGRATION_LOCK_TIMEOUT_MS}"
    )
    connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
    connection.execute(_WHERE_TABLES_ARE)
    # Before anything is looked up: what another process has just made may not be known here yet.
    connection.execute(MAKE)
    _, pending = steps_in_postgres(connection)
    for name in pending[:1]:
        connection.execute(files[name])
        connection.execute(
            "INSERT INTO migrations (name, checksum) VALUES (%s, %s)", [name, checksum(files[name])]
        )
        applied.append(name)
    return pending[1:]


# ── Who keeps works waiting ─────────────────────────────────────────────────────────────────────


async def _connect_to_watch(url: str, **parameters: str) -> _AsyncConnection:
    return await psycopg.AsyncConnection.connect(
        autocommit=True,
        row_factory=dict_row,
        prepare_threshold=None,
        **parameters_of(url, **parameters),
    )


_LOCKED: Final = "another program has locked what the bot needs: end its transaction"
# What is waited for is not another bot that waits itself. The rights of a monitor are not needed:
# https://www.postgresql.org/docs/current/monitoring-stats.html#MONITORING-PG-STAT-ACTIVITY-VIEW
_BLOCKER: Final = """
    SELECT other.pid, held.virtualtransaction AS transaction,
        other.application_name AS application,
        to_char(other.xact_start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') AS since
    FROM pg_stat_activity AS bot, unnest(pg_blocking_pids(bot.pid)) AS blocking (pid)
    JOIN pg_stat_activity AS other ON other.pid = blocking.pid
    JOIN pg_locks AS held ON held.pid = other.pid AND held.locktype = 'virtualxid' AND held.granted
    WHERE bot.datname = current_database() AND bot.application_name = %(bots)s
        AND (other.application_name <> %(bots)s OR other.wait_event_type IS DISTINCT FROM 'Lock')
    ORDER BY other.xact_start, other.pid LIMIT 1
"""
_STILL_THERE: Final = (
    "SELECT FROM pg_locks WHERE pid = %(pid)s AND virtualtransaction = %(transaction)s LIMIT 1"
)


async def find_blocker(url: str, known: DictRow | None) -> DictRow | None:
    """Return who keeps bots waiting for a lock: the known one until its transaction ends.

    ``pid``, ``transaction``, ``application``, and ``since`` where the server tells the bot's user.
    What it runs may carry what is stored.

    Raises:
        psycopg.Error: it cannot be found out now.
    """
    async with await _connect_to_watch(url, application_name=COMMAND) as connection:
        if known is not None and (await connection.execute(_STILL_THERE, known)).rowcount:
            return known
        found = await connection.execute(_BLOCKER, {"bots": name_of_bots(url)})
        return await found.fetchone()


def _lock_wait_ms(call: Call) -> int:
    """Return how much longer a work may wait for locks; 0 if it has waited for its time."""
    return max(0, round(_MAX_LOCK_WAIT_MS - 1000 * (time.monotonic() - call.since)))


# ── The database ────────────────────────────────────────────────────────────────────────────────

_NOTIFY: Final = Query(
    """
    SELECT pg_notify(channel, :sender || ' ' || subject)
    FROM unnest(CAST(:channels AS TEXT[]), CAST(:subjects AS TEXT[])) AS each(channel, subject)
    """
)
_CHANNELS: Final = {topic: f"bot_{topic.value}" for topic in Topic}
_TOPICS: Final = {channel: topic for topic, channel in _CHANNELS.items()}
# Between two notifications, and from a lost connection to the next one.
_INTERVAL_S: Final = 0.05
_LISTEN_AGAIN_S: Final = 1.0

_CONNECTIONS: Final = 4
# Works that are committed together at most: each waits for the others.
_MAX_GROUP: Final = 16
# A group that waits longer for rows of another one gives way, and each of its works runs alone: two
# groups may wait for each other. A work alone takes its locks in order, and serial ones take the
# same lock first.
_GROUP_LOCK_TIMEOUT_MS: Final = 50
# Somebody may have locked a table for long, and Slack waits three seconds for an answer. A work
# that is late for other reasons still waits for other copies of the bot.
_MAX_LOCK_WAIT_MS: Final = 1_500
_MIN_LOCK_TIMEOUT_MS: Final = 400
# A statement that has had no answer for this time may wait for somebody's lock.
_SUSPECT_LOCK_AFTER_S: Final = 1.0
_LOOK_INTERVAL_S: Final = 0.2
# Of a work that conflicts with those of other processes, or loses its connection.
_MAX_TRIES: Final = 10
_MAX_TRIES_OF_DUPLICATE: Final = 2
_CONFLICT_PAUSE_S: Final = 0.02
# Between two tries to reach a server that is away; it doubles.
_RECONNECT_S: Final = 0.1
_MAX_RECONNECT_S: Final = 1.0
# From a connection that the server refused, while others work, to the next try.
_REFUSED_PAUSE_S: Final = 5.0


class PostgresDatabase(Database):
    """A database on a server, which several processes may use at the same time.

    Each connection takes a group of works. Serial ones are taken by one connection at a time: more
    would wait for its lock. What was certainly not committed is repeated: after a conflict with
    another process, and after a lost connection. While the server is away, works wait for
    ``max_database_wait``, then they fail at once.

    A notification is sent after the commit, in a transaction of its own: PostgreSQL lets those
    that notify commit one after the other. So one may be lost, if this process ends in between.
    Then, while there is no connection to listen on, and behind a pooler, the slow poll finds the
    work. Subjects of others are not found that way: behind a pooler they are not received.
    """

    is_sole_process = False

    def __init__(self, url: str, metrics: Metrics, timings: Timings) -> None:
        super().__init__(metrics, _MAX_GROUP)
        self._timings = timings
        # Gives up what waits for a server that is away; None while there is a connection.
        self._giving_up: asyncio.TimerHandle | None = None
        # What the other processes were not notified of yet.
        self._changed = set[tuple[Topic, str]]()
        self._has_changed = asyncio.Event()
        self._sender = secrets.token_hex(8)
        self._threads = ThreadPoolExecutor(_CONNECTIONS, thread_name_prefix="postgres")
        self._url = url
        self._links = [Link(url) for _ in range(_CONNECTIONS)]
        # Who keeps works waiting; until that ends, a commit says nothing.
        self._blocker: DictRow | None = None
        # The last one takes what comes next.
        self._idle = deque(self._links)
        endless = (self._listen, self._notify_others, self._watch_statements)
        self._endless = [self._start(run()) for run in endless]

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        url: str,
        metrics: Metrics | None = None,
        timings: Timings | None = None,
    ) -> AsyncIterator["PostgresDatabase"]:
        """Connect, and bring the tables up to date; wait for a server that is just starting.

        Raises:
            DatabaseError: the server cannot be used, or its tables are another version's.
        """
        timings = timings or Timings()
        await until_free(
            partial(asyncio.to_thread, migrate, url),
            DatabaseUnavailable,
            timings.lock_timeout,
            "waiting for the database server",
        )
        database = cls(url, metrics or Metrics(), timings)
        try:
            yield database
        finally:
            await to_its_end(database.close())

    async def compact(self, *, give_way: bool) -> bool:  # noqa: ARG002 - it takes no time
        """Return True: the server's own vacuum frees what was erased."""
        return True

    async def close(self) -> None:
        """Finish the works that wait; later ones raise DatabaseError.

        Those that the server does not finish within ``max_database_wait`` fail.
        """
        self._is_closing.set()
        for task in self._endless:
            task.cancel()
        if self._giving_up is not None:
            self._give_up("the server is away")
        longest = self._timings.max_database_wait.total_seconds()
        while self._workers:
            _, busy = await asyncio.wait(self._workers, timeout=longest)
            if busy:
                self._give_up("the database is closed")
                for link in self._links:
                    link.end_if_silent(0)
                longest = _RECONNECT_S
        await asyncio.wait(self._endless)
        for link in self._links:  # what was not notified, the slow poll of the others finds
            link.close()
        self._threads.shutdown()

    # ── Works and connections ─────────────────────────────────────────────────────────────────

    def _start_worker(self) -> None:
        """Have a connection take what waits, if one is idle: the last one that had work.

        So a quiet process needs one connection, and none where the server accepts no more.
        """
        if self._waiting and self._idle:
            self._workers.add(self._start(self._work(self._idle.pop())))

    async def _work(self, link: Link) -> None:
        """Run what waits on one connection."""
        while self._waiting:
            if not link.is_open:
                await self._open(link)
            elif group := self._waiting.take_group():
                self._start_worker()  # for what is left
                await self._run_on(link, group)
                self._waiting.end_group(group)
        if link.is_open:
            self._idle.append(link)
        else:
            self._idle.appendleft(link)

    async def _run_on(self, link: Link, group: Sequence[Call]) -> None:
        if self._blocker is not None and group[0].alone and not _lock_wait_ms(group[0]):
            group[0].fail(DatabaseUnavailable(_LOCKED))  # it was in a group that has waited
            return
        timeout = _GROUP_LOCK_TIMEOUT_MS
        if len(group) == 1 or group[0].serial:
            least = timeout if self._blocker is not None else _MIN_LOCK_TIMEOUT_MS
            timeout = max(least, min(map(_lock_wait_ms, group)))
        run = partial(link.run, group, lock_timeout_ms=timeout)
        await self._run_group(group, partial(self._in_thread, run))

    async def _in_thread(self, run: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, run)

    # ── What became of a group ────────────────────────────────────────────────────────────────

    def _on_committed(self, group: Sequence[Call], committed: Committed) -> None:
        super()._on_committed(group, committed)
        if committed.notified:
            self._changed |= committed.notified
            self._has_changed.set()

    def _works_again(self, _: Committed) -> bool:
        return self._blocker is None

    def _on_lost(self, group: Sequence[Call], error: DatabaseError) -> None:
        """Repeat what was certainly not committed, and nothing else."""
        again: list[Call] = []
        for call in group:
            call.tries += 1
            if call.tries < _MAX_TRIES and not isinstance(error, DatabaseUncertain):
                again.append(call)
            else:
                self._note(str(error))
                call.fail(type(error)(str(error)))
        self._repeat(again)

    async def _on_failed(self, call: Call, error: Exception) -> None:
        """Repeat a work that conflicted with another process, or fail it."""
        if not isinstance(error, psycopg.Error):
            call.fail(error)
            return
        meaning, reason = meaning_of(error), describe(error)
        limits = {Meaning.CONFLICT: _MAX_TRIES, Meaning.DUPLICATE: _MAX_TRIES_OF_DUPLICATE}
        call.tries += 1
        has_waited = isinstance(error, errors.LockNotAvailable) and not _lock_wait_ms(call)
        if call.tries < limits.get(meaning, 0) and not has_waited:
            await asyncio.sleep(random.uniform(0, _CONFLICT_PAUSE_S * call.tries))  # noqa: S311 - jitter
            self._repeat([call])
            return
        if meaning in {Meaning.CONFLICT, Meaning.UNAVAILABLE}:
            self._note(reason)
            call.fail(DatabaseUnavailable(reason))
        else:
            call.fail(DatabaseError(f"the database says: {reason}"))

    # ── A server that is away ─────────────────────────────────────────────────────────────────

    async def _open(self, link: Link) -> None:
        """Open a connection, as soon as the server is back.

        Where others are open, this returns after a pause. Where none is, works wait for a moment,
        and later ones fail.
        """
        pause = _RECONNECT_S
        while not link.is_open:
            try:
                await self._in_thread(link.open)
            except DatabaseUnavailable as error:
                if self._is_closing.is_set():
                    self._give_up(str(error))
                    return
                if any(other.is_open for other in self._links):
                    self._start_worker()  # an idle one works, or finds that it is lost too
                    await self._pause(_REFUSED_PAUSE_S)
                    return
                if self._giving_up is None:
                    self._note(str(error))
                    longest = self._timings.max_database_wait.total_seconds()
                    loop = asyncio.get_running_loop()
                    self._giving_up = loop.call_later(longest, self._give_up, str(error))
                await self._pause(pause * random.uniform(0.8, 1.2))  # noqa: S311 - jitter
                pause = min(2 * pause, _MAX_RECONNECT_S)
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = self._away = None

    def _give_up(self, reason: str) -> None:
        self._away = DatabaseUnavailable(reason)
        self._waiting.fail_all(self._away)

    def _note(self, reason: str) -> None:
        """Log why the database does not work, once until it works again."""
        self._metrics.database_errors.inc()
        if self._problem is None:
            _LOG.error("the database does not work", extra={"reason": reason})
        self._problem = reason

    async def _watch_statements(self) -> None:
        """End connections on which a statement has no answer: the server, or the way, is gone.

        Find out who keeps works waiting for a lock, log it once, and see when that ends.
        """
        while True:
            await asyncio.sleep(_LOOK_INTERVAL_S)
            for link in self._links:
                link.end_if_silent(self._timings.database_silence.total_seconds())
            waits = any(link.is_silent(_SUSPECT_LOCK_AFTER_S) for link in self._links)
            if self._blocker is None and not waits:
                continue
            before = self._blocker
            with contextlib.suppress(psycopg.Error, OSError, TimeoutError):
                async with asyncio.timeout(self._timings.max_database_wait.total_seconds()):
                    self._blocker = await find_blocker(self._url, before)
            if (found := self._blocker) is not None and found != before:
                who = {name: found[name] for name in ("pid", "application", "since")}
                _LOG.error("the database does not work", extra={"reason": _LOCKED, **who})
                self._problem = _LOCKED

    async def _pause(self, seconds: float) -> None:
        """Wait, but not once the database is to be closed."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._is_closing.wait(), seconds)

    # ── Notifications between copies ──────────────────────────────────────────────────────────

    async def _notify_others(self) -> None:
        while True:
            await asyncio.sleep(_INTERVAL_S)  # all of a moment is one notification
            await self._has_changed.wait()
            await self._notify()

    async def _notify(self) -> None:
        """Notify the other processes of what they were not notified of yet."""
        channels = [_CHANNELS[topic] for topic, _ in self._changed]
        subjects = [subject for _, subject in self._changed]
        self._changed.clear()
        self._has_changed.clear()

        def notify(tx: Transaction) -> None:
            tx.all(_NOTIFY, channels=channels, subjects=subjects, sender=self._sender)

        with contextlib.suppress(DatabaseError):  # their slow poll finds it
            await self.run(notify, durable=False)

    async def _listen(self) -> None:
        """Pass on what others notify of, and poll slowly."""
        while True:
            try:
                async with await _connect_to_watch(self._url) as connection:
                    await self._listen_on(connection)
            except (psycopg.Error, OSError):
                self.wake_all("")
                await asyncio.sleep(_LISTEN_AGAIN_S)

    async def _listen_on(self, connection: _AsyncConnection) -> None:
        cursor = await connection.execute(_PID)
        # A pooler in between may not pass notifications on.
        is_pooled = await cursor.fetchone() != {"pid": connection.info.backend_pid}
        for channel in () if is_pooled else _TOPICS:
            await connection.execute(f"LISTEN {channel}")
        poll = self._timings.pooled_slow_poll if is_pooled else self._timings.slow_poll
        self.wake_all()
        while True:
            async for each in connection.notifies(timeout=poll.total_seconds()):
                sender, _, subject = each.payload.partition(" ")
                if sender != self._sender:
                    self.receive(_TOPICS[each.channel], subject)
            self.wake_all("")


# ── For those who only read ───────────────────────────────────────────────────────────────────

# Rows that are fetched at a time.
_FETCHED: Final = 1000
# A large database takes longer than any request.
_BEGIN_TO_READ: Final = (
    f"BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; {OWN_PATH};"
    " SET LOCAL statement_timeout TO 0; SET LOCAL lock_timeout TO 5000;"
    " SET LOCAL idle_in_transaction_session_timeout TO 0"
)


@contextlib.contextmanager
def postgres_snapshot(url: str) -> Iterator[DatabaseSnapshot]:
    """Read the database of this URL, beside the bots that use it.

    Raises:
        DatabaseError: it cannot be read, or this version cannot use it.
    """
    with translated(), connect(url, application_name=COMMAND) as connection:

        def rows(query: Query, **values: Value) -> Iterator[Row]:
            with connection.cursor("rows") as cursor:
                cursor.itersize = _FETCHED
                yield from cursor.execute(query.postgres, values)

        connection.execute(_BEGIN_TO_READ)
        done, pending = steps_in_postgres(connection)
        yield DatabaseSnapshot(done, pending, rows)
        connection.rollback()


# ── What the errors of psycopg mean, and in which words they are told ───────────────────────────

# A message of PostgreSQL's may carry what is stored ("Key (id)=(…)", "Failing row contains (…)"),
# and one of libpq's parts of the URL. Only words that cannot are shown.


class Meaning(Enum):
    """What an error says about a work, and what to do."""

    CONFLICT = "conflict"
    """Another process has the same rows: nothing was stored, and a repetition may succeed."""
    DUPLICATE = "duplicate"
    """A unique value is taken, perhaps since a moment ago: a repetition sees by whom."""
    LOST = "lost"
    """The connection, or the server, cannot be used: a new connection is needed."""
    UNAVAILABLE = "unavailable"
    """The server cannot do it: nothing was stored, and a later try may succeed."""
    REFUSED = "refused"
    """The statement is wrong: a repetition would fail like this too."""


# By SQLSTATE, or by its class, the first two characters:
# https://www.postgresql.org/docs/current/errcodes-appendix.html
_REFUSED: Final = {
    *("02", "03", "09", "0A", "0B", "0F", "0L", "0P", "0Z", "10", "20", "21", "22", "23", "24"),
    *("25", "27", "2B", "2D", "2F", "34", "38", "39", "3B", "3F", "42", "44", "54", "55", "HV"),
    "P0",
}
MEANINGS: Final = dict.fromkeys(_REFUSED, Meaning.REFUSED) | {
    "08": Meaning.LOST,
    # A prepared statement has other columns since a migration. A rollback has psycopg forget it.
    "0A000": Meaning.CONFLICT,
    "23505": Meaning.DUPLICATE,
    "25006": Meaning.LOST,  # the server is no longer the primary
    "25P03": Meaning.LOST,  # it ended the session: this process was asleep in a transaction
    "25P04": Meaning.LOST,
    "26": Meaning.LOST,  # a pooler has changed the connection behind it
    "28": Meaning.LOST,
    "3D": Meaning.LOST,
    "40": Meaning.CONFLICT,
    "40003": Meaning.LOST,  # it does not know itself whether it was done
    "53": Meaning.UNAVAILABLE,
    "53300": Meaning.LOST,
    "55P03": Meaning.CONFLICT,
    "57": Meaning.LOST,
    "57014": Meaning.UNAVAILABLE,  # the timeout of a statement
    "58": Meaning.UNAVAILABLE,
    "72": Meaning.CONFLICT,
    "F0": Meaning.UNAVAILABLE,
    "XX": Meaning.UNAVAILABLE,
}
# Of psycopg itself, without SQLSTATE. Of others, the connection is lost.
_REFUSED_BY_PSYCOPG: Final = (
    *(psycopg.DataError, psycopg.IntegrityError),
    *(psycopg.ProgrammingError, psycopg.NotSupportedError),
)
# Their messages name tables, columns and settings. Those of others may quote what is stored.
_WITHOUT_VALUES: Final = {
    *("08", "0A", "23", "25", "28", "3D", "40"),
    *("42", "53", "54", "55", "57", "58", "XX"),
}


# By what libpq says, as far as it can be told: in other languages, the last one counts. Where it
# tried with and without encryption, both are in its text, and a wrong password is the reason.
# Beside it: whether waiting may help, and what to say.
_CONNECT_PROBLEMS: Final = (
    (
        r"invalid (?:connection option|URI|percent|integer|port)|missing .* in connection info",
        False,
        (
            "DATABASE_URL is not a URL of PostgreSQL's: correct it (an option may be misspelt, or "
            "a special character of the password not written as %XX)"
        ),
    ),
    (
        "no password supplied",
        False,
        (
            "the database server asks for a password: put it into DATABASE_URL, PGPASSWORD or "
            "~/.pgpass"
        ),
    ),
    (
        r"authentication failed|role .* does not exist",
        False,
        ("the database server refuses the user or the password: correct them in DATABASE_URL"),
    ),
    (
        r"pg_hba\.conf",
        False,
        (
            "the database server does not allow this connection: allow its user, database and "
            "address in pg_hba.conf there, or add ?sslmode=require to DATABASE_URL"
        ),
    ),
    (
        r"database .* does not exist",
        False,
        ("the server has no such database: create it, or correct its name in DATABASE_URL"),
    ),
    (
        r"too many (?:clients|connections)|connection slots|too many connections for",
        True,
        (
            "the database server accepts no more connections: each copy of the bot needs five, so "
            "raise max_connections, or run fewer copies"
        ),
    ),
    (
        "server does not support SSL",
        False,
        (
            "the database server offers no encryption: switch it on there, or correct sslmode in "
            "DATABASE_URL"
        ),
    ),
    (
        "root certificate file",
        False,
        (
            "the database server's certificate cannot be verified: set sslrootcert in DATABASE_URL "
            "to the file of its certificate authority, or to system"
        ),
    ),
    (
        r"(?i)certificate|\bssl|\btls|channel binding",
        False,
        (
            "no encrypted connection can be opened: correct sslmode, sslrootcert or "
            "channel_binding in DATABASE_URL, or the server's certificate"
        ),
    ),
    (
        r"session is (?:read-only|not)|server is (?:not )?in hot standby",
        True,
        (
            "the database server is read-only, as after a failover: set DATABASE_URL to the "
            "primary, or to all hosts"
        ),
    ),
    (
        r"starting up|shutting down|not accepting connections|recovery",
        True,
        "the database server is starting or stopping: wait until it is up",
    ),
    (
        r"translate host name|resolve|Name or service",
        True,
        (
            "the database server's name cannot be resolved: correct the host in DATABASE_URL, or "
            "the name server of this machine"
        ),
    ),
    (
        "",
        True,
        (
            "the database server cannot be reached: start it, or correct the host and port in "
            "DATABASE_URL"
        ),
    ),
)
_REMEDIES: Final = {
    "3F000": "make the schema that search_path names, or correct search_path",
    "42P07": "it is another program's: create a database for the bot alone",
    "42P01": "restore the database, or restart the bot to begin with an empty one",
    "55P03": "look in pg_stat_activity for a transaction that has been open for long, and end it",
    "53100": "free space on the server's disk",
    "53200": "give the server more memory",
    "25006": "set DATABASE_URL to the primary, or to all hosts",
    "42501": "give the user in DATABASE_URL the rights to its tables",
    "57014": "look for what keeps the server busy",
}


def meaning_of(error: psycopg.Error) -> Meaning:
    """Return what an error means to the work that met it."""
    if state := error.sqlstate:
        return MEANINGS.get(state, MEANINGS.get(state[:2], Meaning.REFUSED))
    return Meaning.REFUSED if isinstance(error, _REFUSED_BY_PSYCOPG) else Meaning.LOST


def connect_problem(error: psycopg.Error) -> tuple[str, bool]:
    """Return why a connection could not be opened, with the remedy, and whether waiting may help.

    None of it is in libpq's own words.
    """
    text = str(error)
    return next(
        (words, temporary)
        for found, temporary, words in _CONNECT_PROBLEMS
        if re.search(found, text)
    )


def describe(error: psycopg.Error) -> str:
    """Return what went wrong once a connection was open, and the remedy if it is known."""
    state = error.sqlstate
    if not state:
        if meaning_of(error) is Meaning.LOST:
            return "the connection to the server was lost"
        return f"psycopg refuses a value or statement ({type(error).__name__})"
    message = error.diag.message_primary if state[:2] in _WITHOUT_VALUES else None
    words = f"{message or type(error).__name__} ({state})"
    return f"{words}: {_REMEDIES[state]}" if state in _REMEDIES else words


@contextlib.contextmanager
def translated(setting: str = "DATABASE_URL") -> Iterator[None]:
    """Turn errors of the server into errors of ours, with a remedy.

    ``setting`` is what has the address.

    Raises:
        DatabaseUnavailable: the server cannot be reached or used at the moment.
        DatabaseError: it refuses something.
    """
    try:
        yield
    except psycopg.Error as error:
        if error.sqlstate:
            words = f"the database cannot be used: {describe(error)}"
            temporary = meaning_of(error) in {Meaning.LOST, Meaning.CONFLICT}
        else:
            words, temporary = connect_problem(error)
        kind = DatabaseUnavailable if temporary else DatabaseError
        raise kind(words.replace("DATABASE_URL", setting)) from None
