"""What the buttons do that jobs of every kind have: check, stop, question, details, links."""

import asyncio
import json
import re
from dataclasses import replace
from functools import partial
from typing import Any, Final

from slack_bolt.async_app import AsyncApp
from slack_bolt.context.ack.async_ack import AsyncAck

from bot.errors import OutsideError, Refused
from bot.kinds import Comparison, Unreadable
from bot.kinds.answers import MAX_ID, compare_with_job
from bot.links import only_hosts
from bot.model import Delivery, Failure, Job, State
from bot.service.errors import UNKNOWN_ID
from bot.slack.context import (
    UNKNOWN_JOB,
    UNKNOWN_KIND,
    HandlerContext,
    Refusal,
    answer_form,
    register_clicks,
    updated,
)
from bot.slack.features.list import Fact, current_status, facts_of, rows, usually
from bot.slack.outbox.find import permalink
from bot.slack.payloads import BlockAction, PrivateMetadata, ViewSubmission
from bot.slack.views.approval import NOBODY_TO_APPROVE
from bot.slack.views.blocks import (
    Json,
    Message,
    anchor,
    bullets,
    cut,
    element,
    field,
    linked,
    modal,
    paragraph,
    quotes,
    rich,
    section,
    span,
    title,
    words,
)
from bot.slack.views.buttons import (
    CHECK_NOW,
    CREATE_AGAIN,
    DETAILS,
    GIVE_UP,
    HAVE_ID,
    MORE,
    OPEN_LINK,
    STOP,
    attempt_of,
)
from bot.slack.views.kinds import REPLICA_ID
from bot.slack.views.limits import (
    bound_error,
    limit_sentence,
    resets_in_form,
)
from bot.slack.views.presenters import NOT_APPROVED, Presenter, script_of, state_word
from bot.store import AddedCandidate, LimitReached, NobodyToApprove, NotAllowed

_RETRIED: Final = "This has already been retried."
SETTLED: Final = "That's already settled."
NOT_AN_ID: Final = "Paste only the ID."
_DETAILS_VIEW: Final = "job_details"
_ID_FORM: Final = "job_id_form"
_REMOTE_ID: Final = "remote_id"
# Bytes of JSON. Slack opens views of 250,000: the rest is for what stands around the blocks.
_MAX_BLOCKS: Final = 249_000
_BEGINNING: Final = "This is the beginning: the rest doesn't fit here."


def register(app: AsyncApp, ctx: HandlerContext) -> None:
    """Register the listeners for the buttons."""
    app.action(re.compile(f"^{OPEN_LINK}_"))(acknowledge)
    app.view(_ID_FORM)(partial(answer_form, ctx, submit_id))
    register_clicks(
        app,
        ctx,
        {
            CHECK_NOW: check_now,
            STOP: stop_waiting,
            CREATE_AGAIN: create_again,
            GIVE_UP: give_up,
            DETAILS: open_details,
            MORE: open_details,
            HAVE_ID: open_id_form,
        },
    )


async def check_now(ctx: HandlerContext, action: BlockAction) -> str | None:
    """Poll a job at once; of one that has ended, show how it stands at the service."""
    job = await find_job(ctx, action)
    if not job.state.ended:
        await ctx.store.jobs.wake(job, ctx.clock.now())
        where = "this tab" if action.is_outside_conversations else "the message above"
        return f"Checking now. I'll update {where}."
    if job.remote_id is None:
        return SETTLED
    work = current_status(ctx, action.user, ctx.kinds[job.kind], job, job.remote_id)
    ctx.answer_later(action, work)
    return None


async def stop_waiting(ctx: HandlerContext, action: BlockAction) -> str | None:
    """End a job that the service works on, unless the button belongs to an earlier attempt."""
    job_id, attempts = attempt_of(action.value)
    job, now = await find_job(ctx, action, job_id), ctx.clock.now()
    failure = Failure.STOPPED if action.user == job.user else Failure.STOPPED_BY_ADMIN
    stopped = await ctx.store.jobs.stop(job.id, attempts, failure, action.user, now)
    return None if stopped else SETTLED


