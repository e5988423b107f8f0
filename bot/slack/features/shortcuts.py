"""The shortcuts: "Make a video from this" in a message's menu, and "Create a video" everywhere."""

import re
from collections.abc import Mapping
from functools import partial
from typing import Final

from slack_bolt.async_app import AsyncApp

from bot.clock import deadline
from bot.setting_values import MAX_BOX
from bot.slack.context import HandlerContext, Refusal, answer_interaction
from bot.slack.features.forms import (
    FileUnavailable,
    read_script,
    takes_files,
)
from bot.slack.features.video import open_create_form
from bot.slack.payloads import ShortcutPayload
from bot.slack.views.blocks import spoken

FROM_MESSAGE: Final = "video_from_message"
CREATE: Final = "video_from_anywhere"
_NO_TEXT: Final = "This message has no text to speak. Try another."
_FILES_NOT_READ: Final = "I can't read the attached file. Copy its text."
_IS_ATTACHED: Final = "The script is the attached file."
_MAX_NAMES: Final = 10
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


def register(app: AsyncApp, ctx: HandlerContext) -> None:
    """Register the listeners for both."""
    app.shortcut(FROM_MESSAGE)(partial(answer_interaction, ctx, ShortcutPayload, from_message))
    app.shortcut(CREATE)(partial(answer_interaction, ctx, ShortcutPayload, open_create_form))


async def from_message(ctx: HandlerContext, shortcut: ShortcutPayload) -> str | None:
    """Open the form with a message's text as script; card and reply go into its thread."""
    script, file, note = await _attached_script(ctx, shortcut)
    if not script and file is None:
        # Those that Slack tells soon: the form has to open.
        ids, until = sorted(unnamed_ids(shortcut.text)), deadline(ctx.timings.message_timeout)
        names = await ctx.access.directory.names(ids[:_MAX_NAMES], until)
        script = spoken_text(shortcut.text, names)
    if not script and file is None:
        await ctx.show_notice(shortcut.trigger_id, note or _NO_TEXT)
        return None
    return await open_create_form(
        ctx,
        shortcut,
        shortcut.channel,
        thread_ts=shortcut.thread_ts,
        script=script,
        file=file,
        file_ts=shortcut.ts,
        note=note,
    )


async def _attached_script(
    ctx: HandlerContext, shortcut: ShortcutPayload
) -> tuple[str, str | None, str]:
    """Return what a message's text file gives, as far as Slack gives it soon.

    That is a script, or the file to read when the form is submitted, and a note for the form.
    """
    if (file := shortcut.text_file) is None:
        return "", None, ""
    max_script = ctx.store.limits.current.max_script
    if not takes_files(ctx, max_script):
        return "", None, _FILES_NOT_READ
    try:
        script = await read_script(
            ctx,
            file,
            max_script,
            deadline(ctx.timings.message_timeout),
            user=shortcut.user,
            message=(shortcut.channel, shortcut.ts),
        )
    except FileUnavailable:
        return "", file, _IS_ATTACHED
    except Refusal as error:
        return "", None, str(error)
    script = script.strip()
    if len(script) <= MAX_BOX:
        return script, None, ""
    return "", file, f"{_IS_ATTACHED} It takes about {spoken(script)} to speak."


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
