"""Several copies of the bot on PostgreSQL, beside one on SQLite and the single-file bot.

Copies, server, load, Slack and video service share this machine's cores: more copies cannot do
more here. What the figures show is what the server and each copy cost.
"""

import asyncio
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median, quantiles
from typing import Final

from benchmarks.cases import rush, throughput
from benchmarks.cases.parts import Copies, copies
from benchmarks.fakes import Call, Outside
from benchmarks.load import Taken, closed_loop
from benchmarks.measure import Better, Row, Scale
from benchmarks.payloads import PEOPLE, Submissions
from benchmarks.postgres import Server, commits, connections, server

_NAME: Final = "copies"
_NUMBERS: Final = (1, 2, 4)
_WARM: Final = PEOPLE
_SIZE: Final = 300
_REST_S: Final = 60.0
_FLUSH_S: Final = 15.0
_AT_ONCE: Final = 32
_RUSH_COPIES: Final = 2
_PER_SECOND: Final = 200
_SMALL_PER_SECOND: Final = 30
_ANSWER_MS: Final = 1000.0
# Of one copy on PostgreSQL, of one process on SQLite.
_PROCESSOR: Final = 1.7
_TIMEOUT_S: Final = 300.0
_SINGLE_FILE: Final = "single-file bot"
_SQLITE: Final = "one process on SQLite"


@dataclass(frozen=True, slots=True)
class _Result:
    """Of one run of many jobs."""

    speed: float
    """Jobs per second, from the first form to the last closing reply."""
    processor: float
    """Milliseconds of the copies' processor time for each job."""
    server: float
    """The same of the server."""
    ack: float
    """Median in milliseconds, at 32 at once."""


async def run(scale: Scale) -> Sequence[Row]:
    """Measure all numbers of copies in each round, beside one process on SQLite.

    A small run has the rush alone.
    """
    with server() as postgres:
        if scale.small:
            return await _rush(postgres, scale)
        found: dict[int, list[_Result]] = defaultdict(list)
        sqlite: list[_Result] = []
        single = []
        for _ in range(scale.rounds):
            sqlite.append(await _on_sqlite())
            for number in _NUMBERS:
                found[number].append(await _on_postgres(postgres, number))
            single.append((await throughput.single_file(_SIZE)).speed)
        rows = [row for number in _NUMBERS for row in _rows(number, found[number], sqlite)]
        own = [each.speed for each in found[1]]
        what = f"1 copy, {_SIZE} forms at once"
        rows.append(Row(_NAME, what, "jobs/s", Better.HIGHER, own, _SINGLE_FILE, single, None))
        rows += await _rush(postgres, scale)
        rows += await _at_rest(postgres)
    return rows


def _rows(number: int, ours: Sequence[_Result], sqlite: Sequence[_Result]) -> Sequence[Row]:
    about = "1 copy" if number == 1 else f"{number} copies"

    def row(
        what: str,
        unit: str,
        field: str,
        better: Better = Better.LOWER,
        goal: float | None = None,
    ) -> Row:
        own, base = ([getattr(each, field) for each in some] for some in (ours, sqlite))
        return Row(_NAME, f"{about}{what}", unit, better, own, _SQLITE, base, goal)

    spent = [each.server for each in ours]
    copies_spent = [each.processor for each in ours]
    return [
        row(f", {_SIZE} forms at once", "jobs/s", "speed", Better.HIGHER),
        row(
            *(": processor time", "ms/job", "processor"),
            goal=_PROCESSOR if number == 1 else None,
        ),
        Row(
            *(_NAME, f"{about}: processor time of the server", "ms/job", Better.LOWER),
            *(spent, "that of the copies", copies_spent, None),
        ),
        row(f": answer, {_AT_ONCE} at once, p50", "ms", "ack"),
    ]


async def _on_sqlite() -> _Result:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/bot.db"
        async with copies(1, url, "--timings", throughput.AT_ONCE) as bots:
            return await _measure(bots)


async def _on_postgres(postgres: Server, number: int) -> _Result:
    with postgres.database() as url:
        async with copies(number, url, "--timings", throughput.AT_ONCE) as bots:
            return await _measure(bots, postgres)


