"""Masks the bot's secrets in texts that come from outside or leave the process."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from html import unescape
from itertools import takewhile
from typing import Any, Final

MASKED: Final = "***"
"""What stands in place of a secret."""

# In characters. Shorter values are no secrets, and would be found in ordinary words.
_MIN_LENGTH: Final = 8
# A gateway may escape what a service has escaped.
_MAX_LAYERS: Final = 4
# White space, control and format characters.
_INVISIBLE: Final = (
    r"\s\x00-\x1f\x7f-\xa0\xad\u034f\u061c\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f"
    r"\ufe00-\ufe0f\ufeff\ufff9-\uffff"
)
# Percent-encoding, HTML's character references, the escapes of JSON and of Python's repr(), and
# what is not seen.
_ESCAPE: Final = re.compile(
    r"%[0-9a-f]{2}|&(?:#[0-9]{1,7}|#x[0-9a-f]{1,6}|[a-z][a-z0-9]{1,30});?"
    rf"|\\u[0-9a-f]{{4}}|\\x[0-9a-f]{{2}}|\\.|[{_INVISIBLE}]+",
    re.IGNORECASE | re.DOTALL,
)
_INTRODUCERS: Final = frozenset("%&\\")
_HIDING: Final = re.compile(f"[{_INVISIBLE}]+")
# What may follow a secret that was cut: part of an escape, and an ellipsis or nothing more.
_CUT: Final = re.compile(
    r"(?:%[0-9a-f]?|&#?\w{0,7}|\\(?:u[0-9a-f]{0,3})?)?(?:…|\.{3}|\s*\Z)", re.IGNORECASE
)
# The token of a callback has 43 characters: secrets.token_urlsafe(32).
_CALLBACK: Final = re.compile(r"(callbacks(?:\\?/|%2F|&#x2F;))([\w-]{43})(?![\w-])", re.IGNORECASE)

_Span = tuple[int, int]


class Mask:
    """Replaces secrets in texts, however they are written there.

    A secret is found in capitals and small letters alike, with any of its characters
    percent-encoded or escaped as in HTML, JSON or ``repr()``, in several layers, and with white
    space or invisible characters in it. Where it was cut, each piece that is at least half of it is
    masked too, from 8 characters up. The tokens of callback addresses are masked by their place.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        folded = {_folded(secret) for secret in secrets if len(secret) >= _MIN_LENGTH}
        # Of two secrets with the same beginning, the longer one has to be masked to its end.
        self._secrets = [_Secret(each) for each in sorted(folded, key=len, reverse=True)]

    def __call__(self, text: str) -> str:
        """Return the text with each secret in it replaced by ``MASKED``."""
        parts: list[str] = []
        done = 0
        for start, end in sorted(self._spans(text, _MAX_LAYERS)):
            if start >= done:
                parts += (text[done:start], MASKED)
            done = max(done, end)
        masked = "".join([*parts, text[done:]]) if parts else text
        return _CALLBACK.sub(rf"\1{MASKED}", masked)

    def json(self, value: Any) -> Any:  # noqa: ANN401 - any JSON
        """Return a JSON value with secrets masked in each of its texts and names.

        Raises:
            RecursionError: it is nested too deeply.
        """
        match value:
            case str():
                return self(value)
            case list():
                return [self.json(each) for each in value]
            case dict():
                return {self(name): self.json(each) for name, each in value.items()}
        return value

    @staticmethod
    def hash_tokens(value: Any, hashed: Callable[[str], str]) -> Any:  # noqa: ANN401 - any JSON
        """Return a JSON value with the tokens of callback addresses replaced by their hashes.

        A hash is no secret, and says whose address it is.

        Raises:
            RecursionError: it is nested too deeply.
        """
        match value:
            case str():
                return _CALLBACK.sub(lambda found: found[1] + hashed(found[2]), value)
            case list():
                return [Mask.hash_tokens(each, hashed) for each in value]
            case dict():
                return {name: Mask.hash_tokens(each, hashed) for name, each in value.items()}
        return value

    def _spans(self, text: str, layers: int) -> Iterator[_Span]:
        """Yield where secrets are, as they are and below up to ``layers`` layers of escapes."""
        folded = _folded(text)
        for secret in self._secrets:
            yield from secret.spans(folded)
        if layers and self._may_hide(text, layers):
            decoded, original = _decoded(text)
            if decoded != text:
                for start, end in self._spans(decoded, layers - 1):
                    yield original(start)[0], original(end - 1)[1]

    def _may_hide(self, text: str, layers: int) -> bool:
        """Return whether a piece of a secret may be below the escapes of a text.

        Noting where each character comes from takes much longer, and most texts have spaces.
        """
        seen = "".join(text.split())
        if not seen.isprintable():
            seen = _HIDING.sub("", seen)
        folded = _folded(seen)
        if any(secret.may_be_in(folded) for secret in self._secrets):
            return True
        if not layers or _INTRODUCERS.isdisjoint(seen):
            return False
        decoded = _ESCAPE.sub(lambda found: _character(found[0]), seen)
        return decoded != seen and self._may_hide(decoded, layers - 1)


