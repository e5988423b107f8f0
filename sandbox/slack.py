"""The sandbox's Slack: a workspace served over HTTP that refuses what Slack refuses."""

import json
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import format_datetime
from http import HTTPStatus
from typing import Final, Literal, TypeAlias

import aiohttp
from aiohttp import web
from aiohttp.typedefs import Handler

from bot.timings import Clock, SystemClock
from sandbox import app_manifests, web_api, web_api_arguments
from sandbox.block_kit import Json
from sandbox.faults import Fault, Faults, respond
from sandbox.files import download, new_file
from sandbox.http import Server
from sandbox.rate_limits import RateLimits
from sandbox.slack_objects import APP, Message, SlackError
from sandbox.socket_mode import LINK, OPEN, SocketMode
from sandbox.wire import Wire
from sandbox.workspace import Workspace

Hook: TypeAlias = Callable[[Literal["before", "after"], str, Json], Awaitable[None]]

#: The scopes of a bot that may post, and also read the history.
DEFAULT_SCOPES: Final = frozenset(
    {
        "app_mentions:read",
        "channels:history",
        "channels:read",
        "chat:write",
        "chat:write.public",
        "commands",
        "files:read",
        "files:write",
        "groups:history",
        "groups:read",
        "im:history",
        "im:read",
        "im:write",
        "links.embed:write",
        "usergroups:read",
        "users:read",
    }
)
#: The name under which uses of a ``response_url`` are listed in ``calls`` and found in ``faults``.
RESPONSE_URL: Final = "response_url"
#: The name under which downloads of files are found in ``faults``.
FILE_DOWNLOAD: Final = "files.download"
#: The name under which the contents of the bot's files are listed in ``calls``.
FILE_CONTENT: Final = "files.content"
#: "within 3 seconds":
#: https://docs.slack.dev/interactivity/handling-user-interaction#acknowledgment_response.
RESPONSE_TIMEOUT: Final = timedelta(seconds=3)
_RESPONSE_URL_USES: Final = 5
_RESPONSE_URL_LIFE: Final = timedelta(minutes=30)
_MEGABYTE: Final = 1_000_000
_STATUSES: Final = {
    "ratelimited": HTTPStatus.TOO_MANY_REQUESTS,
    # Of refusals that are not of a method.
    "used_url": HTTPStatus.NOT_FOUND,
    "expired_url": HTTPStatus.NOT_FOUND,
    "wrong_length": HTTPStatus.BAD_REQUEST,
}


@dataclass
class Call:
    """One request of the bot; ``ok`` is None while its work is not done.

    ``arguments`` are without the token. ``status`` is the HTTP status of the right response, which
    the bot did not get if there was a ``fault``.
    """

    method: str
    arguments: Json
    at: datetime
    fault: Fault | None = None
    ok: bool | None = None
    error: str | None = None
    status: int | None = None


@dataclass
class _ResponseUrl:
    user: str
    channel: str
    original: str | None
    expires: datetime
    uses: int = 0


