"""A PostgreSQL database for those who only read it, and what the doctor says about its server."""

import contextlib
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Final

# The package before its submodules: else an import in another thread is not waited for.
import psycopg

from bot.clock import Clock
from bot.store.database import DatabaseSnapshot, Query, Row, Server, Value, from_ms
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


@contextlib.contextmanager
def postgres_snapshot(url: str) -> Iterator[DatabaseSnapshot]:
    """Read the database of this URL, beside the bots that use it.

    Raises:
        DatabaseError: it cannot be read, or this version cannot use it.
    """
    with translated(), connect(url, application_name=COMMAND) as connection:

        def rows(query: Query, **values: Value) -> Iterator[Row]:
            with connection.cursor("rows", row_factory=psycopg.rows.dict_row) as cursor:
                cursor.itersize = _FETCHED
                yield from cursor.execute(query.postgres, values)

        connection.execute(_BEGIN)
        done, pending = steps_in_postgres(connection)
        yield DatabaseSnapshot(done, pending, rows)
        connection.rollback()


# The bots are those whose name for the server is the one that their URL gives them.
_SERVER: Final = Query(
    """
    SELECT current_setting('server_version') AS version,
        pg_database_size(current_database()) AS bytes,
        (SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND application_name = :bots) AS bots,
        CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT) AS now
    """
)


def inspect_server(url: str, clock: Clock) -> Server:
    """Return what there is to know of a server.

    Raises:
        DatabaseError: it cannot be used.
    """
    with translated(), connect(url, application_name=COMMAND) as connection:
        info = connection.info
        connection.execute(_BEGIN)
        [row] = connection.execute(_SERVER.postgres, {"bots": name_of_bots(url)}).fetchall()
        connection.rollback()
        is_local = not info.hostaddr or ip_address(info.hostaddr).is_loopback
        return Server(
            version=str(row["version"]).partition(" ")[0],
            size_bytes=row["bytes"],
            is_protected=is_local or info.get_parameters().get("sslmode") == "verify-full",
            bots=row["bots"],
            ahead=clock.now() - from_ms(row["now"]),
        )
