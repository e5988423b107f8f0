"""What the flags of ``init`` say."""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bot.setup.answers import SECRETS, SetupError, flag
from bot.slack.scopes import OPTIONAL_SCOPES

#: What stands for no value.
NONE: Final = frozenset({"none", "-"})


@dataclass(frozen=True, slots=True)
class Given:
    """What the flags say.

    Attributes:
        values: settings by name; "" stands for none.
        socket_mode: whether to use Socket Mode; None if that is not said.
        declined: the optional scopes to leave out; None if that is not said.
        is_silent: whether nothing may be asked.
    """

    values: Mapping[str, str]
    socket_mode: bool | None
    declined: frozenset[str] | None
    is_silent: bool


def given(
    flags: Mapping[str, str | None],
    socket_mode: bool | None,  # noqa: FBT001 - as click gives it
    without_scopes: str | None,
    *,
    is_silent: bool,
) -> Given:
    """Return what the flags say, with the files that they name read.

    Raises:
        SetupError: they say what cannot be.
    """
    values = {
        (name := parameter.removesuffix("_file").upper()): _content(name, said)
        for parameter, said in flags.items()
        if said is not None
    }
    declined = None if without_scopes is None else scopes(without_scopes)
    if declined is not None and (unknown := declined - OPTIONAL_SCOPES.keys()):
        raise SetupError(
            f"--without-scopes: {', '.join(sorted(unknown))} cannot be left out. These can: "
            f"{', '.join(OPTIONAL_SCOPES)}."
        )
    return Given(values, socket_mode, declined, is_silent or not sys.stdin.isatty())


def _content(name: str, said: str) -> str:
    """Return the value that a flag gives: for a secret, what is in the file of that name."""
    if name not in SECRETS:
        return said
    try:
        text = sys.stdin.read() if said == "-" else Path(said).read_text(encoding="utf-8")
    except (OSError, ValueError):
        # Without the name: people have put the secret itself there.
        raise SetupError(
            f"{flag(name)}: there is no text file of that name. Give the name of a file that has "
            "the secret in it, or - for standard input."
        ) from None
    if not text.strip():
        raise SetupError(f"{flag(name)}: nothing is in it. Put the secret there.")
    return text


def scopes(text: str) -> frozenset[str]:
    """Return the scopes that a text lists."""
    return frozenset(re.split(r"[,\s]+", text)) - {"", *NONE}
