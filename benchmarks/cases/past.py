"""What a person waits for who has had very many videos, beside a person who is new.

Both send each request in turn, one at a time, to a bot that is at rest in between: a form until it
is acknowledged, ``/video`` until its form is opened, Home until it is published.
"""

import asyncio
import itertools
import json
import tempfile
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.cases.parts import copies, milliseconds
from benchmarks.cases.throughput import AT_ONCE
from benchmarks.databases import fill, fill_postgres
from benchmarks.fakes import Call, Outside
from benchmarks.load import Broken, Connection, connected
from benchmarks.measure import Better, Row, Scale
from benchmarks.payloads import Submissions, command, home_opened
from benchmarks.postgres import server

_NAME: Final = "past"
_GOAL: Final = 1.3
_OLD: Final = "U000009999"
# Of each sort and person in a round: a person may send a hundred forms in a day, the old one in all
# rounds.
_NUMBER: Final = 16
_REST_S: Final = 0.05
_TIMEOUT_S: Final = 30.0
_OK: Final = 200
# None of them counts for a limit any more, and none is old enough to be erased.
_AGO: Final = timedelta(days=60)
_TIMINGS: Final = json.dumps({**json.loads(AT_ONCE), "home_interval": 0.01})
_REQUESTS: Final = ("form", "/video", "Home")
# Tells requests apart.
_NUMBERS: Final = itertools.count(1)


async def run(scale: Scale) -> Sequence[Row]:
    """Measure on SQLite, and on PostgreSQL where there is time for it."""
    ended = scale.of(300_000, 20_000)
    due = milliseconds() - round(_AGO.total_seconds() * 1000)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bot.db"
        await fill(file, running=0, ended=ended, due=due, user=_OLD)
        rows = await _compared(f"sqlite:///{file}", scale, ended)
    if scale.small:
        return rows
    with server() as postgres, postgres.database() as url:
        fill_postgres(url, running=0, ended=ended, due=due, user=_OLD)
        return [*rows, *await _compared(url, scale, ended, where="PostgreSQL, ")]


async def _compared(url: str, scale: Scale, ended: int, where: str = "") -> list[Row]:
    own: dict[str, list[float]] = {what: [] for what in _REQUESTS}
    base: dict[str, list[float]] = {what: [] for what in _REQUESTS}
    for number in range(scale.rounds):
        async with copies(1, url, "--timings", _TIMINGS) as bots:
            [bot] = bots.processes
            async with connected(bot.port, 1) as [connection]:
                for what in _REQUESTS:
                    old, new = await _measure(
                        what, number, _Asking(bot.port, connection, bots.outside)
                    )
                    own[what].append(1000 * old)
                    base[what].append(1000 * new)
    about = f"of a person with {ended:,} ended jobs"
    return [
        Row(
            *(_NAME, f"{where}{what} {about}", "ms", Better.LOWER),
            *(own[what], "of a new person", base[what], _GOAL),
        )
        for what in _REQUESTS
    ]


async def _measure(what: str, a_round: int, asking: "_Asking") -> tuple[float, float]:
    """Return the median seconds of the person with many jobs, and those of a new one."""
    took: dict[str, list[float]] = {_OLD: [], f"U{a_round:09d}": []}
    for each in range(_NUMBER + 1):
        for user in (took, reversed(took))[each % 2]:
            await asyncio.sleep(_REST_S)
            took[user].append(await asking.ask(what, user))
    # With the first one, Slack is asked about the person.
    old, new = (median(seconds[1:]) for seconds in took.values())
    return old, new


class _Asking:
    """Asks a bot over one connection, and waits for what the person sees."""

    def __init__(self, port: int, connection: Connection, there: Outside) -> None:
        self._port = port
        self._connection = connection
        self._forms = Submissions(port)
        self._slack = there.slack

    async def ask(self, what: str, user: str) -> float:
        """Return the seconds from a request to what the person sees of it."""
        number = next(_NUMBERS)
        match what:
            case "form":
                return await self._seconds(self._forms.one(number, user), None)
            case "/video":
                request = command(self._port, "", number=number, user=user)
                return await self._seconds(request, "views.open")
            case _:
                request = home_opened(self._port, user, number=number)
                return await self._seconds(request, "views.publish")

    async def _seconds(self, request: bytes, method: str | None) -> float:
        """Return the seconds to the arrival of a call of this method at Slack, or to the answer."""
        arrives: asyncio.Future[float] = asyncio.get_running_loop().create_future()

        def seen(call: Call) -> None:
            if call.what == method and not arrives.done():
                arrives.set_result(time.perf_counter())

        self._slack.seen = seen
        began = time.perf_counter()
        status, body = await self._connection.exchange(request)
        if status != _OK or body:
            raise Broken(f"not the answer that was wanted: {status} {body[:500]!r}")
        if method is None:
            return time.perf_counter() - began
        async with asyncio.timeout(_TIMEOUT_S):
            return await arrives - began
