"""The sandbox's Slack: shortcuts, the Home tab, and the events that the app is subscribed to."""

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs

import pytest
from aiohttp import web
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from sandbox import events
from sandbox.clock import ManualClock
from sandbox.driver import ClientRefusal, Person
from sandbox.http import Server
from sandbox.slack import SandboxSlack
from sandbox.slack_objects import BOT, Shortcut

Json = dict[str, Any]

SHORTCUTS = (
    Shortcut("Use this", "message", "from_message"),
    Shortcut("Start", "global", "start"),
)
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
async def slack(clock: ManualClock) -> AsyncIterator[SandboxSlack]:
    slack = SandboxSlack(clock)
    slack.app = replace(slack.app, shortcuts=SHORTCUTS)
    events.follow(slack)
    await slack.start()
    yield slack
    await slack.stop()


@pytest.fixture
async def app(slack: SandboxSlack) -> AsyncIterator[App]:
    app, served = App(), web.Application()
    served.router.add_post("/slack/events", app.serve)
    server = Server(served)
    await server.start()
    slack.request_url = f"{server.url}/slack/events"
    yield app
    await server.stop()


@pytest.fixture
def ana(slack: SandboxSlack) -> Person:
    return Person(slack, "ana")


# Shortcuts and Home


async def test_shortcuts_say_where_they_come_from(
    slack: SandboxSlack, ana: Person, app: App
) -> None:
    parent = ana.say("A thread")
    reply = ana.say("Say this & that", thread_ts=parent.ts)
    await ana.message_shortcut(reply)
    await ana.message_shortcut(parent, "Use this")
    await ana.shortcut()

    of_reply, of_parent, alone = app.bodies
    assert (of_reply["type"], of_reply["callback_id"]) == ("message_action", "from_message")
    assert of_reply["message"]["text"] == "Say this &amp; that"
    assert of_reply["message"]["thread_ts"] == of_parent["message"]["thread_ts"] == parent.ts
    assert of_reply["channel"]["id"] == slack.channel("studio").id
    assert (alone["type"], alone["callback_id"]) == ("shortcut", "start")
    assert not {"channel", "response_url"} & alone.keys()
    with pytest.raises(ClientRefusal):
        await ana.shortcut("Use this")


async def test_buttons_of_home_name_no_channel_and_can_be_answered_nowhere(
    slack: SandboxSlack, ana: Person, app: App, client: AsyncWebClient
) -> None:
    assert (await ana.open_home()).ok
    assert "view" not in app.events[-1]
    await client.views_publish(user_id=ana.user.id, view=HOME)
    await ana.open_home()
    assert app.events[-1]["view"]["type"] == "home"

    assert ana.home is not None
    await ana.home.click("More")
    assert app.bodies[-1]["view"]["type"] == "home"
    assert not {"channel", "response_url", "message"} & app.bodies[-1].keys()
    slack.app = replace(slack.app, has_home=False)
    with pytest.raises(ClientRefusal):
        await ana.open_home()
    with pytest.raises(SlackApiError, match="not_enabled"):
        await client.views_publish(user_id=ana.user.id, view=HOME)


# Messages


async def test_mentions_are_events_where_the_app_is_in_the_channel(
    slack: SandboxSlack, ana: Person, app: App, clock: ManualClock
) -> None:
    parent = ana.mention("hello?")
    ana.mention("in a thread", thread_ts=parent.ts)
    ana.mention("not there", channel="lobby")
    ana.say("no mention")
    await clock.settle()

    assert [event["type"] for event in app.events] == ["app_mention"] * 2
    assert app.events[0]["text"] == f"<@{slack.bot.id}> hello?"
    assert app.events[1]["thread_ts"] == parent.ts
    assert len({body["event_id"] for body in app.bodies}) == 2
    slack.scopes.discard("app_mentions:read")
    ana.mention("without the scope")
    await clock.settle()
    assert len(app.events) == 2


async def test_a_person_of_another_organisation_is_named_with_their_team(
    slack: SandboxSlack, app: App, clock: ManualClock
) -> None:
    slack.add_user("zoe", team="T0OTHER", channels=["studio"])
    Person(slack, "zoe").mention("hello?")
    await clock.settle()
    assert app.bodies[0]["team_id"] != app.events[0]["user_team"] == "T0OTHER"


async def test_all_that_happens_in_the_apps_direct_message_is_an_event_also_by_the_app(
    ana: Person, app: App, clock: ManualClock, client: AsyncWebClient
) -> None:
    ana.write_direct("hello")
    posted = await client.chat_postMessage(channel=ana.user.id, text="Hello, Ana.")
    await client.chat_update(channel=posted["channel"], ts=posted["ts"], text="Hello.")
    await clock.settle()

    written, own, edited = app.events
    assert {event["channel_type"] for event in app.events} == {"im"}
    assert (written["user"], "bot_id" in written) == (ana.user.id, False)
    assert own["bot_id"] == BOT
    assert (edited["subtype"], "user" in edited) == ("message_changed", False)


async def test_in_a_locked_direct_message_nothing_can_be_typed(
    slack: SandboxSlack, ana: Person, app: App
) -> None:
    slack.app = replace(slack.app, takes_messages=False)
    with pytest.raises(ClientRefusal):
        ana.write_direct("hello")
    with pytest.raises(ClientRefusal):
        await ana.command("/video", "", slack.dm("ana").id)
    assert app.bodies == []


# Delivery


async def test_an_event_is_sent_again_three_times_until_it_is_answered(
    slack: SandboxSlack, ana: Person, app: App, clock: ManualClock
) -> None:
    app.answer = lambda _: web.Response(status=500)
    ana.mention("hello?")
    await clock.advance(timedelta(minutes=10))
    assert app.retries == ["", "1", "2", "3"]
    assert len({body["event_id"] for body in app.bodies}) == 1

    app.answer = lambda _: web.Response(status=400, headers={"X-Slack-No-Retry": "1"})
    ana.mention("again?")
    await clock.advance(timedelta(minutes=10))
    assert app.retries[4:] == [""]
    app.answer = lambda _: web.Response()
    await events.send_again(slack, slack.sent_events[-1])
    assert app.retries[5:] == ["1"]


async def test_events_need_a_subscription_and_a_request_url(
    slack: SandboxSlack, ana: Person, app: App, clock: ManualClock
) -> None:
    url, slack.request_url = slack.request_url, ""
    ana.mention("hello?")
    await clock.settle()
    slack.request_url = url
    slack.app = replace(slack.app, events=frozenset({"app_home_opened"}))
    ana.mention("hello?")
    await clock.settle()
    assert app.bodies == []
    assert (await ana.open_home()).ok


async def test_the_request_url_has_to_return_the_challenge(slack: SandboxSlack, app: App) -> None:
    assert not await events.verify_request_url(slack)
    app.answer = lambda body: web.json_response({"challenge": body["challenge"]})
    assert await events.verify_request_url(slack)


async def test_an_uninstalled_app_is_told_twice_and_its_token_ends(
    slack: SandboxSlack, app: App, clock: ManualClock, client: AsyncWebClient
) -> None:
    events.uninstall(slack)
    await clock.settle()
    assert {event["type"] for event in app.events} == {"app_uninstalled", "tokens_revoked"}
    with pytest.raises(SlackApiError, match="account_inactive"):
        await client.auth_test()
    events.reinstall(slack)
    assert (await client.auth_test())["ok"]
