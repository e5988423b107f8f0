"""Checks of everything that the bot depends on, each with a remedy if it fails.

The checks run at the same time and are reported in a fixed order. Nothing is changed.
"""

import asyncio
import contextlib
import json
import os
import shutil
import sys
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
)
from datetime import timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

import aiohttp
import httpx
from pydantic import AliasPath, Field
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bot.engine.replica_list import read_list
from bot.errors import OutsideError, Refused
from bot.kinds import Unreadable
from bot.kinds.replica import REPLICA
from bot.masking import Mask
from bot.ops.finding import (
    POSTING,
    SETTINGS,
    Finding,
    counted,
    error,
    explain,
    first,
    listed,
    ok,
    sentence,
    shown,
    split,
    warning,
)
from bot.service import client as service_client
from bot.service import errors as service_errors
from bot.service.media import hosts_to_allow
from bot.setting_values import MAX_BOX
from bot.settings import (
    ENV_FILE,
    ConnectionSettings,
    Settings,
    SettingsError,
    environment,
    misspelt,
    read_env_file,
)
from bot.slack.client import open_session, web_client
from bot.slack.errors import translated
from bot.slack.installation import OPTIONAL_SCOPES, REQUIRED_SCOPES, granted_scopes
from bot.slack.payloads import Payload
from bot.slack.views.blocks import Json
from bot.store import DatabaseError
from bot.store.engines import inspect, stored_videos
from bot.store.engines import shown as without_password
from bot.store.sqlite import beside, check_file
from bot.timings import Clock, SystemClock, Timings

_T = TypeVar("_T")
TIMINGS: Final = Timings(call_timeout=timedelta(seconds=8))
"""Those of calls for whose answers a person waits."""
# All calls of one check together, as a share of the time for one.
_CHECK_TIMEOUT: Final = 1.25
_SERVICE: Final = "video service"
# Nothing has this id: to ask for it costs nothing and changes nothing.
_UNKNOWN: Final = "/v2/videos/is-anyone-there"
# Which setting the service refuses, by the status of its answer.
_WRONG: Final[Mapping[int, str]] = {
    HTTPStatus.UNAUTHORIZED: "VIDEO_API_KEY",
    HTTPStatus.FORBIDDEN: "VIDEO_API_KEY",
    HTTPStatus.PAYMENT_REQUIRED: "",
}
_SILENT: Final = "The video service answered "  # our words where it gave no reason
_ALL_ADDRESSES: Final = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - to call, not to listen


async def examine(
    environ: Mapping[str, str],
    *,
    in_file: Mapping[str, str] = MappingProxyType({}),
    post_to: str | None = None,
    timings: Timings = TIMINGS,
) -> AsyncIterator[Finding]:
    """Yield the findings, area by area, without changing anything.

    Args:
        environ: the settings, with those of ``.env`` where the environment has none.
        in_file: what ``.env`` sets.
        post_to: the channel to try in Slack what the bot does there; it is deleted again.
        timings: those of the calls.
    """
    clock = SystemClock()
    settings, found = _read_settings(environ, in_file)
    for finding in found:
        yield finding.cleaned(str, SETTINGS)
    if settings is None:
        yield warning(
            "everything else",
            "was not checked, because it depends on these settings",
            f"Correct them in the environment or in {ENV_FILE.absolute()}, which this helps with: "
            f"{sys.executable} -m bot init",
        ).cleaned(str, "all else")
        return
    mask = Mask(settings.secrets)
    limit = timings.call_timeout * _CHECK_TIMEOUT
    checks: list[tuple[str, AsyncIterator[Finding], timedelta | None]] = [
        ("database", _check_database(settings.database_address), None),
        ("bot", _check_readiness(settings, timings), limit),
        ("Slack", _check_slack(settings, timings, clock), limit),
        ("people", _check_people(settings, timings), limit),
        (_SERVICE, _check_service(settings, timings), limit),
    ]
    if post_to is not None:
        checks.append((POSTING, _try_posting(settings, post_to, timings), None))
    async with asyncio.TaskGroup() as group:  # those that are not waited for end with it
        tasks = [group.create_task(_collected(*check)) for check in checks]
        for (area, *_), task in zip(checks, tasks, strict=True):
            for finding in await task:
                yield finding.cleaned(mask, "bot" if finding.name == "bot" else area)


