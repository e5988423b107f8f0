"""Help: the answers to "help" after a command, to a mention, and to direct messages to the app."""

import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

from slack_bolt.async_app import AsyncApp
from slack_bolt.context.ack.async_ack import AsyncAck

from bot.errors import OutsideError
from bot.kinds.replica import REPLICA
from bot.kinds.video import VIDEO
from bot.slack.context import HandlerContext
from bot.slack.errors import translated
from bot.slack.payloads import MessageEvent, read
from bot.slack.views.blocks import (
    Json,
    Message,
    bullets,
    code,
    paragraph,
    rich,
    section,
    words,
)

_LOG: Final = logging.getLogger(__name__)
_ELSEWHERE: Final = (
    "In a thread, open a message's menu and choose *Make a video from this*. My *Home* tab "
    "shows all your requests."
)


def register(app: AsyncApp, ctx: HandlerContext) -> None:
    """Register the listeners for mentions and direct messages."""
    app.event("app_mention")(partial(on_mention, ctx))
    app.event("message")(partial(on_message, ctx))


async def on_mention(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Answer a mention in its thread."""
    event = read(MessageEvent, body)
    await _answer(ctx, event, event.thread_ts or event.ts)
    await ack()


async def on_message(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Answer what was written to the app in its direct message, and nowhere else.

    An app that subscribes to messages in channels gets them with another ``channel_type``:
    https://docs.slack.dev/reference/events/message.channels
    """
    sent = body["event"]
    # Slack's own messages, of edits and the like, may have other shapes.
    if sent.get("channel_type") == "im" and (sent.get("subtype") is None or "user" in sent):
        event = read(MessageEvent, body)
        await _answer(ctx, event, event.thread_ts)
    await ack()


async def _answer(ctx: HandlerContext, event: MessageEvent, thread_ts: str | None) -> None:
    """Post the help, unless this message was answered before, or no person wrote it.

    It is marked first: help that is lost with the process is asked for again, help that comes twice
    is noise.
    """
    store, now = ctx.store.installation, ctx.clock.now()
    if event.is_written and await store.mark_answered(event.channel, event.ts, now):
        message = short_help(ctx.command(VIDEO.name), ctx.command(REPLICA.name))
        ctx.background.spawn(_post(ctx, event.channel, thread_ts, message))


async def _post(ctx: HandlerContext, channel: str, thread_ts: str | None, message: Message) -> None:
    try:
        async with translated(ctx.timings.call_timeout):
            await ctx.client.chat_postMessage(
                channel=channel,
                thread_ts=thread_ts,
                text=message.text,
                blocks=message.blocks,
                unfurl_links=False,
                unfurl_media=False,
            )
    except OutsideError as error:
        _LOG.info("help was not posted", extra={"reason": error.reason})


def video_help(command: str, replica: str) -> Message:
    """Return the help of the video command; Slack knows it and the other one by these names."""
    return _help(
        "Turn a script into a video, right from Slack.",
        command,
        [
            ("", "open the form"),
            ("Welcome to the team!", "open it with that script"),
            ("list", "see your videos"),
            ("find <words>", "find a video by its name or script"),
            ("status <id>", "check a video"),
        ],
        f"Nothing is created until you press *Create*. {_ELSEWHERE}",
        (f"{replica} help", "see how to train a replica"),
    )


def replica_help(command: str, note: str = "") -> Message:
    """Return the help of the replica command, which Slack knows as ``command``, after a note."""
    intro = "Train a replica of a person from a video. It takes hours."
    return _help(
        f"{note} {intro}".lstrip(),
        command,
        [
            ("", "open the form"),
            ("list", "see replicas and your trainings"),
            ("status <id>", "check a replica"),
            ("add <id>", "let everyone here use a replica"),
            ("default <name or id>", "make a replica this channel's default"),
            ("default none", "clear this channel's default"),
            ("rename <name or id>", "edit its name and who can use it"),
            ("remove <name or id>", "remove a replica"),
        ],
        "Nothing is created until you press *Train*.",
    )


def short_help(video: str, replica: str) -> Message:
    """Return the help in a few lines, for commands that Slack knows by these names."""
    rows = [
        (f"{video} Welcome to the team!", "create a video"),
        (f"{video} list", "see your videos"),
        (replica, "train a replica"),
        (f"{video} help", "see all commands"),
    ]
    return _listed(
        "Turn a script into a video, right from Slack.",
        rows,
        _ELSEWHERE,
    )


def _help(
    intro: str, command: str, rows: Sequence[tuple[str, str]], end: str, *others: tuple[str, str]
) -> Message:
    typed = [(f"{command} {arguments}".rstrip(), purpose) for arguments, purpose in rows]
    return _listed(intro, [*typed, *others], end)


def _listed(intro: str, typed: Sequence[tuple[str, str]], end: str) -> Message:
    # A list, since a line that wraps has to be indented.
    items = [paragraph(code(line), words(f": {purpose}")) for line, purpose in typed]
    return Message.of([section(intro), rich(bullets(items)), section(end)])
