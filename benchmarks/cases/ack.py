"""A submission of ``/video`` until it is acknowledged, the job being on disk by then.

The bot has everything to do that a submission brings: create calls, cards and their edits, to fakes
that answer at once. The no-op apps have nothing else to do. All get the same requests, each of them
a form of its own, over connections that are kept.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.cases.parts import (
    DEFAULT,
    FASTEST,
    bare_insert,
    counted,
    noop,
    ours,
    quiet,
)
from benchmarks.fakes import Outside
from benchmarks.load import Taken, closed_loop, one_by_one
from benchmarks.measure import Better, Row, Scale
from benchmarks.payloads import PEOPLE, Submissions

_MS: Final = 1000.0
# The goals, and where a small run fails: what is reached, less the noise of a shared machine.
_ALONE: Final = 1.5
_ALONE_BOUND: Final = 2.6
_RESTED: Final = 2.0
_MANY: Final = 0.65
_MANY_BOUND: Final = 0.35
# Until what a submission brings is done: in a closed loop the next one meets it.
_REST: Final = 0.05


@dataclass(frozen=True, slots=True)
class _Load:
    """``number`` submissions over ``at_once`` connections, and the figure that counts.

    With 0 connections each submission comes after a rest.
    """

    what: str
    number: int
    at_once: int
    figure: Callable[[Taken], float]
    unit: str = "requests/s"
    better: Better = Better.HIGHER

    def row(
        self,
        own: list[float],
        against: str,
        base: list[float],
        goal: float | None = None,
        bound: float | None = None,
    ) -> Row:
        return Row("ack", self.what, self.unit, self.better, own, against, base, goal, bound)


def _rate(taken: Taken) -> float:
    return taken.per_second


def _middle(taken: Taken) -> float:
    return taken.percentile(50) * _MS


def _whole(taken: Taken) -> float:
    return taken.seconds * _MS


async def run(scale: Scale) -> Sequence[Row]:
    """Measure one at a time, 32 at once, 256 at once, and a burst of 256."""
    number = scale.of(2000, 500)
    alone = _Load("one at a time, p50", scale.of(200, 50), 1, _middle, "ms", Better.LOWER)
    rested = _Load("one after a rest of 50 ms, p50", 40, 0, _middle, "ms", Better.LOWER)
    many = _Load("32 at once", number, 32, _rate)
    most = _Load("256 at once", number, 256, _rate)
    burst = _Load("burst of 256, until the last", 256, 256, _whole, "ms", Better.LOWER)
    limits: tuple[float | None, float | None]
    loads = [alone, many] if scale.small else [alone, rested, many, most, burst]
    own: dict[_Load, list[float]] = {load: [] for load in loads}
    fastest: dict[_Load, list[float]] = {load: [] for load in loads}
    default: dict[_Load, list[float]] = {load: [] for load in loads}
    inserts = []
    for _ in range(scale.rounds):
        async with noop("submission") as first, noop("submission", "default") as second:
            for each, load in enumerate(loads):
                own[load].append(await _ours(load))
                fastest[load].append(await _figure(first.port, load, each))
                default[load].append(await _figure(second.port, load, each))
        inserts.append(await bare_insert(alone.number) * _MS)
    rows = []
    for load in loads:
        if load in {alone, rested}:
            limits = (_ALONE, _ALONE_BOUND) if load == alone else (_RESTED, None)
            durable = [sum(pair) for pair in zip(fastest[load], inserts, strict=True)]
            rows.append(load.row(own[load], f"{FASTEST} + a bare durable insert", durable, *limits))
        limits = (_MANY, _MANY_BOUND) if load == many else (None, None)
        rows.append(load.row(own[load], FASTEST, fastest[load], *limits))
        rows.append(load.row(own[load], DEFAULT, default[load]))
    return rows


async def _ours(load: _Load) -> float:
    """Return the figure of the bot on a new database."""
    async with ours() as bot:
        figure = await _figure(bot.process.port, load, there=bot.outside)
        # It has work left for a while.
        await bot.process.kill()
    return figure


async def _figure(port: int, load: _Load, earlier: int = 0, there: Outside | None = None) -> float:
    """Return the figure of a load; forms of ``earlier`` loads are not sent off once more.

    The first forms, one of each person, are not counted. What they bring is done ``there`` before.
    """
    requests = Submissions(port).many(len(counted(load.number)), 1 + earlier * 10_000)
    await closed_loop(port, requests[:PEOPLE], load.at_once or 1, good=_closes)
    if there is not None:
        await quiet(there)
    measured = requests[PEOPLE:]
    if not load.at_once:
        return load.figure(await one_by_one(port, measured, _REST, good=_closes))
    return load.figure(await closed_loop(port, measured, load.at_once, good=_closes))


def _closes(body: bytes) -> bool:
    """Return whether an answer closes the form: a form with mistakes has a body."""
    return not body