class SandboxSlack(Workspace):
    """A Slack workspace with the Web API that the bot calls, on a port of the loopback interface.

    Attributes:
        request_url: the bot's ``/slack/events``.
        response_timeout: how long a response to a request over HTTP may take, in real time.
        socket_mode: where Slack's requests go instead, if it is enabled.
        calls: every call of the bot, in order.
        faults: what goes wrong next, by the name of the method.
        on_request: awaited just before the work of a call and just after it, before the response.
        rate_limits: whether calls are refused that come faster than Slack documents.
        clock_ahead: how far the time that Slack's answers have is ahead of this machine's.
        auth_error: the error of every call, such as ``token_revoked``; None for no error.
        app_id: the ``api_app_id`` of what Slack sends.
        should_escape: whether a command's text arrives escaped, with mentions as ``<@U1>``; by
            default as typed. That is a setting of each command in the manifest:
            https://docs.slack.dev/interactivity/implementing-slash-commands.
        sent_events: the payloads of the events that were sent; see ``sandbox.events``.
        wire: the last requests, both ways.
        session: what people's clients send with; open between start and stop.
        configuration_token: that for app configurations.
        created_apps: the manifests of the apps that were created with it.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        signing_secret: str = "7c0e5a4bd39f41c68a2e6b1f90d3c857",  # noqa: S107 - made up
        bot_token: str = "xoxb-sandbox",  # noqa: S107 - made up
        scopes: frozenset[str] = DEFAULT_SCOPES,
    ) -> None:
        super().__init__(clock, set(scopes))
        self.signing_secret = signing_secret
        self.bot_token = bot_token
        self.configuration_token = f"{app_manifests.TOKEN}1-sandbox"
        self.created_apps: list[Json] = []
        self.request_url = ""
        self.response_timeout = RESPONSE_TIMEOUT
        self.calls: list[Call] = []
        self.faults = Faults()
        self.on_request: Hook | None = None
        self.rate_limits = False
        self.clock_ahead = timedelta(0)
        self.auth_error: str | None = None
        self.should_escape = False
        self.sent_events: list[Json] = []
        self.app_id = APP
        self.wire = Wire(clock)
        self.socket_mode = SocketMode(APP)
        self.wire.secrets |= {bot_token, signing_secret, self.socket_mode.app_token}
        self.wire.secrets.add(self.configuration_token)
        self._response_urls: dict[str, _ResponseUrl] = {}
        self.session: aiohttp.ClientSession
        self._limits = RateLimits(clock)
        app = web.Application(client_max_size=4 * _MEGABYTE, middlewares=[self._record])
        app.router.add_route("*", "/api/{method}", self._serve_api)
        app.router.add_post("/respond/{secret}", self._serve_response_url)
        app.router.add_get("/files/{file}/{name}", self._serve_file)
        app.router.add_post("/upload/v1/{secret}", self._receive_file)
        app.router.add_get(LINK, self._serve_socket)
        self._server = Server(app)

    @property
    def url(self) -> str:
        """Return its address."""
        return self._server.url

    @property
    def is_connected(self) -> bool:
        """Return whether the app has said where Slack's requests go."""
        return self.socket_mode.enabled or bool(self.request_url)

    @property
    def api_url(self) -> str:
        """Return the base of the Web API's methods, with the slash at its end."""
        return f"{self.url}/api/"

    async def start(self, port: int = 0) -> None:
        """Listen on ``port``, or on any free one; raises ``OSError`` if it is taken."""
        await self._server.start(port)
        self.site = self.url
        await self._scheduler.start()
        # A new connection each time: the bot behind the request URL may have died in between.
        self.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))

    async def stop(self) -> None:
        """Stop listening; the state is kept, and it can be started again."""
        await self.session.close()
        await self._scheduler.stop()
        self.socket_mode.stop()
        await self._server.stop()

    def new_response_url(self, user: str, channel: str, original: Message | None = None) -> str:
        """Return a link for five answers in half an hour, to this user in this channel."""
        secret = secrets.token_urlsafe(12)
        self._response_urls[secret] = _ResponseUrl(
            user,
            channel,
            original.ts if original else None,
            self.clock.now() + _RESPONSE_URL_LIFE,
        )
        return f"{self.url}/respond/{secret}"

    def upload(self, user: str, name: str, content: bytes, mimetype: str = "text/plain") -> Json:
        """Store a person's file and return it as ``file_input`` has it in its state."""
        identifier = self.new_id("F")
        file = new_file(
            content,
            identifier=identifier,
            user=self.user(user).id,
            name=name,
            mimetype=mimetype,
            created=self.clock.now(),
            site=self.url,
        )
        self.files[identifier] = file
        return file.shown

    def respond(self, arguments: Json, user: str, channel: str) -> Message:
        """Show what the app answered to a command: to the person alone, unless it says otherwise.

        Raises:
            SlackError: Slack would not show it.
        """
        text, blocks = web_api_arguments.read_content(self, arguments)
        thread_ts = arguments.get("thread_ts")
        aloud = arguments.get("response_type") == "in_channel"
        return self.post(
            Message(
                self.channel(channel).id,
                "",
                self.bot.id,
                text,
                blocks,
                is_from_bot=True,
                thread_ts=str(thread_ts) if thread_ts else None,
                visible_to=None if aloud else self.user(user).id,
            )
        )

    @web.middleware
    async def _record(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path == LINK:  # its envelopes are recorded one by one
            return await handler(request)
        return await self.wire.served("slack", request, handler)

    async def _serve_api(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        arguments = await _arguments(request)
        authorization = request.headers.get("Authorization", "")
        token = arguments.pop("token", None) or authorization.removeprefix("Bearer ")

        def work() -> Json:
            if method == OPEN or token.startswith("xapp-"):
                self.socket_mode.authenticate(method, token)
                return self.socket_mode.open(self.url)
            if method == app_manifests.CREATE or token.startswith("xoxe"):
                app_manifests.authenticate(method, token, self.configuration_token)
                return self._create_app(arguments)
            self._authenticate(token)
            if self.rate_limits:
                wait = self._limits.refusal(method, str(arguments.get("channel")))
                if wait is not None:
                    raise SlackError("ratelimited", retry_after=wait)
            return web_api.call(self, method, arguments)

        return await self._answer(request, method, arguments, work)

    async def _serve_response_url(self, request: web.Request) -> web.StreamResponse:
        secret = request.match_info["secret"]
        arguments = await _arguments(request)

        def work() -> Json:
            self._respond_later(self._response_urls.get(secret), arguments)
            return {}

        return await self._answer(request, RESPONSE_URL, arguments, work)

    async def _serve_socket(self, request: web.Request) -> web.StreamResponse:
        fault = self.faults.take(LINK)
        return await respond(
            request, fault, lambda: self.socket_mode.serve(request), self._scheduler
        )

    async def _serve_file(self, request: web.Request) -> web.StreamResponse:
        identifier = request.match_info["file"]
        token = request.headers.get("Authorization") == f"Bearer {self.bot_token}"
        fault = self.faults.take(FILE_DOWNLOAD)

        async def answer() -> web.StreamResponse:
            is_allowed = token and "files:read" in self.scopes
            return download(self.files.get(identifier), is_allowed=is_allowed)

        return await respond(request, fault, answer, self._scheduler)

    async def _receive_file(self, request: web.Request) -> web.StreamResponse:
        secret, content = request.match_info["secret"], await request.read()

        def work() -> Json:
            found = [each for each in self.uploads.values() if each.secret == secret]
            if not found:
                raise SlackError("expired_url")
            found[0].receive(content)
            return {}

        return await self._answer(request, FILE_CONTENT, {}, work)

    async def _answer(
        self, request: web.Request, method: str, arguments: Json, work: Callable[[], Json]
    ) -> web.StreamResponse:
        """Do the work of a call between its hooks, or apply a fault."""
        fault = self.faults.take(method)
        call = Call(method, arguments, self.clock.now(), fault)
        self.calls.append(call)

        async def answer() -> web.StreamResponse:
            if self.on_request:
                await self.on_request("before", method, arguments)
            status, body, headers = _done(work)
            call.ok, call.error, call.status = body["ok"], body.get("error"), status
            if self.on_request:
                await self.on_request("after", method, arguments)
            headers["X-OAuth-Scopes"] = ",".join(sorted(self.scopes))
            # In real time, as the machine's own clock is compared with it.
            headers["Date"] = format_datetime(SystemClock().now() + self.clock_ahead, usegmt=True)
            return web.json_response(body, status=status, headers=headers)

        return await respond(request, fault, answer, self._scheduler)

    def _create_app(self, arguments: Json) -> Json:
        """Create the app: where its manifest says, Slack's requests go from then on."""
        answer, manifest = app_manifests.created(arguments, signing_secret=self.signing_secret)
        self.created_apps.append(manifest)
        settings = manifest.get("settings", {})
        self.socket_mode.enabled = bool(settings.get("socket_mode_enabled"))
        self.request_url = settings.get("event_subscriptions", {}).get("request_url", "")
        return answer

    def _authenticate(self, token: str) -> None:
        if not token:
            raise SlackError("not_authed")
        if token != self.bot_token:
            raise SlackError("invalid_auth")
        if self.auth_error:
            raise SlackError(self.auth_error)

    def _respond_later(self, link: _ResponseUrl | None, arguments: Json) -> None:
        if link is None or self.clock.now() >= link.expires:
            raise SlackError("expired_url")
        if link.uses >= _RESPONSE_URL_USES:
            raise SlackError("used_url")
        original = self.find(link.channel, link.original) if link.original else None
        if original and arguments.get("delete_original"):
            self.delete(original)
        elif original and arguments.get("replace_original"):
            text, blocks = web_api_arguments.read_content(self, arguments)
            self.edit(original, text=text, blocks=blocks, metadata=original.metadata)
        else:
            self.respond(arguments, link.user, link.channel)
        link.uses += 1


def _done(work: Callable[[], Json]) -> tuple[int, Json, dict[str, str]]:
    """Return status, body and headers of the answer to a call whose work is done here."""
    try:
        return HTTPStatus.OK, {"ok": True, **work()}, {}
    except SlackError as error:
        status = _STATUSES.get(error.code, HTTPStatus.OK)
        headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
        return status, {"ok": False, "error": error.code, **error.details}, headers


async def _arguments(request: web.Request) -> Json:
    """Return the arguments of a call, whether they came as JSON, as a form or in the address."""
    arguments: Json = dict(request.query)
    if request.content_type == "application/json":
        try:
            body = json.loads(await request.text() or "{}")
        except ValueError:
            body = None
        arguments |= body if isinstance(body, dict) else {}
    elif request.can_read_body:
        arguments |= dict(await request.post())
    return arguments
