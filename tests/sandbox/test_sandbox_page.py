"""The sandbox's page over HTTP: what it shows, streams and accepts."""

import asyncio
import contextlib
import json
import re
import sys
import urllib.parse
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from bot.timings import SystemClock
from sandbox.__main__ import main
from sandbox.block_kit import Json
from sandbox.driver import Person
from sandbox.page.run import TIMINGS
from sandbox.page.server import Page
from sandbox.running import APP, SETTINGS, Sandbox, running
from sandbox.scenarios import Pace
from sandbox.slack_objects import Message
from sandbox.wire import MASK
from tests.tcp import connected
from tests.watched_clock import WatchedClock
from tests.world import REPLICA, World

ROOT = Path(__file__).parent.parents[1]
SCRIPT = "Hello <b>you</b> & welcome."
_LONG = 30.0


class Browser:
    """A browser with the page open; ``get`` and ``do`` are what its script would fetch."""

    def __init__(self, session: aiohttp.ClientSession, world: World, page: Page) -> None:
        self.session = session
        self.world = world
        self.page = page

    async def get(self, path: str) -> Json:
        async with self.session.get(f"{self.page.url}{path}") as answer:
            assert answer.status == 200, await answer.text()
            said: Json = await answer.json()
            return said

    async def sees(self, person: str = "ana") -> Json:
        return await self.get(f"/api/{person}/snapshot")

    async def panel(self) -> Json:
        return await self.get("/api/panel")

    async def post(self, path: str, body: Mapping[str, object]) -> Json:
        headers = {"Origin": self.page.url, "Sec-Fetch-Site": "same-origin"}
        async with self.session.post(
            f"{self.page.url}{path}", json=body, headers=headers
        ) as answer:
            assert answer.status == 200, await answer.text()
            said: Json = await answer.json()
            return said

    async def types(self, text: str, person: str = "ana", **more: object) -> Json:
        place = self.world.slack.channel("studio").id
        body = {"channel": place, "text": text, **more}
        return await self.post(f"/api/{person}/type", body)

    async def opens_form(self, person: str = "ana", command: str = "/video") -> Json:
        outcome = await self.types(command, person)
        assert outcome["ok"], outcome
        view: Json = (await self.sees(person))["views"][-1]
        if command == "/video":
            # A client sends what it was offered, and nothing else.
            await self.in_form(view, "options", person, **field(view, "replica_id"), query=REPLICA)
        return view

    async def in_form(self, view: Json, action: str, person: str = "ana", **body: object) -> Json:
        return await self.post(f"/api/{person}/views/{view['id']}/{action}", body)

    async def asks(self, person: str = "ana", **fields: object) -> Message:
        """Ask for a video through the page and return its card."""
        view = await self.opens_form(person)
        outcome = await self.in_form(view, "submit", person, values=filled(view, **fields))
        assert outcome["views"] == [], outcome
        await self.world.settle()
        return self.world.slack.messages("studio")[-1]

    async def presses(self, message: Message, label: str, person: str = "ana") -> Json:
        now = self.world.now(message)
        [(block, button)] = [
            (block, each)
            for block in now.blocks
            for each in block.get("elements", [])
            if each.get("text", {}) and each["type"] == "button" and each["text"]["text"] == label
        ]
        body = {
            "channel": now.channel,
            "ts": now.ts,
            "block_id": block["block_id"],
            "action_id": button["action_id"],
        }
        return await self.post(f"/api/{person}/press", body)

    @contextlib.asynccontextmanager
    async def listens(
        self, person: str = "ana", *, after: str | None = None, last: str | None = None, **more: str
    ) -> AsyncIterator["Stream"]:
        query = {"as": person, **({} if after is None else {"after": after}), **more}
        headers = {} if last is None else {"Last-Event-ID": last}
        address = f"{self.page.url}/api/events?{urllib.parse.urlencode(query)}"
        async with self.session.get(address, headers=headers) as answer:
            assert answer.content_type == "text/event-stream"
            stream = Stream(answer)
            await stream.opened()
            yield stream


