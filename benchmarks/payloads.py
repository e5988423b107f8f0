"""What Slack and the service send, signed and ready to go over the wire."""

import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

SECRET: Final = "8f742231b10e8888abcd99eeeeee85a5"
"""The signing secret of all contestants."""
TOKEN: Final = "xoxb-benchmarks"
"""Their bot token."""
PATH: Final = "/slack/events"
REPLICA: Final = "r-anna-42"
"""The replica of all submissions."""

PEOPLE: Final = 256
"""Who send the submissions of a load: nobody reaches a limit, whose defaults are in force."""

_USER: Final = "U000000002"
# Letters that no encoding changes: put in place in the bytes that are ready.
_VIEW_ID: Final = "VIEWIDVIEWID"
_CHANNEL: Final = "CHANNELCHANNEL"


def command(port: int, text: str = "help", *, number: int = 0, user: str = _USER) -> bytes:
    """Return the request of ``/video TEXT``; ``number`` makes it unique."""
    form = {
        "token": "verification-token",
        "team_id": "T000000001",
        "team_domain": "company",
        "channel_id": _channel_of(user),
        "channel_name": "studio",
        "user_id": user,
        "user_name": "ana",
        "command": "/video",
        "text": text,
        "api_app_id": "A000000001",
        "is_enterprise_install": "false",
        "response_url": "https://hooks.example.com/commands/T000000001/1/abcdefghijkl",
        "trigger_id": f"{number}.738474920.8088930838d88f008e0",
    }
    return _signed(port, urlencode(form).encode())


def click(port: int, action_id: str, *, number: int = 0) -> bytes:
    """Return the request of a button that was pressed in a message; ``number`` makes it unique."""
    button = {
        "type": "button",
        "action_id": action_id,
        "block_id": "buttons",
        "text": {"type": "plain_text", "text": "Check now", "emoji": True},
        "value": "abcdefghjk",
        "action_ts": f"1700000000.{number:06d}",
    }
    payload = {
        **_interaction("block_actions"),
        "trigger_id": "13345224609.738474920.8088930838d88f008e0",
        "container": {
            "type": "message",
            "message_ts": "1700000000.000100",
            "channel_id": "C000000005",
            "is_ephemeral": False,
        },
        "channel": {"id": "C000000005", "name": "studio"},
        "message": {
            "type": "message",
            "user": "U000000009",
            "ts": "1700000000.000100",
            "text": "Video for @ana · Rendering",
            "blocks": [
                {
                    "type": "section",
                    "block_id": "words",
                    "text": {"type": "mrkdwn", "text": "*Video for <@U000000002>* · Rendering"},
                },
                {"type": "actions", "block_id": "buttons", "elements": [button]},
            ],
        },
        "state": {"values": {}},
        "response_url": "https://hooks.example.com/actions/T000000001/1/abcdefghijkl",
        "actions": [button],
    }
    return _signed(port, _encoded(payload))


def lookup(port: int, query: str, *, number: int = 0) -> bytes:
    """Return the request for the options of the replica field, with ``query`` typed into it.

    ``number`` is that of the form.
    """
    view_id = f"V{number:09d}"
    payload = {
        **_interaction("block_suggestion"),
        "container": {"type": "view", "view_id": view_id},
        "view": _view(view_id, "C000000005", {}),
        "block_id": "replica_id",
        "action_id": "video_replica",
        "value": query,
    }
    return _signed(port, _encoded(payload))


def channel_message(port: int, *, number: int) -> bytes:
    """Return the event of a message in a channel, to which the bot says nothing.

    ``number`` makes it unique. https://docs.slack.dev/reference/events/message.channels
    """
    event = {"type": "message", "channel_type": "channel", "user": _USER}
    return _event(port, event, number)


def home_opened(port: int, user: str, *, number: int) -> bytes:
    """Return the event that a person opened the Home tab; ``number`` makes it unique.

    https://docs.slack.dev/reference/events/app_home_opened
    """
    event = {
        "type": "app_home_opened",
        "user": user,
        "channel": "D000000001",
        "tab": "home",
        "event_ts": f"1700000000.{number:06d}",
    }
    return _event(port, event, number)


