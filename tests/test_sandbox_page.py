"""The sandbox's page over HTTP: what it shows, streams and accepts."""

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import urllib.parse
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest
import yaml
from aiohttp import web

from sandbox.__main__ import main
from sandbox.block_kit import Json
from sandbox.clock import ManualClock, TrailingClock
from sandbox.faults import CannedResponse
from sandbox.http import Server, free_port
from sandbox.page import sample
from sandbox.page.server import Page
from sandbox.player import captions
from sandbox.running import APP
from sandbox.slack_objects import Message
from sandbox.wire import MASK, MAX_EXCHANGES, Wire
from tests.world import FOOTAGE, REPLICA, World

ROOT = Path(__file__).parents[1]
SCRIPT = "Hello <b>you</b> & welcome."
_LONG = 10.0


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


# ── What a person is shown ────────────────────────────────────────────────────────────────────


async def test_a_person_is_shown_the_places_they_are_in(browser: Browser) -> None:
    browser.world.slack.channel("vault").members.discard(browser.world.ben.user.id)
    ana, ben = await browser.sees("ana"), await browser.sees("ben")

    def places(snapshot: Json) -> Json:
        return {each["name"]: each for each in snapshot["channels"]}

    assert places(ana).keys() == {"studio", "lobby", "vault", "attic", "directmessage"}
    assert places(ben).keys() == {"studio", "lobby", "attic", "directmessage"}
    assert places(ana)["studio"]["has_app"]
    assert not places(ana)["lobby"]["has_app"]
    assert places(ana)["studio"]["read_only"] is None
    assert places(ana)["attic"]["read_only"] == "This channel is archived."
    assert places(ana)["directmessage"]["user"] == ana["app"]["user"]
    assert places(ana)["directmessage"]["read_only"] is None
    assert places(ana)["directmessage"]["id"] != places(ben)["directmessage"]["id"]
    assert [ana["users"][each]["name"] for each in ana["people"]] == ["ana", "ben", "cleo"]
    assert (ana["me"], ben["me"]) == (browser.world.ana.user.id, browser.world.ben.user.id)


def test_the_demos_slack_knows_the_app_from_its_manifest() -> None:
    manifest = yaml.safe_load((ROOT / "manifest.yml").read_text(encoding="utf-8"))
    features = manifest["features"]
    assert APP.name == manifest["display_information"]["name"]
    assert APP.takes_messages != features["app_home"]["messages_tab_read_only_enabled"]
    assert APP.has_home == features["app_home"]["home_tab_enabled"]
    assert APP.events == set(manifest["settings"]["event_subscriptions"]["bot_events"])
    assert [vars(each) for each in APP.shortcuts] == features["shortcuts"]
    keys = ("command", "description", "usage_hint")
    assert [vars(each) for each in APP.commands] == [
        {key: each[key] for key in keys} for each in features["slash_commands"]
    ]


async def test_the_commands_can_be_suggested(browser: Browser) -> None:
    commands = (await browser.sees())["app"]["commands"]
    assert [each["command"] for each in commands] == ["/video", "/replica"]
    assert commands[0]["usage_hint"].startswith("[script]")


async def test_messages_have_slacks_format_and_ephemerals_go_to_one_person(
    browser: Browser,
) -> None:
    card = await browser.asks("ben")
    await browser.types("/video help", "ben")
    await browser.types("Nice", "ana", thread_ts=card.ts)
    ana, ben = await browser.sees("ana"), await browser.sees("ben")

    assert [each["ts"] for each in ben["messages"]] == sorted(e["ts"] for e in ben["messages"])
    [shown] = [each for each in ana["messages"] if each["ts"] == card.ts]
    assert shown["blocks"] == browser.world.now(card).blocks
    assert shown["bot_id"]
    assert not shown["is_ephemeral"]
    [reply] = [each for each in ana["messages"] if each["text"] == "Nice"]
    assert reply["thread_ts"] == card.ts
    assert "bot_id" not in reply
    [help_] = [each for each in ben["messages"] if each["is_ephemeral"]]
    assert "open the form" in help_["text"]
    assert help_ not in ana["messages"]
    assert [each for each in ben["messages"] if each != help_] == ana["messages"]


async def test_the_page_cannot_be_viewed_as_a_stranger_or_as_the_app(browser: Browser) -> None:
    for name in ("zoe", "replica-videos", browser.world.slack.bot.id):
        for path in (f"/api/{name}/snapshot", f"/api/events?as={name}"):
            async with browser.session.get(browser.page.url + path) as answer:
                assert answer.status == 404
                assert "error" in await answer.json()


async def test_a_long_channel_is_shown_quickly(browser: Browser) -> None:
    card = browser.world.now(await browser.asks())
    for number in range(500):
        browser.world.slack.post(replace(card, text=f"No. {number}"))
    loop = asyncio.get_running_loop()
    began = loop.time()
    snapshot = await browser.sees()
    assert len(snapshot["messages"]) == 501
    assert loop.time() - began < 0.5


# ── What changes ──────────────────────────────────────────────────────────────────────────────


async def test_an_event_is_streamed_to_those_whom_it_concerns(browser: Browser) -> None:
    async with browser.listens("ana") as ana, browser.listens("ben") as ben:
        await browser.types("/video help", "ben")
        await browser.types("Good morning", "ben")
        ephemeral, said = await ben.of("message"), await ben.of("message")
        assert ephemeral["message"]["is_ephemeral"]
        assert said["message"]["text"] == "Good morning"
        # The first event for Ana is the message that Ben posted.
        assert await ana.next() == ("message", said)


async def test_a_form_that_opens_and_closes_is_streamed_to_its_owner_only(browser: Browser) -> None:
    async with browser.listens("ana") as ana, browser.listens("ben") as ben:
        view = await browser.opens_form("ana")
        opened = await ana.of("views")
        assert (opened["change"], opened["view_id"]) == ("opened", view["id"])
        assert [each["id"] for each in opened["views"]] == [view["id"]]
        await browser.in_form(view, "close")
        closed = await ana.of("views")
        assert (closed["change"], closed["views"]) == ("closed", [])
        await browser.types("Nothing to see", "cleo")
        assert (await ben.next())[1]["message"]["text"] == "Nothing to see"


