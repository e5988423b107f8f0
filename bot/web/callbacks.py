"""The ids that a callback names, wherever they stand in a body of whatever form.

No format of callbacks is documented. What is found is only a candidate, which is read from the
service before it counts: it is better to find too much than too little.
"""

import json
import re
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, Final
from urllib.parse import parse_qsl

from bot.kinds import Kind
from bot.kinds.answers import id_of
from bot.service.client import CODINGS, GZIP_OR_ZLIB

MAX_BYTES: Final = 256 * 1024
"""Of a body, before and after decompression; the rest is not looked at."""
_GZIP_MAGIC: Final = b"\x1f\x8b"
_MAX_NODES: Final = 5_000
_MAX_FORM_FIELDS: Final = 1_000
_MAX_MATCHES: Final = 100
_ANY_ID: Final = "id"
_OPENING: Final = ("{", "[")


class IdFinder:
    """Finds the ids of some kinds of jobs in callbacks."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._fields = {kind.name: (kind.id_field, *kind.id_aliases) for kind in kinds}
        fields = sorted({field for fields in self._fields.values() for field in fields})
        # How often each may match: what is called an id and no more crowds nothing else out.
        self._patterns = ((_pattern(fields), _MAX_MATCHES), (_pattern([_ANY_ID]), 1))

    def find(self, body: bytes, encoding: str, query: Mapping[str, str]) -> dict[str, str]:
        """Return the remote id that a callback names for each kind: the outermost, the first.

        What is called an id and no more counts where none is named for the kind.

        Args:
            body: The body as it came, or its beginning.
            encoding: Its Content-Encoding.
            query: The parameters of its address.
        """
        text = _text(_content(body[:MAX_BYTES], encoding))
        named: dict[str, str] = {}
        unnamed = ""
        for place in self._places(text, query):
            unnamed = unnamed or id_of(place.get(_ANY_ID))
            for kind, fields in self._fields.items():
                given = {field: id_ for field in fields if (id_ := id_of(place.get(field)))}
                if given and kind not in named:
                    named[kind] = next(iter(given.values()))
            if len(named) == len(self._fields):
                break
        return {kind: unnamed for kind in self._fields if unnamed} | named

    def _places(self, text: str, query: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
        """Yield the objects in which an id may stand, the outermost first."""
        content: Any = None
        with suppress(ValueError, RecursionError):
            content = json.loads(text)
        is_json = isinstance(content, dict | list)
        if not is_json and not text.lstrip().startswith(_OPENING):
            content = _form(text)
        yield from _objects([content, dict(query)])
        if not is_json:
            for pattern, most in self._patterns:
                for match in islice(pattern.finditer(text), most):
                    field, *values = match.groups()
                    yield {field: next(filter(None, values))}


def _pattern(fields: Iterable[str]) -> re.Pattern[str]:
    """Return what finds fields in what is no JSON.

    It is cut off, has trailing commas or single quotes, or is XML or multipart. Each part has a
    limit, so that the time is linear in the length.
    """
    return re.compile(
        rf"(?<![A-Za-z0-9_])({'|'.join(map(re.escape, fields))})"
        r"""(?:\\?["']?\s{0,20}[:=>]\s{0,20}|"\r?\n\r?\n)"""
        r"""(?:\\?"([^"\\<>\s]{1,200})\\?"|'([^'\\<>\s]{1,200})'|([A-Za-z0-9._:-]{1,200}))"""
    )


def _content(body: bytes, encoding: str) -> bytes:
    if encoding.strip().lower() in CODINGS or body.startswith(_GZIP_MAGIC):
        with suppress(zlib.error):  # else it is taken as it is
            return zlib.decompressobj(GZIP_OR_ZLIB).decompress(body, MAX_BYTES)
    return body


def _text(body: bytes) -> str:
    """Decode a body. Ids are ASCII: only encodings of several bytes have to be told apart."""
    return body.decode(json.detect_encoding(body), errors="replace").removeprefix("\ufeff")


def _form(text: str) -> dict[str, str] | None:
    """Return the fields of a form, the first of each name; None if it is no form."""
    try:
        fields = parse_qsl(text.strip(), max_num_fields=_MAX_FORM_FIELDS)
    except ValueError:
        return None
    return dict(reversed(fields)) or None


def _objects(roots: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield the objects in some JSON values, level by level, also those that are texts there."""
    waiting = deque(roots)
    for _ in range(_MAX_NODES):
        if not waiting:
            return
        value = waiting.popleft()
        if isinstance(value, str) and value.lstrip().startswith(_OPENING):
            with suppress(ValueError, RecursionError):
                waiting.append(json.loads(value))
        elif isinstance(value, dict):
            yield value
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
