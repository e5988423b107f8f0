"""Forms at a steady 200 a second for a minute: the time to the answer, and from ready to the reply.

The load generator shares the machine with the bot, Slack and the video service. Each video is ready
three seconds after its create call, and the service calls back then. A form is sent at its time,
whether those before it have been answered or not; its time runs from there.
"""

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Sequence
from statistics import median, quantiles
from typing import Final

from benchmarks.cases.parts import ours, quiet
from benchmarks.fakes import Call, Outside
from benchmarks.load import Broken, Connection, closed_loop, connected
from benchmarks.measure import Better, Row, Scale
from benchmarks.payloads import Submissions, callback, command, person

_PER_SECOND: Final = 200
_SMALL_PER_SECOND: Final = 50
_RENDERING_S: Final = 3.0
_CONNECTIONS: Final = 64
_AT_ONCE: Final = 8
# Thousands of jobs may be open at once, and nobody may have more of them than the default.
_PEOPLE: Final = 1000
# The service calls back for each video at its time: an answer takes 50 ms at least.
_CALLING_BACK: Final = 64
_TIMEOUT_S: Final = 300.0
_OK: Final = 200
# What a person notices, and what a person waits for without wondering.
_ANSWER_MS: Final = 300.0
REPLY_S: Final = 10.0
TIMINGS: Final = json.dumps({"minutes": {"first_interval": 60, "max_interval": 60}})
_ADDRESS: Final = re.compile(rb'"callback_url": ?"https?://[^/"]+([^"]+)"')
_SCRIPT: Final = re.compile(rb"video (v[0-9]+)|videos.example.com/(v[0-9]+)")


async def run(scale: Scale) -> Sequence[Row]:
    """Measure one rush."""
    rate = scale.of(_PER_SECOND, _SMALL_PER_SECOND)
    seconds = scale.of(60, 3)
    async with ours("--callbacks", "--timings", TIMINGS) as bot:
        answers, replies = await Rush([bot.process.port], bot.outside, rate, seconds).run()
    p99 = quantiles(answers, n=100, method="inclusive")[98]

    def row(what: str, unit: str, figure: float, limit: float, goal: float | None) -> Row:
        about = f"{rate} forms a second for {seconds} s: {what}"
        return Row("rush", about, unit, Better.LOWER, [figure], "the goal", [limit], goal)

    return [
        row("answer, p50", "ms", median(answers) * 1000, _ANSWER_MS, None),
        row("answer, p99", "ms", p99 * 1000, _ANSWER_MS, 1.0),
        row("ready to reply, median", "s", median(replies), REPLY_S, 1.0),
        row("ready to reply, last", "s", max(replies), REPLY_S, None),
    ]


class Rush:
    """A number of forms at a steady rate, each followed to its closing reply.

    Copies of the bot, one at each port, take them in turn, and callbacks too.
    """

    def __init__(self, ports: Sequence[int], outside: Outside, rate: int, seconds: int) -> None:
        self._ports = ports
        self._outside = outside
        self._rate = rate
        self._number = rate * seconds
        self._ready_at: dict[str, float] = {}
        self._callbacks: asyncio.Queue[tuple[float, str, str]] = asyncio.Queue()
        self._replies: list[float] = []
        self._ended = asyncio.Event()

    async def run(self) -> tuple[list[float], list[float]]:
        """Return the seconds to each answer, and from each end to its reply."""
        there = self._outside
        there.service.seen, there.slack.seen = self._created, self._posted
        there.service.status_of = self._status
        writers = [Submissions(port, people=_PEOPLE) for port in self._ports]
        forms = [writers[n % len(writers)].one(n + 1) for n in range(self._number)]
        for port in self._ports:
            # Each has opened a form before: then the bot knows them.
            opened = [command(port, "", number=n, user=person(n)) for n in range(_PEOPLE)]
            await closed_loop(port, opened, _AT_ONCE)
        await quiet(there)
        answers: list[float] = []
        async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            free = []
            calling_back = []
            for port in self._ports:
                each = await stack.enter_async_context(
                    connected(port, (_CONNECTIONS + _CALLING_BACK) // len(self._ports))
                )
                half = len(each) // 2
                calling_back += [group.create_task(self._call_back(c, port)) for c in each[:half]]
                queue: asyncio.Queue[Connection] = asyncio.Queue()
                for connection in each[half:]:
                    queue.put_nowait(connection)
                free.append(queue)
            began = time.perf_counter()
            for number, form in enumerate(forms):
                moment = began + number / self._rate
                await asyncio.sleep(moment - time.perf_counter())
                group.create_task(_send(free[number % len(free)], form, moment, answers))
            async with asyncio.timeout(_TIMEOUT_S):
                await self._ended.wait()
            for task in calling_back:
                task.cancel()
        if there.service.counts["create"] != self._number:
            raise Broken(f"{there.service.counts['create']} videos of {self._number} forms")
        return answers, self._replies

    def _created(self, call: Call) -> None:
        if call.what == "create" and (address := _ADDRESS.search(call.body)):
            moment = time.perf_counter() + _RENDERING_S
            self._ready_at[call.id] = moment
            self._callbacks.put_nowait((moment, address[1].decode(), call.id))

    def _status(self, video: str) -> str:
        return "ready" if time.perf_counter() >= self._ready_at[video] else "generating"

    def _posted(self, call: Call) -> None:
        if call.what == "chat.postMessage" and call.in_thread:
            found = _SCRIPT.search(call.body)
            if found is None:
                raise Broken(f"a reply without its video: {call.body[:500]!r}")
            video = (found[1] or found[2]).decode()
            self._replies.append(time.perf_counter() - self._ready_at[video])
            if len(self._replies) == self._number:
                self._ended.set()

    async def _call_back(self, connection: Connection, port: int) -> None:
        while True:
            moment, path, video = await self._callbacks.get()
            await asyncio.sleep(moment - time.perf_counter())
            await connection.exchange(callback(path, port, video))


async def _send(
    free: asyncio.Queue[Connection], form: bytes, moment: float, answers: list[float]
) -> None:
    connection = await free.get()
    status, body = await connection.exchange(form)
    answers.append(time.perf_counter() - moment)
    free.put_nowait(connection)
    if status != _OK or body:
        raise Broken(f"a form was not accepted: {status} {body[:500]!r}")
