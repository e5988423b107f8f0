"""What the errors of psycopg mean to the bot, in one table, and in words without values.

A message of PostgreSQL's may carry what is stored ("Key (id)=(…)", "Failing row contains (…)") and
one of libpq's parts of the URL. Only words that cannot are shown.
"""

import contextlib
import re
from collections.abc import Iterator
from enum import Enum
from typing import Final

import psycopg

from bot.store.database import DatabaseError, DatabaseUnavailable


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
