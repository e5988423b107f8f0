"""The fields of a modal: what a client lets a person enter, and the state that it sends."""

import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Any, Final, TypeAlias

from sandbox.block_kit import Json

Values: TypeAlias = dict[str, dict[str, Json]]

# For each element that has a state: the key of its value there, and the key of its initial value.
_KEYS: Final = {
    "plain_text_input": ("value", "initial_value"),
    "url_text_input": ("value", "initial_value"),
    "email_text_input": ("value", "initial_value"),
    "number_input": ("value", "initial_value"),
    "rich_text_input": ("rich_text_value", "initial_value"),
    "radio_buttons": ("selected_option", "initial_option"),
    "static_select": ("selected_option", "initial_option"),
    "external_select": ("selected_option", "initial_option"),
    "users_select": ("selected_user", "initial_user"),
    "conversations_select": ("selected_conversation", "initial_conversation"),
    "channels_select": ("selected_channel", "initial_channel"),
    "checkboxes": ("selected_options", "initial_options"),
    "multi_static_select": ("selected_options", "initial_options"),
    "multi_external_select": ("selected_options", "initial_options"),
    "multi_users_select": ("selected_users", "initial_users"),
    "multi_conversations_select": ("selected_conversations", "initial_conversations"),
    "multi_channels_select": ("selected_channels", "initial_channels"),
    "datepicker": ("selected_date", "initial_date"),
    "timepicker": ("selected_time", "initial_time"),
    "datetimepicker": ("selected_date_time", "initial_date_time"),
    "file_input": ("files", "initial_files"),
}
_READERS: Final[dict[str, Callable[[Any], object]]] = {
    "datepicker": date.fromisoformat,
    "timepicker": time.fromisoformat,
    "datetimepicker": datetime.fromtimestamp,
}
_TEXT_LENGTH: Final = 3_000
_URL: Final = re.compile(r"https?://[^\s/]+\.?\S*", re.IGNORECASE)
_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")


class ClientRefusal(Exception):
    """A Slack client would not have let a person do this."""


class Gone(ClientRefusal):
    """What a person wants to use does not exist any more."""


