"""The bricks of messages and forms: people's text made harmless, and cut to what Slack takes.

Limits: https://docs.slack.dev/reference/block-kit.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import httpx
from slack_sdk.models.blocks import (
    Block,
    ButtonElement,
    ConfirmObject,
    MarkdownTextObject,
    PlainTextObject,
    RichTextBlock,
    RichTextElement,
    RichTextElementParts,
    RichTextQuoteElement,
    RichTextSectionElement,
)

SECTION: Final = 3000
TEXT: Final = 3800
"""Slack takes 4,000 characters: the rest is for a note in front."""
SCRIPT: Final = 3000
# Escaped: one link always fits into a section and into the text.
_LINK: Final = 2000
_HOST: Final = re.compile(r"[\w.-]+", re.ASCII)
_HALF_ENTITY: Final = re.compile(r"&[a-z]*\Z")
_TITLE: Final = 60
_WORDS_A_MINUTE: Final = 150
# A unit, its seconds, and up to how many seconds it is used.
_UNITS: Final = (
    ("second", 1, 90),
    ("minute", 60, 90 * 60),
    ("hour", 3600, 36 * 3600),
    ("day", 86400, None),
)


@dataclass(frozen=True, slots=True)
class Message:
    """What is sent to Slack: the whole of it as text, and the same drawn as blocks."""

    text: str
    blocks: Sequence[Block]

    def drawn(self) -> list[dict[str, Any]]:
        """Return the blocks as JSON."""
        return [block.to_dict() for block in self.blocks]


def cut(text: str, limit: int) -> str:
    """Return at most ``limit`` characters, with an ellipsis where something is missing."""
    if len(text) <= limit:
        return text
    return text[: limit - 1].rstrip() + "…" if limit > 0 else ""


def joined(parts: Iterable[str], limit: int = TEXT, *, by: str = "\n") -> str:
    """Return those parts that say something, as long as they fit: each whole, or not at all."""
    text = ""
    for part in filter(None, parts):
        longer = f"{text}{by}{part}" if text else part
        if len(longer) <= limit:
            text = longer
    return text


def escape(text: str) -> str:
    """Return text that pings nobody and carries no control sequence in mrkdwn and in ``text``.

    https://docs.slack.dev/messaging/formatting-message-text#escaping
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def escaped(text: str, limit: int) -> str:
    """Return ``text`` escaped and cut, so that ``limit`` counts what is sent."""
    safe = escape(text)
    if len(safe) <= limit:
        return safe
    return _HALF_ENTITY.sub("", safe[: limit - 1]).rstrip() + "…" if limit > 0 else ""


def one_line(text: str) -> str:
    """Return the first line that says something, its white space folded."""
    return next((" ".join(line.split()) for line in text.splitlines() if line.strip()), "")


def title(text: str) -> str:
    """Return the first line, short enough for a heading."""
    return cut(one_line(text), _TITLE)


def plain(text: str, limit: int) -> PlainTextObject:
    """Return a text that is shown letter for letter."""
    return PlainTextObject(text=cut(text, limit), emoji=False)


def mrkdwn(text: str) -> MarkdownTextObject:
    """Return a text of ours: people's words in it have been escaped."""
    return MarkdownTextObject(text=text, verbatim=True)


def words(text: str, *, bold: bool = False) -> RichTextElement:
    """Return people's words for a rich text: shown letter for letter."""
    style = RichTextElementParts.TextStyle(bold=True) if bold else None
    return RichTextElementParts.Text(text=text, style=style)


def paragraph(*elements: RichTextElement) -> RichTextSectionElement:
    """Return a paragraph of a rich text."""
    return RichTextSectionElement(elements=list(elements))


def quote(text: str) -> RichTextQuoteElement:
    """Return people's words as a quotation."""
    return RichTextQuoteElement(elements=[words(text)])


def rich(*elements: RichTextElement) -> RichTextBlock:
    """Return a rich text."""
    return RichTextBlock(elements=list(elements))


def button(
    label: str,
    action_id: str,
    *,
    value: str | None = None,
    url: str | None = None,
    style: str | None = None,
    confirm: ConfirmObject | None = None,
) -> ButtonElement:
    """Return a button; one with a link is answered by Slack, and reported to us all the same."""
    return ButtonElement(
        text=PlainTextObject(text=label, emoji=False),
        action_id=action_id,
        value=value,
        url=url,
        style=style,
        confirm=confirm,
    )


def link(url: str) -> str | None:
    """Return a link of the service that can stand in a message, or None if it is not one.

    Control sequences of Slack's cannot be part of it: ``<``, ``>``, ``|`` and spaces are encoded.
    """
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, ValueError):
        return None
    host = parsed.raw_host.decode("ascii")
    if parsed.scheme not in {"http", "https"} or not _HOST.fullmatch(host) or parsed.userinfo:
        return None
    safe = str(parsed).replace("|", "%7C").replace("<", "%3C").replace(">", "%3E")
    return safe if safe.isascii() and safe.isprintable() and len(escape(safe)) <= _LINK else None


def anchor(url: str, label: str) -> str:
    """Return a link as mrkdwn."""
    return f"<{escape(url)}|{label}>"


def date(moment: datetime) -> str:
    """Return a moment as each reader's own date and time, with UTC for those who cannot."""
    fallback = moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"<!date^{int(moment.timestamp())}^{{date_short_pretty}} at {{time}}|{fallback}>"


def ago(moment: datetime) -> str:
    """Return how long ago a moment was, as each reader's own client counts it."""
    fallback = moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"<!date^{int(moment.timestamp())}^{{ago}}|{fallback}>"


def span(duration: timedelta) -> str:
    """Return a duration in words: "40 seconds", "3 minutes", "2 hours", "5 days"."""
    seconds = max(1, round(duration.total_seconds()))
    unit, size = next(
        (unit, size) for unit, size, below in _UNITS if below is None or seconds < below
    )
    count = max(1, round(seconds / size))
    return f"{count} {unit}{'' if count == 1 else 's'}"


def spoken(script: str) -> str:
    """Return how long a script takes to speak, at 150 words a minute."""
    return span(timedelta(minutes=len(script.split()) / _WORDS_A_MINUTE))
