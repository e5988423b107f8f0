"""The sandbox's Slack: its Web API, its clients and the requests that it sends."""

import asyncio
import hashlib
import hmac
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal
from urllib.parse import parse_qs

import aiohttp
import pytest
from aiohttp import web
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.webhook.async_client import AsyncWebhookClient

from sandbox.clock import ManualClock
from sandbox.driver import CONNECTION_ERROR, ClientRefusal, InvalidResponse, Modal, Person, deliver
from sandbox.faults import CannedResponse, LateCommit, Reset
from sandbox.http import Server
from sandbox.mrkdwn import as_plain
from sandbox.slack import SandboxSlack
from sandbox.slack_objects import Event, Message, UserGroup
from sandbox.transcript import Narrator, render, render_view

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
def clock() -> ManualClock:
    return ManualClock()


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
async def client(slack: SandboxSlack) -> AsyncIterator[AsyncWebClient]:
    async with aiohttp.ClientSession() as session:
        yield AsyncWebClient(
            slack.bot_token, base_url=slack.api_url, session=session, retry_handlers=[]
        )


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


async def test_a_message_is_where_it_was_posted(
    slack: SandboxSlack, client: AsyncWebClient
) -> None:
    studio = slack.channel("studio").id

    answer = await client.chat_postMessage(
        channel=studio, text="Ready", blocks=[section("*Ready*")], unfurl_links=False
    )

    (message,) = slack.messages("studio")
    assert answer["ts"] == message.ts
    assert (message.text, message.user, message.is_from_bot) == ("Ready", slack.bot.id, True)
    assert message.blocks[0]["text"]["text"] == "*Ready*"
    assert message.blocks[0]["block_id"]
    assert message.unfurl_links is False
    assert message.sent_at == slack.clock.now()


async def test_timestamps_grow_even_if_the_clock_stands_still_or_is_set_back(
    slack: SandboxSlack, clock: ManualClock
) -> None:
    ana = Person(slack, "ana")
    stamps = [ana.say("one").ts, ana.say("two").ts]
    clock.set(clock.now() - timedelta(hours=1))
    stamps.append(ana.say("three").ts)

    assert stamps == sorted(set(stamps))


async def test_replies_are_only_in_their_thread(
    slack: SandboxSlack, client: AsyncWebClient
) -> None:
    studio = slack.channel("studio").id
    card = await client.chat_postMessage(channel=studio, text="Card")
    await client.chat_postMessage(channel=studio, text="Reply", thread_ts=card["ts"])

    assert [each.text for each in slack.messages("studio")] == ["Card"]
    assert [each.text for each in slack.thread("studio", card["ts"])] == ["Reply"]
    nowhere = client.chat_postMessage(channel=studio, text="Lost", thread_ts="1.000001")
    assert await refusal(nowhere) == "thread_not_found"


async def test_posting_to_a_person_opens_the_apps_own_conversation(
    slack: SandboxSlack, client: AsyncWebClient
) -> None:
    user = slack.user("ana").id
    answer = await client.chat_postMessage(channel=user, text="Psst")
    opened = await client.conversations_open(users=user)

    dm = slack.dm("ana")
    assert answer["channel"] == opened["channel"]["id"] == dm.id
    assert [each.text for each in slack.messages(dm.id)] == ["Psst"]
    info = await client.conversations_info(channel=dm.id)
    assert (info["channel"]["is_im"], info["channel"]["user"]) == (True, user)


@pytest.mark.parametrize(
    ("place", "scope", "code"),
    [
        ("lobby", "chat:write.public", "not_in_channel"),
        ("vault", "", "channel_not_found"),
        ("attic", "", "is_archived"),
        ("studio", "chat:write", "missing_scope"),
    ],
)
async def test_slack_says_why_the_bot_cannot_post_there(
    slack: SandboxSlack, client: AsyncWebClient, place: str, scope: str, code: str
) -> None:
    slack.scopes.discard(scope)
    channel = slack.channel(place).id

    assert await refusal(client.chat_postMessage(channel=channel, text="Hello")) == code
    assert slack.messages(place) == []


async def test_the_bot_can_post_where_it_is_not_a_member_if_its_scope_allows_it(
    slack: SandboxSlack, client: AsyncWebClient
) -> None:
    await client.chat_postMessage(channel=slack.channel("lobby").id, text="Hello")

    assert [each.text for each in slack.messages("lobby")] == ["Hello"]