async def create_again(ctx: HandlerContext, action: BlockAction) -> str | None:
    """Create an unconfirmed job again, unless the button belongs to an earlier attempt."""
    job_id, attempts = attempt_of(action.value)
    job = await find_job(ctx, action, job_id)
    refusal = await queue_again(
        ctx,
        replace(job, attempts=attempts),
        action.user,
        ctx.service_deadline(),
        person="You" if action.user == job.user else f"<@{job.user}>",
        who=ctx.access.admin_mentions,
    )
    if refusal in {None, SETTLED}:
        await _refresh_home(ctx, action)
    return refusal


async def give_up(ctx: HandlerContext, action: BlockAction) -> str | None:
    """End an unconfirmed job, unless the button belongs to an earlier attempt."""
    job_id, attempts = attempt_of(action.value)
    job = await find_job(ctx, action, job_id)
    cancelled = await ctx.store.jobs.cancel(job.id, attempts, action.user, ctx.clock.now())
    await _refresh_home(ctx, action)
    return None if cancelled else SETTLED


async def _refresh_home(ctx: HandlerContext, action: BlockAction) -> None:
    """Have the Home tab published in which an admin answered a question to somebody else."""
    if action.is_outside_conversations:
        await ctx.homes.open(action.user)


async def acknowledge(ack: AsyncAck) -> None:
    """Acknowledge a link button: Slack opens the link by itself."""
    await ack()


# ── What features use ─────────────────────────────────────────────────────────────────────────


async def queue_again(
    ctx: HandlerContext,
    job: Job,
    user: str,
    deadline: float,
    *,
    person: str,
    who: str,
    in_form: bool = False,
) -> str | None:
    """Queue an unconfirmed job again unless another attempt was begun; return why not, if so.

    If that needs approval, and ``user`` cannot give it, it waits for that.
    ``person`` begins a sentence about its owner; ``who`` can raise a limit; ``in_form`` says
    whether that is shown in a form. By the deadline, it has to be known whether ``user`` may do
    that.
    """
    now = ctx.clock.now()
    limits = ctx.store.limits.current
    if refusal := await ctx.access.asking_refusal(limits, job.kind, user, deadline):
        return refusal
    membership = await ctx.access.membership(limits, job.kind, user, deadline)
    try:
        queued = await ctx.store.jobs.create_again(
            job.id, job.attempts, user, now, membership.groups
        )
    except NotAllowed as outside:
        return bound_error(outside, "", membership, who)
    except NobodyToApprove:
        return NOBODY_TO_APPROVE
    except LimitReached as reached:
        zone = ctx.access.zone(user)
        resets = resets_in_form(reached.left, zone, ctx.clock.now()) if in_form else ""
        said = limit_sentence(reached.left, resets, person=person, who=who)
        return f"I didn't create it again. {said}"
    return None if queued else SETTLED


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
    is_shared: bool = False,
) -> Job:
    """Return the job of a button if this user may decide about it.

    ``job_id`` is the button's value, unless that holds more. ``what`` is what the button does. With
    ``reads`` it changes nothing, and those who are asked to approve the job may press it too; one
    that ``is_shared`` is for all who see the job in its channel. A message that was posted twice is
    replaced where it is no longer kept up to date.

    Raises:
        Refusal: they may not, or there is no such job.
    """
    job = await ctx.store.jobs.fetch(action.value if job_id is None else job_id)
    if job is None:
        raise Refusal(UNKNOWN_JOB)
    await _replace_copy(ctx, action, job)
    if job.kind not in ctx.kinds:
        raise Refusal(UNKNOWN_KIND)
    if not (
        (reads and ctx.may_approve(action.user, job))
        or (is_shared and action.channel == job.channel)
        or await ctx.may_press(action.user, job)
    ):
        raise Refusal(not_theirs(f"<@{job.user}>", what))
    return job


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
    await ctx.replace_original(response_url, Message.of([section(text)]))


async def find_failed(ctx: HandlerContext, action: BlockAction) -> Job | None:
    """Return the job of *Edit and retry*, as ``find_job`` does; None if it was retried before."""
    job = await find_job(ctx, action)
    retry = await ctx.store.jobs.fetch_retry(job)
    if retry is None:
        return job
    ctx.answer_later(action, _already_retried(ctx, retry))
    return None


async def _already_retried(ctx: HandlerContext, retry: Job) -> Message:
    card = await ctx.store.deliveries.fetch_card(retry)
    link = await permalink(ctx.client, card, ctx.timings) if card.ts is not None else ""
    where = f" {anchor(link, 'See the new request')}." if link else ""
    return Message(f"{_RETRIED}{where}")


