"""The text of a message as it is spoken: without Slack's markup.

https://docs.slack.dev/messaging/formatting-message-text
"""

import re
from collections.abc import Mapping
from typing import Final

# Slack escapes brackets that people type: if one opens within another, neither is Slack's. No
# pattern takes more than linear time.
_ANGLED: Final = re.compile(r"<([^<>|]*)(?:\|([^<>]*))?>")
_UNNAMED: Final = re.compile(r"<([@#])([A-Z0-9]{1,40})(?:\|)?>", re.ASCII)
_EMOJI: Final = re.compile(
    r"[ \t]?(?<!\w):(?:[+-]1|[0-9_'-]{0,100}[a-z][a-z0-9_'+-]{0,100}):(?!\w)", re.ASCII
)
_CODE: Final = re.compile(r"`{1,3}([^`]+)`{1,3}")
# It ends at the next mark of its sort, unless that is inside a word: no part is looked at twice.
_EMPHASIS: Final = re.compile(
    r"(?<!\w)(?:"
    + "|".join(rf"{m}(?=\S)((?:[^{m}\n]|(?<=\w){m}(?=\w))*[^{m}\s]){m}" for m in (r"\*", "_", "~"))
    + r")(?!\w)"
)
_QUOTE: Final = re.compile(r"^&gt; ?", re.MULTILINE)
_NESTED: Final = 3
"""Bold, italic and struck out may be inside each other."""
_EVERYONE: Final = frozenset({"channel", "here", "everyone"})


def unnamed_ids(text: str) -> set[str]:
    """Return the ids of the people and channels that are mentioned without their names."""
    return {found.group(2) for found in _UNNAMED.finditer(text)}


def spoken_text(text: str, names: Mapping[str, str]) -> str:
    """Return a message's ``text`` in plain words.

    ``names`` has the names of those that are mentioned without one, as far as they are known.
    """

    def plain(found: re.Match[str]) -> str:
        target, label = found.group(1), found.group(2) or ""
        sigil, rest = target[:1], target[1:]
        match sigil:
            case "@":
                return label.removeprefix("@") or names.get(rest, "someone")
            case "#":
                return label.removeprefix("#") or names.get(rest, "a channel")
            case "!":
                kind = rest.partition("^")[0]
                return "everyone" if kind in _EVERYONE else label.removeprefix("@")
        return label or target.removeprefix("mailto:")

    words = _ANGLED.sub(plain, _QUOTE.sub("", text))
    words = _CODE.sub(r"\1", _EMOJI.sub("", words))
    for _ in range(_NESTED):
        words = _EMPHASIS.sub(r"\1\2\3", words)
    for escaped, letter in (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
        words = words.replace(escaped, letter)
    return words.strip()