async def test_a_conversation_between_people_is_hidden_from_the_bot(
    slack: SandboxSlack, client: AsyncWebClient
) -> None:
    between = slack.direct_message("ana", "ben").id

    assert await refusal(client.chat_postMessage(channel=between, text="?")) == "channel_not_found"
    assert await refusal(client.conversations_info(channel=between)) == "channel_not_found"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"text": ""}, "no_text"),
        ({"text": "a" * 4001}, "msg_too_long"),
        ({"text": "a", "blocks": [section("")]}, "invalid_blocks"),
        ({"text": "a", "blocks": "[{"}, "invalid_blocks_format"),
        ({"text": "a", "metadata": {"event_type": "card"}}, "invalid_metadata_format"),
        ({"text": "a", "blocks": [{"type": "video"}]}, "invalid_blocks"),
    ],
)
async def test_a_message_is_validated(
    slack: SandboxSlack, client: AsyncWebClient, arguments: Json, code: str
) -> None:
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


async def test_only_its_own_messages_can_be_edited(
    slack: SandboxSlack, client: AsyncWebClient
) -> None:
    studio = slack.channel("studio").id
    said = Person(slack, "ana").say("Mine")

    edit = client.chat_update(channel=studio, ts=said.ts, text="Yours")
    assert await refusal(edit) == "cant_update_message"
    edit = client.chat_update(channel=studio, ts="1.000001", text="Nobody's")
    assert await refusal(edit) == "message_not_found"


async def test_an_ephemeral_message_is_seen_by_one_person(
    slack: SandboxSlack, client: AsyncWebClient
) -> None:
    studio, ana = slack.channel("studio"), slack.user("ana").id
    await client.chat_postEphemeral(channel=studio.id, user=ana, text="Only you")

    assert [each.text for each in slack.ephemerals("ana", "studio")] == ["Only you"]
    assert slack.ephemerals("ben", "studio") == slack.messages("studio") == []
    studio.members.remove(ana)
    missed = client.chat_postEphemeral(channel=studio.id, user=ana, text="Gone")
    assert await refusal(missed) == "user_not_in_channel"


async def test_history_comes_in_pages_newest_first(
    slack: SandboxSlack, client: AsyncWebClient
) -> None:
    studio = slack.channel("studio").id
    sent = [(await client.chat_postMessage(channel=studio, text=f"{each}"))["ts"] for each in "abc"]

    first = await client.conversations_history(channel=studio, limit=2)
    cursor = first["response_metadata"]["next_cursor"]
    second = await client.conversations_history(channel=studio, limit=2, cursor=cursor)
    since = await client.conversations_history(channel=studio, oldest=sent[1])
    inclusive = await client.conversations_history(channel=studio, oldest=sent[1], inclusive=True)

    assert [each["text"] for each in first["messages"]] == ["c", "b"]
    assert [each["text"] for each in second["messages"]] == ["a"]
    assert (first["has_more"], second["has_more"]) == (True, False)
    assert [each["text"] for each in since["messages"]] == ["c"]
    assert [each["text"] for each in inclusive["messages"]] == ["c", "b"]
    wrong = client.conversations_history(channel=studio, cursor="what")
    assert await refusal(wrong) == "invalid_cursor"


async def test_a_thread_is_read_with_its_parent_and_with_metadata_only_if_asked_for(
    slack: SandboxSlack, client: AsyncWebClient
) -> None:
    studio = slack.channel("studio").id
    card = (await client.chat_postMessage(channel=studio, text="Card"))["ts"]
    metadata = {"event_type": "reply", "event_payload": {"delivery": 7}}
    await client.chat_postMessage(channel=studio, text="Reply", thread_ts=card, metadata=metadata)

    plain = await client.conversations_replies(channel=studio, ts=card)
    full = await client.conversations_replies(channel=studio, ts=card, include_all_metadata=True)

    assert [each["text"] for each in plain["messages"]] == ["Card", "Reply"]
    assert plain["messages"][0]["reply_count"] == 1
    assert "metadata" not in plain["messages"][1]
    assert full["messages"][1]["metadata"] == metadata


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


