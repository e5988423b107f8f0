"""Refuses what does not come from our app and our workspace, before any listener."""

import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

from slack_bolt.middleware.async_middleware import AsyncMiddleware
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_bolt.response import BoltResponse

from bot.slack.access import OTHER_APP, OTHER_WORKSPACE, STRANGER
from bot.slack.context import HandlerContext
from bot.slack.error_handler import answer_error, answer_privately
from bot.slack.payloads import (
    EventSender,
    InvalidPayload,
    MessageShortcutSender,
    Sender,
    read,
)

_LOG: Final = logging.getLogger(__name__)
_FINAL: Final = frozenset({STRANGER, OTHER_WORKSPACE})
_NO_ANSWER: Final = BoltResponse(status=HTTPStatus.NOT_FOUND)


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
