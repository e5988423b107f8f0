"""What a check found: a line of the report, and an object of its JSON."""

import re
import shutil
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final
from unicodedata import category

# Control sequences of a terminal, such as "\x1b[31m" (ECMA-48, 5.4).
_TERMINAL: Final = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]")
_MAX_READ: Final = 10_000  # characters of what another program may have said at any length
_MAX_TEXT: Final = 600  # characters
_WIDTH: Final = 100  # columns at most, and on what is no terminal
_MIN_TEXT: Final = 24  # columns of a text, however narrow the terminal is
_STATE_WIDTH: Final = len("warning")
_NAME_WIDTH: Final = len("ALLOW_SHARED_CHANNELS")
_INDENT: Final = " " * (_STATE_WIDTH + 2 + _NAME_WIDTH + 2)


class CheckState(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    """The bot works, but not all that it should do."""
    ERROR = "error"
    """The bot does not work. The exit code is 1."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    ``message`` is a clause, ``remedy`` a sentence, which is empty only where the state is ok.
    """

    name: str
    state: CheckState
    message: str
    remedy: str = ""

    @property
    def ok(self) -> bool:
        """Whether it is no error."""
        return self.state is not CheckState.ERROR

    def __str__(self) -> str:
        state = "ERROR" if self.state is CheckState.ERROR else str(self.state)
        head = f"{state:<{_STATE_WIDTH}}  {self.name:<{_NAME_WIDTH}}  "
        return "\n".join(
            _wrapped(self.message, head, _INDENT)
            + _wrapped(self.remedy, _INDENT + "  ", _INDENT + "  ")
        )

    def as_json(self) -> dict[str, str]:
        """Return it as an object of ``doctor --json``, whose shape does not change."""
        return {
            "check": self.name,
            "state": str(self.state),
            "message": self.message,
            "remedy": self.remedy,
        }

    def cleaned(self, mask: Callable[[str], str]) -> "Finding":
        """Return it without secrets, control characters, and more text than a person reads."""
        return replace(self, message=shown(self.message, mask), remedy=shown(self.remedy, mask))


def ok(name: str, message: str) -> Finding:
    """Return that all is well."""
    return Finding(name, CheckState.OK, message)


def warning(name: str, message: str, remedy: str) -> Finding:
    """Return that something does not work as it should, and what to do."""
    return Finding(name, CheckState.WARNING, message, remedy)


def error(name: str, message: str, remedy: str) -> Finding:
    """Return that the bot does not work, and what to do."""
    return Finding(name, CheckState.ERROR, message, remedy)


def summary(findings: Iterable[Finding]) -> str:
    """Return the last line of a report: how much is wrong."""
    states = [each.state for each in findings]
    errors, warnings = states.count(CheckState.ERROR), states.count(CheckState.WARNING)
    counts = [
        counted(number, noun)
        for number, noun in ((errors, "error"), (warnings, "warning"))
        if number
    ]
    if errors:
        return f"{' and '.join(counts)}. The bot does not work until the errors are corrected."
    return f"No errors{f', {counts[0]}' if counts else ' and no warnings'}."


def counted(number: int, noun: str) -> str:
    """Return a number of things in words, such as "1 job" or "1,200 jobs"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def shown(text: str, mask: Callable[[str], str]) -> str:
    """Return what may come from another program as one line of a limited length, masked."""
    return mask(printable(text[:_MAX_READ]))[:_MAX_TEXT]


def printable(text: str) -> str:
    """Return a text as one line without control characters."""
    visible = (
        "" if category(each) == "Cf" else each if each.isprintable() else " "
        for each in _TERMINAL.sub("", text)
    )
    return " ".join("".join(visible).split())


def sentence(text: str) -> str:
    """Return a clause as a sentence, with a capital letter and a full stop."""
    text = text.strip()
    return text[:1].upper() + text[1:] + ("." if text and text[-1] not in ".?!" else "")


def split(refusal: str) -> tuple[str, str]:
    """Return what a refusal says is wrong, and what to do: after its first sentence or colon."""
    message, separator, remedy = refusal.partition(". ")
    if not separator:
        message, _, remedy = refusal.partition(": ")
    return message.rstrip("."), sentence(remedy)


def _wrapped(text: str, first: str, indent: str) -> list[str]:
    terminal = shutil.get_terminal_size((_WIDTH, 0)).columns
    return textwrap.wrap(
        text,
        max(min(_WIDTH, terminal), len(indent) + _MIN_TEXT),
        initial_indent=first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
