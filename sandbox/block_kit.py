"""Validation of Block Kit: what Slack would refuse in a message, a view or a list of options.

The package ``blockkit`` knows the limits of every block and element. The JSON of a block is turned
into its classes here, guided by their own type annotations, and each object is asked to validate
itself. What the package does not check, and the few things it wrongly refuses, are handled here.
"""

import functools
import inspect
import json
import math
import re
import typing
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from blockkit import core

Json: TypeAlias = dict[str, Any]
_T = TypeVar("_T")

#: Bytes of UTF-8. Slack documents 4,000 characters (https://docs.slack.dev/reference/methods/chat.update),
#: asked for 4,000 bytes before (https://api.slack.com/changelog/2018-04-truncating-really-long-messages),
#: and has been seen to refuse an edit of fewer characters and more bytes: the strictest of these.
TEXT_LIMIT: Final = 4_000
OPTIONS_LIMIT: Final = 100
_BLOCKS_PER_MESSAGE: Final = 50
_FIELDS_PER_SECTION: Final = 10
_FIELD_LENGTH: Final = 2_000
_VIEW_BYTES: Final = 250_000
_MARKDOWN_LENGTH: Final = 12_000
# Slack answers msg_blocks_too_long but documents no limit. Its developers speak of 12,000 with a
# buffer for the blocks, and 11,341 were refused: https://github.com/slackapi/bolt-js/issues/2867.
_BLOCK_TEXT_LENGTH: Final = 11_300
# The package takes an empty list for no list at all.
_NEVER_EMPTY: Final = frozenset(
    {"actions", "context", "rich_text", "overflow", "radio_buttons", "checkboxes"}
)
_NUMBER_KEYS: Final = frozenset({"initial_value", "min_value", "max_value"})
_BEYOND_BMP: Final = re.compile("[\U00010000-\U0010ffff]")
_LINK_KEYS: Final = frozenset({"url", "image_url", "thumbnail_url", "title_url", "video_url"})


def validate_message(text: str, blocks: list[Json]) -> list[str]:
    """Return the errors of a message's blocks; none if Slack would accept them."""
    blocks = widened(blocks)
    errors = []
    if len(blocks) > _BLOCKS_PER_MESSAGE:
        errors.append(f"blocks: more than {_BLOCKS_PER_MESSAGE}")
    if any(each.get("type") == "file_input" for each in objects(blocks)):
        errors.append("blocks: file_input is allowed in modals only")
    message = {"text": text, "blocks": blocks} if blocks else {"text": text or "-"}
    return errors + _validate(message, _class_named("Message"), "message") + _other_errors(blocks)


def are_too_long(blocks: list[Any]) -> bool:
    """Return whether blocks have too much text in all."""
    words = [each["text"] for each in objects(blocks) if isinstance(each.get("text"), str)]
    return sum(map(len, words)) > _BLOCK_TEXT_LENGTH


def size(text: str) -> int:
    """Return the bytes of a text, as ``TEXT_LIMIT`` counts them."""
    return len(text.encode("utf-8", "surrogatepass"))


def validate_view(view: Json) -> list[str]:
    """Return the errors of a modal or Home tab; none if Slack would accept it."""
    view = widened(view)
    if view.get("type") not in {"modal", "home"}:
        return [f"view: type is {view.get('type')!r}, not modal or home"]
    surface = _class_named("Modal" if view["type"] == "modal" else "Home")
    blocks = view.get("blocks")
    if not isinstance(blocks, list):
        return ["view.blocks: must be a list"]
    errors = _validate(view, surface, "view") + _other_errors(blocks)
    inputs = any(isinstance(each, dict) and each.get("type") == "input" for each in blocks)
    if view["type"] == "modal" and inputs and not view.get("submit"):
        errors.append("view.submit: needed because there are inputs")
    if not isinstance(view.get("private_metadata", ""), str):
        errors.append("view.private_metadata: must be a string")
    if len(json.dumps(view)) > _VIEW_BYTES:
        errors.append(f"view: larger than {_VIEW_BYTES} bytes")
    if sum(bool(each.get("focus_on_load")) for each in objects(blocks)) > 1:
        errors.append("view.blocks: focus_on_load more than once")
    return errors