@dataclass(frozen=True)
class Field:
    """An element of a view that holds a value, with what its block says about it."""

    block_id: str
    element: Json
    label: str
    optional: bool
    dispatches: bool

    @property
    def action_id(self) -> str:
        """Return the id of the element, unique within its block."""
        return str(self.element["action_id"])

    @property
    def kind(self) -> str:
        """Return the type of the element, such as ``plain_text_input``."""
        return str(self.element["type"])

    @property
    def holds_many(self) -> bool:
        """Return whether its value is a list."""
        return self.kind.startswith("multi_") or self.kind in {"checkboxes", "file_input"}

    @property
    def key(self) -> str:
        """Return the name of its value in the state."""
        return _KEYS[self.kind][0]

    def initial(self, channel: str | None) -> Json:
        """Return its initial state for a person in ``channel``."""
        value = self.element.get(_KEYS[self.kind][1])
        if value is None and channel and self.element.get("default_to_current_conversation"):
            value = [channel] if self.holds_many else channel
        return {"type": self.kind, self.key: value or ([] if self.holds_many else None)}

    def options(self) -> list[Json]:
        """Return its own options, those in groups too."""
        groups = self.element.get("option_groups") or []
        return [*self.element.get("options", []), *(each for g in groups for each in g["options"])]

    def entered(self, value: Any, offered: list[Json]) -> Json:  # noqa: ANN401 - depends on kind
        """Return its state once a person entered ``value``.

        Args:
            value: text for text fields, the value or the visible text of an option for menus, an id
                for users and conversations, ISO text for dates and times, seconds for
                ``datetimepicker``, file objects for ``file_input``; lists where many can be chosen;
                None or an empty list to clear it.
            offered: the options to choose from.

        Raises:
            ClientRefusal: a client would not accept it.
        """
        empty = value is None or value == ""
        if not empty and isinstance(value, list) != self.holds_many:
            raise self._refusal(f"it takes {'a list' if self.holds_many else 'one value'}")
        if self.holds_many:
            chosen = [self._one(each, offered) for each in value or []]
            limit = self.element.get("max_selected_items") or self.element.get("max_files")
            if limit and len(chosen) > limit:
                raise self._refusal(f"no more than {limit} can be chosen")
            return {"type": self.kind, self.key: chosen}
        return {"type": self.kind, self.key: None if empty else self._one(value, offered)}

    def typed(self, value: Any, offered: list[Json]) -> Json:  # noqa: ANN401 - depends on kind
        """Return its state while a person is still typing: text may be invalid."""
        try:
            return self.entered(value, offered)
        except ClientRefusal:
            if self.key != "value":
                raise
            return {"type": self.kind, self.key: str(value)}

    def require(self, state: Json) -> None:
        """Raise ``ClientRefusal`` if nothing is entered although it is required."""
        if not self.optional and not state[self.key]:
            raise self._refusal("a value is required")

    def _one(self, value: Any, offered: list[Json]) -> object:  # noqa: ANN401 - depends on kind
        if self.key in {"selected_option", "selected_options"}:
            return self._option(value, offered)
        if self.key == "value":
            return self._text(value)
        if read := _READERS.get(self.kind):
            try:
                read(value)
            except (OSError, OverflowError, TypeError, ValueError) as error:
                raise self._refusal(f"{value!r} is not valid in a {self.kind}") from error
        elif self.kind != "file_input" and not isinstance(value, str):
            raise self._refusal(f"{value!r} is not an id")
        return value

    def _option(self, wanted: object, offered: list[Json]) -> Json:
        for each in offered:
            if wanted in (each["value"], each["text"]["text"]):
                return each
        texts = ", ".join(repr(each["text"]["text"]) for each in offered) or "nothing"
        raise self._refusal(f"{wanted!r} is not offered; offered: {texts}")

    def _text(self, value: object) -> str:
        if isinstance(value, bool | dict | list):
            raise self._refusal(f"{value!r} is not text")
        text = str(value)
        least = self.element.get("min_length") or 0
        most = self.element.get("max_length") or _TEXT_LENGTH
        if not least <= len(text) <= most:
            raise self._refusal(f"{len(text)} characters, allowed are {least} to {most}")
        if self.kind == "url_text_input" and not _URL.fullmatch(text):
            raise self._refusal(f"{text!r} is not a link")
        if self.kind == "email_text_input" and not _EMAIL.fullmatch(text):
            raise self._refusal(f"{text!r} is not an e-mail address")
        if self.kind == "number_input":
            self._check_number(text)
        return text

    def _check_number(self, text: str) -> None:
        whole = not self.element.get("is_decimal_allowed")
        if not re.fullmatch(r"-?\d+" if whole else r"-?\d+(\.\d+)?", text):
            raise self._refusal(f"{text!r} is not a {'whole ' if whole else ''}number")
        least, most = self.element.get("min_value"), self.element.get("max_value")
        if (least and float(text) < float(least)) or (most and float(text) > float(most)):
            raise self._refusal(f"{text} is not between {least} and {most}")

    def _refusal(self, why: str) -> ClientRefusal:
        return ClientRefusal(f"{self.label or self.action_id}: {why}")


def fields(blocks: list[Json]) -> Iterator[Field]:
    """Yield the fields of a view in order; blocks and elements must have their ids."""
    for block in blocks:
        for element in [block["element"]] if block["type"] == "input" else elements(block):
            if (field := field_of(block, element)) is not None:
                yield field


def field_of(block: Json, element: Json) -> Field | None:
    """Return the field of an element, or None if the element holds no value."""
    if element["type"] not in _KEYS:
        return None
    if block["type"] != "input":
        return Field(block["block_id"], element, "", optional=True, dispatches=True)
    return Field(
        block["block_id"],
        element,
        block["label"]["text"],
        bool(block.get("optional")),
        bool(block.get("dispatch_action")),
    )


def elements(block: Json) -> list[Json]:
    """Return the interactive elements of an actions block, or beside a section."""
    if block["type"] == "actions":
        return list(block["elements"])
    accessory = block.get("accessory")
    return [accessory] if accessory and accessory["type"] != "image" else []


def with_ids(blocks: list[Json], prefix: str) -> list[Json]:
    """Return a copy in which every block and element has an id, as Slack fills them in."""
    copied: list[Json] = copy.deepcopy(blocks)
    for index, block in enumerate(copied):
        block.setdefault("block_id", f"{prefix}{index}")
        parts = [block["element"]] if block["type"] == "input" else elements(block)
        for number, each in enumerate(parts):
            each.setdefault("action_id", f"{prefix}{index}.{number}")
    return copied


def state_of(blocks: list[Json], channel: str | None, typed: Values) -> Values:
    """Return the state of each field of a view.

    A field that has the same ids in ``typed`` keeps its state, as when a view changes in Slack; any
    other gets its initial state.
    """
    state: Values = {}
    for field in fields(blocks):
        kept = typed.get(field.block_id, {}).get(field.action_id)
        if kept is None or kept["type"] != field.kind:
            kept = field.initial(channel)
        state.setdefault(field.block_id, {})[field.action_id] = kept
    return state
