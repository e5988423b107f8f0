"""The Events API: what happens in the workspace, sent to the app that is subscribed to it.

https://docs.slack.dev/apis/events-api
"""

import json
import secrets
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Final

from sandbox.block_kit import Json
from sandbox.delivery import TOKEN, Response, deliver, home_of
from sandbox.slack import SandboxSlack
from sandbox.slack_objects import TEAM, Event, Message, View

_JSON: Final = "application/json"
# After a try that is not answered with 2xx within three seconds:
# https://docs.slack.dev/apis/events-api#retries
_RETRIES: Final = (timedelta(0), timedelta(minutes=1), timedelta(minutes=5))
#: The scope that a subscription needs: https://docs.slack.dev/reference/events.
_SCOPES: Final = {"app_mention": "app_mentions:read", "message.im": "im:history"}
_SUCCESS: Final = 2  # of an HTTP status, its first digit
_NOT_RETRIED: Final = ("X-Slack-No-Retry", "1")


def follow(slack: SandboxSlack) -> Callable[[], None]:
    """Send events about the messages of a workspace; return a function that ends it."""
    return slack.subscribe(partial(_on_change, slack))


async def verify_request_url(slack: SandboxSlack) -> bool:
    """Return whether the request URL answers as Slack requires before it sends events there.

    https://docs.slack.dev/reference/events/url_verification
    """
    challenge = secrets.token_urlsafe(40)
    asked = {"type": "url_verification", "token": TOKEN, "challenge": challenge}
    answer = await deliver(slack, json.dumps(asked).encode(), _JSON)
    return answer.ok and challenge in {answer.body.strip(), (answer.json or {}).get("challenge")}


async def open_home(slack: SandboxSlack, user: str, tab: str = "home") -> Response:
    """Send that a user has opened a tab of the app.

    https://docs.slack.dev/reference/events/app_home_opened
    """
    event: Json = {
        "type": "app_home_opened",
        "user": user,
        "channel": slack.dm(user).id,
        "tab": tab,
        "event_ts": _stamp(slack),
    }
    view: View | None = slack.homes.get(user)
    if view is not None and tab == "home":
        event["view"] = view.payload()
    return await send(slack, event)


async def send(slack: SandboxSlack, event: Json, name: str = "") -> Response:
    """Send an event if the app is subscribed to it, again up to three times; return the answer.

    Args:
        slack: where it happened.
        event: what happened.
        name: the subscription, if that is not the type of the event.
    """
    name = name or str(event["type"])
    scope = _SCOPES.get(name)
    if name not in slack.app.events or (scope and scope not in slack.scopes):
        return Response(None)
    if not slack.is_connected:
        return Response(None)
    payload = _payload(slack, event)
    slack.sent_events.append(payload)
    return await send_again(slack, payload, retry=0)


async def send_again(slack: SandboxSlack, payload: Json, *, retry: int = 1) -> Response:
    """Send an event that was sent before, with the same ``event_id``; ``retry`` counts the tries.

    A try that fails is followed by the next one, at the time that Slack chooses for it.
    """
    answer = await deliver(slack, json.dumps(payload).encode(), _JSON, retry=retry)
    accepted = answer.status is not None and answer.status // 100 == _SUCCESS
    if not accepted and retry < len(_RETRIES) and _NOT_RETRIED not in answer.headers.items():
        again = partial(send_again, slack, payload, retry=retry + 1)
        slack.schedule(_RETRIES[retry], again)
    return answer


def _payload(slack: SandboxSlack, event: Json) -> Json:
    enterprise = slack.enterprise
    return {
        "token": TOKEN,
        "team_id": TEAM,
        "api_app_id": slack.app_id,
        "type": "event_callback",
        "event_id": f"Ev{secrets.token_hex(5).upper()}",
        "event_time": int(slack.clock.now().timestamp()),
        "authorizations": [
            {
                "enterprise_id": enterprise,
                "team_id": TEAM,
                "user_id": slack.bot.id,
                "is_bot": True,
                "is_enterprise_install": False,
            }
        ],
        "event": event,
    }


def _on_change(slack: SandboxSlack, change: Event) -> None:
    message = change.message
    if message is None or message.visible_to:
        return
    place = slack.channels[message.channel]
    if slack.bot.id not in place.members:
        return
    if place.kind == "im":
        event = _direct_message_event(slack, change.kind, message)
        if event is not None:
            slack.schedule(timedelta(0), partial(send, slack, event, "message.im"))
    elif change.kind == "posted" and not message.is_from_bot and slack.bot.id in message.pings:
        event = {**_message_event(slack, message), "type": "app_mention"}
        slack.schedule(timedelta(0), partial(send, slack, event))


def _direct_message_event(slack: SandboxSlack, kind: str, message: Message) -> Json | None:
    """Return the event of a change in a direct message with the app, by the app too.

    https://docs.slack.dev/reference/events/message.im
    """
    beside = {"channel_type": "im", "event_ts": _stamp(slack)}
    hidden = {"type": "message", "hidden": True, "channel": message.channel, "ts": _stamp(slack)}
    match kind:
        case "posted":
            return {**_message_event(slack, message), **beside}
        case "edited":
            shown = message.payload()
            return {**hidden, **beside, "subtype": "message_changed", "message": shown}
        case "deleted":
            return {**hidden, **beside, "subtype": "message_deleted", "deleted_ts": message.ts}
    return None


def _message_event(slack: SandboxSlack, message: Message) -> Json:
    """Return a message as its event has it.

    That of a person of another organisation names their team:
    https://docs.slack.dev/apis/slack-connect.
    """
    user = slack.users[message.user]
    shown = {**message.payload(), "channel": message.channel, "event_ts": message.ts}
    if user.team != TEAM:
        shown |= {"team": user.team, "user_team": user.team, "source_team": user.team}
        if enterprise := home_of(slack, user):
            shown["enterprise"] = enterprise
    return shown


def _stamp(slack: SandboxSlack) -> str:
    return f"{slack.clock.now().timestamp():.6f}"
