"""Many running videos, each read once in an interval: how late the reads are, and what they cost.

The rows are put into the database, due one after another over the interval, and the service says
of each that it is still going. The jitter is set to nothing, so that what is late is late.
"""

import asyncio
import json
import sqlite3
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from benchmarks.cases.parts import milliseconds
from benchmarks.databases import fill
from benchmarks.fakes import Call, outside
from benchmarks.measure import Better, Row, Scale
from benchmarks.process import contestant

_NAME: Final = "polling"
_LATE: Final = 1.1
_SHARE: Final = 0.25
# Each video is read once, and a quarter of them once more.
_INTERVALS: Final = 1.25


async def run(scale: Scale) -> Sequence[Row]:
    """Watch one run: it is as long as it is, and each of thousands of videos is a measurement."""
    number, interval = scale.of(10_000, 667), float(scale.of(60, 4))
    longest, share = await _watched(number, interval)
    return [
        Row(
            case=_NAME,
            what=f"longest interval of {number:,} videos",
            unit="s",
            better=Better.LOWER,
            ours=[longest],
            against="the interval",
            baseline=[interval],
            goal=_LATE,
        ),
        Row(
            case=_NAME,
            what=f"processor time, {number / interval:.0f} reads/s",
            unit="cores",
            better=Better.LOWER,
            ours=[share],
            against="one core",
            baseline=[1.0],
            goal=_SHARE,
        ),
    ]


async def _watched(number: int, interval: float) -> tuple[float, float]:
    """Return the longest time between two reads of a video, in seconds, and the share of a core.

    The first read counts from when it was due; what was not read by the end, up to the end.
    """
    schedule = {"first_interval": interval, "growth": 0, "max_interval": interval}
    timings = json.dumps({"jitter": 0, "minutes": schedule})
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "bot.db"
        spacing = 1000 * interval / number
        await fill(database, running=number, due=milliseconds(), spacing=spacing)
        due = _due(database)
        latest = 0.0

        def seen(call: Call) -> None:
            nonlocal latest
            now = time.time()  # noqa: TID251 - the database's times are held against it
            latest = max(latest, now - due[call.id])
            due[call.id] = now + interval

        async with outside() as there:
            there.service.status_of = lambda _: "generating"
            there.service.seen = seen
            async with contestant(
                "ours",
                *("--database", f"sqlite:///{database}", "--timings", timings),
                *("--slack", there.slack.port, "--service", there.service.port),
            ) as bot:
                began, before = time.time(), bot.processor()  # noqa: TID251 - likewise
                # What was due before it ran could not be read.
                due.update({video: began for video, at in due.items() if at < began})
                await asyncio.sleep(interval * _INTERVALS)
                ended = time.time()  # noqa: TID251 - likewise
                share = (bot.processor() - before) / (ended - began)
        return interval + max(latest, *(ended - at for at in due.values())), share


def _due(database: Path) -> dict[str, float]:
    """Return when each video is due, in seconds since 1970."""
    with closing(sqlite3.connect(database)) as db:
        rows: Sequence[tuple[str, int]] = db.execute(
            "SELECT remote_id, due_at FROM jobs"
        ).fetchall()
    times: Mapping[str, int] = dict(rows)
    return {video: at / 1000 for video, at in times.items()}
