"""The sample activity that the page begins with: what people did in the last minutes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import timedelta
from typing import Any, Final

from sandbox.clock import TrailingClock
from sandbox.driver import Person
from sandbox.scenarios import Scenario
from sandbox.slack import SandboxSlack
from sandbox.slack_objects import Event, Message
from sandbox.video_service import SandboxVideoService

#: How much time the activity covers.
SPAN: Final = timedelta(minutes=12)
_CHANNEL: Final = "studio"
_PAUSE: Final = timedelta(minutes=2)
_REASON: Final = "The script contains a name that this replica may not say"
_STEP: Final = timedelta(seconds=1)
# In real time: for the bot to do what is due after a step.
_STEP_TIMEOUT: Final = timedelta(milliseconds=20)


async def play(
    slack: SandboxSlack, service: SandboxVideoService, replica: str, clock: TrailingClock
) -> None:
    """Have people request a video that is made, one that fails, and a training that goes on.

    It begins ``SPAN`` ago and ends now, and takes a moment of real time.

    Args:
        slack: where people act.
        service: where the jobs are made.
        replica: the id of the replica that speaks in the videos.
        clock: lags by ``SPAN`` at the beginning, and by nothing at the end.
    """
    video, replicas = (each.command for each in slack.app.commands)
    ana, ben, cleo = (Person(slack, name) for name in ("ana", "ben", "cleo"))
    cleo.say("Kim starts on Monday. Could somebody make a short welcome?", _CHANNEL)
    clock.skip(_PAUSE)
    ana.say(f"On it: `{video}` and a sentence is all it takes.", _CHANNEL)
    welcome = "Welcome to the team, Kim! Your seat is by the window, and lunch is at noon."
    async with _waiting_for(slack, clock, _is_reply):
        await _submit(ana, video, {"replica_id": replica, "script": welcome})
    clock.skip(_PAUSE)
    ben.say("I'll try one about the competition.", _CHANNEL)
    service.next_video(Scenario(end="error", reason=_REASON))
    async with _waiting_for(slack, clock, _is_reply):
        script = "What the others cannot do, and we can."
        await _submit(ben, video, {"replica_id": replica, "script": script})
    # The training is a quarter done when the page opens.
    clock.skip(clock.lag - service.pace.training / 4)
    ben.say("And I'm having a replica of myself trained.", _CHANNEL)
    async with _waiting_for(slack, clock, lambda message: message.edited is not None):
        footage = "https://storage.example.com/ben.mp4"
        training = {"train_video_url": footage, "replica_name": "Ben", "agreed": ["yes"]}
        await _submit(ben, replicas, training)
    clock.skip(clock.lag)


async def _submit(person: Person, command: str, values: Mapping[str, Any]) -> None:
    await person.command(command, "", _CHANNEL)
    if (form := person.modal) is not None:
        await form.submit(values)


@contextlib.asynccontextmanager
async def _waiting_for(
    slack: SandboxSlack, clock: TrailingClock, is_wanted: Callable[[Message], bool]
) -> AsyncIterator[None]:
    """Step the clock after the body until the bot has written a message that is wanted."""
    written = asyncio.Event()

    def note(event: Event) -> None:
        message = event.message
        if message is not None and message.is_from_bot and is_wanted(message):
            written.set()

    unsubscribe = slack.subscribe(note)
    try:
        yield
        while not written.is_set():
            clock.skip(_STEP)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STEP_TIMEOUT.total_seconds()):
                    await written.wait()
    finally:
        unsubscribe()


def _is_reply(message: Message) -> bool:
    return message.thread_ts is not None and not message.files  # which may come later