async def test_an_edited_card_is_streamed_as_the_same_message(browser: Browser) -> None:
    async with browser.listens() as stream:
        card = await browser.asks()
        assert (await stream.of("message"))["message"]["ts"] == card.ts
        await browser.world.advance(minutes=5)
        texts: list[str] = []
        while "Ready" not in "".join(texts):
            message = (await stream.of("message"))["message"]
            texts += [message["text"]] if message["ts"] == card.ts else []
        assert message["edited"]


async def test_a_deleted_message_is_streamed(browser: Browser) -> None:
    await browser.types("A slip")
    [message] = browser.world.slack.messages("studio")
    async with browser.listens() as stream:
        browser.world.slack.delete(message)
        assert await stream.next() == (
            "message_deleted",
            {"channel": message.channel, "ts": message.ts},
        )


async def test_an_interrupted_stream_resumes_where_it_was(browser: Browser) -> None:
    cursor = (await browser.sees())["cursor"]
    await browser.types("One")
    await browser.types("Two")
    async with browser.listens(after=cursor) as stream:
        assert (await stream.of("message"))["message"]["text"] == "One"
        one = stream.cursor
    await browser.types("Three")
    # A browser that connects again names the last event that it received; the address is as it was.
    async with browser.listens(after=cursor, last=one) as stream:
        assert (await stream.of("message"))["message"]["text"] == "Two"
        assert (await stream.of("message"))["message"]["text"] == "Three"


@pytest.mark.parametrize("cursor", ["elsewhere-0", "nonsense", "{run}-999999"])
async def test_a_cursor_of_another_run_asks_for_a_new_snapshot(
    browser: Browser, cursor: str
) -> None:
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


# ── What a person types ───────────────────────────────────────────────────────────────────────


async def test_a_message_is_in_its_channel_and_a_reply_in_its_thread(browser: Browser) -> None:
    said = await browser.types("Hi <all> & @ben")
    assert said["ok"]
    replied = await browser.types("Hello", "ben", thread_ts=said["message"]["ts"])
    # To reply to a reply is to reply to its thread.
    again = await browser.types("Again", "ben", thread_ts=replied["message"]["ts"])
    assert said["message"]["text"] == f"Hi &lt;all&gt; &amp; <@{browser.world.ben.user.id}>"
    assert replied["message"]["thread_ts"] == said["message"]["ts"]
    assert again["message"]["thread_ts"] == said["message"]["ts"]
    assert browser.world.slack.thread("studio", said["message"]["ts"])[0].text == "Hello"


async def test_a_command_reaches_the_bot_with_its_text(browser: Browser) -> None:
    outcome = await browser.types("/video Hello, <world>.\nTwo lines. ")
    [view] = (await browser.sees())["views"]
    assert outcome["ok"]
    assert outcome["elapsed_ms"] > 0
    assert view["title"]["text"] == "Create a video"
    assert view["state"]["values"]["script"]["script"]["value"] == "Hello, <world>.\nTwo lines."
    assert view["channel"] == browser.world.slack.channel("studio").id
    assert (view["errors"], view["notice"]) == ({}, "")


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


@pytest.mark.parametrize(
    ("status", "code"), [(None, "operation_timeout"), (500, "dispatch_failed")]
)
async def test_an_app_that_does_not_answer_is_reported_as_in_slack(
    browser: Browser, status: int | None, code: str
) -> None:
    async with nobody_home(browser.world, status):
        outcome = await browser.types("/video")
    assert outcome["error"] == {
        "code": code,
        "text": f"/video failed with the error “{code}”",
        "shown": True,
    }
    [shown] = [each for each in (await browser.sees())["messages"] if each["is_ephemeral"]]
    assert shown["text"] == outcome["error"]["text"]


@contextlib.asynccontextmanager
async def nobody_home(world: World, status: int | None, body: object = "") -> AsyncIterator[None]:
    """Let Slack's requests reach no bot, or one that answers so."""

    async def answer(_request: web.Request) -> web.Response:
        assert status is not None
        return web.json_response(body, status=status)

    app = web.Application()
    app.router.add_post("/slack/events", answer)
    server, real = Server(app), world.slack.request_url
    await server.start()
    where = server.url if status is not None else f"http://127.0.0.1:{free_port()}"
    world.slack.request_url = f"{where}/slack/events"
    try:
        yield
    finally:
        world.slack.request_url = real
        await server.stop()


# ── Forms ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_menu_offers_what_the_bot_suggests_while_typing(browser: Browser) -> None:
    view = await browser.opens_form()
    menu = field(view, "replica_id")
    first = await browser.in_form(view, "options", **menu, query="")
    typed = await browser.in_form(view, "options", **menu, query="r-new")
    assert first["ok"]
    assert [each["value"] for each in typed["options"]] == ["r-new"]
    async with nobody_home(browser.world, None):
        lost = await browser.in_form(view, "options", **menu, query="r")
    assert (lost["ok"], lost["error"]["code"], lost["options"]) == (False, "operation_timeout", [])


async def test_a_form_shows_a_mistake_under_its_field_and_keeps_its_input(
    browser: Browser,
) -> None:
    async with browser.listens() as stream:
        view = await browser.opens_form()
        outcome = await browser.in_form(view, "submit", values=filled(view, script="   "))
        assert outcome["ok"]
        [shown] = outcome["views"]
        assert shown["errors"].keys() == {"script"}
        menu = field(view, "replica_id")["action_id"]
        chosen = shown["state"]["values"]["replica_id"][menu]["selected_option"]
        assert chosen["value"] == REPLICA
        changes = [await stream.of("views") for _ in range(2)]
        assert [each["change"] for each in changes] == ["opened", "errors"]
        assert changes[1]["views"] == outcome["views"]
        mended = await browser.in_form(view, "submit", values=filled(view))
        assert (mended["ok"], mended["views"]) == (True, [])
    await browser.world.settle()
    [card] = browser.world.slack.messages("studio")
    assert card.text.startswith("Video “Hello")


