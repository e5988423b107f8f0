"""A command, a click and a look-up of the bot with all its listeners, beside the bot with just one.

They are requests that cost nothing elsewhere: a help text, a button that nobody knows, and a
type-ahead field where no replica is known.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.cases.parts import FASTEST, Request, noop, ours, side_by_side
from benchmarks.measure import Better, Row, Scale
from benchmarks.payloads import click, command, lookup

_AT_ONCE: Final = 32


@dataclass(frozen=True, slots=True)
class _Sort:
    """A sort of request: the id of the one listener that is left, and Bolt's method for it."""

    name: str
    handler: str
    listener: str
    request: Request
    good: Callable[[bytes], object]


_SORTS: Final = (
    _Sort(
        "command",
        "/video",
        "command",
        lambda port, n: command(port, number=n),
        lambda body: b"opens the form" in body,
    ),
    _Sort(
        "button",
        "video_background",
        "action",
        lambda port, n: click(port, "none", number=n),
        lambda body: not body,
    ),
    _Sort(
        "options",
        "video_replica",
        "options",
        lambda port, n: lookup(port, "", number=n),
        lambda body: body == b'{"options": []}',
    ),
)


async def run(scale: Scale) -> Sequence[Row]:
    """Measure each sort of request."""
    rows = []
    number = scale.of(1200, 400)
    for sort in _SORTS:
        what = f"{sort.name}, {_AT_ONCE} at once"
        own: list[float] = []
        one: list[float] = []
        beside: list[float] = []
        fastest: list[float] = []
        for _ in range(scale.rounds):
            async with ours() as bot:
                port = bot.process.port
                async with ours("--only", sort.listener, sort.handler) as bare:
                    ports = (port, bare.process.port)
                    first, second = await side_by_side(
                        ports, sort.request, number, _AT_ONCE, good=sort.good
                    )
                own.append(first)
                one.append(second)
                if not scale.small:
                    async with noop(sort.listener) as process:
                        first, second = await side_by_side(
                            (port, process.port), sort.request, number, _AT_ONCE
                        )
                    beside.append(first)
                    fastest.append(second)
        rows.append(_row(what, own, "the bot with this listener alone", one, 0.85))
        if fastest:
            rows.append(_row(what, beside, FASTEST, fastest, None))
    return rows


def _row(
    what: str, own: list[float], against: str, baseline: list[float], goal: float | None
) -> Row:
    return Row("listeners", what, "requests/s", Better.HIGHER, own, against, baseline, goal)
