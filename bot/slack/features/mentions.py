"""The short help: the answer to a mention, and to what people write to the app directly."""

import logging
from functools import partial
from typing import Final

from slack_bolt.async_app import AsyncApp
from slack_bolt.context.ack.async_ack import AsyncAck

from bot.errors import OutsideError
from bot.slack.context import HandlerContext
from bot.slack.errors import translated
from bot.slack.features.help import short_help
from bot.slack.features.replica import FEATURE as REPLICA
from bot.slack.features.video import FEATURE as VIDEO
from bot.slack.payloads import MessageEvent, read
from bot.slack.views.blocks import Json, Message

_LOG: Final = logging.getLogger(__name__)


def register(app: AsyncApp, ctx: HandlerContext) -> None:
    """Register the listeners for both."""
    app.event("app_mention")(partial(on_mention, ctx))
    app.event("message")(partial(on_message, ctx))


async def on_mention(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Answer a mention in its thread."""
    event = read(MessageEvent, body)
    await _help(ctx, event, event.thread_ts or event.ts)
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
        await _help(ctx, event, event.thread_ts)
    await ack()


async def _help(ctx: HandlerContext, event: MessageEvent, thread_ts: str | None) -> None:
    """Post the help, unless this message was answered before, or no person wrote it.

    It is marked first: help that is lost with the process is asked for again, help that comes twice
    is noise.
    """
    if event.is_written and await ctx.store.answered.mark(event.channel, event.ts, ctx.clock.now()):
        message = short_help(ctx.command(VIDEO.kind.name), ctx.command(REPLICA.kind.name))
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
