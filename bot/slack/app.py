"""Builds the Bolt app: one workspace, who may send to it, and the listeners of every feature."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from http import HTTPStatus
from typing import Final

from slack_bolt.async_app import AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.context.ack.async_ack import AsyncAck
from slack_bolt.middleware.async_middleware import AsyncMiddleware
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_bolt.response import BoltResponse

from bot.slack import (
    answers,
    approvals,
    home,
    job_actions,
    short_help,
    shortcuts,
)
from bot.slack.access import OTHER_APP, OTHER_WORKSPACE, STRANGER
from bot.slack.blocks import Json
from bot.slack.context import Feature, HandlerContext
from bot.slack.error_handler import PayloadCheck, answer_error, answer_privately, handle_error
from bot.slack.payloads import (
    EventSender,
    InvalidPayload,
    MessageShortcutSender,
    Sender,
    TokensRevoked,
    read,
)

_LOG: Final = logging.getLogger(__name__)
_FINAL: Final = frozenset({STRANGER, OTHER_WORKSPACE})
_NO_ANSWER: Final = BoltResponse(status=HTTPStatus.NOT_FOUND)


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
    answers.register(app, ctx)
    approvals.register(app, ctx)
    shortcuts.register(app, ctx)
    home.register(app, ctx)
    short_help.register(app, ctx)
    app.event("app_uninstalled")(partial(on_uninstalled, ctx))
    app.event("tokens_revoked")(partial(on_revoked, ctx))


class SenderCheck(AsyncMiddleware):
    """Answers people of other organisations, and requests of other apps, with a refusal.

    They are signed, but a channel that is shared through Slack Connect lets anybody in it use the
    app: https://docs.slack.dev/apis/slack-connect.
    """

    def __init__(self, ctx: HandlerContext) -> None:
        self._ctx = ctx

    async def async_process(
        self,
        *,
        req: AsyncBoltRequest,
        resp: BoltResponse,  # noqa: ARG002 - the signature is Bolt's
        next: Callable[[], Awaitable[BoltResponse]],  # noqa: A002 - the signature is Bolt's
    ) -> BoltResponse:
        """Pass on what a person of ours sends."""
        kind = req.body.get("type")
        is_event = kind == "event_callback"
        if not (is_event or "command" in req.body or "user" in req.body):
            return await next()  # not a person's
        model: type[Sender] = EventSender if is_event else Sender
        if kind == "message_action":
            model = MessageShortcutSender
        try:
            sender = read(model, req.body)
        except InvalidPayload as error:
            return answer_error(self._ctx, error, req.body) or _NO_ANSWER
        refusal = await self._ctx.access.sender_refusal(sender)
        if refusal is None:
            return await next()
        if refusal == OTHER_APP:
            _LOG.error(
                "a request of another app: SLACK_BOT_TOKEN has to be of the same app as "
                "SLACK_APP_TOKEN or SLACK_SIGNING_SECRET"
            )
        else:
            _LOG.info("a request was refused", extra={"reason": refusal})
        if is_event and refusal in _FINAL:
            return BoltResponse(status=HTTPStatus.OK)  # Slack need not send it again
        answer = answer_privately(self._ctx, req.body, "Not available", refusal)
        return answer or _NO_ANSWER


async def on_uninstalled(ctx: HandlerContext, ack: AsyncAck) -> None:
    """Stop sending."""
    await ctx.installation.uninstalled()
    await ack()


async def on_revoked(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Stop sending if the bot's token was revoked, not only one of a person."""
    if read(TokensRevoked, body).bots:
        await ctx.installation.uninstalled()
    await ack()