def examine_deployment(post_to: str | None = None) -> AsyncIterator[Finding]:
    """Return the findings for the settings of this process, and of ``.env`` where it has none.

    Raises:
        OperatorError: the file cannot be read, or is wrong.
    """
    return examine(environment(), in_file=read_env_file(), post_to=post_to)


async def _collected(
    name: str, check: AsyncIterator[Finding], limit: timedelta | None
) -> list[Finding]:
    """Return what a check yields within a time, and a finding if it takes longer or fails."""
    found: list[Finding] = []
    try:
        async with asyncio.timeout(None if limit is None else limit.total_seconds()):
            async for each in check:
                found.append(each)  # noqa: PERF401 - those before an error count
    except TimeoutError:
        found.append(
            error(name, "the check did not end in time", "Run doctor again: something is slow.")
        )
    except Exception as failure:  # noqa: BLE001 - one check must not hide the others
        said = getattr(failure, "strerror", None) or type(failure).__name__
        remedy = "Correct that, and run doctor again. If there is nothing to correct, report it."
        found.append(error(name, f"the check failed: {said}", remedy))
    return found


# ── The settings ──────────────────────────────────────────────────────────────────────────────────


def _read_settings(
    environ: Mapping[str, str], in_file: Mapping[str, str]
) -> tuple[Settings | None, list[Finding]]:
    """Return the settings, None if they are refused, and what is found about them."""
    found = [
        warning(
            name,
            "is no setting of the bot, and is ignored",
            f"Rename it to {meant}, if that is meant. Otherwise leave it."
            if meant
            else f"Remove it from {ENV_FILE}, of which the bot reads its settings only.",
        )
        for name, meant in misspelt(environ, in_file)
    ]
    try:
        settings = Settings.read(environ)
    except SettingsError as refusal:
        for name, said in refusal.mistakes.items():
            message, _, remedy = said.partition(": ")
            fix = sentence(remedy) or "Correct it, or remove it to have the default."
            found.append(error(name, message.rstrip("."), fix))
        return None, found
    values = {name: environ.get(name, "").strip() for name in Settings.table()}
    twice = [
        warning(
            name,
            f"is set twice: the environment's value counts, and not the one in {ENV_FILE}",
            "Remove it from one of them.",
        )
        for name, text in values.items()
        if text and in_file.get(name, "").strip() not in {"", text}
    ]
    return settings, found + (twice or [ok(SETTINGS, "complete, and none is wrong")])


# ── The database ──────────────────────────────────────────────────────────────────────────────────

_MIB: Final = 1024 * 1024
# To erase texts for good, the file is rewritten: that takes as much again.
_LITTLE_SPACE_BYTES: Final = 512 * _MIB
_NO_SPACE_BYTES: Final = 16 * _MIB
_UNITS: Final = (("GB", 10**9), ("MB", 10**6), ("kB", 1000), ("bytes", 1))
_MAX_LISTED: Final = 10
_LOCAL: Final = {None, "localhost", "127.0.0.1", "::1"}


async def _check_database(address: Path | str) -> AsyncIterator[Finding]:
    for each in await asyncio.to_thread(lambda: [*check_database(address)]):
        yield each


def check_database(address: Path | str) -> Iterator[Finding]:
    """Yield what is found about the database, without changing or creating anything.

    Args:
        address: its file, or the URL of a PostgreSQL database.
    """
    try:
        yield from _check_file(address) if isinstance(address, Path) else _check_on_server(address)
    except DatabaseError as failure:
        yield error("database", *split(str(failure)))


def _check_on_server(url: str) -> Iterator[Finding]:
    parts = urlsplit(url)
    if parts.hostname not in _LOCAL and "sslmode=verify-full" not in parts.query:
        yield warning(
            "database connection",
            "can be read or changed on the way to the server, whose certificate is not verified",
            "Add ?sslmode=verify-full&sslrootcert=system to DATABASE_URL, or the file of your "
            "host's certificate authority as sslrootcert.",
        )
    yield from _check_contents(url, without_password(url))


