"""Checks of everything that the bot depends on, each with a remedy if it fails."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Final
from unicodedata import category

from bot import video_service
from bot.causes import describe
from bot.clock import SystemClock
from bot.errors import OutsideError, Refused
from bot.masking import Mask
from bot.model import Installation
from bot.settings import Settings, SettingsError
from bot.slack.client import open_session, web_client
from bot.slack.errors import translated
from bot.slack.installation import fetch_installation
from bot.store import DatabaseError, DatabaseInUse
from bot.store.inspection import unreadable_rows
from bot.store.sqlite_file import beside, check_file, is_in_use, stored_installation
from bot.timings import Timings
from bot.video_service import VideoService

REQUIRED_SCOPES: Final = frozenset({"commands", "chat:write", "chat:write.public"})
"""The scopes in ``manifest.yml`` that nobody may decline."""
_FINDING_POSTS: Final = frozenset(
    {"channels:history", "groups:history", "im:history", "mpim:history", "im:write"}
)
_TELLING_GUESTS: Final = frozenset({"users:read"})
_TELLING_SHARED_CHANNELS: Final = frozenset({"channels:read", "groups:read"})
_READING_FILES: Final = frozenset({"files:read"})
_JOINING: Final = frozenset({"channels:join"})
_HEARING_MENTIONS: Final = frozenset({"app_mentions:read"})
# What happens without them.
_WITHOUT: Final = {
    _FINDING_POSTS: "after a lost answer of Slack, a message may be posted twice there",
    _JOINING: "JOIN_PUBLIC_CHANNELS has no effect",
    _TELLING_GUESTS: "guests can't be told from members, and can ask unless ALLOWED_USERS is set",
    _READING_FILES: "scripts have at most 3,000 characters, whatever MAX_SCRIPT says",
    _HEARING_MENTIONS: "a mention of the app isn't answered",
    _TELLING_SHARED_CHANNELS: "channels shared with other organizations are posted to",
}
OPTIONAL_SCOPES: Final = frozenset[str]().union(*_WITHOUT)
"""The others."""
# What a terminal obeys, such as "\x1b[31m" (ECMA-48, 5.4).
_TERMINAL: Final = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]")
_MAX_MESSAGE: Final = 600  # characters

_MAX_LISTED: Final = 10


# A person waits for the answers.
_CALL_TIMEOUT: Final = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: one line of the report."""

    name: str
    ok: bool
    message: str

    def __str__(self) -> str:
        return f"{'ok   ' if self.ok else 'ERROR'}  {self.name:<14} {self.message}"


async def examine(environ: Mapping[str, str]) -> AsyncIterator[Finding]:
    """Yield the findings one by one, without changing anything."""
    try:
        settings = Settings.read(environ)
    except SettingsError as error:
        for line in str(error).splitlines()[1:]:
            yield Finding("settings", ok=False, message=line.strip())
        return
    mask = Mask(settings.secrets)
    async for finding in _check_all(settings):
        message = mask(_printable(finding.message))
        yield replace(finding, message=message[:_MAX_MESSAGE])


def _printable(text: str) -> str:
    """Return a text as one line without control characters."""
    visible = (
        "" if category(each) == "Cf" else each if each.isprintable() else " "
        for each in _TERMINAL.sub("", text)
    )
    return " ".join("".join(visible).split())


async def _check_all(settings: Settings) -> AsyncIterator[Finding]:
    yield Finding("settings", ok=True, message="complete")
    yield await asyncio.to_thread(_check_database, settings.database)
    timings = Timings(call_timeout=_CALL_TIMEOUT)
    async for finding in _check_slack(settings, timings):
        yield finding
    yield await _check_service(settings, timings)
    yield Finding("callbacks", ok=True, message=_callbacks(settings.public_url))


