"""The names of people and channels, for plain text, which shows no mention."""

import asyncio
from collections.abc import Iterable
from datetime import timedelta

from pydantic import AliasPath, BaseModel, ConfigDict, Field
from slack_sdk.web.async_client import AsyncWebClient

from bot.clock import Clock
from bot.errors import OutsideError
from bot.slack.errors import translated
from bot.slack.lookups import Background, Lookups
from bot.timings import FormTimings


class _Named(BaseModel):
    """The answer of users.info or conversations.info.

    https://docs.slack.dev/reference/objects/user-object
    """

    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)

    channel: str = Field(default="", validation_alias=AliasPath("channel", "name"))
    real_name: str = Field(default="", validation_alias=AliasPath("user", "real_name"))
    display_name: str = Field(
        default="", validation_alias=AliasPath("user", "profile", "display_name")
    )


async def fetch_name(client: AsyncWebClient, mentioned: str, time_limit: timedelta) -> str:
    """Return the name of a person or channel; "" if Slack does not tell it in time."""
    try:
        async with translated(time_limit):
            if mentioned.startswith(("C", "G")):
                channel = await client.conversations_info(channel=mentioned)
                return _Named.model_validate(channel.data).channel
            person = _Named.model_validate((await client.users_info(user=mentioned)).data)
            return person.display_name or person.real_name
    except OutsideError:
        return ""


class Names:
    """The names that Slack has told."""

    def __init__(
        self, client: AsyncWebClient, background: Background, clock: Clock, timings: FormTimings
    ) -> None:
        async def ask(mentioned: str) -> str | None:
            return await fetch_name(client, mentioned, timings.call_timeout) or None

        self._names = Lookups(ask, background, clock, timings.person_max_age)

    def prepare(self, ids: Iterable[str]) -> None:
        """Have Slack asked about ids whose names are not known yet."""
        for each in ids:
            self._names.prepare(each)

    async def get(self, ids: Iterable[str], deadline: float) -> list[str]:
        """Return the names of those that are known by ``deadline`` of the event loop's clock."""
        names = await asyncio.gather(*(self._names.get(each, deadline) for each in ids))
        return [name for name in names if name]
