"""A PostgreSQL database for those who only read it, and what the doctor says about its server."""

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Final

import psycopg
from psycopg.rows import DictRow, dict_row

from bot.clock import Clock
from bot.store.database import Query, Row, Server, Value
from bot.store.migrate import table_names
from bot.store.postgres.engine import (
    COMMAND,
    OWN_PATH,
    connect,
    name_of_bots,
    steps_in_postgres,
)
from bot.store.postgres.errors import translated

# Rows that are fetched at a time.
_FETCHED: Final = 1000
# A large database takes longer than any request.
_BEGIN: Final = (
    f"BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; {OWN_PATH};"
    " SET LOCAL statement_timeout TO 0; SET LOCAL lock_timeout TO 5000;"
    " SET LOCAL idle_in_transaction_session_timeout TO 0"
)


class PostgresSnapshot:
    """A ``DatabaseSnapshot`` of a database on a server."""

    def __init__(self, connection: psycopg.Connection[DictRow], name_of_bots: str) -> None:
        self.connection = connection
        self.name_of_bots = name_of_bots
        """The name by which the server knows connections of bots: the URL may set it."""

    def migrations(self) -> tuple[list[str], list[str]]:
        """Return the migrations that are done, and those that are pending."""
        return steps_in_postgres(self.connection)

    def all(self, query: Query, **values: Value) -> Iterator[Row]:
        """Run a query and return its rows, read as they are needed."""
        with self.connection.cursor("rows", row_factory=dict_row) as cursor:
            cursor.itersize = _FETCHED
            yield from cursor.execute(query.postgres, values)


@contextlib.contextmanager
def postgres_snapshot(url: str) -> Iterator[PostgresSnapshot]:
    """Read the database of this URL, beside the bots that use it.

    Raises:
        DatabaseError: it cannot be read.
    """
    with translated(), connect(url, application_name=COMMAND) as connection:
        connection.execute(_BEGIN)
        yield PostgresSnapshot(connection, name_of_bots(url))
        connection.rollback()


_SERVER: Final = Query(
    """
    SELECT current_setting('server_version') AS version,
        current_setting('server_version_num') AS number,
        pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on'
            AS is_read_only,
        pg_database_size(current_database()) AS bytes,
        current_schema() AS schema,
        CASE WHEN current_schema() IS NOT NULL
            THEN has_schema_privilege(current_schema(), 'CREATE') END AS may_create
    """
)
_TIME: Final = Query(
    "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT) AS microseconds"
)
# Those whose name for the server is that of this connection, as the bot's own URL has it.
_BOTS: Final = Query(
    """
    SELECT count(*) AS connections FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = :name AND pid <> pg_backend_pid()
    """
)
_MISSING_RIGHTS: Final = Query(
    """
    SELECT right_name || ' on ' || relname AS missing
    FROM pg_class, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS right_name
    WHERE relnamespace = to_regnamespace(quote_ident(current_schema())) AND relkind = 'r'
        AND relname IN (EACH :tables) AND NOT has_table_privilege(pg_class.oid, right_name)
    ORDER BY relname, right_name
    """
)


def inspect_server(url: str, clock: Clock) -> Server:
    """Return what there is to know of a server.

    Raises:
        DatabaseError: it cannot be used.
    """
    with postgres_snapshot(url) as snapshot:
        info = snapshot.connection.info
        given = info.get_parameters()
        [row] = snapshot.all(_SERVER)
        before = clock.now()
        [time] = snapshot.all(_TIME)
        after = clock.now()
        theirs = datetime.fromtimestamp(time["microseconds"] / 1_000_000, UTC)
        return Server(
            version=str(row["version"]).partition(" ")[0],
            number=int(row["number"]),
            size_bytes=row["bytes"],
            is_local=not info.hostaddr or ip_address(info.hostaddr).is_loopback,
            is_encrypted=bool(snapshot.connection.pgconn.ssl_in_use),
            is_verified=given.get("sslmode") == "verify-full",
            is_read_only=row["is_read_only"],
            bots=_bots_of(snapshot),
            ahead=before + (after - before) / 2 - theirs,
            precision=(after - before) / 2,
            missing_rights=_missing_rights(snapshot, row),
        )


def connected_bots(url: str) -> bool:
    """Return whether a bot is connected to a database, as far as its server says it.

    Raises:
        DatabaseError: it cannot be used.
    """
    with postgres_snapshot(url) as snapshot:
        return _bots_of(snapshot) > 0


def _bots_of(snapshot: PostgresSnapshot) -> int:
    [row] = snapshot.all(_BOTS, name=snapshot.name_of_bots)
    return int(row["connections"])


def _missing_rights(snapshot: PostgresSnapshot, server: Row) -> list[str]:
    if server["schema"] is None:
        return ["USAGE on a schema of search_path"]
    _, pending = snapshot.migrations()
    if pending and not server["may_create"]:
        return [f"CREATE on the schema {server['schema']}"]
    rows = snapshot.all(_MISSING_RIGHTS, tables=[*table_names(), "migrations"])
    return [row["missing"] for row in rows]
