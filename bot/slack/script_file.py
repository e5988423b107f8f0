"""A script in a text file that a person uploads with a form, read from Slack."""

import asyncio
from typing import Final

import aiohttp
from pydantic import AliasPath, BaseModel, ConfigDict, Field

from bot.errors import OutsideError
from bot.slack.client import is_slacks
from bot.slack.context import HandlerContext
from bot.slack.errors import translated
from bot.slack.payloads import is_plain_text

SCOPE: Final = "files:read"
MAX_BOX: Final = 3000
"""The most characters that a text field of a form holds.

https://docs.slack.dev/reference/block-kit/block-elements/plain-text-input-element
"""
_MAX_BYTES_PER_CHARACTER: Final = 4  # UTF-8
_MAX_MARK: Final = 3  # bytes of a byte order mark
_NOT_READ: Final = "I couldn't read the file from Slack. Please try again, or paste the script."
_NOT_TEXT: Final = "This isn't a plain text file. Save the script as text in UTF-8 (.txt)."


class UnreadableFile(Exception):
    """A file is no script; ``str()`` is a sentence to show under its field."""


class FileUnavailable(UnreadableFile):
    """A file did not come from Slack, or not in time: it may come later."""


class _File(BaseModel):
    """The answer of files.info: https://docs.slack.dev/reference/methods/files.info."""

    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)

    size: int = Field(validation_alias=AliasPath("file", "size"))
    mimetype: str = Field(validation_alias=AliasPath("file", "mimetype"))
    url: str = Field(validation_alias=AliasPath("file", "url_private_download"))


def takes_files(ctx: HandlerContext, max_script: int) -> bool:
    """Return whether a script may come in a file: where one may be longer than a field holds."""
    return max_script > MAX_BOX and ctx.access.has_scope(SCOPE)


async def read_script(ctx: HandlerContext, file: str, max_script: int, deadline: float) -> str:
    """Return the text of the file with this id, by ``deadline`` of the event loop's clock.

    It is not read if it certainly has more than ``max_script`` characters.

    Raises:
        UnreadableFile: it is no plain text in UTF-8, or too large.
        FileUnavailable: it did not come in time.
    """
    try:
        async with asyncio.timeout_at(deadline):
            async with translated(ctx.timings.call_timeout):
                about = _File.model_validate((await ctx.client.files_info(file=file)).data)
            return await _download(ctx, about, max_script)
    # A link that is none is a ValueError, and so is an answer that cannot be read.
    except (OutsideError, TimeoutError, ValueError, aiohttp.ClientError):
        raise FileUnavailable(_NOT_READ) from None


async def _download(ctx: HandlerContext, file: _File, max_script: int) -> str:
    max_bytes = max_script * _MAX_BYTES_PER_CHARACTER + _MAX_MARK
    too_large = UnreadableFile(
        f"That file is too large. A script can have up to {max_script:,} characters."
    )
    if not is_plain_text(file.mimetype):
        raise UnreadableFile(_NOT_TEXT)
    if file.size > max_bytes:
        raise too_large
    if not is_slacks(file.url, ctx.client.base_url):
        raise FileUnavailable(_NOT_READ)
    headers = {"Authorization": f"Bearer {ctx.client.token}"}
    async with ctx.session.get(file.url, headers=headers, allow_redirects=False) as answer:
        # Without the permission, Slack answers with its sign-in page.
        if answer.status != 200 or answer.content_type == "text/html":  # noqa: PLR2004 - OK
            raise FileUnavailable(_NOT_READ)
        content = b""
        while len(content) <= max_bytes and (chunk := await answer.content.readany()):
            content += chunk
    if len(content) > max_bytes:
        raise too_large
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UnreadableFile(_NOT_TEXT) from None
    if "\0" in text:
        raise UnreadableFile(_NOT_TEXT)
    return text.replace("\r\n", "\n")
