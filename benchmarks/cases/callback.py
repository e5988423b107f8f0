"""From a callback to the thread: callback in, read of the video, both calls to Slack out.

Each of some running jobs gets its one callback, one after the other, with a rest between. The time
is from the callback's being sent to the arrival of the second of the two calls, the edit of the
card and the closing reply. The bare calls go to the same fakes over open connections, with the same
rest before each three.
"""

import asyncio
import json
import re
import time
from collections.abc import Sequence
from functools import partial
from statistics import median, quantiles
from typing import Final
from urllib.parse import urlsplit

from benchmarks.cases.parts import Ours, bare_insert, ours, quiet, seconds
from benchmarks.fakes import Call
from benchmarks.load import closed_loop, connected
from benchmarks.measure import Better, Row, Scale
from benchmarks.payloads import Submissions, callback
from benchmarks.process import contestant

_MS: Final = 1000.0
# In seconds: the last job is done with when the next callback goes.
_REST: Final = 0.03
_TIMEOUT_S: Final = 30.0
# No job is read but for its callback.
_TIMINGS: Final = json.dumps({"minutes": {"first_interval": 3000, "max_interval": 3000}})
_ADDRESS: Final = re.compile(rb'"callback_url": ?"([^"]+)"')
# The callback, the end of the job, and the mark before a post.
_COMMITS: Final = 3
# The goal, and where a small run fails: what is reached, less the noise of a shared machine.
_GOAL: Final = 3.5
_BOUND: Final = 8.0


async def run(scale: Scale) -> Sequence[Row]:
    """Measure the whole way, and its parts on their own."""
    number = scale.of(100, 20)
    middle, late, calls, floor = [], [], [], []
    for _ in range(scale.rounds):
        async with ours("--callbacks", "--timings", _TIMINGS) as bot:
            took = await _answered(bot, number)
            ports = (bot.outside.slack.port, bot.outside.service.port)
            async with contestant("floor", "exchange", *ports, number, _REST) as process:
                calls.append(seconds(process.said["seconds"]) * _MS)
        middle.append(median(took) * _MS)
        late.append(quantiles(took, n=100, method="inclusive")[98] * _MS)
        floor.append(await bare_insert(number) * _MS)

    def row(what: str, own: list[float], against: str, base: list[float], *limits: float) -> Row:
        return Row("callback", what, "ms", Better.LOWER, own, against, base, *(limits or (None,)))

    durable = [three + _COMMITS * one for three, one in zip(calls, floor, strict=True)]
    return [
        row("callback to both calls, p50", middle, "three bare HTTP exchanges, p50", calls),
        row("callback to both calls, p99", late, "three bare HTTP exchanges, p50", calls),
        row(
            "callback to both calls, p50",
            middle,
            f"these + {_COMMITS} bare durable inserts",
            durable,
            _GOAL,
            _BOUND,
        ),
    ]


async def _answered(bot: Ours, number: int) -> list[float]:
    """Return the seconds from each callback to the messages in its thread."""
    port, slack = bot.process.port, bot.outside.slack
    made: list[tuple[str, str]] = []

    def created(call: Call) -> None:
        if call.what == "create" and (found := _ADDRESS.search(call.body)):
            made.append((call.id, urlsplit(found[1].decode()).path))

    bot.outside.service.seen = created
    await closed_loop(port, Submissions(port).many(number), 8)
    async with asyncio.timeout(_TIMEOUT_S):
        await quiet(bot.outside)
    assert len(made) == slack.counts["chat.postMessage"] == number
    await asyncio.sleep(_REST)
    took = []
    async with connected(port, 1) as [connection]:
        for video_id, path in made:
            arrived: dict[str, float] = {}
            both = asyncio.Event()
            slack.seen = partial(_note, arrived, both)
            request = callback(path, port, video_id)
            began = time.perf_counter()
            async with asyncio.timeout(_TIMEOUT_S):
                await connection.exchange(request)
                await both.wait()
            took.append(max(arrived.values()) - began)
            await asyncio.sleep(max(0.0, began + _REST - time.perf_counter()))
    return took


def _note(arrived: dict[str, float], both: asyncio.Event, call: Call) -> None:
    arrived[call.what] = time.perf_counter()
    if arrived.keys() == {"chat.update", "chat.postMessage"}:
        both.set()
