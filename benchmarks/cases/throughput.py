"""Submissions of many people through to closing replies, against the single-file bot.

Both learn of the end in the same way: the service says "ready" at the first read and never calls
back, and both read as soon as they can (no wait between reads, no pause between rounds). Both are
measured warm. *The calls of a job alone* is no bot of ours: it is what the same libraries do that
keep nothing, and so the most that a bot made of them can reach.
"""

import asyncio
import json
import os
import signal
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.cases.parts import quiet
from benchmarks.fakes import Call, Outside, outside
from benchmarks.load import closed_loop
from benchmarks.measure import Better, Row, Scale
from benchmarks.payloads import PEOPLE, SECRET, TOKEN, Submissions
from benchmarks.process import Contestant, contestant

_NAME: Final = "throughput"
_GOALS: Final = {100: 2.5, 1000: 2.5}
_PROCESSOR: Final = 0.4
# Where a small run fails: what is reached, less the noise of a shared machine.
_BOUND: Final = 1.4
_PROCESSOR_BOUND: Final = 0.75
# What the bot may ask of SQLite for each job, with as many at once.
_COUNTED: Final = 1000
_STATEMENTS: Final = 18.0
_WORKS: Final = 8.0
_SIZES: Final = (10, 30, 100, 300, 1000)
# Beyond the bot's 2,048 connections; the single-file bot takes long for it: once is enough.
_LARGEST: Final = 3000
_CONNECTIONS: Final = 1000
_WARM: Final = PEOPLE
_WARM_AT_ONCE: Final = 32
_TIMEOUT_S: Final = 300.0
# Bolt answers so where a listener takes more than three seconds to acknowledge, as the single-file
# bot does with a thousand forms at once on a slow machine. The form is stored then too.
_LATE: Final = 404
AT_ONCE: Final = '{"jitter": 0, "minutes": {"first_interval": 0, "growth": 0, "max_interval": 0}}'


@dataclass(frozen=True, slots=True)
class Result:
    """Jobs per second, and of each job the processor time in ms and the calls to Slack."""

    speed: float
    processor: float
    calls: float


async def run(scale: Scale) -> Sequence[Row]:
    """Measure all sizes in each round, ours right before the single-file bot."""
    sizes = (100,) if scale.small else _SIZES
    ours: dict[int, list[Result]] = defaultdict(list)
    theirs: dict[int, list[Result]] = defaultdict(list)
    calls: dict[int, list[Result]] = defaultdict(list)
    for a_round in range(scale.rounds):
        last = () if scale.small or a_round else (_LARGEST,)
        for size in (*sizes, *last):
            ours[size].append(await _ours(size))
            theirs[size].append(await single_file(size))
            if size in _GOALS and not scale.small:
                calls[size].append(await _calls(size))
    rows = []
    for size, own in ours.items():
        row = partial(_row, ours=own, theirs=theirs[size])
        goal = _GOALS.get(size)
        rows.append(row(f"{size:,} at once", "jobs/s", "speed", goal=goal, bound=_BOUND))
        if goal is not None:
            rows.append(
                row(
                    *(f"{size:,}: processor time", "ms/job", "processor"),
                    goal=_PROCESSOR,
                    bound=_PROCESSOR_BOUND,
                )
            )
            rows.append(row(f"{size:,}: calls to Slack", "/job", "calls"))
        if size in calls:
            what = f"{size:,}: the calls of a job alone"
            limit = partial(_row, ours=calls[size], theirs=theirs[size])
            rows.append(limit(what, "jobs/s", "speed"))
            rows.append(limit(f"{what}, processor time", "ms/job", "processor"))
    return [*rows, *await _counted(scale)]


def _row(
    what: str,
    unit: str,
    field: str,
    *,
    ours: Sequence[Result],
    theirs: Sequence[Result],
    goal: float | None = None,
    bound: float | None = None,
) -> Row:
    return Row(
        case=_NAME,
        what=what,
        unit=unit,
        better=Better.HIGHER if field == "speed" else Better.LOWER,
        ours=[getattr(each, field) for each in ours],
        against="single-file bot",
        baseline=[getattr(each, field) for each in theirs],
        goal=goal,
        bound=bound,
    )


