"""The token that doctor calls the bot with, and how often it came."""

from dataclasses import dataclass
from typing import Final

from bot.model import token_hash
from bot.store.database import Transaction
from bot.store.sql import Query

_TOKEN: Final = Query("SELECT token FROM callback_probe")
_COUNT: Final = Query("UPDATE callback_probe SET received = received + 1")


@dataclass(frozen=True, slots=True)
class CallbackProbe:
    """What is stored of it."""

    token: str
    received: int
    """How often the bot of this database received it."""


def count_probe(tx: Transaction, hashed: str) -> None:
    """Count a callback whose token has this hash, if it is doctor's."""
    row = tx.one(_TOKEN)
    if row is not None and isinstance(row["token"], str) and token_hash(row["token"]) == hashed:
        tx.all(_COUNT)
