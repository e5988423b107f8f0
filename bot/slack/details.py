"""The details of a job: a modal with everything, for the person who asked and admins."""

from functools import partial
from typing import Final

from slack_bolt.async_app import AsyncApp
from slack_bolt.context.ack.async_ack import AsyncAck

from bot.model import Job
from bot.slack.blocks import (
    Json,
    bullets,
    modal,
    paragraph,
    quotes,
    rich,
    title,
    words,
)
from bot.slack.buttons import DETAILS
from bot.slack.context import HandlerContext
from bot.slack.job_actions import find_job
from bot.slack.job_status import Fact, facts_of, rows, usually
from bot.slack.payloads import BlockAction, read
from bot.slack.presenters import NOT_APPROVED, Presenter, script_of, state_word

_CALLBACK_ID: Final = "job_details"


def register(app: AsyncApp, ctx: HandlerContext) -> None:
    """Register the listener for the button."""
    app.action(DETAILS)(partial(open_details, ctx))


async def open_details(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Open the details of a job."""
    action = read(BlockAction, body)
    job = await find_job(ctx, action, what="see the details", reads=True)
    if job is not None:
        presenter = ctx.presenters[job.kind]
        replica_id = presenter.replica_id(job)
        names = await ctx.store.replicas.names([replica_id] if replica_id else [])
        approves = ctx.may_approve(action.user, job)
        view = details(
            job, presenter, reader=action.user, replica="".join(names.values()), approves=approves
        )
        if error := await ctx.open_view(action.trigger_id, view):
            ctx.respond_ephemeral(action, error)
    await ack()


def details(
    job: Job, presenter: Presenter, *, reader: str, replica: str = "", approves: bool = False
) -> Json:
    """Return the view with all that is known of a job.

    A script is shown to the person who wrote it, and to one who ``approves`` it. ``replica`` is the
    name of the replica that the job uses, if that is known.
    """
    own = reader == job.user or approves
    facts: list[Fact] = [
        ("Status", state_word(job, presenter)),
        ("Replica", replica),
        *presenter.details(job).items(),
        *facts_of(job.snapshot, presenter, job, own=True),
        ("Created by earlier attempts", ", ".join(job.orphaned_ids)),
        ("Requested", job.created_at),
        *_approval_of(job),
        ("Usually takes", usually(job)),
        *([("Started", job.started_at)] if job.started_at is not None else []),
        *([("Ended", job.ended_at)] if job.ended_at is not None else []),
        ("Request number", job.id),
    ]
    name = title(presenter.name(job)) if own else ""
    blocks = [rich(paragraph(words(name, bold=True)))] if name else []
    blocks.append(rich(bullets(rows(facts))))
    if own and (script := script_of(job, job.snapshot)):
        # The whole of it: the closing reply has room for the beginning of a long one.
        blocks += quotes(script)
    heading = f"{presenter.noun.capitalize()} details"
    return modal(_CALLBACK_ID, heading, close="Close", blocks=blocks)


def _approval_of(job: Job) -> list[Fact]:
    """Return when a job was approved, or when its approval expires."""
    if job.approval is None or job.failure in NOT_APPROVED:
        return []
    if job.approval.decided_at is None:
        return [("Approval expires", job.approval.until)]
    return [("Approved", job.approval.decided_at)]
