"""What listeners share: the bot's parts, opening views, and answers.

A handler returns what the person is told, and a refusal is raised: the first functions here send
its answer. They get what was ``sent`` as ``SenderCheck`` has read it.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import Any, Final, TypeAlias, TypeVar

import aiohttp
from slack_bolt.async_app import AsyncApp
from slack_bolt.context.ack.async_ack import AsyncAck
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.errors import OutsideError, Refused, Unavailable
from bot.kinds import Kind
from bot.log import reference
from bot.model import Job, State
from bot.service.client import VideoService
from bot.slack.access import Access
from bot.slack.client import SlackCalls
from bot.slack.errors import ERROR_ACTIONS, ErrorAction, translated
from bot.slack.installation import InstallationSource
from bot.slack.payloads import (
    BlockAction,
    Origin,
    ShortcutPayload,
    SlashCommand,
    View,
    ViewSubmission,
)
from bot.slack.views.blocks import Json, Message, context, modal, mrkdwn, section
from bot.slack.views.presenters import Presenter, Presenters
from bot.slack.views.question import approval_note
from bot.slack.views.usage import (
    NO_PRICE,
    OPERATOR,
    Price,
    left_sentences,
    limit_sentence,
)
from bot.store import DatabaseError, DatabaseUncertain, RowUnreadable, Store
from bot.tasks import BackgroundTasks
from bot.timings import Clock, Timings, deadline

_LOG: Final = logging.getLogger(__name__)
UNKNOWN_JOB: Final = "I can't find this anymore."
UNKNOWN_KIND: Final = "I no longer support this kind of request."
# https://docs.slack.dev/interactivity/handling-user-interaction#message_responses
_RESPONSE_URL_LASTS: Final = timedelta(minutes=30)
_MAX_FAILURES: Final = 5
_LEFT: Final = "left"
_I = TypeVar("_I", bound=Origin)
Said: TypeAlias = Message | str | None
"""What a person is told, if anything."""


class Refusal(Exception):
    """A request is not carried out; ``str()`` is a sentence that tells the person why.

    Attributes:
        field: the field of a form that it is about; None for no field in particular.
    """

    def __init__(self, sentence: str, field: str | None = None) -> None:
        super().__init__(sentence)
        self.field = field


async def answer_command(
    ctx: "HandlerContext",
    handle: Callable[["HandlerContext", SlashCommand], Awaitable[Said]],
    ack: AsyncAck,
    sent: SlashCommand,
) -> None:
    """Acknowledge a command with what ``handle`` returns, in a message that only this user sees."""
    said = await _said(handle(ctx, sent))
    if said is None:
        await ack()
    else:
        message = _message(said)
        await ack(text=message.text, blocks=message.blocks, response_type="ephemeral")


def register_clicks(
    app: AsyncApp,
    ctx: "HandlerContext",
    handlers: Mapping[
        str | re.Pattern[str], Callable[["HandlerContext", BlockAction], Awaitable[Said]]
    ],
) -> None:
    """Register what the buttons and menus with these action ids do."""
    for action_id, handle in handlers.items():
        app.action(action_id)(partial(answer_interaction, ctx, handle))


async def answer_interaction(
    ctx: "HandlerContext",
    handle: Callable[["HandlerContext", _I], Awaitable[Said]],
    ack: AsyncAck,
    sent: _I,
) -> None:
    """Tell who clicked, or chose a shortcut, what ``handle`` returns."""
    ctx.respond_ephemeral(sent, await _said(handle(ctx, sent)))
    await ack()


async def answer_form(
    ctx: "HandlerContext",
    handle: Callable[["HandlerContext", ViewSubmission], Awaitable[Json]],
    ack: AsyncAck,
    sent: ViewSubmission,
) -> None:
    """Acknowledge a form with what ``handle`` returns for Slack: ``{}`` closes the form.

    A refusal is shown under its field, or the first one: https://docs.slack.dev/surfaces/modals
    """
    try:
        answer = await handle(ctx, sent)
    except Refusal as refusal:
        answer = field_errors(sent.view, {refusal.field or "": str(refusal)})
    await ack(**answer)


async def _said(work: Awaitable[Said]) -> Said:
    """Return what ``work`` returns, or why it is refused."""
    try:
        return await work
    except Refusal as refusal:
        return str(refusal)


def _message(said: Message | str) -> Message:
    return Message(said) if isinstance(said, str) else said


def with_reference(text: str, code: str) -> str:
    """Return a sentence about an error, and the code by which an operator finds it in the log."""
    return f"{text} If it keeps happening, give {OPERATOR} this code: {code}"


# What the log says, and the title and the sentence for the user; the first that fits counts.
_NOT_STORED: Final = (
    (
        RowUnreadable,
        "a row cannot be read",
        "Something went wrong",
        f"This request is damaged. Let {OPERATOR} know.",
    ),
    (
        DatabaseUncertain,
        "not stored for certain",
        "Something went wrong",
        "This may not have been saved. It's safe to try again.",
    ),
    # Not that nothing was started: an earlier copy of this request may have been saved.
    (
        DatabaseError,
        "not stored",
        "Not saved",
        "This couldn't be saved. Please try again in a moment.",
    ),
)


def log_failure(
    error: Exception, text: str = "Something went wrong. Please try again."
) -> tuple[str, str]:
    """Log why a request failed; return a title and a text for the user.

    It is ``text`` with a reference, if the database did not fail.
    """
    code = reference()
    for kind, logged, title, said in _NOT_STORED:
        if isinstance(error, kind):
            _LOG.error(logged, extra={"reference": code, "reason": str(error)})
            return title, with_reference(said, code)
    _LOG.error("a Slack request failed", exc_info=error, extra={"reference": code})
    return "Something went wrong", with_reference(text, code)


def general_error(
    blocks: Any,  # noqa: ANN401 - any JSON
    text: str,
    errors: Mapping[str, str] | None = None,
    title: str = "Not saved",
) -> Json:
    """Return the answer to a form that shows ``text`` under its first field, and the errors.

    A form without a field is replaced by ``text`` under ``title``.
    """
    with suppress(LookupError, AttributeError, TypeError):
        for block in blocks:
            if block.get("type") == "input" and isinstance(name := block.get("block_id"), str):
                return {"response_action": "errors", "errors": {**(errors or {}), name: text}}
    words = {"type": "section", "text": {"type": "plain_text", "text": text}}
    return updated(
        {"type": "modal", "title": {"type": "plain_text", "text": title}, "blocks": [words]}
    )


def field_errors(view: View, errors: Mapping[str, str]) -> Json:
    """Return the answer that keeps a form open, with a sentence under each field that is wrong.

    Slack takes no sentence about a field that is not there, as in a form of another version: it is
    under the first one.
    """
    there = [name for block in view.blocks for name in errors if block.get("block_id") == name]
    shown = {name: errors[name] for name in there}
    if others := " ".join(text for name, text in errors.items() if name not in shown):
        return general_error(view.blocks, others, shown)
    return {"response_action": "errors", "errors": shown}


def updated(view: Json) -> Json:
    """Return the answer to a form that shows ``view`` in its place."""
    return {"response_action": "update", "view": view}


def _with_left(view: Json, sentences: Sequence[str]) -> Json:
    """Return a form that says first what is left of the person's requests, and needs approval."""
    text = "\n".join(filter(None, sentences))
    top = {**context(mrkdwn(text)), "block_id": _LEFT}
    return kept_left(view, [top]) if text else view


