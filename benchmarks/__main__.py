"""``python -m benchmarks``: measures the cases in turn and prints the table."""

import argparse
import asyncio
import compileall
import resource
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.cases import CASES
from benchmarks.measure import Case, Row, Scale
from benchmarks.report import as_json, heading, markdown

_ROOT: Final = Path(__file__).parent.parent
_ROUNDS: Final = 3
_SMALL_ROUNDS: Final = 2
# A thousand connections, on both sides of each.
_MAX_OPEN_FILES: Final = 16384


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; return 1 where a small run is far outside of a goal twice."""
    names = [case.name for case in CASES]
    parser = argparse.ArgumentParser("python -m benchmarks", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(names))
    parser.add_argument("--rounds", type=int, help=f"pairs of each figure: {_ROUNDS}")
    parser.add_argument("--small", action="store_true", help="a minute, and the exit code judges")
    parser.add_argument("--hour", action="store_true", help="give the long run its hour")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep every figure")
    chosen = parser.parse_args(arguments)
    if unknown := set(chosen.cases) - set(names):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are: {', '.join(names)}")
    rounds = chosen.rounds or (_SMALL_ROUNDS if chosen.small else _ROUNDS)
    scale = Scale(rounds, chosen.small, chosen.hour)
    _allow_files()
    for folder in ("bot", "benchmarks"):
        # As in a deployment: no contestant compiles on its way.
        compileall.compile_dir(_ROOT / folder, quiet=1)
    about = heading(scale)
    wanted = [case for case in CASES if not chosen.cases or case.name in chosen.cases]
    rows = asyncio.run(_measured(wanted, scale))
    print(markdown(about, rows))
    if chosen.json:
        chosen.json.write_text(as_json(about, rows))
    return int(scale.small and any(row.far for row in rows))


async def _measured(cases: Sequence[Case], scale: Scale) -> list[Row]:
    rows: list[Row] = []
    if (task := asyncio.current_task()) is not None:
        # Ending this process ends its contestants too.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    for case in cases:
        measured = await _timed(case, scale)
        if scale.small and any(row.far for row in measured):
            print("far outside: measured once more", file=sys.stderr)
            measured = await _timed(case, scale)
        rows += measured
    return rows


async def _timed(case: Case, scale: Scale) -> Sequence[Row]:
    began = time.perf_counter()
    print(f"{case.name} …", end=" ", file=sys.stderr, flush=True)
    rows = await case.run(scale)
    print(f"{time.perf_counter() - began:.0f} s", file=sys.stderr)
    return rows


def _allow_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(_MAX_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


if __name__ == "__main__":
    sys.exit(main())