async def _counted(scale: Scale) -> Sequence[Row]:
    """Count what a job asks of SQLite, in a run of its own: counting takes time."""
    size = scale.of(_COUNTED, 100)
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder) / "counts"
        async with outside() as there:
            bot = contestant("counted", counts, *_arguments(folder, there))
            async with bot as process:
                forms = Submissions(process.port)
                await _through(process, there, forms.many(_WARM), _WARM_AT_ONCE)
                await quiet(there)
                os.kill(process.pid, signal.SIGUSR1)
                await _through(process, there, forms.many(size, first=_WARM + 1))
                await quiet(there)
        found = json.loads(counts.read_text())
    return [
        Row(
            *(_NAME, f"{size:,} at once: {what}", "/job", Better.LOWER),
            *([found[what] / size], "allowed", [allowed], None if scale.small else 1.0),
        )
        for what, allowed in (("statements", _STATEMENTS), ("works", _WORKS))
    ]


async def _ours(size: int) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        async with outside() as there:
            bot = contestant("ours", *_arguments(folder, there))
            return await _measure(bot, there, size)


def _arguments(folder: str, there: Outside) -> Sequence[object]:
    return (
        *("--database", f"sqlite:///{folder}/bot.db"),
        *("--slack", there.slack.port, "--service", there.service.port),
        *("--timings", AT_ONCE),
    )


async def _calls(size: int) -> Result:
    async with outside() as there:
        bot = contestant(
            "calls",
            *("--slack-url", f"http://127.0.0.1:{there.slack.port}/api/"),
            *("--service-url", f"http://127.0.0.1:{there.service.port}"),
        )
        return await _measure(bot, there, size)


async def single_file(size: int) -> Result:
    """Measure the single-file bot."""
    with tempfile.TemporaryDirectory() as folder:
        async with outside() as there:
            bot = contestant(
                "single_file",
                *("--database", Path(folder) / "bot.db", "--pause", 0.001),
                *("--token", TOKEN, "--signing-secret", SECRET),
                *("--slack-url", f"http://127.0.0.1:{there.slack.port}/api/"),
                *("--service-url", f"http://127.0.0.1:{there.service.port}", "--service-key", "k"),
            )
            return await _measure(bot, there, size, late=_LATE)


async def _measure(
    started: AbstractAsyncContextManager[Contestant],
    there: Outside,
    size: int,
    late: int | None = None,
) -> Result:
    async with started as bot:
        forms = Submissions(bot.port)
        await _through(bot, there, forms.many(_WARM), _WARM_AT_ONCE)
        before, calls = bot.processor(), there.slack.counts.total()
        seconds = await _through(bot, there, forms.many(size, first=_WARM + 1), late=late)
        return Result(
            speed=size / seconds,
            processor=1000 * (bot.processor() - before) / size,
            calls=(there.slack.counts.total() - calls) / size,
        )


async def _through(
    bot: Contestant,
    there: Outside,
    forms: Sequence[bytes],
    at_once: int = _CONNECTIONS,
    late: int | None = None,
) -> float:
    """Send forms at once; return the seconds from the first to the last closing reply.

    ``late`` is a status with which a form may be answered too late.
    """
    replies, last, ended = 0, 0.0, asyncio.Event()

    def seen(call: Call) -> None:
        nonlocal replies, last
        if call.what == "chat.postMessage" and call.in_thread:
            replies, last = replies + 1, time.perf_counter()
            if replies == len(forms):
                ended.set()

    there.slack.seen = seen
    taken = await closed_loop(bot.port, forms, at_once, good=lambda body: not body, late=late)
    async with asyncio.timeout(_TIMEOUT_S):
        await ended.wait()
    return last - taken.began
