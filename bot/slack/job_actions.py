"""The buttons that jobs of every kind have: check, stop following, retry, the question, links."""

import asyncio
import re
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final

from slack_bolt.async_app import AsyncApp
from slack_bolt.context.ack.async_ack import AsyncAck

from bot.model import Delivery, Failure, Job
from bot.slack.blocks import Json, Message, anchor, section
from bot.slack.buttons import CHECK_NOW, CREATE_AGAIN, GIVE_UP, OPEN_LINK, STOP, attempt_of
from bot.slack.context import UNKNOWN_JOB, UNKNOWN_KIND, HandlerContext
from bot.slack.job_status import current_status
from bot.slack.limits import limit_sentence, person_sentence
from bot.slack.payloads import BlockAction, read
from bot.slack.permalinks import permalink
from bot.store import LimitReached, NotAllowed

_RETRIED: Final = "This has already been retried."
SETTLED: Final = "That has already been settled."


def register(app: AsyncApp, ctx: HandlerContext) -> None:
    """Register the listeners for the buttons."""
    app.action(CHECK_NOW)(partial(check_now, ctx))
    app.action(STOP)(partial(stop_following, ctx))
    app.action(CREATE_AGAIN)(partial(create_again, ctx))
    app.action(GIVE_UP)(partial(give_up, ctx))
    app.action(re.compile(f"^{OPEN_LINK}_"))(acknowledge)


