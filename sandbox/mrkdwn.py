"""Slack's markup for text: whom it would notify, how a client escapes it, how it reads as plain."""

import html
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, tzinfo
from typing import Final

from sandbox.block_kit import Json

_NOTIFYING: Final = re.compile(
    r"<@([UW]\w+)(?:\|[^>]*)?>|<(!(?:channel|here|everyone))(?:\|[^>]*)?>|<!subteam\^(S\w+)[^>]*>"
)
_ANGLED: Final = re.compile(r"<([^<>]+)>")
_EMPHASIS: Final = re.compile(r"(?<!\w)([*_~])(\S|\S[^\n]*?\S)\1(?!\w)")
_CODE: Final = re.compile(r"(`{3}|`)(.+?)\1", re.DOTALL)
_DATE_TOKEN: Final = re.compile(r"\{(\w+)\}")
_TYPED: Final = re.compile(r"https?://[^\s<>|]+|[@#][\w.-]+")
_UNITS: Final = (("day", 86_400), ("hour", 3_600), ("minute", 60))


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


# Those that the bot uses; any other stays a word between colons.
_SHORTCODE: Final = re.compile(r":(\w+):")
_EMOJI: Final = {
    "question": "❓",
    "hourglass": "⌛",
    "hourglass_flowing_sand": "⏳",
    "turtle": "🐢",
    "white_check_mark": "✅",
    "x": "❌",
}


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


def as_plain(text: str, names: Callable[[str], str], now: datetime, zone: tzinfo = UTC) -> str:
    """Return mrkdwn as it reads without any formatting.

    Args:
        text: mrkdwn as it was sent.
        names: turns the id of a user, channel or group into what a client shows, ``@ana``.
        now: the present moment, for dates relative to it.
        zone: the reader's.
    """
    text = _ANGLED.sub(lambda match: _angled(match.group(1), names, now, zone), text)
    text = _SHORTCODE.sub(lambda match: _EMOJI.get(match.group(1), match.group()), text)
    text = _CODE.sub(r"\2", text)
    for _ in range(3):  # emphasis may be nested: bold, italic, struck
        text = _EMPHASIS.sub(r"\2", text)
    return html.unescape(text)


def _angled(inside: str, names: Callable[[str], str], now: datetime, zone: tzinfo) -> str:
    target, _, label = inside.partition("|")
    if target.startswith(("@", "#")):
        return names(target[1:])
    if target.startswith("!date^"):
        stamp, pattern, *_ = target.removeprefix("!date^").split("^")
        return _date(datetime.fromtimestamp(int(stamp), zone), pattern, now)
    if target.startswith("!subteam^"):
        return label or names(target.removeprefix("!subteam^"))
    if target.startswith("!"):
        return f"@{target[1:]}"
    return f"{label} ({target})" if label and label != target else target


def _date(moment: datetime, pattern: str, now: datetime) -> str:
    """Replace the date tokens of Slack's that the bot uses; others are kept."""
    days = (now.astimezone(moment.tzinfo).date() - moment.date()).days
    pretty = {0: "today", 1: "yesterday", -1: "tomorrow"}.get(days)
    known = {
        "date_short_pretty": pretty or f"{moment:%b} {moment.day}, {moment.year}",
        "time": f"{moment.hour % 12 or 12}:{moment:%M %p}",
        "ago": _ago((now - moment).total_seconds()),
    }
    return _DATE_TOKEN.sub(lambda match: known.get(match.group(1), match.group()), pattern)


def _ago(seconds: float) -> str:
    for unit, size in _UNITS:
        count = int(abs(seconds) // size)
        if count:
            words = f"{count} {unit}" + ("s" if count > 1 else "")
            return f"{words} ago" if seconds > 0 else f"in {words}"
    return "just now"
