"""Checks of Slack, the video service and a running bot, and why one cannot be reached."""

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import httpx
from slack_sdk.web.async_client import AsyncWebClient

from bot import service_clients, service_errors
from bot.causes import describe
from bot.clock import Clock
from bot.doctor.finding import Finding, error, ok, split, warning
from bot.errors import OutsideError, Refused
from bot.masking import Mask
from bot.model import Installation
from bot.setting_values import MAX_BOX
from bot.settings import ConnectionSettings, Settings
from bot.slack.blocks import Json
from bot.slack.client import open_session, web_client
from bot.slack.errors import translated
from bot.slack.find_posted import CANNOT_LOOK
from bot.slack.installation import fetch_installation
from bot.slack.scopes import FILE_SCOPES, OPTIONAL_SCOPES, REQUIRED_SCOPES, granted_scopes
from bot.store.inspection import (
    find_owner,
    stored_installation,
    stored_limit_changes,
)
from bot.store.usage import written
from bot.timings import Timings

_PROXY_LOGIN: Final = 407
# Requests that are signed more than five minutes ago, or ahead, are refused (bot/web.py).
_SKEWED: Final = timedelta(seconds=60)
_REFUSED: Final = timedelta(minutes=4)
_NTP: Final = "Have the machine set its clock by the network (NTP): timedatectl set-ntp true."
_GRANT: Final = "Add it in the Slack app (OAuth & Permissions) and install the app again."
_WITH_GROUPS: Final = ("VIDEO_USERS", "TRAINING_USERS")
_SERVICE: Final = "video service"
# Nothing has this id: to ask for it costs nothing and changes nothing.
_UNKNOWN: Final = "/v2/videos/is-anyone-there"
_SILENT: Final = "The video service answered "  # our words where it gave no reason
_DRIFT: Final = re.compile(
    r'^replica_bot_drift_total\{kind="(\w+)",what="(?!new_field)(\w+)"\}', re.MULTILINE
)
_ALL_ADDRESSES: Final = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - to call, not to listen


# ── Slack ─────────────────────────────────────────────────────────────────────────────────────


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
            for finding in _check_scopes(granted, settings):
                yield finding
        async for finding in _check_approval(client, settings, timings):
            yield finding
        async for finding in _check_installation(client, settings, timings):
            yield finding


async def check_app_token(settings: Settings, timings: Timings) -> AsyncIterator[Finding]:
    """Yield whether Slack opens a connection for Socket Mode, if that is used."""
    if settings.slack_app_token is not None:
        yield await try_app_token(settings.slack_app_token.get_secret_value(), settings, timings)


async def try_bot_token(token: str, connection: ConnectionSettings, timings: Timings) -> Finding:
    """Return whose token it is."""
    async with open_session(connection.proxy_for(connection.slack_api_url)) as session:
        client = web_client(token, connection.slack_api_url, session)
        try:
            async with translated(timings.call_timeout):
                answer = await client.auth_test()
        except OutsideError as failure:
            return _failed(failure, connection, timings)
    return ok("Slack", f"{answer.get('user')} in {answer.get('team')}")


async def try_app_token(token: str, connection: ConnectionSettings, timings: Timings) -> Finding:
    """Return whether Slack opens a connection for Socket Mode with a token."""
    async with open_session(connection.proxy_for(connection.slack_api_url)) as session:
        client = web_client(token, connection.slack_api_url, session)
        try:
            # It only returns an address: https://docs.slack.dev/reference/methods/apps.connections.open
            async with translated(timings.call_timeout):
                await client.apps_connections_open(app_token=token)
        except Refused as failure:
            return error(
                "Socket Mode",
                f"Slack rejects SLACK_APP_TOKEN ({failure.code})",
                "Generate an app-level token with the scope connections:write (Basic Information, "
                "App-Level Tokens), and see that Socket Mode is on in the Slack app.",
            )
        except OutsideError as failure:
            return _unreachable("Socket Mode", failure, connection, timings)
    return ok("Socket Mode", "Slack accepts SLACK_APP_TOKEN and opens connections")


def _check_scopes(granted: frozenset[str], settings: Settings) -> Iterator[Finding]:
    """Yield which scopes of the manifest the token does not have."""
    missing = [each for each in (*REQUIRED_SCOPES, *OPTIONAL_SCOPES) if each not in granted]
    declined = []
    for scope in missing:
        if scope in REQUIRED_SCOPES:
            yield error("Slack scope", f"{scope} is missing: {REQUIRED_SCOPES[scope]}", _GRANT)
        elif remedy := _contradiction(scope, settings):
            without = OPTIONAL_SCOPES[scope]
            yield warning("Slack scope", f"{scope} is not granted: {without}", remedy)
        else:
            declined.append(scope)
    if declined:
        yield ok("Slack scopes", f"optional ones that are not granted: {', '.join(declined)}")
    elif not missing:
        yield ok("Slack scopes", "all that the bot can use")
    if settings.media_hosts:
        yield _check_videos(granted)