def person(number: int) -> str:
    """Return the id of a person, by a number from 0."""
    return f"U{100 + number:09d}"


def _channel_of(user: str) -> str:
    """Return the channel in which only this person asks for something."""
    return f"C{user[1:]}"


class Submissions:
    """Submissions of the create form, each of a form of its own, by ``people`` in turn.

    The bot asks Slack about a person and a channel that it does not know yet: a load that is
    measured comes after the first ``people`` forms.
    """

    def __init__(
        self, port: int, script: str = "Welcome to the team, Kim!", people: int = PEOPLE
    ) -> None:
        option = {"text": {"type": "plain_text", "text": "Anna · r-anna-42"}, "value": REPLICA}
        typed = {
            "replica_id": {"video_replica": _state("external_select", selected_option=option)},
            "script": {"script": _state("plain_text_input", value=script)},
        }
        payload = {
            **_interaction("view_submission"),
            "trigger_id": "13345224609.738474920.8088930838d88f008e0",
            "view": _view(_VIEW_ID, _CHANNEL, typed),
            "response_urls": [],
        }
        self._port = port
        self._people = people
        self._template = _encoded(payload)

    def one(self, number: int, user: str | None = None) -> bytes:
        """Return the signed request of form ``number``, by default of the person whose turn it is.

        It is for a channel of that person's own.
        """
        user = user or person(number % self._people)
        body = self._template.replace(_VIEW_ID.encode(), b"V%09d" % number)
        # Each of a script of its own: the same is asked for once a day.
        body = body.replace(b"Kim", b"Kim%d" % number)
        body = body.replace(_USER.encode(), user.encode())
        return _signed(self._port, body.replace(_CHANNEL.encode(), _channel_of(user).encode()))

    def many(self, number: int, first: int = 1) -> list[bytes]:
        """Return ``number`` requests, of forms from ``first`` on."""
        return [self.one(each) for each in range(first, first + number)]


def callback(path: str, port: int, video_id: str) -> bytes:
    """Return the request by which the service says that a video changed."""
    return json_post(port, path, {"video_id": video_id, "status": "ready"})


def json_post(port: int, path: str, body: Mapping[str, object]) -> bytes:
    """Return a POST of a JSON object."""
    sent = json.dumps(body).encode()
    return _request(port, "POST", path, sent, "Content-Type: application/json")


def get(port: int, path: str) -> bytes:
    """Return a GET without anything."""
    return _request(port, "GET", path, b"")


def signature(stamp: str, body: bytes) -> str:
    """Return what Slack puts into ``X-Slack-Signature``."""
    base = b":".join((b"v0", stamp.encode(), body))
    return "v0=" + hmac.new(SECRET.encode(), base, hashlib.sha256).hexdigest()


def _signed(
    port: int, body: bytes, *, content_type: str = "application/x-www-form-urlencoded"
) -> bytes:
    stamp = str(int(time.time()))  # noqa: TID251 - Slack's signatures go by the real time
    return _request(
        port,
        "POST",
        PATH,
        body,
        f"Content-Type: {content_type}",
        "User-Agent: Slackbot 1.0 (+https://api.slack.com/robots)",
        "Accept-Encoding: gzip,deflate",
        "Accept: application/json,*/*",
        f"X-Slack-Request-Timestamp: {stamp}",
        f"X-Slack-Signature: {signature(stamp, body)}",
    )


def _event(port: int, event: Mapping[str, object], number: int) -> bytes:
    payload = {
        "token": "verification-token",
        "team_id": "T000000001",
        "api_app_id": "A000000001",
        "event": event,
        "type": "event_callback",
        "event_id": f"Ev{number:09d}",
        "event_time": 1700000000,
    }
    return _signed(port, json.dumps(payload).encode(), content_type="application/json")


