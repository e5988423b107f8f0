"""What the doctor says about a PostgreSQL server, and which bots are connected to it."""

from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Final

from bot.clock import Clock
from bot.store.database import Row
from bot.store.migrate import tables
from bot.store.postgres_snapshot import PostgresSnapshot, postgres_snapshot
from bot.store.server import ConnectedBots, Server
from bot.store.sql import Query

_SERVER: Final = Query(
    """
    SELECT current_setting('server_version') AS version,
        current_setting('server_version_num') AS number,
        CAST(current_setting('max_connections') AS BIGINT)
            - CAST(current_setting('superuser_reserved_connections') AS BIGINT) AS allowed,
        (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS used,
        pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on'
            AS is_read_only,
        pg_database_size(current_database()) AS bytes, pg_backend_pid() AS process,
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
    SELECT coalesce(host(client_addr), '') AS address, count(*) AS connections
    FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = :name AND pid <> pg_backend_pid()
    GROUP BY client_addr ORDER BY client_addr
    """
)
_MISSING_RIGHTS: Final = Query(
    """
    SELECT right_name || ' on ' || relname AS missing
    FROM pg_class, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS right_name
    WHERE relnamespace = to_regnamespace(current_schema()) AND relkind = 'r'
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
            is_pooled=row["process"] != info.backend_pid,
            is_read_only=row["is_read_only"],
            connections=row["used"],
            max_connections=row["allowed"],
            bots=bots_of(snapshot),
            ahead=before + (after - before) / 2 - theirs,
            precision=(after - before) / 2,
            missing_rights=_missing_rights(snapshot, row),
        )


def connected_bots(url: str) -> list[ConnectedBots]:
    """Return the bots that are connected to a database, as far as its server says it.

    Raises:
        DatabaseError: it cannot be used.
    """
    with postgres_snapshot(url) as snapshot:
        return bots_of(snapshot)


def bots_of(snapshot: PostgresSnapshot) -> list[ConnectedBots]:
    """Return the bots that are connected to a database, as far as its server says it."""
    rows = snapshot.all(_BOTS, name=snapshot.name_of_bots)
    return [ConnectedBots(row["address"], row["connections"]) for row in rows]


def _missing_rights(snapshot: PostgresSnapshot, server: Row) -> list[str]:
    if server["schema"] is None:
        return ["USAGE on a schema of search_path"]
    _, pending = snapshot.migrations()
    if pending and not server["may_create"]:
        return [f"CREATE on the schema {server['schema']}"]
    rows = snapshot.all(_MISSING_RIGHTS, tables=[*(each.name for each in tables()), "migrations"])
    return [row["missing"] for row in rows]
