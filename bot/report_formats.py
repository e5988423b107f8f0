"""Reports on the command line: as a table that fits the terminal, as CSV, and as JSON."""

import contextlib
import csv
import json
import os
import shutil
import sys
import tempfile
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from bot.errors import OperatorError

_UNLIMITED: Final = 1_000_000
_GAP: Final = "  "
_ELLIPSIS: Final = "…"
# What makes a spreadsheet run the text of a cell: https://owasp.org/www-community/attacks/CSV_Injection
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")


def write_csv(records: Iterable[Mapping[str, object]], columns: Sequence[str], to: IO[str]) -> None:
    """Write records as CSV, with a header. No cell is a formula: such a text begins with "'"."""
    writer = csv.writer(to, lineterminator="\n")
    writer.writerow(columns)
    for record in records:
        writer.writerow([_cell(record[name]) for name in columns])


def _cell(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # A spreadsheet may pass over what comes before it.
        return f"'{value}" if value.lstrip(" \u00a0\ufeff").startswith(_FORMULA) else value
    return value


def write_json(records: Iterable[Mapping[str, object]], to: IO[str]) -> None:
    """Write records as one JSON array, each on a line of its own."""
    to.write("[")
    for at, record in enumerate(records):
        to.write(",\n" if at else "\n")
        to.write(json.dumps(record))
    to.write("\n]\n")


def write_table(rows: Sequence[Sequence[str]], to: IO[str]) -> None:
    """Write rows below each other; the first is the header. On a terminal, lines are cut."""
    shown = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(_width, column)) for column in zip(*shown, strict=True)]
    room = shutil.get_terminal_size().columns if to.isatty() else _UNLIMITED
    for row in shown:
        cells = (
            cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)
        )
        to.write(f"{_cut(_GAP.join(cells).rstrip(), room)}\n")


def printable(text: str) -> str:
    """Return a text that changes nothing else on a terminal: no control characters, one line."""
    return "".join(each if each.isprintable() else " " for each in text)


def _cut(line: str, room: int) -> str:
    """Return a line that is as wide as a terminal at most."""
    if _width(line) <= room:
        return line
    while _width(line) > room - 1:
        line = line[:-1]
    return f"{line}{_ELLIPSIS}"


def _width(text: str) -> int:
    """Return the cells of a terminal that a text takes."""
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1
        for each in text
    )


@contextlib.contextmanager
def opened(file: Path | None, *, replace: bool) -> Iterator[IO[str]]:
    """Open what a report is written to: a file for its owner alone, or standard output.

    The file is there as a whole or not at all.

    Raises:
        OperatorError: it cannot be written, or is there already.
    """
    if file is None:
        yield sys.stdout
        sys.stdout.flush()
        return
    if file.is_dir():
        raise OperatorError(f"{file} is a folder: add a name for the file.")
    if file.exists() and not replace:
        raise OperatorError(
            f"{file} is there already: choose another name, or add --force to replace it."
        )
    try:
        with tempfile.TemporaryDirectory(dir=file.parent, prefix=".export-") as folder:
            written = Path(folder) / "export"
            descriptor = os.open(written, os.O_WRONLY | os.O_CREAT, 0o600)
            with open(descriptor, "w", encoding="utf-8", newline="") as to:  # noqa: PTH123 - made above
                yield to
            written.replace(file)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise OperatorError(
            f"{file} cannot be written: {reason}. Choose another name or folder."
        ) from error
