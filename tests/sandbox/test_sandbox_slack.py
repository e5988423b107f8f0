"""The sandbox's Slack: its Web API, its clients and the requests that it sends."""

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs

import aiohttp
import pytest
from aiohttp import web
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.webhook.async_client import AsyncWebhookClient

from sandbox.clock import ManualClock
from sandbox.driver import ClientRefusal, Modal, Person
from sandbox.faults import CannedResponse, LateCommit, Reset
from sandbox.http import Server
from sandbox.slack import SandboxSlack
from sandbox.slack_objects import Message

Json = dict[str, Any]


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
async def slack(clock: ManualClock) -> AsyncIterator[SandboxSlack]:
    slack = SandboxSlack(clock)
    await slack.start()
    yield slack
    await slack.stop()


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


def answering(bot: Bot, answer: object) -> None:
    async def react(_: Json) -> object:
        return answer

    bot.react = react


# What the bot may do


async def test_timestamps_grow_even_if_the_clock_stands_still_or_is_set_back(
    slack: SandboxSlack, clock: ManualClock
) -> None:
    ana = Person(slack, "ana")
    stamps = [ana.say("one").ts, ana.say("two").ts]
    clock.set(clock.now() - timedelta(hours=1))
    stamps.append(ana.say("three").ts)

    assert stamps == sorted(set(stamps))


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
        ({"text": "a" * 4001}, "msg_too_long"),
        ({"text": "a", "blocks": [section("")]}, "invalid_blocks"),
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


async def test_an_edit_with_text_alone_removes_the_blocks_and_keeps_the_metadata(
    slack: SandboxSlack, client: AsyncWebClient, clock: ManualClock
) -> None:
    studio = slack.channel("studio").id
    metadata = {"event_type": "card", "event_payload": {"delivery": 7}}
    card = await client.chat_postMessage(
        channel=studio, text="Going", blocks=[section("Going")], metadata=metadata
    )
    await clock.advance(timedelta(seconds=5))
    await client.chat_update(channel=studio, ts=card["ts"], text="Ready")

    (message,) = slack.messages("studio")
    assert (message.text, message.blocks, message.metadata) == ("Ready", [], metadata)
    assert message.edited == clock.now()


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


async def test_the_token_of_each_call_is_checked(
    slack: SandboxSlack, client: AsyncWebClient
) -> None:
    slack.auth_error = "token_revoked"
    assert await refusal(client.auth_test()) == "token_revoked"
    client.token = "xoxb-other"
    assert await refusal(client.auth_test()) == "invalid_auth"
    client.token = None
    assert await refusal(client.auth_test()) == "not_authed"


async def test_posts_to_one_channel_are_held_to_one_a_second_after_a_burst(
    slack: SandboxSlack, client: AsyncWebClient, clock: ManualClock
) -> None:
    slack.rate_limits = True
    studio = slack.channel("studio").id
    for _ in range(5):
        await client.chat_postMessage(channel=studio, text="Hello")

    with pytest.raises(SlackApiError) as caught:
        await client.chat_postMessage(channel=studio, text="Hello")
    assert caught.value.response.status_code == 429
    assert caught.value.response.headers["Retry-After"] == "1"

    await client.chat_postMessage(channel=slack.channel("lobby").id, text="Hello")
    await clock.advance(timedelta(seconds=1))
    await client.chat_postMessage(channel=studio, text="Hello")
    assert len(slack.messages("studio")) == 6


async def test_faults_come_before_or_after_the_work(
    slack: SandboxSlack, client: AsyncWebClient, clock: ManualClock
) -> None:
    studio = slack.channel("studio").id
    internal = {"ok": False, "error": "internal_error"}
    slack.faults.next(
        "chat.postMessage",
        Reset(),
        Reset(done=True),
        CannedResponse(503, "<html>"),
        CannedResponse(200, internal, done=True),
        LateCommit(timedelta(seconds=2)),
    )
    for text in "ab":
        with pytest.raises(aiohttp.ClientError):
            await client.chat_postMessage(channel=studio, text=text)
    for text in "cd":
        with pytest.raises(SlackApiError):
            await client.chat_postMessage(channel=studio, text=text)
    with pytest.raises(aiohttp.ClientError):
        await client.chat_postMessage(channel=studio, text="e")

    assert [each.text for each in slack.messages("studio")] == ["b", "d"]
    assert [call.ok for call in slack.calls] == [None, True, None, True, None]
    await clock.advance(timedelta(seconds=3))
    assert [each.text for each in slack.messages("studio")] == ["b", "d", "e"]


