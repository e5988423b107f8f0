"""Files of people and of the app: uploaded, described by files.info, downloaded with its token.

An app uploads one in three steps: it gets a URL for the content, sends the content there, and makes
the call that shares the file: https://docs.slack.dev/messaging/working-with-files.
"""

import secrets
from dataclasses import dataclass, field, replace
from datetime import datetime
from http import HTTPStatus
from pathlib import PurePath
from typing import Final
from urllib.parse import quote

from aiohttp import web

from sandbox.block_kit import Json
from sandbox.slack_objects import Message, SlackError

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


@dataclass
class Upload:
    """A file on its way; ``content`` is None until it was sent to the URL with ``secret``."""

    id: str
    name: str
    length: int
    content: bytes | None = None
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    def receive(self, content: bytes) -> None:
        """Store the content, once.

        The documentation says only that a status other than 200 is a failure.

        Raises:
            SlackError: it was sent before, or has another length than was said.
        """
        if self.content is not None:
            raise SlackError("used_url")
        if len(content) != self.length:
            raise SlackError("wrong_length")
        self.content = content


def new_file(
    content: bytes,
    *,
    identifier: str,
    user: str,
    name: str,
    mimetype: str,
    created: datetime,
    site: str,
    title: str = "",
) -> File:
    """Return a file of a user, or of the app, that is downloaded from ``site``."""
    link = f"{site}/files/{identifier}/{quote(name, safe='')}"
    shown = {
        "id": identifier,
        "created": int(created.timestamp()),
        "name": name,
        "title": title or name,
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


def shared(file: File, message: Message, *, is_public: bool) -> File:
    """Return a file as it is once ``message`` shares it: where is in its ``shares``.

    https://docs.slack.dev/reference/objects/file-object
    """
    share: Json = {"ts": message.ts}
    if message.thread_ts:
        share["thread_ts"] = message.thread_ts
    shares = {"public" if is_public else "private": {message.channel: [share]}}
    return replace(file, shown={**file.shown, "is_public": is_public, "shares": shares})


def download(file: File | None, *, is_allowed: bool) -> web.Response:
    """Return the response to a download.

    Without the app's token and ``files:read``, Slack answers with its sign-in page instead of the
    file, and with status 200: https://docs.slack.dev/messaging/working-with-files.
    """
    if not is_allowed:
        return web.Response(text="<html>Sign in</html>", content_type="text/html")
    if file is None:
        return web.Response(status=HTTPStatus.NOT_FOUND)
    mimetype = str(file.shown["mimetype"])
    charset = "utf-8" if mimetype.startswith("text/") else None
    return web.Response(body=file.content, content_type=mimetype, charset=charset)