def validate_options(answer: Json) -> list[str]:
    """Return the errors of a response to ``block_suggestion``; none if Slack would accept it."""
    if not isinstance(answer.get("options", answer.get("option_groups")), list):
        return ["options: must be a list"]
    answer, errors = widened(answer), []
    for key, name in (("options", "Option"), ("option_groups", "OptionGroup")):
        offered = answer.get(key, [])
        if len(offered) > OPTIONS_LIMIT:
            errors.append(f"{key}: more than {OPTIONS_LIMIT}")
        for index, each in enumerate(offered):
            errors += _validate(each, _class_named(name), f"{key}[{index}]")
    return errors


class _Checked(Protocol):
    """What is used here of the package's untyped base class."""

    def validate(self) -> object:
        """Raise where the object breaks one of Slack's rules."""


# One of the package's classes, called with the keys of the JSON object as keyword arguments.
_Class: TypeAlias = Callable[..., _Checked]


def _class_named(name: str) -> _Class:
    found: _Class = getattr(core, name)
    return found


@functools.cache
def _parameters(cls: _Class) -> dict[str, tuple[_Class, ...]]:
    """Return the classes of each key that an object of ``cls`` may have; none for plain values."""
    hints = typing.get_type_hints(cls.__init__)
    return {name: tuple(_classes_in(hints[name])) for name in inspect.signature(cls).parameters}


def _classes_in(annotation: object) -> Iterator[_Class]:
    """Yield the package's classes that an annotation such as ``list[Option] | None`` names."""
    if isinstance(annotation, type) and issubclass(annotation, core.Component):
        yield annotation
    for each in typing.get_args(annotation):
        yield from _classes_in(each)


@functools.cache
def _type_of(cls: _Class) -> str | None:
    """Return the ``type`` that marks objects of ``cls``, or None for those without one."""
    fields: dict[str, Any] = vars(cls()).get("_fields", {})
    return str(fields["type"].value) if "type" in fields else None


def _validate(value: Json, cls: _Class, path: str) -> list[str]:
    errors: list[str] = []
    _build(value, cls, path, errors)
    return errors


def _build(value: Json, cls: _Class, path: str, errors: list[str]) -> _Checked | None:
    """Turn a JSON object into ``cls`` and add to ``errors`` what is wrong inside it."""
    keys = _parameters(cls)
    arguments: dict[str, Any] = {}
    before = len(errors)
    for key, inner in value.items():
        if key == "type" and "type" not in keys:
            continue
        if key not in keys:
            errors.append(f"{path}.{key}: unknown key")
        elif inner is not None and not _excepted(value, key, inner):
            arguments[key] = _convert(inner, keys[key], f"{path}.{key}", errors)
    if len(errors) > before:
        # A part is missing now, and the whole would only report that.
        return None
    try:
        if value.get("type") == "number_input":
            _numbers(arguments)
        built = cls(**arguments)
        built.validate()
    except (core.FieldValidationError, core.ComponentValidationError) as error:
        errors.append(f"{path}: {error}")
    except (AttributeError, TypeError, ValueError, KeyError) as error:
        # The package takes some shapes for granted and trips over others.
        errors.append(f"{path}: {type(error).__name__}: {error}")
    else:
        return built
    return None


def _convert(value: object, wanted: tuple[_Class, ...], path: str, errors: list[str]) -> object:
    if not wanted:
        return value
    if isinstance(value, list):
        return [
            _convert(each, wanted, f"{path}[{index}]", errors) for index, each in enumerate(value)
        ]
    if not isinstance(value, dict):
        errors.append(f"{path}: must be an object, not {value!r:.40}")
        return None
    cls = _choose(value, wanted)
    if cls is None:
        errors.append(f"{path}: an object of type {value.get('type')!r} is not allowed here")
        return None
    return _build(value, cls, path, errors)


def _choose(value: Json, wanted: tuple[_Class, ...]) -> _Class | None:
    kind = value.get("type")
    if kind in {"plain_text", "mrkdwn"}:
        kind = "plain_text"
    return next((each for each in wanted if _type_of(each) == kind), None)