# Whom a message notifies


def test_a_message_notifies_only_those_whom_slack_would(subtests: pytest.Subtests) -> None:
    for text, blocks, notified in [
        ("<@U1> and <!channel>", [], {"U1", "!channel"}),
        ("<@U1|ana> <!subteam^S1|@all> <!here>", [], {"U1", "S1", "!here"}),
        ("&lt;!channel&gt; @channel", [], set()),
        ("<!channel>", [section("Words")], set()),
        ("", [section("<@U1>")], {"U1"}),
        ("", [{"type": "section", "text": words("<@U1> <!channel>")}], set()),
        ("", [{"type": "context", "elements": [{"type": "mrkdwn", "text": "<@U2>"}]}], {"U2"}),
        (
            "",
            [
                {
                    "type": "rich_text",
                    "elements": [
                        {
                            "type": "rich_text_section",
                            "elements": [
                                {"type": "text", "text": "<!channel>"},
                                {"type": "user", "user_id": "U1"},
                                {"type": "usergroup", "usergroup_id": "S1"},
                                {"type": "broadcast", "range": "here"},
                            ],
                        }
                    ],
                }
            ],
            {"U1", "S1", "!here"},
        ),
    ]:
        with subtests.test(text=text, blocks=blocks, notified=notified):
            assert Message("C1", "1.0", "U0", text, blocks).pings == notified


# What people do


async def test_a_command_arrives_signed_and_as_typed(
    slack: SandboxSlack, ana: Person, bot: Bot
) -> None:
    typed = "Hi @ben & <you> in #studio: https://example.com/?a=1&b=2 &lt;"
    answer = await ana.command("/video", typed)

    assert answer.ok
    assert answer.message is None
    assert bot.last["text"] == typed
    assert bot.last["user_id"] == slack.user("ana").id
    assert bot.last["channel_name"] == "studio"
    headers = bot.received[-1].headers
    base = f"v0:{headers['X-Slack-Request-Timestamp']}:".encode() + bot.bodies[-1]
    digest = hmac.new(slack.signing_secret.encode(), base, hashlib.sha256).hexdigest()
    assert headers["X-Slack-Signature"] == f"v0={digest}"
    assert headers["X-Slack-Request-Timestamp"] == str(int(slack.clock.now().timestamp()))


async def test_the_answer_to_a_command_is_shown_to_its_user(
    slack: SandboxSlack, ana: Person, bot: Bot, subtests: pytest.Subtests
) -> None:
    for answered, shown in [
        ("Usage: /video", "Usage: /video"),
        ({"text": "Your jobs"}, "Your jobs"),
        (500, "dispatch_failed"),
    ]:
        with subtests.test(answered=answered, shown=shown):
            answering(bot, answered)

            answer = await ana.command("/video", "list")

            assert answer.message
            assert shown in answer.message.text
            assert slack.ephemerals("ana", "studio")[-1] == answer.message


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


# Forms


async def test_a_form_sends_every_field_in_the_shape_that_slack_has(
    slack: SandboxSlack, ana: Person, bot: Bot, client: AsyncWebClient
) -> None:
    menu = {"options": [option("one"), option("two")]}
    modal = await opened(
        ana,
        bot,
        client,
        SCRIPT,
        BACKGROUND,
        entry("link", {"type": "url_text_input"}, optional=True),
        entry("mail", {"type": "email_text_input"}),
        entry("count", {"type": "number_input", "is_decimal_allowed": False, "max_value": "9"}),
        entry("menu", {"type": "static_select", **menu}),
        entry("boxes", {"type": "checkboxes", **menu}),
        entry("many", {"type": "multi_static_select", **menu}),
        entry("place", {"type": "conversations_select", "default_to_current_conversation": True}),
        entry("user", {"type": "users_select"}),
        entry("users", {"type": "multi_users_select"}),
        entry("day", {"type": "datepicker", "initial_date": "2026-03-05"}),
        entry("hour", {"type": "timepicker"}),
        entry("file", {"type": "file_input", "filetypes": ["text"]}),
    )
    upload = slack.upload("ana", "script.txt", b"Once upon a time")

    await modal.submit(
        {
            "script": "Hello",
            "mail": "ana@example.com",
            "count": "5",
            "menu": "Two",
            "boxes": ["one"],
            "many": ["one", "two"],
            "user": "ben",
            "users": ["ana", "ben"],
            "hour": "09:30",
            "file": [upload],
        }
    )

    studio, ben = slack.channel("studio").id, slack.user("ben").id
    assert bot.last["type"] == "view_submission"
    assert bot.last["view"]["callback_id"] == "create"
    state = bot.last["view"]["state"]["values"]
    assert state["script"] == {"script_entry": {"type": "plain_text_input", "value": "Hello"}}
    assert state["background"]["background_entry"]["selected_option"] == option("none")
    assert state["link"]["link_entry"]["value"] is None
    assert state["count"]["count_entry"]["value"] == "5"
    assert state["menu"]["menu_entry"]["selected_option"] == option("two")
    assert state["boxes"]["boxes_entry"]["selected_options"] == [option("one")]
    assert len(state["many"]["many_entry"]["selected_options"]) == 2
    assert state["place"]["place_entry"]["selected_conversation"] == studio
    assert state["user"]["user_entry"]["selected_user"] == ben
    assert state["users"]["users_entry"]["selected_users"] == [slack.user("ana").id, ben]
    assert state["day"]["day_entry"]["selected_date"] == "2026-03-05"
    assert state["hour"]["hour_entry"]["selected_time"] == "09:30"
    assert state["file"]["file_entry"]["files"] == [upload]
    assert ana.modal is None
    assert not modal.is_open


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


