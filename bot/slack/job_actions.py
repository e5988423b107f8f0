"""The buttons that cards of every kind have: check again, create again, give up, and links."""

import re
from functools import partial
from typing import Final

from slack_bolt.async_app import AsyncApp
from slack_bolt.context.ack.async_ack import AsyncAck

from bot.model import Job
from bot.slack.blocks import Json
from bot.slack.buttons import CHECK_AGAIN, CREATE_AGAIN, GIVE_UP, OPEN_LINK, attempt_of
from bot.slack.context import UNKNOWN_JOB, UNKNOWN_KIND, HandlerContext
from bot.slack.limits import limit_sentence
from bot.slack.payloads import BlockAction, read
from bot.store import LimitReached

SETTLED: Final = "That has already been settled: see the card."


def register(app: AsyncApp, ctx: HandlerContext) -> None:
    """Register the listeners for the buttons."""
    app.action(CHECK_AGAIN)(partial(check_again, ctx))
    app.action(CREATE_AGAIN)(partial(create_again, ctx))
    app.action(GIVE_UP)(partial(give_up, ctx))
    app.action(re.compile(f"^{OPEN_LINK}_"))(acknowledge)


async def check_again(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Poll a job at once."""
    action = read(BlockAction, body)
    if (job := await find_job(ctx, action)) is not None:
        text = SETTLED
        if not job.state.ended:
            await ctx.store.jobs.wake(job, ctx.clock.now())
            text = "Checking now. If anything has changed, the card will show it."
        ctx.respond_ephemeral(action, text)
    await ack()


async def create_again(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Create an unconfirmed job again, unless the button belongs to an earlier attempt."""
    action = read(BlockAction, body)
    job_id, attempts = attempt_of(action.value)
    job = await find_job(ctx, action, job_id)
    if job is None:
        await ack()
        return
    if refusal := await ctx.access.asking_refusal(action.user, ctx.service_deadline()):
        ctx.respond_ephemeral(action, refusal)
        await ack()
        return
    now = ctx.clock.now()
    try:
        if not await ctx.store.jobs.create_again(job.id, attempts, action.user, now):
            ctx.respond_ephemeral(action, SETTLED)
    except LimitReached as reached:
        person = "You" if action.user == job.user else f"<@{job.user}>"
        text = f"I didn't create it again. {limit_sentence(reached, now, person)}"
        ctx.respond_ephemeral(action, text)
    await ack()


async def give_up(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """End an unconfirmed job, unless the button belongs to an earlier attempt."""
    action = read(BlockAction, body)
    job_id, attempts = attempt_of(action.value)
    job = await find_job(ctx, action, job_id)
    if job is not None:
        now = ctx.clock.now()
        if not await ctx.store.jobs.cancel(job.id, attempts, action.user, now):
            ctx.respond_ephemeral(action, SETTLED)
    await ack()


async def acknowledge(ack: AsyncAck) -> None:
    """Acknowledge a link button: Slack opens the link by itself."""
    await ack()


def not_theirs(owner: str) -> str:
    """Return that a job is someone else's; a form, unlike a message, cannot mention its owner."""
    return f"Only {owner} or an admin can do that."


async def find_job(
    ctx: HandlerContext, action: BlockAction, job_id: str | None = None
) -> Job | None:
    """Return the job of a button if this user may decide about it; if not, answer so.

    ``job_id`` is the button's value, unless that holds more.
    """
    job = await ctx.store.jobs.fetch(action.value if job_id is None else job_id)
    if job is None:
        text = UNKNOWN_JOB
    elif job.kind not in ctx.kinds:
        text = UNKNOWN_KIND
    elif not ctx.may_decide(action.user, job):
        text = not_theirs(f"<@{job.user}>")
    else:
        return job
    ctx.respond_ephemeral(action, text)
    return None
