"""A contestant in a process of its own: started, measured, stopped by its number. Linux only."""

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from bot.settings import environment

_ROOT: Final = Path(__file__).parent.parent
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_STARTS_WITHIN: Final = 60.0
_ENDS_WITHIN: Final = 15.0
_SHOWN: Final = 4000


class Died(Exception):
    """A contestant did not start, or ended before it was asked to."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """A process that serves on ``port`` of this machine; ``said`` is its first line."""

    said: Mapping[str, object]
    _process: Process
    _asked: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    @property
    def port(self) -> int:
        """Where it listens.

        Raises:
            Died: it said none.
        """
        port = self.said.get("port")
        if not isinstance(port, int):
            raise Died(f"it names no port: {self.said}")
        return port

    @property
    def asked(self) -> bool:
        """Whether it was asked to end, or killed."""
        return self._asked.is_set()

    def processor(self) -> float:
        """Return the seconds of processor time that it has used, to a hundredth."""
        return processor(self.pid)

    def resident(self) -> int:
        """Return the bytes of memory that it holds, shared ones too (RSS)."""
        return _kilobytes(Path(f"/proc/{self.pid}/status"), "VmRSS:")

    def peak(self) -> int:
        """Return the most bytes of memory that it has ever held (VmHWM)."""
        return _kilobytes(Path(f"/proc/{self.pid}/status"), "VmHWM:")

    def proportional(self) -> int:
        """Return the bytes of memory that it holds, its part of the shared ones (PSS)."""
        return _kilobytes(Path(f"/proc/{self.pid}/smaps_rollup"), "Pss:")

    def handles(self) -> int:
        """Return how many files and sockets it has open."""
        return sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())

    async def stop(self) -> int:
        """Ask it to end as a host does (SIGTERM), and return its exit code."""
        return await self._end(self._process.terminate)

    async def kill(self) -> int:
        """Kill it (SIGKILL), and return its exit code."""
        return await self._end(self._process.kill)

    async def _end(self, ask: Callable[[], None]) -> int:
        self._asked.set()
        if self._process.returncode is None:
            ask()
            try:
                async with asyncio.timeout(_ENDS_WITHIN):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
        return await self._process.wait()


@contextlib.asynccontextmanager
async def contestant(
    name: str, *arguments: object, environ: Mapping[str, str] | None = None
) -> AsyncIterator[Contestant]:
    """Start ``benchmarks.contestants.NAME`` and wait for its first line; stop it at the end."""
    module = f"benchmarks.contestants.{name}"
    async with started("-m", module, *arguments, environ=environ) as found:
        yield found


@contextlib.asynccontextmanager
async def started(
    *arguments: object, environ: Mapping[str, str] | None = None
) -> AsyncIterator[Contestant]:
    """Start Python with ``arguments``, wait for its first line, which is JSON; stop it at the end.

    ``environ`` goes over the environment of this process.

    Raises:
        Died: it did not start, or ended before it was asked to.
    """
    with tempfile.TemporaryFile() as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *map(str, arguments),
            cwd=_ROOT,
            env=None if environ is None else {**environment(with_file=False), **environ},
            stdout=PIPE,
            stderr=errors,
        )
        found = Contestant({}, process)
        try:
            found = Contestant(await _first_line(process, errors), process)
            yield found
            if process.returncode is not None and not found.asked:
                raise Died(f"it ended with {process.returncode}: {_error_output(errors)}")
        finally:
            await found.stop()


async def _first_line(process: Process, errors: IO[bytes]) -> Mapping[str, object]:
    line = b""
    if process.stdout is not None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STARTS_WITHIN):
                line = await process.stdout.readline()
    if not line:
        raise Died(f"it does not start: {_error_output(errors)}")
    said = json.loads(line)
    return said if isinstance(said, dict) else {}


def _error_output(errors: IO[bytes]) -> str:
    errors.seek(0)
    return errors.read().decode(errors="replace")[-_SHOWN:]


def processor(pid: int) -> float:
    """Return the seconds of processor time that a process has used, to a hundredth."""
    # The name, in brackets, may have spaces in it.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def processor_of_ended_children(pid: int) -> float:
    """Return the seconds of processor time of the children of a process that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / _TICKS


def _kilobytes(file: Path, field: str) -> int:
    for line in file.read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise LookupError(f"{file} has no {field}")