def kept_left(view: Json, before: Sequence[Json]) -> Json:
    """Return a form that is drawn again, with what the blocks ``before`` say is left."""
    kept = [block for block in before if block.get("block_id") == _LEFT]
    return {**view, "blocks": [*kept, *view["blocks"]]}


def missing_id(command: str, subcommand: str, noun: str) -> str:
    """Return where to find the id that a subcommand lacks."""
    return f"`{command} {subcommand}` needs a {noun} ID. Find it under *Details*."


@dataclass(frozen=True, slots=True)
class HandlerContext:
    """The parts of the bot that listeners use."""

    store: Store
    service: VideoService
    kinds: Mapping[str, Kind]
    presenters: Presenters
    client: AsyncWebClient
    session: aiohttp.ClientSession
    background: BackgroundTasks
    clock: Clock
    timings: Timings
    access: Access
    installation: InstallationSource
    open_home: Callable[[str, int], Awaitable[None]]
    """Has a user's Home tab published on this page, and whenever it changes."""
    calls: SlackCalls
    media_hosts: frozenset[str] = frozenset()
    """From which finished videos are fetched, to show them."""
    consent_statement: str = ""
    """What the person in a training video has to say; "" if the operator named nothing."""
    command_prefix: str = ""
    """What the names of the commands begin with: "acme-" in "/acme-video"."""
    price: Price = NO_PRICE

    def command(self, kind: str) -> str:
        """Return the command of a kind of job, as people type it."""
        return f"/{self.command_prefix}{kind}"

    async def may_press(self, user: str, job: Job) -> bool:
        """Return whether a user may press a job's buttons: it is theirs, or they are an admin."""
        return user == job.user or await self.access.is_admin(user)

    async def may_see(self, user: str, channel: str, job: Job) -> bool:
        """Return whether a user who asks in a channel may see a job: it is there, or theirs."""
        return channel == job.channel or await self.may_press(user, job)

    def may_approve(self, user: str, job: Job) -> bool:
        """Return whether a user is asked to approve a job, and so may see all of it."""
        waits = job.state is State.WAITING_FOR_APPROVAL
        return waits and self.store.jobs.approvals.may_settle(user, job)

    def service_deadline(self) -> float:
        """Return until when an answer may wait for the service, by the event loop's clock."""
        return deadline(self.timings.service_deadline)

    async def open_form(
        self,
        kind: str,
        request: SlashCommand | BlockAction | ShortcutPayload,
        channel: str,
        view: Json,
    ) -> str | None:
        """Open a form that asks for something, as ``open_view`` does.

        It is not opened for those of whom it is known in time that they may not ask, or have
        nothing left, nor in a channel that is not posted in. It says first what is left where that
        is little, and who has to approve what it asks for.

        Args:
            kind: what it asks for.
            request: what opens it.
            channel: where it was asked; "" for nowhere.
            view: the form.
        """
        user, until = request.user, deadline(self.timings.person_timeout)
        self.access.prepare(user, channel)
        limits, left = self.store.limits.current, self.store.limits.left(user, self.clock.now())
        if refusal := await self.access.early_refusal(kind, user, channel, until):
            return refusal
        left = [await self.store.limits.open_left(user), *left]
        if spent := next((each for each in left if not each.number), None):
            who = self.access.admin_mentions
            return limit_sentence(spent, who=who)
        longest = None if kind in limits.trainings else limits.max_script
        approval = approval_note(self.store.jobs.approvals, user, longest)
        shown = _with_left(view, [*left_sentences(left), approval])
        return await self.open_view(request.trigger_id, shown)

    async def open_view(self, trigger_id: str, view: Json) -> str | None:
        """Open a modal; return None, or a sentence for the user if Slack did not open it."""
        try:
            async with translated(self.timings.view_timeout, self.calls.outages):
                await self.client.views_open(trigger_id=trigger_id, view=view)
        except Refused as error:
            match ERROR_ACTIONS.get(error.code):
                case ErrorAction.DONE:
                    return None
                case ErrorAction.EXPIRED:
                    return "Slack took too long to open the form. Please try again."
                case ErrorAction.PAUSE | ErrorAction.REDIRECT:
                    return f"Slack doesn't let me open forms ({error.code}). Let {OPERATOR} know."
            code = reference()
            _LOG.error("Slack refuses a form", extra={"reference": code, "reason": error.reason})
            return with_reference("Slack didn't open the form. Please try again.", code)
        except OutsideError:
            return "Slack didn't open the form. Please try again."
        return None

    async def update_view(self, view: View, changed: Json) -> None:
        """Show something else in an open modal, unless it changed meanwhile, or was closed."""
        try:
            async with translated(self.timings.view_timeout):
                await self.client.views_update(view_id=view.id, hash=view.hash, view=changed)
        except OutsideError as error:
            _LOG.info("a modal was not changed", extra={"reason": error.reason})

    def respond_ephemeral(self, request: Origin, message: Said) -> None:
        """Answer in the background with a message that only this user sees, if there is one.

        Slack accepts it at the request's ``response_url`` for 30 minutes. A global shortcut and a
        click in Home have none: there a modal shows it. For a click in a modal nothing is sent.
        """
        if message is not None:
            self.background.spawn(self._respond(request, message))

    async def show_notice(self, trigger_id: str, message: Message | str) -> None:
        """Show a message in a modal, for a request that no message can answer."""
        message = _message(message)
        blocks = message.blocks or [section(message.text)]
        await self.open_view(trigger_id, modal("", "Replica Videos", close="Close", blocks=blocks))

    def answer_later(self, request: Origin, work: Awaitable[Message | str]) -> None:
        """Answer in the background with what ``work`` returns, or why it failed.

        Where a modal shows it, that opens only within seconds of the click.
        """
        self.background.spawn(self._answer(request, work))

    async def _answer(self, request: Origin, work: Awaitable[Message | str]) -> None:
        latest = None if request.response_url is not None else self.service_deadline()
        limit = asyncio.timeout_at(latest)
        try:
            async with limit:
                message = await work
        except Refusal as refusal:
            message = str(refusal)
        except Exception as error:  # noqa: BLE001 - the user waits for an answer to any of them
            if limit.expired():
                message = "That's taking too long. Please try again in a moment."
            else:
                _, message = log_failure(error)
        await self._respond(request, message)

    async def _respond(self, request: Origin, message: Message | str) -> None:
        if request.response_url is not None:
            answer: Json = {"response_type": "ephemeral", "replace_original": False}
            if request.reply_thread_ts is not None:  # else it is shown in the channel
                answer["thread_ts"] = request.reply_thread_ts
            await self._send(request.response_url, answer | _content(_message(message)))
        elif request.is_outside_conversations and request.trigger_id:
            await self.show_notice(request.trigger_id, message)

    async def replace_original(self, response_url: str, message: Message) -> None:
        """Replace the message that was clicked.

        https://docs.slack.dev/interactivity/handling-user-interaction#updating_message_response
        """
        await self._send(response_url, {"replace_original": True} | _content(message))

    async def _send(self, response_url: str, answer: Json, failures: int = 0) -> None:
        """Send to a response URL, and again after a rate limit: that was no use of it."""
        try:
            async with (
                translated(self.timings.call_timeout),
                self.session.post(response_url, json=answer) as response,
            ):
                await response.read()
                if response.status == HTTPStatus.TOO_MANY_REQUESTS:
                    raise SlackApiError("", response)  # type: ignore[no-untyped-call]
        except Unavailable as error:
            wait = error.retry_after or self.timings.back_off(failures + 1)
            if failures < _MAX_FAILURES and wait < _RESPONSE_URL_LASTS:
                again = self._send_at(self.clock.now() + wait, response_url, answer, failures + 1)
                self.background.spawn(again, later=True)
        except OutsideError:
            # The user can ask for it again.
            return

    async def _send_at(self, at: datetime, response_url: str, answer: Json, failures: int) -> None:
        while self.clock.now() < at:
            await self.clock.wait(asyncio.Event(), at)
        self.background.spawn(self._send(response_url, answer, failures))


def _content(message: Message) -> Json:
    content = {"text": message.text, "unfurl_links": False, "unfurl_media": False}
    return content | ({"blocks": list(message.blocks)} if message.blocks else {})


@dataclass(frozen=True, slots=True)
class Feature:
    """A kind of job with everything that Slack shows of it."""

    kind: Kind
    presenter: Presenter
    register: Callable[[AsyncApp, HandlerContext], None]
    """Register the kind's listeners."""
