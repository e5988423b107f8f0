"""Masks the bot's secrets in texts that come from outside or leave the process."""

import logging
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from html import unescape
from typing import Any, Final

_LOG: Final = logging.getLogger(__name__)

MASKED: Final = "***"
"""What stands in place of a secret."""

# In characters. Shorter values are no secrets, and would be found in ordinary words.
_MIN_LENGTH: Final = 8
# A gateway may escape what a service has escaped.
_MAX_LAYERS: Final = 4
# In characters, of a text of the service: the longest that it has a use for is a script of 20,000.
_MAX_TEXT: Final = 32_768
# Between texts that are looked at together: no escape goes across it, as nothing escapes it with \.
_SEPARATOR: Final = "|"
# White space, control and format characters.
_INVISIBLE: Final = (
    r"\s\x00-\x1f\x7f-\xa0\xad\u034f\u061c\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f"
    r"\ufe00-\ufe0f\ufeff\ufff9-\uffff"
)
# Percent-encoding, HTML's character references, the escapes of JSON and of Python's repr(). They
# begin with a set of characters, for which re looks fast.
_SEEN_ESCAPE: Final = (
    r"[%&\\](?:(?<=%)[0-9a-f]{2}|(?<=&)(?:#[0-9]{1,7}|#x[0-9a-f]{1,6}|[a-z][a-z0-9]{1,30});?"
    rf"|(?<=\\)(?:u[0-9a-f]{{4}}|x[0-9a-f]{{2}}|[^{_SEPARATOR}]))"
)
_ESCAPE: Final = re.compile(_SEEN_ESCAPE, re.IGNORECASE)
_ESCAPE_OR_HIDING: Final = re.compile(rf"{_SEEN_ESCAPE}|[{_INVISIBLE}]+", re.IGNORECASE)
_INTRODUCERS: Final = frozenset("%&\\")
_HIDING: Final = re.compile(f"[{_INVISIBLE}]+")
# The token of a callback has 43 characters: secrets.token_urlsafe(32).
_CALLBACK_WORD: Final = "callbacks"
_CALLBACK: Final = re.compile(r"(callbacks(?:\\?/|%2F|&#x2F;))([\w-]{43})(?![\w-])", re.IGNORECASE)

_Span = tuple[int, int]


