"""Looks at everything that the bot depends on, and says what to do about what is wrong."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp
from slack_sdk.web.async_client import AsyncWebClient

from bot import video_service
from bot.clock import SystemClock
from bot.datafile import InUseError, StoreError, look
from bot.errors import OutsideError, Refused
from bot.settings import Settings, SettingsError
from bot.slack.errors import translated
from bot.timings import Timings
from bot.video_service import VideoService

_SCOPES: Final = {"commands", "chat:write"}
_HISTORY: Final = {"channels:history", "groups:history", "im:history", "mpim:history"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    name: str
    well: bool
    told: str

    def __str__(self) -> str:
        return f"{'ok   ' if self.well else 'WRONG'}  {self.name:<14} {self.told}"


async def examine(environ: Mapping[str, str]) -> AsyncIterator[Finding]:
    """Yield what is found, one thing after the other; nothing is changed anywhere."""
    try:
        settings = Settings.read(environ)
    except SettingsError as error:
        for line in str(error).splitlines()[1:]:
            yield Finding("settings", well=False, told=line.strip())
        return
    yield Finding("settings", well=True, told="complete")
    yield await asyncio.to_thread(_database, settings.database)
    timings = Timings()
    async for finding in _slack(settings, timings):
        yield finding
    yield await _service(settings, timings)
    told = f"the service is asked to call {settings.public_url}/callbacks/…"
    if settings.public_url is None:
        told = "PUBLIC_URL is not set: no callbacks, the service is asked from time to time instead"
    yield Finding("callbacks", well=True, told=told)


def _database(path: Path) -> Finding:
    def finding(told: str, *, well: bool) -> Finding:
        return Finding("database", well=well, told=f"{path} {told}")

    folder = path.absolute().parent
    if not path.exists():
        if folder.is_dir() and os.access(folder, os.W_OK):
            return finding("is not there yet: the bot makes it when it starts", well=True)
        return finding("cannot be made: its folder is missing or not writable", well=False)
    if not os.access(path, os.W_OK) or not os.access(folder, os.W_OK):
        return finding("cannot be written: give its owner and folder to the bot's user", well=False)
    try:
        look(path)
    except InUseError:
        return finding("is in use: a bot is running on it", well=True)
    except StoreError as error:
        return Finding("database", well=False, told=str(error))
    return finding("can be read and written", well=True)


async def _slack(settings: Settings, timings: Timings) -> AsyncIterator[Finding]:
    async with aiohttp.ClientSession() as session:
        client = AsyncWebClient(
            token=settings.slack_bot_token.get_secret_value(),
            base_url=settings.slack_api_url,
            session=session,
            retry_handlers=[],
        )
        try:
            async with translated(timings.call_timeout):
                answer = await client.auth_test()
        except Refused as error:
            told = (
                f"Slack turns SLACK_BOT_TOKEN away ({error.code}): install the app again and copy "
                "the Bot User OAuth Token"
            )
            yield Finding("Slack", well=False, told=told)
            return
        except OutsideError as error:
            told = f"{error.reason} Is {settings.slack_api_url} reachable from here?"
            yield Finding("Slack", well=False, told=told)
            return
    yield Finding("Slack", well=True, told=f"{answer.get('user')} in {answer.get('team')}")
    headers = {name.lower(): value for name, value in answer.headers.items()}
    if (granted := headers.get("x-oauth-scopes")) is None:
        return
    scopes = set(granted.replace(" ", "").split(","))
    if missing := _SCOPES - scopes:
        told = f"missing {', '.join(sorted(missing))}: install the app again with manifest.yml"
        yield Finding("Slack scopes", well=False, told=told)
    elif missing := _HISTORY - scopes:
        told = f"without {', '.join(sorted(missing))}: a lost answer may double a message there"
        yield Finding("Slack scopes", well=True, told=told)
    else:
        yield Finding("Slack scopes", well=True, told="all that the bot can use")


async def _service(settings: Settings, timings: Timings) -> Finding:
    def finding(told: str, *, well: bool) -> Finding:
        return Finding("video service", well=well, told=told)

    async with video_service.connect() as clients:
        service = VideoService(
            settings.video_api_url,
            settings.video_api_key.get_secret_value(),
            clients=clients,
            clock=SystemClock(),
            timings=timings,
        )
        try:
            await service.check()
        except Refused:
            return finding("it turns VIDEO_API_KEY away: copy the key again", well=False)
        except OutsideError as error:
            told = f"{error.reason} Is VIDEO_API_URL right, and reachable from here?"
            return finding(told, well=False)
    return finding("it answers and takes the key", well=True)