async def test_views_are_validated_and_stack_up_to_three(
    slack: SandboxSlack, client: AsyncWebClient
) -> None:
    ana = slack.user("ana").id
    faulty = client.views_open(trigger_id="1", view=form(SCRIPT, title=words("a" * 25)))
    assert await refusal(faulty) == "invalid_arguments"
    huge = client.views_open(trigger_id="1", view=form(*[section("ä" * 3000)] * 20))
    assert await refusal(huge) == "view_too_large"

    await client.views_open(trigger_id=slack.new_trigger(ana, None), view=form(SCRIPT))
    for _ in range(2):
        await client.views_push(trigger_id=slack.new_trigger(ana, None), view=form(SCRIPT))
    fourth = client.views_push(trigger_id=slack.new_trigger(ana, None), view=form(SCRIPT))
    assert await refusal(fourth) == "push_limit_reached"


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


# What people see


async def test_an_answer_after_three_seconds_does_not_count(
    ana: Person, bot: Bot, slack: SandboxSlack
) -> None:
    assert slack.response_timeout == timedelta(seconds=3)
    slack.response_timeout = timedelta(seconds=0.05)
    never = asyncio.Event()

    async def react(_: Json) -> None:
        await never.wait()

    bot.react = react
    answer = await ana.command("/video")

    assert answer.status is None
    assert answer.message
    assert "operation_timeout" in answer.message.text


async def test_an_app_is_created_from_a_manifest_that_slack_accepts(slack: SandboxSlack) -> None:
    async def create(token: str, manifest: object) -> Json:
        call = slack.session.post(
            f"{slack.api_url}apps.manifest.create",
            json={"manifest": manifest},
            headers={"Authorization": f"Bearer {token}"} if token else {},
        )
        async with call as answer:
            return dict(await answer.json())

    token, named = slack.configuration_token, {"display_information": {"name": "Videos"}}
    for other, code in (
        ("", "not_authed"),
        (slack.bot_token, "not_allowed_token_type"),
        ("xoxe-1-refresh", "not_allowed_token_type"),
        ("xoxe.xoxp-1-expired", "invalid_auth"),
    ):
        assert (await create(other, json.dumps(named)))["error"] == code
    assert (await create(token, None))["error"] == "invalid_arguments"
    assert (await create(token, named))["error"] == "invalid_arguments", "it is a text"
    over_http = {"event_subscriptions": {}, "interactivity": {"is_enabled": True}}
    for manifest, pointers in (
        ("{", ["/"]),
        (json.dumps({}), ["/display_information/name"]),
        (json.dumps(named | {"surprise": 1}), ["/"]),
        (
            json.dumps(named | {"settings": over_http}),
            ["/settings/event_subscriptions", *["/settings/interactivity"] * 2],
        ),
    ):
        answer = await create(token, manifest)
        assert answer["error"] == "invalid_manifest"
        assert [each["pointer"] for each in answer["errors"]] == pointers
    assert slack.created_apps == []
    answer = await create(token, json.dumps(named))
    assert answer["ok"]
    assert answer["credentials"]["signing_secret"] == slack.signing_secret
    assert {"app_id", "oauth_authorize_url"} <= answer.keys()
    assert slack.created_apps == [named]
    wrong = await slack.session.post(
        f"{slack.api_url}auth.test", headers={"Authorization": f"Bearer {token}"}
    )
    assert (await wrong.json())["error"] == "not_allowed_token_type"
