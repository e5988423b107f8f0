"""The form in which admins change limits: its fields, and what was changed in it."""

from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import Field

from bot.slack.payloads import Payload, PrivateMetadata, View
from bot.slack.views.blocks import Json, context, element, field, modal, mrkdwn, option, section
from bot.slack.views.limits import label, value_words
from bot.store import LIMITS, Limit, LimitsInForce, limit_hash

CALLBACK_ID: Final = "limits_form"
_MAX_OPTIONS: Final = 100
"""Of a menu: https://docs.slack.dev/reference/block-kit/block-elements/multi-select-menu-element."""
_CHANNELS: Final = "ALLOWED_CHANNELS"
_GROUPS: Final = "_GROUPS"
_ABOUT: Final = "Changes apply to new requests. Leave a number blank for the default."


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
    filled: Mapping[str, str] | None = None,
    *,
    drawn: int = 0,
    note: str = "",
) -> Json:
    """Return the form with the limits that are in force.

    Args:
        in_force: the limits.
        groups: the user groups to choose from; without any, their fields are left out.
        filled: what was filled in instead, by the name of the setting.
        drawn: how often it was drawn anew.
        note: what to say on top of it.
    """
    now, settings = in_force.limits.texts(), in_force.settings.texts()
    values = {**now, **(filled or {})}
    blocks = [section(note)] if note else []
    blocks.append(context(mrkdwn(_ABOUT)))
    for name, limit in LIMITS.items():
        if limit.most:
            blocks.append(_number(limit, values[name], settings[name], drawn))
        elif name == _CHANNELS:
            blocks.append(_channels(limit, _ids(values[name]), drawn))
        else:
            blocks += _people(limit, _ids(values[name]), groups, drawn)
    shown = {name: limit_hash(value) for name, value in now.items()}
    return modal(
        CALLBACK_ID,
        "Change limits",
        submit="Save",
        close="Cancel",
        private_metadata=Metadata(shown=shown, drawn=drawn).model_dump_json(),
        blocks=blocks,
    )


def block_id(name: str, drawn: int) -> str:
    """Return the id of the field of a limit in a form that was drawn anew so often."""
    return f"{name}.{drawn}"


def entered(view: View, in_force: LimitsInForce) -> dict[str, str]:
    """Return what was changed in a form, by the name of the setting, as it would stand there."""
    metadata, fields = view.metadata(Metadata), view.fields()
    there = {block.get("block_id") for block in view.blocks}
    found = {}
    now, settings = in_force.limits.texts(), in_force.settings.texts()
    for name, limit in LIMITS.items():
        text = fields.get(block_id(name, metadata.drawn), "").strip()
        if limit.most:
            value = str(int(text)) if text.isdecimal() else text or settings[name]
        else:
            chosen = block_id(name + _GROUPS, metadata.drawn)
            kept = filter(_is_group, _ids(now[name]))
            groups = fields.get(chosen, "").split() if chosen in there else kept
            value = ",".join(sorted({*text.split(), *groups}))
        if limit_hash(value) != metadata.shown.get(name):
            found[name] = value
    return found


def changed_meanwhile(shown: Mapping[str, str], in_force: LimitsInForce) -> str:
    """Return what others have changed since a form was drawn, for the note on top of it.

    ``shown`` has the hash of each limit as the form showed it.
    """
    sentences = []
    for name, value in in_force.limits.texts().items():
        if limit_hash(value) == shown.get(name):
            continue
        limit, change = LIMITS[name], in_force.changes.get(name)
        now = f"*{limit.words}* to {value_words(limit, value)}"
        by = "An admin" if change is None else f"<@{change.changed_by}>"
        sentences.append(f"{by} has set {now}.")
    return " ".join([*sentences, "Yours aren't saved yet: check them and press *Save*."])


def _number(limit: Limit, value: str, setting: str, drawn: int) -> Json:
    number = element(
        "number_input",
        limit.name,
        min_value="1",
        max_value=str(limit.most),
        initial_value=value,
        placeholder=f"{value_words(limit, setting).capitalize()} (default)",
    )
    number["is_decimal_allowed"] = False  # Slack wants it said
    unit = f", in{limit.unit}" if limit.unit else ""
    return field(block_id(limit.name, drawn), label(limit) + unit, number, optional=True)


def _people(limit: Limit, ids: Sequence[str], groups: Sequence[Group], drawn: int) -> list[Json]:
    people = element(
        "multi_users_select",
        limit.name,
        initial_users=[each for each in ids if not _is_group(each)] or None,
        placeholder="Everyone",
    )
    which = "both fields" if groups else "it"
    hint = f"Leave {which} blank for everyone. Admins always can."
    of_people = block_id(limit.name, drawn)
    blocks = [field(of_people, label(limit), people, hint=hint, optional=True)]
    if groups:
        offered = {each.id: each for each in groups}
        chosen = [_option(offered.pop(each, Group(id=each))) for each in ids if _is_group(each)]
        others = sorted(offered.values(), key=lambda each: each.name.casefold())
        menu = element(
            "multi_static_select",
            limit.name + _GROUPS,
            options=[*chosen, *map(_option, others)][:_MAX_OPTIONS],
            initial_options=chosen[:_MAX_OPTIONS] or None,
            placeholder="No group",
        )
        of_groups = block_id(limit.name + _GROUPS, drawn)
        blocks.append(field(of_groups, f"User groups {limit.words}", menu, optional=True))
    return blocks


def _option(group: Group) -> Json:
    shown = f"{group.name} (@{group.handle})" if group.handle else group.name or group.id
    return option(shown, group.id)


def _channels(limit: Limit, ids: Sequence[str], drawn: int) -> Json:
    menu = element(
        "multi_conversations_select",
        limit.name,
        initial_conversations=list(ids) or None,
        filter={"include": ["public", "private"], "exclude_bot_users": True},
        placeholder="All channels",
    )
    hint = "Leave it blank for all. Direct messages are always allowed."
    of_channels = block_id(limit.name, drawn)
    return field(of_channels, label(limit), menu, hint=hint, optional=True)


def _ids(value: str) -> list[str]:
    return [each for each in value.split(",") if each]


def _is_group(identifier: str) -> bool:
    return identifier.startswith("S")