async def test_the_bot_can_read_its_own_identity_and_users(
    slack: SandboxSlack, client: AsyncWebClient
) -> None:
    me = await client.auth_test()
    user = await client.users_info(user=slack.user("ana").id)

    assert me["user_id"] == slack.bot.id
    assert "chat:write" in me.headers["x-oauth-scopes"]
    assert (user["user"]["name"], user["user"]["tz"]) == ("ana", "Europe/Lisbon")
    assert await refusal(client.users_info(user="U404")) == "user_not_found"


async def test_slack_says_who_is_a_guest_and_who_is_of_another_organisation(
    slack: SandboxSlack, client: AsyncWebClient
) -> None:
    gus = slack.add_user("gus", guest="single-channel")
    sam = slack.add_user("sam", team="T0ELSEWHERE")

    ana = (await client.users_info(user=slack.user("ana").id))["user"]
    guest = (await client.users_info(user=gus.id))["user"]
    stranger = (await client.users_info(user=sam.id))["user"]

    assert (ana["is_restricted"], ana["is_ultra_restricted"]) == (False, False)
    assert "is_stranger" not in ana
    assert (guest["is_restricted"], guest["is_ultra_restricted"]) == (True, True)
    assert (stranger["is_stranger"], stranger["team_id"]) == (True, "T0ELSEWHERE")
    slack.scopes.discard("users:read")
    assert await refusal(client.users_info(user=gus.id)) == "missing_scope"


async def test_who_is_in_a_user_group_comes_whole_and_needs_a_scope_a_plan_and_the_group(
    slack: SandboxSlack, client: AsyncWebClient
) -> None:
    assert slack.user_groups is not None
    slack.user_groups["S1"] = group = UserGroup({slack.user("ben").id, slack.user("ana").id})
    list_users = client.usergroups_users_list
    assert (await list_users(usergroup="S1"))["users"] == sorted(group.members)
    group.is_disabled = True
    assert await refusal(list_users(usergroup="S1")) == "no_such_subteam"
    assert (await list_users(usergroup="S1", include_disabled=True))["users"]
    assert await refusal(list_users(usergroup="S404")) == "no_such_subteam"
    slack.user_groups = None
    assert await refusal(list_users(usergroup="S1")) == "plan_upgrade_required"
    slack.scopes.discard("usergroups:read")
    assert await refusal(list_users(usergroup="S1")) == "missing_scope"


async def test_the_id_of_the_app_comes_with_its_bot_and_needs_a_scope(
    slack: SandboxSlack, client: AsyncWebClient
) -> None:
    me = await client.auth_test()
    assert "app_id" not in me.data
    assert (await client.bots_info(bot=me["bot_id"]))["bot"]["app_id"] == slack.app_id
    assert await refusal(client.bots_info(bot="B404")) == "bot_not_found"
    slack.scopes.discard("users:read")
    assert await refusal(client.bots_info(bot=me["bot_id"])) == "missing_scope"


async def test_slack_says_which_channels_are_shared_with_other_organisations(
    slack: SandboxSlack, client: AsyncWebClient
) -> None:
    studio = slack.channel("studio").id
    assert not (await client.conversations_info(channel=studio))["channel"]["is_ext_shared"]
    slack.change_channel("studio", is_ext_shared=True)
    assert (await client.conversations_info(channel=studio))["channel"]["is_ext_shared"]
    slack.scopes.discard("channels:read")
    assert await refusal(client.conversations_info(channel=studio)) == "missing_scope"


async def test_a_permalink_leads_to_a_reply_too(
    slack: SandboxSlack, client: AsyncWebClient
) -> None:
    studio = slack.channel("studio").id
    card = (await client.chat_postMessage(channel=studio, text="Card"))["ts"]
    reply = (await client.chat_postMessage(channel=studio, text="Reply", thread_ts=card))["ts"]

    link = await client.chat_getPermalink(channel=studio, message_ts=reply)

    assert link["permalink"].endswith(f"/p{reply.replace('.', '')}?thread_ts={card}&cid={studio}")


async def test_the_token_of_each_call_is_checked(
    slack: SandboxSlack, client: AsyncWebClient
) -> None:
    slack.auth_error = "token_revoked"
    assert await refusal(client.auth_test()) == "token_revoked"
    client.token = "xoxb-other"
    assert await refusal(client.auth_test()) == "invalid_auth"
    client.token = None
    assert await refusal(client.auth_test()) == "not_authed"


