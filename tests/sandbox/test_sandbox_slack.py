"""The sandbox's Slack is as strict as the real one: Web API, clients, files and Socket Mode."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import parse_qs

import aiohttp
import pytest
from aiohttp import web
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.webhook.async_client import AsyncWebhookClient

from sandbox import events
from sandbox.block_kit import Json
from sandbox.clock import ManualClock
from sandbox.driver import ClientRefusal, Modal, Person
from sandbox.http import Server
from sandbox.slack import SandboxSlack
from sandbox.slack_objects import Shortcut
from sandbox.socket_mode import OPEN


@dataclass
class Bot:
    """A minimal bot: it keeps the requests and gives the answers that the test sets."""

    slack: SandboxSlack
    received: list[web.BaseRequest] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    react: Callable[[Json], Awaitable[object]] | None = None

    async def serve(self, request: web.Request) -> web.Response:
        self.received.append(request)
        self.bodies.append(await request.read())
        answer = await self.react(self.last) if self.react else None
        if isinstance(answer, int):
            return web.Response(status=answer)
        if isinstance(answer, str):
            return web.Response(text=answer)
        return web.Response() if answer is None else web.json_response(answer)

    @property
    def last(self) -> Json:
        if self.received[-1].content_type == "application/json":
            return dict(json.loads(self.bodies[-1]))
        form = parse_qs(self.bodies[-1].decode(), keep_blank_values=True)
        if "payload" in form:
            return dict(json.loads(form["payload"][0]))
        return {key: values[0] for key, values in form.items()}


@pytest.fixture
async def bot(slack: SandboxSlack) -> AsyncIterator[Bot]:
    bot = Bot(slack)
    app = web.Application()
    app.router.add_post("/slack/events", bot.serve)
    server = Server(app)
    await server.start()
    slack.request_url = f"{server.url}/slack/events"
    yield bot
    await server.stop()


@pytest.fixture
def ana(slack: SandboxSlack, bot: Bot) -> Person:
    assert bot.slack is slack
    return Person(slack, "ana")


def words(text: str) -> Json:
    return {"type": "plain_text", "text": text}


def section(text: str) -> Json:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}


def button(text: str, action_id: str, **more: object) -> Json:
    return {"type": "button", "text": words(text), "action_id": action_id, **more}


def entry(block_id: str, element: Json, **more: object) -> Json:
    return {
        "type": "input",
        "block_id": block_id,
        "label": words(block_id.capitalize()),
        "element": {"action_id": f"{block_id}_entry", **element},
        **more,
    }


def option(value: str) -> Json:
    return {"text": words(value.capitalize()), "value": value}


def form(*blocks: Json, **more: object) -> Json:
    return {
        "type": "modal",
        "callback_id": "create",
        "title": words("Create a video"),
        "submit": words("Create"),
        "blocks": list(blocks),
        **more,
    }


SCRIPT = entry("script", {"type": "plain_text_input", "multiline": True, "max_length": 100})
BACKGROUND = entry(
    "background",
    {
        "type": "radio_buttons",
        "options": [option("none"), option("page")],
        "initial_option": option("none"),
    },
    dispatch_action=True,
)


async def refusal(awaitable: Awaitable[object]) -> str:
    with pytest.raises(SlackApiError) as caught:
        await awaitable
    return str(caught.value.response["error"])


async def opened(
    ana: Person, bot: Bot, client: AsyncWebClient, *blocks: Json, **more: object
) -> Modal:
    """Let ana type a command to which the bot opens a form of these blocks."""

    async def react(payload: Json) -> None:
        await client.views_open(trigger_id=payload["trigger_id"], view=form(*blocks, **more))

    bot.react = react
    await ana.command("/video")
    bot.react = None
    assert ana.modal
    return ana.modal


async def test_slack_says_why_the_bot_cannot_post_there(
    slack: SandboxSlack, client: AsyncWebClient, subtests: pytest.Subtests
) -> None:
    for place, scope, code in [
        ("lobby", "chat:write.public", "not_in_channel"),
        ("vault", "", "channel_not_found"),
        ("attic", "", "is_archived"),
        ("studio", "chat:write", "missing_scope"),
    ]:
        with subtests.test(place=place, scope=scope, code=code):
            slack.scopes.discard(scope)
            channel = slack.channel(place).id

            assert await refusal(client.chat_postMessage(channel=channel, text="Hello")) == code
            assert slack.messages(place) == []


async def test_a_message_is_validated(
    slack: SandboxSlack, client: AsyncWebClient, subtests: pytest.Subtests
) -> None:
    cases: list[tuple[Json, str]] = [
        ({"text": ""}, "no_text"),
        ({"text": " "}, "no_text"),
        ({"text": "a" * 4001}, "msg_too_long"),
        ({"text": "a", "blocks": [section("")]}, "invalid_blocks"),
        ({"text": "a", "blocks": [section("a" * 2900)] * 5}, "msg_blocks_too_long"),
        ({"text": "a", "blocks": "[{"}, "invalid_blocks_format"),
        ({"text": "a", "metadata": {"event_type": "card"}}, "invalid_metadata_format"),
        ({"text": "a", "blocks": [{"type": "video"}]}, "invalid_blocks"),
    ]
    for arguments, code in cases:
        with subtests.test(arguments=arguments, code=code):
            channel = slack.channel("studio").id
            with pytest.raises(SlackApiError) as caught:
                await client.api_call("chat.postMessage", json={"channel": channel, **arguments})

            assert caught.value.response["error"] == code
            if code == "invalid_blocks":
                assert caught.value.response["response_metadata"]["messages"]


async def test_history_needs_membership_and_the_scope_of_its_kind_of_place(
    slack: SandboxSlack, client: AsyncWebClient
) -> None:
    lobby = slack.channel("lobby").id
    assert await refusal(client.conversations_history(channel=lobby)) == "not_in_channel"

    slack.scopes.discard("im:history")
    dm = slack.dm("ana").id
    with pytest.raises(SlackApiError) as caught:
        await client.conversations_history(channel=dm)
    assert caught.value.response["error"] == "missing_scope"
    assert caught.value.response["needed"] == "im:history"


async def test_a_response_url_accepts_five_answers_in_half_an_hour(
    slack: SandboxSlack, ana: Person, bot: Bot, clock: ManualClock
) -> None:
    await ana.command("/video")
    async with aiohttp.ClientSession() as session:
        link = AsyncWebhookClient(bot.last["response_url"], session=session)
        statuses = [(await link.send(text=f"{each}")).status_code for each in range(6)]
        await ana.command("/video")
        late = AsyncWebhookClient(bot.last["response_url"], session=session)
        await clock.advance(timedelta(minutes=30))
        expired = await late.send(text="Late")

    assert statuses == [200] * 5 + [404]
    assert "expired_url" in expired.body
    assert [each.text for each in slack.ephemerals("ana", "studio")] == list("01234")
    assert [call.error for call in slack.calls][-2:] == ["used_url", "expired_url"]


async def test_a_client_does_not_send_what_the_form_does_not_allow(
    ana: Person, bot: Bot, client: AsyncWebClient, subtests: pytest.Subtests
) -> None:
    cases: list[tuple[Json, str]] = [
        ({}, "a value is required"),
        ({"script": "a" * 101}, "101 characters"),
        ({"script": "Hello", "background": "sea"}, "'None', 'Page'"),
        ({"script": "Hello", "link": "example"}, "not a link"),
        ({"script": "Hello", "mail": "ana"}, "e-mail"),
        ({"script": "Hello", "count": "ten"}, "number"),
        ({"script": "Hello", "count": "10"}, "between"),
        ({"script": "Hello", "day": "soon"}, "datepicker"),
        ({"script": "Hello", "place": "vault"}, "not in the list"),
        ({"script": "Hello", "places": ["studio", "vault"]}, "not in the list"),
        ({"script": "Hello", "places": "studio"}, "a list"),
        ({"script": "Hello", "users": ["ana", "ben"]}, "no more than 1"),
        ({"script": "Hello", "colour": "red"}, "no field"),
    ]
    for values, why in cases:
        with subtests.test(values=values, why=why):
            modal = await opened(
                ana,
                bot,
                client,
                SCRIPT,
                BACKGROUND,
                entry("link", {"type": "url_text_input"}, optional=True),
                entry("mail", {"type": "email_text_input"}, optional=True),
                entry(
                    "count",
                    {"type": "number_input", "is_decimal_allowed": False, "max_value": "9"},
                    optional=True,
                ),
                entry("day", {"type": "datepicker"}, optional=True),
                entry(
                    "users", {"type": "multi_users_select", "max_selected_items": 1}, optional=True
                ),
                entry(
                    "places",
                    {"type": "multi_conversations_select", "filter": {"include": ["public"]}},
                    optional=True,
                ),
                entry(
                    "place",
                    {"type": "conversations_select", "filter": {"include": ["public"]}},
                    optional=True,
                ),
            )

            with pytest.raises(ClientRefusal, match=why):
                await modal.submit(values)
            assert bot.last["command"] == "/video"


async def test_a_trigger_works_once_and_for_three_seconds(
    slack: SandboxSlack, client: AsyncWebClient, clock: ManualClock
) -> None:
    ana = slack.user("ana").id
    trigger = slack.new_trigger(ana, None)
    await client.views_open(trigger_id=trigger, view=form(SCRIPT))
    again = client.views_open(trigger_id=trigger, view=form(SCRIPT))
    assert await refusal(again) == "exchanged_trigger_id"

    trigger = slack.new_trigger(ana, None)
    await clock.advance(timedelta(seconds=3))
    late = client.views_open(trigger_id=trigger, view=form(SCRIPT))
    assert await refusal(late) == "expired_trigger_id"
    assert await refusal(client.views_open(trigger_id="1", view=form())) == "invalid_trigger_id"


async def test_a_view_that_changed_or_closed_is_not_updated(
    slack: SandboxSlack, client: AsyncWebClient
) -> None:
    trigger = slack.new_trigger(slack.user("ana").id, None)
    view = (await client.views_open(trigger_id=trigger, view=form(SCRIPT)))["view"]
    await client.views_update(view_id=view["id"], hash=view["hash"], view=form(SCRIPT))

    stale = client.views_update(view_id=view["id"], hash=view["hash"], view=form(SCRIPT))
    assert await refusal(stale) == "hash_conflict"
    modal = Modal(slack, slack.open_views()[0])
    await modal.close()
    assert await refusal(client.views_update(view_id=view["id"], view=form())) == "not_found"


FILE_FORM: Json = {
    "type": "modal",
    "title": {"type": "plain_text", "text": "A form"},
    "submit": {"type": "plain_text", "text": "Send"},
    "blocks": [
        {
            "type": "input",
            "block_id": "file",
            "label": {"type": "plain_text", "text": "File"},
            "element": {
                "type": "file_input",
                "action_id": "file",
                "filetypes": ["text"],
                "max_files": 1,
            },
        }
    ],
}


def test_a_person_can_only_enter_their_own_files_of_the_allowed_types() -> None:
    slack = SandboxSlack(ManualClock())
    view = slack.open_view(slack.new_trigger(slack.user("ana").id, None), FILE_FORM)
    modal = Modal(slack, view)
    for owner, name, size in (
        ("ben", "a.txt", 1),
        ("ana", "a.pdf", 1),
        ("ana", "a.txt", 10**7 + 1),
    ):
        file = slack.upload(owner, name, b"a" * size)
        with pytest.raises(ClientRefusal):
            modal.type({"file": {"file": [file["id"]]}}, finished=True)
    first, second = (slack.upload("ana", name, b"a")["id"] for name in ("a.txt", "B.TXT"))
    with pytest.raises(ClientRefusal, match="no more than 1"):
        modal.type({"file": {"file": [first, second]}}, finished=True)
    modal.type({"file": {"file": [second]}}, finished=True)
    assert [file["name"] for file in modal.values["file"]] == ["B.TXT"]


async def send(url: str, content: bytes) -> int:
    async with aiohttp.ClientSession() as session, session.post(url, data=content) as answer:
        return answer.status


async def upload(client: AsyncWebClient, content: bytes = b"Hello") -> str:
    said = await client.files_getUploadURLExternal(filename="a.txt", length=len(content))
    assert await send(said["upload_url"], content) == 200
    return str(said["file_id"])


async def test_an_upload_is_completed_once_and_its_url_is_used_once(
    slack: SandboxSlack, client: AsyncWebClient
) -> None:
    said = await client.files_getUploadURLExternal(filename="a.txt", length=5)
    url, file = said["upload_url"], str(said["file_id"])
    channel = slack.channel("studio").id
    complete = partial(
        client.files_completeUploadExternal, files=[{"id": file}], channel_id=channel
    )
    with pytest.raises(SlackApiError, match="file_not_found"):
        await complete()
    assert await send(url, b"Hello, world") == 400
    assert await send(url, b"Hello") == 200
    assert await send(url, b"Hello") == 404
    assert await send(f"{url}x", b"Hello") == 404
    await complete()
    with pytest.raises(SlackApiError, match="file_not_found"):
        await complete()
    assert len(slack.messages("studio")) == 1


async def test_what_slack_does_not_share_stays_as_it_is(
    slack: SandboxSlack, client: AsyncWebClient, subtests: pytest.Subtests
) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"channel_id": "U000000001"}, "invalid_arguments"),
        ({"channel_id": "C999999999"}, "channel_not_found"),
        ({"channel_id": "vault"}, "channel_not_found"),
        ({"channel_id": "lobby"}, "not_in_channel"),
        ({"channel_id": "attic"}, "posting_to_channel_denied"),
        ({"thread_ts": "1.000001"}, "thread_not_found"),
        ({"files": [{"id": "F0NONE"}]}, "file_not_found"),
        ({"files": []}, "invalid_arguments"),
    ]
    for arguments, code in cases:
        with subtests.test(arguments=arguments, code=code):
            names = {each.name: each.id for each in slack.channels.values()}
            place = arguments.get("channel_id", "studio")
            file = await upload(client)
            asked = {"files": [{"id": file}], **arguments, "channel_id": names.get(place, place)}
            with pytest.raises(SlackApiError, match=code):
                await client.files_completeUploadExternal(**asked)
            shared = len(slack.messages("studio"))
            await client.files_completeUploadExternal(
                files=[{"id": file}], channel_id=names["studio"]
            )
            assert len(slack.messages("studio")) == shared + 1


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def call(slack: SandboxSlack, session: aiohttp.ClientSession, method: str, token: str) -> Any:  # noqa: ANN401 - JSON
    headers = {"Authorization": f"Bearer {token}"}
    async with session.post(slack.api_url + method, headers=headers) as answer:
        return await answer.json()


class SocketApp:
    """A program that opens connections and acknowledges what it is told to."""

    def __init__(self, slack: SandboxSlack, session: aiohttp.ClientSession) -> None:
        self._slack, self._session = slack, session

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        opened = await call(self._slack, self._session, OPEN, self._slack.socket_mode.app_token)
        async with self._session.ws_connect(opened["url"]) as socket:
            yield socket


async def test_only_the_app_level_token_opens_a_connection_and_it_does_nothing_else(
    slack: SandboxSlack, session: aiohttp.ClientSession
) -> None:
    app_token = slack.socket_mode.app_token
    refused = {
        (OPEN, slack.bot_token): "not_allowed_token_type",
        (OPEN, "xapp-1-other"): "invalid_auth",
        ("auth.test", app_token): "not_allowed_token_type",
    }
    for (method, token), error in refused.items():
        assert (await call(slack, session, method, token))["error"] == error
    url = (await call(slack, session, OPEN, app_token))["url"]
    async with session.ws_connect(url) as socket:
        hello = await socket.receive_json()
    assert (hello["type"], hello["num_connections"]) == ("hello", 1)
    # An address is valid once.
    with pytest.raises(aiohttp.WSServerHandshakeError):
        await session.ws_connect(url)
    assert app_token not in str([slack.wire.shown(each) for each in slack.wire.exchanges])
    assert url.partition("ticket=")[2] not in str(list(map(slack.wire.shown, slack.wire.exchanges)))


async def test_messages_of_another_shape_and_answers_that_are_not_accepted_are_noted(
    slack: SandboxSlack, session: aiohttp.ClientSession
) -> None:
    app = SocketApp(slack, session)
    async with app.connected() as socket, app.connected() as other:
        for each in (socket, other):
            await each.receive_json()
        answered = asyncio.ensure_future(  # noqa: TID251 - awaited below
            slack.socket_mode.deliver("events_api", {"type": "event_callback"})
        )
        envelope = await socket.receive_json()
        assert (envelope["retry_attempt"], envelope["retry_reason"]) == (0, "")
        acknowledged = {"envelope_id": envelope["envelope_id"]}
        with_payload = acknowledged | {"payload": {"text": "Hi"}}
        await socket.send_str("{")
        await socket.send_json({"id": 1})
        # An event takes no payload: https://docs.slack.dev/apis/events-api/using-socket-mode
        await socket.send_json(with_payload)
        await socket.send_json(acknowledged)
        assert await answered == acknowledged
    assert slack.socket_mode.refused == ["{", {"id": 1}, with_payload]


SHORTCUTS = (Shortcut("Use this", "message", "from_message"), Shortcut("Start", "global", "start"))
HOME = {
    "type": "home",
    "blocks": [
        {
            "type": "actions",
            "elements": [
                {
                    "type": "button",
                    "action_id": "more",
                    "text": {"type": "plain_text", "text": "More"},
                }
            ],
        }
    ],
}


@dataclass
class App:
    """What the app behind the request URL received, and how it answers."""

    bodies: list[Json] = field(default_factory=list)
    retries: list[str] = field(default_factory=list)
    answer: Callable[[Json], web.Response] = lambda _: web.Response()

    async def serve(self, request: web.Request) -> web.Response:
        body = await request.text()
        if request.content_type != "application/json":
            body = parse_qs(body)["payload"][0]
        self.bodies.append(json.loads(body))
        self.retries.append(request.headers.get("X-Slack-Retry-Num", ""))
        return self.answer(self.bodies[-1])

    @property
    def events(self) -> list[Json]:
        return [body["event"] for body in self.bodies if "event" in body]


@pytest.fixture
def following(slack: SandboxSlack) -> SandboxSlack:
    slack.app = replace(slack.app, shortcuts=SHORTCUTS)
    events.follow(slack)
    return slack


@pytest.fixture
async def app(following: SandboxSlack) -> AsyncIterator[App]:
    app, served = App(), web.Application()
    served.router.add_post("/slack/events", app.serve)
    server = Server(served)
    await server.start()
    following.request_url = f"{server.url}/slack/events"
    yield app
    await server.stop()


@pytest.fixture
def ana_of_app(following: SandboxSlack) -> Person:
    return Person(following, "ana")


async def test_buttons_of_home_name_no_channel_and_can_be_answered_nowhere(
    following: SandboxSlack, ana_of_app: Person, app: App, client: AsyncWebClient
) -> None:
    assert (await ana_of_app.open_home()).ok
    assert "view" not in app.events[-1]
    await client.views_publish(user_id=ana_of_app.user.id, view=HOME)
    await ana_of_app.open_home()
    assert app.events[-1]["view"]["type"] == "home"

    await ana_of_app.tab.click("More")
    assert app.bodies[-1]["view"]["type"] == "home"
    assert not {"channel", "response_url", "message"} & app.bodies[-1].keys()
    following.app = replace(following.app, has_home=False)
    with pytest.raises(ClientRefusal):
        await ana_of_app.open_home()
    with pytest.raises(SlackApiError, match="not_enabled"):
        await client.views_publish(user_id=ana_of_app.user.id, view=HOME)


async def test_an_event_is_sent_again_three_times_until_it_is_answered(
    following: SandboxSlack, ana_of_app: Person, app: App, clock: ManualClock
) -> None:
    app.answer = lambda _: web.Response(status=500)
    ana_of_app.mention("hello?")
    await clock.advance(timedelta(minutes=10))
    assert app.retries == ["", "1", "2", "3"]
    assert len({body["event_id"] for body in app.bodies}) == 1

    app.answer = lambda _: web.Response(status=400, headers={"X-Slack-No-Retry": "1"})
    ana_of_app.mention("again?")
    await clock.advance(timedelta(minutes=10))
    assert app.retries[4:] == [""]
    app.answer = lambda _: web.Response()
    await events.send_again(following, following.sent_events[-1])
    assert app.retries[5:] == ["1"]
