"""Share to…: a person chooses a channel, which gets a message with the link."""

import json
import re
from functools import partial
from typing import Final

from pydantic import BaseModel, ConfigDict
from slack_bolt.async_app import AsyncApp
from slack_bolt.context.ack.async_ack import AsyncAck

from bot.model import Job
from bot.slack.blocks import Json, element, field, modal
from bot.slack.buttons import SHARE
from bot.slack.context import UNKNOWN_JOB, HandlerContext
from bot.slack.job_actions import find_job, not_theirs
from bot.slack.payloads import BlockAction, ViewSubmission, read

_CALLBACK_ID: Final = "share_form"
_CHANNEL: Final = "share_channel"
_WHAT: Final = "share it"
_NO_LINK: Final = "There's no link to share any more."
# With a user's id, it would be posted to that user as a direct message.
_IS_CHANNEL: Final = re.compile(r"[CG][A-Z0-9]{1,40}", re.ASCII)


class _Metadata(BaseModel):
    """The form's ``private_metadata``."""

    model_config = ConfigDict(strict=True, hide_input_in_errors=True)

    job: str
    """The job that it is about."""


def register(app: AsyncApp, ctx: HandlerContext) -> None:
    """Register the listeners for the button and the form."""
    app.action(SHARE)(partial(open_form, ctx))
    app.view(_CALLBACK_ID)(partial(submit, ctx))


async def open_form(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Open the form."""
    action = read(BlockAction, body)
    if (job := await find_job(ctx, action, what=_WHAT)) is not None:
        if not ctx.presenters[job.kind].links(job):
            ctx.respond_ephemeral(action, _NO_LINK)
        elif error := await ctx.open_view(action.trigger_id, _form(ctx, job)):
            ctx.respond_ephemeral(action, error)
    await ack()


async def submit(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Owe the message in the chosen channel, or say why it cannot be posted there."""
    submission = read(ViewSubmission, body)
    channel = submission.view.fields().get(_CHANNEL, "")
    user, deadline = submission.user, ctx.service_deadline()
    job = await ctx.store.jobs.fetch(submission.view.metadata(_Metadata).job)
    error: str | None = _NO_LINK
    if job is None:
        error = UNKNOWN_JOB
    elif not ctx.may_decide(user, job):
        error = not_theirs("the person who asked", _WHAT)
    elif not _IS_CHANNEL.fullmatch(channel):
        error = "I can't post there. Please choose another channel."
    elif refusal := (
        await ctx.access.asking_refusal(user, deadline)
        or await _channel_refusal(ctx, channel, deadline)
        or await ctx.access.posting_refusal(channel, deadline)
    ):
        error = refusal
    elif ctx.presenters[job.kind].links(job):
        # Another channel is another share: an answer that was lost leaves the form open.
        key = f"{submission.view.id}:{channel}"
        if await ctx.store.deliveries.share(
            job.id, channel, user=user, key=key, now=ctx.clock.now()
        ):
            error = None
    if error is not None:
        await ack(response_action="errors", errors={_CHANNEL: error})
    else:
        await ack()


async def _channel_refusal(ctx: HandlerContext, channel: str, deadline: float) -> str | None:
    limits = (await ctx.store.limits.fetch()).limits
    return await ctx.access.channel_refusal(limits, channel, deadline)


def _form(ctx: HandlerContext, job: Job) -> Json:
    """Return the form: a menu of the channels that the person sees.

    https://docs.slack.dev/reference/block-kit/block-elements/select-menu-element#conversations_select
    """
    noun = ctx.presenters[job.kind].noun
    menu = element(
        "conversations_select",
        _CHANNEL,
        filter=ctx.access.conversation_filter,
        placeholder="Choose a channel",
    )
    hint = f"I'll post the link there and say that you shared this {noun}."
    return modal(
        _CALLBACK_ID,
        f"Share this {noun}",
        submit="Share",
        close="Cancel",
        private_metadata=json.dumps({"job": job.id}),
        blocks=[field(_CHANNEL, "Channel", menu, hint=hint)],
    )
