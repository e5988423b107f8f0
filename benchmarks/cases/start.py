"""From the start of the process to its first answer, beside importing what any such bot needs.

That is Bolt, aiohttp and pydantic's ``BaseModel``: the bare package loads nothing before a name of
it is used. A second baseline imports all that the product depends on. Each has been started before,
so that the ``.pyc`` files are there. None of them sees the packages that are installed for
development alone: httpx would load its command line with them.
"""

import asyncio
import contextlib
import shutil
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.cases.parts import milliseconds
from benchmarks.databases import fill
from benchmarks.fakes import Outside, outside
from benchmarks.measure import Better, Row, Scale
from benchmarks.payloads import SECRET, TOKEN
from benchmarks.process import Died, started
from bot.settings import environment
from sandbox.http import free_port

_ROOT: Final = Path(__file__).parents[2]
_NAME: Final = "start"
# The goal, and where a small run fails: what is reached, less the noise of a shared machine.
_GOAL: Final = 1.3
_BOUND: Final = 2.0
_KILLED: Final = "after a kill"
_DEPLOYED: Final = """
import sys
sys.modules["pygments"] = None
"""
_SERVE: Final = f"""
{_DEPLOYED}
import runpy
sys.argv = ["bot", "serve"]
runpy.run_module("bot", run_name="__main__", alter_sys=True)
"""
_LEAST: Final = """
from slack_bolt.async_app import AsyncApp
from aiohttp import web
from pydantic import BaseModel
"""
_WHOLE: Final = f"""
{_LEAST}
import aiosqlite, httpx, httpx_aiohttp
"""
_READY: Final = """
import signal
print("{}", flush=True)
signal.pause()
"""
_LOOK_AGAIN: Final = 0.002
_TIMEOUT_S: Final = 60.0
# What the killed one has done, so that there is a write-ahead log.
_AT_WORK: Final = 1.0
# Milliseconds from one job's next read to that of another.
_SPACING: Final = 6.0
_GOOD: Final = b"HTTP/1.1 200"


async def run(scale: Scale) -> Sequence[Row]:
    """Start each in turn, a few times in each round."""
    jobs = scale.of(100_000, 10_000)
    least: list[float] = []
    whole: list[float] = []
    ours: dict[str, list[float]] = {}
    async with outside() as there:
        there.service.status_of = lambda _: "generating"
        with tempfile.TemporaryDirectory() as folder:
            places = {
                "no jobs": Path(folder, "empty"),
                f"{jobs:,} open jobs": Path(folder, "full"),
            }
            if not scale.small:
                places[f"{jobs:,} open jobs, {_KILLED}"] = Path(folder, "killed")
            await _imported(_LEAST)
            await _imported(_WHOLE)
            for what, place in places.items():
                Path.mkdir(place)
                running = 0 if what == "no jobs" else jobs
                database = place / "bot.db"
                await fill(database, running=running, due=milliseconds(), spacing=_SPACING)
                await _answered(database, there)
                if _KILLED in what:
                    await _work_and_die(database, there)
            for _ in range(1 if scale.small else 2 * scale.rounds):
                least.append(await _imported(_LEAST))
                whole.append(await _imported(_WHOLE))
                for what, place in places.items():
                    ours.setdefault(what, []).append(await _of_a_copy(place, there))
    rows = []
    for what, seconds in ours.items():
        row = partial(Row, _NAME, what, "s", Better.LOWER, seconds)
        limits = (None,) if _KILLED in what else (_GOAL, _BOUND)
        rows.append(row("importing Bolt, aiohttp, pydantic", least, None))
        rows.append(row("importing all dependencies", whole, *limits))
    return rows


async def _imported(imports: str) -> float:
    """Return the seconds from starting Python to where all is imported."""
    began = time.perf_counter()
    async with started("-c", _DEPLOYED + imports + _READY):
        return time.perf_counter() - began


async def _of_a_copy(place: Path, there: Outside) -> float:
    """Start on a copy of a folder with a database, and of the log that lies beside it."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(place, folder, dirs_exist_ok=True)
        return await _answered(Path(folder) / "bot.db", there)


async def _answered(database: Path, there: Outside) -> float:
    """Return the seconds from starting the bot to its first answer; end it in good order."""
    async with _serving(database, there) as (_, seconds):
        return seconds


async def _work_and_die(database: Path, there: Outside) -> None:
    async with _serving(database, there) as (process, _):
        await asyncio.sleep(_AT_WORK)
        process.kill()


@contextlib.asynccontextmanager
async def _serving(database: Path, there: Outside) -> AsyncIterator[tuple[Process, float]]:
    """Run ``python -m bot serve`` as in a deployment."""
    port = free_port()
    settings = {
        "SLACK_BOT_TOKEN": TOKEN,
        "SLACK_SIGNING_SECRET": SECRET,
        "SLACK_API_URL": f"http://127.0.0.1:{there.slack.port}/api/",
        "VIDEO_API_URL": f"http://127.0.0.1:{there.service.port}",
        "VIDEO_API_KEY": "key-of-the-benchmarks",
        "DATABASE_URL": f"sqlite:///{database}",
        "HOST": "127.0.0.1",
        "PORT": str(port),
    }
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _SERVE),
        # Not in the folder of the project, where a developer may have a .env.
        cwd=database.parent,
        env=environment(with_file=False) | {"PYTHONPATH": str(_ROOT)} | settings,
        stderr=DEVNULL,
    )
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            while not await _answers(port):
                if process.returncode is not None:
                    raise Died("the bot does not start")
                await asyncio.sleep(_LOOK_AGAIN)
        yield process, time.perf_counter() - began
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        await process.wait()


async def _answers(port: int) -> bool:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return answer.startswith(_GOOD)
