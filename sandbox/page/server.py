"""The web server of the page: snapshots, the stream of updates, and actions."""

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from pathlib import Path
from typing import Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler
from pydantic import ValidationError

from bot.store import Store
from sandbox.block_kit import Json
from sandbox.files import MAX_BYTES, download
from sandbox.http import POLICY, Server
from sandbox.page import actions, panel, snapshot, switches
from sandbox.page.actions import PersonActions
from sandbox.page.journal import Journal, Update
from sandbox.page.requests import JobRequests
from sandbox.page.switches import Switches
from sandbox.slack import SandboxSlack
from sandbox.slack_objects import TEAM, User
from sandbox.video_service import SandboxVideoService
from sandbox.wire import Exchange

PORT: Final = 8765
_STATIC: Final = Path(__file__).parent / "static"
# The machine's own table may be wrong, and browsers do not run scripts of another type.
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webp": "image/webp",
}
_FILES: Final = {
    path.relative_to(_STATIC).as_posix(): path
    for path in _STATIC.rglob("*")
    if path.suffix in _TYPES
}
_PORTS_TRIED: Final = 20
_HEARTBEAT_S: Final = 15.0
_PANEL_INTERVAL_S: Final = 0.5

# The actions by the last part of their path.
_ACTIONS: Final[dict[str, Callable[..., Awaitable[Json]]]] = {
    "type": PersonActions.type,
    "ask": PersonActions.ask,
    "press": PersonActions.press,
    "shortcut": PersonActions.shortcut,
    "home": PersonActions.open_home,
}
_FORM_ACTIONS: Final[dict[str, Callable[..., Awaitable[Json]]]] = {
    "press": PersonActions.press_in_form,
    "options": PersonActions.look_up_in_form,
    "submit": PersonActions.submit,
    "close": PersonActions.close,
}