async def test_a_method_that_is_not_known_is_refused(client: AsyncWebClient) -> None:
    assert await refusal(client.api_call("chat.shout")) == "unknown_method"


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


async def test_each_call_is_kept_and_can_be_watched_before_and_after_its_work(
    slack: SandboxSlack, client: AsyncWebClient
) -> None:
    seen: list[tuple[str, str, int]] = []

    async def watch(phase: Literal["before", "after"], method: str, _: Json) -> None:
        seen.append((phase, method, len(slack.messages("studio"))))

    slack.on_request = watch
    await client.chat_postMessage(channel=slack.channel("studio").id, text="Hello")
    await refusal(client.chat_postMessage(channel="C404", text="Hello"))

    assert seen[:2] == [("before", "chat.postMessage", 0), ("after", "chat.postMessage", 1)]
    first, second = slack.calls
    assert (first.method, first.ok, first.error) == ("chat.postMessage", True, None)
    assert first.arguments["text"] == "Hello"
    assert "token" not in first.arguments
    assert (second.ok, second.error, second.status) == (False, "channel_not_found", 200)


async def test_the_state_survives_a_restart(slack: SandboxSlack) -> None:
    Person(slack, "ana").say("Before")
    port = int(slack.url.rsplit(":", 1)[1])
    await slack.stop()
    await slack.start(port)

    assert [each.text for each in slack.messages("studio")] == ["Before"]


# Whom a message notifies


@pytest.mark.parametrize(
    ("text", "blocks", "notified"),
    [
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
    ],
)
def test_a_message_notifies_only_those_whom_slack_would(
    text: str, blocks: list[Json], notified: set[str]
) -> None:
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


async def test_a_command_arrives_escaped_where_the_manifest_says_so(
    slack: SandboxSlack, ana: Person, bot: Bot
) -> None:
    slack.should_escape = True
    await ana.command("/video", "Hi @ben & <you> in #studio: https://example.com/?a=1&b=2")

    ben, studio = slack.user("ben").id, slack.channel("studio").id
    assert bot.last["text"] == (
        f"Hi <@{ben}> &amp; &lt;you&gt; in <#{studio}>: <https://example.com/?a=1&amp;b=2>"
    )


@pytest.mark.parametrize(
    ("answered", "shown"),
    [
        ("Usage: /video", "Usage: /video"),
        ({"text": "Your jobs"}, "Your jobs"),
        (500, "dispatch_failed"),
    ],
)
async def test_the_answer_to_a_command_is_shown_to_its_user(
    slack: SandboxSlack, ana: Person, bot: Bot, answered: object, shown: str
) -> None:
    answering(bot, answered)

    answer = await ana.command("/video", "list")

    assert answer.message
    assert shown in answer.message.text
    assert slack.ephemerals("ana", "studio") == [answer.message]


async def test_the_answer_to_a_command_may_be_for_all(
    slack: SandboxSlack, ana: Person, bot: Bot
) -> None:
    answering(bot, {"response_type": "in_channel", "text": "Hello all"})
    await ana.command("/video")
    assert [each.text for each in slack.messages("studio")] == ["Hello all"]

    answering(bot, {"blocks": [section("")]})
    with pytest.raises(InvalidResponse, match="invalid_blocks"):
        await ana.command("/video")


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


async def test_pressing_a_button_sends_what_slack_sends(
    slack: SandboxSlack, ana: Person, bot: Bot, client: AsyncWebClient
) -> None:
    confirm = {
        "title": words("Sure?"),
        "text": words("It may cost twice"),
        "confirm": words("Yes"),
        "deny": words("No"),
    }
    buttons = [
        button("Create again", "again", value="7", style="danger", confirm=confirm),
        button("Watch", "watch", url="https://example.com/"),
    ]
    await client.chat_postMessage(
        channel=slack.channel("studio").id,
        text="Card",
        blocks=[{"type": "actions", "block_id": "buttons", "elements": buttons}],
    )
    (card,) = slack.messages("studio")

    assert (await ana.click(card, "Create again", confirm=False)).status is None
    assert bot.received == []
    answer = await ana.click(card, "Create again")

    assert answer.dialog == "It may cost twice"
    (action,) = bot.last["actions"]
    assert (action["action_id"], action["block_id"], action["value"]) == ("again", "buttons", "7")
    assert bot.last["message"]["ts"] == bot.last["container"]["message_ts"] == card.ts
    assert (await ana.click(card, "watch")).ok
    with pytest.raises(ClientRefusal, match="'Watch'"):
        await ana.click(card, "Cancel request")