async def retry_metadata(ctx: HandlerContext, job: Job) -> dict[str, Any]:
    """Return the metadata of a form that retries a job: it goes into the thread of its card."""
    card = await ctx.store.deliveries.fetch_card(job)
    # A job that was to be posted as a direct message has the person's id for a channel.
    as_direct_message = job.channel == job.user
    is_there = card.ts is not None and (as_direct_message or card.channel == job.channel)
    thread_ts = job.thread_ts or (card.ts if is_there else None)
    there = card.channel if is_there else ""
    channel = there if as_direct_message else job.channel
    return {"channel": channel, "thread_ts": thread_ts, "retry_of": job.id}


async def open_details(ctx: HandlerContext, action: BlockAction) -> str | None:
    """Open the details of a job, unless a link was chosen in its menu: Slack opens that itself."""
    if action.value.startswith(OPEN_LINK):
        return None
    job = await find_job(ctx, action, what="see the details", reads=True)
    presenter = ctx.presenters[job.kind]
    replica_id = presenter.replica_id(job)
    names = ctx.store.replicas.names([replica_id] if replica_id else [])
    approves = ctx.may_approve(action.user, job)
    view = details(
        job, presenter, reader=action.user, replica="".join(names.values()), approves=approves
    )
    return await ctx.open_view(action.trigger_id, view)


def details(
    job: Job, presenter: Presenter, *, reader: str, replica: str = "", approves: bool = False
) -> Json:
    """Return the view with all that is known of a job.

    A script is shown to the person who wrote it, and to one who ``approves`` it; so that they can
    look at whose face it is, they alone see whole links. ``replica`` is the name of the replica
    that the job uses, if that is known.
    """
    own = reader == job.user or approves
    links = presenter.given_links(job) if approves else {}
    elsewhere = {*links, REPLICA_ID}
    facts: list[Fact] = [
        ("Status", state_word(job, presenter)),
        ("Replica", replica),
        *((at, text) for at, text in presenter.details(job).items() if at not in elsewhere),
        ("Requested", job.created_at),
        *_approval_of(job),
        ("Usually takes", usually(job)),
        ("Took", span(job.ended_at - job.started_at) if job.ended_at and job.started_at else ""),
    ]
    for_support: list[Fact] = [
        ("Request number", job.id),
        (REPLICA_ID, presenter.replica_id(job) or ""),
        *facts_of(job.snapshot, presenter, job, own=True),
        ("Made by earlier tries", ", ".join(job.orphaned_ids)),
        *([("Started", job.started_at)] if job.started_at is not None else []),
        *([("Ended", job.ended_at)] if job.ended_at is not None else []),
    ]
    name = title(presenter.name(job)) if own else ""
    blocks = [rich(paragraph(words(name, bold=True)))] if name else []
    whole = [
        paragraph(words(f"{label}: ", bold=True), linked(url, url)) for label, url in links.items()
    ]
    blocks.append(rich(bullets([*whole, *rows(facts)])))
    support = [rich(paragraph(words("For support", bold=True)), bullets(rows(for_support)))]
    if own and (script := script_of(job, job.snapshot)):
        # The whole of it, if it fits: the closing reply has room for its beginning.
        blocks += quotes(script)
        while len(json.dumps([*blocks, *support])) > _MAX_BLOCKS:
            blocks[-2:] = [section(_BEGINNING)]
    heading = f"{presenter.noun.capitalize()} details"
    return modal(_DETAILS_VIEW, heading, close="Close", blocks=[*blocks, *support])


def _approval_of(job: Job) -> list[Fact]:
    """Return when a job was approved, or when its approval expires."""
    if job.approval is None or job.failure in NOT_APPROVED:
        return []
    if job.approval.decided_at is None:
        return [("Approval expires", job.approval.until)]
    return [("Approved", job.approval.decided_at)]


class _IdMetadata(PrivateMetadata):
    """The form's ``private_metadata``."""

    job: str
    """The job that it is about."""
    attempts: int = 1
    """How many create calls were begun for it when the form was opened."""
    warned: str = ""
    """The id of which the user was told that it cannot be verified."""