def _request(port: int, method: str, path: str, body: bytes, *headers: str) -> bytes:
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        *headers,
        f"Content-Length: {len(body)}",
        "",
        "",
    ]
    return "\r\n".join(lines).encode() + body


def _encoded(payload: dict[str, Any]) -> bytes:
    # Without spaces, as Slack sends it.
    return urlencode({"payload": json.dumps(payload, separators=(",", ":"))}).encode()


def _interaction(kind: str) -> dict[str, Any]:
    return {
        "type": kind,
        "token": "verification-token",
        "api_app_id": "A000000001",
        "team": {"id": "T000000001", "domain": "company"},
        "enterprise": None,
        "is_enterprise_install": False,
        "user": {"id": _USER, "username": "ana", "name": "ana", "team_id": "T000000001"},
    }


def _state(kind: str, **held: object) -> dict[str, Any]:
    return {"type": kind, **held}


def _plain(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text, "emoji": False}


def _input(
    block_id: str, label: str, hint: str, element: dict[str, Any], *, optional: bool = False
) -> dict[str, Any]:
    return {
        "type": "input",
        "block_id": block_id,
        "label": _plain(label),
        "optional": optional,
        "dispatch_action": block_id == "background",
        "hint": _plain(hint),
        "element": element,
    }


def _view(view_id: str, channel: str, typed: dict[str, Any]) -> dict[str, Any]:
    """Return the create form as Slack sends it along: its blocks, and what stands in them."""
    none = {"text": _plain("No background"), "value": "none"}
    page = {"text": _plain("A web page"), "value": "background_url"}
    file = {"text": _plain("A video file"), "value": "background_source_url"}
    blocks = [
        _input(
            "replica_id",
            "Replica",
            "Choose one that is known here, or paste another's id.",
            {
                "type": "external_select",
                "action_id": "video_replica",
                "min_query_length": 0,
                "placeholder": _plain("Choose, or paste an id"),
            },
        ),
        _input(
            "script",
            "Script",
            "150 words are about a minute. At most 3,000 characters.",
            {
                "type": "plain_text_input",
                "action_id": "script",
                "multiline": True,
                "max_length": 3000,
                "placeholder": _plain("What the replica says"),
            },
        ),
        _input(
            "video_name",
            "Name",
            "What you will know it by",
            {"type": "plain_text_input", "action_id": "video_name", "max_length": 100},
            optional=True,
        ),
        _input(
            "background",
            "Background",
            "What is seen behind the replica",
            {
                "type": "radio_buttons",
                "action_id": "video_background",
                "options": [none, page, file],
                "initial_option": none,
            },
        ),
        _input(
            "where",
            "Where to post",
            "The card goes there, and the answer into its thread.",
            {
                "type": "conversations_select",
                "action_id": "where",
                "default_to_current_conversation": True,
                "filter": {"exclude_bot_users": True},
            },
        ),
    ]
    state = {
        "replica_id": {"video_replica": _state("external_select", selected_option=None)},
        "script": {"script": _state("plain_text_input", value=None)},
        "video_name": {"video_name": _state("plain_text_input", value=None)},
        "background": {"video_background": _state("radio_buttons", selected_option=none)},
        "where": {"where": _state("conversations_select", selected_conversation=channel)},
        **typed,
    }
    return {
        "id": view_id,
        "team_id": "T000000001",
        "type": "modal",
        "blocks": blocks,
        "private_metadata": json.dumps({"channel": channel}),
        "callback_id": "create_video",
        "state": {"values": state},
        "hash": "1700000000.c5afb2c9",
        "title": _plain("Create a video"),
        "submit": _plain("Create"),
        "close": _plain("Cancel"),
        "clear_on_close": False,
        "notify_on_close": False,
        "previous_view_id": None,
        "root_view_id": view_id,
        "app_id": "A000000001",
        "external_id": "",
        "app_installed_team_id": "T000000001",
        "bot_id": "B000000001",
    }