async def test_a_choice_that_changes_the_form_is_sent_at_once_and_loses_no_input(
    browser: Browser,
) -> None:
    view = await browser.opens_form()
    half = filled(view, script="Half a scr")
    outcome = await browser.in_form(
        view, "press", **field(view, "background"), value="background_url", values=half
    )
    [changed] = outcome["views"]
    assert outcome["ok"]
    assert changed["hash"] != view["hash"]
    assert changed["state"]["values"]["script"]["script"]["value"] == "Half a scr"
    link = {**half, "background_url": {"background_url": "not a li"}}
    # A half-typed link must not keep the change of another field from the bot.
    again = await browser.in_form(
        view, "press", **field(view, "background"), value="background_url", values=link
    )
    assert again["ok"]
    held = again["views"][0]["state"]["values"]["background_url"]["background_url"]
    assert held["value"] == "not a li"
    sent = await browser.in_form(view, "submit", values=link)
    assert sent["error"]["code"] == "refused"
    assert "not a link" in sent["error"]["text"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"script": ""}, "Script: a value is required"),
        ({"script": "x" * 3_001}, "3001 characters"),
        ({"background": "a castle"}, "not offered"),
        ({"where": "attic-2"}, "not in the list"),
    ],
)
async def test_a_client_does_not_submit_what_the_form_does_not_accept(
    browser: Browser, values: dict[str, object], words: str
) -> None:
    view = await browser.opens_form()
    outcome = await browser.in_form(view, "submit", values=filled(view, **values))
    assert outcome["error"]["code"] == "refused"
    assert words in outcome["error"]["text"]
    assert [each["id"] for each in outcome["views"]] == [view["id"]]
    await browser.world.settle()
    assert not browser.world.posts()


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (None, "", "operation_timeout"),
        (503, "", "dispatch_failed"),
        (200, {"response_action": "dance"}, "invalid_response"),
        (200, {"response_action": "errors", "errors": {"nowhere": "No."}}, "invalid_response"),
    ],
)
async def test_a_form_that_got_no_good_answer_stays_with_a_notice(
    browser: Browser, status: int | None, body: object, code: str
) -> None:
    view = await browser.opens_form()
    async with nobody_home(browser.world, status, body):
        outcome = await browser.in_form(view, "submit", values=filled(view))
    assert outcome["error"]["code"] == code
    [shown] = outcome["views"]
    assert shown["notice"] == "We had some trouble connecting. Try again?"
    assert shown["state"]["values"]["script"]["script"]["value"] == SCRIPT
    assert (await browser.in_form(view, "submit", values=filled(view)))["views"] == []


async def test_a_form_that_is_closed_is_gone(browser: Browser) -> None:
    view = await browser.opens_form()
    assert (await browser.in_form(view, "close", all=True))["views"] == []
    for action, body in (
        ("submit", {}),
        ("close", {}),
        ("press", field(view, "background")),
        ("options", field(view, "replica_id")),
    ):
        outcome = await browser.in_form(view, action, **body)
        assert outcome["error"]["code"] == "gone"
        assert outcome["views"] == []


async def test_people_cannot_use_each_others_forms(browser: Browser) -> None:
    view = await browser.opens_form("ana")
    outcome = await browser.in_form(view, "submit", "ben", values=filled(view))
    assert outcome["error"]["code"] == "gone"
    assert (await browser.sees("ben"))["views"] == []


async def test_a_form_over_another_can_be_closed_alone_or_with_all(browser: Browser) -> None:
    slack = browser.world.slack
    view = await browser.opens_form()
    under = slack.modals[browser.world.ana.user.id][0]
    body = {"type": "modal", "title": view["title"], "blocks": [{"type": "divider"}]}
    for whole, left in ((False, [view["id"]]), (True, [])):
        over = slack.push_over(under, body)
        outcome = await browser.in_form({"id": over.id}, "close", all=whole)
        assert [each["id"] for each in outcome["views"]] == left


# ── Messages ──────────────────────────────────────────────────────────────────────────────────


async def test_a_button_of_a_card_is_pressed_by_its_ids(browser: Browser) -> None:
    browser.world.service.faults.next("create_video", CannedResponse(500))
    card = await browser.asks()
    await browser.world.advance(minutes=30)
    question = browser.world.question(card)
    asked = await browser.presses(question, "I found it")
    assert asked["ok"]
    assert [each["title"]["text"] for each in (await browser.sees())["views"]] != []
    stranger = await browser.presses(question, "Cancel request", "ben")
    assert stranger["ok"]
    await browser.world.settle()
    assert browser.world.slack.ephemerals("ben", "studio")
    assert (await browser.presses(question, "Cancel request"))["ok"]
    await browser.world.settle()
    assert len(browser.world.replies(card)) == 1


async def test_a_missing_button_and_another_persons_message_are_reported(
    browser: Browser,
) -> None:
    slack, ben = browser.world.slack, browser.world.ben.user.id
    button = {"type": "button", "text": {"type": "plain_text", "text": "Go"}, "action_id": "go"}
    block = {"type": "actions", "block_id": "row", "elements": [button]}
    whole = Message(slack.channel("studio").id, "", slack.bot.id, "Go?", [block], is_from_bot=True)
    said, ephemeral, letter = (
        slack.post(each)
        for each in (
            whole,
            replace(whole, visible_to=ben),
            replace(whole, channel=slack.dm("ben").id),
        )
    )

    async def press(message: Message, person: str, **more: str) -> str:
        body = {"channel": message.channel, "ts": message.ts, "block_id": "row"}
        async with nobody_home(browser.world, 200):
            outcome = await browser.post(
                f"/api/{person}/press", {**body, "action_id": "go", **more}
            )
        return "ok" if outcome["ok"] else str(outcome["error"]["code"])

    for message in (said, ephemeral, letter):
        assert await press(message, "ben") == "ok"
    assert await press(said, "ana") == "ok"
    assert await press(ephemeral, "ana") == "gone"
    assert await press(letter, "ana") == "gone"
    assert await press(said, "ana", ts="1.0") == "gone"
    assert await press(said, "ana", block_id="none") == "gone"
    assert await press(said, "ana", action_id="none") == "gone"