def _check_file(path: Path) -> Iterator[Finding]:
    folder = path.absolute().parent
    # A log without its database has what was accepted last: check_file says what to do.
    is_new = not path.exists() and not beside(path, "-wal").exists()
    if is_new and not folder.is_dir():
        yield error(
            "database",
            f"{path} cannot be created: the folder {folder} is missing",
            "Create it, or set DATABASE_URL to a file in another one.",
        )
    elif not os.access(folder, os.W_OK) or (path.is_file() and not os.access(path, os.W_OK)):
        yield error(
            "database",
            f"{path} or its folder cannot be written",
            "Make the bot's user the owner: "
            f"chown USER {folder}{f' {path}' if path.exists() else ''}",
        )
    elif is_new:
        yield ok("database", f"{path} does not exist yet: the bot creates it when it starts")
        yield _check_space(folder, 0)
    else:
        size = _size(path) + _size(beside(path, "-wal"))
        check_file(path, pages="quick_check")
        yield from _check_contents(path, f"{path.absolute()}, {_bytes(size)}, no damage found")
        yield _check_space(folder, size)


def _check_contents(address: Path | str, about: str) -> Iterator[Finding]:
    """Yield the version of a database, and which of its rows the bot leaves alone."""
    pending, set_aside = inspect(address)
    version = "up to date"
    if pending:
        version = f"{counted(len(pending), 'migration')} to apply, which the next start does"
    yield ok("database", f"{about}, {version}")
    if set_aside:
        more = len(set_aside) - _MAX_LISTED
        yield error(
            "database rows",
            "has rows that the bot could not read, and leaves as they are: "
            f"{', '.join(set_aside[:_MAX_LISTED])}{f', and {more} more' if more > 0 else ''}",
            "Repair them or restore a backup, and start the bot again: it tries them once more.",
        )


def _check_space(folder: Path, size: int) -> Finding:
    free = shutil.disk_usage(folder).free
    said, room = f"{_bytes(free)} free", f"Make room on the disk of {folder}"
    return first(
        (
            free < _NO_SPACE_BYTES,
            error(
                "disk space",
                f"{said}: the disk is full",
                f"{room}: until then, the bot takes no requests.",
            ),
        ),
        (
            free < max(_LITTLE_SPACE_BYTES, 2 * size),
            warning(
                "disk space",
                said,
                f"{room}: to erase old texts for good, the bot rewrites the database, which takes "
                f"{_bytes(size)} more for a moment.",
            ),
        ),
        (True, ok("disk space", said)),
    )


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _bytes(count: int) -> str:
    unit, size = next(((u, s) for u, s in _UNITS if count >= s), _UNITS[-1])
    return f"{count / size:.3g} {unit}"


# ── The video service ─────────────────────────────────────────────────────────────────────────────


async def _check_service(settings: Settings, timings: Timings) -> AsyncIterator[Finding]:
    """Yield what a harmless read from the service shows."""
    url, key = settings.video_api_url, settings.video_api_key.get_secret_value()
    mask = Mask(settings.secrets)
    yield (await read_unknown(url, key, settings, timings, mask=mask))[0]
    finished = await asyncio.to_thread(stored_videos, settings.database_address)
    if hosts := hosts_to_allow(finished, settings.media_hosts):
        yield warning(
            "MEDIA_HOSTS",
            "does not have the hosts of all finished videos: those are not shown in Slack",
            f"If you trust these hosts, set MEDIA_HOSTS={hosts}.",
        )


async def read_unknown(
    url: str,
    key: str,
    connection: ConnectionSettings,
    timings: Timings,
    *,
    mask: Mask,
) -> tuple[Finding, str]:
    """Return what a harmless read shows, and which setting has to be corrected, if any."""
    try:
        async with service_client.connect(connection.proxy_for(url)) as clients:
            with service_errors.translated():
                async with asyncio.timeout(timings.call_timeout.total_seconds()):
                    async with clients.reading.stream(
                        "GET", url + _UNKNOWN, headers={"x-api-key": key}, timeout=None
                    ) as response:
                        body = await service_client.content_of(response)
    except OutsideError as failure:
        cause = explain(failure, url, timings.call_timeout, "VIDEO_API_URL")
        return error(_SERVICE, *cause), "VIDEO_API_URL"
    found = _judge_service(response, body, mask)
    return found, _WRONG.get(response.status_code, "" if found.ok else "VIDEO_API_URL")


async def list_replicas(
    url: str,
    key: str,
    connection: ConnectionSettings,
    timings: Timings,
    clock: Clock,
    *,
    mask: Mask,
) -> list[str] | None:
    """Return the names of the account's replicas; None if the service does not list them."""
    async with service_client.connect(connection.proxy_for(url)) as clients:
        service = service_client.VideoService(
            url, key, mask=mask, clients=clients, clock=clock, timings=timings
        )
        with contextlib.suppress(OutsideError, Unreadable):
            found, _ = await read_list(service, REPLICA)
            return sorted(
                shown(each.facts.get("replica_name", each.remote_id), mask) for each in found
            )
    return None


