"""The table of a run as Markdown, with machine, versions and commit; all its figures as JSON."""

import json
import os
import platform
import sqlite3
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.measure import Better, Row, Scale

_ROOT: Final = Path(__file__).parent.parent
_PACKAGES: Final = (
    *("slack-bolt", "slack-sdk", "aiohttp", "httpx", "httpx-aiohttp", "pydantic", "aiosqlite"),
)
_COLUMNS: Final = (
    "case",
    "what",
    "unit",
    "ours (median)",
    "baseline",
    "its median",
    "ratio of pairs (range)",
    "goal",
    "met",
)


def heading(scale: Scale) -> Mapping[str, str]:
    """Return what the figures depend on: machine, versions, commit, and how much was run."""
    return {
        "machine": f"{os.cpu_count()} cores, {_processor()}, {platform.system()} "
        f"{platform.release()}",
        "versions": ", ".join(
            [
                f"Python {platform.python_version()}",
                *(f"{name} {version(name)}" for name in _PACKAGES),
                f"SQLite {sqlite3.sqlite_version}",
            ]
        ),
        "commit": _commit(),
        "run": f"{scale.rounds} rounds{', small' if scale.small else ''}",
    }


def markdown(about: Mapping[str, str], rows: Sequence[Row]) -> str:
    """Return the table: medians, and the ratio as the median of the pairs with its range."""
    lines = [f"* {name}: {value}" for name, value in about.items()]
    table = [_COLUMNS, ["---"] * len(_COLUMNS), *(_cells(row) for row in rows)]
    return "\n".join([*lines, "", *(f"| {' | '.join(cells)} |" for cells in table)])


def as_json(about: Mapping[str, str], rows: Sequence[Row]) -> str:
    """Return everything, each single figure included."""
    whole = {**about, "rows": [{**asdict(row), "ratio": row.ratio, "met": row.met} for row in rows]}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def _cells(row: Row) -> Sequence[str]:
    ratios = [own / base for own, base in zip(row.ours, row.baseline, strict=True)]
    goal = met = ""
    if row.goal is not None:
        goal = f"{'≥' if row.better is Better.HIGHER else '≤'} {row.goal:g}"
        met = "yes" if row.met else "**no**"
    return (
        row.case,
        row.what,
        row.unit,
        _number(median(row.ours)),
        row.against,
        _number(median(row.baseline)),
        f"{row.ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
        goal,
        met,
    )


def _number(value: float) -> str:
    """Return three digits that count, or all those before the point."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _commit() -> str:
    """Return the commit, with a "+" where files differ from it."""
    try:
        commit = _git("rev-parse", "--short", "HEAD")
        return commit + ("+" if _git("status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(  # noqa: S603 - a constant
        command, cwd=_ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
