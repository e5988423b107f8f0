"""What has happened in the sandbox's channel when somebody opens its page for the first time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import timedelta
from typing import Any, Final

from sandbox.clock import TrailingClock
from sandbox.driver import Person
from sandbox.slack import SandboxSlack
from sandbox.video_service import SandboxVideoService, Scenario
from sandbox.workspace import Event, Message

#: How long ago it begins.
AGO: Final = timedelta(minutes=12)
_PLACE: Final = "studio"
_PAUSE: Final = timedelta(minutes=2)
_REASON: Final = "The script contains a name that this replica may not say"
_STEP: Final = timedelta(seconds=1)
# In real time: for the bot to do what is due at a step.
_BREATH: Final = timedelta(milliseconds=20)


async def begin(
    slack: SandboxSlack, service: SandboxVideoService, replica: str, clock: TrailingClock
) -> None:
    """Have people ask for a video that is made, one that fails, and a training that goes on.

    It begins a while ago and ends now, in a moment; ``replica`` speaks in the videos.
    """
    ana, ben, cleo = (Person(slack, name) for name in ("ana", "ben", "cleo"))
    cleo.say("Kim starts on Monday. Could somebody make a short welcome?", _PLACE)
    clock.skip(_PAUSE)
    ana.say("On it: `/video` and a sentence is all it takes.", _PLACE)
    welcome = "Welcome to the team, Kim! Your desk is by the window, and lunch is at noon."
    async with _waiting_for(slack, clock, _is_reply):
        await _send_off(ana, "/video", {"replica_id": replica, "script": welcome})
    clock.skip(_PAUSE)
    ben.say("I try one about the competition.", _PLACE)
    service.next_video(Scenario(end="error", reason=_REASON))
    async with _waiting_for(slack, clock, _is_reply):
        script = "What the others cannot do, and we can."
        await _send_off(ben, "/video", {"replica_id": replica, "script": script})
    # What is left is for the training: some of it has passed, and most is still to come.
    clock.skip(clock.lag - service.pace.training / 4)
    ben.say("And I have myself trained meanwhile.", _PLACE)
    async with _waiting_for(slack, clock, lambda message: message.edited is not None):
        footage = "https://storage.example.com/ben.mp4"
        training = {"train_video_url": footage, "replica_name": "Ben", "agreed": ["yes"]}
        await _send_off(ben, "/replica", training)
    clock.skip(clock.lag)


async def _send_off(person: Person, command: str, values: Mapping[str, Any]) -> None:
    await person.command(command, "", _PLACE)
    if (form := person.modal) is not None:
        await form.submit(values)


@contextlib.asynccontextmanager
async def _waiting_for(
    slack: SandboxSlack, clock: TrailingClock, happened: Callable[[Message], bool]
) -> AsyncIterator[None]:
    """Let time pass after what is done here until the bot writes such a message."""
    came = asyncio.Event()

    def note(event: Event) -> None:
        message = event.message
        if message is not None and message.is_from_bot and happened(message):
            came.set()

    leave = slack.subscribe(note)
    try:
        yield
        while not came.is_set():
            clock.skip(_STEP)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_BREATH.total_seconds()):
                    await came.wait()
    finally:
        leave()


def _is_reply(message: Message) -> bool:
    return message.thread_ts is not None
