"""The form in which a user names what an unanswered create call made."""

import asyncio
import json
from functools import partial
from typing import Final

from pydantic import BaseModel, ConfigDict
from slack_bolt.async_app import AsyncApp
from slack_bolt.context.ack.async_ack import AsyncAck

from bot.errors import OutsideError, Refused
from bot.kinds import Unreadable
from bot.model import Job, State
from bot.service_errors import UNKNOWN_ID
from bot.slack.blocks import Json, cut, element, field, modal
from bot.slack.cards import HAVE_ID
from bot.slack.context import UNKNOWN_KIND, HandlerContext
from bot.slack.job_actions import SETTLED, find_job, not_theirs
from bot.slack.payloads import BlockAction, ViewSubmission, read
from bot.store import AddedCandidate

_CALLBACK_ID: Final = "job_id_form"
_REMOTE_ID: Final = "remote_id"
_MAX_ID: Final = 150


class _Metadata(BaseModel):
    """The form's ``private_metadata``: the job that it is about."""

    model_config = ConfigDict(strict=True, hide_input_in_errors=True)

    job: str


def register(app: AsyncApp, ctx: HandlerContext) -> None:
    """Register the listeners for the button and the form."""
    app.action(HAVE_ID)(partial(open_form, ctx))
    app.view(_CALLBACK_ID)(partial(submit, ctx))


async def open_form(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Open the form."""
    action = read(BlockAction, body)
    if (job := await find_job(ctx, action)) is not None:
        if job.state is not State.UNCONFIRMED:
            ctx.respond_ephemeral(action.response_url, SETTLED)
        elif error := await ctx.open_view(action.trigger_id, _form(ctx, job)):
            ctx.respond_ephemeral(action.response_url, error)
    await ack()


async def submit(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Have the named id checked."""
    submission = read(ViewSubmission, body)
    job = await ctx.store.jobs.fetch(submission.view.metadata(_Metadata).job)
    if error := await _add_candidate(ctx, submission, job):
        await ack(response_action="errors", errors={_REMOTE_ID: error})
    else:
        await ack()


async def _add_candidate(
    ctx: HandlerContext, submission: ViewSubmission, job: Job | None
) -> str | None:
    """Add the typed id as a candidate; return what is wrong with it, if anything."""
    typed = submission.view.fields().get(_REMOTE_ID, "").strip()
    if job is None or not ctx.may_decide(submission.user, job):
        return not_theirs("the person who asked")
    if job.kind not in ctx.kinds:
        return UNKNOWN_KIND
    if not typed or len(typed) > _MAX_ID or not typed.isprintable() or " " in typed:
        return "An ID is one word, as the video service shows it."
    if mismatch := await _mismatch(ctx, job, typed):
        return mismatch
    match await ctx.store.jobs.add_candidate(job.id, typed, ctx.clock.now()):
        case AddedCandidate.STORED:
            return None
        case AddedCandidate.OTHER_UNCHECKED:
            return "Another ID is already being checked. Please try again in a few minutes."
        case AddedCandidate.SETTLED:
            return SETTLED


async def _mismatch(ctx: HandlerContext, job: Job, remote_id: str) -> str | None:
    """Return why ``remote_id`` cannot be what the job asked for; None if it can be."""
    kind, noun = ctx.kinds[job.kind], ctx.presenters[job.kind].noun
    owner = await ctx.store.jobs.fetch_by_remote_id(kind.name, remote_id)
    if owner is not None:
        return f"That {noun} belongs to another request, No. {owner.id}."
    try:
        async with asyncio.timeout_at(ctx.service_deadline()):
            snapshot = kind.read(await ctx.service.read(kind.path, remote_id), remote_id)
    except (OutsideError, Unreadable, TimeoutError) as error:
        if isinstance(error, Refused) and error.code in UNKNOWN_ID:
            return f"The video service can't find it. It says: {cut(error.reason, 200)}"
        return None  # it is read again before it is adopted
    if kind.can_compare(snapshot) and not kind.matches(job.params, snapshot):
        return f"That {noun} isn't the one that was requested here."
    return None


def _form(ctx: HandlerContext, job: Job) -> Json:
    noun = ctx.presenters[job.kind].noun
    return modal(
        _CALLBACK_ID,
        f"{noun.capitalize()} ID",
        submit=f"Use this {noun}",
        close="Cancel",
        private_metadata=json.dumps({"job": job.id}),
        blocks=[
            field(
                _REMOTE_ID,
                f"{noun.capitalize()} ID at the video service",
                element("plain_text_input", _REMOTE_ID, max_length=_MAX_ID),
                hint="You'll find it in your account there. I'll check that it's the right one.",
            )
        ],
    )