def _excepted(value: Json, key: str, inner: object) -> bool:
    """Return whether to leave this out, because the package wrongly refuses or misreads it."""
    if key == "min_query_length":
        return inner == 0  # Slack shows a list at once; the package wants 1 or more
    if key == "initial_value" and value.get("type") == "url_text_input":
        return isinstance(inner, str)  # the package stops at 74 characters, Slack does not
    # Slack takes these when empty, and sends them back so.
    return inner == "" and key in {"private_metadata", "callback_id", "external_id"}


def _numbers(arguments: Json) -> None:
    """Turn the strings of a number_input into numbers: Slack wants strings, the package numbers.

    Raises:
        TypeError: One is no string.
        ValueError: One is no number, or the least is above the most, which the package accepts:
            https://docs.slack.dev/reference/block-kit/block-elements/number-input-element.
    """
    for key in _NUMBER_KEYS & arguments.keys():
        written = arguments[key]
        if not isinstance(written, str):
            raise TypeError(f"{key} must be a string")
        arguments[key] = int(written) if re.fullmatch(r"-?\d+", written) else float(written)
    if arguments.get("min_value", -math.inf) > arguments.get("max_value", math.inf):
        raise ValueError("min_value is above max_value")


def _other_errors(blocks: list[Any]) -> list[str]:
    """Return the errors that ``blockkit`` does not find, in messages and views alike."""
    errors = []
    top, every = [each for each in blocks if isinstance(each, dict)], objects(blocks)
    errors += [
        f"blocks: block_id {name!r} is used twice"
        for name, times in Counter(each.get("block_id") for each in top).items()
        if name and times > 1
    ]
    for index, block in enumerate(top):
        path = f"blocks[{index}]"
        names = Counter(each.get("action_id") for each in objects(block))
        errors += [
            f"{path}: action_id {name!r} is used twice"
            for name, times in names.items()
            if name and times > 1
        ]
        fields = block.get("fields") or []
        if len(fields) > _FIELDS_PER_SECTION:
            errors.append(f"{path}.fields: more than {_FIELDS_PER_SECTION}")
        if any(len(str(each.get("text"))) > _FIELD_LENGTH for each in objects(fields)):
            errors.append(f"{path}.fields: one is longer than {_FIELD_LENGTH} characters")
    errors += [
        f"blocks: a {each.get('type')} without {key}"
        for each in every
        for key in ("elements", "options")
        if each.get(key) == [] and each.get("type") in _NEVER_EMPTY
    ]
    # "Only available in overflow menus":
    # https://docs.slack.dev/reference/block-kit/composition-objects/option-object
    errors += [
        f"blocks: an option of a {each.get('type')} with a url"
        for each in every
        if each.get("type") != "overflow"
        for option in objects(each.get("options"))
        if "url" in option
    ]
    markdown = (str(each.get("text")) for each in top if each.get("type") == "markdown")
    if sum(map(len, markdown)) > _MARKDOWN_LENGTH:
        errors.append(f"blocks: more than {_MARKDOWN_LENGTH} characters of markdown")
    errors += [
        f"blocks: {key} {link!r:.60} is not an http(s) link"
        for each in every
        for key, link in each.items()
        if key in _LINK_KEYS and not re.match(r"https?://[^\s/]|mailto:", str(link))
    ]
    return errors


def widened(value: _T) -> _T:
    """Return JSON whose texts have a letter for each UTF-16 unit: so long may Slack count them.

    Its documentation says "characters", which are these units in its clients. What is typed into a
    field is left out: its limit is in the field itself.
    """
    if not _BEYOND_BMP.search(json.dumps(value, ensure_ascii=False)):
        return value
    if isinstance(value, str):
        return _BEYOND_BMP.sub("\ufffd\ufffd", value)  # type: ignore[return-value]
    if isinstance(value, list):
        return [widened(each) for each in value]  # type: ignore[return-value]
    if isinstance(value, dict):
        return {  # type: ignore[return-value]
            key: inner if key == "initial_value" else widened(inner) for key, inner in value.items()
        }
    return value


def objects(value: object) -> list[Json]:
    """Return every JSON object inside ``value``, itself included, in the order of its text."""
    found, left = [], [value]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            found.append(each)
            left.extend(reversed(each.values()))
        elif isinstance(each, list):
            left.extend(reversed(each))
    return found