async def test_an_app_that_does_not_answer_a_button_is_reported(browser: Browser) -> None:
    browser.world.service.faults.next("create_video", CannedResponse(500))
    card = await browser.asks()
    await browser.world.advance(minutes=30)
    question = browser.world.question(card)
    async with nobody_home(browser.world, None):
        lost = await browser.presses(question, "Cancel request")
    async with nobody_home(browser.world, 500):
        broken = await browser.presses(question, "Cancel request")
    assert lost["error"]["code"] == "operation_timeout"
    assert broken["error"]["code"] == "dispatch_failed"
    assert "500" in broken["error"]["text"]


async def test_menus_in_messages_send_what_was_chosen(browser: Browser) -> None:
    slack = browser.world.slack
    red = {"text": {"type": "plain_text", "text": "Red"}, "value": "red"}
    elements = [
        {"type": "static_select", "action_id": "colour", "options": [red]},
        {"type": "overflow", "action_id": "more", "options": [red]},
        {"type": "external_select", "action_id": "far", "min_query_length": 1},
        {"type": "datepicker", "action_id": "day"},
    ]
    block = {"type": "actions", "block_id": "menus", "elements": elements}
    place = slack.channel("studio").id
    message = slack.post(Message(place, "", slack.bot.id, "Choose", [block], is_from_bot=True))
    base = {"channel": place, "ts": message.ts, "block_id": "menus"}

    async def sent(action_id: str, value: object) -> Json:
        await browser.post("/api/ana/press", {**base, "action_id": action_id, "value": value})
        return last_payload(browser.world)

    async with nobody_home(browser.world, 200, {"options": [red]}):
        for name in ("colour", "more"):
            payload = await sent(name, "red")
            assert payload["actions"][0]["selected_option"] == red
            assert payload["message"]["ts"] == message.ts
        state = (await sent("day", "2026-03-09"))["state"]["values"]["menus"]
        assert state["day"]["selected_date"] == "2026-03-09"
        wrong = {**base, "action_id": "colour", "value": "blue"}
        assert (await browser.post("/api/ana/press", wrong))["error"]["code"] == "refused"
        far = {**base, "action_id": "far"}
        unasked = await browser.post("/api/ana/options", {**far, "query": ""})
        offered = await browser.post("/api/ana/options", {**far, "query": "r"})
        assert (unasked["options"], offered["options"]) == ([], [red])
        assert (await sent("far", "red"))["actions"][0]["selected_option"] == red


def last_payload(world: World) -> Json:
    sent = [each for each in world.slack.wire.exchanges if each.sender == "slack"][-1]
    payload: Json = json.loads(dict(urllib.parse.parse_qsl(sent.request.decode()))["payload"])
    return payload


# ── Requests that the page never sends ────────────────────────────────────────────────────────


async def test_an_unexpected_body_is_refused_with_a_sentence(browser: Browser) -> None:
    headers = {"Content-Type": "application/json"}
    for path, body in (
        ("/api/ana/type", b"{"),
        ("/api/ana/type", b"[]"),
        ("/api/ana/type", b"\xff\xfe"),
        ("/api/ana/type", b'{"channel": "C1"}'),
        ("/api/ana/type", b'{"channel": "C1", "text": 5}'),
        ("/api/ana/type", b'{"channel": "C1", "text": "\\ud800"}'),
        ("/api/ana/type", b'{"channel": "C1", "text": "Hi", "as": "ben"}'),
        ("/api/ana/press", b'{"channel": "C1", "ts": 1.5}'),
        ("/api/ana/views/V1/submit", b'{"values": {"a": 1}}'),
        ("/api/ana/views/V1/press", b'{"block_id": "a", "action_id": "b", "value": NaN}'),
        ("/api/ana/views/V1/submit", b"[" * 100_000),
        ("/api/panel/service", b'{"down": "yes"}'),
        ("/api/panel/service", b'{"dwon": true}'),
        ("/api/panel/service", b'{"pace": {"generating": -1}}'),
        ("/api/panel/service", b'{"pace": {"training_steps": 0}}'),
        ("/api/panel/service", b'{"rate_limit": {"seconds": 1e999}}'),
        ("/api/panel/slack", b'{"auth_error": "nonsense"}'),
        ("/api/panel/next", b'{"side": "moon", "operation": "a", "what": "b"}'),
        ("/api/panel/jobs/v1", b'{"do": "explode"}'),
        ("/api/panel/reset", b""),
    ):
        url = browser.page.url + path
        async with browser.session.post(url, data=body, headers=headers) as answer:
            assert answer.status == 400, body
            assert (await answer.json())["error"]


async def test_a_value_of_any_type_gets_an_outcome(browser: Browser) -> None:
    view = await browser.opens_form()
    blocks = [block for block in view["blocks"] if block["type"] == "input"]
    kinds: list[object] = [None, True, 5, 1e300, -1, "", "x", [], [None], [[]], ["none"], {}]
    for value in [*kinds, {"value": "none"}]:
        everything = {}
        for block in blocks:
            ids = field(view, block["block_id"])
            pressed = await browser.in_form(view, "press", **ids, value=value)
            assert pressed["ok"] or pressed["error"]["code"] == "refused", (value, pressed)
            everything[ids["block_id"]] = {ids["action_id"]: value}
        sent = await browser.in_form(view, "submit", values=everything)
        assert sent["error"]["code"] == "refused", (value, sent)


async def test_an_invalid_address_is_refused_with_a_sentence(browser: Browser) -> None:
    for path in ("/api/ana/dance", "/api/zoe/type", "/api/ana/views/V1/dance", "/api/panel/x"):
        async with browser.session.post(browser.page.url + path, json={}) as answer:
            assert answer.status == 404
            assert "error" in await answer.json()
    async with browser.session.get(f"{browser.page.url}/api/ana/type") as answer:
        assert answer.status == 405


