"""Masks the bot's secrets in texts that come from outside or leave the process."""

import logging
import re
from collections.abc import Iterable
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
_ESCAPE: Final = re.compile(
    r"[%&\\](?:(?<=%)[0-9a-f]{2}|(?<=&)(?:#[0-9]{1,7}|#x[0-9a-f]{1,6}|[a-z][a-z0-9]{1,30});?"
    rf"|(?<=\\)(?:u[0-9a-f]{{4}}|x[0-9a-f]{{2}}|[^{_SEPARATOR}]))",
    re.IGNORECASE,
)
_INTRODUCERS: Final = frozenset("%&\\")
_HIDING: Final = re.compile(f"[{_INVISIBLE}]+")
# The token of a callback has 43 characters: secrets.token_urlsafe(32).
_CALLBACK_WORD: Final = "callbacks"
_CALLBACK: Final = re.compile(r"(callbacks(?:\\?/|%2F|&#x2F;))([\w-]{43})(?![\w-])", re.IGNORECASE)


class Mask:
    """Replaces secrets in texts, and withholds texts that may hide one.

    A secret is replaced where it is written as it is, in capitals and small letters alike. A text
    that may hold a piece that is at least half of a secret, from 8 characters up, is replaced as a
    whole: with any of its characters percent-encoded or escaped as in HTML, JSON or ``repr()``, in
    several layers, and with white space or invisible characters in it. The tokens of callback
    addresses are masked by their place.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        found = {secret for secret in secrets if len(secret) >= _MIN_LENGTH}
        self._secrets = [_Secret(each) for each in {each.casefold() for each in found}]
        longest_first = sorted(found, key=len, reverse=True)
        self._plain = re.compile("|".join(map(re.escape, longest_first)) or "(?!)", re.IGNORECASE)

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
        if self._may_hold_half(text, _MAX_LAYERS):
            text = self._plain.sub(MASKED, text)
            if self._may_hold_half(text, _MAX_LAYERS):
                return None
        return _CALLBACK.sub(rf"\1{MASKED}", text)

    def _may_hold_half(self, text: str, layers: int) -> bool:
        """Return whether half of a secret may be in a text, or below its escapes."""
        seen = "".join(text.split())
        # Some that are not seen count as printable: variation selectors, U+FFFD.
        if not (seen.isascii() and seen.isprintable()):
            seen = _HIDING.sub("", seen)
        folded = {text.casefold(), seen.casefold()}
        if any(secret.has_half_in(each) for secret in self._secrets for each in folded):
            return True
        if not layers or _INTRODUCERS.isdisjoint(seen):
            return False
        decoded = _ESCAPE.sub(lambda found: _character(found[0]), seen)
        return decoded != seen and self._may_hold_half(decoded, layers - 1)


class _Secret:
    """A secret, and how to find half of it."""

    def __init__(self, folded: str) -> None:
        half = max(_MIN_LENGTH, (len(folded) + 1) // 2)
        self._halves = [folded[at : at + half] for at in range(len(folded) - half + 1)]
        # Each half has one of these in it, as a whole: they are few, and rare in other texts.
        size = (half + 1) // 2
        self._blocks = [folded[at : at + size] for at in range(0, len(folded) - size + 1, size)]

    def has_half_in(self, folded: str) -> bool:
        """Return whether at least half of the secret is in a text."""
        may_be = any(block in folded for block in self._blocks)
        return may_be and any(half in folded for half in self._halves)


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


@lru_cache(maxsize=1024)
def _character(escape: str) -> str:
    """Return what an escape stands for: a character, or for some references of HTML two."""
    if escape[0] == "&":
        return unescape(escape.casefold())
    # "%2b", "\\u002b", "\\x2b"; "\\/" has no digits.
    digits = escape[1:] if escape[0] == "%" else escape[2:]
    return chr(int(digits, base=16)) if digits else escape[1:]
