"""What it takes to claim 100 due jobs of few and of very many, and beside many that have ended.

When a job is due has nothing to do with where its row is, so that the rows of a claim lie
scattered, as in life. Each claim is durable when it returns. All databases are open at once, and
each of their claims is taken in turn.
"""

import contextlib
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.cases.parts import milliseconds
from benchmarks.databases import fill, fill_postgres
from benchmarks.measure import Better, Row, Scale
from benchmarks.postgres import server
from bot.store import Store
from bot.timings import Timings

_MS: Final = 1000.0
_CLAIM: Final = 100
_SMALLEST: Final = 1000
_CLAIMS: Final = 30
"""In a round."""
_TIMINGS: Final = Timings()


@dataclass(slots=True)
class _Open:
    """An open database, and the made-up time of its claims."""

    store: Store
    running: int
    begin: datetime
    claims: int = 0
    took: list[float] = field(default_factory=list)

    async def claim(self) -> None:
        """Claim the next 100: one job is due with each millisecond, and then when leases end."""
        cycle, place = divmod(self.claims, self.running // _CLAIM)
        passed = timedelta(milliseconds=(place + 1) * _CLAIM - 1)
        now = self.begin + cycle * _TIMINGS.lease + passed
        began = time.perf_counter()
        claimed = await self.store.jobs.claim(now, _CLAIM)
        self.took.append(time.perf_counter() - began)
        self.claims += 1
        assert len(claimed) == _CLAIM


async def run(scale: Scale) -> Sequence[Row]:
    """Measure claims on SQLite, and on PostgreSQL where there is time for it."""
    million = scale.of(1_000_000, 20_000)
    sizes = [(_SMALLEST, 0), (scale.of(100_000, 5000), 0), (million, 0), (_SMALLEST, million)]
    rows = await _on_sqlite(scale, sizes)
    return rows if scale.small else [*rows, *await _on_postgres(scale, sizes)]


async def _on_sqlite(scale: Scale, sizes: Sequence[tuple[int, int]]) -> list[Row]:
    begin = milliseconds()
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stores = []
        for running, ended in sizes:
            file = folder / f"{running}-{ended}.db"
            await fill(file, running=running, ended=ended, due=begin, spacing=1)
            stores.append(await stack.enter_async_context(Store.open(file, _TIMINGS)))
        return await _compared(scale, sizes, stores, begin)


async def _on_postgres(scale: Scale, sizes: Sequence[tuple[int, int]]) -> list[Row]:
    begin = milliseconds()
    async with contextlib.AsyncExitStack() as stack:
        postgres = stack.enter_context(server())
        stores = []
        for running, ended in sizes:
            url = stack.enter_context(postgres.database())
            fill_postgres(url, running=running, ended=ended, due=begin, spacing=1)
            stores.append(await stack.enter_async_context(Store.open(url, _TIMINGS)))
        return await _compared(scale, sizes, stores, begin, where="PostgreSQL, ")


async def _compared(
    scale: Scale,
    sizes: Sequence[tuple[int, int]],
    stores: Sequence[Store],
    begin: int,
    where: str = "",
) -> list[Row]:
    """Measure claims in each of the databases, in turn; the first is the baseline."""
    figures: list[list[float]] = [[] for _ in sizes]
    bases = [
        _Open(store, running, datetime.fromtimestamp(begin / 1000, UTC))
        for store, (running, _) in zip(stores, sizes, strict=True)
    ]
    for base in bases:
        await base.claim()
    for _ in range(scale.rounds):
        for base in bases:
            base.took.clear()
        for _ in range(_CLAIMS):
            for base in bases:
                await base.claim()
        for base, found in zip(bases, figures, strict=True):
            found.append(median(base.took) * _MS)
    return [
        Row(
            "claim",
            f"{where}{_CLAIM} of {running:,} open jobs" + (f", {ended:,} ended" if ended else ""),
            "ms",
            Better.LOWER,
            found,
            f"{_CLAIM} of {_SMALLEST:,}",
            figures[0],
            1.5,
        )
        for (running, ended), found in zip(sizes[1:], figures[1:], strict=True)
    ]
