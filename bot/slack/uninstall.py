"""What Slack says when the app is uninstalled: nothing is sent any more, and all data is kept."""

from functools import partial

from slack_bolt.async_app import AsyncApp
from slack_bolt.context.ack.async_ack import AsyncAck

from bot.slack.blocks import Json
from bot.slack.context import HandlerContext
from bot.slack.payloads import TokensRevoked, read


def register(app: AsyncApp, ctx: HandlerContext) -> None:
    """Register the listeners for both events, which come in any order."""
    app.event("app_uninstalled")(partial(on_uninstalled, ctx))
    app.event("tokens_revoked")(partial(on_revoked, ctx))


async def on_uninstalled(ctx: HandlerContext, ack: AsyncAck) -> None:
    """Stop sending."""
    await ctx.installation.uninstalled()
    await ack()


async def on_revoked(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Stop sending if the bot's token was revoked, not only one of a person."""
    if read(TokensRevoked, body).bots:
        await ctx.installation.uninstalled()
    await ack()
