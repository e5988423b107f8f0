"""The Home tab's listeners: opening it, its pages, and the form that it opens."""

import re
from functools import partial
from typing import Final

from slack_bolt.async_app import AsyncApp
from slack_bolt.context.ack.async_ack import AsyncAck

from bot.slack.blocks import Json
from bot.slack.buttons import OPEN_CREATE, TURN_PAGE
from bot.slack.context import HandlerContext
from bot.slack.create_video import open_create_form
from bot.slack.payloads import BlockAction, HomeOpened, read

_MAX_PAGE: Final = 10_000


def register(app: AsyncApp, ctx: HandlerContext) -> None:
    """Register the listeners."""
    app.action(OPEN_CREATE)(partial(create, ctx))
    app.action(re.compile(f"^{TURN_PAGE}_"))(partial(turn_page, ctx))
    app.event("app_home_opened")(partial(on_opened, ctx))


async def on_opened(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Have the tab published, beginning with the first page."""
    opened = read(HomeOpened, body)
    if opened.tab == "home":
        await ctx.store.homes.open(opened.user, 0, ctx.clock.now())
    await ack()


async def turn_page(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Have another page of the person's requests published."""
    action = read(BlockAction, body)
    page = min(int(action.value), _MAX_PAGE) if re.fullmatch("[0-9]{1,6}", action.value) else 0
    await ctx.store.homes.open(action.user, page, ctx.clock.now())
    await ack()


async def create(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Open the create form, which asks where to post."""
    action = read(BlockAction, body)
    error = await open_create_form(ctx, user=action.user, trigger_id=action.trigger_id)
    if error is not None:
        ctx.respond_ephemeral(action, error)
    await ack()