async def open_id_form(ctx: HandlerContext, action: BlockAction) -> str | None:
    """Open the form."""
    job_id, attempts = attempt_of(action.value)
    job = await find_job(ctx, action, job_id)
    if (job.state, job.attempts) != (State.UNCONFIRMED, attempts):
        return SETTLED
    return await ctx.open_view(action.trigger_id, _id_form(ctx, job))


async def submit_id(ctx: HandlerContext, submission: ViewSubmission) -> Json:
    """Have the named id checked; warn first of one that cannot be verified."""
    metadata = submission.view.metadata(_IdMetadata)
    typed = submission.view.fields().get(_REMOTE_ID, "").strip()
    job = await ctx.store.jobs.fetch(metadata.job)
    if job is None or not await ctx.may_press(submission.user, job):
        raise Refusal(not_theirs("the person who asked"))
    if job.kind not in ctx.kinds:
        raise Refusal(UNKNOWN_KIND)
    if not is_id(typed):
        raise Refusal(NOT_AN_ID)
    if (job.state, job.attempts) != (State.UNCONFIRMED, metadata.attempts):
        raise Refusal(SETTLED)
    comparison, error = await compare(ctx, job, typed, ctx.service_deadline())
    if comparison is Comparison.UNKNOWN and typed != metadata.warned:
        return updated(_id_form(ctx, job, unverified=typed))
    if refusal := error or await add_candidate(ctx, job, typed, submission.user):
        raise Refusal(refusal)
    return {}


def is_id(typed: str) -> bool:
    """Return whether something typed may be an id of the service's."""
    return 0 < len(typed) <= MAX_ID and typed.isprintable() and " " not in typed


async def compare(
    ctx: HandlerContext, job: Job, remote_id: str, deadline: float
) -> tuple[Comparison, str]:
    """Return whether ``remote_id`` is what the job asked for, and why if it is something else."""
    kind, noun = ctx.kinds[job.kind], ctx.presenters[job.kind].noun
    owner = await ctx.store.jobs.fetch_by_remote_id(kind.name, remote_id)
    if owner is not None:
        return Comparison.DIFFERENT, f"That {noun} belongs to request {owner.id}."
    try:
        async with asyncio.timeout_at(deadline):
            answer = await ctx.service.read(kind.path, remote_id)
            snapshot = kind.read(answer, remote_id)
    except (OutsideError, Unreadable, TimeoutError) as error:
        if isinstance(error, Refused) and error.code in UNKNOWN_ID:
            said = cut(only_hosts(error.reason), 200)
            return Comparison.DIFFERENT, f"I can't find it: “{said}”"
        return Comparison.UNKNOWN, ""  # it is read again before it is adopted
    comparison = compare_with_job(kind, job, snapshot)
    different = comparison is Comparison.DIFFERENT
    return comparison, f"That {noun} isn't the right one." if different else ""


async def add_candidate(ctx: HandlerContext, job: Job, remote_id: str, user: str) -> str | None:
    """Add an id as a candidate; return why that cannot be done, if so."""
    now = ctx.clock.now()
    match await ctx.store.jobs.add_candidate(job.id, job.attempts, remote_id, user, now):
        case AddedCandidate.STORED:
            return None
        case AddedCandidate.OTHER_UNCHECKED:
            return "Another ID is being checked. Try again in a few minutes."
        case AddedCandidate.SETTLED:
            return SETTLED


def _id_form(ctx: HandlerContext, job: Job, unverified: str = "") -> Json:
    """Return the form; with a warning, if ``unverified`` was typed and cannot be verified."""
    noun = ctx.presenters[job.kind].noun
    warning = f"I can't tell if this {noun} is the right one. Use it anyway?"
    hint = "You'll find it in your account there."
    remote_id = field(
        _REMOTE_ID,
        f"{noun.capitalize()} ID at the video service",
        element(
            "plain_text_input", _REMOTE_ID, initial_value=unverified or None, max_length=MAX_ID
        ),
        hint="" if unverified else hint,
    )
    return modal(
        _ID_FORM,
        f"{noun.capitalize()} ID",
        submit="Use it anyway" if unverified else f"Use this {noun}",
        close="Cancel",
        private_metadata=json.dumps(
            {"job": job.id, "attempts": job.attempts, "warned": unverified}
        ),
        blocks=[section(warning), remote_id] if unverified else [remote_id],
    )
