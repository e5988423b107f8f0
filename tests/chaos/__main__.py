"""The command line: a run by its seed, and the table of what it has shown."""

import argparse
import asyncio
import logging
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.chaos import plan
from tests.chaos.judge import Finding, ended, judged
from tests.chaos.people import People
from tests.chaos.stage import Stage

# In seconds: so long the calm may take to bring everything to its end, and so long it is looked
# on after that for what should not come.
_CALM: Final = 90.0
_AFTERMATH: Final = 3.0
_SHOWN: Final = 5


def main() -> int:
    """Do a run, print what it has shown, and return the exit code: 1 if a promise broke."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description="Kill the bot and break its calls, then judge it by what the outside saw.",
    )
    parser.add_argument("--jobs", type=int, default=100, help="how many people ask for")
    parser.add_argument("--kills", type=int, default=40, help="how often the bot is killed")
    parser.add_argument("--faults", type=int, help="calls that go wrong; 1.5 a job if not said")
    parser.add_argument("--seed", type=int, default=1, help="what the plan is drawn from")
    parser.add_argument(
        "--blind",
        action="store_true",
        help="without Slack's history scopes: a message may then come twice, which is counted",
    )
    chosen = parser.parse_args()
    faults = round(1.5 * chosen.jobs) if chosen.faults is None else chosen.faults
    rng = random.Random(chosen.seed)  # noqa: S311 - a plan is to be repeatable
    drawn = plan.drawn(rng, jobs=chosen.jobs, kills=chosen.kills, faults=faults)
    print(
        f"{chosen.jobs} jobs, {chosen.kills} kills, {drawn.planned} faults planned, "
        f"seed {chosen.seed}{', without history scopes' if chosen.blind else ''}",
        flush=True,
    )
    # A late commit that the bot is killed at is no news for whoever reads the table.
    logging.getLogger("sandbox").setLevel(logging.CRITICAL)
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    began = time.monotonic()
    findings = asyncio.run(_run(drawn, rng, folder, jobs=chosen.jobs, may_look=not chosen.blind))
    for finding in findings:
        _print(finding)
    print(f"{time.monotonic() - began:6.0f} s")
    if any(finding.broken for finding in findings):
        print(f"A promise was broken. Database and log: {folder}")
        return 1
    shutil.rmtree(folder)
    print("All promises were kept.")
    return 0


async def _run(
    drawn: plan.Plan, rng: random.Random, folder: Path, *, jobs: int, may_look: bool
) -> Sequence[Finding]:
    stage = Stage(drawn, folder, may_look=may_look)
    people = People(stage, rng, jobs=jobs)
    async with stage.runs(), asyncio.TaskGroup() as group:
        answering = group.create_task(people.answer())
        async with asyncio.TaskGroup() as storm:
            storm.create_task(stage.kill())
            storm.create_task(people.ask())
        stage.calm()
        deadline = time.monotonic() + _CALM
        while not ended(stage, people.asks) and time.monotonic() < deadline:
            await asyncio.sleep(1)
        await asyncio.sleep(_AFTERMATH)
        answering.cancel()
        code = await stage.stop()
        findings = judged(stage, people.asks, may_look=may_look)
    return [*findings, Finding("exit code of the bot when asked to end", code, promised=True)]


def _print(finding: Finding) -> None:
    mark = "  " if not finding.promised else "✗ " if finding.broken else "✓ "
    print(f"{finding.figure:6} {mark}{finding.name}")
    for which in finding.which[:_SHOWN] if finding.broken else ():
        print(f"         {which}")


if __name__ == "__main__":
    sys.exit(main())
