"""The bricks of messages and forms: people's text made harmless, and cut to what Slack takes.

Limits: https://docs.slack.dev/reference/block-kit.
"""

from collections.abc import Sequence
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
TEXT: Final = 4000
SCRIPT: Final = 3000
_BUTTON_URL: Final = 3000
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
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def escape(text: str) -> str:
    """Return text that pings nobody and carries no control sequence in mrkdwn and in ``text``.

    https://docs.slack.dev/messaging/formatting-message-text#escaping
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def escaped(text: str, limit: int) -> str:
    """Return ``text`` escaped and cut, so that ``limit`` counts what is sent."""
    safe = escape(text)
    while len(safe) > limit:
        text = cut(text, max(1, len(text) - max(1, (len(safe) - limit) // 5)))
        safe = escape(text)
    return safe


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
    except (httpx.InvalidURL, TypeError):
        return None
    if parsed.scheme not in {"http", "https"} or not parsed.host or parsed.userinfo:
        return None
    safe = str(parsed).replace("|", "%7C").replace("<", "%3C").replace(">", "%3E")
    return safe if safe.isascii() and safe.isprintable() and len(safe) <= _BUTTON_URL else None


def date(moment: datetime) -> str:
    """Return a moment as each reader's own date and time, with UTC for those who cannot."""
    fallback = moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"<!date^{int(moment.timestamp())}^{{date_short_pretty}} at {{time}}|{fallback}>"


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