def _judge_service(response: httpx.Response, body: bytes, mask: Mask) -> Finding:
    status = response.status_code
    reason = service_errors.from_answer(response, body, mask=mask).reason
    said = str(status) if reason.startswith(_SILENT) else f"{status}: {reason.rstrip('.')}"
    kind = response.headers.get("content-type", "").partition(";")[0].strip()
    what = {"text/html": "a web page", "": "something else"}.get(kind, kind)
    return first(
        (
            status == HTTPStatus.UNAUTHORIZED,
            error(
                _SERVICE,
                f"rejects VIDEO_API_KEY ({said})",
                "Copy the key again from your account there.",
            ),
        ),
        (
            status == HTTPStatus.FORBIDDEN,
            error(
                _SERVICE,
                f"refuses a read with VIDEO_API_KEY ({said})",
                "Check that the key may read and create videos, and that the service allows this "
                "machine's address.",
            ),
        ),
        (
            status == HTTPStatus.PAYMENT_REQUIRED,
            error(
                _SERVICE,
                f"is out of credit ({said})",
                "Top it up there. What people have asked for is made then.",
            ),
        ),
        (
            status == HTTPStatus.TOO_MANY_REQUESTS,
            warning(
                _SERVICE,
                "answers, but asks to wait: too many calls (429)",
                "Run doctor again in a minute. If it stays so, ask the service for a higher limit.",
            ),
        ),
        (
            status >= HTTPStatus.INTERNAL_SERVER_ERROR,
            error(
                _SERVICE,
                f"does not work: it answered {status}",
                "Try again in some minutes, and look at the service's status page. The bot goes on "
                "by itself once it works.",
            ),
        ),
        (
            response.is_redirect,
            error(
                _SERVICE,
                f"sends callers to another address ({status})",
                "Set VIDEO_API_URL to the address of the API itself: the bot follows no redirects.",
            ),
        ),
        (
            body.strip()[:1] not in (b"", b"{", b"["),
            error(
                _SERVICE,
                f"{what} answers in place of the API ({status})",
                "Set VIDEO_API_URL to the address of the service's API, without /v2.",
            ),
        ),
        (
            str(status) not in service_errors.UNKNOWN_ID,
            warning(
                _SERVICE,
                f"answers {status} for a video that does not exist, where 404 is expected",
                "Check that VIDEO_API_URL is the API that the bot is made for.",
            ),
        ),
        (True, ok(_SERVICE, "answers and accepts the key")),
    )


# ── A bot that runs ───────────────────────────────────────────────────────────────────────────────


async def _check_readiness(settings: Settings, timings: Timings) -> AsyncIterator[Finding]:
    """Yield what a bot that runs here says is wrong; nothing if none answers."""
    address = f"http://{_ALL_ADDRESSES.get(settings.host, settings.host)}:{settings.port}"
    headers = {"Authorization": f"Bearer {settings.report_token}"}
    try:
        async with (
            open_session(None) as session,
            asyncio.timeout(timings.call_timeout.total_seconds()),
            session.get(f"{address}/readyz", headers=headers) as ready,
        ):
            report = json.loads(await ready.read())
    except (aiohttp.ClientError, OSError, ValueError):
        yield ok("bot", f"none answers at {address}; to start one: python -m bot serve")
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
        case {"ready": False}:
            message = "the bot is not ready, and runs with another SLACK_BOT_TOKEN than this"
            yield error("readiness", message, "Restart it. If that does not help, read its log.")


# ── Slack ─────────────────────────────────────────────────────────────────────────────────────────

