"""What it takes to claim due rows of few and of very many, and beside many jobs that have ended.

When a job is due has nothing to do with where its row is, so that the rows of a claim lie
scattered, as in life. Of deliveries a claim takes those that may be posted at once, and they are
due again with the next one. Each claim is stored when it returns. All databases are open at once,
and each of their claims is taken in turn.
"""

import contextlib
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.cases.parts import milliseconds
from benchmarks.databases import fill, fill_postgres, owe_cards
from benchmarks.measure import Better, Row, Scale
from benchmarks.postgres import Server, server
from bot.store import Store
from bot.timings import Timings

_MS: Final = 1000.0
_GOAL: Final = 1.5
_JOBS: Final = 100
_DELIVERIES: Final = 64
_SMALLEST: Final = 1000
_FEWEST: Final = 100
_CLAIMS: Final = 30
"""In a round."""
_TIMINGS: Final = Timings()


@dataclass(slots=True)
class _Jobs:
    """An open database with running jobs, and the made-up time of its claims."""

    store: Store
    begin: datetime
    rows: int
    claims: int = 0
    took: list[float] = field(default_factory=list)

    async def claim(self) -> None:
        """Claim the next 100: one job is due with each millisecond, and then when leases end."""
        cycle, place = divmod(self.claims, self.rows // _JOBS)
        passed = timedelta(milliseconds=(place + 1) * _JOBS - 1)
        now = self.begin + cycle * _TIMINGS.lease + passed
        began = time.perf_counter()
        claimed = await self.store.jobs.claim(now, _JOBS)
        self.took.append(time.perf_counter() - began)
        self.claims += 1
        assert len(claimed) == _JOBS


@dataclass(slots=True)
class _Deliveries:
    """An open database in which every card is due, and the made-up time of its claims."""

    store: Store
    begin: datetime
    claims: int = 0
    took: list[float] = field(default_factory=list)

    async def claim(self) -> None:
        """Claim the first; the leases of the last claim are over."""
        now = self.begin + self.claims * (_TIMINGS.lease + timedelta(seconds=1))
        began = time.perf_counter()
        claimed = await self.store.deliveries.claim(now, _DELIVERIES)
        self.took.append(time.perf_counter() - began)
        self.claims += 1
        assert claimed


_Open = _Jobs | _Deliveries


async def run(scale: Scale) -> Sequence[Row]:
    """Measure claims on SQLite, and on PostgreSQL where there is time for it."""
    rows = await _on(None, scale)
    if scale.small:
        return rows
    with server() as postgres:
        return [*rows, *await _on(postgres, scale)]


async def _on(postgres: Server | None, scale: Scale) -> list[Row]:
    """Measure all databases of an engine; without a server, of SQLite."""
    million = scale.of(1_000_000, 20_000)
    sizes = [(_SMALLEST, 0), (scale.of(100_000, 5000), 0), (million, 0), (_SMALLEST, million)]
    where = "" if postgres is None else "PostgreSQL, "
    begin = milliseconds()
    moment = datetime.fromtimestamp(begin / 1000, UTC)
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))

        async def filled(running: int, ended: int = 0, *, channels: int | None = None) -> Store:
            """Return a store; with ``channels``, its cards are due in that many."""
            address: Path | str
            if postgres is None:
                address = folder / f"{running}-{ended}-{channels}.db"
                await fill(address, running=running, ended=ended, due=begin, spacing=1)
            else:
                address = stack.enter_context(postgres.database())
                fill_postgres(address, running=running, ended=ended, due=begin, spacing=1)
            if channels is not None:
                owe_cards(address, begin, channels)
            return await stack.enter_async_context(Store.open(address, _TIMINGS))

        jobs: Mapping[str, _Open] = {
            f"{_JOBS} of {running:,} open jobs" + (f", {ended:,} ended" if ended else ""): _Jobs(
                await filled(running, ended), moment, running
            )
            for running, ended in sizes
        }
        measured = await _compared(jobs, scale, where)
        for about, channels in (("in one channel", 1), (f"in {_DELIVERIES} channels", _DELIVERIES)):
            deliveries: Mapping[str, _Open] = {
                f"the first of {number:,} deliveries {about}": _Deliveries(
                    await filled(number, channels=channels), moment
                )
                for number in (_FEWEST, scale.of(10_000, 2000))
            }
            measured += await _compared(deliveries, scale, where)
        return measured


async def _compared(databases: Mapping[str, _Open], scale: Scale, where: str) -> list[Row]:
    """Measure claims in each of the databases, in turn; the first is the baseline."""
    figures: dict[str, list[float]] = {what: [] for what in databases}
    for each in databases.values():
        await each.claim()
    for _ in range(scale.rounds):
        for each in databases.values():
            each.took.clear()
        for _ in range(_CLAIMS):
            for each in databases.values():
                await each.claim()
        for what, each in databases.items():
            figures[what].append(median(each.took) * _MS)
    (base, baseline), *others = figures.items()
    return [
        Row("claim", f"{where}{what}", "ms", Better.LOWER, found, base, baseline, _GOAL)
        for what, found in others
    ]
