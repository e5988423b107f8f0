"""How long a script takes to speak."""

from datetime import timedelta
from typing import Final

_WORDS_A_MINUTE: Final = 150


def spoken_time(script: str) -> timedelta:
    """Return about how long a script takes to speak, at 150 words a minute."""
    return timedelta(minutes=len(script.split()) / _WORDS_A_MINUTE)