# Two copies whose clocks are 30 seconds apart may post the same message: see docs/postgresql.md.
_SKEWED: Final = timedelta(seconds=15)
# Requests that are signed more than five minutes ago, or ahead, are refused (bot/web/server.py).
_REFUSED: Final = timedelta(minutes=4)
_NTP: Final = "Have the machine set its clock by the network (NTP): timedatectl set-ntp true."
_GRANT: Final = "Add it in the Slack app (OAuth & Permissions) and install the app again."
_WORDS: Final = {
    "ADMIN_USERS": "admins",
    "APPROVERS": "approvers",
    "VIDEO_USERS": "may create videos",
    "TRAINING_USERS": "may train replicas",
    "ALLOWED_CHANNELS": "channels",
}
"""What a setting with people, user groups or channels is called."""
_GONE: Final = {
    "U": "is not in this workspace",
    "C": "does not exist, or is private and without the bot",
    "S": "does not exist, or is disabled, so it lets no one in",
}
"""What Slack says of what it does not find, by how an id begins."""
_UNSEEN: Final = " (Slack doesn't say who or what that is)"
_REFUSALS: Final = {
    "auth.test": (
        "Slack",
        "rejects SLACK_BOT_TOKEN",
        (
            "Copy it again, whole (OAuth & Permissions, Bot User OAuth Token). If it is still "
            "rejected, install the app again."
        ),
    ),
    "apps.connections.open": (
        "Socket Mode",
        "SLACK_APP_TOKEN is rejected",
        (
            "Copy it again, whole. If it is still rejected, generate one with the scope "
            "connections:write (Basic Information, App-Level Tokens), and see that Socket Mode is "
            "on in the Slack app."
        ),
    ),
    "apps.manifest.create": (
        "Slack app",
        "Slack did not create it",
        "A token lasts twelve hours: generate another one, or press Enter.",
    ),
}
"""By the method: of what it is, what its refusal means, and what to do."""
_TEXT: Final = "This is a test of Replica Videos. It goes away by itself."
_INVITE: Final = "Invite the bot there (/invite), or try another channel."
_SHARE_TRIES: Final = 10
_SHARE_WAIT_S: Final = 1.0


@contextlib.asynccontextmanager
async def _client(connection: ConnectionSettings, token: str) -> AsyncIterator[AsyncWebClient]:
    async with open_session(connection.proxy_for(connection.slack_api_url)) as session:
        yield web_client(token, connection.slack_api_url, session)


# ── Slack: the token and the app ──────────────────────────────────────────────────────────────────


async def _check_slack(
    settings: Settings, timings: Timings, clock: Clock
) -> AsyncIterator[Finding]:
    """Yield what Slack says about the tokens, their scopes and the time."""
    token = settings.slack_bot_token.get_secret_value()
    answer = await _ask("auth.test", token, settings, timings, lambda found: found)
    yield answer if isinstance(answer, Finding) else _identity(answer)
    if (app_token := settings.slack_app_token) is not None:
        token = app_token.get_secret_value()
        yield await try_token("SLACK_APP_TOKEN", token, settings, timings)
    if isinstance(answer, Finding):
        return
    headers = {name.lower(): value for name, value in answer.headers.items()}
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        skew = clock.now() - parsedate_to_datetime(headers.get("date", ""))
        yield _judge_skew(skew, is_http=settings.slack_app_token is None)
    for finding in _check_scopes(granted_scopes(answer.headers), settings):
        yield finding


def _identity(answer: AsyncSlackResponse) -> Finding:
    return ok("Slack", f"{answer.get('user')} in {answer.get('team')}")


async def try_token(
    name: str, token: str, connection: ConnectionSettings, timings: Timings
) -> Finding:
    """Return whether Slack accepts a token, which is that of the setting of this name.

    Slack opens no connection for Socket Mode by that, and only returns its address:
    https://docs.slack.dev/reference/methods/apps.connections.open
    """
    if name == "SLACK_BOT_TOKEN":
        return await _ask("auth.test", token, connection, timings, _identity)
    accepted = ok("Socket Mode", "Slack accepts SLACK_APP_TOKEN and opens connections")
    return await _ask("apps.connections.open", token, connection, timings, lambda _: accepted)


class CreatedApp(Payload):
    """The answer of apps.manifest.create, as far as it is used."""

    app_id: str
    signing_secret: str = Field(
        repr=False, validation_alias=AliasPath("credentials", "signing_secret")
    )


async def create_app(
    token: str, manifest: str, connection: ConnectionSettings, timings: Timings
) -> CreatedApp | Finding:
    """Create the app of a manifest, which is JSON, and return it, or why Slack does not.

    The token is one for app configurations:
    https://docs.slack.dev/app-manifests/configuring-apps-with-app-manifests. Slack installs no app
    by it, and the address for that in its answer is for apps that have a redirect URL:
    https://docs.slack.dev/reference/methods/apps.manifest.create
    """
    return await _ask(
        "apps.manifest.create",
        token,
        connection,
        timings,
        lambda answer: CreatedApp.model_validate(answer.data),
        manifest=manifest,
    )