class Stream:
    """A stream of server-sent events, read as a browser reads it."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer
        self.cursor = ""

    async def opened(self) -> None:
        async with asyncio.timeout(_LONG):
            assert await self._answer.content.readline() == b"retry: 1000\n"

    async def next(self) -> tuple[str, Json]:
        name, data = "", ""
        async with asyncio.timeout(_LONG):
            async for raw in self._answer.content:
                line = raw.decode().rstrip("\n")
                key, _, value = line.partition(": ")
                match key:
                    case "id":
                        self.cursor = value
                    case "event":
                        name = value
                    case "data":
                        data = value
                    case "" if data:
                        return name, json.loads(data)
        raise AssertionError("the stream ended")

    async def of(self, wanted: str) -> Json:
        """Return the next event of a name, passing over others."""
        while True:
            name, data = await self.next()
            if name == wanted:
                return data


@pytest.fixture
async def browser(world: World) -> AsyncIterator[Browser]:
    world.slack.app = APP
    page = Page(world.slack, world.service, f"http://127.0.0.1:{world.bot.port}")
    await page.start(0)
    try:
        async with aiohttp.ClientSession() as session:
            yield Browser(session, world, page)
    finally:
        await page.stop()


def filled(view: Json, **fields: object) -> dict[str, dict[str, object]]:
    """Return the form's fields as the page sends them, with the given ones filled in."""
    fields = {"script": SCRIPT, "replica_id": REPLICA, **fields}
    return {
        block["block_id"]: {block["element"]["action_id"]: fields[block["block_id"]]}
        for block in view["blocks"]
        if block["type"] == "input" and block["block_id"] in fields
    }


def field(view: Json, name: str) -> dict[str, str]:
    [block] = [block for block in view["blocks"] if block["block_id"] == name]
    return {"block_id": name, "action_id": block["element"]["action_id"]}


async def test_the_page_cannot_be_viewed_as_a_stranger_or_as_the_app(browser: Browser) -> None:
    for name in ("zoe", "replica-videos", browser.world.slack.bot.id):
        for path in (f"/api/{name}/snapshot", f"/api/events?as={name}"):
            async with browser.session.get(browser.page.url + path) as answer:
                assert answer.status == 404
                assert "error" in await answer.json()


async def test_a_cursor_of_another_run_asks_for_a_new_snapshot(
    browser: Browser, subtests: pytest.Subtests
) -> None:
    for cursor in ["elsewhere-0", "nonsense", "{run}-999999"]:
        with subtests.test(cursor=cursor):
            run = (await browser.sees())["cursor"].split("-")[0]
            async with browser.listens(after=cursor.format(run=run)) as stream:
                assert await stream.next() == ("reload", {})
                await browser.types("Afterwards")
                assert (await stream.of("message"))["message"]["text"] == "Afterwards"


async def test_the_page_can_be_stopped_while_it_is_open(browser: Browser) -> None:
    async with browser.listens() as stream:
        async with asyncio.timeout(20):
            await browser.page.stop()
        with pytest.raises((AssertionError, aiohttp.ClientError)):
            await stream.next()


async def test_an_action_that_no_client_would_send_is_refused_with_a_reason(
    browser: Browser,
) -> None:
    world = browser.world
    card = await browser.asks()
    await browser.types("/video help")
    [shown] = world.slack.ephemerals("ana", "studio")
    attic = world.slack.channel("attic").id
    own, bens = world.slack.dm("ana").id, world.slack.dm("ben").id
    world.slack.app = replace(world.slack.app, takes_messages=False)
    before = len(world.slack.wire.exchanges)
    for text, more, code, words in (
        ("/vidoe", {}, "unknown_command", "/vidoe is not a command"),
        ("/video", {"thread_ts": card.ts}, "refused", "cannot be used in a thread"),
        ("Hi", {"channel": attic}, "read_only", "archived"),
        ("/video", {"channel": attic}, "read_only", "archived"),
        ("Hi", {"channel": own}, "read_only", "turned off"),
        ("Hi", {"channel": bens}, "gone", "does not exist"),
        ("Hi", {"channel": "C0NOWHERE"}, "gone", "does not exist"),
        ("Hi", {"thread_ts": "1.0"}, "gone", "does not exist"),
        ("Hi", {"thread_ts": shown.ts}, "refused", "only one person sees"),
        (" \n", {}, "refused", "nothing to send"),
        ("x" * 12_001, {}, "refused", "12,000"),
    ):
        outcome = await browser.types(text, **more)
        assert not outcome["ok"], text
        assert outcome["error"]["code"] == code
        assert words in outcome["error"]["text"]
        assert not outcome["error"]["shown"]
    assert len(world.slack.wire.exchanges) == before


async def test_people_cannot_use_each_others_forms(browser: Browser) -> None:
    view = await browser.opens_form("ana")
    outcome = await browser.in_form(view, "submit", "ben", values=filled(view))
    assert outcome["error"]["code"] == "gone"
    assert (await browser.sees("ben"))["views"] == []


