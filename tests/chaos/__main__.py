"""The command line: runs a seeded plan and prints the table of results."""

import argparse
import asyncio
import logging
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.chaos.databases import PostgresServer, RunDatabase, SQLiteFile
from tests.chaos.environment import Environment
from tests.chaos.plan import draw_plan
from tests.chaos.results import all_done, results_of
from tests.chaos.rows import Result
from tests.chaos.users import Approvals, Users
from tests.databases import usage_differences_in

# For all jobs to end once the faults have stopped.
_FINISH_TIMEOUT_S: Final = 90.0
# After that, for messages that should not come.
_EXTRA_WAIT_S: Final = 3.0
_MAX_EXAMPLES: Final = 5


def main() -> int:
    """Run the plan, print the results, and return 1 if a promise was broken."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description="Kill the bot, break its calls, and check what Slack and the service saw.",
    )
    parser.add_argument("--jobs", type=int, default=100, help="number of requests")
    parser.add_argument("--kills", type=int, default=40, help="number of kills")
    parser.add_argument("--faults", type=int, help="number of faults (default: 1.5 per job)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the plan")
    parser.add_argument(
        "--no-search",
        action="store_true",
        help="without Slack's history scopes; messages may then be doubled, which is counted",
    )
    parser.add_argument(
        "--socket-mode",
        action="store_true",
        help="over connections that go silent, are closed, and deliver twice",
    )
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument(
        "--copies", type=int, default=1, help="how many copies of the bot (on PostgreSQL)"
    )
    parser.add_argument(
        "--server-restarts", type=int, default=0, help="number of restarts of the server"
    )
    chosen = parser.parse_args()
    if chosen.database == "sqlite" and (chosen.copies > 1 or chosen.server_restarts):
        parser.error("several copies, and restarts of the server, need --database postgres")
    faults = round(1.5 * chosen.jobs) if chosen.faults is None else chosen.faults
    rng = random.Random(chosen.seed)  # noqa: S311 - the plan is reproducible
    plan = draw_plan(
        rng,
        jobs=chosen.jobs,
        kills=chosen.kills,
        faults=faults,
        socket_mode=chosen.socket_mode,
        server_restarts=chosen.server_restarts,
    )
    print(
        f"{chosen.jobs} jobs, {chosen.kills} kills, {plan.fault_count} faults planned, "
        f"seed {chosen.seed}{', without history scopes' if chosen.no_search else ''}"
        f"{', Socket Mode' if chosen.socket_mode else ''}"
        f"{', PostgreSQL' if chosen.database == 'postgres' else ''}",
        flush=True,
    )
    # The sandbox logs late commits that a kill has cut off: not of interest here.
    logging.getLogger("sandbox").setLevel(logging.CRITICAL)
    # With the database's server, which would go on.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    began = time.monotonic()
    postgres = chosen.database == "postgres"
    database: RunDatabase = PostgresServer(folder) if postgres else SQLiteFile(folder)
    env = Environment(
        plan,
        folder,
        database,
        rng,
        can_search=not chosen.no_search,
        copies=chosen.copies,
        socket_mode=chosen.socket_mode,
    )
    results = asyncio.run(_run(env, rng, jobs=chosen.jobs, can_search=not chosen.no_search))
    for result in results:
        _print(result)
    print(f"{time.monotonic() - began:6.0f} s")
    if any(result.is_broken for result in results):
        print(f"A promise was broken. Database and log: {folder}")
        return 1
    shutil.rmtree(folder)
    print("All promises were kept.")
    return 0


async def _run(
    env: Environment, rng: random.Random, *, jobs: int, can_search: bool
) -> Sequence[Result]:
    users = Users(env, rng, jobs=jobs)
    approvals = Approvals(env, users, rng)
    async with env.running(), asyncio.TaskGroup() as group:
        answering = group.create_task(users.answer_questions())
        approving = group.create_task(approvals.answer_all())
        opening = group.create_task(users.open_homes())
        turning_away = group.create_task(env.turn_away())
        disturbing = group.create_task(env.disturb_sockets(rng))
        async with asyncio.TaskGroup() as killing:
            killing.create_task(env.kill())
            killing.create_task(env.restart_server())
            killing.create_task(users.submit_all())
        turning_away.cancel()
        disturbing.cancel()
        env.stop_faults()
        opening.cancel()

        async def finish() -> None:
            # Those whose copy was killed follow changes from here on.
            await users.open_homes_again()
            deadline = time.monotonic() + _FINISH_TIMEOUT_S
            while time.monotonic() < deadline and not all_done(
                env, users, approvals, can_search=can_search
            ):
                await asyncio.sleep(1)

        await finish()
        async with env.outage():
            await users.submit_queued()
        await finish()
        await users.open_homes_again()
        await asyncio.sleep(_EXTRA_WAIT_S)
        answering.cancel()
        approving.cancel()
        await env.stop()
        usage = await asyncio.to_thread(usage_differences_in, env.run_database.address)
        damaged = await env.run_database.close()
        return results_of(
            env, users, approvals, damaged=damaged, usage=usage, can_search=can_search
        )


def _print(result: Result) -> None:
    symbol = "  " if result.at_most is None else "✗ " if result.is_broken else "✓ "
    print(f"{result.count:6} {symbol}{result.name}")
    for example in result.examples[:_MAX_EXAMPLES] if result.is_broken else ():
        print(f"         {example}")


if __name__ == "__main__":
    sys.exit(main())
