"""Slack's markup for text: whom it would notify, and how a client escapes it."""

import html
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from sandbox.block_kit import Json

_NOTIFYING: Final = re.compile(
    r"<@([UW]\w+)(?:\|[^>]*)?>|<(!(?:channel|here|everyone))(?:\|[^>]*)?>|<!subteam\^(S\w+)[^>]*>"
)
_TYPED: Final = re.compile(r"https?://[^\s<>|]+|[@#][\w.-]+")


def pings(text: str, blocks: Iterable[Json]) -> frozenset[str]:
    """Return whom a message notifies: user ids, group ids, ``!channel``, ``!here``, ``!everyone``.

    Where there are blocks, ``text`` is only read out and notifies no one. In blocks, mrkdwn text,
    markdown blocks and the mentions of rich text count; plain text never does.
    """
    shown = list(blocks)
    found = _in_blocks(shown) if shown else _in_text(text)
    return frozenset(found)


def _in_text(text: str) -> Iterator[str]:
    for match in _NOTIFYING.finditer(text):
        yield next(group for group in match.groups() if group)


def _in_blocks(value: object) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _in_blocks(each)
    elif isinstance(value, dict):
        match value:
            case {"type": "mrkdwn" | "markdown", "text": str(text)}:
                yield from _in_text(text)
            case {"type": "user", "user_id": str(name)} | {
                "type": "usergroup",
                "usergroup_id": str(name),
            }:
                yield name
            case {"type": "broadcast", "range": str(name)}:
                yield f"!{name}"
            case _:
                for each in value.values():
                    yield from _in_blocks(each)


def escape(text: str) -> str:
    """Escape the three characters that Slack escapes, and no other."""
    return html.escape(text, quote=False)


def as_sent(typed: str, mention: Callable[[str], str | None]) -> str:
    """Return what a client makes of typed text: escaped, links and mentions in angle brackets.

    Args:
        typed: what the person wrote.
        mention: gives the markup for ``@name`` or ``#name``, or None if there is no such name.
    """
    parts: list[str] = []
    end = 0
    for match in _TYPED.finditer(typed):
        word = match.group()
        marked = mention(word) if word[0] in "@#" else f"<{escape(word)}>"
        parts += [escape(typed[end : match.start()]), marked or word]
        end = match.end()
    return "".join([*parts, escape(typed[end:])])