async def test_the_answer_to_a_button_may_take_the_place_of_its_message(
    slack: SandboxSlack, ana: Person, bot: Bot
) -> None:
    blocks = [{"type": "actions", "elements": [button("Away", "away")]}]
    answering(bot, {"text": "Help", "blocks": blocks})
    message = (await ana.command("/video", "help")).message
    assert message
    answering(bot, None)
    await ana.click(message, "Away")

    assert "message" not in bot.last
    async with aiohttp.ClientSession() as session:
        link = AsyncWebhookClient(bot.last["response_url"], session=session)
        await link.send(text="Other", replace_original=True)
        assert [each.text for each in slack.ephemerals("ana", "studio")] == ["Other"]
        await link.send(delete_original=True)
    assert slack.ephemerals("ana", "studio") == []


async def test_raw_requests_can_be_wrong_in_any_way(
    slack: SandboxSlack, bot: Bot, ana: Person
) -> None:
    assert ana.slack is slack
    await deliver(slack, b"{", "application/json", timestamp="1", signature="v0=00")

    headers = bot.received[-1].headers
    assert bot.bodies[-1] == b"{"
    assert (headers["X-Slack-Request-Timestamp"], headers["X-Slack-Signature"]) == ("1", "v0=00")


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


async def test_a_file_that_was_uploaded_can_be_read_with_the_bots_token(
    slack: SandboxSlack, client: AsyncWebClient
) -> None:
    link = slack.upload("ana", "script.txt", b"Once")["url_private"]
    async with aiohttp.ClientSession() as session:
        headers = {"Authorization": f"Bearer {client.token}"}
        async with session.get(link, headers=headers) as answer:
            assert await answer.read() == b"Once"
        async with session.get(link) as answer:
            assert answer.content_type == "text/html"


@pytest.mark.parametrize(
    ("values", "why"),
    [
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
    ],
)
async def test_a_client_does_not_send_what_the_form_does_not_allow(
    ana: Person, bot: Bot, client: AsyncWebClient, values: Json, why: str
) -> None:
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
        entry("users", {"type": "multi_users_select", "max_selected_items": 1}, optional=True),
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


async def test_errors_are_shown_under_their_fields_and_the_input_stays(
    ana: Person, bot: Bot, client: AsyncWebClient
) -> None:
    modal = await opened(ana, bot, client, SCRIPT)
    answering(bot, {"response_action": "errors", "errors": {"script": "Say more"}})
    await modal.submit({"script": "Hi"})

    assert modal.is_open
    assert (modal.errors, modal.values) == ({"script": "Say more"}, {"script": "Hi"})
    answering(bot, {"response_action": "errors", "errors": {"scrpt": "Say more"}})
    with pytest.raises(InvalidResponse, match="scrpt"):
        await modal.submit()
    answering(bot, None)
    await modal.submit({"script": "Hello there"})
    assert ana.modal is None


async def test_a_submission_that_fails_leaves_the_form_with_a_notice(
    ana: Person, bot: Bot, client: AsyncWebClient
) -> None:
    modal = await opened(ana, bot, client, SCRIPT)
    answering(bot, 500)
    await modal.submit({"script": "Hi"})

    assert ana.modal
    assert (ana.modal.notice, ana.modal.values) == (CONNECTION_ERROR, {"script": "Hi"})
    answering(bot, None)
    await modal.resubmit()
    assert ana.modal is None


async def test_an_answer_may_change_the_form_lay_another_over_it_or_clear_all(
    ana: Person, bot: Bot, client: AsyncWebClient
) -> None:
    modal = await opened(ana, bot, client, SCRIPT)
    answering(bot, {"response_action": "update", "view": form(SCRIPT, title=words("Changed"))})
    await modal.submit({"script": "Hi"})
    assert (modal.title, modal.values) == ("Changed", {"script": "Hi"})

    answering(bot, {"response_action": "push", "view": form(SCRIPT, title=words("Second"))})
    await modal.submit()
    second = ana.modal
    assert second
    assert second.title == "Second"
    assert second.view.root_id == modal.view.id
    answering(bot, {"response_action": "clear"})
    await second.submit({"script": "Hi"})
    assert ana.modal is None


