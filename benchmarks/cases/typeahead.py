"""The options of the replica field during typing, with 10,000 replicas in the database.

The no-op offers nothing; the bot offers up to 99 replicas, which is what its form does.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.cases.parts import FASTEST, Request, milliseconds, noop, ours, side_by_side
from benchmarks.databases import add_replicas
from benchmarks.measure import Better, Row, Scale
from benchmarks.payloads import lookup
from bot.store.engines import migrate

_REPLICAS: Final = 10_000
# The goals, and where a small run fails: what is reached, less the noise of a shared machine.
_ALONE: Final = 0.6
_ALONE_BOUND: Final = 0.45
_MANY: Final = 0.7
_MANY_BOUND: Final = 0.45
_Query = Callable[[int], str]


def _many(n: int) -> str:
    return "aeiou"[n % 5]


def _few(n: int) -> str:
    return f"{n % 1000:03d}"


def _none(n: int) -> str:
    return f"nobody{n}"


_QUERIES: Final[Mapping[str, _Query]] = {"many": _many, "few": _few, "no": _none}


async def run(scale: Scale) -> Sequence[Row]:
    """Measure a mixture, one and 32 at once, and each sort of query on its own."""

    def mixed(n: int) -> str:
        return list(_QUERIES.values())[n % len(_QUERIES)](n)

    measured: list[tuple[str, _Query, int, tuple[float | None, ...]]] = [
        ("many, few and no matches, one at a time", mixed, 1, (_ALONE, _ALONE_BOUND)),
        ("many, few and no matches, 32 at once", mixed, 32, (_MANY, _MANY_BOUND)),
    ]
    if not scale.small:
        measured += [(f"{n} matches, one at a time", q, 1, (None,)) for n, q in _QUERIES.items()]
    figures: list[tuple[list[float], list[float]]] = [([], []) for _ in measured]
    number = scale.of(600, 120)
    with tempfile.TemporaryDirectory() as folder:
        for each in range(scale.rounds):
            file = Path(folder) / f"{each}.db"
            await migrate(file)
            add_replicas(file, _REPLICAS, milliseconds())
            async with ours(database=file) as bot, noop("options") as process:
                ports = (bot.process.port, process.port)
                for (_, query, at_once, _), (own, base) in zip(measured, figures, strict=True):
                    rates = await side_by_side(ports, _asking(query), number, at_once)
                    own.append(rates[0])
                    base.append(rates[1])
    return [
        Row("type-ahead", what, "requests/s", Better.HIGHER, own, FASTEST, base, *limits)
        for (what, _, _, limits), (own, base) in zip(measured, figures, strict=True)
    ]


def _asking(query: _Query) -> Request:
    return lambda port, number: lookup(port, query(number), number=number)
