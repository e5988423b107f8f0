"""The sandbox's Slack: shortcuts, the Home tab, and the events that the app is subscribed to."""

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from urllib.parse import parse_qs

import pytest
from aiohttp import web
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from sandbox import events
from sandbox.block_kit import Json
from sandbox.clock import ManualClock
from sandbox.driver import ClientRefusal, Person
from sandbox.http import Server
from sandbox.slack import SandboxSlack
from sandbox.slack_objects import Shortcut

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
def slack(slack: SandboxSlack) -> SandboxSlack:
    slack.app = replace(slack.app, shortcuts=SHORTCUTS)
    events.follow(slack)
    return slack


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