def _check_videos(granted: frozenset[str]) -> Finding:
    if missing := sorted(FILE_SCOPES - granted):
        return warning(
            "videos in Slack",
            f"finished videos are links, because {' and '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not granted",
            f"{_GRANT} Or remove MEDIA_HOSTS.",
        )
    return ok("videos in Slack", "posted in the thread where the bot is a member")


async def _check_approval(
    client: AsyncWebClient, settings: Settings, timings: Timings
) -> AsyncIterator[Finding]:
    """Yield whether approval works as it is set; nothing where none is wanted."""
    name, channel = "approval", settings.approval_channel
    if not settings.approvers:
        if settings.approval_above or channel:
            yield warning(
                name,
                "APPROVERS is not set, so nothing needs approval, whatever the other settings say",
                "Set APPROVERS to the member IDs of who approves, or remove APPROVAL_ABOVE and "
                "APPROVAL_CHANNEL.",
            )
    elif len(settings.approvers | settings.admin_users) == 1:
        yield warning(
            name,
            "only one person may approve, so nobody can approve what that person asks for",
            "Add another one to APPROVERS.",
        )
    elif channel is None:
        yield ok(name, "each approver is asked in a direct message")
    else:
        yield await _check_approval_channel(client, channel, settings, timings)


async def _check_approval_channel(
    client: AsyncWebClient, channel: str, settings: Settings, timings: Timings
) -> Finding:
    name = "approval"
    try:
        async with translated(timings.call_timeout):
            answer = await client.conversations_info(channel=channel)
    except Refused as failure:
        if failure.code in CANNOT_LOOK:
            return ok(name, f"Slack doesn't let me look at {channel}, where approvers are asked")
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
    return ok(name, f"approvers are asked in #{found.get('name', channel)}")


def _no_channel(name: str, message: str) -> Finding:
    return error(
        name,
        f"{message}: each approver is asked in a direct message instead",
        "Invite the bot there (/invite), or set APPROVAL_CHANNEL to the ID of another channel.",
    )


def _contradiction(scope: str, settings: Settings) -> str:
    """Return what to do if the settings want what a missing scope would allow; "" if not."""
    match scope:
        case "users:read" if not (settings.video_users and settings.training_users):
            return f"{_GRANT} Or list in VIDEO_USERS and TRAINING_USERS who may ask."
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


def _failed(failure: OutsideError, connection: ConnectionSettings, timings: Timings) -> Finding:
    if isinstance(failure, Refused):
        return error(
            "Slack",
            f"rejects SLACK_BOT_TOKEN ({failure.code})",
            "Install the app again and copy the Bot User OAuth Token (OAuth & Permissions).",
        )
    return _unreachable("Slack", failure, connection, timings)


def _unreachable(
    name: str, failure: OutsideError, connection: ConnectionSettings, timings: Timings
) -> Finding:
    cause = explain(failure, connection.slack_api_url, timings.call_timeout, "SLACK_API_URL")
    return error(name, cause.message, cause.remedy)


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


async def check_limits(settings: Settings, timings: Timings) -> AsyncIterator[Finding]:
    """Yield what admins have changed of the limits, and which user groups let nobody in."""
    changes = await asyncio.to_thread(stored_limit_changes, settings.database_address)
    changed = [
        f"{each.name} is {each.value or 'empty'} ({each.changed_by} on {each.changed_at:%Y-%m-%d})"
        for each in changes.values()
    ]
    but = f", but for what admins changed in Home: {', '.join(changed)}" if changed else ""
    yield ok("limits", f"as in the settings{but}")
    values = {
        name: changes[name].value if name in changes else written(getattr(settings, name.lower()))
        for name in _WITH_GROUPS
    }
    groups = {
        each: name for name in values for each in values[name].split(",") if each.startswith("S")
    }
    async for finding in _check_groups(groups, settings, timings):
        yield finding


