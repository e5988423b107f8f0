"""The bot with all its listeners, beside the bot with one of them alone.

Bolt tries listeners in the order in which they are registered. Measured are those that are used
most, which come first, and the last one. The requests cost little elsewhere: a create form with a
mistake in it, a type-ahead field where no replica is known, and an event that does not concern the
bot.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.cases.parts import Request, ours, side_by_side
from benchmarks.measure import Better, Row, Scale
from benchmarks.payloads import Submissions, channel_message, lookup

_AT_ONCE: Final = 32
_HOT: Final = 0.85
_COLD: Final = 0.4


@dataclass(frozen=True, slots=True)
class _Listener:
    """A listener, as it is registered with Bolt: ``app.METHOD(ID)``.

    ``good`` says of an answer's body whether it is the one to ``request``; ``goal`` is for the rate
    with all listeners, as a share of the rate with this one alone.
    """

    name: str
    method: str
    id: str
    request: Request
    good: Callable[[bytes], object]
    goal: float


_SUBMISSION: Final = _Listener(
    name="create form (hot)",
    method="view",
    id="create_video",
    request=lambda port, n: Submissions(port, script=" ").one(n),
    good=lambda body: b'"script"' in body,
    goal=_HOT,
)
_TYPE_AHEAD: Final = _Listener(
    name="type-ahead (hot)",
    method="options",
    id="video_replica",
    request=lambda port, n: lookup(port, "", number=n),
    good=lambda body: body == b'{"options": []}',
    goal=_HOT,
)
_LAST: Final = _Listener(
    name="last registered (cold)",
    method="event",
    id="message",
    request=lambda port, n: channel_message(port, number=n),
    good=lambda body: body == b"",
    goal=_COLD,
)


async def run(scale: Scale) -> Sequence[Row]:
    """Measure each listener."""
    return [await _measure(each, scale) for each in (_SUBMISSION, _TYPE_AHEAD, _LAST)]


async def _measure(listener: _Listener, scale: Scale) -> Row:
    number = scale.of(1200, 400)
    everything: list[float] = []
    alone: list[float] = []
    for _ in range(scale.rounds):
        async with ours() as bot, ours("--only", listener.method, listener.id) as bare:
            registered = bot.process.said["listeners"]
            assert isinstance(registered, list)
            assert (registered[-1] == [listener.method, listener.id]) == (listener is _LAST)
            ports = (bot.process.port, bare.process.port)
            first, second = await side_by_side(
                ports, listener.request, number, _AT_ONCE, good=listener.good
            )
        everything.append(first)
        alone.append(second)
    return Row(
        case="listeners",
        what=f"{listener.name}, {_AT_ONCE} at once",
        unit="requests/s",
        better=Better.HIGHER,
        ours=everything,
        against="the bot with this listener alone",
        baseline=alone,
        goal=listener.goal,
    )
