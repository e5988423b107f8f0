"""The file ``.env`` in the working directory, in which a deployment may have its settings."""

import io
import os
import re
from pathlib import Path
from typing import Final

from bot.errors import OperatorError

ENV_FILE: Final = Path(".env")
_OTHERS: Final = 0o077  # what the mode of a file allows to others than its owner
_LINE_BREAK: Final = re.compile(r"\r\n|\n|\r")


class EnvFileError(OperatorError):
    """The file cannot be read; ``str()`` says why, without anything that is in it."""


def read_env_file() -> dict[str, str]:
    """Return what the file sets; nothing if there is none.

    A ``$`` stands for itself: no names are replaced by values.

    Raises:
        EnvFileError: it cannot be read, or a line of it is not ``NAME=value``.
    """
    try:
        content = ENV_FILE.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise EnvFileError(
            f"{ENV_FILE.absolute()} cannot be read ({error.strerror}): make it a file of the user "
            "that the bot runs as, or move it away."
        ) from None
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise EnvFileError(_refusal(line, "is not UTF-8: save the file as UTF-8")) from None
    from dotenv.parser import parse_stream  # noqa: PLC0415 - many deployments have no file

    values = {}
    # Not dotenv_values(), which logs what it cannot read, and goes on without it.
    for each in parse_stream(io.StringIO(text, newline="")):
        if each.key is not None and each.value is not None:
            values[each.key] = each.value
        elif each.error or each.key is not None:
            how = "is not NAME=value, or has a quotation mark without a second one: correct it"
            raise EnvFileError(_refusal(_line_of(each.original.string, each.original.line), how))
    return values


def is_exposed() -> bool:
    """Return whether others than its owner can read or write the file, with the secrets in it."""
    try:
        return os.name == "posix" and bool(ENV_FILE.stat().st_mode & _OTHERS)
    except OSError:
        return False


def _line_of(text: str, first_line: int) -> int:
    blank = text[: len(text) - len(text.lstrip())]  # the lines before it belong to it
    return first_line + len(_LINE_BREAK.findall(blank))


def _refusal(line: int, how: str) -> str:
    return f"Line {line} of {ENV_FILE.absolute()} {how}."