async def _check_groups(
    groups: Mapping[str, str], settings: Settings, timings: Timings
) -> AsyncIterator[Finding]:
    """Yield the user groups that let nobody in; ``groups`` has the settings that name them."""
    if not groups:
        return
    async with open_session(settings.proxy_for(settings.slack_api_url)) as session:
        token = settings.slack_bot_token.get_secret_value()
        client = web_client(token, settings.slack_api_url, session)
        for group, name in groups.items():
            try:
                async with translated(timings.call_timeout):
                    await client.usergroups_users_list(usergroup=group)
            except Refused as failure:
                yield warning(
                    "user group",
                    f"{group} in {name} lets nobody in: Slack refuses to say who is in it "
                    f"({failure.code})",
                    _remedy_of_group(failure.code),
                )
            except OutsideError:
                return  # the check of Slack says why


def _remedy_of_group(code: str) -> str:
    if code == "missing_scope":
        return (
            "Add the scope usergroups:read in the Slack app (OAuth & Permissions) and install the "
            "app again, or name people instead."
        )
    return "Name a user group that exists and is not disabled, or people."


# ── The video service ─────────────────────────────────────────────────────────────────────────


async def check_service(
    settings: Settings, timings: Timings, clock: Clock
) -> AsyncIterator[Finding]:
    """Yield what a harmless read from the service shows."""
    url, key = settings.video_api_url, settings.video_api_key.get_secret_value()
    found, _ = await read_unknown(
        url, key, settings.proxy_for(url), timings, clock, mask=Mask(settings.secrets)
    )
    yield found


async def read_unknown(
    url: str, key: str, proxy: str | None, timings: Timings, clock: Clock, *, mask: Mask
) -> tuple[Finding, int | None]:
    """Return what a harmless read shows, and the status of the answer; None without one."""
    try:
        async with service_clients.connect(proxy) as clients:
            with service_errors.translated():
                async with asyncio.timeout(timings.call_timeout.total_seconds()):
                    async with clients.reading.stream(
                        "GET", url + _UNKNOWN, headers={"x-api-key": key}, timeout=None
                    ) as response:
                        body = await service_clients.content_of(response)
    except OutsideError as failure:
        cause = explain(failure, url, timings.call_timeout, "VIDEO_API_URL")
        return error(_SERVICE, cause.message, cause.remedy), None
    return _judge_service(response, body, mask, clock), response.status_code


def _judge_service(response: httpx.Response, body: bytes, mask: Mask, clock: Clock) -> Finding:
    status = response.status_code
    failure = service_errors.from_answer(response, body, mask=mask, now=clock.now())
    reason = failure.reason.rstrip(".")
    said = f"{status}: {reason}" if not reason.startswith(_SILENT) else str(status)
    if status == HTTPStatus.UNAUTHORIZED:
        return error(
            _SERVICE,
            f"rejects VIDEO_API_KEY ({said})",
            "Copy the key again from your account there, into VIDEO_API_KEY.",
        )
    if status == HTTPStatus.FORBIDDEN:
        return error(
            _SERVICE,
            f"refuses a read with VIDEO_API_KEY ({said})",
            "Check that the key may read and create videos, and that the service allows this "
            "machine's address.",
        )
    if status == HTTPStatus.PAYMENT_REQUIRED:
        return error(
            _SERVICE,
            f"is out of credit ({said})",
            "Top it up there. What people have asked for is made then.",
        )
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return warning(
            _SERVICE,
            "answers, but asks to wait: too many calls (429)",
            "Run doctor again in a minute. If it stays so, ask the service for a higher limit.",
        )
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return error(
            _SERVICE,
            f"does not work: it answered {status}",
            "Try again in some minutes, and look at the service's status page. The bot goes on "
            "by itself once it works.",
        )
    if response.is_redirect:
        return error(
            _SERVICE,
            f"sends callers to another address ({status})",
            "Set VIDEO_API_URL to the address of the API itself: the bot follows no redirects.",
        )
    if not _is_json(response, body):
        return error(
            _SERVICE,
            f"{_kind(response)} answers in place of the API ({status})",
            "Set VIDEO_API_URL to the address of the service's API, without /v2.",
        )
    if str(status) not in service_errors.UNKNOWN_ID:
        return warning(
            _SERVICE,
            f"answers {status} for a video that does not exist, where 404 is expected",
            "Check that VIDEO_API_URL is the API that the bot is made for.",
        )
    return ok(_SERVICE, "answers and accepts the key")


def _is_json(response: httpx.Response, body: bytes) -> bool:
    """Return whether an answer is JSON, or so empty or compressed that it may be an API's."""
    if not body.strip() or response.headers.get("content-encoding"):
        return True
    with suppress(ValueError, RecursionError):
        json.loads(body)
        return True
    return False


