"""Somebody who types at a real pseudo-terminal, and everything that it showed."""

import asyncio
import contextlib
import io
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pexpect

_ROOT: Final = Path(__file__).parents[1]
_TIMEOUT_S: Final = 20.0
CTRL_C: Final = "\x03"
CTRL_D: Final = "\x04"


class Typist:
    """A person at a command of the bot's, on a terminal of its own.

    Attributes:
        shown: what the terminal has shown until now, with all control characters.
    """

    def __init__(self, child: "pexpect.spawn[str]") -> None:
        self._child = child
        self._shown = io.StringIO()
        child.logfile_read = self._shown
        child.delaybeforesend = None

    @property
    def shown(self) -> str:
        return self._shown.getvalue()

    async def sees(self, text: str) -> None:
        """Wait until this text is shown, wherever its lines are broken."""
        words = r"\s+".join(map(re.escape, text.split()))
        await asyncio.to_thread(self._child.expect, words)

    async def answers(self, question: str, text: str = "") -> None:
        """Wait for a question, and type a line."""
        await self.sees(question)
        self._child.sendline(text)

    async def types(self, question: str, keys: str) -> None:
        """Wait for a question, and press keys."""
        await self.sees(question)
        self._child.send(keys)

    async def ends(self) -> int:
        """Wait for the end and return the exit code."""
        await asyncio.to_thread(self._child.expect, pexpect.EOF)
        await asyncio.to_thread(self._child.wait)
        assert self._child.exitstatus is not None
        return self._child.exitstatus


@contextlib.contextmanager
def at_terminal(
    folder: Path, *arguments: str, columns: int = 80, **environ: str
) -> Iterator[Typist]:
    """Start ``python -m bot`` with these arguments in a folder, on a terminal."""
    child = pexpect.spawn(
        sys.executable,
        ["-m", "bot", *arguments],
        cwd=folder,
        env=environment(folder, environ),
        dimensions=(24, columns),
        timeout=_TIMEOUT_S,
        encoding=environ.get("PYTHONIOENCODING", "utf-8"),
    )
    try:
        yield Typist(child)
    finally:
        child.close(force=True)


def environment(folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what a command of the bot's finds in its environment, with ``environ`` added."""
    path = os.defpath  # where git is
    return {"PYTHONPATH": str(_ROOT), "PATH": path, "HOME": str(folder), "TERM": "xterm", **environ}