async def check_now(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """Poll a job at once; of one that has ended, show how it stands at the service."""
    action = read(BlockAction, body)
    job = await find_job(ctx, action)
    if job is not None and not job.state.ended:
        await ctx.store.jobs.wake(job, ctx.clock.now())
        where = "this tab" if action.is_outside_conversations else "the message above"
        text = f"Checking now. If anything has changed, {where} will show it."
        ctx.respond_ephemeral(action, text)
    elif job is not None and job.remote_id is not None:
        work = current_status(ctx, action.user, ctx.kinds[job.kind], job, job.remote_id)
        if action.response_url is not None:
            ctx.answer_later(action.response_url, work)
        else:
            ctx.background.spawn(_show_soon(ctx, action.trigger_id, work))
    elif job is not None:
        ctx.respond_ephemeral(action, SETTLED)
    await ack()


async def _show_soon(
    ctx: HandlerContext, trigger_id: str, work: Coroutine[Any, Any, Message]
) -> None:
    """Show what ``work`` returns in a modal, which opens only within seconds of the click."""
    try:
        async with asyncio.timeout_at(ctx.service_deadline()):
            message = await work
    except TimeoutError:
        message = Message("The video service takes too long. Please try again in a moment.", ())
    await ctx.show_notice(trigger_id, message)


async def stop_following(ctx: HandlerContext, ack: AsyncAck, body: Json) -> None:
    """End a job that the service works on, unless the button belongs to an earlier attempt."""
    action = read(BlockAction, body)
    job_id, attempts = attempt_of(action.value)
    if (job := await find_job(ctx, action, job_id)) is not None:
        failure = Failure.STOPPED if action.user == job.user else Failure.STOPPED_BY_ADMIN
        now = ctx.clock.now()
        if not await ctx.store.jobs.stop(job.id, attempts, failure, action.user, now):
            ctx.respond_ephemeral(action, SETTLED)
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
    now, deadline = ctx.clock.now(), ctx.service_deadline()
    limits = (await ctx.store.limits.fetch()).limits
    membership = await ctx.access.membership(limits, job.kind, action.user, deadline)
    try:
        if not await ctx.store.jobs.create_again(
            job.id, attempts, action.user, now, membership.groups
        ):
            ctx.respond_ephemeral(action, SETTLED)
        await _refresh_home(ctx, action)
    except NotAllowed:
        ctx.respond_ephemeral(action, person_sentence(membership, ctx.access.admin_mentions))
    except LimitReached as reached:
        person = "You" if action.user == job.user else f"<@{job.user}>"
        told = limit_sentence(reached, now, person, ctx.access.admin_mentions)
        text = f"I didn't create it again. {told}"
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
        await _refresh_home(ctx, action)
    await ack()


async def _refresh_home(ctx: HandlerContext, action: BlockAction) -> None:
    """Have the Home tab published in which an admin answered a question to somebody else."""
    if action.is_outside_conversations:
        await ctx.store.homes.open(action.user, 0, ctx.clock.now())


async def acknowledge(ack: AsyncAck) -> None:
    """Acknowledge a link button: Slack opens the link by itself."""
    await ack()


# ── What features use ─────────────────────────────────────────────────────────────────────────


def not_theirs(owner: str, what: str = "do that") -> str:
    """Return that a job is someone else's; a form, unlike a message, cannot mention its owner."""
    return f"Only {owner} or an admin can {what}."


async def find_job(
    ctx: HandlerContext,
    action: BlockAction,
    job_id: str | None = None,
    what: str = "do that",
    *,
    reads: bool = False,
) -> Job | None:
    """Return the job of a button if this user may decide about it; if not, answer so.

    ``job_id`` is the button's value, unless that holds more. ``what`` is what the button does. With
    ``reads`` it changes nothing, and those who are asked to approve the job may press it too. A
    message that was posted twice is replaced where it is no longer kept up to date.
    """
    job = await ctx.store.jobs.fetch(action.value if job_id is None else job_id)
    if job is None:
        ctx.respond_ephemeral(action, UNKNOWN_JOB)
        return None
    await _replace_copy(ctx, action, job)
    if job.kind not in ctx.kinds:
        text = UNKNOWN_KIND
    elif not (ctx.may_decide(action.user, job) or (reads and ctx.may_approve(action.user, job))):
        text = not_theirs(f"<@{job.user}>", what)
    else:
        return job
    ctx.respond_ephemeral(action, text)
    return None


async def _replace_copy(ctx: HandlerContext, action: BlockAction, job: Job) -> None:
    """Replace the message of a button if it is a copy of one that was posted again.

    Nothing is known of a copy before: its post got no answer, and it could not be looked for.
    """
    if action.posted_ts is None or action.response_url is None:
        return
    card = await ctx.store.deliveries.fetch_kept_card(job, action.posted_ts)
    if card is not None:
        ctx.background.spawn(_point_to(ctx, action.response_url, card))


async def _point_to(ctx: HandlerContext, response_url: str, card: Delivery) -> None:
    url = await permalink(ctx.client, card, ctx.timings)
    rest = f"{anchor(url, 'See your request')}." if url else "The other one is up to date."
    text = f"This message was posted twice. {rest}"
    await ctx.replace_original(response_url, Message(text, [section(text)]))


async def find_failed(ctx: HandlerContext, action: BlockAction) -> Job | None:
    """Return the job of *Edit and retry*, as ``find_job`` does, if nobody has retried it before."""
    job = await find_job(ctx, action)
    retry = await ctx.store.jobs.fetch_retry(job) if job is not None else None
    if retry is None:
        return job
    if action.response_url is not None:
        ctx.answer_later(action.response_url, _already_retried(ctx, retry))
    else:
        ctx.respond_ephemeral(action, _RETRIED)
    return None


async def _already_retried(ctx: HandlerContext, retry: Job) -> Message:
    card = await ctx.store.deliveries.fetch_card(retry)
    link = await permalink(ctx.client, card, ctx.timings) if card.ts is not None else ""
    where = f" {anchor(link, 'See the new request')}." if link else ""
    return Message(f"{_RETRIED}{where}", ())


async def retry_metadata(ctx: HandlerContext, job: Job) -> dict[str, Any]:
    """Return the metadata of a form that retries a job: it goes into the thread of its card."""
    card = await ctx.store.deliveries.fetch_card(job)
    # A job that was to be posted as a direct message has the person's id for a channel.
    as_direct_message = job.channel == job.user
    is_there = card.ts is not None and (as_direct_message or card.channel == job.channel)
    thread_ts = job.thread_ts or (card.ts if is_there else None)
    channel = job.channel
    if as_direct_message:
        channel = card.channel if is_there else ""
    return {"channel": channel, "thread_ts": thread_ts, "retry_of": job.id}
