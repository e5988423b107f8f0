"""The limits that admins may change, in words: what each is called, its value, and a change."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

_MAX_LISTED: Final = 10


class LimitWords(NamedTuple):
    """What a limit is called."""

    label: str
    """Of its field, and before its value."""
    named: str
    """In the middle of a sentence."""
    empty: str
    """What it says where there is no value."""
    unit: str = ""
    is_list: bool = False


WORDS: Final[Mapping[str, LimitWords]] = MappingProxyType(
    {
        "MAX_PER_USER_PER_DAY": LimitWords(
            "Requests per person in 24 hours", "requests per person in 24 hours", "no limit"
        ),
        "MAX_PER_USER_PER_MONTH": LimitWords(
            "Requests per person in a month", "requests per person in a month", "no limit"
        ),
        "MAX_OPEN_PER_USER": LimitWords(
            "Requests in progress per person", "requests in progress per person", "no limit"
        ),
        "MAX_PER_DAY": LimitWords(
            "Requests per workspace in 24 hours", "requests per workspace in 24 hours", "no limit"
        ),
        "MAX_PER_MONTH": LimitWords(
            "Requests per workspace in a month", "requests per workspace in a month", "no limit"
        ),
        "MAX_SCRIPT": LimitWords("Longest script", "the longest script", "no limit", " characters"),
        "VIDEO_USERS": LimitWords(
            "Who can create videos", "who can create videos", "everyone", is_list=True
        ),
        "TRAINING_USERS": LimitWords(
            "Who can train replicas", "who can train replicas", "everyone", is_list=True
        ),
        "ALLOWED_CHANNELS": LimitWords(
            "Channels to post in", "the channels to post in", "all channels", is_list=True
        ),
    }
)
"""By the name of the setting, in the order in which they are shown."""


def value_words(name: str, value: str) -> str:
    """Return the value of a limit in mrkdwn; ``value`` is as it would stand in the setting."""
    words = WORDS[name]
    if not value:
        return words.empty
    if value.isdecimal():
        return f"{int(value):,}{words.unit}"
    return listed([mention(each) for each in value.split(",")])


def change_words(name: str, before: str, after: str) -> str:
    """Return what was done to a limit, as a sentence without its subject."""
    named, old, new = WORDS[name].named, value_words(name, before), value_words(name, after)
    if WORDS[name].is_list:
        return f"changed {named} from {old} to {new}"
    if not before:
        return f"limited {named} to {new}"
    if not after:
        return f"removed the limit on {named}, which was {old}"
    verb = "raised" if int(after) > int(before) else "lowered"
    return f"{verb} {named} from {int(before):,} to {new}"


def mention(identifier: str) -> str:
    """Return a person, a user group or a channel in mrkdwn.

    https://docs.slack.dev/messaging/formatting-message-text
    """
    if identifier.startswith("S"):
        return f"<!subteam^{identifier}>"
    return f"<#{identifier}>" if identifier.startswith(("C", "G")) else f"<@{identifier}>"


def listed(items: Sequence[str]) -> str:
    """Return items with "and" before the last; those that are too many are only counted."""
    shown = list(items)
    if len(shown) > _MAX_LISTED:
        shown = [*shown[: _MAX_LISTED - 1], f"{len(shown) - _MAX_LISTED + 1} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
