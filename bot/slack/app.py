"""Builds the Bolt app: one workspace, and the listeners of every feature."""

import logging
from collections.abc import Sequence
from functools import partial

from slack_bolt.async_app import AsyncApp
from slack_bolt.authorization import AuthorizeResult

from bot.slack import (
    admin,
    approvals,
    details,
    home,
    job_actions,
    question,
    share,
    short_help,
    shortcuts,
    uninstall,
)
from bot.slack.context import Feature, HandlerContext
from bot.slack.error_handler import PayloadCheck, handle_error
from bot.slack.sender_check import SenderCheck


def create_app(ctx: HandlerContext, features: Sequence[Feature]) -> AsyncApp:
    """Return the app with its listeners, ready for ``async_dispatch``."""

    async def authorize() -> AuthorizeResult:
        # One workspace: there is no need to ask Slack who we are before the first answer.
        return AuthorizeResult(enterprise_id=None, team_id=None, bot_token=ctx.client.token)

    app = AsyncApp(
        name="replica-videos",
        client=ctx.client,
        authorize=authorize,
        # The answer leaves when the listener returns; otherwise Bolt looks for it every 10 ms.
        process_before_response=True,
        raise_error_for_unhandled_request=True,
        # bot.web verifies the raw bytes before Bolt parses them.
        request_verification_enabled=False,
        # What these would do is not needed.
        ssl_check_enabled=False,
        ignoring_self_events_enabled=False,
        attaching_function_token_enabled=False,
        logger=logging.getLogger("slack_bolt"),
    )
    app.use(PayloadCheck(ctx))
    app.use(SenderCheck(ctx))
    app.error(partial(handle_error, ctx))
    register_listeners(app, ctx, features)
    return app


def register_listeners(app: AsyncApp, ctx: HandlerContext, features: Sequence[Feature]) -> None:
    """Register all listeners. Bolt tries them in this order: the most frequent come first."""
    for feature in features:
        feature.register(app, ctx)
    job_actions.register(app, ctx)
    details.register(app, ctx)
    question.register(app, ctx)
    share.register(app, ctx)
    approvals.register(app, ctx)
    shortcuts.register(app, ctx)
    home.register(app, ctx)
    admin.register(app, ctx)
    short_help.register(app, ctx)
    uninstall.register(app, ctx)
