"""What admins do in the Home tab: they change limits, and look at what was spent.

Everybody else is refused, at each step.
"""

import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

from pydantic import BaseModel, ConfigDict
from slack_bolt.async_app import AsyncApp
from slack_bolt.context.ack.async_ack import AsyncAck

from bot.errors import OutsideError
from bot.slack.blocks import Json
from bot.slack.buttons import CHANGE_LIMITS, CHOOSE_MONTH, OPEN_SPENDING
from bot.slack.context import HandlerContext, general_error
from bot.slack.errors import translated
from bot.slack.forms import ack_errors
from bot.slack.limits_form import (
    CALLBACK_ID,
    Group,
    block_id,
    entered,
    limits_form,
    shown_in,
)
from bot.slack.payloads import BlockAction, ViewSubmission, read
from bot.slack.spending_view import MONTH, month_named, spending_modal
from bot.store import InvalidLimits, LimitsChanged

_LOG: Final = logging.getLogger(__name__)
_ADMINS_ONLY: Final = (
    "Only admins can change limits. Please ask one of them, or the person who runs this bot."
)
_GROUPS_SCOPE: Final = "usergroups:read"
_NOT_SHOWN: Final = "Only admins can see this. Please ask one of them."


class _Groups(BaseModel):
    """The answer of usergroups.list, which comes whole: there are no pages.

    https://docs.slack.dev/reference/methods/usergroups.list
    """

    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)

    usergroups: Sequence[Group]


def register(app: AsyncApp, ctx: HandlerContext) -> None:
    """Register the listeners for the buttons, the form and the menu."""
    app.action(CHANGE_LIMITS)(partial(open_limits, ctx))
    app.view(CALLBACK_ID)(partial(change_limits, ctx))
    app.action(OPEN_SPENDING)(partial(open_spending, ctx))
    app.action(CHOOSE_MONTH)(partial(choose_month, ctx))


async def open_limits(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Open the form with the limits that are in force."""
    action = read(BlockAction, body)
    error: str | None = _ADMINS_ONLY
    if action.user in ctx.admins:
        in_force = await ctx.store.limits.fetch()
        view = limits_form(in_force, await _groups(ctx))
        error = await ctx.open_view(action.trigger_id, view)
    if error is not None:
        ctx.respond_ephemeral(action, error)
    await ack()


async def change_limits(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Have in force what an admin has changed in the form, or say why not."""
    submission = read(ViewSubmission, body)
    view, user = submission.view, submission.user
    if user not in ctx.admins:
        _LOG.warning("somebody who is no admin tried to change limits", extra={"user": user})
        await ack(**general_error(view.blocks, "Not changed", _ADMINS_ONLY))
        return
    in_force = await ctx.store.limits.fetch()
    filled, settings = entered(view, in_force), in_force.setting_values()
    changes = {name: None if text == settings[name] else text for name, text in filled.items()}
    try:
        await ctx.store.limits.change(
            changes, user, ctx.clock.now(), shown=shown_in(view), homes=ctx.admins
        )
    except InvalidLimits as error:
        await ack_errors(ack, {block_id(name, view): said for name, said in error.mistakes.items()})
        return
    except LimitsChanged as error:
        drawn = limits_form(error.in_force, await _groups(ctx), filled, before=view)
        await ack(response_action="update", view=drawn)
        return
    await ack()


async def _groups(ctx: HandlerContext) -> Sequence[Group]:
    """Return the user groups to choose from; none if Slack does not say them in time.

    There are none without the scope, or in a plan without user groups.
    """
    if not ctx.access.has_scope(_GROUPS_SCOPE):
        return ()
    try:
        async with translated(ctx.timings.message_timeout):
            answer = await ctx.client.usergroups_list()
            return _Groups.model_validate(answer.data).usergroups
    except OutsideError as error:
        _LOG.info("the user groups are not known", extra={"reason": error.reason})
        return ()


async def open_spending(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Show what everybody had created this month, with a menu of months."""
    action = read(BlockAction, body)
    error: str | None = _NOT_SHOWN
    if action.user in ctx.admins:
        now = ctx.clock.now()
        view = spending_modal(await ctx.store.spending.of_month(now), ctx.presenters, now)
        error = await ctx.open_view(action.trigger_id, view)
    if error is not None:
        ctx.respond_ephemeral(action, error)
    await ack()


async def choose_month(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Show another month."""
    action = read(BlockAction, body)
    if (view := action.view) is not None and action.user in ctx.admins:
        now = ctx.clock.now()
        month = month_named(view.fields().get(MONTH, ""), now)
        shown = spending_modal(await ctx.store.spending.of_month(month), ctx.presenters, now)
        try:
            async with translated(ctx.timings.view_timeout):
                await ctx.client.views_update(view_id=view.id, hash=view.hash, view=shown)
        except OutsideError as error:
            # Closed, or another month was chosen meanwhile.
            _LOG.info("the spending could not be shown", extra={"reason": error.reason})
    await ack()
