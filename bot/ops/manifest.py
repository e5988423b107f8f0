"""The Slack app's manifest for a deployment: manifest.yml with its settings filled in."""

import json
import re
from collections import deque
from pathlib import Path
from typing import Any, Final

from bot.settings import ManifestSettings

_SOURCE: Final = Path(__file__).parents[2] / "manifest.yml"
_URL: Final = "https://YOUR-HOST"
# A line with an address, and the comment above it.
_REQUEST_URL: Final = re.compile(rf"(?: *#.*\n)*.*url: {_URL}.*\n")
_COMMENT: Final = re.compile(r"(?:^|\s)#.*")
_KEY: Final = re.compile(r"\w+:(?: |$)")


def manifest(settings: ManifestSettings, *, socket_mode: bool | None = None) -> str:
    """Return the manifest as YAML, with its comments.

    With Socket Mode it has no request URLs; otherwise they have a placeholder where there is no
    public URL. It is changed as text: a YAML library would drop the comments.

    Args:
        settings: those of the deployment.
        socket_mode: whether Slack sends through Socket Mode; by default if there is an app token.
    """
    text = _SOURCE.read_text(encoding="utf-8")
    if socket_mode is None:
        socket_mode = settings.slack_app_token is not None
    if socket_mode:
        text = _REQUEST_URL.sub("", text)
        text = text.replace("socket_mode_enabled: false", "socket_mode_enabled: true")
    if settings.public_url is not None:
        text = text.replace(_URL, settings.public_url)
    commands = [
        each["command"].removeprefix("/") for each in read(text)["features"]["slash_commands"]
    ]
    return re.sub(rf"/(?=(?:{'|'.join(commands)})\b)", f"/{settings.command_prefix}", text)


def manifest_json(settings: ManifestSettings) -> str:
    """Return the manifest for Socket Mode as JSON, which Slack's own command line reads.

    That runs an app through Socket Mode only, and asks for the manifest before there is a token:
    https://docs.slack.dev/tools/slack-cli/reference/hooks
    """
    return json.dumps(read(manifest(settings, socket_mode=True)), indent=2) + "\n"


def read(text: str) -> Any:  # noqa: ANN401 - any JSON
    """Return what a manifest says, which uses little of YAML.

    Mappings, and lists of texts or mappings, are told by their indentation; a text on one line may
    have quotes. A test compares this with a library for YAML, which nothing else needs.
    """
    lines = deque[tuple[int, str]]()
    for line in text.splitlines():
        if content := _COMMENT.sub("", line).rstrip():
            lines.append((len(content) - len(content.lstrip()), content.lstrip()))
    return _read_block(lines)


def _read_block(lines: deque[tuple[int, str]]) -> Any:  # noqa: ANN401 - any JSON
    indent, _ = lines[0]
    items: list[Any] = []
    values: dict[str, Any] = {}
    while lines and lines[0][0] == indent:
        _, content = lines.popleft()
        if not content.startswith("- "):
            name, _, rest = content.partition(":")
            values[name] = _read_scalar(rest.strip()) if rest else _read_block(lines)
        elif _KEY.match(content.removeprefix("- ")):
            lines.appendleft((indent + 2, content.removeprefix("- ")))
            items.append(_read_block(lines))
        else:
            items.append(_read_scalar(content.removeprefix("- ")))
    return items or values


def _read_scalar(text: str) -> Any:  # noqa: ANN401 - any JSON
    try:
        return json.loads(text)
    except ValueError:
        return text
