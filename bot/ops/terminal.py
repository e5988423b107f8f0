"""What ``init`` prints and asks at a terminal. Colours only repeat what the words say.

Each question raises ``click.Abort`` when the person ends it, with Ctrl-C or Ctrl-D.
"""

import re
import shutil
import textwrap
from typing import Any, Final

import click

from bot.ops.finding import printable

_WIDTH: Final = 80  # at most: longer lines are hard to read
_INDENT: Final = "  "
# What a terminal sends around what is pasted, and for keys that edit no line.
_SEQUENCE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.)?")
_INVISIBLE: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff]"
)
_QUOTES: Final = "\"'`\u2018\u2019\u201c\u201d"


def heading(text: str) -> None:
    """Print a heading, with an empty line before it."""
    click.echo()
    say(text, "", bold=True)


def say(text: str, start: str = _INDENT, **style: Any) -> None:  # noqa: ANN401 - as click has it
    """Print a paragraph, wrapped."""
    width = min(_WIDTH, shutil.get_terminal_size((_WIDTH, 24)).columns)
    wrapped = textwrap.fill(
        printable(text),  # a part of it may come from the file, or from another program
        max(width, len(start) + 20),
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    )
    click.echo(click.style(wrapped, **style) if style else wrapped)


def good(text: str) -> None:
    """Print that something is as it should be."""
    say(text, f"{_INDENT}ok: ", fg="green")


def bad(text: str) -> None:
    """Print what is wrong and what to do."""
    say(text, f"{_INDENT}!  ", fg="red")


def ask(question: str, default: str = "", *, hidden: bool = False) -> str:
    """Return what is typed, without what surrounds it; the default for an empty line.

    Nothing of it is shown if it is ``hidden``.
    """
    typed = click.prompt(
        _INDENT + (f"{question} [{default}]:" if default else question),
        default="",
        show_default=False,
        hide_input=hidden,
        prompt_suffix=" ",
    )
    return cleaned(typed)


def confirm(question: str, *, default: bool) -> bool:
    """Return whether the person says yes."""
    return click.confirm(_INDENT + question, default=default)


def cleaned(text: str) -> str:
    """Return a pasted value without the spaces, line breaks and quotes around it.

    A terminal's own sequences and invisible characters go too, wherever they are.
    """
    text = _INVISIBLE.sub("", _SEQUENCE.sub("", text)).strip()
    while len(text) > 1 and text[0] in _QUOTES and text[-1] in _QUOTES:
        text = text[1:-1].strip()
    return text
