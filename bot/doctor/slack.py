"""Checks of Slack: the token and its workspace, the scopes, the clock, and how requests come."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

from slack_sdk.web.async_client import AsyncWebClient

from bot.clock import Clock
from bot.doctor.finding import Finding, error, off, ok, warning
from bot.doctor.network import explain
from bot.errors import OutsideError, Refused
from bot.model import Installation
from bot.settings import Settings
from bot.slack.blocks import Json
from bot.slack.client import open_session, web_client
from bot.slack.errors import translated
from bot.slack.find_posted import CANNOT_LOOK
from bot.slack.installation import fetch_installation
from bot.slack.scopes import FILE_SCOPES, OPTIONAL_SCOPES, REQUIRED_SCOPES, granted_scopes
from bot.slack.script_file import MAX_BOX
from bot.store.inspection import stored_installation
from bot.timings import Timings

# Requests that are signed more than five minutes ago, or ahead, are refused (bot/web.py).
_SKEWED: Final = timedelta(seconds=60)
_REFUSED: Final = timedelta(minutes=4)
_NTP: Final = "Have the machine set its clock by the network (NTP): timedatectl set-ntp true."
_GRANT: Final = "Add it in the Slack app (OAuth & Permissions) and install the app again."


async def check_slack(settings: Settings, timings: Timings, clock: Clock) -> AsyncIterator[Finding]:
    """Yield what Slack says about the token, its scopes and the time."""
    async with open_session(settings.proxy_for(settings.slack_api_url)) as session:
        token = settings.slack_bot_token.get_secret_value()
        client = web_client(token, settings.slack_api_url, session)
        try:
            async with translated(timings.call_timeout):
                answer = await client.auth_test()
        except OutsideError as failure:
            yield _failed(failure, settings, timings)
            return
        now = clock.now()
        yield ok("Slack", f"{answer.get('user')} in {answer.get('team')}")
        headers = {name.lower(): value for name, value in answer.headers.items()}
        if (skew := _skew(headers.get("date", ""), now)) is not None:
            yield _judge_skew(skew, is_http=settings.slack_app_token is None)
        granted = granted_scopes(answer.headers)
        if granted is not None:
            for finding in check_scopes(granted, settings):
                yield finding
        yield check_videos(granted, settings)
        yield await _check_approval(client, settings, timings)
        async for finding in _check_installation(client, settings, timings):
            yield finding


async def check_app_token(settings: Settings, timings: Timings) -> AsyncIterator[Finding]:
    """Yield whether Slack opens a connection for Socket Mode, or why none is wanted."""
    if settings.slack_app_token is None:
        yield off(
            "Socket Mode",
            "SLACK_APP_TOKEN is not set: Slack calls the bot at PUBLIC_URL/slack/events",
            "To need no public address, set it, and update the Slack app with what python -m bot "
            "manifest prints then.",
        )
        return
    async with open_session(settings.proxy_for(settings.slack_api_url)) as session:
        token = settings.slack_app_token.get_secret_value()
        client = web_client(token, settings.slack_api_url, session)
        try:
            # It only returns an address: https://docs.slack.dev/reference/methods/apps.connections.open
            async with translated(timings.call_timeout):
                await client.apps_connections_open(app_token=token)
        except Refused as failure:
            yield error(
                "Socket Mode",
                f"Slack rejects SLACK_APP_TOKEN ({failure.code})",
                "Generate an app-level token with the scope connections:write (Basic Information, "
                "App-Level Tokens), and see that Socket Mode is on in the Slack app.",
            )
        except OutsideError as failure:
            cause = explain(failure, settings.slack_api_url, timings.call_timeout, "SLACK_API_URL")
            yield error("Socket Mode", cause.message, cause.remedy)
        else:
            yield ok("Socket Mode", "Slack accepts SLACK_APP_TOKEN and opens connections")


def check_scopes(granted: frozenset[str], settings: Settings) -> Iterator[Finding]:
    """Yield a finding for each scope of the manifest that the token does not have."""
    missing = [each for each in (*REQUIRED_SCOPES, *OPTIONAL_SCOPES) if each not in granted]
    for scope in missing:
        name = "Slack scope"
        if scope in REQUIRED_SCOPES:
            yield error(name, f"{scope} is missing: {REQUIRED_SCOPES[scope]}", _GRANT)
            continue
        message = f"{scope} is not granted: {OPTIONAL_SCOPES[scope].without_it}"
        if remedy := _contradiction(scope, settings):
            yield warning(name, message, remedy)
        else:
            yield off(name, message, _GRANT)
    if not missing:
        yield ok("Slack scopes", "all that the bot can use")


def check_videos(granted: frozenset[str] | None, settings: Settings) -> Finding:
    """Return whether finished videos are shown in Slack; ``granted`` is None if unknown."""
    name, hosts = "videos in Slack", ", ".join(sorted(settings.media_hosts))
    missing = sorted(FILE_SCOPES - granted) if granted is not None else []
    if not hosts:
        return off(
            name,
            "finished videos are links, because MEDIA_HOSTS is not set",
            "To have the video itself in the thread, set MEDIA_HOSTS to the hosts of the video "
            "service's download links, such as cdn.example.com.",
        )
    if missing:
        return warning(
            name,
            f"finished videos are links, because {' and '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not granted",
            f"{_GRANT} Or remove MEDIA_HOSTS.",
        )
    return ok(name, f"posted in the thread where the bot is a member, if they are on {hosts}")


async def _check_approval(client: AsyncWebClient, settings: Settings, timings: Timings) -> Finding:
    """Return whether requests need approval, and whether the bot can ask for it."""
    name, channel = "approval", settings.approval_channel
    if not settings.approvers and (settings.approval_above or channel):
        return warning(
            name,
            "APPROVERS is not set, so nothing needs approval, whatever the other settings say",
            "Set APPROVERS to the member IDs of who approves, or remove APPROVAL_ABOVE and "
            "APPROVAL_CHANNEL.",
        )
    if not settings.approvers:
        return off(
            name,
            "nothing needs approval before it is created",
            "To have requests approved first, set APPROVERS to the member IDs of who approves.",
        )
    if len(settings.approvers | settings.admin_users) == 1:
        return warning(
            name,
            "only one person may approve, so nobody can approve what that person asks for",
            "Add another one to APPROVERS.",
        )
    asked = f"{len(settings.approvers)} may approve videos above {settings.approval_above:,} "
    asked += "characters, and all trainings; "
    if channel is None:
        return ok(name, f"{asked}each is asked in a direct message")
    try:
        async with translated(timings.call_timeout):
            answer = await client.conversations_info(channel=channel)
    except Refused as failure:
        if failure.code in CANNOT_LOOK:
            return ok(name, f"{asked}Slack doesn't let me look at {channel}, where they are asked")
        return _no_channel(name, f"Slack doesn't show me APPROVAL_CHANNEL ({failure.code})")
    except OutsideError as failure:
        return _failed(failure, settings, timings)
    found: Json = answer.get("channel", {})
    if found.get("is_archived"):
        return _no_channel(name, "APPROVAL_CHANNEL is archived")
    # Slack lets an app post to public channels that it is not in: chat:write.public.
    if found.get("is_private") and not found.get("is_member"):
        return _no_channel(name, "the bot is not in APPROVAL_CHANNEL")
    if found.get("is_ext_shared") and not settings.allow_shared_channels:
        return _no_channel(name, "another organization reads APPROVAL_CHANNEL")
    return ok(name, f"{asked}they are asked in #{found.get('name', channel)}")


def _no_channel(name: str, message: str) -> Finding:
    return error(
        name,
        f"{message}: each approver is asked in a direct message instead",
        "Invite the bot there (/invite), or set APPROVAL_CHANNEL to the ID of another channel.",
    )


def _contradiction(scope: str, settings: Settings) -> str:
    """Return what to do if the settings want what a missing scope would allow; "" if not."""
    match scope:
        case "users:read" if not settings.allowed_users:
            return f"{_GRANT} Or list in ALLOWED_USERS who may ask."
        case "channels:read" | "groups:read" if not settings.allow_shared_channels:
            return f"{_GRANT} Or accept it with ALLOW_SHARED_CHANNELS=yes."
        case "files:read" if settings.max_script > MAX_BOX:
            return f"{_GRANT} Or set MAX_SCRIPT to {MAX_BOX}."
        case "channels:join" if settings.join_public_channels:
            return f"{_GRANT} Or remove JOIN_PUBLIC_CHANNELS."
    return ""


async def _check_installation(
    client: AsyncWebClient, settings: Settings, timings: Timings
) -> AsyncIterator[Finding]:
    """Yield what is wrong if the database belongs to another workspace or app than the token."""
    try:
        found = await fetch_installation(client, timings)
    except OutsideError as failure:
        yield _failed(failure, settings, timings)
        return
    stored = await asyncio.to_thread(stored_installation, settings.database_address)
    if stored is not None and (finding := _compare(found, stored)):
        yield finding


def _compare(found: Installation, stored: Installation) -> Finding | None:
    if stored.team_id != found.team_id:
        return error(
            "Slack workspace",
            "SLACK_BOT_TOKEN belongs to another workspace than the database, so nobody is served",
            "Use that workspace's token, or another database.",
        )
    if stored.app_id and found.app_id not in {None, stored.app_id}:
        return error(
            "Slack app",
            "SLACK_BOT_TOKEN belongs to another app than before, which cannot edit the earlier "
            "app's messages",
            "Use the earlier app's token. To change the app for good, begin with an empty "
            "database: set DATABASE_URL to a new file.",
        )
    return None


def _failed(failure: OutsideError, settings: Settings, timings: Timings) -> Finding:
    if isinstance(failure, Refused):
        return error(
            "Slack",
            f"rejects SLACK_BOT_TOKEN ({failure.code})",
            "Install the app again and copy the Bot User OAuth Token (OAuth & Permissions).",
        )
    cause = explain(failure, settings.slack_api_url, timings.call_timeout, "SLACK_API_URL")
    return error("Slack", cause.message, cause.remedy)


def _skew(date: str, now: datetime) -> timedelta | None:
    """Return how far this machine's clock is ahead of Slack's; None if Slack did not say."""
    try:
        return now - parsedate_to_datetime(date)
    except (ValueError, TypeError, OverflowError):
        return None


def _judge_skew(skew: timedelta, *, is_http: bool) -> Finding:
    seconds = round(abs(skew).total_seconds())
    way = "ahead of" if skew > timedelta(0) else "behind"
    if abs(skew) < _SKEWED:
        return ok("clock", f"within {max(seconds, 1)} s of Slack's")
    message = f"this machine's clock is {seconds} s {way} Slack's"
    if is_http and abs(skew) >= _REFUSED:
        return error("clock", f"{message}: from 5 minutes on, all requests are refused", _NTP)
    return warning("clock", message, _NTP)
