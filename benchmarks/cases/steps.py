"""Where the processor time of a job goes: each step of it, beside the bare call that it makes."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, cast

from benchmarks.fakes import outside
from benchmarks.measure import Better, Row, Scale
from benchmarks.process import contestant

# Each claim or step, and the call in it that the same clients make alone.
_STEPS: Final = {
    "storing the form": None,
    "claim to create": None,
    "create step": "bare create call",
    "claim of the card": None,
    "card step": "bare post",
    "claim to read": None,
    "read step": "bare read",
    "claim of reply and edit": None,
    "reply step": "bare post",
    "edit step": "bare edit",
}


async def run(scale: Scale) -> Sequence[Row]:
    """Take the steps of some jobs, all of one sort together."""
    with tempfile.TemporaryDirectory() as folder:
        async with outside() as there:
            process = contestant(
                "steps",
                *("--database", f"sqlite:///{Path(folder)}/bot.db"),
                *("--slack", there.slack.port, "--service", there.service.port),
                *("--jobs", scale.of(192, 48), "--rounds", scale.rounds),
            )
            async with process as taken:
                took = cast(Mapping[str, Sequence[Sequence[float]]], taken.said["took"])
    rows = []
    for step, call in _STEPS.items():
        whole = [loop + others for loop, others in took[step]]
        database = [others for _, others in took[step]]
        if call is not None:
            bare = [loop + others for loop, others in took[call]]
            rows.append(_row(step, whole, call, bare))
        rows.append(_row(step, whole, "the part of it in the database's thread", database))
    return rows


def _row(what: str, own: list[float], against: str, base: list[float]) -> Row:
    return Row("steps", what, "us/job", Better.LOWER, own, against, base, None)
