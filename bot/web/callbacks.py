"""The ids that a callback names, wherever they stand in a body of whatever form.

No format of callbacks is documented. What is found is only a candidate, which is read from the
service before it counts: it is better to find too much than too little.
"""

import json
import re
import zlib
from collections.abc import Iterable
from contextlib import suppress
from typing import Final
from urllib.parse import unquote

from bot.kinds import Kind, id_of
from bot.service.client import CODINGS, GZIP_OR_ZLIB

MAX_CALLBACK_BYTES: Final = 256 * 1024
"""Of a callback's body, before and after decompression; the rest is not looked at."""
_GZIP_MAGIC: Final = b"\x1f\x8b"
_ANY_ID: Final = "id"


class IdFinder:
    """Finds the ids of some kinds of jobs in callbacks, by the names of their fields.

    A body is searched as a text, whatever it is: JSON, complete or cut off, in a text of JSON or
    with single quotes; a form, XML or multipart. Each part of the pattern has a limit, so that the
    time is linear in the length.
    """

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._kinds = {
            field: kind.name for kind in kinds for field in (kind.id_field, *kind.id_aliases)
        }
        names = "|".join(map(re.escape, (*self._kinds, _ANY_ID)))
        self._pattern = re.compile(
            rf"(?<![\w ])(?P<field>{names})"  # what follows a space is a word in a text
            r"""(?:\\{0,7}["']?\s{0,20}[:=>]\s{0,20}|"\r?\n\r?\n)"""
            r"""(?:\\{0,7}(?P<quote>["'])(?P<quoted>[^"'\\<>\s]{1,200})\\{0,7}(?P=quote)"""
            r"|(?!(?:null|true|false)\b)(?P<bare>[A-Za-z0-9._:-]{1,200}))"
        )

    def find(self, body: bytes, encoding: str, query: str) -> dict[str, str]:
        """Return the remote id that a callback names for each kind: the first.

        What is called an id and no more counts where none is named for the kind.

        Args:
            body: The body as it came, or its beginning.
            encoding: Its Content-Encoding.
            query: The query of its address.
        """
        content = _content(body[:MAX_CALLBACK_BYTES], encoding)
        # Ids are ASCII: only encodings of several bytes have to be told apart.
        text = unquote(content.decode(json.detect_encoding(content), errors="replace"))
        named: dict[str, str] = {}
        unnamed = ""
        for found in self._pattern.finditer(f"{text}\n{query}"):
            remote_id = id_of(found["quoted"] or found["bare"])
            if found["field"] == _ANY_ID:
                unnamed = unnamed or remote_id
            elif remote_id:
                named.setdefault(self._kinds[found["field"]], remote_id)
        return {kind: unnamed for kind in self._kinds.values() if unnamed} | named


def _content(body: bytes, encoding: str) -> bytes:
    if encoding.strip().lower() in CODINGS or body.startswith(_GZIP_MAGIC):
        with suppress(zlib.error):  # else it is taken as it is
            return zlib.decompressobj(GZIP_OR_ZLIB).decompress(body, MAX_CALLBACK_BYTES)
    return body
