"""Many jobs in one channel, of which Slack takes one message a second.

The sandbox's Slack holds posts to that pace, under a clock that skips the waits. What counts is how
many calls it refuses, in which order the cards come, and whether another channel's card is as fast
as without the crowd.
"""

import itertools
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

from benchmarks.load import Broken
from benchmarks.measure import Better, Row, Scale
from bot.app import Bot, running
from bot.settings import Settings
from bot.timings import Timings
from sandbox.clock import ManualClock
from sandbox.driver import Person
from sandbox.http import free_port
from sandbox.slack import SandboxSlack
from sandbox.video_service import SandboxVideoService
from tests.watched_clock import WatchedClock

_REPLICA: Final = "r-anna-42"
_CROWDED: Final = "studio"
_OTHER: Final = "lobby"
_OTHERS: Final = 20
# Of those that go through.
_REFUSED: Final = 0.1
_STEP: Final = timedelta(seconds=10)
# Slack opens 100 forms a minute: https://docs.slack.dev/reference/methods/views.open
_FORM_EVERY: Final = timedelta(seconds=0.6)
# Nobody has more open than the default allows, and all together may have as many as are asked for.
_PEOPLE: Final = 32
_MAX_PER_DAY: Final = 1000


async def run(scale: Scale) -> Sequence[Row]:
    """Measure one crowd."""
    number = scale.of(500, 60)
    clock = ManualClock()
    slack, service = SandboxSlack(clock), SandboxVideoService(clock)
    slack.rate_limits = True
    service.add_replica(_REPLICA, "Anna")
    users = [
        slack.add_user(f"person-{n}", channels=[_CROWDED, _OTHER]).name for n in range(_PEOPLE)
    ]
    people = itertools.cycle([Person(slack, name) for name in users])
    with tempfile.TemporaryDirectory() as folder:
        await slack.start()
        await service.start()
        settings = _settings(slack, service, Path(folder))
        try:
            watched = WatchedClock(clock)
            async with running(
                settings,
                clock=watched,
                timings=Timings(),
                rng=random.Random(1),  # noqa: S311 - for jitter
            ) as bot:
                slack.request_url = f"http://127.0.0.1:{bot.port}/slack/events"
                leave = clock.settles_with(lambda: watched.bot_settled(bot))
                try:
                    return await _crowd(bot, clock, slack, people, number)
                finally:
                    leave()
        finally:
            await service.stop()
            await slack.stop()


async def _crowd(
    bot: Bot, clock: ManualClock, slack: SandboxSlack, people: Iterator[Person], number: int
) -> list[Row]:
    alone = [await _card_time(slack, next(people), clock) for _ in range(_OTHERS)]
    for each in range(number):
        await _submit(next(people), _CROWDED, f"Number {each}.")
        await clock.advance(_FORM_EVERY)
    beside = [await _card_time(slack, next(people), clock) for _ in range(_OTHERS)]
    while (await bot.store.deliveries.claim(clock.now(), 0)).next_due is not None:
        await clock.advance(_STEP)
    posts = [each for each in slack.calls if each.method == "chat.postMessage"]
    made = [each for each in posts if each.ok]
    order = [
        int(card.text.partition("Number ")[2].partition(".")[0])
        for card in slack.messages(_CROWDED)
    ]
    displaced = max(abs(place - each) for place, each in enumerate(order))

    about = f"{number} jobs in one channel:"
    return [
        Row(
            case="pace",
            what=f"{about} refused calls for each post",
            unit="",
            better=Better.LOWER,
            ours=[(len(posts) - len(made)) / len(made)],
            against="one of ten",
            baseline=[_REFUSED],
            goal=1,
        ),
        Row(
            case="pace",
            what=f"{about} places by which a card is out of order",
            unit="",
            better=Better.LOWER,
            ours=[displaced],
            against="one place",
            baseline=[1],
            goal=1,
        ),
        Row(
            case="pace",
            what=f"{about} another channel's card",
            unit="ms",
            better=Better.LOWER,
            ours=beside,
            against="without the crowd",
            baseline=alone,
            goal=1.5,
        ),
    ]


async def _submit(person: Person, channel: str, script: str) -> None:
    answer = await person.command("/video", "", channel)
    if not answer.ok or person.modal is None:
        raise Broken(f"no form was opened: {answer.body}")
    form = person.modal
    await form.submit({"replica_id": _REPLICA, "script": script})
    if form.is_open:
        raise Broken(f"a form was not accepted: {form.errors}")


async def _card_time(slack: SandboxSlack, person: Person, clock: ManualClock) -> float:
    """Return the milliseconds from a form to its card, in real time."""
    before = len(slack.messages(_OTHER))
    began = time.perf_counter()
    await _submit(person, _OTHER, f"Hello, number {before}.")  # the same would be offered
    await clock.settle()
    took = time.perf_counter() - began
    if len(slack.messages(_OTHER)) != before + 1:
        raise Broken("a card in another channel waits")
    await clock.advance(_STEP)
    return 1000 * took


def _settings(slack: SandboxSlack, service: SandboxVideoService, folder: Path) -> Settings:
    return Settings.read(
        {
            "SLACK_BOT_TOKEN": slack.bot_token,
            "SLACK_SIGNING_SECRET": slack.signing_secret,
            "SLACK_API_URL": slack.api_url,
            "VIDEO_API_URL": service.url,
            "VIDEO_API_KEY": service.api_key,
            "DATABASE_URL": f"sqlite:///{folder / 'bot.db'}",
            "HOST": "127.0.0.1",
            "PORT": str(free_port()),
            "MAX_PER_DAY": str(_MAX_PER_DAY),
        }
    )