async def _measure(bots: Copies, postgres: Server | None = None) -> _Result:
    ports = [process.port for process in bots.processes]
    await _through(ports, bots.outside, 1, _WARM, _AT_ONCE)
    spent, on_server = bots.processor(), postgres.processor() if postgres else 0.0
    seconds, _ = await _through(ports, bots.outside, 1 + _WARM, _SIZE)
    spent = bots.processor() - spent
    on_server = (postgres.processor() if postgres else 0.0) - on_server
    _, latencies = await _through(ports, bots.outside, 1 + _WARM + _SIZE, _SIZE, _AT_ONCE)
    return _Result(
        _SIZE / seconds, 1000 * spent / _SIZE, 1000 * on_server / _SIZE, 1000 * median(latencies)
    )


async def _through(
    ports: Sequence[int], there: Outside, first: int, number: int, at_once: int | None = None
) -> tuple[float, Sequence[float]]:
    """Send forms to copies in equal parts, and wait for all closing replies.

    Returns the seconds from the first form to the last reply, and those of each answer.
    """
    replies, last, ended = 0, 0.0, asyncio.Event()

    def seen(call: Call) -> None:
        nonlocal replies, last
        if call.what == "chat.postMessage" and call.in_thread:
            replies, last = replies + 1, time.perf_counter()
            if replies == number:
                ended.set()

    there.slack.seen = seen
    loads = []
    for place, port in enumerate(ports):
        writer = Submissions(port)
        forms = [writer.one(each) for each in range(first + place, first + number, len(ports))]
        at_port = (at_once or number) // len(ports)
        loads.append(closed_loop(port, forms, at_port, good=lambda body: not body))
    taken: list[Taken] = await asyncio.gather(*loads)
    async with asyncio.timeout(_TIMEOUT_S):
        await ended.wait()
    latencies = [each for part in taken for each in part.latencies]
    return last - min(part.began for part in taken), latencies


async def _rush(postgres: Server, scale: Scale) -> Sequence[Row]:
    rate, seconds = scale.of(_PER_SECOND, _SMALL_PER_SECOND), scale.of(60, 3)
    with postgres.database() as url:
        arguments = ("--callbacks", "--timings", rush.TIMINGS)
        async with copies(_RUSH_COPIES, url, *arguments) as bots:
            ports = [process.port for process in bots.processes]
            answers, replies = await rush.Rush(ports, bots.outside, rate, seconds).run()
    p99 = quantiles(answers, n=100, method="inclusive")[98]
    row = partial(_single, f"{_RUSH_COPIES} copies, {rate} forms a second for {seconds} s: ")
    return [
        row("answer, p50", median(answers) * 1000, "ms", bound=_ANSWER_MS, against="the goal"),
        row("answer, p99", p99 * 1000, "ms", bound=_ANSWER_MS, against="the goal", goal=True),
        row(
            *("ready to reply, median", median(replies), "s"),
            bound=rush.REPLY_S,
            against="the goal",
            goal=True,
        ),
        row("ready to reply, last", max(replies), "s", bound=60, against="a minute"),
    ]


async def _at_rest(postgres: Server) -> Sequence[Row]:
    """Measure what a copy without work costs the server."""
    with postgres.database() as url:
        async with copies(1, url) as bots:
            await _through([bots.processes[0].port], bots.outside, 1, _WARM, _AT_ONCE)
            await asyncio.sleep(_FLUSH_S)  # until the server has counted what was before
            open_connections, before = connections(url), commits(url)
            await asyncio.sleep(_REST_S)
            per_minute = (commits(url) - before - 1) * 60 / _REST_S
    row = partial(_single, "1 copy at rest: ")
    return [
        row("connections", open_connections, "", bound=100, against="a server's default"),
        row("transactions", per_minute, "/min", bound=60, against="one a second"),
    ]


def _single(
    about: str,
    what: str,
    figure: float,
    unit: str,
    *,
    bound: float,
    against: str,
    goal: bool = False,
) -> Row:
    """Return a line about one figure that is to be low."""
    return Row(
        *(_NAME, about + what, unit, Better.LOWER, [figure], against, [bound]),
        1.0 if goal else None,
    )