async def test_the_same_submission_can_come_many_times_at_once(
    ana: Person, bot: Bot, client: AsyncWebClient
) -> None:
    modal = await opened(ana, bot, client, SCRIPT)
    await modal.submit({"script": "Hi"}, clicks=3)
    await modal.resubmit(2)

    submissions = bot.bodies[1:]
    assert len(submissions) == 5
    assert len(set(submissions)) == 1
    signatures = {each.headers["X-Slack-Signature"] for each in bot.received[1:]}
    assert len(signatures) == 1


async def test_radio_buttons_can_change_the_form_and_keep_its_input(
    ana: Person, bot: Bot, client: AsyncWebClient
) -> None:
    modal = await opened(ana, bot, client, SCRIPT, BACKGROUND)
    link = entry("link", {"type": "url_text_input"})

    async def react(payload: Json) -> None:
        view = payload["view"]
        assert payload["actions"][0]["selected_option"] == option("page")
        assert view["state"]["values"]["script"]["script_entry"]["value"] == "Hi"
        await client.views_update(
            view_id=view["id"], hash=view["hash"], view=form(SCRIPT, BACKGROUND, link)
        )

    answering(bot, {"response_action": "errors", "errors": {"script": "Say more"}})
    await modal.submit({"script": "Hi"})
    bot.react = react
    await modal.choose("background", "page")

    assert modal.values == {"script": "Hi", "background": "page", "link": None}
    with pytest.raises(ClientRefusal, match="does not notify"):
        await modal.choose("script", "Ho")


async def test_a_menu_offers_what_the_bot_suggests_and_nothing_else(
    ana: Person, bot: Bot, client: AsyncWebClient
) -> None:
    modal = await opened(
        ana, bot, client, entry("replica", {"type": "external_select", "min_query_length": 0})
    )

    async def react(payload: Json) -> Json | None:
        if payload["type"] != "block_suggestion":
            return None
        return {"options": [option(each) for each in ("r1", "r2") if payload["value"] in each]}

    bot.react = react
    assert await modal.suggest("replica", "2") == [option("r2")]
    with pytest.raises(ClientRefusal, match="'R1'"):
        await modal.submit({"replica": "r3"})
    await modal.submit({"replica": "r1"})
    assert modal.values == {"replica": "r1"}
    assert ana.modal is None


async def test_a_menu_asks_only_after_enough_is_typed_and_validates_the_answer(
    ana: Person, bot: Bot, client: AsyncWebClient
) -> None:
    modal = await opened(ana, bot, client, entry("replica", {"type": "external_select"}))
    assert await modal.suggest("replica", "ab") == []
    assert len(bot.received) == 1
    answering(bot, {"options": [option("r1")] * 101})
    with pytest.raises(InvalidResponse, match="100"):
        await modal.suggest("replica", "abc")


async def test_the_bot_is_notified_of_a_closed_form_if_it_asked_for_that(
    ana: Person, bot: Bot, client: AsyncWebClient
) -> None:
    modal = await opened(ana, bot, client, SCRIPT)
    await modal.close()
    assert ana.modal is None
    assert len(bot.received) == 1

    modal = await opened(ana, bot, client, SCRIPT, notify_on_close=True)
    await modal.close()
    assert bot.last["type"] == "view_closed"
    with pytest.raises(ClientRefusal, match="closed"):
        await modal.submit({"script": "Hi"})


async def test_a_button_inside_a_form_says_which_form(
    ana: Person, bot: Bot, client: AsyncWebClient
) -> None:
    blocks = {"type": "actions", "elements": [button("More", "more")]}
    modal = await opened(ana, bot, client, SCRIPT, blocks)
    await modal.click("More")

    assert bot.last["container"] == {"type": "view", "view_id": modal.view.id}
    assert bot.last["actions"][0]["action_id"] == "more"


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


