"""The form in which admins change limits: its fields, and what was changed in it."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from pydantic import Field

from bot.setting_values import LONGEST_SCRIPT, MOST_REQUESTS
from bot.slack.payloads import Payload, PrivateMetadata, View
from bot.slack.views.blocks import Json, context, element, field, modal, mrkdwn, option, section
from bot.slack.views.limits import WORDS, value_words
from bot.store import LimitsInForce, limit_hash

CALLBACK_ID: Final = "limits_form"
_MAX_OPTIONS: Final = 100
"""Of a menu: https://docs.slack.dev/reference/block-kit/block-elements/multi-select-menu-element."""
_PEOPLE: Final = MappingProxyType(
    {"VIDEO_USERS": "create videos", "TRAINING_USERS": "train replicas"}
)
_CHANNELS: Final = "ALLOWED_CHANNELS"
_GROUPS: Final = "_GROUPS"
_ABOUT: Final = "Changes apply to new requests. Leave a number blank for the default."
_NONE: Final = MappingProxyType[str, str]({})


class Metadata(PrivateMetadata):
    """The form's ``private_metadata``."""

    shown: dict[str, str]
    """The hash of each limit as the form showed it, by the name of the setting."""
    drawn: int = Field(0, ge=0)
    """How often it was drawn anew. Its fields have other ids each time: those that nobody has
    touched show what is in force now."""


class Group(Payload):
    """A user group: https://docs.slack.dev/reference/objects/usergroup-object."""

    id: str
    name: str = ""
    handle: str = ""


def limits_form(
    in_force: LimitsInForce,
    groups: Sequence[Group] = (),
    filled: Mapping[str, str] = _NONE,
    before: View | None = None,
) -> Json:
    """Return the form with the limits that are in force.

    Args:
        in_force: the limits.
        groups: the user groups to choose from; without any, their fields are left out.
        filled: what was filled in instead, by the name of the setting.
        before: the form as it was before others changed limits.
    """
    drawn = before.metadata(Metadata).drawn + 1 if before is not None else 0
    note = _changed_meanwhile(before, in_force) if before is not None else ""
    now = in_force.values()
    values = {**now, **filled}
    blocks = [section(note)] if note else []
    blocks.append(context(mrkdwn(_ABOUT)))
    for name in WORDS:
        if name in _PEOPLE:
            blocks += _people(name, _ids(values[name]), groups, drawn)
        elif name == _CHANNELS:
            blocks.append(_channels(_ids(values[name]), drawn))
        else:
            blocks.append(_number(name, values[name], in_force.setting_values()[name], drawn))
    shown = {name: limit_hash(value) for name, value in now.items()}
    return modal(
        CALLBACK_ID,
        "Change limits",
        submit="Save",
        close="Cancel",
        private_metadata=Metadata(shown=shown, drawn=drawn).model_dump_json(),
        blocks=blocks,
    )


def block_id(name: str, view: View) -> str:
    """Return the id of the field of a limit in a form."""
    return _block_id(name, view.metadata(Metadata).drawn)


def shown_in(view: View) -> Mapping[str, str]:
    """Return the hash of each limit as a form showed it, by the name of the setting."""
    return view.metadata(Metadata).shown


def entered(view: View, in_force: LimitsInForce) -> dict[str, str]:
    """Return what was changed in a form, by the name of the setting, as it would stand there."""
    metadata, fields = view.metadata(Metadata), view.fields()
    there = {block.get("block_id") for block in view.blocks}
    found = {}
    for name, setting in in_force.setting_values().items():
        text = fields.get(_block_id(name, metadata.drawn), "").strip()
        if name not in _PEOPLE and name != _CHANNELS:
            value = str(int(text)) if text.isdecimal() else text or setting
        else:
            ids = set(text.split())
            if name in _PEOPLE:
                chosen = _block_id(name + _GROUPS, metadata.drawn)
                kept = filter(_is_group, _ids(in_force.values()[name]))
                ids |= set(fields.get(chosen, "").split() if chosen in there else kept)
            value = ",".join(sorted(ids))
        if limit_hash(value) != metadata.shown.get(name):
            found[name] = value
    return found


def _changed_meanwhile(view: View, in_force: LimitsInForce) -> str:
    """Return what others have changed since a form was drawn, for the note on top of it."""
    shown, sentences = shown_in(view), []
    for name, value in in_force.values().items():
        if limit_hash(value) == shown.get(name):
            continue
        words, change = WORDS[name], in_force.changes.get(name)
        now = f"*{words.named}* to {value_words(name, value)}"
        by = "An admin" if change is None else f"<@{change.changed_by}>"
        sentences.append(f"{by} has set {now}.")
    return " ".join([*sentences, "Yours aren't saved yet: check them and press *Save*."])


def _number(name: str, value: str, setting: str, drawn: int) -> Json:
    words = WORDS[name]
    number = element(
        "number_input",
        name,
        min_value="1",
        max_value=str(LONGEST_SCRIPT if name == "MAX_SCRIPT" else MOST_REQUESTS),
        initial_value=value,
        placeholder=f"{value_words(name, setting).capitalize()} (default)",
    )
    number["is_decimal_allowed"] = False  # Slack wants it said
    label = f"{words.label}, in{words.unit}" if words.unit else words.label
    return field(_block_id(name, drawn), label, number, optional=True)


def _people(name: str, ids: Sequence[str], groups: Sequence[Group], drawn: int) -> list[Json]:
    people = element(
        "multi_users_select",
        name,
        initial_users=[each for each in ids if not _is_group(each)] or None,
        placeholder="Everyone",
    )
    who = _PEOPLE[name]
    which = "both fields" if groups else "it"
    hint = f"Leave {which} empty for everyone. Admins always can."
    blocks = [field(_block_id(name, drawn), WORDS[name].label, people, hint=hint, optional=True)]
    chosen = {each: Group(id=each, name=each) for each in ids if _is_group(each)}
    offered = {**chosen, **{each.id: each for each in groups}}
    first = sorted(offered.values(), key=lambda each: (each.id not in chosen, each.name.casefold()))
    options = {each.id: _option(each) for each in first[:_MAX_OPTIONS]}
    if groups:
        menu = element(
            "multi_static_select",
            name + _GROUPS,
            options=list(options.values()),
            initial_options=[options[each] for each in chosen if each in options] or None,
            placeholder="No group",
        )
        label = f"User groups who can {who}"
        blocks.append(field(_block_id(name + _GROUPS, drawn), label, menu, optional=True))
    return blocks


def _option(group: Group) -> Json:
    label = f"{group.name} (@{group.handle})" if group.handle else group.name or group.id
    return option(label, group.id)


def _channels(ids: Sequence[str], drawn: int) -> Json:
    menu = element(
        "multi_conversations_select",
        _CHANNELS,
        initial_conversations=list(ids) or None,
        filter={"include": ["public", "private"], "exclude_bot_users": True},
        placeholder="All channels",
    )
    hint = "Leave it empty for all. Direct messages are always allowed."
    label = WORDS[_CHANNELS].label
    return field(_block_id(_CHANNELS, drawn), label, menu, hint=hint, optional=True)


def _ids(value: str) -> list[str]:
    return [each for each in value.split(",") if each]


def _is_group(identifier: str) -> bool:
    return identifier.startswith("S")


def _block_id(name: str, drawn: int) -> str:
    return f"{name}.{drawn}"
