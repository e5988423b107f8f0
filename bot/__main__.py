"""The command line, as far as any Python runs it: ``python -m bot --help``."""

from __future__ import annotations

import gc
import sys

# An older Python has to understand this file to say so.
_PYTHON = (3, 11)
_REMEDY = """Install all that it needs, in the folder of the project, and run it with that:
  python3 -m venv .venv
  .venv/bin/pip install --require-hashes -r requirements.txt
  .venv/bin/python -m bot"""


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return the exit code."""
    if sys.version_info < _PYTHON:
        found = ".".join(map(str, sys.version_info[:2]))
        return _refuse(f"The bot needs Python 3.11 or newer, and this is {found}.")
    gc.disable()  # until a command is imported: none of that is garbage, and looking costs a tenth
    try:
        from bot.command_line import run

        return run(arguments)
    except ImportError as error:
        library = (error.name or "").partition(".")[0]
        if library in {"", "bot"}:
            raise
        return _refuse(f"{library} is not installed, or does not fit the bot.")


def _refuse(reason: str) -> int:
    print(f"{reason} {_REMEDY}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
