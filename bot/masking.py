"""Masks the bot's secrets in texts that come from outside or leave the process."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from html import unescape
from typing import Any, Final

MASKED: Final = "***"
"""What stands in place of a secret."""

# In characters. Shorter values are no secrets, and would be found in ordinary words.
_MIN_LENGTH: Final = 8
# A gateway may escape what a service has escaped.
_MAX_LAYERS: Final = 4
# Percent-encoding, HTML's character references, and the escapes of JSON and of Python's repr().
_ESCAPE: Final = re.compile(
    r"%[0-9a-f]{2}|&(?:#[0-9]{1,7}|#x[0-9a-f]{1,6}|[a-z][a-z0-9]{1,30});?"
    r"|\\u[0-9a-f]{4}|\\x[0-9a-f]{2}|\\.",
    re.IGNORECASE | re.DOTALL,
)
_INTRODUCERS: Final = frozenset("%&\\")
# What may follow a secret that was cut: part of an escape, and an ellipsis or nothing more.
_CUT: Final = re.compile(
    r"(?:%[0-9a-f]?|&#?\w{0,7}|\\(?:u[0-9a-f]{0,3})?)?(?:…|\.{3}|\s*\Z)", re.IGNORECASE
)

_Span = tuple[int, int]


class Mask:
    """Replaces secrets in texts, however they are written there.

    A secret is found in capitals and small letters alike, with any of its characters
    percent-encoded or escaped as in HTML, JSON or ``repr()``, in several layers. Where it was cut,
    at the end of a text or before an ellipsis, its first half is masked too, from 8 characters up.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        folded = {_folded(secret) for secret in secrets if len(secret) >= _MIN_LENGTH}
        # Of two secrets with the same beginning, the longer one has to be masked to its end.
        self._secrets = [
            (secret[: max(_MIN_LENGTH, (len(secret) + 1) // 2)], secret)
            for secret in sorted(folded, key=len, reverse=True)
        ]

    def __call__(self, text: str) -> str:
        """Return the text with each secret in it replaced by ``MASKED``."""
        parts: list[str] = []
        done = 0
        for start, end in sorted(self._spans(text, _MAX_LAYERS)):
            if start >= done:
                parts += (text[done:start], MASKED)
            done = max(done, end)
        return "".join([*parts, text[done:]]) if parts else text

    def json(self, value: Any) -> Any:  # noqa: ANN401 - any JSON
        """Return a JSON value with secrets masked in each of its texts; names stay as they are.

        Raises:
            RecursionError: it is nested too deeply.
        """
        match value:
            case str():
                return self(value)
            case list():
                return [self.json(each) for each in value]
            case dict():
                return {name: self.json(each) for name, each in value.items()}
        return value

    def _spans(self, text: str, layers: int) -> Iterator[_Span]:
        """Yield where secrets are, as they are and below up to ``layers`` layers of escapes."""
        folded = _folded(text)
        for beginning, secret in self._secrets:
            at = folded.find(beginning)
            while at >= 0:
                if (end := _end(folded, at, secret)) is not None:
                    yield at, end
                at = folded.find(beginning, at + 1)
        if layers and not _INTRODUCERS.isdisjoint(text):
            decoded, original = _decoded(text)
            if decoded != text:
                for start, end in self._spans(decoded, layers - 1):
                    yield original(start)[0], original(end - 1)[1]


def _end(folded: str, at: int, secret: str) -> int | None:
    """Return where the secret ends that begins at ``at``; None if it is not the secret."""
    if folded.startswith(secret, at):
        return at + len(secret)
    lengths = range(len(secret) - 1, 0, -1)
    length = next(length for length in lengths if folded.startswith(secret[:length], at))
    cut = _CUT.match(folded, at + length)
    return cut and cut.end()


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
    if escape[0] == "&":
        return unescape(escape.casefold())
    # "%2b", "\\u002b", "\\x2b"; "\\/" has no digits.
    digits = escape[1:] if escape[0] == "%" else escape[2:]
    return chr(int(digits, base=16)) if digits else escape[1:]
