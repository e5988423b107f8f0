"""One connection to a PostgreSQL server, and the transactions on it."""

import contextlib
import os
import socket
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar, cast

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import DictRow, dict_row

from bot.store.database import DatabaseError, Row, Topic, Transaction, Value
from bot.store.postgres_errors import Meaning, connect_problem, describe, meaning_of
from bot.store.sql import Query

Connection: TypeAlias = psycopg.Connection[DictRow]
_T = TypeVar("_T")

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
# Not in the options of the connection, which a pooler refuses, or gives to another's transaction.
_BEGIN: Final = (
    "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit TO {commit};"
    " SET LOCAL lock_timeout TO {lock_timeout_ms};"
    f" SET LOCAL statement_timeout TO {_STATEMENT_TIMEOUT_MS};"
    f" SET LOCAL idle_in_transaction_session_timeout TO {_IDLE_TIMEOUT_MS}"
)


_ABOUT: Final = (
    "SELECT current_setting('synchronous_commit') AS synchronous_commit, pg_backend_pid() AS pid"
)
# A statement is prepared once it was run as often as that. Measured with 300 jobs at once: the
# server takes 5.2 ms of processor time for a job, and 7.6 ms without.
_PREPARED_AFTER: Final = 2
# More than the bot has.
_MAX_PREPARED: Final = 500


class ServerLost(Exception):
    """The server cannot be used: ``str()`` says why, without values.

    Nothing was stored, unless ``uncertain``.
    """

    def __init__(self, reason: str, *, uncertain: bool, temporary: bool = True) -> None:
        super().__init__(reason)
        self.uncertain = uncertain
        self.temporary = temporary


@dataclass(frozen=True, slots=True)
class Committed:
    """A transaction that is committed."""

    results: Sequence[Any]
    """Of its works, in their order."""
    topics: set[Topic]
    seconds: float
    """How long the commit took."""


class Link:
    """One connection, which is opened when it is needed. Used by one thread at a time."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Connection | None = None
        self._durable_commit = "DEFAULT"
        # In real time; None outside of transactions.
        self._last_asked_at: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, which may be lost without its having been noticed."""
        return self._connection is not None

    def open(self) -> None:
        """Open the connection.

        Raises:
            ServerLost: it cannot be opened.
        """
        try:
            self._connection = connect(self._url)
            [row] = self._connection.execute(_ABOUT).fetchall()
        except psycopg.Error as error:
            self.close()
            problem = connect_problem(error)
            raise ServerLost(problem.words, uncertain=False, temporary=problem.temporary) from error
        # What the server waits for is its own matter, a standby too, but not less than its disk.
        self._durable_commit = "on" if row["synchronous_commit"] == "off" else "DEFAULT"
        if row["pid"] == self._connection.info.backend_pid:
            self._connection.prepare_threshold = _PREPARED_AFTER
            self._connection.prepared_max = _MAX_PREPARED

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def end_if_silent(self, seconds: float) -> None:
        """Have the statement fail that has had no answer for ``seconds``, if one does.

        May be called from any thread.
        """
        asked_at, connection = self._last_asked_at, self._connection
        if asked_at is None or connection is None or time.monotonic() - asked_at < seconds:
            return
        with (
            contextlib.suppress(psycopg.Error, OSError),
            socket.socket(fileno=os.dup(connection.fileno())) as copy,
        ):
            copy.shutdown(socket.SHUT_RDWR)

    def run(
        self,
        works: Sequence[Callable[[Transaction], Any]],
        *,
        durable: bool,
        lock_timeout_ms: int,
    ) -> Committed:
        """Run works in one transaction.

        Raises:
            ServerLost: the server cannot be used.
            Exception: what a work or one of its statements raised; nothing was stored.
        """
        assert self._connection is not None  # noqa: S101 - it was opened
        connection, tx, committing = self._connection, _Transaction(self), False
        begin = _BEGIN.format(
            commit=self._durable_commit if durable else "off", lock_timeout_ms=lock_timeout_ms
        )
        try:
            self.execute(begin)
            results = [work(tx) for work in works]
            committing, began = True, time.perf_counter()
            answer = self.execute("COMMIT").statusmessage
            seconds = time.perf_counter() - began
        except BaseException as error:
            lost = self._is_lost(error)
            if lost:
                self.close()
            else:
                with contextlib.suppress(psycopg.Error):
                    connection.rollback()
            if lost and isinstance(error, psycopg.Error):
                raise ServerLost(describe(error), uncertain=committing) from error
            if isinstance(error, StopIteration):  # no future takes one
                raise RuntimeError("a work raised StopIteration") from error  # noqa: TRY004
            raise
        finally:
            self._last_asked_at = None
        if answer != "COMMIT":  # it says ROLLBACK, and raises nothing
            raise DatabaseError("a work went on after one of its statements had failed")
        return Committed(results, tx.topics, seconds)

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

    def _is_lost(self, error: BaseException) -> bool:
        connection = self._connection
        if connection is None or connection.closed:
            return True
        return isinstance(error, psycopg.Error) and meaning_of(error) is Meaning.LOST


