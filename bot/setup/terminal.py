"""Questions and answers on a terminal, which need no more of it than lines of text."""

import contextlib
import getpass
import io
import re
import shutil
import sys
import textwrap
import warnings
from collections.abc import Iterator, Mapping
from typing import Final

import click

from bot.doctor.finding import printable

_WIDTH: Final = 80  # at most: longer lines are hard to read
_INDENT: Final = "  "
# What a terminal sends around what is pasted, and for keys that edit no line.
_SEQUENCE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.)?")
_INVISIBLE: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff]"
)
_QUOTES: Final = "\"'`\u2018\u2019\u201c\u201d"


class Unhidden(Exception):
    """The terminal would show what is typed, so no secret can be asked for."""


class Terminal:
    """Asks on standard input and prints on standard output.

    Colours only repeat what the words say. There are none unless the output is a terminal that has
    them, and with ``NO_COLOR``: https://no-color.org.

    Each question raises ``click.Abort`` when the person ends it, with Ctrl-C or Ctrl-D.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        for stream in (sys.stdin, sys.stdout):
            if isinstance(stream, io.TextIOWrapper):
                # A small character set shows "?" for what it lacks.
                stream.reconfigure(errors="replace")
        self._colour = (
            sys.stdout.isatty()
            and not environ.get("NO_COLOR")
            and environ.get("TERM", "dumb") != "dumb"
        )
        has_ticks = _encodes("\u2713\u2717")
        self._good, self._bad = ("\u2713 ", "\u2717 ") if has_ticks else ("ok: ", "!  ")

    def heading(self, text: str) -> None:
        """Print a heading, with an empty line before it."""
        click.echo()
        self._print(text, "", bold=True)

    def say(self, text: str = "") -> None:
        """Print a paragraph, wrapped."""
        self._print(text)

    def steps(self, *steps: str) -> None:
        """Print numbered steps, wrapped."""
        for number, step in enumerate(steps, 1):
            self._print(step, f"{_INDENT}{number}. ")

    def table(self, rows: Mapping[str, str]) -> None:
        """Print a line for each name and what is said about it."""
        width = max(map(len, rows))
        for name, text in rows.items():
            self._print(text, f"{_INDENT * 2}{name:<{width}}  ")

    def good(self, text: str) -> None:
        """Print that something is as it should be."""
        self._print(text, _INDENT + self._good, fg="green")

    def bad(self, text: str) -> None:
        """Print what is wrong and what to do."""
        self._print(text, _INDENT + self._bad, fg="red")

    @contextlib.contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Show on a terminal what is waited for, and take it away at the end."""
        shown = _INDENT + text if sys.stdout.isatty() else ""
        click.echo(shown, nl=False)
        try:
            yield
        finally:
            click.echo(f"\r{' ' * len(shown)}\r" if shown else "", nl=False)

    def verbatim(self, text: str) -> None:
        """Print a text on a line of its own, which only the terminal may break."""
        click.echo(text)

    def ask(self, question: str, default: str = "") -> str:
        """Return what is typed, without what surrounds it; the default for an empty line."""
        shown = f"{question} [{default}]:" if default else question
        while True:
            try:
                typed = _prompt(shown)
            except UnicodeDecodeError:
                self.bad("That is not text in this terminal's character set: type it again.")
            else:
                return cleaned(typed)

    def ask_hidden(self, question: str) -> str:
        """Return what is typed, without what surrounds it; nothing of it is shown.

        Raises:
            Unhidden: the terminal cannot hide it.
        """
        while True:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error", getpass.GetPassWarning)
                    typed = _prompt(question, hide_input=True)
            except getpass.GetPassWarning:
                raise Unhidden from None
            except UnicodeDecodeError:
                self.bad("That is not text in this terminal's character set: copy it again.")
            else:
                return cleaned(typed)

    def confirm(self, question: str, *, default: bool) -> bool:
        """Return whether the person says yes."""
        while True:
            typed = self.ask(f"{question} [{'Y/n' if default else 'y/N'}]").casefold()
            if typed in {"", "y", "yes", "n", "no"}:
                return typed.startswith("y") if typed else default
            self.bad("Type y for yes or n for no.")

    def _print(
        self, text: str, start: str = _INDENT, *, fg: str | None = None, bold: bool = False
    ) -> None:
        width = min(_WIDTH, shutil.get_terminal_size((_WIDTH, 24)).columns)
        wrapped = textwrap.fill(
            printable(text),  # a part of it may come from the file, or from another program
            max(width, len(start) + 20),
            initial_indent=start,
            subsequent_indent=" " * len(start),
            break_long_words=False,
            break_on_hyphens=False,
        )
        if self._colour and (fg or bold):
            wrapped = click.style(wrapped, fg=fg, bold=bold or None)
        click.echo(wrapped, color=self._colour)


def _prompt(question: str, *, hide_input: bool = False) -> str:
    typed: str = click.prompt(
        _INDENT + question,
        default="",
        show_default=False,
        hide_input=hide_input,
        prompt_suffix=" ",
    )
    return typed


def _encodes(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        return False
    return True


def cleaned(text: str) -> str:
    """Return a pasted value without the spaces, line breaks and quotes around it.

    A terminal's own sequences and invisible characters go too, wherever they are.
    """
    text = _INVISIBLE.sub("", _SEQUENCE.sub("", text)).strip()
    while len(text) > 1 and text[0] in _QUOTES and text[-1] in _QUOTES:
        text = text[1:-1].strip()
    return text
