"""Marks: texts to look for where they must not be, plain or encoded."""

import base64
import html
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Final
from urllib.parse import unquote

# Of more marks, only those are looked for whose first characters are in a text. A random run of
# 1,000 jobs has ten thousand, and its database ten million characters.
_FEW: Final = 100
_PREFIX: Final = 6
_WINDOW: Final = 100_000
_ESCAPED: Final = frozenset("%&\\")
_JSON_ESCAPE: Final = re.compile(r"\\u([0-9a-fA-F]{4})|\\(.)", re.DOTALL)


class MarkType(StrEnum):
    """The type of a mark."""

    SECRET = "secret"
    """A token, a key or a capability URL, of the bot or of a callback."""
    QUERY = "query"
    """The query of a link that a user typed. Storage services sign links there."""
    SCRIPT = "script"
    """The script of a video."""
    NAME = "name"
    """The name of a video or a replica."""


@dataclass(frozen=True)
class Mark:
    """A text to look for."""

    type: MarkType
    text: str
    description: str

    @cached_property
    def base64(self) -> str:
        """Return the text in Base64, without padding."""
        return base64.b64encode(self.text.encode()).decode().rstrip("=")

    def is_in(self, text: str) -> bool:
        """Return whether ``text`` contains the mark; a secret also encoded, and in any case."""
        if self.type is not MarkType.SECRET:
            return self.text in text
        assert self.text.isascii()
        folded = self.text.casefold()
        return self.base64 in text or any(folded in view for view in _views(text))

    def around(self, text: str) -> str:
        """Return the part of ``text`` around the mark."""
        at = text.find(self.text)
        return repr(text[max(0, at - 100) : at + 100] if at >= 0 else text[:200])


def find_marks(where: str, texts: Iterable[str], marks: Collection[Mark]) -> Iterator[str]:
    """Yield a sentence for each mark in each of the texts, which are in ``where``."""
    prefixes = _by_prefix(frozenset(marks)) if len(marks) > _FEW else {}
    for text in texts:
        for mark in _possible(prefixes, text) if prefixes else marks:
            if mark.is_in(text):
                yield f"{mark.description} is in {where}: {mark.around(text)}"


@lru_cache(maxsize=4)
def _by_prefix(marks: frozenset[Mark]) -> Mapping[str, set[Mark]]:
    """Return marks by the first characters of the texts that ``is_in`` looks for."""
    found = defaultdict(set)
    for mark in marks:
        for text in (mark.text.casefold(), mark.base64):
            assert len(text) >= _PREFIX
            found[text[:_PREFIX]].add(mark)
    return found


def _possible(prefixes: Mapping[str, set[Mark]], text: str) -> set[Mark]:
    """Return the marks whose first characters are in a text: few of thousands, in one pass."""
    found: set[Mark] = set()
    for view in (text, *_views(text)):
        for start in range(0, len(view), _WINDOW):
            end = min(start + _WINDOW, len(view))
            some = {view[at : at + _PREFIX] for at in range(start, end)}
            for prefix in some.intersection(prefixes):
                found |= prefixes[prefix]
    return found


@lru_cache(maxsize=4)
def _views(text: str) -> tuple[str, ...]:
    """Return a text as it is and as readers see it who decode it, all case-folded."""
    views = [text]
    for _ in range(3):
        if _ESCAPED.isdisjoint(text):
            break
        for decode in (_without_json_escapes, unquote, html.unescape):
            text = decode(text)
            views.append(text)
    return tuple(dict.fromkeys(view.casefold() for view in views))


def _without_json_escapes(text: str) -> str:
    return _JSON_ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else found[2], text)
