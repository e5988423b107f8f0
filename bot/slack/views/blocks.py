"""The parts of messages and forms: people's text escaped, and cut to Slack's limits.

Limits: https://docs.slack.dev/reference/block-kit. Slack documents them in characters. The ``text``
of a message is counted in bytes of UTF-8 here, as Slack has refused edits of fewer characters and
more bytes, and the parts of blocks in UTF-16 units, as Slack's clients count characters. Both are
never fewer than characters.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Final, Self, TypeAlias

from bot.links import plain_link
from bot.model import spoken_time

Json: TypeAlias = dict[str, Any]
"""A block, a part of one, or a form, as Slack accepts it.

Plain values: building the models of Slack's library and turning them into these took eight times
as long as everything else about a card.
"""

MAX_SECTION: Final = 3000
MAX_TEXT: Final = 3800
"""Bytes. Slack accepts 4,000: the rest is for a note in front."""
MAX_QUOTE: Final = 3000
MAX_QUOTES: Final = 9000
"""For all quotations of a message. Slack documents no limit for the text in all blocks; what it has
refused, as msg_blocks_too_long, had 11,341: https://github.com/slackapi/bolt-js/issues/2867."""
# Escaped: one link always fits into a section and into the text.
_MAX_LINK: Final = 2000
# Marks, embeddings, overrides and isolates of Unicode's bidirectional algorithm (UAX 9): in a name
# they turn the words around it too. Letters written from right to left need none of them.
_BIDI: Final = re.compile(r"[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
# What begins or ends a format in mrkdwn: inside a word, only code does.
_FORMATTING: Final = re.compile(r"(?<!\w)[*_~]+|[*_~]+(?!\w)|`")
_MAX_NAME: Final = 60
NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})
_HALF_MARKUP: Final = re.compile(r"<[^>]*\Z|&[a-z]*\Z")
_ELLIPSIS: Final = len("…".encode())  # bytes
_MAX_TITLE: Final = 60
# Emoji at the beginning of a line, and bars: what they show is said beside them.
_FOR_EYES: Final = re.compile("^:[a-z_]+: |`[█░]+` ", re.MULTILINE)
_DATE: Final = "{date_short_pretty} at {time}"
# A unit, its seconds, and up to how many seconds it is used.
_UNITS: Final = (
    ("second", 1, 90),
    ("minute", 60, 90 * 60),
    ("hour", 3600, 36 * 3600),
    ("day", 86400, None),
)
_BRIEF: Final = {"second": "sec", "minute": "min"}


@dataclass(frozen=True, slots=True)
class Message:
    """What is sent to Slack: a text alone, or blocks and what they say as text."""

    text: str
    blocks: Sequence[Json] = ()

    @classmethod
    def of(cls, blocks: Sequence[Json]) -> Self:
        """Return a message of blocks, with their text."""
        return cls(text_of(blocks), blocks)


def in_order(text: str) -> str:
    """Return text without the control characters that change its direction.

    Each text of people or the service passes through here where it becomes one of Slack's.
    """
    return _BIDI.sub("", text)


def size(text: str) -> int:
    """Return how much of the limit of a message's ``text`` this takes, in bytes."""
    return len(text.encode())


def cut(text: str, limit: int) -> str:
    """Return at most ``limit`` UTF-16 units for a block, with an ellipsis if something is missing.

    A character beyond the Basic Multilingual Plane, such as an emoji, is two of them.
    """
    units = text.encode("utf-16-le")
    if len(units) <= 2 * limit:
        return text
    return _beginning(units, 2 * (limit - 1), "utf-16-le") + "…" if limit > 0 else ""


def shortened(text: str, limit: int) -> str:
    """Return at most ``limit`` bytes of a message's ``text``; no link or entity is cut in two."""
    if size(text) <= limit:
        return text
    if limit < _ELLIPSIS:
        return ""
    return _HALF_MARKUP.sub("", _beginning(text.encode(), limit - _ELLIPSIS)).rstrip() + "…"