async def test_the_wire_log_shows_every_request_both_ways_without_a_secret(
    browser: Browser,
) -> None:
    world = browser.world
    signed = "https://storage.example.com/a.mp4?X-Amz-Signature=mark5ignature&part=1"
    view = await browser.opens_form()
    background = field(view, "background")
    await browser.in_form(view, "press", **background, value="background_source_url")
    [view] = (await browser.sees())["views"]
    values = filled(view, background_source_url=signed)
    await browser.in_form(view, "submit", values=values)
    await world.advance(minutes=5)
    await browser.types("/video list")
    panel = await browser.panel()
    wire = panel["wire"]
    roads = {(each["from"], each["to"], each["about"]) for each in wire}
    assert {
        ("slack", "bot", "/video"),
        ("slack", "bot", f"block_actions {background['action_id']}"),
        ("slack", "bot", "view_submission create_video"),
        ("bot", "slack", "views.open"),
        ("bot", "slack", "views.update"),
        ("bot", "slack", "chat.postMessage"),
        ("bot", "slack", "chat.update"),
        ("bot", "service", "create_video"),
        ("bot", "service", "read_video"),
        ("service", "bot", "callback"),
    } <= roads
    assert [each["id"] for each in wire] == sorted(each["id"] for each in wire)
    for each in wire:
        assert each["status"] == 200, each
        assert each["duration_ms"] >= 0
        assert each["failed"] is None
    [create] = [each for each in wire if each["about"] == "create_video"]
    assert (create["method"], create["path"]) == ("POST", "/v2/videos")
    assert create["request"]["script"] == SCRIPT
    assert create["request"]["callback_url"].endswith(f"/callbacks/{MASK}")
    assert create["request"]["background_source_url"].endswith(f"Signature={MASK}&part=1")
    assert create["response"]["status"] == "queued"
    [callback] = [each for each in wire if each["about"] == "callback"]
    assert callback["path"] == f"/callbacks/{MASK}"
    [submission] = [each for each in wire if "view_submission" in each["about"]]
    assert submission["request"]["payload"]["view"]["type"] == "modal"
    shown = json.dumps(panel)
    tokens = [each.url.rsplit("/", 1)[1] for each in world.service.callbacks]
    response_urls = re.findall(r"/respond/([\w-]+)", shown)
    for secret in (
        world.slack.bot_token,
        world.slack.signing_secret,
        world.service.api_key,
        "mark5ignature",
        "v0=",
        "verification-token",
        *tokens,
    ):
        assert secret not in shown
    assert tokens
    assert not response_urls


async def test_no_server_of_the_sandbox_answers_to_another_name_or_another_site(
    browser: Browser, subtests: pytest.Subtests
) -> None:
    async def status(url: str, **headers: str) -> int:
        async with browser.session.get(f"{url}/", headers=headers) as answer:
            return answer.status

    servers = {browser.page.url: 200, browser.world.slack.url: 404, browser.world.service.url: 404}
    for url, good in servers.items():
        port = url.rpartition(":")[2]
        with subtests.test(url=url):
            for name in ("127.0.0.1", "localhost", "[::1]"):
                assert await status(url, Host=f"{name}:{port}") == good
                assert await status(url, Origin=f"http://{name}:{port}") == good
            assert await status(url, Host=f"LOCALHOST:{port}") == good
            for host in (
                "evil.example",
                f"evil.example:{port}",
                "127.0.0.1",
                f"127.0.0.1.nip.io:{port}",
            ):
                assert await status(url, Host=host) == 403, host
            for origin in (
                "null",
                "http://evil.example",
                f"https://127.0.0.1:{port}",
                "http://127.0.0.1:1",
                f"http://127.0.0.1:{port}.evil.example",
            ):
                assert await status(url, Origin=origin) == 403, origin


async def test_an_action_is_accepted_only_from_the_pages_own_script(browser: Browser) -> None:
    place = browser.world.slack.channel("studio").id
    body = json.dumps({"channel": place, "text": "Forged"})
    json_type = {"Content-Type": "application/json"}
    for status, headers in (
        (415, {"Content-Type": "text/plain"}),
        (415, {"Content-Type": "application/x-www-form-urlencoded"}),
        (403, {**json_type, "Sec-Fetch-Site": "cross-site"}),
        (403, {**json_type, "Sec-Fetch-Site": "same-site"}),
        (403, {**json_type, "Origin": "http://localhost:3000"}),
    ):
        for path in ("/api/ana/type", "/api/panel/reset"):
            async with browser.session.post(
                browser.page.url + path, data=body, headers=headers
            ) as answer:
                assert answer.status == status, headers
                assert "error" in await answer.json()
                assert "Access-Control-Allow-Origin" not in answer.headers
    assert not browser.world.slack.messages("studio")


async def test_another_sites_page_is_shown_nothing(
    browser: Browser, subtests: pytest.Subtests
) -> None:
    for path in ["ana/snapshot", "panel", "events?as=ana"]:
        with subtests.test(path=path):
            url = f"{browser.page.url}/api/{path}"
            for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200)):
                async with browser.session.get(url, headers={"Sec-Fetch-Site": site}) as answer:
                    assert answer.status == status, site