class _Transaction:
    """The engine's ``Transaction``; its topics are notified after the commit."""

    def __init__(self, link: Link) -> None:
        self._execute = link.execute
        self._known: dict[Hashable, Any] = {}
        self.topics: set[Topic] = set()

    def all(self, query: Query, **values: Value) -> Sequence[Row]:
        try:
            cursor = self._execute(query.postgres, values)
        except (psycopg.DataError, UnicodeEncodeError) as error:
            if getattr(error, "sqlstate", None) is not None:
                raise
            # Nothing was sent: PostgreSQL's texts have no NUL, and are UTF-8.
            cursor = self._execute(query.postgres, {n: _storable(v) for n, v in values.items()})
        return cursor.fetchall() if cursor.description else []

    def one(self, query: Query, **values: Value) -> Row | None:
        rows = self.all(query, **values)
        return rows[0] if rows else None

    def once(self, key: Hashable, find: Callable[[], _T]) -> _T:
        if key not in self._known:
            self._known[key] = find()
        return cast(_T, self._known[key])

    def notify(self, topic: Topic) -> None:
        self.topics.add(topic)


def connect(url: str, **parameters: str) -> Connection:
    """Return a new connection, for statements that are each a transaction.

    ``parameters`` are libpq's, before those of the URL.

    Raises:
        psycopg.Error: the server cannot be reached, or refuses it.
    """
    # No prepared statements, before it is known that no pooler is in between: that may lead the
    # next transaction to another connection.
    return psycopg.connect(
        url,
        autocommit=True,
        row_factory=dict_row,
        prepare_threshold=None,
        **defaults(url) | parameters,
    )


def connect_as_command(url: str) -> Connection:
    """Return a new connection that nobody takes for a bot's, from its first moment to its last.

    Raises:
        psycopg.Error: the server cannot be reached, or refuses it.
    """
    return connect(url, application_name="replica-videos command")


def name_of_bots(url: str) -> str:
    """Return the name by which the server knows the connections of bots.

    Raises:
        psycopg.Error: the URL cannot be read.
    """
    # https://www.postgresql.org/docs/current/runtime-config-logging.html#GUC-APPLICATION-NAME
    return str({**_DEFAULTS, **conninfo_to_dict(url)}["application_name"])[:63]


def defaults(url: str) -> dict[str, Any]:
    """Return the parameters of a connection that the URL does not set.

    Raises:
        psycopg.Error: it cannot be read.
    """
    given = conninfo_to_dict(url)
    return {name: value for name, value in _DEFAULTS.items() if name not in given} | {
        "client_encoding": "utf8"
    }


def _storable(value: Value) -> Value:
    """Return a value with "?" for what no text of PostgreSQL's can hold."""
    if isinstance(value, str):
        return value.replace("\0", "?").encode(errors="replace").decode()
    if isinstance(value, Sequence):
        return [_storable(each) for each in value]  # type: ignore[return-value]
    return value
