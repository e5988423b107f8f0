"""The steps of a job, one sort after the other, each beside the bare call that it makes.

The bot runs in this process with workers that do nothing: what they would claim is claimed and done
here, so that the processor time of each sort can be told apart. Prints microseconds a job: those of
the event loop's thread, and those of all others, which is the database's.
"""

import argparse
import asyncio
import gc
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from datetime import UTC, datetime
from typing import Any, Final, TypeVar
from unittest.mock import patch

import aiohttp
from slack_sdk.web.async_client import AsyncWebClient

import bot.app
from benchmarks.contestants import announce, asked_to_end
from benchmarks.contestants.calls import BLOCKS
from benchmarks.contestants.ours import changed
from benchmarks.payloads import REPLICA, SECRET, TOKEN, person
from bot import log
from bot.engine.loop import Work, Worker
from bot.model import Request, Role
from bot.service.client import connect
from bot.settings import Settings
from bot.store import Store
from bot.timings import Timings

_AT_ONCE: Final = 48
_CLAIMED: Final = 24
_PEOPLE: Final = 256
_KEY: Final = "key-of-the-benchmarks"
_WAITS: Final = {"jitter": 0, "minutes": {"first_interval": 0, "growth": 0, "max_interval": 0}}
_US: Final = 1e6
_T = TypeVar("_T")


class _Idle(Worker[Any]):
    """A worker that does nothing, and keeps what it would work on."""

    works: Final[list[Work[Any]]] = []

    def __init__(self, work: Work[Any], *others: Any, **options: Any) -> None:  # noqa: ANN401
        super().__init__(work, *others, **options)
        self.works.append(work)

    async def run(self) -> None:
        await self._stopping.wait()


class _Clock:
    """Measures what a number of jobs take."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self.took: dict[str, list[tuple[float, float]]] = {}

    async def of(self, what: str, work: Awaitable[_T]) -> _T:
        """Await ``work``, and keep its processor time: the event loop's, and the rest."""
        gc.collect()
        loop, all_threads = time.thread_time(), time.process_time()
        result = await work
        loop, all_threads = time.thread_time() - loop, time.process_time() - all_threads
        per_job = _US / self._jobs
        self.took.setdefault(what, []).append((loop * per_job, (all_threads - loop) * per_job))
        return result


async def _each(act: Callable[[_T], Awaitable[object]], items: Iterable[_T]) -> None:
    """Act on all items, some at a time."""
    left = iter(items)

    async def act_on_some() -> None:
        for item in left:
            await act(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            group.create_task(act_on_some())


async def _claimed(work: Work[Any]) -> list[Any]:
    """Claim all that is due, as many at a time as a busy worker does."""
    found: list[Any] = []
    while claimed := await work.claim(_CLAIMED, ()):
        found += claimed
    return found


async def _a_round(clock: _Clock, store: Store, numbers: Collection[int], bare: "_Bare") -> None:
    engine, messenger, _ = _Idle.works

    async def submit(number: int) -> None:
        script = {"replica_id": REPLICA, "script": f"Welcome to the team, Kim{number}!"}
        user = person(number % _PEOPLE)
        asked = Request(
            f"V{number}", "video", script, user, f"C{user[1:]}", None, None, f"{number}"
        )
        await store.jobs.submit(asked, datetime.now(UTC))  # noqa: TID251 - the bot's clock is real

    await clock.of("storing the form", _each(submit, numbers))
    await clock.of("bare create call", _each(bare.create, numbers))
    created = await clock.of("claim to create", _claimed(engine))
    await clock.of("create step", _each(engine.step, created))
    cards = await clock.of("claim of the card", _claimed(messenger))
    await clock.of("bare post", _each(bare.post, numbers))
    await clock.of("card step", _each(messenger.step, cards))
    await clock.of("bare read", _each(bare.read, numbers))
    running = await clock.of("claim to read", _claimed(engine))
    await clock.of("read step", _each(engine.step, running))
    owed = await clock.of("claim of reply and edit", _claimed(messenger))
    replies = [each for each in owed if each.delivery.role is Role.REPLY]
    edits = [each for each in owed if each.delivery.role is Role.CARD]
    assert len(created) == len(cards) == len(running) == len(replies) == len(edits) == len(numbers)
    await clock.of("reply step", _each(messenger.step, replies))
    await clock.of("bare edit", _each(bare.edit, numbers))
    await clock.of("edit step", _each(messenger.step, edits))


class _Bare:
    """The calls of a job, by the same clients, with nothing around them."""

    def __init__(self, slack: AsyncWebClient, videos: str, creating: Any, reading: Any) -> None:  # noqa: ANN401 - clients of httpx
        self._slack = slack
        self._videos = videos
        self._creating = creating
        self._reading = reading

    async def create(self, _: int) -> None:
        body = {"script": "Welcome to the team!", "replica_id": REPLICA}
        (await self._creating.post(self._videos, json=body)).json()

    async def read(self, _: int) -> None:
        (await self._reading.get(f"{self._videos}/v1")).json()

    async def post(self, _: int) -> None:
        await self._slack.chat_postMessage(channel="C1", text="Rendering", blocks=BLOCKS)

    async def edit(self, _: int) -> None:
        await self._slack.chat_update(channel="C1", ts="1.1", text="Ready", blocks=BLOCKS)


async def main() -> None:
    """Take the steps of some jobs a few times, and print what they took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--database", required=True, help="its URL")
    parser.add_argument("--slack", type=int, required=True, help="port of the Web API")
    parser.add_argument("--service", type=int, required=True, help="port of the video service")
    parser.add_argument("--jobs", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    chosen = parser.parse_args()
    slack, service = (f"http://127.0.0.1:{port}" for port in (chosen.slack, chosen.service))
    settings = Settings.read(
        {
            "SLACK_BOT_TOKEN": TOKEN,
            "SLACK_SIGNING_SECRET": SECRET,
            "SLACK_API_URL": f"{slack}/api/",
            "VIDEO_API_URL": service,
            "VIDEO_API_KEY": _KEY,
            "DATABASE_URL": chosen.database,
            "HOST": "127.0.0.1",
            "PORT": "0",
            "MAX_PER_DAY": "25000",
            "MAX_PER_USER_PER_DAY": "1000",
        }
    )
    log.configure(sys.stderr, logging.INFO, secrets=settings.secrets)
    clock = _Clock(chosen.jobs)
    gc.freeze()  # as the command line does
    with patch.object(bot.app, "Worker", _Idle):
        async with (
            bot.app.running(settings, timings=changed(Timings(), _WAITS)) as running,
            connect() as clients,
            aiohttp.ClientSession() as session,
        ):
            client = AsyncWebClient(TOKEN, base_url=f"{slack}/api/", session=session)
            bare = _Bare(client, f"{service}/v2/videos", clients.creating, clients.reading)
            for number in range(chosen.rounds + 1):
                first = 1 + number * chosen.jobs
                await _a_round(clock, running.store, range(first, first + chosen.jobs), bare)
                if not number:  # nothing is counted that happens only once
                    clock.took.clear()
    announce(took=clock.took)
    await asked_to_end()


if __name__ == "__main__":
    asyncio.run(main())
