"""From what Slack sends to who handles it: one entrance behind Bolt, and a table for each sort.

A handler takes one payload and returns the body of the answer, or None for an empty one; one of
lookups, which come with each letter that is typed, returns JSON that is ready.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final, TypeAlias, TypeVar

from pydantic import BaseModel
from slack_bolt.middleware.async_middleware import AsyncMiddleware
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_bolt.response import BoltResponse

from bot.database import StoreError
from bot.log import reference
from bot.slack.payloads import Click, Command, Garbled, Lookup, Submission, read

_LOG: Final = logging.getLogger(__name__)
_P = TypeVar("_P", bound=BaseModel)
_H = TypeVar("_H")

Answer: TypeAlias = dict[str, Any] | None
Handler: TypeAlias = Callable[[_P], Awaitable[Answer]]
LookupHandler: TypeAlias = Callable[[Lookup], Awaitable[str]]
# What we do not know is not logged whole.
_SHOWN: Final = 100


class Routes(AsyncMiddleware):
    """The tables of handlers, by the id under which Slack reports each of them.

    A middleware of Bolt's, not listeners: of those it tries one after the other.
    """

    def __init__(self, whisper: Callable[[str, str], None]) -> None:
        """``whisper(response_url, text)`` tells the person alone, in the background."""
        self.commands: dict[str, Handler[Command]] = {}
        self.clicks: dict[str, Handler[Click]] = {}
        self.submissions: dict[str, Handler[Submission]] = {}
        self.lookups: dict[str, LookupHandler] = {}
        self._whisper = whisper

    def command(self, name: str, handler: Handler[Command]) -> None:
        """Have ``handler`` answer a slash command."""
        _add(self.commands, name, handler)

    def click(self, action_id: str, handler: Handler[Click]) -> None:
        """Have ``handler`` answer a button or another element."""
        _add(self.clicks, action_id, handler)

    def submission(self, callback_id: str, handler: Handler[Submission]) -> None:
        """Have ``handler`` answer a form that is sent off."""
        _add(self.submissions, callback_id, handler)

    def lookup(self, action_id: str, handler: LookupHandler) -> None:
        """Have ``handler`` answer a type-ahead field."""
        _add(self.lookups, action_id, handler)

    async def async_process(
        self,
        *,
        req: AsyncBoltRequest,
        resp: BoltResponse,  # noqa: ARG002 - Bolt's, which says nothing yet
        next: Callable[[], Awaitable[BoltResponse]],  # noqa: A002 - Bolt calls it by this name
    ) -> BoltResponse:
        """Answer what there are tables for; leave the rest to Bolt."""
        match req.body:
            case {"type": "block_suggestion"}:
                return await self._on_lookup(req.body)
            case {"type": "view_submission"}:
                return await self._on_submission(req.body)
            case {"type": "block_actions"}:
                return await self._on_click(req.body)
            case {"command": _}:
                return await self._on_command(req.body)
            case _:
                return await next()

    async def _on_command(self, body: dict[str, Any]) -> BoltResponse:
        async def work() -> Answer:
            payload = read(Command, body)
            return await _handler(self.commands, payload.command)(payload)

        return await _guarded(work(), lambda told: {"text": told})

    async def _on_click(self, body: dict[str, Any]) -> BoltResponse:
        async def work() -> Answer:
            payload = read(Click, body)
            handler = self.clicks.get(payload.action_id)
            return None if handler is None else await handler(payload)

        def tell(told: str) -> Answer:
            if isinstance(url := body.get("response_url"), str):
                self._whisper(url, told)
            return None

        return await _guarded(work(), tell)

    async def _on_submission(self, body: dict[str, Any]) -> BoltResponse:
        async def work() -> Answer:
            payload = read(Submission, body)
            return await _handler(self.submissions, payload.view.callback_id)(payload)

        return await _guarded(work(), lambda told: _told_in_form(body, told))

    async def _on_lookup(self, body: dict[str, Any]) -> BoltResponse:
        async def work() -> str:
            payload = read(Lookup, body)
            return await _handler(self.lookups, payload.action_id)(payload)

        return await _guarded(work(), lambda _: {"options": []})


def _add(table: dict[str, _H], name: str, handler: _H) -> None:
    if name in table:
        raise ValueError(f"two handlers for {name}")
    table[name] = handler


class _Unknown(Exception):
    """Nobody handles this: the Slack app, or a form in it, is of another version than the bot."""


def _handler(table: Mapping[str, _H], name: str) -> _H:
    if name not in table:
        raise _Unknown(name)
    return table[name]


def _told_in_form(body: dict[str, Any], told: str) -> Answer:
    """Say something under the first field of a form, or in its place: it is not to close on it."""
    with suppress(LookupError, AttributeError, TypeError):
        for block in body["view"]["blocks"]:
            if block.get("type") == "input" and isinstance(name := block.get("block_id"), str):
                return {"response_action": "errors", "errors": {name: told}}
    words = {"type": "section", "text": {"type": "plain_text", "text": told}}
    title = {"type": "plain_text", "text": "Nothing was started"}
    return {
        "response_action": "update",
        "view": {"type": "modal", "title": title, "blocks": [words]},
    }


async def _guarded(
    work: Coroutine[Any, Any, Answer | str], tell: Callable[[str], Answer]
) -> BoltResponse:
    """Return the answer; what nobody foresaw is told with a reference to the log."""
    try:
        return _answer(await work)
    except StoreError as error:
        code = reference()
        _LOG.error("not stored", extra={"reference": code, "reason": str(error)})
        told = "This could not be saved, so nothing was started. Please try again in a moment."
    except _Unknown as error:
        code = reference()
        _LOG.error("nobody handles this", extra={"reference": code, "id": str(error)[:_SHOWN]})
        told = "I do not know this one, so nothing was started. Please begin anew."
    except Garbled as error:
        code = reference()
        _LOG.error(
            "a request of Slack's is not as expected",
            extra={"reference": code, "where": str(error)[:_SHOWN]},
        )
        told = "I cannot read this one, so nothing was started. Please begin anew."
    except Exception:  # noqa: BLE001 - a person is told, never shown a traceback
        code = reference()
        _LOG.exception("a request of Slack's failed", extra={"reference": code})
        told = "Something went wrong here, and nothing was started. Please try again."
    return _answer(tell(f"{told} If it stays, give this to whoever runs the bot: {code}"))


def _answer(body: Answer | str) -> BoltResponse:
    return BoltResponse(status=HTTPStatus.OK, body=body or "")