# ── Behind the scenes ─────────────────────────────────────────────────────────────────────────


async def test_the_panel_shows_jobs_with_what_comes_next(browser: Browser) -> None:
    world = browser.world
    await world.advance(seconds=1)
    await browser.asks("ana", video_name="Second")
    await world.advance(seconds=1)
    view = await browser.opens_form(command="/replica")
    await browser.in_form(
        view, "submit", values=filled(view, train_video_url=FOOTAGE, agreed=["yes"])
    )
    await world.advance(seconds=40)
    service = (await browser.panel())["service"]
    replica, video, anna = service["jobs"]
    assert (video["name"], video["kind"], video["status"]) == ("Second", "video", "generating")
    assert video["script"] == SCRIPT
    assert video["next"] == "ready"
    assert video["next_at"] == video["ends_at"]
    assert 0 < video["share"] < 1
    assert video["has_callback_url"]
    assert (replica["kind"], replica["progress"]) == ("replica", "0/100")
    assert (anna["id"], anna["ended"], anna["next"]) == (REPLICA, "success", None)
    await world.advance(minutes=5)
    [video] = [job for job in (await browser.panel())["service"]["jobs"] if job["kind"] == "video"]
    assert (video["ended"], video["next"], video["callbacks_sent"]) == ("success", None, 1)


async def test_a_job_is_finished_or_failed_at_once(browser: Browser) -> None:
    world = browser.world
    good, bad = await browser.asks(), await browser.asks()
    first, second = world.service.videos
    done = await browser.post(f"/api/panel/jobs/{first}", {"do": "finish"})
    why = {"do": "fail", "reason": "The voice <b>broke</b>"}
    assert done["ok"]
    assert (await browser.post(f"/api/panel/jobs/{second}", why))["ok"]
    await world.settle()
    await world.advance(seconds=5)
    assert "Ready" in world.now(good).text
    assert "The voice &lt;b&gt;broke&lt;/b&gt;" in world.now(bad).text
    again = await browser.post(f"/api/panel/jobs/{second}", {"do": "finish"})
    assert again["error"] == {
        "code": "refused",
        "text": "That is not possible: it has ended.",
        "shown": False,
    }
    nothing = await browser.post("/api/panel/jobs/none", {"do": "finish"})
    assert nothing["error"]["code"] == "gone"
    assert (await browser.post(f"/api/panel/jobs/{first}", {"do": "delete"}))["ok"]
    assert nothing["panel"]["service"]["jobs"]


@pytest.mark.parametrize(("times", "count"), [("none", 0), ("twice", 2), ("once", 1)])
async def test_the_callback_switch_applies_to_open_jobs_too(
    browser: Browser, times: str, count: int
) -> None:
    card = await browser.asks()
    turned = await browser.post("/api/panel/service", {"callbacks": times})
    assert turned["panel"]["service"]["callbacks"] == times
    await browser.world.advance(minutes=10)
    assert len(browser.world.service.callbacks) == count
    assert "Ready" in browser.world.now(card).text
    [video] = browser.world.service.videos
    assert (await browser.post(f"/api/panel/jobs/{video}", {"do": "call_back"}))["ok"]
    assert len(browser.world.service.callbacks) == count + 1


async def test_the_next_create_can_lose_its_answer_and_is_paid_for_once(browser: Browser) -> None:
    coming = {"side": "service", "operation": "create_video", "what": "lose_answer"}
    shown = (await browser.post("/api/panel/next", coming))["panel"]["service"]["next"]
    assert [(each["operation"], each["what"]) for each in shown] == [
        ("create_video", "lose_answer")
    ]
    await browser.post("/api/panel/service", {"callbacks": "none"})
    card = await browser.asks()
    assert (await browser.panel())["service"]["next"] == []
    await browser.world.advance(minutes=20)
    assert browser.world.created_count() == 1
    assert "We don't know" in browser.world.now(card).text


@pytest.mark.parametrize(("what", "words"), [("fail", "The voice broke"), ("never", "Rendering")])
async def test_the_next_job_can_fail_or_never_end(browser: Browser, what: str, words: str) -> None:
    coming = {"side": "service", "operation": "create_video", "what": what}
    shown = await browser.post("/api/panel/next", {**coming, "reason": "The voice broke"})
    [waiting] = shown["panel"]["service"]["next"]
    assert waiting["what"] == what
    card = await browser.asks()
    await browser.world.advance(minutes=6)
    assert words in browser.world.now(card).text


async def test_every_fault_that_is_offered_can_happen_on_its_side(browser: Browser) -> None:
    offers = (await browser.panel())["offers"]
    for side in ("service", "slack"):
        for each in offers["faults"]:
            for operation in offers[side]["operations"]:
                body = {"side": side, "operation": operation, "what": each["what"]}
                assert (await browser.post("/api/panel/next", body))["ok"]
        waiting = (await browser.panel())[side]["next"]
        assert {each["what"] for each in waiting} == {each["what"] for each in offers["faults"]}
        assert [each["id"] for each in waiting] == list(range(1, len(waiting) + 1))
    for operation in ("create_video", "create_replica"):
        for each in offers["scenarios"]:
            body = {"side": "service", "operation": operation, "what": each["what"]}
            assert (await browser.post("/api/panel/next", body))["ok"]
    for body in (
        {"side": "service", "operation": "read_video", "what": "fail"},
        {"side": "slack", "operation": "chat.update", "what": "never"},
        {"side": "slack", "operation": "create_video", "what": "hang"},
        {"side": "slack", "operation": "chat.update", "what": "dance"},
    ):
        assert (await browser.post("/api/panel/next", body))["error"]["code"] == "refused"


async def test_the_service_can_be_down_out_of_credit_and_full(browser: Browser) -> None:
    world = browser.world
    for switch in ("down", "key_revoked", "out_of_credit"):
        assert (await browser.post("/api/panel/service", {switch: True}))["panel"]["service"][
            switch
        ]
        assert getattr(world.service, switch)
    limit = {"seconds": 30, "retry_after": True}
    service = (await browser.post("/api/panel/service", {"rate_limit": limit}))["panel"]["service"]
    assert service["rate_limited_until"] == (world.clock.now() + timedelta(seconds=30)).timestamp()
    assert service["down"], "a switch that is not sent stays"
    off = await browser.post("/api/panel/service", {"rate_limit": None, "down": False})
    assert off["panel"]["service"]["rate_limited_until"] is None
    assert not off["panel"]["service"]["down"]


