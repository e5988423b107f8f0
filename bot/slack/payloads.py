"""What Slack sends, as far as the bot looks at it: each sort of request as a value.

Shapes: https://docs.slack.dev/interactivity and https://docs.slack.dev/reference/interaction-payloads.
"""

import html
import re
from typing import Any, Final

from pydantic import AliasPath, BaseModel, ConfigDict, Field

_MENTION: Final = re.compile(r"<([@#!])([^|>]*)(?:\|([^>]*))?>")
_LINK: Final = re.compile(r"<([^|>\s]+)(?:\|([^>]*))?>")


class _Payload(BaseModel):
    # What people wrote must not stand in a validation error.
    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)


class Command(_Payload):
    """A slash command."""

    command: str
    text: str = ""
    user: str = Field(validation_alias="user_id")
    channel: str = Field(validation_alias="channel_id")
    trigger_id: str
    response_url: str

    @property
    def words(self) -> str:
        """What was typed after the command, as the person saw it."""
        return whole(unescaped(self.text)).strip()


class Click(_Payload):
    """A button that was pressed in a message, or an element that was changed in a form."""

    user: str = Field(validation_alias=AliasPath("user", "id"))
    action_id: str = Field(validation_alias=AliasPath("actions", 0, "action_id"))
    value: str = Field(default="", validation_alias=AliasPath("actions", 0, "value"))
    channel: str = Field(default="", validation_alias=AliasPath("channel", "id"))
    trigger_id: str
    response_url: str | None = None
    view: "View | None" = None


class View(_Payload):
    """A form as it stands on somebody's screen."""

    id: str
    hash: str = ""
    callback_id: str = ""
    private_metadata: str = ""
    root_view_id: str = ""
    blocks: list[dict[str, Any]] = Field(default_factory=list)
    values: dict[str, dict[str, dict[str, Any]]] = Field(
        default_factory=dict, validation_alias=AliasPath("state", "values")
    )

    def typed(self) -> dict[str, str]:
        """Return what stands in each field that has something in it, by block id."""
        found = {}
        for block_id, elements in self.values.items():
            for element in elements.values():
                if value := whole(_value(element)):
                    found[block_id] = value
        return found


class Submission(_Payload):
    """A form that was sent off."""

    user: str = Field(validation_alias=AliasPath("user", "id"))
    trigger_id: str = ""
    view: View


class Lookup(_Payload):
    """A question for the options of a type-ahead field."""

    user: str = Field(validation_alias=AliasPath("user", "id"))
    action_id: str
    value: str = ""
    view: View | None = None


def whole(text: str) -> str:
    """Return text without halves of characters, which can neither be stored nor sent on."""
    return text.encode(errors="replace").decode()


def _value(element: dict[str, Any]) -> str:
    for field in ("value", "selected_conversation"):
        if isinstance(value := element.get(field), str):
            return value
    if options := element.get("selected_options"):
        return " ".join(str(each.get("value")) for each in options if isinstance(each, dict))
    option = element.get("selected_option")
    if isinstance(option, dict) and isinstance(value := option.get("value"), str):
        return value
    return ""


def unescaped(text: str) -> str:
    """Return text that Slack escaped, as the person typed it.

    https://docs.slack.dev/messaging/formatting-message-text#escaping
    """

    def mention(found: re.Match[str]) -> str:
        sigil, target, label = found.groups()
        if sigil == "!":
            return "@" + (label or target.split("^")[0]).removeprefix("@")
        return sigil + (label or target).removeprefix(sigil)

    def link(found: re.Match[str]) -> str:
        target, label = found.groups()
        if label and target in {f"http://{label}", f"https://{label}", f"mailto:{label}"}:
            return str(label)
        return f"{label} ({target})" if label and label != target else str(target)

    return html.unescape(_LINK.sub(link, _MENTION.sub(mention, text)))