async def test_a_message_is_shown_as_plain_text(
    slack: SandboxSlack, client: AsyncWebClient, clock: ManualClock
) -> None:
    studio, ana = slack.channel("studio").id, slack.user("ana")
    stamp = int(clock.now().timestamp())
    card = await client.chat_postMessage(
        channel=studio,
        text="Going",
        blocks=[
            {"type": "header", "text": words("Welcome")},
            section(f"*For* <@{ana.id}>: <https://example.com/|the page> &amp; more"),
            {
                "type": "context",
                "elements": [
                    {"type": "mrkdwn", "text": f"since <!date^{stamp}^{{date_pretty}} {{time}}|x>"}
                ],
            },
            {"type": "actions", "elements": [button("Watch", "watch"), button("Stop", "stop")]},
        ],
    )
    await client.chat_postMessage(channel=studio, text="Ready", thread_ts=card["ts"])
    (reply,) = slack.thread("studio", card["ts"])

    assert render(slack.messages("studio")[0], slack, ana.zone).splitlines() == [
        "replica-videos  09:00  APP",
        "  WELCOME",
        "  For @ana: the page (https://example.com/) & more",
        "  since today 9:00 AM",
        "  [Watch] [Stop]",
    ]
    assert render(reply, slack) == "    replica-videos  09:00  APP\n      Ready"
    await client.chat_update(channel=studio, ts=card["ts"], text="Ready")
    assert render(slack.messages("studio")[0], slack).endswith("Ready (edited)")


async def test_a_form_is_shown_with_values_and_errors(
    slack: SandboxSlack, ana: Person, bot: Bot, client: AsyncWebClient
) -> None:
    modal = await opened(ana, bot, client, SCRIPT, BACKGROUND)
    answering(bot, {"response_action": "errors", "errors": {"script": "Say more"}})
    await modal.submit({"script": "Hi", "background": "page"})

    lines = render_view(modal.view, slack).splitlines()

    assert lines[0].startswith("┌─ Create a video ")
    assert lines[1:6] == [
        "│ Script",
        "│   Hi",
        "│   ! Say more",
        "│ Background",
        "│   ○ None  ● Page",
    ]
    assert "[Create]" in lines[-1]


async def test_the_narrator_writes_each_event_as_it_happens(
    slack: SandboxSlack, ana: Person, bot: Bot, client: AsyncWebClient, clock: ManualClock
) -> None:
    out = io.StringIO()
    narrator = Narrator(slack, out)
    modal = await opened(ana, bot, client, SCRIPT)
    await modal.submit({"script": "Hi"})
    await clock.advance(timedelta(seconds=2.3))
    card = await client.chat_postMessage(channel=slack.channel("studio").id, text="Going")
    await client.chat_update(channel=card["channel"], ts=card["ts"], text="Ready")
    answering(bot, "Usage")
    await ana.command("/video", "help")
    narrator.stop()
    ana.say("After the end")

    written = out.getvalue()
    for part in (
        "+0.0s ana  a form opened",
        "+0.0s ana  the form “Create a video” closed",
        "+2.3s #studio\nreplica-videos  09:00  APP\n  Going",
        "+2.3s #studio  changed to\n",
        "Ready (edited)",
        "shown to ana\nreplica-videos  09:00  APP  (Only visible to you)",
    ):
        assert part in written
    assert "After the end" not in written


async def test_subscribers_get_every_event(slack: SandboxSlack) -> None:
    events: list[Event] = []
    slack.subscribe(events.append)
    said = Person(slack, "ana").say("Hello")

    assert [(each.kind, each.message) for each in events] == [("posted", said)]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("*bold* _italic_ ~gone~ `code`", "bold italic gone code"),
        ("2 * 3 * 4 and snake_case_name", "2 * 3 * 4 and snake_case_name"),
        ("<https://example.com>", "https://example.com"),
        ("<mailto:ana@example.com|Ana>", "Ana (mailto:ana@example.com)"),
        ("<!channel> <!subteam^S1|@all> <@U1> <#C1>", "@channel @all U1 C1"),
        ("&lt;b&gt; &amp;amp;", "<b> &amp;"),
        ("<!date^1772442000^{date_num} {date_long}|x>", "2026-03-02 Monday, March 2nd, 2026"),
        ("<!date^1772438400^{ago}|x>", "1 hour ago"),
        ("<!date^1772528400^{date_short_pretty} {time_secs}|x>", "tomorrow 9:00:00 AM"),
    ],
)
def test_markup_is_read_as_plain_text(written: str, read: str, clock: ManualClock) -> None:
    assert as_plain(written, str, clock.now()) == read


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
