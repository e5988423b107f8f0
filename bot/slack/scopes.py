"""The scopes of the Slack app: what each allows, and what is lost without it."""

import re
from collections.abc import Mapping
from typing import Final

from bot.setting_values import MAX_BOX

REQUIRED_SCOPES: Final[Mapping[str, str]] = {
    "commands": "there are no commands, so no one can ask for anything",
    "chat:write": "no one gets an answer",
    "chat:write.public": "the bot answers only in channels that it was invited to",
}
"""What is lost without the scopes in ``manifest.yml`` that nobody may decline."""

_TWICE: Final = "when Slack's answer is lost, a message may be posted twice in"
_SHARED: Final = "that are shared with other organizations are posted to like all others"
_OWN_ALONE: Final = "a search finds one's own videos alone"
OPTIONAL_SCOPES: Final[Mapping[str, str]] = {
    "app_mentions:read": "a mention of the app is not answered",
    "channels:history": f"{_TWICE} a public channel",
    "groups:history": f"{_TWICE} a private channel",
    "im:history": f"{_TWICE} a direct message, and what people write to the app is not answered",
    "channels:join": "JOIN_PUBLIC_CHANNELS has no effect",
    "im:write": f"{_TWICE} a direct message",
    "users:read": (
        f"guests cannot be told from members, and can ask; cards do not say who asked; {_OWN_ALONE}"
    ),
    "channels:read": f"public channels {_SHARED}; {_OWN_ALONE}",
    "groups:read": f"private channels {_SHARED}",
    "usergroups:read": "user groups in VIDEO_USERS and TRAINING_USERS do not count",
    "files:read": f"scripts have at most {MAX_BOX:,} characters, whatever MAX_SCRIPT says",
    "files:write": (
        "no video or long transcript is posted as a file: the reply has the links, and Details "
        "has the whole text"
    ),
}
"""What is lost without the scopes under ``bot_optional`` in ``manifest.yml``."""

FILE_SCOPES: Final = frozenset({"files:write", "files:read"})
"""To share a file, and to find out whether one is shared."""


def granted_scopes(headers: Mapping[str, object]) -> frozenset[str] | None:
    """Return the scopes of the token that a call was made with, by the headers of its answer.

    None if they do not say. https://docs.slack.dev/authentication/installing-with-oauth
    """
    named = {name.lower(): value for name, value in headers.items()}
    granted = named.get("x-oauth-scopes")
    return frozenset(re.split(r",\s*", granted)) if isinstance(granted, str) else None