async def _ask(
    method: str,
    token: str,
    connection: ConnectionSettings,
    timings: Timings,
    read: Callable[[AsyncSlackResponse], _T],
    **arguments: str,
) -> _T | Finding:
    """Return what ``read`` makes of Slack's answer to a call with a token, or why there is none."""
    url, limit = connection.slack_api_url, timings.call_timeout
    async with _client(connection, token) as client:
        try:
            async with translated(limit):
                return read(await client.api_call(method, json=arguments or None))
        except OutsideError as failure:
            name, message, remedy = _REFUSALS[method]
            if isinstance(failure, Refused):
                return error(name, f"{message} ({failure.code})", remedy)
            return error(name, *explain(failure, url, limit, "SLACK_API_URL"))


def _check_scopes(granted: frozenset[str] | None, settings: Settings) -> Iterator[Finding]:
    """Yield which scopes of the manifest the token does not have; nothing if Slack says none."""
    if granted is None:
        return
    remedies = _remedies(settings)
    missing = [each for each in (*REQUIRED_SCOPES, *OPTIONAL_SCOPES) if each not in granted]
    for scope in missing:
        if scope in REQUIRED_SCOPES:
            yield error("Slack scope", f"{scope} is missing: {REQUIRED_SCOPES[scope]}", _GRANT)
        elif scope in remedies:
            message = f"{scope} is not granted: {OPTIONAL_SCOPES[scope]}"
            yield warning("Slack scope", message, f"{_GRANT} Or {remedies[scope]}.")
    declined = [each for each in missing if each not in {*REQUIRED_SCOPES, *remedies}]
    if declined:
        yield ok("Slack scopes", f"optional ones that are not granted: {', '.join(declined)}")
    elif not missing:
        yield ok("Slack scopes", "all scopes that the bot can use")


def _remedies(settings: Settings) -> dict[str, str]:
    """Return what else to do about missing scopes that the settings want, as clauses."""
    shared = not settings.allow_shared_channels
    lists = settings.video_users and settings.training_users
    groups = any(each.startswith("S") for each in settings.video_users | settings.training_users)
    wanted = (
        ("users:read", not lists, "list in VIDEO_USERS and TRAINING_USERS who may ask"),
        ("channels:read", shared, "accept it with ALLOW_SHARED_CHANNELS=yes"),
        ("groups:read", shared, "accept it with ALLOW_SHARED_CHANNELS=yes"),
        ("files:write", bool(settings.media_hosts), "remove MEDIA_HOSTS"),
        ("files:read", bool(settings.media_hosts), "remove MEDIA_HOSTS"),
        ("files:read", settings.max_script > MAX_BOX, f"set MAX_SCRIPT to {MAX_BOX}"),
        ("usergroups:read", groups, "name people in place of user groups"),
        ("channels:join", settings.join_public_channels, "remove JOIN_PUBLIC_CHANNELS"),
    )
    return {scope: remedy for scope, is_wanted, remedy in wanted if is_wanted}


def _judge_skew(skew: timedelta, *, is_http: bool) -> Finding:
    """Return what is to be said of a clock that is this far ahead of Slack's."""
    seconds = round(abs(skew).total_seconds())
    way = "ahead of" if skew > timedelta(0) else "behind"
    limit = ": from 5 minutes on, all requests are refused" if is_http else ""
    said = f"this machine's clock is {seconds} s {way} Slack's{limit}"
    return first(
        (
            abs(skew) < _SKEWED,
            ok("clock", f"this machine's clock is within {max(seconds, 1)} s of Slack's"),
        ),
        (is_http and abs(skew) >= _REFUSED, error("clock", said, _NTP)),
        (True, warning("clock", said, _NTP)),
    )


# ── Slack: people and channels ────────────────────────────────────────────────────────────────────


class _Named(NamedTuple):
    """What Slack says of an id of a person, user group or channel that a setting names."""

    name: str
    """What people call it; its id where Slack says nothing of it."""
    wrong: str = ""
    """Why it does not count, as a clause about it."""
    is_seen: bool = True
    is_shared: bool = False
    """Whether another organization reads the channel, or is invited to."""


