"""The Slack app's manifest for a deployment: manifest.yml with its settings filled in."""

import re
from pathlib import Path
from typing import Final

from bot.settings import ManifestSettings

_SOURCE: Final = Path(__file__).parent.parent / "manifest.yml"
_HEADER: Final = re.compile(r"\A(#.*\n)+")
_URL: Final = "https://YOUR-HOST"
_COMMAND: Final = re.compile(r"/(?=(?:video|replica)\b)")


def manifest(settings: ManifestSettings) -> str:
    """Return the manifest as YAML, with its comments. Without a public URL it has a placeholder.

    It is changed as text: a YAML library would be one more dependency, and drop the comments.
    """
    text = _SOURCE.read_text(encoding="utf-8")
    if settings.public_url is not None:
        text = _HEADER.sub("# The Slack app: paste this into its App Manifest.\n", text)
        text = text.replace(_URL, settings.public_url)
    return _COMMAND.sub(f"/{settings.command_prefix}", text)
