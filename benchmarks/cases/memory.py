"""Memory that the bot holds: idle beside a bare Bolt app, and with many running jobs beside idle.

With running jobs all of them are due at once, so that they are read as fast as the bot can: the
worst that a start after a long night brings.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final

from benchmarks.cases.parts import milliseconds
from benchmarks.databases import fill
from benchmarks.fakes import outside
from benchmarks.load import closed_loop
from benchmarks.measure import Better, Row, Scale
from benchmarks.payloads import command
from benchmarks.process import Contestant, contestant

_NAME: Final = "memory"
_MB: Final = 1_000_000
_OVER_BARE: Final = 30.0
_OVER_IDLE: Final = 20.0
_COMMANDS: Final = 200
_LOOKS: Final = 10
# Seconds in which an idle process is looked at.
_IDLE: Final = 0.5


async def run(scale: Scale) -> Sequence[Row]:
    """Look at each in turn: a bare app, the bot without jobs, and the bot with many."""
    sizes = (10_000,) if scale.small else (10_000, 100_000)
    # Memory is the same each time: three looks tell whether it really is.
    rounds = 1 if scale.small else min(scale.rounds, 3)
    bare: list[float] = []
    idle: list[float] = []
    running: dict[int, list[float]] = {size: [] for size in sizes}
    with tempfile.TemporaryDirectory() as folder:
        for size in (0, *sizes):
            await fill(_filled(folder, size), running=size, due=milliseconds(), spacing=0)
        for _ in range(rounds):
            bare.append(await _held(contestant("noop", "command"), seconds=_IDLE))
            idle.append(await _ours(_filled(folder, 0), seconds=_IDLE))
            for size in sizes:
                seconds = scale.of(12, 2)
                running[size].append(await _ours(_filled(folder, size), seconds=seconds))
    more = [own - base for own, base in zip(idle, bare, strict=True)]
    rows = [
        _row("idle", idle, "bare Bolt app", bare),
        _row("idle, over a bare Bolt app", more, "allowed", [_OVER_BARE] * rounds, goal=1.0),
    ]
    for size, held in running.items():
        more = [own - base for own, base in zip(held, idle, strict=True)]
        what = f"{size:,} running, over idle"
        rows.append(_row(what, more, "allowed", [_OVER_IDLE] * rounds, goal=1.0))
    return rows


def _row(
    what: str,
    ours: Sequence[float],
    against: str,
    baseline: Sequence[float],
    goal: float | None = None,
) -> Row:
    return Row(_NAME, what, "MB", Better.LOWER, ours, against, baseline, goal)


def _filled(folder: str, size: int) -> Path:
    return Path(folder) / f"{size}.db"


async def _ours(filled: Path, seconds: float) -> float:
    with tempfile.TemporaryDirectory() as folder:
        database = shutil.copy(filled, Path(folder) / "bot.db")
        async with outside() as there:
            there.service.status_of = lambda _: "generating"
            bot = contestant(
                "ours",
                *("--database", f"sqlite:///{database}"),
                *("--slack", there.slack.port, "--service", there.service.port),
            )
            return await _held(bot, seconds)


async def _held(started: AbstractAsyncContextManager[Contestant], seconds: float) -> float:
    """Return the most memory in megabytes that a process has in ``seconds`` after some requests."""
    async with started as bot:
        # Each of them differs, in how many spaces follow.
        requests = [command(bot.port, "help" + " " * n) for n in range(_COMMANDS)]
        await closed_loop(bot.port, requests, 4)
        most = 0
        for _ in range(_LOOKS):
            await asyncio.sleep(seconds / _LOOKS)
            most = max(most, bot.resident())
        return most / _MB
