"""Checks of a PostgreSQL server, and of how the bot is connected to it."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from bot.doctor.finding import Finding, counted, error, ok, warning
from bot.store.server import Server

_NAME: Final = "database"
# gen_random_uuid is there without an extension:
# https://www.postgresql.org/docs/13/release-13.html
_MIN_VERSION: Final = 130000
# Each copy has one for each of its threads, and one to listen on.
_CONNECTIONS_OF_A_COPY: Final = 5
# Beyond this, two copies may post the same message: see docs/postgresql.md.
_MAX_DIFFERENCE: Final = timedelta(seconds=30)
_MAX_AHEAD: Final = timedelta(seconds=5)
_MAX_ROUND_TRIP: Final = timedelta(milliseconds=20)


def check_server(server: Server) -> Iterator[Finding]:
    """Yield what is found about a server that accepts connections."""
    if server.number < _MIN_VERSION:
        yield error(
            _NAME,
            f"PostgreSQL {server.version} is too old",
            f"Upgrade the server: the bot needs version {_MIN_VERSION // 10_000} or later.",
        )
    if server.is_read_only:
        yield error(
            _NAME,
            "the server can only be read: it is a standby, or set to be read-only",
            "Set DATABASE_URL to the primary server.",
        )
    if server.missing_rights:
        [first, *more] = server.missing_rights
        yield error(
            _NAME,
            f"the user of DATABASE_URL lacks a right: {first}"
            f"{f', and {len(more)} more' if more else ''}",
            "Grant it, or make that user the owner of the tables.",
        )
    yield from _check_connection(server)
    yield from _check_clock(server)


def _check_connection(server: Server) -> Iterator[Finding]:
    name = "database connection"
    if server.is_local:
        yield ok(name, "does not leave this machine")
    elif not server.is_encrypted:
        yield warning(
            name,
            "is not encrypted: what people ask for can be read on the way to the server",
            "Add ?sslmode=verify-full to DATABASE_URL, and the server's certificate authority as "
            "sslrootcert.",
        )
    elif not server.is_verified:
        yield warning(
            name,
            "is encrypted, but the server's certificate is not verified",
            "Add ?sslmode=verify-full&sslrootcert=system to DATABASE_URL, or the file of your "
            "host's certificate authority as sslrootcert.",
        )
    else:
        yield ok(name, "is encrypted, and the server's certificate is verified")
    if server.is_pooled:
        yield warning(
            name,
            "goes through a pooler, which passes no notifications on: copies learn of each "
            "other's work some seconds later",
            "Set DATABASE_URL to the server itself, or leave it so if that is fast enough.",
        )
    if not server.is_local and server.precision * 2 > _MAX_ROUND_TRIP:
        yield warning(
            name,
            f"the server answers after {_ms(server.precision * 2)} ms: each click waits for it "
            "several times",
            "Run the bot in the same region as its database.",
        )
    free = server.max_connections - server.connections
    used = f"{server.connections} of {counted(server.max_connections, 'connection')} in use"
    if free < _CONNECTIONS_OF_A_COPY:
        yield warning(
            "database connections",
            f"{used}: there is no room for another copy, which takes {_CONNECTIONS_OF_A_COPY}",
            "Raise max_connections on the server, or end what else is connected.",
        )
    else:
        yield ok(
            "database connections", f"{used}; each copy of the bot takes {_CONNECTIONS_OF_A_COPY}"
        )


def _check_clock(server: Server) -> Iterator[Finding]:
    difference = abs(server.ahead)
    way = "ahead of" if server.ahead > timedelta(0) else "behind"
    said = f"this machine's clock is {difference.total_seconds():,.1f} s {way} the server's"
    limit = f"{int(_MAX_DIFFERENCE.total_seconds())} seconds"
    remedy = f"Keep the clocks of all machines in time with NTP: {limit} between two are the limit."
    if difference - server.precision >= _MAX_DIFFERENCE:
        yield error(
            "database clock", f"{said}: two copies of the bot may post the same message", remedy
        )
    elif difference - server.precision > _MAX_AHEAD:
        yield warning("database clock", said, remedy)
    else:
        yield ok("database clock", f"{said} (up to {limit} between two copies do no harm)")


def _ms(duration: timedelta) -> int:
    return round(duration.total_seconds() * 1000)
