"""Creates apps from manifests, and says what is wrong with one, as Slack does.

https://docs.slack.dev/reference/methods/apps.manifest.create; the fields and their limits are those
of https://docs.slack.dev/reference/app-manifest.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from sandbox.block_kit import Json
from sandbox.slack_objects import APP, SlackError
from sandbox.web_api_arguments import invalid_arguments

#: How the token of the call begins, and how its other one does, which only renews it.
TOKEN, REFRESH_TOKEN = "xoxe.xoxp-", "xoxe-"
CREATE: Final = "apps.manifest.create"
_PARTS: Final = frozenset(
    {"_metadata", "display_information", "features", "oauth_config", "settings", "functions"}
)
# Texts with a longest length, in the order of the page: where they are, and whether one is needed.
_TEXTS: Final = (
    ("/display_information/name", 35, True),
    ("/display_information/description", 140, False),
    ("/display_information/background_color", 7, False),
    ("/features/bot_user/display_name", 80, False),
)
_MAX_COMMANDS: Final = 50
_MAX_SHORTCUTS: Final = 10
_COMMAND: Final = re.compile(r"/[^/\s]{1,31}")
_COLOR: Final = re.compile("#(?:[0-9a-fA-F]{3}){1,2}")


def authenticate(method: str, token: str, expected: str) -> None:
    """Check a token that begins as one for app configurations does, or that of ``CREATE``.

    Raises:
        SlackError: it is not the one for the method.
    """
    if not token:
        raise SlackError("not_authed")
    if method != CREATE or token.startswith(("xoxb-", "xapp-", REFRESH_TOKEN)):
        raise SlackError("not_allowed_token_type")
    if token != expected:
        raise SlackError("invalid_auth")


def created(arguments: Json, *, signing_secret: str) -> tuple[Json, Any]:
    """Return the answer to ``CREATE``, and the manifest.

    Raises:
        SlackError: ``invalid_arguments``, ``invalid_manifest``.
    """
    text = arguments.get("manifest")
    if not isinstance(text, str) or not text:
        raise invalid_arguments("missing required field: manifest")
    try:
        manifest = json.loads(text)
    except ValueError:
        manifest = None
    if errors := [*_mistakes(manifest)]:
        listed = [{"message": said, "pointer": pointer} for said, pointer in errors]
        raise SlackError("invalid_manifest", errors=listed)
    scopes = ",".join(manifest.get("oauth_config", {}).get("scopes", {}).get("bot", []))
    return {
        "app_id": APP,
        "credentials": {
            "client_id": "1.2",
            "client_secret": "made-up-client-secret",
            "verification_token": "made-up-verification-token",
            "signing_secret": signing_secret,
        },
        "oauth_authorize_url": f"https://slack.com/oauth/v2/authorize?client_id=1.2&scope={scopes}",
    }, manifest


def _mistakes(manifest: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - any JSON
    if not isinstance(manifest, dict):
        yield "must be object", "/"
        return
    for name in manifest.keys() - _PARTS:
        yield f"must NOT have additional properties: {name}", "/"
    for pointer, longest, is_needed in _TEXTS:
        value = _at(manifest, pointer)
        if value is None and is_needed:
            yield "must have required property", pointer
        elif value is not None and not (isinstance(value, str) and 0 < len(value) <= longest):
            yield f"must be a string of at most {longest} characters", pointer
    color = _at(manifest, "/display_information/background_color")
    if color is not None and not _COLOR.fullmatch(str(color)):
        yield "must be a hex color", "/display_information/background_color"
    is_socket = _at(manifest, "/settings/socket_mode_enabled") is True
    yield from _command_mistakes(manifest, is_socket=is_socket)
    yield from _connection_mistakes(manifest, is_socket=is_socket)


def _command_mistakes(manifest: Json, *, is_socket: bool) -> Iterator[tuple[str, str]]:
    commands = _at(manifest, "/features/slash_commands") or []
    if len(commands) > _MAX_COMMANDS:
        yield f"must NOT have more than {_MAX_COMMANDS} items", "/features/slash_commands"
    for number, each in enumerate(commands):
        pointer = f"/features/slash_commands/{number}"
        if not _COMMAND.fullmatch(str(each.get("command"))):
            yield "must start with a slash and have at most 32 characters", f"{pointer}/command"
        if not each.get("description"):
            yield "must have required property 'description'", pointer
        if not is_socket and not each.get("url"):
            yield "Slash commands require a Request URL", pointer
    shortcuts = _at(manifest, "/features/shortcuts") or []
    if len(shortcuts) > _MAX_SHORTCUTS:
        yield f"must NOT have more than {_MAX_SHORTCUTS} items", "/features/shortcuts"
    for number, each in enumerate(shortcuts):
        missing = {"name", "type", "callback_id", "description"} - each.keys()
        for name in sorted(missing):
            yield f"must have required property '{name}'", f"/features/shortcuts/{number}"


def _connection_mistakes(manifest: Json, *, is_socket: bool) -> Iterator[tuple[str, str]]:
    """Yield what the page of the method has as its example, word for word."""
    events = _at(manifest, "/settings/event_subscriptions")
    if events is not None and not is_socket and not events.get("request_url"):
        said = "Event Subscription requires either Request URL or Socket Mode Enabled"
        yield said, "/settings/event_subscriptions"
    interactivity = _at(manifest, "/settings/interactivity") or {}
    if interactivity.get("is_enabled") and not is_socket and not interactivity.get("request_url"):
        yield "Interactivity requires a Request URL", "/settings/interactivity"
        yield "Interactivity requires Socket Mode enabled", "/settings/interactivity"
    for name in ("bot", "bot_optional"):
        scopes = _at(manifest, f"/oauth_config/scopes/{name}") or []
        if not all(isinstance(each, str) and each for each in scopes):
            yield "must be array of strings", f"/oauth_config/scopes/{name}"


def _at(manifest: Json, pointer: str) -> Any:  # noqa: ANN401 - any JSON
    found: Any = manifest
    for name in pointer.strip("/").split("/"):
        found = found.get(name) if isinstance(found, dict) else None
    return found