def pieces(text: str, limit: int) -> list[str]:
    """Return a text in parts of at most ``limit`` UTF-16 units, parted between words."""
    found = []
    while text:
        piece = text.encode("utf-16-le")[: 2 * limit].decode("utf-16-le", "ignore")
        if len(piece) < len(text):
            piece = piece[: max(piece.rfind(" "), piece.rfind("\n")) + 1] or piece
        found.append(piece)
        text = text[len(piece) :]
    return found


def _beginning(encoded: bytes, limit: int, encoding: str = "utf-8") -> str:
    """Return the characters that are whole in the first ``limit`` bytes of a text."""
    return encoded[:limit].decode(encoding, "ignore").rstrip()


def joined(parts: Iterable[str], limit: int = MAX_TEXT, *, by: str = "\n") -> str:
    """Join the parts that are not empty, as far as they fit into ``limit`` bytes.

    Each is there as a whole or not at all.
    """
    text = ""
    for part in filter(None, parts):
        longer = f"{text}{by}{part}" if text else part
        if size(longer) <= limit:
            text = longer
    return text


def escape(text: str) -> str:
    """Return text that pings no one and has no control sequence in mrkdwn and in ``text``.

    https://docs.slack.dev/messaging/formatting-message-text#escaping
    """
    return in_order(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def escaped(text: str, limit: int) -> str:
    """Return ``text`` escaped and cut, so that ``limit`` counts the bytes that are sent."""
    return shortened(escape(text), limit)


def one_line(text: str) -> str:
    """Return the first line that is not blank, its white space folded."""
    lines = in_order(text).splitlines()
    return next((" ".join(line.split()) for line in lines if line.strip()), "")


def unformatted(name: str) -> str:
    """Return a name as mrkdwn that formats nothing and pings nobody; "" if it is none."""
    return escape(one_line(_FORMATTING.sub("", name)))


def short_name(name: str) -> str:
    """Return the same of at most 60 bytes: of a person, or of a replica."""
    return escaped(one_line(_FORMATTING.sub("", name)), _MAX_NAME)


def listed(items: Sequence[str], conjunction: str) -> str:
    """Return items as in a sentence: "Ana, Ben or Cleo"."""
    *others, last = items
    return f"{', '.join(others)} {conjunction} {last}" if others else last


def title(text: str) -> str:
    """Return the first line, short enough for a heading; no word is cut, unless it is too long."""
    line = one_line(text)
    if line == (short := cut(line, _MAX_TITLE)):
        return line
    whole_words, space, _ = short.removesuffix("…").rpartition(" ")
    return f"{whole_words.rstrip(' ,;:.-')}…" if space else short


# ── Texts ─────────────────────────────────────────────────────────────────────────────────────────


def plain(text: str, limit: int) -> Json:
    """Return a text that is shown letter for letter."""
    return {"type": "plain_text", "text": cut(in_order(text), limit), "emoji": False}


def mrkdwn(text: str) -> Json:
    """Return a text of ours: people's words in it have been escaped."""
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def words(text: str, *, bold: bool = False) -> Json:
    """Return people's words for a rich text: shown letter for letter."""
    # Slack refuses an empty text.
    return _given(type="text", text=in_order(text) or "…", style={"bold": True} if bold else None)


def code(text: str) -> Json:
    """Return what is to be typed, for a rich text."""
    return {"type": "text", "text": text, "style": {"code": True}}


def in_channel(channel: str) -> Json:
    """Return the name of a channel for a rich text, which links to it."""
    return {"type": "channel", "channel_id": channel}


def linked(url: str, label: str) -> Json:
    """Return a link for a rich text."""
    return {"type": "link", "url": url, "text": label}


def paragraph(*elements: Json) -> Json:
    """Return a paragraph of a rich text."""
    return {"type": "rich_text_section", "elements": list(elements)}


def quote(text: str) -> Json:
    """Return people's words as a quotation."""
    return {"type": "rich_text_quote", "elements": [words(text)]}


def preformatted(text: str) -> Json:
    """Return a text that can be copied as one piece."""
    return {"type": "rich_text_preformatted", "elements": [words(text)]}


def bullets(paragraphs: Iterable[Json]) -> Json:
    """Return paragraphs as a list."""
    return {"type": "rich_text_list", "style": "bullet", "elements": list(paragraphs)}


# ── Blocks ────────────────────────────────────────────────────────────────────────────────────────


def section(text: str, *, block_id: str | None = None) -> Json:
    """Return a block with a text of ours, in mrkdwn."""
    return _given(type="section", text=mrkdwn(text), block_id=block_id)


def quotes(text: str) -> list[Json]:
    """Return blocks with the whole of people's words as quotations, parted between words."""
    return [rich(quote(piece)) for piece in pieces(text, MAX_QUOTE)]


def context(*texts: Json) -> Json:
    """Return a block of small print."""
    return {"type": "context", "elements": list(texts)}


def rich(*elements: Json) -> Json:
    """Return a block of rich text."""
    return {"type": "rich_text", "elements": list(elements)}


def actions(buttons: Iterable[Json]) -> Json:
    """Return a block of buttons."""
    return {"type": "actions", "elements": list(buttons)}


def button(
    label: str,
    action_id: str,
    *,
    value: str | None = None,
    url: str | None = None,
    style: str | None = None,
    confirm: Json | None = None,
) -> Json:
    """Return a button; one with a link is opened by Slack, and still reported to us."""
    return _given(
        type="button",
        text={"type": "plain_text", "text": label, "emoji": False},
        action_id=action_id,
        value=value,
        url=url,
        style=style,
        confirm=confirm,
    )


def menu(action_id: str, options: Iterable[Json]) -> Json:
    """Return a button with three dots and up to five options behind it.

    Slack reports each of them, links too:
    https://docs.slack.dev/reference/block-kit/block-elements/overflow-menu-element
    """
    return {"type": "overflow", "action_id": action_id, "options": list(options)}


def confirm(title: str, text: str, *, yes: str, no: str) -> Json:
    """Return a question that Slack asks before it reports a button."""
    return {
        "title": plain(title, 100),
        "text": plain(text, 300),
        "confirm": plain(yes, 30),
        "deny": plain(no, 30),
    }


# ── Forms ─────────────────────────────────────────────────────────────────────────────────────────


def modal(
    callback_id: str,
    title: str,
    *,
    blocks: Iterable[Json],
    submit: str = "",
    close: str,
    private_metadata: str = "",
) -> Json:
    """Return a modal; Slack sends its ``private_metadata`` back with it.

    One without ``submit`` is only read.
    """
    return _given(
        type="modal",
        callback_id=callback_id,
        title=plain(title, 24),
        submit=plain(submit, 24) if submit else None,
        close=plain(close, 24),
        private_metadata=private_metadata,
        blocks=list(blocks),
    )


def field(
    block_id: str,
    label: str,
    element: Json,
    *,
    hint: str = "",
    optional: bool = False,
    reports: bool = False,
) -> Json:
    """Return a field of a form; with ``reports``, Slack sends each change."""
    return _given(
        type="input",
        block_id=block_id,
        label=plain(label, 100),
        element=element,
        hint=plain(hint, 200) if hint else None,
        optional=optional,
        dispatch_action=reports,
    )


def element(kind: str, action_id: str, *, placeholder: str = "", **more: object) -> Json:
    """Return what is filled in or chosen in a field: one of Slack's kinds, with its own values."""
    return _given(
        type=kind,
        action_id=action_id,
        placeholder=plain(placeholder, 150) if placeholder else None,
        **more,
    )


def option(text: str, value: str, url: str | None = None) -> Json:
    """Return something to choose; in a menu of a message, Slack opens a link."""
    return _given(text=plain(text, 75), value=value, url=url)


def _given(**values: object) -> Json:
    """Return those values that are there."""
    return {
        name: value
        for name, value in values.items()
        if value is not None and value is not False and value != ""
    }


# ── As text ───────────────────────────────────────────────────────────────────────────────────────


def text_of(blocks: Iterable[Json]) -> str:
    """Return what blocks say as the ``text`` of their message, with the links of their buttons.

    Slack shows it in notifications, and has it read aloud:
    https://docs.slack.dev/reference/methods/chat.postMessage. Of quotations it has as much as
    everything else leaves room for.
    """
    lines = [line for block in blocks for line in _lines(block)]
    room = MAX_TEXT - size("\n".join(line for line, is_quoted in lines if not is_quoted))
    text = []
    for line, is_quoted in lines:
        said = shortened(line, room - 1) if is_quoted else line
        room -= size(said) + 1 if is_quoted else 0
        text.append(said)
    return joined(text)


def _lines(part: Json) -> list[tuple[str, bool]]:
    """Return the lines of a block, or of a part of one, in mrkdwn, and whether each is quoted."""
    match part:
        case {"type": "section", "text": text}:
            return _lines(text)
        case {"type": "mrkdwn", "text": text}:
            return [(_FOR_EYES.sub("", text), False)]
        case {"type": "rich_text_list", "elements": items}:
            return [(f"• {_words_of(item)}", False) for item in items]
        case {"type": "rich_text_section" | "rich_text_quote" as kind}:
            return [(_words_of(part), kind == "rich_text_quote")]
        case {"elements": parts} | {"options": parts}:
            return [line for each in parts for line in _lines(each)]
        case {"url": url, "text": {"text": label}}:
            return [(anchor(url, label), False)]
    return []


def _words_of(part: Json) -> str:
    """Return a paragraph of a rich text in mrkdwn."""
    said = []
    for each in part["elements"]:
        match each:
            case {"type": "text", "text": text, "style": {"code": True}}:
                said.append(f"`{escape(text)}`")
            case {"type": "text", "text": text, "style": {"bold": True}}:  # a name or a label
                said.append(escape(_FORMATTING.sub("", text)))
            case {"type": "text", "text": text}:
                said.append(escape(text))
            case {"type": "channel", "channel_id": channel}:
                said.append(f"<#{channel}>")
            case {"type": "link", "url": url, "text": label}:
                said.append(anchor(url, label))
            case {"type": "date", "timestamp": at, "format": form, "fallback": in_utc}:
                said.append(f"<!date^{at}^{form}|{in_utc}>")
    return "".join(said)


# ── Links and times ───────────────────────────────────────────────────────────────────────────────


def link(url: str) -> str | None:
    """Return a link of the service that can be put into a message, or None if it is not one.

    It cannot contain control sequences of Slack: ``<``, ``>``, ``|`` and spaces are encoded.
    """
    safe = plain_link(url)
    return safe if safe is not None and size(escape(safe)) <= _MAX_LINK else None


def anchor(url: str, label: str) -> str:
    """Return a link as mrkdwn."""
    return f"<{escape(url)}|{label}>"


def moment_of(moment: datetime) -> Json:
    """Return a moment for a rich text, as ``date`` does for mrkdwn.

    https://docs.slack.dev/reference/block-kit/block-elements/date-element
    """
    return {
        "type": "date",
        "timestamp": int(moment.timestamp()),
        "format": _DATE,
        "fallback": _in_utc(moment),
    }


def date(moment: datetime) -> str:
    """Return a moment as each reader's own date and time, with UTC as the fallback."""
    return f"<!date^{int(moment.timestamp())}^{_DATE}|{_in_utc(moment)}>"


def ago(moment: datetime) -> str:
    """Return how long ago a moment was, as each reader's own client computes it."""
    return f"<!date^{int(moment.timestamp())}^{{ago}}|{_in_utc(moment)}>"


def _in_utc(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def span(duration: timedelta) -> str:
    """Return a duration in words: "40 seconds", "3 minutes", "2 hours", "5 days"."""
    seconds = max(1, round(duration.total_seconds()))
    unit, size = next(
        (unit, size) for unit, size, below in _UNITS if below is None or seconds < below
    )
    count = max(1, round(seconds / size))
    return f"{count} {unit}{'' if count == 1 else 's'}"


def brief(duration: timedelta) -> str:
    """Return a duration in as few letters as are read easily: "40 sec", "2 min", "3 hours"."""
    number, unit = span(duration).split()
    return f"{number} {_BRIEF.get(unit.removesuffix('s'), unit)}"


def spoken(script: str) -> str:
    """Return about how long a script takes to speak."""
    return span(spoken_time(script))