class Page:
    """The page between a sandbox's Slack and video service, on a loopback port of its own."""

    def __init__(
        self,
        slack: SandboxSlack,
        service: SandboxVideoService,
        bot_url: str = "",
        command: str = "python -m sandbox",
        store: Callable[[], Store | None] = lambda: None,
    ) -> None:
        """Make a page that does not listen yet.

        Args:
            slack: the workspace that it shows.
            service: what makes the videos.
            bot_url: where the bot listens.
            command: what starts the sandbox.
            store: returns the store of the bot that runs, if any.
        """
        # One log for all requests, in order.
        slack.wire.secrets |= service.wire.secrets
        service.wire = slack.wire
        self._slack = slack
        self._service = service
        self._bot_url = bot_url
        self._command = command
        self._journal = Journal()
        self._store = store
        self._switches = Switches(slack, service, store)
        self._requests = JobRequests(slack, store)
        self._actions: dict[str, PersonActions] = {}
        self._leave: list[Callable[[], None]] = []
        self._is_closing = False
        self._server = Server(self._app())

    @property
    def url(self) -> str:
        """Return its address, such as ``http://127.0.0.1:8765``."""
        return self._server.url

    async def start(self, port: int = PORT) -> None:
        """Listen on ``port`` or the next free one; 0 for any free one."""
        self._server.policy = (
            f"{POLICY}; img-src 'self' data: {self._slack.url} {self._service.url}; "
            f"media-src 'self' {self._service.url}"
        )
        # Nothing was recorded while it was stopped: earlier cursors are invalid.
        self._journal = Journal()
        await self._listen(port)
        self._is_closing = False
        for user in self._slack.users.values():
            if user != self._slack.bot and user.team == TEAM:
                self._slack.dm(user.id)
        self._leave = [
            snapshot.follow(self._slack, self._journal),
            self._slack.wire.subscribe(self._note_exchange),
        ]

    async def stop(self) -> None:
        """Stop listening, and end the streams."""
        while self._leave:
            self._leave.pop()()
        self._is_closing = True
        self._journal.wake()
        await self._server.stop()

    async def _listen(self, port: int) -> None:
        for candidate in range(port, min(port + _PORTS_TRIED, 65_536)) if port else ():
            with contextlib.suppress(OSError):
                return await self._server.start(candidate)
        return await self._server.start()

    def _app(self) -> web.Application:
        # A byte more than a file may have, so that the refusal has its own words.
        app = web.Application(middlewares=[_json_errors], client_max_size=MAX_BYTES + 1)
        add_get, add_post = app.router.add_get, app.router.add_post
        add_get("/", self._serve_index)
        add_get("/static/{path:.+}", self._serve_static)
        add_get("/api/events", self._serve_events)
        add_get("/api/panel", self._serve_panel)
        add_post("/api/panel/wire/clear", self._clear_wire)
        add_post("/api/panel/service", self._switch_service)
        add_post("/api/panel/slack", self._switch_slack)
        add_post("/api/panel/bot", self._switch_bot)
        add_post("/api/panel/next", self._plan)
        add_post("/api/panel/next/{number:\\d{1,9}}/drop", self._drop_plan)
        add_post("/api/panel/jobs/{id}", self._act_on_job)
        add_post("/api/panel/channels/{id}", self._change_channel)
        add_post("/api/panel/reset", self._reset)
        add_get("/api/{person}/jobs/{job}/requests", self._serve_job_requests)
        add_get("/api/{person}/requests/{number:\\d{1,9}}/card", self._serve_card)
        add_get("/api/{person}/snapshot", self._serve_snapshot)
        add_post("/api/{person}/files", self._upload)
        add_get("/api/{person}/files/{file}", self._serve_file)
        add_post("/api/{person}/{action}", self._serve_action)
        add_post("/api/{person}/views/{view}/{action}", self._serve_action)
        return app

    # Reading

    async def _serve_index(self, _request: web.Request) -> web.StreamResponse:
        return _file("index.html")

    async def _serve_static(self, request: web.Request) -> web.StreamResponse:
        return _file(request.match_info["path"])

    async def _serve_snapshot(self, request: web.Request) -> web.StreamResponse:
        reader = self._user(request.match_info["person"])
        cursor = self._journal.cursor(self._journal.last)
        seen = snapshot.snapshot(self._slack, reader)
        return _answer({"cursor": cursor, "command": self._command, **seen})

    async def _serve_panel(self, _request: web.Request) -> web.StreamResponse:
        wire = self._slack.wire
        exchanges = [wire.shown(each) for each in wire.exchanges]
        cursor = self._journal.cursor(self._journal.last)
        return _answer({"cursor": cursor, **self._panel(), "wire": exchanges})

    async def _serve_job_requests(self, request: web.Request) -> web.StreamResponse:
        self._user(request.match_info["person"])
        return _answer({"ids": await self._requests.of_job(request.match_info["job"])})

    async def _serve_card(self, request: web.Request) -> web.StreamResponse:
        reader = self._user(request.match_info["person"])
        number = int(request.match_info["number"])
        card = await self._requests.card_of(number, reader.id)
        return _answer({"card": None if card is None else snapshot.message_json(card)})

    async def _serve_events(self, request: web.Request) -> web.StreamResponse:
        reader = self._user(request.query.get("as", ""))
        with_panel = request.query.get("panel") == "1"
        cursor = request.headers.get("Last-Event-ID") or request.query.get("after")
        stream = web.StreamResponse(
            headers={hdrs.CONTENT_TYPE: "text/event-stream", hdrs.CACHE_CONTROL: "no-store"}
        )
        with contextlib.suppress(ConnectionError):
            await stream.prepare(request)
            await stream.write(b"retry: 1000\n\n")
            await self._send_updates(stream, reader, cursor, with_panel=with_panel)
        return stream

    async def _send_updates(
        self, stream: web.StreamResponse, reader: User, cursor: str | None, *, with_panel: bool
    ) -> None:
        """Send updates from a cursor on, until the client disconnects."""
        journal, panel_sent, sent_at = self._journal, "", time.monotonic()
        place = journal.last if cursor is None else journal.place(cursor)
        with journal.listening() as updated:
            while not self._is_closing:
                updated.clear()
                chunks = []
                if place is None or journal.place(journal.cursor(place)) is None:
                    place = journal.last
                    chunks.append(self._event("reload", {}, place))
                chunks += [
                    self._event(each.name, each.data(), each.number)
                    for each in journal.after(place)
                    if _is_for(each, reader, with_panel=with_panel)
                ]
                place = journal.last
                if (
                    with_panel
                    and (state := self._panel())
                    and (now := _without_time(state)) != panel_sent
                ):
                    panel_sent = now
                    chunks.append(self._event("panel", state, place))
                if not chunks and time.monotonic() - sent_at > _HEARTBEAT_S:
                    # It moves the cursor past updates for other people.
                    chunks.append(f": still here\nid: {journal.cursor(place)}\n\n")
                if chunks:
                    sent_at = time.monotonic()
                    await stream.write("".join(chunks).encode())
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_PANEL_INTERVAL_S if with_panel else _HEARTBEAT_S):
                        await updated.wait()

    def _event(self, name: str, data: Json, number: int) -> str:
        cursor = self._journal.cursor(number)
        return f"id: {cursor}\nevent: {name}\ndata: {json.dumps(data)}\n\n"

    def _note_exchange(self, exchange: Exchange) -> None:
        self._journal.note("wire", lambda: {"entry": self._slack.wire.shown(exchange)}, None)

    # Acting

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        person = self._user(request.match_info["person"])
        name = request.query.get("name", "")
        if not name:
            raise web.HTTPBadRequest(text="A file has a name.")
        try:
            content = await request.read()
        except web.HTTPRequestEntityTooLarge:
            return _answer(actions.failed("too_large", f"{name} is larger than 10 MB."))
        file = self._slack.upload(person.id, name, content, request.content_type)
        return _answer({"ok": True, "file": file})

    async def _serve_file(self, request: web.Request) -> web.StreamResponse:
        self._user(request.match_info["person"])
        return download(self._slack.files.get(request.match_info["file"]), is_allowed=True)

    async def _serve_action(self, request: web.Request) -> web.StreamResponse:
        person = self._user(request.match_info["person"])
        view = request.match_info.get("view")
        do = (_ACTIONS if view is None else _FORM_ACTIONS).get(request.match_info["action"])
        if do is None:
            raise web.HTTPNotFound
        body = await _read(request)
        actor = self._actions.setdefault(person.id, PersonActions(self._slack, person.id))
        action = do(actor, *([] if view is None else [view]), **body)
        return _answer(await actor.outcome_of(action))

    async def _switch_service(self, request: web.Request) -> web.StreamResponse:
        self._switches.switch_service(switches.ServiceSettings.model_validate(await _read(request)))
        return self._switched(None)

    async def _switch_slack(self, request: web.Request) -> web.StreamResponse:
        self._switches.switch_slack(switches.SlackSettings.model_validate(await _read(request)))
        return self._switched(None)

    async def _switch_bot(self, request: web.Request) -> web.StreamResponse:
        return self._switched(self._switches.switch_bot(**await _read(request)))

    async def _plan(self, request: web.Request) -> web.StreamResponse:
        return self._switched(self._switches.plan(**await _read(request)))

    async def _drop_plan(self, request: web.Request) -> web.StreamResponse:
        await _read(request)
        return self._switched(self._switches.drop(int(request.match_info["number"])))

    async def _clear_wire(self, request: web.Request) -> web.StreamResponse:
        await _read(request)
        self._slack.wire.exchanges.clear()
        self._journal.note("wire_cleared", dict, None)
        return self._switched(None)

    async def _act_on_job(self, request: web.Request) -> web.StreamResponse:
        body = await _read(request)
        return self._switched(await self._switches.act(request.match_info["id"], **body))

    async def _change_channel(self, request: web.Request) -> web.StreamResponse:
        body = await _read(request)
        return self._switched(self._switches.change_channel(request.match_info["id"], **body))

    async def _reset(self, request: web.Request) -> web.StreamResponse:
        await _read(request)
        self._switches.reset()
        return self._switched(None)

    def _switched(self, problem: Json | None) -> web.Response:
        # Open panels show it at once.
        self._journal.wake()
        return _answer({**(problem or {"ok": True}), "panel": self._panel()})

    def _panel(self) -> Json:
        return panel.panel_json(self._slack, self._service, self._bot_url, self._store())

    def _user(self, name: str) -> User:
        for user in self._slack.users.values():
            if name in {user.id, user.name} and user != self._slack.bot:
                return user
        raise web.HTTPNotFound(text="There is no such person.")


