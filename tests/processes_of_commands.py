"""A command of the bot in a process of its own, whose log is read while it runs."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
# Many times what anything takes: other work may keep the machine busy.
_TIMEOUT_S: Final = 60.0


class Command:
    """A command that runs.

    Attributes:
        process: its process.
        printed: what of its log was read.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.printed = ""

    async def until(self, words: str) -> str:
        """Read its log until a line has these words; return all that was read."""
        assert self.process.stderr is not None
        async with asyncio.timeout(_TIMEOUT_S):
            while words not in self.printed:
                line = await self.process.stderr.readline()
                assert line, f"it ended after this: {self.printed}"
                self.printed += line.decode()
        return self.printed

    async def ended(self) -> int:
        """Wait for its end and return the exit code."""
        async with asyncio.timeout(_TIMEOUT_S):
            _, rest = await self.process.communicate()
        self.printed += rest.decode()
        assert self.process.returncode is not None
        return self.process.returncode


@contextlib.asynccontextmanager
async def started(
    *arguments: str, environ: Mapping[str, str], folder: Path
) -> AsyncIterator[Command]:
    """Run ``python -m bot`` with these arguments and variables alone; end it at the end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bot",
        *arguments,
        env={"PYTHONPATH": str(ROOT), **environ},
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    command = Command(process)
    try:
        yield command
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await command.ended()