class _Secret:
    """A secret, and how to find pieces of it that are at least half of it."""

    def __init__(self, folded: str) -> None:
        self._secret = folded
        self._min_length = max(_MIN_LENGTH, (len(folded) + 1) // 2)
        # Each piece has one of these in it, as a whole.
        size = (self._min_length + 1) // 2
        self._blocks = [(at, folded[at : at + size]) for at in range(0, len(folded), size)]
        self._blocks = [(at, block) for at, block in self._blocks if len(block) == size]

    def may_be_in(self, folded: str) -> bool:
        """Return whether a piece may be in a text: False only if none is."""
        return any(block in folded for _, block in self._blocks)

    def spans(self, folded: str) -> Iterator[_Span]:
        """Yield where pieces are in a text, with what is left of an escape at their end."""
        for offset, block in self._blocks:
            at = folded.find(block)
            while at >= 0:
                left = folded[max(0, at - offset) : at]
                right = folded[at : at + len(self._secret) - offset]
                before = _common(reversed(self._secret[:offset]), reversed(left))
                after = _common(self._secret[offset:], right)
                if before + after >= self._min_length:
                    end = at + after
                    if offset + after < len(self._secret) and (cut := _CUT.match(folded, end)):
                        end = cut.end()
                    yield at - before, end
                at = folded.find(block, at + 1)


def _common(one: Iterable[str], other: Iterable[str]) -> int:
    """Return how many characters two texts have in common at their beginning."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _folded(text: str) -> str:
    """Return the text case-folded, each character at its place."""
    folded = text.casefold()
    if len(folded) == len(text):
        return folded
    return "".join(each if len(each) == 1 else "?" for each in map(str.casefold, text))


def _decoded(text: str) -> tuple[str, Callable[[int], _Span]]:
    """Remove one layer of escapes; the function returns where a character comes from."""
    pieces: list[str] = []
    # Where each piece begins in the decoded text, where it begins and ends in ``text``.
    starts: list[int] = []
    origins: list[_Span] = []
    length = done = 0
    for found in _ESCAPE.finditer(text):
        for piece, origin in (
            (text[done : found.start()], (done, found.start())),
            (_character(found[0]), found.span()),
        ):
            pieces.append(piece)
            starts.append(length)
            origins.append(origin)
            length += len(piece)
        done = found.end()
    pieces.append(text[done:])
    starts.append(length)
    origins.append((done, len(text)))

    def original(position: int) -> _Span:
        number = bisect_right(starts, position) - 1
        start, end = origins[number]
        if len(pieces[number]) == end - start:  # not an escape
            start += position - starts[number]
            end = start + 1
        return start, end

    return "".join(pieces), original


def _character(escape: str) -> str:
    """Return what an escape stands for: a character, or for some references of HTML two."""
    if escape[0] not in _INTRODUCERS:
        return ""
    if escape[0] == "&":
        return unescape(escape.casefold())
    # "%2b", "\\u002b", "\\x2b"; "\\/" has no digits.
    digits = escape[1:] if escape[0] == "%" else escape[2:]
    return chr(int(digits, base=16)) if digits else escape[1:]
