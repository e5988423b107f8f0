"""The requests that Slack sends to a bot when a person does something, signed, over real HTTP."""

import asyncio
import contextlib
import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl, quote_plus, urlsplit

import aiohttp

from sandbox.block_kit import Json
from sandbox.form import ClientRefusal, Field, Gone, elements
from sandbox.slack import SandboxSlack
from sandbox.slack_objects import TEAM, Channel, User
from sandbox.socket_mode import EnvelopeType
from sandbox.wire import NO_ANSWER

TOKEN: Final = "verification-token"
_FORM: Final = "application/x-www-form-urlencoded"
# What a form escapes of ASCII, with "%" and "+" first: they are in what others become. Views are
# long, and ``urlencode`` looks at each character by itself.
_UNSAFE: Final = "%+" + "".join(
    c for c in map(chr, range(128)) if c not in {"%", "+", quote_plus(c)}
)
_REQUEST_URL: Final = ContextVar[str | None]("request_url", default=None)
_BUTTON_KEYS: Final = ("type", "action_id", "text", "value", "style", "url", "selected_option")


class InvalidResponse(Exception):
    """The bot answered with something that Slack would not accept."""


@dataclass(frozen=True)
class Response:
    """The bot's response to a request.

    ``status`` is None if nothing was sent, or no response came in time. ``dialog`` is
    the text of the confirmation dialog that was shown first.
    """

    status: int | None
    body: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    dialog: str | None = None

    @property
    def ok(self) -> bool:
        """Return whether it was a 200 in time."""
        return self.status == HTTPStatus.OK

    @property
    def json(self) -> Json | None:
        """Return the body as a JSON object, or None if it is not one."""
        try:
            value = json.loads(self.body)
        except ValueError:
            return None
        return value if isinstance(value, dict) else None


@contextlib.contextmanager
def balanced_to(url: str) -> Iterator[None]:
    """Deliver what this task sends to ``url``, as a load balancer before several copies would."""
    token = _REQUEST_URL.set(url)
    try:
        yield
    finally:
        _REQUEST_URL.reset(token)


async def deliver(
    slack: SandboxSlack,
    body: bytes,
    content_type: str = _FORM,
    *,
    timestamp: str | None = None,
    signature: str | None = None,
    headers: Mapping[str, str] | None = None,
    retry: int = 0,
) -> Response:
    """Send raw bytes to the bot's request URL, or what they say in an envelope of Socket Mode.

    An envelope has no timestamp, signature or headers.

    Args:
        slack: its signing secret and request URL are used.
        body: what to send.
        content_type: the type of the body.
        timestamp: seconds since 1970 for the signature; by default the time of the clock.
        signature: replaces the correct one.
        headers: override those that Slack sends.
        retry: the number of the retry; 0 for the first try.

    Raises:
        RuntimeError: no request URL is set, or the workspace is not started.
    """
    if not slack.is_connected:
        raise RuntimeError("set the workspace's request_url first")
    if slack.socket_mode.enabled:
        return await _deliver_in_envelope(slack, body, content_type, retry)
    stamp = timestamp or timestamp_of(slack)
    sent = {
        "Content-Type": content_type,
        "User-Agent": "Slackbot 1.0 (+https://api.slack.com/robots)",
        "X-Slack-Request-Timestamp": stamp,
        "X-Slack-Signature": signature or _signature(slack.signing_secret, stamp, body),
    }
    if retry:
        sent |= {"X-Slack-Retry-Num": str(retry), "X-Slack-Retry-Reason": "http_timeout"}
    sent |= headers or {}
    status, text, received = None, "", {}
    url = _REQUEST_URL.get() or slack.request_url
    path = urlsplit(url).path
    with slack.wire.exchange("slack", "bot", "POST", path, body) as exchange:
        try:
            async with (
                asyncio.timeout(slack.response_timeout.total_seconds()),
                slack.session.post(url, data=body, headers=sent, allow_redirects=False) as response,
            ):
                text = await response.text()
                status, received = response.status, dict(response.headers)
            exchange.answered(status, text.encode())
        except (TimeoutError, aiohttp.ClientError) as error:
            exchange.failed = f"{NO_ANSWER}: {type(error).__name__}"
    return Response(status, text, received)


async def _deliver_in_envelope(
    slack: SandboxSlack, body: bytes, content_type: str, retry: int
) -> Response:
    kind: EnvelopeType = "events_api"
    if content_type == _FORM:
        fields = dict(parse_qsl(body.decode(), keep_blank_values=True))
        kind = "interactive" if "payload" in fields else "slash_commands"
        payload = json.loads(fields["payload"]) if "payload" in fields else fields
    else:
        payload = json.loads(body)
    with slack.wire.exchange("slack", "bot", "WSS", f"/{kind}", body) as exchange:
        answer = await slack.socket_mode.deliver(kind, payload, retry=retry)
        if answer is None:
            return Response(None)
        said = json.dumps(answer["payload"]) if answer.get("payload") else ""
        exchange.answered(HTTPStatus.OK, said.encode())
    return Response(HTTPStatus.OK, said)


