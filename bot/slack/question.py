"""How a user says what an unanswered create call made: in a form, or by using what is offered."""

import asyncio
import json
from functools import partial
from typing import Final

from pydantic import BaseModel, ConfigDict
from slack_bolt.async_app import AsyncApp
from slack_bolt.context.ack.async_ack import AsyncAck

from bot.errors import OutsideError, Refused
from bot.kinds import Comparison, Unreadable
from bot.kinds.wire import MAX_ID, compare_with_job
from bot.links import only_hosts
from bot.model import Job, State
from bot.service_errors import UNKNOWN_ID
from bot.slack.blocks import Json, cut, element, field, modal, section
from bot.slack.buttons import HAVE_ID, USE_OFFERED, attempt_of, offer_of
from bot.slack.context import UNKNOWN_KIND, HandlerContext
from bot.slack.job_actions import SETTLED, find_job, not_theirs
from bot.slack.payloads import BlockAction, ViewSubmission, read
from bot.store import AddedCandidate

_CALLBACK_ID: Final = "job_id_form"
_REMOTE_ID: Final = "remote_id"


class _Metadata(BaseModel):
    """The form's ``private_metadata``."""

    model_config = ConfigDict(strict=True, hide_input_in_errors=True)

    job: str
    """The job that it is about."""
    attempts: int = 1
    """How many create calls were begun for it when the form was opened."""
    warned: str = ""
    """The id of which the user was told that it cannot be verified."""


def register(app: AsyncApp, ctx: HandlerContext) -> None:
    """Register the listeners for the button and the form."""
    app.action(HAVE_ID)(partial(open_form, ctx))
    app.action(USE_OFFERED)(partial(use_offered, ctx))
    app.view(_CALLBACK_ID)(partial(submit, ctx))


async def open_form(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Open the form."""
    action = read(BlockAction, body)
    job_id, attempts = attempt_of(action.value)
    if (job := await find_job(ctx, action, job_id)) is not None:
        if (job.state, job.attempts) != (State.UNCONFIRMED, attempts):
            ctx.respond_ephemeral(action, SETTLED)
        elif error := await ctx.open_view(action.trigger_id, _form(ctx, job)):
            ctx.respond_ephemeral(action, error)
    await ack()


async def use_offered(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Have what the question offers checked, as if its id had been typed."""
    action = read(BlockAction, body)
    job_id, attempts, remote_id = offer_of(action.value)
    if (job := await find_job(ctx, action, job_id)) is not None:
        offered = job.offer.remote_id if job.offer is not None else None
        if (job.state, job.attempts, offered) != (State.UNCONFIRMED, attempts, remote_id):
            error: str | None = SETTLED
        else:
            # What cannot be compared now is read again before it is adopted.
            _, error = await _compare(ctx, job, remote_id)
            error = error or await _add_candidate(ctx, job, remote_id, action.user)
        if error:
            ctx.respond_ephemeral(action, error)
    await ack()


async def submit(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Have the named id checked; warn first of one that cannot be verified."""
    submission = read(ViewSubmission, body)
    metadata = submission.view.metadata(_Metadata)
    typed = submission.view.fields().get(_REMOTE_ID, "").strip()
    job = await ctx.store.jobs.fetch(metadata.job)
    if job is None or not ctx.may_decide(submission.user, job):
        error: str | None = not_theirs("the person who asked")
    elif job.kind not in ctx.kinds:
        error = UNKNOWN_KIND
    elif not typed or len(typed) > MAX_ID or not typed.isprintable() or " " in typed:
        error = "An ID is one word, as the video service shows it."
    elif (job.state, job.attempts) != (State.UNCONFIRMED, metadata.attempts):
        error = SETTLED
    else:
        comparison, error = await _compare(ctx, job, typed)
        if comparison is Comparison.UNKNOWN and typed != metadata.warned:
            await ack(response_action="update", view=_form(ctx, job, unverified=typed))
            return
        error = error or await _add_candidate(ctx, job, typed, submission.user)
    if error:
        await ack(response_action="errors", errors={_REMOTE_ID: error})
    else:
        await ack()


async def _compare(ctx: HandlerContext, job: Job, remote_id: str) -> tuple[Comparison, str]:
    """Return whether ``remote_id`` is what the job asked for, and why if it is something else."""
    kind, noun = ctx.kinds[job.kind], ctx.presenters[job.kind].noun
    owner = await ctx.store.jobs.fetch_by_remote_id(kind.name, remote_id)
    if owner is not None:
        return Comparison.DIFFERENT, f"That {noun} belongs to another request, No. {owner.id}."
    try:
        async with asyncio.timeout_at(ctx.service_deadline()):
            answer = await ctx.service.read(kind.path, remote_id, for_person=True)
            snapshot = kind.read(answer, remote_id)
    except (OutsideError, Unreadable, TimeoutError) as error:
        if isinstance(error, Refused) and error.code in UNKNOWN_ID:
            said = cut(only_hosts(error.reason), 200)
            reason = f"The video service can't find it. It says: {said}"
            return Comparison.DIFFERENT, reason
        return Comparison.UNKNOWN, ""  # it is read again before it is adopted
    comparison = compare_with_job(kind, job, snapshot)
    different = comparison is Comparison.DIFFERENT
    return comparison, f"That {noun} isn't the one that was requested here." if different else ""


async def _add_candidate(ctx: HandlerContext, job: Job, remote_id: str, user: str) -> str | None:
    """Add an id as a candidate; return why that cannot be done, if so."""
    now = ctx.clock.now()
    match await ctx.store.jobs.add_candidate(job.id, job.attempts, remote_id, user, now):
        case AddedCandidate.STORED:
            return None
        case AddedCandidate.OTHER_UNCHECKED:
            return "Another ID is already being checked. Please try again in a few minutes."
        case AddedCandidate.SETTLED:
            return SETTLED


def _form(ctx: HandlerContext, job: Job, unverified: str = "") -> Json:
    """Return the form; with a warning, if ``unverified`` was typed and cannot be verified."""
    noun = ctx.presenters[job.kind].noun
    warning = f"I can't verify that this {noun} is the one requested here. Use it anyway?"
    hint = "You'll find it in your account there. I'll check that it's the right one."
    remote_id = field(
        _REMOTE_ID,
        f"{noun.capitalize()} ID at the video service",
        element(
            "plain_text_input", _REMOTE_ID, initial_value=unverified or None, max_length=MAX_ID
        ),
        hint="" if unverified else hint,
    )
    return modal(
        _CALLBACK_ID,
        f"{noun.capitalize()} ID",
        submit="Use it anyway" if unverified else f"Use this {noun}",
        close="Cancel",
        private_metadata=json.dumps(
            {"job": job.id, "attempts": job.attempts, "warned": unverified}
        ),
        blocks=[section(warning), remote_id] if unverified else [remote_id],
    )
