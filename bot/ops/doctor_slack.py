"""Checks of Slack: the token, its scopes, whom the settings name, and what Slack allows."""

import asyncio
import contextlib
from collections import ChainMap
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Mapping,
)
from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from pydantic import AliasPath, Field
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bot.clock import Clock
from bot.errors import OutsideError, Refused
from bot.ops.finding import Finding, error, explain, first, listed, ok, warning
from bot.setting_values import MAX_BOX
from bot.settings import ConnectionSettings, Settings
from bot.slack.client import open_session, web_client
from bot.slack.errors import translated
from bot.slack.installation import OPTIONAL_SCOPES, REQUIRED_SCOPES, granted_scopes
from bot.slack.payloads import Payload
from bot.slack.views.blocks import Json
from bot.timings import Timings

_T = TypeVar("_T")
_LookUp: TypeAlias = Callable[..., Awaitable[dict[str, "_Named"]]]
# Requests that are signed more than five minutes ago, or ahead, are refused (bot/web/server.py).
_SKEWED: Final = timedelta(seconds=60)
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
_AT_A_TIME: Final = 8  # look-ups


@contextlib.asynccontextmanager
async def _client(connection: ConnectionSettings, token: str) -> AsyncIterator[AsyncWebClient]:
    async with open_session(connection.proxy_for(connection.slack_api_url)) as session:
        yield web_client(token, connection.slack_api_url, session)


# ── The token and the app ─────────────────────────────────────────────────────────────────────


async def check_slack(settings: Settings, timings: Timings, clock: Clock) -> AsyncIterator[Finding]:
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


# ── People and channels ───────────────────────────────────────────────────────────────────────


class _Named(NamedTuple):
    """What Slack says of an id of a person, user group or channel that a setting names."""

    name: str
    """What people call it; its id where Slack says nothing of it."""
    wrong: str = ""
    """Why it does not count, as a clause about it."""
    is_seen: bool = True
    is_shared: bool = False
    """Whether another organization reads the channel, or is invited to."""


async def check_people(settings: Settings, timings: Timings) -> AsyncIterator[Finding]:
    """Yield whom and what the settings name, by name, and what of it is not there."""
    ids = {name: sorted(getattr(settings, name.lower())) for name in _WORDS}
    channel = [settings.approval_channel] if settings.approval_channel else []
    async with _client(settings, settings.slack_bot_token.get_secret_value()) as client:
        named = await _look_up(
            client, {*channel, *(each for found in ids.values() for each in found)}, timings
        )
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


async def _look_up(
    client: AsyncWebClient, ids: Collection[str], timings: Timings
) -> dict[str, _Named]:
    """Return what Slack says of all these ids."""
    calls = asyncio.Semaphore(_AT_A_TIME)

    async def look_up(read: _LookUp, *ids: str) -> dict[str, _Named]:
        try:
            async with calls, translated(timings.call_timeout):
                return await read(client, *ids)
        except OutsideError as failure:
            code = failure.code if isinstance(failure, Refused) else ""
            is_seen = code.endswith(("_not_found", "_not_visible"))
            # Where there is no answer, the check of Slack says why.
            gone = {each: _GONE.get(each[0], "is not there") if is_seen else "" for each in ids}
            return {each: _Named(each, wrong, is_seen) for each, wrong in gone.items()}

    groups = [each for each in ids if each.startswith("S")]
    found = await asyncio.gather(
        *(look_up(_person, each) for each in ids if each[0] in "UW"),
        *(look_up(_channel, each) for each in ids if each[0] in "CG"),
        *([look_up(_groups, *groups)] if groups else []),
    )
    return dict(ChainMap(*found))


async def _person(client: AsyncWebClient, user: str) -> dict[str, _Named]:
    """Ask about a person: https://docs.slack.dev/reference/objects/user-object."""
    found: Json = (await client.users_info(user=user)).get("user", {})
    name = str(found.get("real_name") or found.get("profile", {}).get("display_name") or user)
    wrong = f"({name}) is an app, not a person" if found.get("is_bot") else ""
    if found.get("deleted"):
        wrong = f"({name}) is deactivated"
    return {user: _Named(name, wrong)}


async def _channel(client: AsyncWebClient, channel: str) -> dict[str, _Named]:
    """Ask about a channel: https://docs.slack.dev/reference/objects/conversation-object."""
    found: Json = (await client.conversations_info(channel=channel)).get("channel", {})
    name = f"#{found.get('name', channel)}"
    wrong = f"({name}) is archived" if found.get("is_archived") else ""
    is_shared = bool(found.get("is_ext_shared") or found.get("is_pending_ext_shared"))
    return {channel: _Named(name, wrong, is_shared=is_shared)}


async def _groups(client: AsyncWebClient, *groups: str) -> dict[str, _Named]:
    """Ask about the user groups that are not disabled.

    https://docs.slack.dev/reference/methods/usergroups.list
    """
    found: list[Json] = (await client.usergroups_list()).get("usergroups", [])
    there = {str(each.get("id")): _Named(f"@{each.get('handle')}") for each in found}
    gone = "does not exist, or is disabled, so it lets no one in"
    return {each: there.get(each, _Named(each, gone)) for each in groups}


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


# ── What Slack allows: doctor --post ──────────────────────────────────────────────────────────


async def try_posting(settings: Settings, channel: str, timings: Timings) -> AsyncIterator[Finding]:
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