async def interact(slack: SandboxSlack, payload: Json) -> Response:
    """Send the payload of an interaction."""
    return await deliver(slack, encoded(payload))


def home_of(slack: SandboxSlack, user: User) -> str | None:
    """Return the id of the organisation on Enterprise Grid that a user is from, if any."""
    return user.enterprise or (slack.enterprise if user.team == TEAM else None)


def encoded(payload: Json) -> bytes:
    """Return the payload of an interaction as the form body that Slack sends."""
    text = json.dumps(payload)
    for each in _UNSAFE:
        text = text.replace(each, quote_plus(each))
    return f"payload={text}".encode()


def interaction(slack: SandboxSlack, user: User, kind: str, place: Channel | None) -> Json:
    """Return the members that the payloads of all interactions have, with a new trigger.

    Where a person of another organisation acts, ``user.team_id`` is theirs. ``team`` is the app's
    for an action (https://github.com/slackapi/java-slack-sdk/issues/1041), and theirs for a view,
    which has the app's under ``app_installed_team_id``
    (https://github.com/slackapi/bolt-js/issues/1614).
    """
    team, enterprise = TEAM, slack.enterprise
    if kind.startswith("view_"):
        team, enterprise = user.team, home_of(slack, user)
    return {
        "type": kind,
        "token": TOKEN,
        "api_app_id": slack.app_id,
        "team": {"id": team, "domain": "sandbox"},
        "enterprise": {"id": enterprise, "name": "Organisation"} if enterprise else None,
        "is_enterprise_install": False,
        "user": {"id": user.id, "username": user.name, "name": user.name, "team_id": user.team},
        "trigger_id": slack.new_trigger(user.id, place.id if place else None),
    }


def find_button(blocks: list[Json], name: str) -> tuple[Json, Json]:
    """Return a button and its block, by its label or ``action_id``.

    What an overflow menu offers is found by its label: the menu is returned with that chosen.

    Raises:
        ClientRefusal: there is no such button.
    """
    there = []
    for block in blocks:
        for element in elements(block):
            if element["type"] == "button":
                words = element["text"]["text"]
                if name in {words, element["action_id"]}:
                    return block, element
                there.append(repr(words))
            for option in element["options"] if element["type"] == "overflow" else []:
                if name == option["text"]["text"]:
                    return block, {**element, "selected_option": option}
                there.append(repr(option["text"]["text"]))
    raise ClientRefusal(f"no button {name!r}; there are: {', '.join(there) or 'none'}")


def find_element(blocks: list[Json], block_id: str, action_id: str) -> tuple[Json, Json]:
    """Return what can be pressed or chosen under these ids, with its block.

    Raises:
        Gone: there is no such element.
    """
    for block in blocks:
        if block["block_id"] == block_id:
            for element in [block["element"]] if block["type"] == "input" else elements(block):
                if element["action_id"] == action_id:
                    return block, element
    raise Gone("it is not there any more")


def dialog_of(element: Json) -> str | None:
    """Return the text of the element's confirmation dialog, or None."""
    return str(element["confirm"]["text"]["text"]) if "confirm" in element else None


def button_action(slack: SandboxSlack, block: Json, element: Json) -> Json:
    """Return the action of pressing a button, or of what is chosen in an overflow menu."""
    kept: Json = {key: element[key] for key in _BUTTON_KEYS if key in element}
    return {**kept, "block_id": block["block_id"], "action_ts": action_ts(slack)}


def element_action(slack: SandboxSlack, block: Json, element: Json, value: object) -> Json:
    """Return the action of pressing a button, or of choosing ``value`` in an overflow menu.

    Raises:
        ClientRefusal: it is neither, or does not offer the value.
    """
    if element["type"] == "button":
        return button_action(slack, block, element)
    for option in element.get("options", []) if element["type"] == "overflow" else []:
        if option.get("value") == value:
            return button_action(slack, block, {**element, "selected_option": option})
    raise ClientRefusal(f"{value!r} is not offered")


def field_action(slack: SandboxSlack, field: Field, state: Json) -> Json:
    """Return the action of changing a field to ``state``."""
    ids = {"action_id": field.action_id, "block_id": field.block_id}
    return {**state, **ids, "action_ts": action_ts(slack)}


def options_of(answer: Response | None) -> list[Json]:
    """Return the options of a response, those in groups too; none if it is not ok."""
    said = (answer.json or {}) if answer is not None and answer.ok else {}
    groups = said.get("option_groups", [])
    return [*said.get("options", []), *(each for group in groups for each in group["options"])]


def action_ts(slack: SandboxSlack) -> str:
    """Return the current time as in the payloads of actions."""
    return f"{slack.clock.now().timestamp():.6f}"


def timestamp_of(slack: SandboxSlack) -> str:
    """Return the current time as in the signature of a request."""
    return str(int(slack.clock.now().timestamp()))


def _signature(secret: str, stamp: str, body: bytes) -> str:
    base = b":".join([b"v0", stamp.encode(), body])
    return "v0=" + hmac.new(secret.encode(), base, hashlib.sha256).hexdigest()
