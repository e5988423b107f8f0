"""Builds the Bolt app: one workspace, who may send to it, and the listeners of every feature.

An error in a request becomes an answer and a log line here, and nowhere else.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Final

from slack_bolt.async_app import AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.context.async_context import AsyncBoltContext
from slack_bolt.error import BoltUnhandledRequestError
from slack_bolt.middleware.async_middleware import AsyncMiddleware
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_bolt.response import BoltResponse

from bot.log import reference
from bot.slack.access import OTHER_APP, OTHER_WORKSPACE, STRANGER
from bot.slack.context import Feature, HandlerContext, general_error, log_failure, with_reference
from bot.slack.features import approval, home, jobs, questions
from bot.slack.features import help as help_feature
from bot.slack.payloads import (
    BlockAction,
    EventSender,
    InvalidPayload,
    OptionsRequest,
    Origin,
    Sender,
    ShortcutPayload,
    SlashCommand,
    View,
    ViewSubmission,
    read,
)
from bot.slack.views.blocks import Json

_LOG: Final = logging.getLogger(__name__)
# An unknown id is cut to this length in the log: it can be any text.
_MAX_LOGGED: Final = 100
_OK: Final = BoltResponse(status=HTTPStatus.OK)
# It would not become valid if Slack sent it again: https://docs.slack.dev/apis/events-api#retries
_INVALID_EVENT: Final = BoltResponse(
    status=HTTPStatus.BAD_REQUEST, headers={"X-Slack-No-Retry": "1"}
)
# What is read, by its type. All that Bolt's own matchers look at has the shape that they need.
_MODELS: Final[Mapping[str, type[Sender]]] = {
    "view_submission": ViewSubmission,
    "block_actions": BlockAction,
    "block_suggestion": OptionsRequest,
    "shortcut": ShortcutPayload,
    "message_action": ShortcutPayload,
    "command": SlashCommand,
    "event_callback": EventSender,
}


class UnknownAction(Exception):
    """No listener has this id: the Slack app, or a modal in it, is of another version."""


async def handle_error(
    ctx: HandlerContext, error: Exception, body: Json, context: AsyncBoltContext
) -> BoltResponse:
    """Answer a request whose listener raised, or that has no listener; see ``AsyncApp.error``."""
    if isinstance(error, BoltUnhandledRequestError):
        match context[_SENT]:
            case (
                ViewSubmission(view=View(callback_id=unknown))
                | OptionsRequest(action_id=unknown)
                | SlashCommand(command=unknown)
                | ShortcutPayload(callback_id=unknown)
            ):
                error = UnknownAction(unknown)
            case _:  # an event, or an element whose changes are not needed
                return _OK
    return answer_error(ctx, error, body)


def answer_error(ctx: HandlerContext, error: Exception, body: Json) -> BoltResponse:
    """Return the answer that shows an error where the user is, with a reference to the log."""
    code, title = reference(), "Something went wrong"
    match error:
        case UnknownAction():
            _LOG.error("unknown action", extra={"reference": code, "id": str(error)[:_MAX_LOGGED]})
            text = with_reference(f"I don't recognize this. {_start_again(body)}", code)
        case InvalidPayload():
            _LOG.error(
                "invalid payload", extra={"reference": code, "where": str(error)[:_MAX_LOGGED]}
            )
            if body.get("type") == "event_callback":
                return _INVALID_EVENT
            text = with_reference(f"I can't read this. {_start_again(body)}", code)
        case _ if body.get("type") == "view_submission":  # it may have been stored already
            title, text = log_failure(
                error, f"{title}. This may not have been saved. It's safe to submit again."
            )
        case _:
            title, text = log_failure(error)
    return answer_privately(ctx, body, title, text)


def _start_again(body: Json) -> str:
    if body.get("type") == "view_submission":  # what was entered stays in it until it is closed
        return "Copy what you entered and open this form again."
    return "Please start again."


def answer_privately(ctx: HandlerContext, body: Json, title: str, text: str) -> BoltResponse:
    """Return the answer that shows ``text`` to the person who sent a request, and to nobody else.

    A form that has no field shows it under ``title``.
    """
    match body:
        case {"type": "view_submission", "view": {"blocks": blocks}}:
            return _json(general_error(blocks, text, title=title))
        case {"type": "view_submission"}:
            return _json(general_error((), text, title=title))
        case {"type": "block_suggestion"}:
            return _json({"options": []})
        case {"command": _}:
            return _json({"response_type": "ephemeral", "text": text})
        case {"type": "event_callback"}:  # Slack sends it again
            return BoltResponse(status=HTTPStatus.SERVICE_UNAVAILABLE)
    with suppress(InvalidPayload):  # then nothing says where the answer could go
        ctx.respond_ephemeral(read(Origin, body), text)
    return _OK


def _json(body: Json) -> BoltResponse:
    return BoltResponse(status=HTTPStatus.OK, body=body)


# ── The app ───────────────────────────────────────────────────────────────────────────────────────

_FINAL: Final = frozenset({STRANGER, OTHER_WORKSPACE})
# Bolt gives it to the listeners that have an argument of this name.
_SENT: Final = "sent"


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
        # bot.web.server verifies the raw bytes before Bolt parses them.
        request_verification_enabled=False,
        # What these would do is not needed.
        ssl_check_enabled=False,
        ignoring_self_events_enabled=False,
        attaching_function_token_enabled=False,
        logger=logging.getLogger("slack_bolt"),
    )
    app.use(SenderCheck(ctx))
    app.error(partial(handle_error, ctx))
    register_listeners(app, ctx, features)
    return app


def register_listeners(app: AsyncApp, ctx: HandlerContext, features: Sequence[Feature]) -> None:
    """Register all listeners. Bolt tries them in this order: the most frequent come first."""
    for feature in features:
        feature.register(app, ctx)
    for module in (jobs, questions, approval, home, help_feature):
        module.register(app, ctx)


class SenderCheck(AsyncMiddleware):
    """Reads what is sent, and refuses what people of other organisations send, and other apps.

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
        """Pass on what a person of ours sends, as its model, and what our app is told."""
        body = req.body
        kind = "command" if "command" in body else str(body.get("type"))
        if kind not in _MODELS:
            return BoltResponse(status=HTTPStatus.NOT_FOUND)
        try:
            sent = read(_MODELS[kind], body)
        except InvalidPayload as error:
            return answer_error(self._ctx, error, body)
        refusal = await self._ctx.access.sender_refusal(sent)
        if refusal is None:
            req.context[_SENT] = sent
            return await next()
        if refusal == OTHER_APP:
            _LOG.error(
                "a request of another app: SLACK_BOT_TOKEN has to be of the same app as "
                "SLACK_APP_TOKEN or SLACK_SIGNING_SECRET"
            )
        else:
            _LOG.info("a request was refused", extra={"reason": refusal})
        if kind == "event_callback" and refusal in _FINAL:
            return _OK  # Slack need not send it again
        return answer_privately(self._ctx, body, "Not available", refusal)
