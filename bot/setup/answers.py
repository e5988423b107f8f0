"""The settings that are asked for, and what is wrong with an answer."""

import re
from collections.abc import Mapping
from typing import Final

from bot.errors import OperatorError
from bot.settings import Settings
from bot.setup.terminal import cleaned

#: All settings that are asked for, in the order in which they are written.
ASKED: Final = (
    "SLACK_BOT_TOKEN",
    "SLACK_APP_TOKEN",
    "SLACK_SIGNING_SECRET",
    "PUBLIC_URL",
    "COMMAND_PREFIX",
    "ADMIN_USERS",
    "VIDEO_API_URL",
    "VIDEO_API_KEY",
)
#: Those of them that are asked for without being shown.
SECRETS: Final = Settings.secret_names() & set(ASKED)
#: What a secret is called in Slack.
TITLES: Final = {
    "SLACK_BOT_TOKEN": "Bot User OAuth Token",
    "SLACK_APP_TOKEN": "App-Level Token",
    "SLACK_SIGNING_SECRET": "Signing Secret",
    "VIDEO_API_KEY": "API key",
}


class SetupError(OperatorError):
    """The set-up cannot go on; ``str()`` says why and what to do."""


def mistake_in(name: str, text: str, beside: Mapping[str, str]) -> str | None:
    """Return what is wrong with a value beside others, as a sentence without it."""
    mistake = Settings.mistake(name, text, beside)
    return f"That {mistake.removeprefix(name).strip()}" if mistake else None


def flag(name: str) -> str:
    """Return the flag for a setting: for a secret that of a file, so that no history has it."""
    end = "-file" if name in SECRETS else ""
    return f"--{name.lower().replace('_', '-')}{end}"


def normal(name: str, text: str) -> str:
    """Return a value as it is written: without ``NAME=`` before it, or a slash at its end."""
    text = cleaned(re.sub(rf"^(?:export\s+)?{name}\s*=", "", cleaned(text)))
    if name == "ADMIN_USERS":
        return ",".join(each for each in re.split(r"[,\s]+", text) if each)
    return text.rstrip("/") if name.endswith("_URL") else text
