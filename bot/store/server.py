"""What there is to know of a PostgreSQL server."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class ConnectedBots:
    """The connections of bots that come from one address."""

    address: str
    """Empty if they come over a socket of the server's machine, or the server does not say it."""
    connections: int


@dataclass(frozen=True, slots=True)
class Server:
    """A server, read without changing anything."""

    version: str
    number: int
    """Its version as 160004 for 16.4."""
    size_bytes: int
    """Of the database."""
    is_local: bool
    """Whether the connection does not leave this machine."""
    is_encrypted: bool
    is_verified: bool
    """Whether the server's certificate is compared with its name."""
    is_pooled: bool
    """Whether a pooler is in between."""
    is_read_only: bool
    connections: int
    """Of all clients."""
    max_connections: int
    bots: Sequence[ConnectedBots]
    ahead: timedelta
    """How far this machine's clock is ahead of the server's; negative if it is behind."""
    precision: timedelta
    """By how much ``ahead`` may be wrong."""
    missing_rights: Sequence[str]
