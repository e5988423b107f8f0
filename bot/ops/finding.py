"""What a check of ``doctor`` found, how a person reads it, and why something cannot be reached."""

import re
import shutil
import textwrap
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import Final
from unicodedata import category
from urllib.parse import urlsplit

import click

from bot.errors import OutsideError
from bot.service.errors import clause_of

# Control sequences of a terminal, such as "\x1b[31m" (ECMA-48, 5.4).
_TERMINAL: Final = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]")
_MAX_READ: Final = 10_000  # characters of what another program may have said at any length
_MAX_TEXT: Final = 600  # characters
_MAX_NAMED: Final = 5
_WIDTH: Final = 100  # columns at most, and on what is no terminal
_MIN_TEXT: Final = 24  # columns of a text, however narrow the terminal is
_STATE_WIDTH: Final = len("warning")
_NAME_WIDTH: Final = len("ALLOW_SHARED_CHANNELS")
_INDENT: Final = " " * (_STATE_WIDTH + 2 + _NAME_WIDTH + 2)
_AREA_WIDTH: Final = len("video service")


SETTINGS: Final = "settings"
"""The area of what is set, and the name of what is found of all of it."""
POSTING: Final = "posting"
"""The area of what was tried in Slack."""


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
    area: str = ""
    """Of the report; not in the JSON."""

    @property
    def ok(self) -> bool:
        """Whether it is no error."""
        return self.state is not CheckState.ERROR

    def __str__(self) -> str:
        state = "ERROR" if self.state is CheckState.ERROR else str(self.state)
        head = f"{state:<{_STATE_WIDTH}}  {self.name:<{_NAME_WIDTH}}  "
        return "\n".join(
            wrapped(self.message, head, _INDENT)
            + wrapped(self.remedy, _INDENT + "  ", _INDENT + "  ")
        )

    def as_json(self) -> dict[str, str]:
        """Return it as an object of ``doctor --json``, whose shape does not change."""
        return {
            "check": self.name,
            "state": str(self.state),
            "message": self.message,
            "remedy": self.remedy,
        }

    def cleaned(self, mask: Callable[[str], str], area: str = "") -> "Finding":
        """Return it, as one of an area, without secrets, control characters and endless text."""
        message, remedy = shown(self.message, mask), shown(self.remedy, mask)
        return replace(self, message=message, remedy=remedy, area=area)


_MARKS: Final = {CheckState.OK: "✓", CheckState.WARNING: "!", CheckState.ERROR: "✗"}


def ok(name: str, message: str) -> Finding:
    """Return that all is well."""
    return Finding(name, CheckState.OK, message)


def warning(name: str, message: str, remedy: str) -> Finding:
    """Return that something does not work as it should, and what to do."""
    return Finding(name, CheckState.WARNING, message, remedy)


def error(name: str, message: str, remedy: str) -> Finding:
    """Return that the bot does not work, and what to do."""
    return Finding(name, CheckState.ERROR, message, remedy)


def first(*cases: tuple[object, Finding]) -> Finding:
    """Return the finding of the first case that holds."""
    return next(finding for holds, finding in cases if holds)


# ── The report ────────────────────────────────────────────────────────────────────────────────


async def report(examined: AsyncIterator[Finding], *, in_full: bool) -> list[Finding]:
    """Print a line for each area once it is known, then what is wrong, errors last; return all.

    ``in_full`` is whether to print also what is well in full, as what was tried in Slack always is.
    """
    found: list[Finding] = []
    async for finding in examined:
        if found and found[-1].area != finding.area:
            click.echo(_line(found))
        found.append(finding)
    click.echo(_line(found))
    told = [each for each in found if (in_full or each.remedy) and each.area != POSTING]
    for block in (
        *([each for each in told if each.state is state] for state in CheckState),
        [each for each in found if each.area == POSTING],
    ):
        if texts := [str(each) for each in block]:
            click.echo("\n".join(["", *texts]))
    click.echo(f"\n{summary(found)}")
    return found


def _line(found: Sequence[Finding]) -> str:
    """Return the line about the area of the last finding: a mark, and its worst or all it is."""
    area = found[-1].area
    of_area = [each for each in found if each.area == area]
    worst = max((each.state for each in of_area), key=list(CheckState).index)
    said = "; ".join(
        dict.fromkeys(
            # The message about a setting is the rest of a sentence.
            f"{each.name} {each.message}" if area == SETTINGS != each.name else each.message
            for each in of_area
            if each.state is worst
        )
    )
    text = f"{_MARKS[worst]} {area:<{_AREA_WIDTH}}  {said}"
    width = _columns(_WIDTH)
    return text if len(text) <= width else f"{text[: width - 3]}..."


def summary(findings: Sequence[Finding]) -> str:
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


def listed(names: Sequence[str]) -> str:
    """Return the first five names, and how many more there are."""
    more = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


def _columns(most: int) -> int:
    return min(most, shutil.get_terminal_size((most, 0)).columns)


def wrapped(text: str, first: str, indent: str, most: int = _WIDTH) -> list[str]:
    """Return the lines of a text, as wide as the terminal, of ``most`` columns at most."""
    return textwrap.wrap(
        text,
        max(_columns(most), len(indent) + _MIN_TEXT),
        initial_indent=first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


# ── Why something cannot be reached ───────────────────────────────────────────────────────────


# By the cause, as bot.service.errors names it.
_REMEDIES: Final = {
    "proxy": (
        "Check HTTPS_PROXY: a proxy that wants a user name and password has them in it, as in "
        "http://user:password@host:port. Have it allow {host}, or list {host} in NO_PROXY."
    ),
    "dns": "Check the host in {setting}, and this machine's DNS.",
    "tls": (
        "Check the scheme and the port in {setting}, the certificate of {host}, and this machine's "
        "clock. If a proxy of your network opens TLS, install its root certificate on this machine."
    ),
    "refused": "Check the host and port in {setting}, and that the server there runs.",
    "timeout": "Check {setting}, and that no firewall keeps this machine from {host}.",
}
_LATER: Final = "Try again in some minutes. If it stays so, check {setting}."


def explain(failure: OutsideError, url: str, limit: timedelta, setting: str) -> tuple[str, str]:
    """Return why a call failed, as a clause, and a sentence that says what to do.

    Args:
        failure: how it failed; the other side did not refuse it.
        url: what was called; only its host is shown.
        limit: how long the call was allowed to take.
        setting: the name of the setting that has the address.
    """
    cause = failure.cause
    state = "cannot be reached" if cause in _REMEDIES else "does not work"
    remedy = _REMEDIES.get(cause, _LATER).format(host=urlsplit(url).hostname, setting=setting)
    return f"{state}: {clause_of(cause, limit) or failure.reason.rstrip('.')}", remedy
