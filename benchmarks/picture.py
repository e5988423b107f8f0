"""Draws the time that jobs take against their number, from the JSON of a run: no plotting library.

``python -m benchmarks.picture RUN.json docs/pictures/throughput.svg``
"""

import json
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final
from xml.sax.saxutils import escape

_WIDTH: Final = 720
_HEIGHT: Final = 430
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 132, 74, 66
_CASE: Final = "throughput"
_AT_ONCE: Final = re.compile(r"([0-9,]+) at once")
_OURS: Final = "#0b6e4f"
_OTHER: Final = "#b3541e"
# Pixels between the two names, where the lines end close together.
_APART: Final = 42
_INK: Final = "#24292f"
_PALE: Final = "#57606a"
_LINES: Final = "#d0d7de"
_FONT: Final = "font-family='system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif'"


@dataclass(frozen=True, slots=True)
class Point:
    """The seconds that ``jobs`` jobs took, in each round."""

    jobs: int
    seconds: Sequence[float]

    @property
    def middle(self) -> float:
        """The median of the rounds."""
        return median(self.seconds)


def points(run: Any, who: str) -> list[Point]:  # noqa: ANN401 - the JSON of a run
    """Return the times of ``who`` ("ours" or "baseline") in a run, fewest jobs first.

    Raises:
        ValueError: it has no throughput.
    """
    found = []
    for row in run["rows"]:
        match = _AT_ONCE.fullmatch(row["what"])
        if row["case"] == _CASE and match and row["unit"] == "jobs/s":
            jobs = int(match[1].replace(",", ""))
            found.append(Point(jobs, [jobs / rate for rate in row[who]]))
    if not found:
        raise ValueError(f"no case {_CASE} in this run")
    return sorted(found, key=lambda point: point.jobs)


class _Scale:
    """From values to places on the picture, in logarithms, between whole ticks."""

    def __init__(self, values: Sequence[float], begin: float, end: float) -> None:
        steps = [part * 10.0**power for power in range(-4, 7) for part in (1, 3)]
        low = max(step for step in steps if step <= min(values))
        high = min(step for step in steps if step >= max(values))
        self.ticks = [step for step in steps if low <= step <= high]
        self._low, self._high = math.log10(low), math.log10(high)
        self._begin, self._end = begin, end

    def at(self, value: float) -> float:
        """Return where a value stands, in pixels."""
        share = (math.log10(value) - self._low) / (self._high - self._low)
        return self._begin + share * (self._end - self._begin)


def draw(ours: Sequence[Point], other: Sequence[Point]) -> str:
    """Return the picture as SVG, on a light ground of its own: it is legible wherever it stands."""
    every = [*ours, *other]
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    x = _Scale([point.jobs for point in every], _LEFT, right)
    y = _Scale([time for point in every for time in point.seconds], bottom, _TOP)
    svg = f"xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH} {_HEIGHT}' {_FONT}"
    parts = [
        f"<svg {svg} role='img' aria-labelledby='t d'>",
        "<title id='t'>Time against the number of jobs</title>",
        f"<desc id='d'>{escape(_summary(ours, other))}</desc>",
        f"<rect width='{_WIDTH}' height='{_HEIGHT}' rx='8' fill='#ffffff'/>",
        _text((_LEFT, 30), "From the forms to the last closing reply", size=17, bold=True),
        _text((_LEFT, 52), "lower is better; median and range of the rounds", colour=_PALE),
    ]
    for tick in x.ticks:
        parts.append(_line((x.at(tick), _TOP), (x.at(tick), bottom)))
        parts.append(_text((x.at(tick), bottom + 20), f"{tick:,.0f}", "middle"))
    for tick in y.ticks:
        parts.append(_line((_LEFT, y.at(tick)), (right, y.at(tick))))
        parts.append(_text((_LEFT - 10, y.at(tick) + 4.5), f"{tick:g} s", "end"))
    across, level = (_LEFT + right) / 2, (_TOP + bottom) / 2
    parts.append(_text((across, _HEIGHT - 18), "jobs submitted at once (log scale)", "middle"))
    parts.append(f"<g transform='translate(22 {level}) rotate(-90)'>")
    parts.append(_text((0, 0), "time in seconds (log scale)", "middle"))
    parts.append("</g>")
    below, above = y.at(ours[-1].middle), y.at(other[-1].middle)
    apart = max(0.0, _APART - abs(below - above)) / 2 * (1 if below >= above else -1)
    parts += _curve(other, x, y, _OTHER) + _label(
        other, x, above - apart, _OTHER, "single-file bot"
    )
    parts += _curve(ours, x, y, _OURS) + _label(ours, x, below + apart, _OURS, "this bot")
    return "\n".join([*parts, "</svg>", ""])


def _summary(ours: Sequence[Point], other: Sequence[Point]) -> str:
    sentences = [
        f"{own.jobs:,} jobs: this bot {own.middle:.2g} s, a single-file bot {base.middle:.2g} s."
        for own, base in zip(ours, other, strict=True)
    ]
    return " ".join(sentences)


def _curve(points: Sequence[Point], x: _Scale, y: _Scale, colour: str) -> list[str]:
    places = [(x.at(point.jobs), y.at(point.middle)) for point in points]
    path = " ".join(f"{across:.1f},{down:.1f}" for across, down in places)
    parts = [f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='2.5'/>"]
    for point, (across, down) in zip(points, places, strict=True):
        ends = y.at(min(point.seconds)), y.at(max(point.seconds))
        parts.append(_line((across, ends[0]), (across, ends[1]), colour, 2))
        parts.append(f"<circle cx='{across:.1f}' cy='{down:.1f}' r='4' fill='{colour}'/>")
    return parts


def _label(points: Sequence[Point], x: _Scale, down: float, colour: str, name: str) -> list[str]:
    last = points[-1]
    across, speed = x.at(last.jobs) + 12, f"{last.jobs / last.middle:,.0f} jobs/s"
    return [
        _text((across, down - 2), name, size=14, colour=colour, bold=True),
        _text((across, down + 15), speed, size=12, colour=colour),
    ]


_Place = tuple[float, float]


def _line(begin: _Place, end: _Place, colour: str = _LINES, width: float = 1) -> str:
    ends = f"x1='{begin[0]:.1f}' y1='{begin[1]:.1f}' x2='{end[0]:.1f}' y2='{end[1]:.1f}'"
    return f"<line {ends} stroke='{colour}' stroke-width='{width}'/>"


def _text(
    place: _Place,
    words: str,
    anchor: str = "start",
    *,
    size: int = 13,
    colour: str = _INK,
    bold: bool = False,
) -> str:
    look = f"text-anchor='{anchor}' font-size='{size}' fill='{colour}'"
    weight = " font-weight='600'" if bold else ""
    return f"<text x='{place[0]:.1f}' y='{place[1]:.1f}' {look}{weight}>{escape(words)}</text>"


def main(arguments: Sequence[str]) -> int:
    """Draw the run that is named first into the file that is named second."""
    source, target = map(Path, arguments)
    run = json.loads(source.read_text())
    target.write_text(draw(points(run, "ours"), points(run, "baseline")))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
