"""The buttons of a request that waits for approval, and the form that asks why it is declined."""

import json
from functools import partial
from typing import Final

from slack_bolt.async_app import AsyncApp

from bot.model import Failure, Job, State
from bot.slack.context import (
    HandlerContext,
    Refusal,
    answer_form,
    register_clicks,
)
from bot.slack.features.jobs import SETTLED, fetch_job, find_job
from bot.slack.payloads import BlockAction, PrivateMetadata, ViewSubmission
from bot.slack.views.blocks import Json, element, field, modal
from bot.slack.views.buttons import APPROVE, DECLINE, WITHDRAW, attempt_of, pressed

_CALLBACK_ID: Final = "decline_form"
_REASON: Final = "decline_reason"
_MAX_REASON: Final = 300
_OWN: Final = "You can't approve your own request."
_NOT_AN_APPROVER: Final = "Only an approver can do that."


class _Metadata(PrivateMetadata):
    """The form's ``private_metadata``."""

    job: str
    """The job and attempt that it is about, as its button says."""


def register(app: AsyncApp, ctx: HandlerContext) -> None:
    """Register the listeners for the buttons and the form."""
    app.view(_CALLBACK_ID)(partial(answer_form, ctx, decline))
    register_clicks(
        app,
        ctx,
        {
            APPROVE: approve,
            DECLINE: open_form,
            WITHDRAW: withdraw,
        },
    )


async def approve(ctx: HandlerContext, action: BlockAction) -> str | None:
    """Approve a request that waits for it."""
    job, attempts = await _find(ctx, action.user, action.value), attempt_of(action.value)
    approved = await ctx.store.jobs.approve(job.id, attempts, action.user, ctx.clock.now())
    return None if approved else await _why_not(ctx, job, attempts)


async def open_form(ctx: HandlerContext, action: BlockAction) -> str | None:
    """Open the form that asks why a request is declined."""
    job, attempts = await _find(ctx, action.user, action.value), attempt_of(action.value)
    if (job.state, job.attempts) != (State.WAITING_FOR_APPROVAL, attempts):
        return await _why_not(ctx, job, attempts)
    return await ctx.open_view(action.trigger_id, _form(ctx, job, action.user))


async def decline(ctx: HandlerContext, submission: ViewSubmission) -> Json:
    """Decline a request that waits for approval."""
    view, user = submission.view, submission.user
    asked = view.metadata(_Metadata).job
    job = await _find(ctx, user, asked)
    reason = view.fields().get(_REASON, "").strip()[:_MAX_REASON]
    if not reason and not _is_own_face(job, user):
        raise Refusal("Please say what to change.")
    if not await ctx.store.jobs.decline(job.id, attempt_of(asked), user, reason, ctx.clock.now()):
        raise Refusal(SETTLED)
    return {}


async def withdraw(ctx: HandlerContext, action: BlockAction) -> str | None:
    """Cancel a request that waits for approval: its own person may, or an admin."""
    job, now = await find_job(ctx, action), ctx.clock.now()
    cancelled = await ctx.store.jobs.close(
        job.id, job.attempts, Failure.WITHDRAWN, action.user, now
    )
    return None if cancelled else await _why_not(ctx, job, job.attempts)


async def _find(ctx: HandlerContext, user: str, value: str) -> Job:
    """Return the job that a button or a form is about.

    Raises:
        Refusal: the user may not decide about it, or there is no such job.
    """
    job = await fetch_job(ctx, value)
    if not ctx.store.jobs.approvals.may_settle(user, job):
        raise Refusal(_OWN if user == job.user else _NOT_AN_APPROVER)
    return job


async def _why_not(ctx: HandlerContext, before: Job, attempts: int) -> str:
    """Return how a request was settled that no longer waits for approval of its next attempt."""
    job = await ctx.store.jobs.fetch(before.id)
    waits = job is not None and job.state is State.WAITING_FOR_APPROVAL
    if job is None or job.approval is None or (waits and job.attempts != attempts):
        return SETTLED
    if waits or job.failure is Failure.NOT_APPROVED:
        return "This wasn't approved in time."
    if job.approval.decided_by is None:
        return SETTLED
    how = {Failure.DECLINED: "declined", Failure.WITHDRAWN: "cancelled"}
    what = "approved" if job.failure is None else how.get(job.failure, "approved")
    return f"<@{job.approval.decided_by}> has already {what} this."


def _is_own_face(job: Job, user: str) -> bool:
    """Return whether a user decides about their own replica: they need to give no reason."""
    return job.asks_owner and user == job.owner


def _form(ctx: HandlerContext, job: Job, user: str) -> Json:
    noun = ctx.presenters[job.kind].noun
    reason = element("plain_text_input", _REASON, multiline=True, max_length=_MAX_REASON)
    return modal(
        _CALLBACK_ID,
        f"Decline this {noun}",
        submit="Decline",
        close="Cancel",
        private_metadata=json.dumps({"job": pressed(job)}),
        blocks=[
            field(
                _REASON,
                "Why?",
                reason,
                hint="I'll pass it on.",
                optional=_is_own_face(job, user),
            )
        ],
    )