def _check_database(path: Path) -> Finding:
    def finding(message: str, *, ok: bool) -> Finding:
        return Finding("database", ok=ok, message=f"{path} {message}")

    folder = path.absolute().parent
    # A log without its database has what was accepted last: check_file says what to do.
    if not path.exists() and not beside(path, "-wal").exists():
        if folder.is_dir() and os.access(folder, os.W_OK):
            return finding("does not exist yet: the bot creates it when it starts", ok=True)
        return finding("cannot be created: its folder is missing or not writable", ok=False)
    if path.exists() and not (os.access(path, os.W_OK) and os.access(folder, os.W_OK)):
        return finding(
            "cannot be written: make the bot's user the owner of the file and its folder", ok=False
        )
    try:
        check_file(path, every_page=True)
        unreadable = unreadable_rows(path)
        in_use = is_in_use(path)
    except DatabaseInUse:
        unreadable, in_use = [], True
    except DatabaseError as error:
        return Finding("database", ok=False, message=str(error))
    if unreadable:
        rows = ", ".join(f"row {each.row} of {each.table}" for each in unreadable[:_MAX_LISTED])
        more = len(unreadable) - _MAX_LISTED
        return finding(
            f"has rows that the bot cannot read, and leaves as they are: {rows}"
            f"{f', and {more} more' if more > 0 else ''}. Repair them or restore a backup, and "
            "start the bot again: it tries them once more",
            ok=False,
        )
    if in_use:
        return finding("is in use: a bot is running on it", ok=True)
    return finding("can be read and written", ok=True)


async def _check_slack(settings: Settings, timings: Timings) -> AsyncIterator[Finding]:
    async with open_session(settings.proxy_for(settings.slack_api_url)) as session:
        token = settings.slack_bot_token.get_secret_value()
        client = web_client(token, settings.slack_api_url, session)
        try:
            async with translated(timings.call_timeout):
                answer = await client.auth_test()
            found = await fetch_installation(client, timings)
        except Refused as error:
            message = (
                f"Slack rejects SLACK_BOT_TOKEN ({error.code}): install the app again and copy "
                "the Bot User OAuth Token"
            )
            yield Finding("Slack", ok=False, message=message)
            return
        except OutsideError as error:
            message = f"{_cause(error, timings)}. Is {settings.slack_api_url} reachable from here?"
            yield Finding("Slack", ok=False, message=message)
            return
    yield Finding("Slack", ok=True, message=f"{answer.get('user')} in {answer.get('team')}")
    if finding := _compare(found, stored_installation(settings.database)):
        yield finding
    headers = {name.lower(): value for name, value in answer.headers.items()}
    if (granted := headers.get("x-oauth-scopes")) is None:
        return
    scopes = set(granted.replace(" ", "").split(","))
    if missing := REQUIRED_SCOPES - scopes:
        message = f"missing {', '.join(sorted(missing))}: install the app again with manifest.yml"
        yield Finding("Slack scopes", ok=False, message=message)
        return
    for wanted, consequence in _WITHOUT.items():
        if missing := wanted - scopes:
            message = f"without {', '.join(sorted(missing))}: {consequence}"
            yield Finding("Slack scopes", ok=True, message=message)
    if scopes >= OPTIONAL_SCOPES:
        yield Finding("Slack scopes", ok=True, message="all that the bot can use")


def _compare(found: Installation, stored: Installation | None) -> Finding | None:
    """Return what is wrong if the database belongs to another workspace or app than the token."""
    if stored is None:
        return None
    if stored.team_id != found.team_id:
        message = (
            "SLACK_BOT_TOKEN belongs to another workspace than the database, so nobody is served: "
            "use that workspace's token, or another database"
        )
        return Finding("Slack", ok=False, message=message)
    if stored.app_id and found.app_id not in {None, stored.app_id}:
        message = (
            "SLACK_BOT_TOKEN belongs to another app than before, which can't edit the earlier "
            "app's messages"
        )
        return Finding("Slack", ok=False, message=message)
    return None


async def _check_service(settings: Settings, timings: Timings) -> Finding:
    def finding(message: str, *, ok: bool) -> Finding:
        return Finding("video service", ok=ok, message=message)

    async with video_service.connect(settings.proxy_for(settings.video_api_url)) as clients:
        service = VideoService(
            settings.video_api_url,
            settings.video_api_key.get_secret_value(),
            mask=Mask(settings.secrets),
            clients=clients,
            clock=SystemClock(),
            timings=timings,
        )
        try:
            await service.check()
        except Refused:
            return finding("it rejects VIDEO_API_KEY: copy the key again", ok=False)
        except OutsideError as error:
            message = f"{_cause(error, timings)}. Is VIDEO_API_URL right, and reachable from here?"
            return finding(message, ok=False)
    return finding("it answers and accepts the key", ok=True)


def _cause(error: OutsideError, timings: Timings) -> str:
    return describe(error.cause, timings.call_timeout) or error.reason.rstrip(".")


def _callbacks(public_url: str | None) -> str:
    if public_url is None:
        return "PUBLIC_URL is not set: the bot polls the video service and gets no callbacks"
    return f"the video service will call {public_url}/callbacks/…"