@web.middleware
async def _json_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn HTTP errors of the page's own requests into JSON."""
    try:
        if request.path.startswith("/api/"):
            _check_origin(request)
        return await handler(request)
    except web.HTTPException as error:
        if not request.path.startswith("/api/") or error.status < HTTPStatus.BAD_REQUEST:
            raise
        return _answer({"error": error.text or error.reason}, error.status)
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
        return _answer({"error": "; ".join(wrong)}, HTTPStatus.BAD_REQUEST)


def _check_origin(request: web.Request) -> None:
    """Raise ``HTTPForbidden`` for a request from another site's page."""
    if request.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
        raise web.HTTPForbidden(text="Only this page's own requests are answered.")


async def _read(request: web.Request) -> Json:
    """Return the body of a request from the page.

    Raises:
        web.HTTPException: it is no JSON object.
    """
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(text="Content-Type has to be application/json.")
    try:
        body = _json(await request.read())
    except (ValueError, RecursionError) as error:
        raise web.HTTPBadRequest(text=f"The body has to be JSON: {error}") from None
    if not isinstance(body, dict):
        raise web.HTTPBadRequest(text="The body has to be a JSON object.")
    return body


def _json(body: bytes) -> object:
    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not a number")

    value: object = json.loads(body, parse_constant=refuse)
    # Half of a surrogate pair cannot be encoded.
    json.dumps(value, ensure_ascii=False).encode()
    return value


def _answer(said: Json, status: int = HTTPStatus.OK) -> web.Response:
    return web.json_response(said, status=status, headers={hdrs.CACHE_CONTROL: "no-store"})


def _file(name: str) -> web.FileResponse:
    if (path := _FILES.get(name)) is None:
        raise web.HTTPNotFound
    headers = {hdrs.CONTENT_TYPE: _TYPES[path.suffix], hdrs.CACHE_CONTROL: "no-cache"}
    return web.FileResponse(path, headers=headers)


def _is_for(update: Update, reader: User, *, with_panel: bool) -> bool:
    return with_panel if update.audience is None else reader.id in update.audience


def _without_time(state: Json) -> str:
    """Return the state of the panel as text, without the current time."""
    return json.dumps({**state, "now": None})