async def _check_people(settings: Settings, timings: Timings) -> AsyncIterator[Finding]:
    """Yield whom and what the settings name, by name, and what of it is not there."""
    ids = {name: sorted(getattr(settings, name.lower())) for name in _WORDS}
    channel = [settings.approval_channel] if settings.approval_channel else []
    async with _client(settings, settings.slack_bot_token.get_secret_value()) as client:
        every = sorted({*channel, *chain.from_iterable(ids.values())})
        found = await asyncio.gather(*(_look_up(client, each, timings) for each in every))
    named = dict(zip(every, found, strict=True))
    for name, words in _WORDS.items():
        for each in ids[name]:
            if wrong := named[each].wrong:
                yield error(name, f"{each} {wrong}", f"Correct or remove {each} in {name}.")
        there = [named[each] for each in ids[name] if not named[each].wrong]
        if there:
            unseen = "" if all(each.is_seen for each in there) else _UNSEEN
            yield ok("people", f"{words}: {listed([each.name for each in there])}{unseen}")
    if approval := _judge_approval(settings, named):
        yield approval


async def _look_up(client: AsyncWebClient, id_: str, timings: Timings) -> _Named:
    """Return what Slack says of the id of a person, a channel or a user group.

    https://docs.slack.dev/reference/objects/user-object
    https://docs.slack.dev/reference/objects/conversation-object
    https://docs.slack.dev/reference/methods/usergroups.list
    """
    try:
        async with translated(timings.call_timeout):
            if id_.startswith("S"):  # those that are disabled are not listed
                groups: list[Json] = (await client.usergroups_list()).get("usergroups", [])
                names = {each.get("id"): f"@{each.get('handle')}" for each in groups}
                return _Named(names.get(id_, id_), "" if id_ in names else _GONE["S"])
            found: Json
            if id_[0] in "CG":
                found = (await client.conversations_info(channel=id_)).get("channel", {})
                name = f"#{found.get('name', id_)}"
                wrong = f"({name}) is archived" if found.get("is_archived") else ""
                is_shared = bool(found.get("is_ext_shared") or found.get("is_pending_ext_shared"))
                return _Named(name, wrong, is_shared=is_shared)
            found = (await client.users_info(user=id_)).get("user", {})
            name = str(
                found.get("real_name") or found.get("profile", {}).get("display_name") or id_
            )
            wrong = f"({name}) is an app, not a person" if found.get("is_bot") else ""
            return _Named(name, f"({name}) is deactivated" if found.get("deleted") else wrong)
    except OutsideError as failure:
        code = failure.code if isinstance(failure, Refused) else ""
        is_seen = code.endswith(("_not_found", "_not_visible"))
        # Where there is no answer, the check of Slack says why.
        return _Named(id_, _GONE.get(id_[0], "is not there") if is_seen else "", is_seen)


def _judge_approval(settings: Settings, named: Mapping[str, _Named]) -> Finding | None:
    """Return whether approval works as it is set; None where none is wanted."""
    channel = settings.approval_channel
    if not settings.approvers:
        unused = warning(
            "approval",
            "APPROVERS is not set, so nothing needs approval, whatever the other settings say",
            "Set APPROVERS to the member IDs of who approves, or remove APPROVAL_ABOVE and "
            "APPROVAL_CHANNEL.",
        )
        return unused if settings.approval_above or channel else None
    who = {each for each in settings.approvers | settings.admin_users if not named[each].wrong}
    asked = named.get(channel or "", _Named(""))
    is_read = asked.is_shared and not settings.allow_shared_channels
    wrong = "another organization reads APPROVAL_CHANNEL" if is_read else ""
    if asked.wrong:
        wrong = f"APPROVAL_CHANNEL {asked.wrong}"
    return first(
        (
            len(who) == 1,
            warning(
                "approval",
                "only one person may approve, so no one can approve what that person asks for",
                "Add another one to APPROVERS.",
            ),
        ),
        (channel is None, ok("approval", "each approver is asked in a direct message")),
        (
            not asked.is_seen,
            ok("approval", f"Slack doesn't let me look at {channel}, where approvers are asked"),
        ),
        (
            wrong,
            error(
                "approval",
                f"{wrong}: each approver is asked in a direct message instead",
                "Invite the bot there (/invite), or set APPROVAL_CHANNEL to the ID of another "
                "channel.",
            ),
        ),
        (True, ok("approval", f"approvers are asked in {asked.name}")),
    )


# ── What Slack allows: doctor --post ──────────────────────────────────────────────────────────────


