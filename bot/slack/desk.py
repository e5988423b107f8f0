"""What all handlers share: opening forms, whispering to a person, and who may press what."""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import aiohttp
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.webhook.async_client import AsyncWebhookClient

from bot.clock import Clock
from bot.errors import OutsideError, Refused
from bot.kinds import Kind
from bot.model import Job
from bot.slack.blocks import Json, Message
from bot.slack.cards import Face, Faces
from bot.slack.errors import FATES, Fate, translated
from bot.slack.routes import Routes
from bot.store import Store
from bot.timings import Timings
from bot.video_service import VideoService


class Background(Protocol):
    """Where work goes that nobody waits for."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Have it done, and waited for when the process ends."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What a handler has at hand."""

    store: Store
    service: VideoService
    kinds: Mapping[str, Kind]
    faces: Faces
    client: AsyncWebClient
    session: aiohttp.ClientSession
    background: Background
    clock: Clock
    timings: Timings
    admins: frozenset[str]

    def may_press(self, user: str, job: Job) -> bool:
        """Return whether a person may decide about a job: it is theirs, or they are an admin."""
        return user == job.user or user in self.admins

    async def open_form(self, trigger_id: str, view: Json) -> str | None:
        """Open a form; return None, or a sentence for the person where Slack did not open it."""
        try:
            async with translated(self.timings.view_timeout):
                await self.client.views_open(trigger_id=trigger_id, view=view)
        except Refused as error:
            match FATES.get(error.code):
                case Fate.BEGIN_ANEW:
                    return (
                        "Slack took too long to reach me, and the form could not open: once more?"
                    )
                case Fate.PAUSE | Fate.ELSEWHERE:
                    return f"Slack lets me open no form ({error.code}). {_TELL}"
            raise
        except OutsideError:
            return "Slack could not open the form just now. Please try again."
        return None

    def whisper(self, response_url: str, message: Message | str) -> None:
        """Tell a person something that nobody else sees, where they typed or pressed.

        It goes out in the background: Slack takes it at ``response_url`` for half an hour.
        """
        self.background.spawn(self._whisper(response_url, message))

    async def _whisper(self, response_url: str, message: Message | str) -> None:
        if isinstance(message, str):
            message = Message(message, ())
        webhook = AsyncWebhookClient(response_url, session=self.session, retry_handlers=[])
        try:
            async with translated(self.timings.call_timeout):
                await webhook.send(
                    text=message.text,
                    blocks=message.blocks or None,
                    response_type="ephemeral",
                    replace_original=False,
                    unfurl_links=False,
                    unfurl_media=False,
                )
        except OutsideError:
            # Nothing is lost with it: it said what can be asked for again.
            return


_TELL: Final = "Nothing was started. Please tell whoever runs this bot."


@dataclass(frozen=True, slots=True)
class Feature:
    """A kind of job with all that people see of it: what the app is made of."""

    kind: Kind
    face: Face
    register: Callable[[Routes, Desk], None]