async def test_every_response_has_strict_security_headers(browser: Browser) -> None:
    await browser.asks()
    video = next(iter(browser.world.service.videos))
    for url in (
        f"{browser.page.url}/",
        f"{browser.page.url}/api/ana/snapshot",
        f"{browser.page.url}/api/nothing",
        f"{browser.world.service.url}/watch/{video}",
    ):
        async with browser.session.get(url) as answer:
            policy = answer.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'self';")
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Referrer-Policy"] == "no-referrer"


async def test_the_page_and_its_files_are_served_and_nothing_else(browser: Browser) -> None:
    async with browser.session.get(browser.page.url) as answer:
        assert answer.content_type == "text/html"
        text = await answer.text()
        assert "not Slack" in text
    linked = re.findall(r'(?:src|href)="(/static/[^"]+)"', text)
    assert linked
    for path in linked:
        async with browser.session.get(browser.page.url + path) as answer:
            assert answer.status == 200, path
            assert answer.headers["Cache-Control"] == "no-cache"
            etag = answer.headers["ETag"]
        headers = {"If-None-Match": etag}
        async with browser.session.get(browser.page.url + path, headers=headers) as answer:
            assert answer.status == 304
    port = int(browser.page.url.rpartition(":")[2])
    beside = (
        "../../clip/icon.svg",
        "..%2f..%2fclip%2ficon.svg",
        "../server.py",
        "%2e%2e/server.py",
        "server.py",
        "",
        "js",
        "/etc",
        "%00.js",
        f"{'long' * 1000}.js",
    )
    for path in beside:
        async with connected(port) as (reader, writer):
            head = f"GET /static/{path} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n"
            writer.write(head.encode())
            assert (await reader.readline()).split()[1] in {b"403", b"404"}, path


def test_an_invalid_port_is_refused_with_a_sentence(
    capsys: pytest.CaptureFixture[str], subtests: pytest.Subtests
) -> None:
    for port in ["0", "65536", "-1", "http", "²"]:
        with subtests.test(port=port):
            with pytest.raises(SystemExit, match="2"):
                main(["--no-browser", f"--port={port}"])
            assert "a port is a number from 1 to 65535" in capsys.readouterr().err


async def run(folder: Path, *arguments: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        env={"PYTHONPATH": str(ROOT)},
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(30):
        out, _ = await process.communicate()
    return process.returncode, out.decode()


@contextlib.asynccontextmanager
async def _sandbox() -> AsyncIterator[Sandbox]:
    async with running(SystemClock(), Pace(), TIMINGS) as sandbox:
        yield sandbox


def test_every_setting_that_points_at_no_real_service_can_be_tried() -> None:
    for name in ("ADMIN_USERS", "VIDEO_USERS", "MAX_PER_DAY", "MAX_SCRIPT", "COMMAND_PREFIX"):
        assert name in SETTINGS
    assert "VIDEO_API_LISTS" in SETTINGS, "the sandbox's service lists its replicas"
    for name in SETTINGS:
        assert not name.startswith(("SLACK_", "DATABASE", "PUBLIC", "HOST", "PORT"))
        assert name not in {"VIDEO_API_URL", "VIDEO_API_KEY"}


async def test_a_guest_and_another_organisation_are_refused_and_an_admin_is_not() -> None:
    async with _sandbox() as sandbox:
        slack = sandbox.slack
        titles = {user.name: user.title for user in slack.users.values() if user.title}
        assert titles == {"cleo": "Admin", "gus": "Guest", "otto": "From Globex"}
        cleo, gus, otto = (Person(slack, name) for name in ("cleo", "gus", "otto"))
        await cleo.command("/video", "Hello team")
        assert cleo.modal is not None
        answer = await otto.command("/video", "Hello team", "partners")
        assert otto.modal is None
        assert "only people in my workspace" in answer.shown.text
        await gus.command("/video", "Hello team")
        # Who somebody is may be found out only while the form is open.
        if gus.modal is not None:
            await gus.modal.submit({"replica_id": "r-anna"})
        assert not sandbox.service.videos


async def test_people_and_channels_are_named_in_limits_and_in_approval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = {
        "APPROVERS": "ben, cleo",
        "APPROVAL_CHANNEL": "#lobby",
        "VIDEO_USERS": "ana,S0614TZR7",
        "TRAINING_USERS": "ben",
        "ALLOWED_CHANNELS": "studio,lobby",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    clock = WatchedClock(SystemClock())
    async with running(clock, Pace(), TIMINGS) as sandbox:
        assert sandbox.limited
        ana, ben = Person(sandbox.slack, "ana"), Person(sandbox.slack, "ben")
        await ben.command("/video", "Hello team")
        assert ben.modal is None
        await ana.command("/video", "Hello team")
        await ana.form.submit({"replica_id": "r-anna"})
        await clock.bot_settled(sandbox.bot)
        assert "Approve this" in sandbox.slack.messages("lobby")[0].text
