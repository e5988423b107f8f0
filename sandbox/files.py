"""Files that people upload: described by files.info, downloaded with the app's token."""

from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from pathlib import PurePath
from typing import Final
from urllib.parse import quote

from aiohttp import web

from sandbox.block_kit import Json

#: A client uploads no larger file into a form:
#: https://docs.slack.dev/reference/block-kit/block-elements/file-input-element
MAX_BYTES: Final = 10_000_000
# https://docs.slack.dev/reference/objects/file-object#types
_TYPES: Final = {".txt": "text", ".md": "markdown", ".pdf": "pdf", ".png": "png", ".mp4": "mp4"}


@dataclass(frozen=True)
class File:
    """A file; ``shown`` is what Slack says about it.

    https://docs.slack.dev/reference/objects/file-object
    """

    shown: Json
    content: bytes

    @property
    def ending(self) -> str:
        """Return the ending of its name, in small letters and without the dot."""
        return PurePath(str(self.shown["name"])).suffix.lower().removeprefix(".")


def new_file(
    content: bytes,
    *,
    identifier: str,
    user: str,
    name: str,
    mimetype: str,
    created: datetime,
    site: str,
) -> File:
    """Return a file of a user that is downloaded from ``site``."""
    link = f"{site}/files/{identifier}/{quote(name, safe='')}"
    shown = {
        "id": identifier,
        "created": int(created.timestamp()),
        "name": name,
        "title": name,
        "user": user,
        "mimetype": mimetype,
        "filetype": _TYPES.get(PurePath(name).suffix.lower(), "binary"),
        "size": len(content),
        "mode": "hosted",
        "is_external": False,
        "url_private": link,
        "url_private_download": link,
    }
    return File(shown, content)


def download(file: File | None, *, is_allowed: bool) -> web.Response:
    """Return the response to a download.

    Without the app's token and ``files:read``, Slack answers with its sign-in page instead of the
    file, and with status 200: https://docs.slack.dev/messaging/working-with-files.
    """
    if not is_allowed:
        return web.Response(text="<html>Sign in</html>", content_type="text/html")
    if file is None:
        return web.Response(status=HTTPStatus.NOT_FOUND)
    return web.Response(body=file.content, content_type=str(file.shown["mimetype"]))