async def test_the_service_can_quote_its_key(browser: Browser) -> None:
    on = await browser.post("/api/panel/service", {"quotes_key": "in capitals"})
    assert on["panel"]["service"]["quotes_key"] == "in capitals"
    card = await browser.asks()
    await browser.world.advance(minutes=5)
    assert "?key=***" in browser.world.replies(card)[-1].text
    off = await browser.post("/api/panel/service", {"quotes_key": None})
    assert off["panel"]["service"]["quotes_key"] is None


async def test_the_pace_is_that_of_the_coming_jobs(browser: Browser) -> None:
    pace = {"queued": 1, "generating": 2.5, "training_steps": 7}
    shown = await browser.post("/api/panel/service", {"pace": pace})
    assert shown["panel"]["service"]["pace"] == {**pace, "training": 12_600}
    card = await browser.asks()
    await browser.world.advance(seconds=6)
    assert "Ready" in browser.world.now(card).text


async def test_slack_can_turn_the_bot_away(browser: Browser) -> None:
    world = browser.world
    studio = world.slack.channel("studio").id
    slack = (await browser.panel())["slack"]
    assert {each["name"] for each in slack["channels"]} == {"studio", "lobby", "vault", "attic"}
    async with browser.listens() as stream:
        turned = await browser.post(f"/api/panel/channels/{studio}", {"is_archived": True})
        event = (await stream.of("channel"))["channel"]
        assert (event["id"], event["read_only"]) == (studio, "This channel is archived.")
        [shown] = [each for each in turned["panel"]["slack"]["channels"] if each["id"] == studio]
        assert shown["is_archived"]
        both = {"is_archived": False, "has_app": False}
        await browser.post(f"/api/panel/channels/{studio}", both)
        assert not (await stream.of("channel"))["channel"]["has_app"]
    turned = await browser.post(
        "/api/panel/slack",
        {"auth_error": "token_revoked", "history_scopes": False, "rate_limits": True},
    )
    assert turned["panel"]["slack"]["auth_error"] == "token_revoked"
    assert world.slack.auth_error == "token_revoked"
    assert "im:history" not in world.slack.scopes
    assert "chat:write" in world.slack.scopes
    nowhere = await browser.post("/api/panel/channels/C0", {"has_app": True})
    assert nowhere["error"]["code"] == "gone"


async def test_a_reset_lets_everything_go_well_again(browser: Browser) -> None:
    world = browser.world

    async def stands() -> object:
        return {**await browser.panel(), "now": 0, "cursor": "", "wire": []}

    before = await stands()
    studio = world.slack.channel("studio").id
    await browser.post(
        "/api/panel/service",
        {"down": True, "callbacks": "none", "pace": {"queued": 0}, "rate_limit": {"seconds": 9}},
    )
    await browser.post("/api/panel/slack", {"auth_error": "invalid_auth", "history_scopes": False})
    await browser.post(f"/api/panel/channels/{studio}", {"has_app": False})
    for what in ("hang", "never"):
        coming = {"side": "service", "operation": "create_video", "what": what}
        await browser.post("/api/panel/next", coming)
    assert await stands() != before
    await browser.post("/api/panel/reset", {})
    assert await stands() == before
    card = await browser.asks()
    await world.advance(minutes=5)
    assert "Ready" in world.now(card).text


async def test_changes_are_streamed_to_open_panels(browser: Browser) -> None:
    async with browser.listens(panel="1") as behind:
        before = await behind.of("panel")
        assert not before["service"]["down"]
        assert "wire" not in before
        browser.world.service.down = True
        assert (await behind.of("panel"))["service"]["down"]


# ── The wire ──────────────────────────────────────────────────────────────────────────────────


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


async def test_requests_that_fail_say_how(browser: Browser) -> None:
    world = browser.world
    lose = {"side": "service", "operation": "create_video", "what": "lose_answer"}
    busy = {"side": "slack", "operation": "chat.postMessage", "what": "rate_limit"}
    for coming in (lose, busy):
        await browser.post("/api/panel/next", coming)
    view = await browser.opens_form()
    await browser.in_form(view, "submit", values=filled(view))
    await world.settle()
    async with nobody_home(world, None):
        await browser.types("/video")
    wire = (await browser.panel())["wire"]
    [lost] = [each for each in wire if each["about"] == "create_video"]
    slow = next(each for each in wire if each["about"] == "chat.postMessage")
    assert (lost["status"], lost["failed"]) == (None, "the connection was dropped")
    assert (slow["status"], slow["response"]["error"]) == (429, "ratelimited")
    assert (wire[-1]["from"], wire[-1]["status"]) == ("slack", None)
    assert wire[-1]["failed"].startswith("no answer")


async def test_the_wire_log_is_streamed_as_it_happens_and_stays_small(browser: Browser) -> None:
    async with browser.listens(panel="1") as behind, browser.listens() as before:
        await browser.types("/video help")
        first, second = (await behind.of("wire"))["entry"], (await behind.of("wire"))["entry"]
        assert first["id"] == second["id"]
        assert second["status"] == 200
        assert second["request"]["command"] == "/video"
        # Those who do not have the panel open get no such event.
        assert (await before.next())[0] == "message"
    wire = browser.world.slack.wire
    for number in range(MAX_EXCHANGES):
        with wire.exchange("bot", "slack", "POST", f"/api/{number}", b"") as exchange:
            exchange.answered(200, b"")
    assert len((await browser.panel())["wire"]) == MAX_EXCHANGES
    with wire.exchange("bot", "slack", "POST", "/api/long", b"x" * 1_000_000) as exchange:
        exchange.answered(200, b"y" * 1_000_000)
    [*_, long] = (await browser.panel())["wire"]
    assert len(long["request"]) == len(long["response"]) < 100_000


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"", None),
        (b"plain words", "plain words"),
        (b"a=1&b=%5B2%5D&c=", {"a": "1", "b": [2], "c": ""}),
        (b"\xff", "\ufffd"),
        (
            b'{"token": "t", "x": ["xoxb-1-2", {"deep": "/respond/abc?"}]}',
            {"token": MASK, "x": [MASK, {"deep": f"/respond/{MASK}?"}]},
        ),
        (b"[" * 900 + b"]" * 900, "(nested too deeply to be shown)"),
        (b"[" * 30_000, "[" * 30_000),
    ],
)
def test_bodies_of_any_kind_can_be_read(body: bytes, shown: object) -> None:
    wire = Wire(ManualClock())
    with wire.exchange("bot", "slack", "POST", "/api/x", body) as exchange:
        exchange.answered(200, body)
    entry = wire.shown(exchange)
    assert entry["request"] == shown
    assert entry["response"] == shown