def _kind(response: httpx.Response) -> str:
    content_type = response.headers.get("content-type", "").partition(";")[0].strip()
    return "a web page" if content_type == "text/html" else content_type or "something else"


# ── A bot that runs ───────────────────────────────────────────────────────────────────────────


async def check_readiness(settings: Settings, timings: Timings) -> AsyncIterator[Finding]:
    """Yield what the bot that has the database says is wrong; nothing if none answers here."""
    if await asyncio.to_thread(find_owner, settings.database_address) is None:
        return
    address = f"http://{_ALL_ADDRESSES.get(settings.host, settings.host)}:{settings.port}"
    try:
        async with (
            open_session(None) as session,
            asyncio.timeout(timings.call_timeout.total_seconds()),
            session.get(f"{address}/readyz") as ready,
            session.get(f"{address}/metrics") as metrics,
        ):
            report = json.loads(await ready.read())
            drift = _DRIFT.findall(await metrics.text())
    except (aiohttp.ClientError, OSError, ValueError):
        return
    match report:
        case {"ready": bool(is_ready), "checks": dict(checks)}:
            for name, check in checks.items():
                match check:
                    case {"ok": False, "reason": str(reason)}:
                        message, remedy = split(reason)
                        yield (warning if is_ready else error)(
                            "readiness",
                            f"the bot says of {name.replace('_', ' ')}: {message}",
                            remedy or "Read the bot's log.",
                        )
    if drift:
        said = ", ".join(f"{what.replace('_', ' ')} ({kind})" for kind, what in drift)
        yield warning(
            "service answers",
            f"differ from the service's interface: {said}",
            "The bot goes on with the rest; its log names the first field or status of each. If "
            "people miss something, please report it.",
        )


# ── Why something cannot be reached ───────────────────────────────────────────────────────────


class Cause(NamedTuple):
    """Why a call failed, as a clause, and a sentence that says what to do."""

    message: str
    remedy: str


def explain(error: BaseException, url: str, limit: timedelta, setting: str) -> Cause:
    """Return why a call failed.

    Args:
        error: what the call raised.
        url: what was called; only its host is shown.
        limit: how long the call was allowed to take.
        setting: the name of the setting that has the address.
    """
    host = urlsplit(url).hostname or ""
    chain = list(_chain(error))
    for each in chain:
        if isinstance(each, aiohttp.ClientProxyConnectionError):
            return Cause(
                "cannot be reached: the proxy does not answer",
                "Check HTTPS_PROXY, or list the host in NO_PROXY to call it directly.",
            )
        if isinstance(each, aiohttp.ClientHttpProxyError):
            return _of_proxy(each.status, host)
        if isinstance(each, ssl.SSLCertVerificationError):
            return Cause(
                f"cannot be reached: the TLS certificate of {host} is not accepted "
                f"({getattr(each, 'verify_message', '')})",
                "Correct it there. If it is right, check this machine's clock. If a proxy of your "
                "network opens TLS, install its root certificate on this machine.",
            )
        if isinstance(each, aiohttp.ClientConnectorDNSError):
            return Cause(
                f"cannot be reached: the name {host} cannot be resolved (DNS)",
                f"Check the host in {setting}, and this machine's DNS.",
            )
        if isinstance(each, ssl.SSLError):
            return Cause(
                f"cannot be reached: {host} does not speak TLS on that port",
                f"Check the scheme and the port in {setting}.",
            )
        if isinstance(each, ConnectionRefusedError):
            return Cause(
                "cannot be reached: the connection was refused (nothing listens there)",
                f"Check the host and port in {setting}, and that the server there runs.",
            )
        if isinstance(each, TimeoutError):
            return Cause(
                f"cannot be reached: {describe('timeout', limit)}",
                f"Check {setting}, and that no firewall keeps this machine from {host}.",
            )
    if isinstance(error, OutsideError):
        said = describe(error.cause, limit) or error.reason.rstrip(".")
    else:
        said = describe("broken", limit)
    return Cause(
        f"does not work: {said}", f"Try again in some minutes. If it stays so, check {setting}."
    )


def _of_proxy(status: int, host: str) -> Cause:
    if status == _PROXY_LOGIN:
        return Cause(
            "cannot be reached: the proxy wants a user name and password (407)",
            "Put them into HTTPS_PROXY: http://user:password@host:port.",
        )
    return Cause(
        f"cannot be reached: the proxy opens no connection to {host} (it answered {status})",
        f"Have the proxy allow {host}, or list it in NO_PROXY.",
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, aiohttp.ClientConnectorCertificateError):
            yield found.certificate_error  # it is of the same type, but has no code itself
        yield found
        found = found.__cause__