async def _try_posting(
    settings: Settings, channel: str, timings: Timings
) -> AsyncIterator[Finding]:
    """Do in a channel what the bot does, delete it all, and yield what Slack allowed.

    ``channel`` is an id, or a name, which chat.postMessage takes too:
    https://docs.slack.dev/reference/methods/chat.postMessage
    """
    person = min(settings.admin_users or settings.approvers, default=None)
    async with _client(settings, settings.slack_bot_token.get_secret_value()) as client:
        trial = _Trial(client, settings.slack_api_url, timings)
        async with trial.clean_up:
            await trial.run(channel, person)
    for finding in trial.found.values():
        yield finding


class _Trial:
    """One of everything that the bot does in Slack."""

    def __init__(self, client: AsyncWebClient, url: str, timings: Timings) -> None:
        self._client = client
        self._url = url
        self._timings = timings
        self.clean_up = contextlib.AsyncExitStack()
        """Deletes everything, replies before what they are in reply to."""
        self.found: dict[str, Finding] = {}
        """What became of each step, by its name."""

    async def run(self, channel: str, person: str | None) -> None:
        """Post, edit, reply, look it up, upload, and write to a person."""
        client = self._client
        if posted := await self._post("post a message", channel):
            where, ts = str(posted["channel"]), str(posted["ts"])
            edit = client.chat_update(channel=where, ts=ts, text=_TEXT)
            await self._do("edit it", edit, "chat:write")
            await self._post("reply in its thread", where, thread_ts=ts)
            look = client.conversations_replies(channel=where, ts=ts)
            await self._do("look it up", look, "channels:history")
            upload = client.files_upload_v2(
                channel=where, thread_ts=ts, content=_TEXT, filename="test.txt"
            )
            if uploaded := await self._do("upload a file", upload, "files:write"):
                file = str(uploaded["files"][0]["id"])
                self._delete_later(client.files_delete(file=file), "files:write")
                await self._note_shared(file)
        if person is None:
            step = "write to a person"
            self.found[step] = ok(step, "not tried: ADMIN_USERS is not set")
        elif opened := await self._do(
            "open a direct message", client.conversations_open(users=person), "im:write"
        ):
            await self._post("write to a person", str(opened["channel"]["id"]))

    async def _post(self, name: str, channel: str, thread_ts: str | None = None) -> Any | None:  # noqa: ANN401
        call = self._client.chat_postMessage(channel=channel, text=_TEXT, thread_ts=thread_ts)
        if posted := await self._do(name, call, "chat:write"):
            where, ts = str(posted["channel"]), str(posted["ts"])
            self._delete_later(self._client.chat_delete(channel=where, ts=ts))
        return posted

    def _delete_later(self, call: Awaitable[Any], scope: str = "chat:write") -> None:
        self.clean_up.push_async_callback(self._do, "delete it all", call, scope)

    async def _note_shared(self, file: str) -> None:
        """Find the message with the file, which stays there when only the file is deleted.

        Slack shares it some time after it has answered.
        """
        with contextlib.suppress(OutsideError):
            for _ in range(_SHARE_TRIES):
                async with translated(self._timings.call_timeout):
                    about = await self._client.files_info(file=file)
                found: Json = about.get("file", {})
                places = [
                    each for kind in found.get("shares", {}).values() for each in kind.items()
                ]
                for channel, [share] in places:
                    ts = str(share["ts"])
                    self._delete_later(self._client.chat_delete(channel=channel, ts=ts))
                if places:
                    return
                await asyncio.sleep(_SHARE_WAIT_S)

    async def _do(self, name: str, call: Awaitable[Any], scope: str) -> Any | None:  # noqa: ANN401
        """Wait for a call and note what became of it; return the answer, None if refused."""
        try:
            async with translated(self._timings.call_timeout):
                answer = await call
        except OutsideError as failure:
            self.found[name] = self._refusal(name, failure, scope)
            return None
        self.found.setdefault(name, ok(name, "allowed"))
        return answer

    def _refusal(self, name: str, failure: OutsideError, scope: str) -> Finding:
        judge = error if scope == "chat:write" else warning
        if not isinstance(failure, Refused):
            said = explain(failure, self._url, self._timings.call_timeout, "SLACK_API_URL")
            return judge(name, *said)
        if failure.code == "channel_not_found":  # that is no fault of the bot's
            return warning(name, f"the channel {_GONE['C']}", _INVITE)
        remedies = {
            "missing_scope": f"It needs the scope {scope}. {_GRANT}",
            "not_in_channel": _INVITE,
        }
        elsewhere = "https://docs.slack.dev/reference/methods explains it."
        return judge(name, f"refused: {failure.code}", remedies.get(failure.code, elsewhere))