# ── Who is let in ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("server", ["page", "slack", "service"])
async def test_no_server_of_the_sandbox_answers_to_another_name_or_another_site(
    browser: Browser, server: str
) -> None:
    url = {
        "page": browser.page.url,
        "slack": browser.world.slack.url,
        "service": browser.world.service.url,
    }[server]
    port = url.rpartition(":")[2]

    async def status(**headers: str) -> int:
        async with browser.session.get(f"{url}/", headers=headers) as answer:
            return answer.status

    good = 200 if server == "page" else 404
    for name in ("127.0.0.1", "localhost", "[::1]"):
        assert await status(Host=f"{name}:{port}") == good
        assert await status(Origin=f"http://{name}:{port}") == good
    assert await status(Host=f"LOCALHOST:{port}") == good
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1.nip.io:{port}"):
        assert await status(Host=host) == 403, host
    for origin in (
        "null",
        "http://evil.example",
        f"https://127.0.0.1:{port}",
        "http://127.0.0.1:1",
        f"http://127.0.0.1:{port}.evil.example",
    ):
        assert await status(Origin=origin) == 403, origin


async def test_the_servers_listen_on_loopback_alone(browser: Browser) -> None:
    for url in (browser.page.url, browser.world.slack.url, browser.world.service.url):
        assert url.startswith("http://127.0.0.1:")


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


@pytest.mark.parametrize("path", ["ana/snapshot", "panel", "events?as=ana"])
async def test_another_sites_page_is_shown_nothing(browser: Browser, path: str) -> None:
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
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"GET /static/{path} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n"
        writer.write(head.encode())
        assert (await reader.readline()).split()[1] in {b"403", b"404"}, path
        writer.close()


# ── Watching ──────────────────────────────────────────────────────────────────────────────────


async def read(browser: Browser, path: str, **headers: str) -> tuple[int, Mapping[str, str], bytes]:
    url = browser.world.service.url + path
    async with browser.session.get(url, headers=headers) as answer:
        return answer.status, answer.headers, await answer.read()


async def test_the_watch_page_plays_a_video_with_the_script_as_captions(browser: Browser) -> None:
    script = 'Hi <i>Kim</i> & "co" --> there.\n</video><script>alert(1)</script>'
    await browser.asks(script=script, video_name="<img src=x>")
    [video] = browser.world.service.videos
    _, _, going = await read(browser, f"/watch/{video}")
    assert b"<video" not in going
    assert "not ready yet" in going.decode()
    for ending in ("mp4", "webm", "vtt", "m3u8"):
        assert (await read(browser, f"/files/{video}.{ending}"))[0] == 404
    await browser.world.advance(minutes=5)

    _, headers, page = await read(browser, f"/watch/{video}")
    text = page.decode()
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert "neither Slack nor a video service" in text
    assert f'<source src="/files/{video}.webm" type="video/webm">' in text
    assert f'src="/files/{video}.vtt" default' in text
    assert "<script" not in text
    assert "<img" not in text
    assert "style=" not in text
    for path in re.findall(r'"(/clip/[^"]+)"', text):
        assert (await read(browser, path))[0] == 200, path
    assert (await read(browser, "/clip/README.md"))[0] == 404
    status, headers, track = await read(browser, f"/files/{video}.vtt")
    assert (status, headers["Content-Type"]) == (200, "text/vtt; charset=utf-8")
    assert track.decode().splitlines() == [
        "WEBVTT",
        "",
        "00:00:00.000 --> 00:00:03.875",
        'Hi &lt;i&gt;Kim&lt;/i&gt; &amp; "co" --&gt; there.',
        "",
        "00:00:03.875 --> 00:00:08.000",
        "&lt;/video&gt;&lt;script&gt;alert(1)&lt;/script&gt;",
    ]


async def test_the_clip_is_served_whole_and_in_parts(browser: Browser) -> None:
    await browser.asks()
    await browser.world.advance(minutes=5)
    [video] = browser.world.service.videos
    starts = {"mp4": b"ftyp", "webm": b"webm"}
    for ending, mark in starts.items():
        status, headers, clip = await read(browser, f"/files/{video}.{ending}")
        assert (status, headers["Content-Type"]) == (200, f"video/{ending}")
        assert headers["Accept-Ranges"] == "bytes"
        assert mark in clip[:64]
        assert len(clip) < 150_000
        status, headers, part = await read(
            browser, f"/files/{video}.{ending}", Range="bytes=100-199"
        )
        assert (status, part) == (206, clip[100:200])
        assert headers["Content-Range"] == f"bytes 100-199/{len(clip)}"
    assert (await read(browser, f"/files/{REPLICA}.mp4"))[0] == 200
    assert (await read(browser, f"/files/{REPLICA}.vtt"))[0] == 404


