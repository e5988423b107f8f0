"""Mixed work at a steady rate: memory, open handles and the time to the answer stay flat.

A burst comes before: it opens as many connections as the bot ever keeps, and from there on nothing
may grow. (aiohttp's pool takes the connection that has rested longest, so that none of them rests
for long enough to be closed.) The first fifth of the rest warms up; of what follows, the last
quarter is held against the first. An hour of it is the real thing (``--hour``); a minute finds what
grows with each request.
"""

import asyncio
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from statistics import median, quantiles
from typing import Final

from benchmarks.cases.parts import ours
from benchmarks.fakes import Call, Outside
from benchmarks.load import Broken, Connection, closed_loop, connected
from benchmarks.measure import Better, Row, Scale
from benchmarks.payloads import PEOPLE, Submissions, callback, click, command, lookup
from benchmarks.process import Contestant

_NAME: Final = "long-run"
# Requests of each sort in a second, and what they may be more of at the end than at the beginning.
_RATES: Final = {"submission": 5.0, "command": 5.0, "click": 5.0, "lookup": 10.0}
_MEMORY: Final = 1.1
_HANDLES: Final = 1.05
_LATENCY: Final = 1.5
_WARM: Final = 0.2
_QUARTERS: Final = 4
_TIMINGS: Final = json.dumps({"minutes": {"first_interval": 1, "growth": 0, "max_interval": 1}})
# Seconds that the service works on a video. Every third one is not announced by a callback.
_RENDERING_S: Final = 2.5
_SILENT: Final = 3
_BURST: Final = PEOPLE
_PATH: Final = re.compile(rb"/callbacks/[\w-]+")
_OK: Final = 200


@dataclass(frozen=True, slots=True)
class _Sample:
    """A figure, and when it was measured: seconds since the beginning."""

    at: float
    figure: float


@dataclass(frozen=True, slots=True)
class _Samples:
    """Everything that was measured in a run."""

    memory: list[_Sample] = field(default_factory=list)
    handles: list[_Sample] = field(default_factory=list)
    answers: list[_Sample] = field(default_factory=list)


async def run(scale: Scale) -> Sequence[Row]:
    """Watch one run. In a small one the time to the answer only informs: a quarter is a second."""
    seconds = 3600.0 if scale.hour else float(scale.of(80, 5))
    seen = _Samples()
    async with ours("--callbacks", "--timings", _TIMINGS) as bot:
        await _busy(bot.process, bot.outside, seen, seconds)
    memory, handles, answers = (
        _ends(samples, seconds) for samples in (seen.memory, seen.handles, seen.answers)
    )
    return [
        _row("memory", "MB", median, memory, _MEMORY),
        _row("open handles", "", median, handles, _HANDLES),
        _row("time to the answer, p50", "ms", median, answers, None if scale.small else _LATENCY),
        _row("time to the answer, p99", "ms", _p99, answers, None),
    ]


def _row(
    what: str,
    unit: str,
    figure: Callable[[Sequence[float]], float],
    ends: tuple[Sequence[float], Sequence[float]],
    goal: float | None,
) -> Row:
    first, last = ends
    return Row(
        case=_NAME,
        what=f"{what}, last quarter",
        unit=unit,
        better=Better.LOWER,
        ours=[figure(last)],
        against="first quarter",
        baseline=[figure(first)],
        goal=goal,
    )


def _p99(figures: Sequence[float]) -> float:
    return quantiles(figures, n=100, method="inclusive")[-1]


def _ends(samples: Sequence[_Sample], seconds: float) -> tuple[list[float], list[float]]:
    """Return the figures of the first and of the last quarter after the warm-up."""
    warm = seconds * _WARM
    quarter = (seconds - warm) / _QUARTERS
    first = [each.figure for each in samples if warm <= each.at < warm + quarter]
    last = [each.figure for each in samples if each.at >= seconds - quarter]
    return first, last


async def _busy(bot: Contestant, there: Outside, seen: _Samples, seconds: float) -> None:
    forms = Submissions(bot.port)
    makers: Mapping[str, Callable[[int], bytes]] = {
        "submission": lambda number: forms.one(_BURST + number),
        # No two requests are the same.
        "command": lambda number: command(bot.port, "help" + " " * (number % 1000)),
        "click": lambda number: click(bot.port, "open_link_0", number=number),
        "lookup": lambda number: lookup(bot.port, f"anna {number}"),
    }
    announced: asyncio.Queue[tuple[float, str, str]] = asyncio.Queue()
    ready = _VideoSchedule(there, announced).ready
    there.service.status_of = lambda video: "ready" if ready(video) else "generating"
    await closed_loop(bot.port, forms.many(_BURST), _BURST)
    await asyncio.sleep(_RENDERING_S + 1)
    began = time.perf_counter()
    async with connected(bot.port, len(makers) + 1) as connections, asyncio.TaskGroup() as group:

        async def sample() -> None:
            while (at := time.perf_counter() - began) < seconds:
                seen.memory.append(_Sample(at, bot.resident() / 1e6))
                seen.handles.append(_Sample(at, bot.handles()))
                await asyncio.sleep(0.5)

        async def send(kind: str, connection: Connection) -> None:
            for number in count(1):
                moment = began + number / _RATES[kind]
                await asyncio.sleep(moment - time.perf_counter())
                if (at := moment - began) >= seconds:
                    return
                request = makers[kind](number)
                sent = time.perf_counter()
                await _asked(connection, request)
                seen.answers.append(_Sample(at, 1000 * (time.perf_counter() - sent)))

        async def call_back(connection: Connection) -> None:
            while True:
                moment, path, video = await announced.get()
                await asyncio.sleep(moment - time.perf_counter())
                await _asked(connection, callback(path, bot.port, video))

        group.create_task(sample())
        calling_back = group.create_task(call_back(connections[-1]))
        for kind, connection in zip(makers, connections, strict=False):
            group.create_task(send(kind, connection))
        await asyncio.sleep(seconds)
        calling_back.cancel()


async def _asked(connection: Connection, request: bytes) -> None:
    status, body = await connection.exchange(request)
    if status != _OK:
        raise Broken(f"not the answer that was wanted: {status} {body[:500]!r}")


class _VideoSchedule:
    """Says when the videos of the fake service are ready, and for which of them it calls back."""

    def __init__(self, there: Outside, announced: asyncio.Queue[tuple[float, str, str]]) -> None:
        self._service = there.service
        self._announced = announced
        self._done_at: dict[str, float] = {}
        there.service.seen = self._see

    def ready(self, video: str) -> bool:
        """Return whether a video is ready by now."""
        return time.perf_counter() >= self._done_at[video]

    def _see(self, call: Call) -> None:
        if call.what != "create":
            return
        # The fake numbers them as they come.
        number = self._service.counts["create"]
        video, done_at = f"v{number}", time.perf_counter() + _RENDERING_S
        self._done_at[video] = done_at
        path = _PATH.search(call.body)
        if number > _BURST and number % _SILENT and path:
            self._announced.put_nowait((done_at, path[0].decode(), video))
