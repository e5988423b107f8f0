"""The settings that are asked for, and what an answer to one is worth."""

import re
from typing import Final

from bot.errors import OperatorError
from bot.settings import Settings
from bot.setup.terminal import cleaned

#: The settings that are asked for without being shown.
SECRETS: Final = ("SLACK_BOT_TOKEN", "SLACK_APP_TOKEN", "SLACK_SIGNING_SECRET", "VIDEO_API_KEY")
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
# What else people paste: https://docs.slack.dev/authentication/tokens.
_KINDS: Final = {
    "xoxb-": "a bot token",
    "xapp-": "an app-level token",
    "xoxp-": "a user token",
    "xoxe": "a configuration token, or one that expires",
    "xoxc-": "the token of a browser",
    "xoxs-": "the token of a browser",
}
_STARTS: Final = {"SLACK_BOT_TOKEN": "xoxb-", "SLACK_APP_TOKEN": "xapp-"}
_HEX: Final = re.compile("[0-9a-f]{32}")
#: What a secret is called in Slack.
TITLES: Final = {
    "SLACK_BOT_TOKEN": "Bot User OAuth Token",
    "SLACK_APP_TOKEN": "App-Level Token",
    "SLACK_SIGNING_SECRET": "Signing Secret",
    "VIDEO_API_KEY": "API key",
}


class SetupError(OperatorError):
    """The set-up cannot go on; ``str()`` says why and what to do."""


def mistake_in(name: str, text: str) -> str | None:
    """Return what is wrong with a value, as a sentence without it."""
    found = next((each for each in _KINDS if text.startswith(each)), None)
    if name in SECRETS and found and found != _STARTS.get(name):
        wanted = _STARTS.get(name)
        begins = f", which starts with {wanted}" if wanted else ""
        return f"That is {_KINDS[found]} ({found}...). Copy the {TITLES[name]}{begins}."
    if name in _STARTS and _HEX.fullmatch(text):
        title, start = TITLES[name], _STARTS[name]
        return f"That looks like a Signing Secret. Copy the {title}, which starts with {start}."
    mistake = Settings.mistake(name, text)
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
