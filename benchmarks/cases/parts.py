"""What several cases need: the bot, the no-op app and the floor, each in a new process."""

import asyncio
import contextlib
import itertools
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final, Literal

from benchmarks.fakes import Outside, outside
from benchmarks.load import closed_loop
from benchmarks.payloads import PEOPLE
from benchmarks.process import Contestant, contestant

Request = Callable[[int, int], bytes]
"""What makes a request, from the port that it goes to and a number that makes it unique."""
Mode = Literal["default", "before_response"]
FASTEST: Final = "no-op, process_before_response"
DEFAULT: Final = "no-op, Bolt's default"
# Tells requests apart.
_NUMBERS: Final = itertools.count(1)
_QUIET: Final = 0.3
# How often two servers take turns.
_PARTS: Final = 4


@dataclass(frozen=True, slots=True)
class Ours:
    """The bot, running, and what it talks to."""

    process: Contestant
    outside: Outside


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies of the bot, running on one database, and what they talk to."""

    processes: Sequence[Contestant]
    outside: Outside

    def processor(self) -> float:
        """Return the seconds of processor time that all of them have used."""
        return sum(process.processor() for process in self.processes)


@contextlib.asynccontextmanager
async def ours(*arguments: object, database: Path | None = None) -> AsyncIterator[Ours]:
    """Run the bot on a new SQLite database, or on ``database``, between fakes of its own.

    ``arguments`` are those of ``benchmarks.contestants.ours``.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = database or Path(folder) / "bot.db"
        async with outside() as both:
            ports = ("--slack", both.slack.port, "--service", both.service.port)
            url = f"sqlite:///{file}"
            async with contestant("ours", "--database", url, *ports, *arguments) as process:
                yield Ours(process, both)


@contextlib.asynccontextmanager
async def copies(number: int, url: str, *arguments: object) -> AsyncIterator[Copies]:
    """Run several copies of the bot on one database, between fakes that they share."""
    async with outside() as both, contextlib.AsyncExitStack() as stack:
        ports = ("--slack", both.slack.port, "--service", both.service.port)
        yield Copies(
            [
                await stack.enter_async_context(
                    contestant("ours", "--database", url, *ports, *arguments)
                )
                for _ in range(number)
            ],
            both,
        )


@contextlib.asynccontextmanager
async def noop(listener: str, mode: Mode = "before_response") -> AsyncIterator[Contestant]:
    """Run a Bolt app with one listener that acknowledges and does nothing."""
    async with contestant("noop", listener, "--mode", mode) as process:
        yield process


async def side_by_side(
    ports: tuple[int, int],
    request: Request,
    number: int,
    at_once: int,
    *,
    good: Callable[[bytes], object] = lambda _: True,
) -> tuple[float, float]:
    """Send ``number`` requests to each of two servers: a part to one, a part to the other, in turn.

    Returns the requests per second of each. It is for servers that are idle after an answer: what
    one does later would slow down the other.
    """
    loads = [[request(port, next(_NUMBERS)) for _ in counted(number)] for port in ports]
    for port, requests in zip(ports, loads, strict=True):
        await closed_loop(port, requests[:PEOPLE], at_once, good=good)
    took = [0.0, 0.0]
    part = -(-number // _PARTS)
    for begin in range(PEOPLE, PEOPLE + number, part):
        for each, port in enumerate(ports):
            requests = loads[each][begin : begin + part]
            took[each] += (await closed_loop(port, requests, at_once, good=good)).seconds
    return number / took[0], number / took[1]


async def quiet(outside: Outside) -> None:
    """Return when the bot has nothing more to call for what came before."""
    seen, now = -1, 0
    while seen != now:
        await asyncio.sleep(_QUIET)
        seen, now = now, outside.slack.counts.total() + outside.service.counts.total()


def counted(number: int) -> range:
    """Return the numbers of ``number`` requests and of those that warm up."""
    return range(1, number + PEOPLE + 1)


def milliseconds() -> int:
    """Return the present moment as databases have it."""
    return round(time.time() * 1000)  # noqa: TID251 - the bot compares it with the machine's clock


async def bare_insert(number: int) -> float:
    """Return the median of the seconds that a durable insert takes of a process without more."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bare.db"
        async with contestant("floor", "insert", file, number) as process:
            return seconds(process.said["seconds"])


def seconds(said: object) -> float:
    """Return the median of what the floor printed."""
    assert isinstance(said, list)
    return float(median(said))
