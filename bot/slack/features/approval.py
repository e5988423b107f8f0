"""The buttons of a request that waits for approval, and the form that asks why it is declined."""

import json
from functools import partial
from typing import Final

from slack_bolt.async_app import AsyncApp
from slack_bolt.context.ack.async_ack import AsyncAck

from bot.model import Failure, Job, State
from bot.slack.context import UNKNOWN_JOB, UNKNOWN_KIND, HandlerContext
from bot.slack.features.actions import SETTLED, find_job
from bot.slack.features.forms import ack_errors
from bot.slack.payloads import BlockAction, PrivateMetadata, ViewSubmission, read
from bot.slack.views.blocks import Json, element, field, modal
from bot.slack.views.buttons import APPROVE, DECLINE, WITHDRAW, attempt_of, pressed

_CALLBACK_ID: Final = "decline_form"
_REASON: Final = "decline_reason"
_MAX_REASON: Final = 300
_OWN: Final = "You can't approve your own request."
_NOT_AN_APPROVER: Final = "Only an approver can do that."
_EXPIRED: Final = "This request expired without an answer."


class _Metadata(PrivateMetadata):
    """The form's ``private_metadata``."""

    job: str
    """The job and attempt that it is about, as its button says."""


def register(app: AsyncApp, ctx: HandlerContext) -> None:
    """Register the listeners for the buttons and the form."""
    app.action(APPROVE)(partial(approve, ctx))
    app.action(DECLINE)(partial(open_form, ctx))
    app.view(_CALLBACK_ID)(partial(decline, ctx))
    app.action(WITHDRAW)(partial(withdraw, ctx))


async def approve(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Approve a request that waits for it."""
    action = read(BlockAction, body)
    job_id, attempts = attempt_of(action.value, 0)
    job = await ctx.store.jobs.fetch(job_id)
    refusal = _refusal(ctx, action.user, job)
    if (
        job is not None
        and refusal is None
        and not await ctx.store.jobs.approve(job.id, attempts, action.user, ctx.clock.now())
    ):
        refusal = await _why_not(ctx, job, attempts)
    if refusal is not None:
        ctx.respond_ephemeral(action, refusal)
    await ack()


async def open_form(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Open the form that asks why a request is declined."""
    action = read(BlockAction, body)
    job_id, attempts = attempt_of(action.value, 0)
    job = await ctx.store.jobs.fetch(job_id)
    refusal = _refusal(ctx, action.user, job)
    if job is not None and refusal is None:
        if (job.state, job.attempts) == (State.WAITING_FOR_APPROVAL, attempts):
            refusal = await ctx.open_view(action.trigger_id, _form(ctx, job))
        else:
            refusal = await _why_not(ctx, job, attempts)
    if refusal is not None:
        ctx.respond_ephemeral(action, refusal)
    await ack()


async def decline(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Decline a request that waits for approval."""
    submission = read(ViewSubmission, body)
    reason = submission.view.fields().get(_REASON, "").strip()[:_MAX_REASON]
    job_id, attempts = attempt_of(submission.view.metadata(_Metadata).job, 0)
    job = await ctx.store.jobs.fetch(job_id)
    error = _refusal(ctx, submission.user, job)
    if error is None and not reason:
        error = "Please say what to change."
    if job is not None and error is None:
        now = ctx.clock.now()
        if not await ctx.store.jobs.decline(job.id, attempts, submission.user, reason, now):
            # The errors of a form are plain text: https://docs.slack.dev/surfaces/modals
            error = SETTLED
    if error is not None:
        await ack_errors(ack, submission.view, {_REASON: error})
    else:
        await ack()


async def withdraw(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Cancel a request that waits for approval: its own person may, or an admin."""
    action = read(BlockAction, body)
    waits = State.WAITING_FOR_APPROVAL
    if (job := await find_job(ctx, action)) is not None and not await ctx.store.jobs.cancel(
        job.id, job.attempts, action.user, ctx.clock.now(), state=waits
    ):
        ctx.respond_ephemeral(action, await _why_not(ctx, job, job.attempts))
    await ack()


def _refusal(ctx: HandlerContext, user: str, job: Job | None) -> str | None:
    """Return why this person may not decide about a job, if so."""
    if job is None:
        return UNKNOWN_JOB
    if job.kind not in ctx.kinds:
        return UNKNOWN_KIND
    if ctx.store.jobs.approvals.may_settle(user, job):
        return None
    return _OWN if user == job.user else _NOT_AN_APPROVER


async def _why_not(ctx: HandlerContext, before: Job, attempts: int) -> str:
    """Return how a request was settled that no longer waits for approval of its next attempt."""
    job = await ctx.store.jobs.fetch(before.id)
    waits = job is not None and job.state is State.WAITING_FOR_APPROVAL
    if job is None or job.approval is None or (waits and job.attempts != attempts):
        return SETTLED
    if waits or job.failure is Failure.NOT_APPROVED:
        return _EXPIRED
    if job.approval.decided_by is None:
        return SETTLED
    what = "approved"
    if job.failure in {Failure.DECLINED, Failure.WITHDRAWN}:
        what = "declined" if job.failure is Failure.DECLINED else "cancelled"
    return f"<@{job.approval.decided_by}> has already {what} this."


def _form(ctx: HandlerContext, job: Job) -> Json:
    noun = ctx.presenters[job.kind].noun
    reason = element("plain_text_input", _REASON, multiline=True, max_length=_MAX_REASON)
    hint = "I'll pass it on."
    return modal(
        _CALLBACK_ID,
        f"Decline this {noun}",
        submit="Decline",
        close="Cancel",
        private_metadata=json.dumps({"job": pressed(job)}),
        blocks=[field(_REASON, "Why?", reason, hint=hint)],
    )