class Mask:
    """Replaces secrets in texts, however they are written there.

    A secret is found in capitals and small letters alike, with any of its characters
    percent-encoded or escaped as in HTML, JSON or ``repr()``, in several layers, and with white
    space or invisible characters in it. A text that may hold a piece that is at least half of a
    secret, from 8 characters up, is replaced as a whole. The tokens of callback addresses are
    masked by their place.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        folded = {_folded(secret) for secret in secrets if len(secret) >= _MIN_LENGTH}
        self._secrets = [_Secret(each) for each in folded]

    def __call__(self, text: str) -> str:
        """Return the text with each secret in it replaced by ``MASKED``."""
        masked = self._masked(text)
        return MASKED if masked is None else masked

    def may_change(self, texts: Iterable[str]) -> bool:
        """Return whether something may have to be masked in one of some texts.

        That is known of all together in a fraction of the time that masking each takes.
        """
        text = _SEPARATOR.join(texts)
        return _CALLBACK_WORD in text.casefold() or self._may_hold_half(text, _MAX_LAYERS)

    def json(self, value: Any) -> Any:  # noqa: ANN401 - any JSON
        """Return a JSON value with secrets masked in each of its texts and names.

        A text that may hold half of a secret becomes ``MASKED``. How long they are is logged. One
        that is longer than any that is of use is cut before.

        Raises:
            RecursionError: it is nested too deeply.
        """
        texts = _texts(value)
        if sum(map(len, texts)) <= _MAX_TEXT and not self.may_change(texts):
            return value
        withheld: list[int] = []
        masked = self._each(value, withheld)
        if withheld:
            _LOG.warning(
                "a text of the service may hold part of a secret, and is not shown",
                extra={"texts": len(withheld), "characters": sum(withheld)},
            )
        return masked

    def _each(self, value: Any, withheld: list[int]) -> Any:  # noqa: ANN401 - any JSON
        """Mask each text and name by itself; append the lengths of those that are not shown."""
        match value:
            case str():
                masked = self._masked(value[:_MAX_TEXT])
                if masked is None:
                    withheld.append(len(value))
                    return MASKED
                return masked
            case list():
                return [self._each(each, withheld) for each in value]
            case dict():
                return {
                    self._each(name, withheld): self._each(each, withheld)
                    for name, each in value.items()
                }
        return value

    def _masked(self, text: str) -> str | None:
        """Return the text with its secrets replaced; None if it may hold half of one."""
        if len(text) < _MIN_LENGTH:
            return text
        # Noting where each character comes from takes much longer, and most texts hold none.
        if self._may_hold_half(text, _MAX_LAYERS):
            parts: list[str] = []
            done = 0
            for start, end in sorted(self._spans(text, _MAX_LAYERS)):
                if start >= done:
                    parts += (text[done:start], MASKED)
                done = max(done, end)
            text = "".join([*parts, text[done:]])
            if self._may_hold_half(text, _MAX_LAYERS):
                return None
        return _CALLBACK.sub(rf"\1{MASKED}", text)

    def _spans(self, text: str, layers: int) -> Iterator[_Span]:
        """Yield where secrets are, as they are and below up to ``layers`` layers of escapes."""
        folded = _folded(text)
        for secret in self._secrets:
            yield from secret.spans(folded)
        if layers:
            decoded, origins = _decoded(text)
            if decoded != text:
                for start, end in self._spans(decoded, layers - 1):
                    yield origins[start][0], origins[end - 1][1]

    def _may_hold_half(self, text: str, layers: int) -> bool:
        """Return whether half of a secret may be in a text, or below its escapes."""
        seen = "".join(text.split())
        # Some that are not seen count as printable: variation selectors, U+FFFD.
        if not (seen.isascii() and seen.isprintable()):
            seen = _HIDING.sub("", seen)
        folded = [_folded(text), _folded(seen)] if seen != text else [_folded(text)]
        if any(secret.has_half_in(each) for secret in self._secrets for each in folded):
            return True
        if not layers or _INTRODUCERS.isdisjoint(seen):
            return False
        decoded = _ESCAPE.sub(lambda found: _character(found[0]), seen)
        return decoded != seen and self._may_hold_half(decoded, layers - 1)


class _Secret:
    """A secret, and how to find it and half of it."""

    def __init__(self, folded: str) -> None:
        self._secret = folded
        half = max(_MIN_LENGTH, (len(folded) + 1) // 2)
        self._halves = [folded[at : at + half] for at in range(len(folded) - half + 1)]
        # Each half has one of these in it, as a whole: they are few, and rare in other texts.
        size = (half + 1) // 2
        self._blocks = [folded[at : at + size] for at in range(0, len(folded) - size + 1, size)]

    def has_half_in(self, folded: str) -> bool:
        """Return whether at least half of the secret is in a text."""
        may_be = any(block in folded for block in self._blocks)
        return may_be and any(half in folded for half in self._halves)

    def spans(self, folded: str) -> Iterator[_Span]:
        """Yield where the secret is in a text."""
        at = folded.find(self._secret)
        while at >= 0:
            yield at, at + len(self._secret)
            at = folded.find(self._secret, at + 1)


def _texts(value: Any) -> list[str]:  # noqa: ANN401 - any JSON
    """Return all texts and names in a JSON value."""
    texts: list[str] = []
    values = [value]
    for each in values:  # which grows meanwhile
        if isinstance(each, str):
            texts.append(each)
        elif isinstance(each, dict):
            texts += each
            values += each.values()
        elif isinstance(each, list):
            values += each
    return texts


def _folded(text: str) -> str:
    """Return the text case-folded, each character at its place."""
    folded = text.casefold()
    if len(folded) == len(text):
        return folded
    return "".join(each if len(each) == 1 else "?" for each in map(str.casefold, text))


def _decoded(text: str) -> tuple[str, list[_Span]]:
    """Remove one layer of escapes; return the rest, and where each of its characters comes from."""
    letters: list[str] = []
    origins: list[_Span] = []
    done = 0
    for found in _ESCAPE_OR_HIDING.finditer(text):
        letters += text[done : found.start()]
        origins += zip(range(done, found.start()), range(done + 1, found.start() + 1), strict=True)
        character = _character(found[0])
        letters += character
        origins += [found.span()] * len(character)
        done = found.end()
    letters += text[done:]
    origins += zip(range(done, len(text)), range(done + 1, len(text) + 1), strict=True)
    return "".join(letters), origins


@lru_cache(maxsize=1024)
def _character(escape: str) -> str:
    """Return what an escape stands for: a character, or for some references of HTML two."""
    if escape[0] not in _INTRODUCERS:
        return ""
    if escape[0] == "&":
        return unescape(escape.casefold())
    # "%2b", "\\u002b", "\\x2b"; "\\/" has no digits.
    digits = escape[1:] if escape[0] == "%" else escape[2:]
    return chr(int(digits, base=16)) if digits else escape[1:]