async def test_the_stream_is_a_playlist_over_the_clips_own_parts(browser: Browser) -> None:
    await browser.asks()
    await browser.world.advance(minutes=5)
    [video] = browser.world.service.videos
    status, headers, text = await read(browser, f"/files/{video}.m3u8")
    assert status == 200
    assert headers["Content-Type"].startswith("application/vnd.apple.mpegurl")
    ranges = re.findall(r"BYTERANGE[:=]\"?(\d+)@(\d+)", text.decode())
    (header, zero), (rest, begin) = [tuple(map(int, each)) for each in ranges]
    _, _, clip = await read(browser, f"/files/{video}.mp4")
    assert zero == 0
    assert begin == header
    assert header + rest == len(clip)
    assert clip[begin + 4 : begin + 8] in {b"moof", b"sidx", b"styp"}


@pytest.mark.parametrize(
    ("script", "longest"),
    [("", 0), ("word " * 600, 74), ("x" * 3_000, 74), ("One. Two! Three? Four…\nFive", 6)],
)
def test_captions_are_short_lines_that_fill_the_clip(script: str, longest: int) -> None:
    cues = captions(script).strip().split("\n\n")[1:]
    lines = [cue.split("\n")[1] for cue in cues]
    assert "".join(lines).replace(" ", "") == "".join(script.split())
    assert max(map(len, lines), default=0) == longest
    moments = [moment for cue in cues for moment in cue.split("\n")[0].split(" --> ")]
    assert moments == sorted(moments)
    assert moments[-1:] in ([], ["00:00:08.000"])


async def test_the_watch_page_of_a_failed_video_says_why(browser: Browser) -> None:
    service = browser.world.service
    await browser.asks()
    [video] = service.videos
    service.fail(video, "It broke <b>.")
    _, _, page = await read(browser, f"/watch/{video}")
    assert "This video cannot be watched: It broke &lt;b&gt;." in page.decode()
    service.delete(video)
    _, _, page = await read(browser, f"/watch/{video}")
    assert "it was deleted" in page.decode()


# ── The command ───────────────────────────────────────────────────────────────────────────────


async def test_the_page_opens_on_a_channel_where_something_has_happened(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    opened = tmp_path_factory.mktemp("browser") / "opened"
    os.mkfifo(opened)
    output = asyncio.StreamReader()
    # Open to both ends, so that nothing waits for a browser that never comes.
    pipe = os.fdopen(os.open(opened, os.O_RDWR | os.O_NONBLOCK), "rb", buffering=0)
    reader, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(output), pipe
    )
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(reader.close)
        other = Server(web.Application())
        await other.start()
        stack.push_async_callback(other.stop)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "sandbox", "--port", str(other.port)),
            env={
                "PYTHONPATH": str(ROOT),
                "PATH": os.defpath,
                "BROWSER": f'sh -c "echo %s > {opened}"',
            },
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            async with asyncio.timeout(30):
                line = (await process.stdout.readline()).decode()
            assert line.startswith(f"Port {other.port} is taken: open http://")
            [url] = re.findall(r"http://127\.0\.0\.1:\d+", line)
            assert url != other.url, "a port that is taken is left alone"
            async with asyncio.timeout(_LONG):
                assert await output.readline() == f"{url}\n".encode()
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"{url}/api/ana/snapshot") as answer,
            ):
                snapshot = await answer.json()
        finally:
            process.send_signal(signal.SIGINT)
            async with asyncio.timeout(30):
                _, err = await process.communicate()
    cards = [each for each in snapshot["messages"] if "bot_id" in each and "thread_ts" not in each]
    states = ("Ready", "Failed", "Training")
    assert [state in card["text"] for state, card in zip(states, cards, strict=True)] == [True] * 3
    assert "about 1 second" not in cards[1]["text"], "the first took as long as the next will"
    replies = [each for each in snapshot["messages"] if "thread_ts" in each and "files" not in each]
    assert [each["thread_ts"] for each in replies] == [card["ts"] for card in cards[:2]]
    moments = [float(each["ts"]) for each in snapshot["messages"]]
    assert moments[-1] <= snapshot["now"] < moments[0] + sample.SPAN.total_seconds() + 30
    assert snapshot["views"] == []
    assert [each["command"] for each in snapshot["app"]["commands"]] == ["/video", "/replica"]
    assert process.returncode == 0
    assert err == b""
    assert _left_in(tmp_path) == []


async def test_a_trailing_clock_skips_its_lag_and_no_more() -> None:
    present = ManualClock()
    clock = TrailingClock(present, timedelta(minutes=10))
    began = clock.now()
    assert began == present.now() - timedelta(minutes=10)
    never = asyncio.Event()
    async with asyncio.timeout(_LONG), asyncio.TaskGroup() as tasks:
        tasks.create_task(clock.wait(never, began + timedelta(minutes=4)))
        await asyncio.sleep(0)
        clock.skip(timedelta(minutes=4))
    assert clock.now() == began + timedelta(minutes=4)
    clock.skip(timedelta(hours=1))
    assert clock.now() == present.now()
    never.set()
    async with asyncio.timeout(_LONG):
        await clock.wait(never)


def _left_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


@pytest.mark.parametrize("port", ["0", "65536", "-1", "http", "²"])
def test_an_invalid_port_is_refused_with_a_sentence(
    port: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--no-browser", f"--port={port}"])
    assert "a port is a number from 1 to 65535" in capsys.readouterr().err


async def test_the_served_bot_never_loads_the_sandbox(tmp_path: Path) -> None:
    found = (
        "import sys, bot.__main__, bot.app, bot.doctor;"
        "print([name for name in sys.modules if name.startswith('sandbox')])"
    )
    assert await run(tmp_path, "-c", found) == (0, "[]\n")
    assert "demo" not in (await run(tmp_path, "-m", "bot", "--help"))[1]


@pytest.mark.parametrize("option", ["--port=8765", "--no-browser"])
def test_the_story_accepts_no_option_of_the_page(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--story", option])
    assert "--story opens none" in capsys.readouterr().err


async def test_the_help_lists_the_options(tmp_path: Path) -> None:
    code, out = await run(tmp_path, "-m", "sandbox", "--help")
    assert code == 0
    for option in (
        "--story",
        "--port",
        "--no-browser",
        "--socket-mode",
        "MAX_OPEN_PER_USER",
        "ADMIN_USERS",
    ):
        assert option in out


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
