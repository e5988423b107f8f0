"""Jobs of any kind: their list, the search, the status of one, and the buttons of its messages."""

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, TypeAlias

from slack_bolt.async_app import AsyncApp
from slack_bolt.context.ack.async_ack import AsyncAck

from bot.errors import OutsideError, Refused
from bot.kinds import MAX_ID, Kind, Unreadable, moment
from bot.links import only_hosts
from bot.model import Delivery, Failure, Job, Snapshot, Verdict
from bot.service.errors import UNKNOWN_ID
from bot.slack.context import (
    UNKNOWN_JOB,
    UNKNOWN_KIND,
    HandlerContext,
    Refusal,
    Said,
    register_clicks,
)
from bot.slack.outbox.find import permalink
from bot.slack.payloads import BlockAction, SlashCommand
from bot.slack.views.blocks import (
    MAX_QUOTE,
    Json,
    Message,
    anchor,
    bullets,
    cut,
    escape,
    escaped,
    in_channel,
    link,
    linked,
    modal,
    moment_of,
    one_line,
    paragraph,
    quote,
    quotes,
    rich,
    section,
    span,
    title,
    words,
)
from bot.slack.views.buttons import DETAILS, MORE, OPEN_LINK, STOP, attempt_of, job_of
from bot.slack.views.presenters import (
    CHECK_NOW,
    NOT_APPROVED,
    REPLICA_ID,
    Presenter,
    script_of,
    state_word,
)
from bot.slack.views.question import title_of

_MAX_LISTED: Final = 15
_MAX_FOUND: Final = 10
_WORD: Final = re.compile(r"\w+")
_MAX_FACT: Final = 500
# The links of a snapshot, and their labels.
_LINKS: Final = {
    "hosted_url": "Watch",
    "download_url": "Download",
    "stream_url": "Stream",
    "thumbnail_video_url": "Thumbnail",
}
_MORE: Final = {
    "replica_name": "Name at the video service",
    "training_progress": "Progress",
    "generation_progress": "Progress",
}
_PUBLIC: Final = frozenset({*_MORE, "created_at", "updated_at"})
"""What everybody sees of a replica that belongs to no job: neither its links nor its reason."""

Fact: TypeAlias = tuple[str, str | datetime]
"""A label, and a text or a time."""
_RETRIED: Final = "This has already been retried."
SETTLED: Final = "That's already settled."
_DETAILS_VIEW: Final = "job_details"
# Bytes of JSON. Slack opens views of 250,000: the rest is for what stands around the blocks.
_MAX_BLOCKS: Final = 249_000
_BEGINNING: Final = "This is the beginning: the rest doesn't fit here."


def register(app: AsyncApp, ctx: HandlerContext) -> None:
    """Register the listeners for the buttons."""
    app.action(re.compile(f"^{OPEN_LINK}_"))(acknowledge)
    register_clicks(
        app,
        ctx,
        {
            CHECK_NOW: check_now,
            STOP: stop_waiting,
            DETAILS: open_details,
            MORE: open_details,
        },
    )


# ── Buttons ───────────────────────────────────────────────────────────────────────────────────


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
    job, now = await find_job(ctx, action), ctx.clock.now()
    failure = Failure.STOPPED if action.user == job.user else Failure.STOPPED_BY_ADMIN
    stopped = await ctx.store.jobs.close(
        job.id, attempt_of(action.value), failure, action.user, now
    )
    return None if stopped else SETTLED


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


async def acknowledge(ack: AsyncAck) -> None:
    """Acknowledge a link button: Slack opens the link by itself."""
    await ack()


# ── What features use ─────────────────────────────────────────────────────────────────────────


def not_theirs(owner: str, what: str = "do that") -> str:
    """Return that a job is someone else's; a form, unlike a message, cannot mention its owner."""
    return f"Only {owner} or an admin can {what}."


async def fetch_job(ctx: HandlerContext, value: str) -> Job:
    """Return the job that the value of a button or a form begins with.

    Raises:
        Refusal: there is none, or it is of a kind that is no longer supported.
    """
    job = await ctx.store.jobs.fetch(job_of(value))
    if job is None:
        raise Refusal(UNKNOWN_JOB)
    if job.kind not in ctx.kinds:
        raise Refusal(UNKNOWN_KIND)
    return job


async def find_job(
    ctx: HandlerContext,
    action: BlockAction,
    what: str = "do that",
    *,
    reads: bool = False,
    is_shared: bool = False,
) -> Job:
    """Return the job of a button if this user may decide about it.

    ``what`` is what the button does. With ``reads`` it changes nothing, and those who are asked to
    approve the job may press it too; one that ``is_shared`` is for all who see the job in its
    channel. A message that was posted twice is replaced where it is no longer kept up to date.

    Raises:
        Refusal: they may not, or there is no such job.
    """
    job = await fetch_job(ctx, action.value)
    await _replace_copy(ctx, action, job)
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


async def open_retry(
    ctx: HandlerContext, action: BlockAction, draw: Callable[[Job, dict[str, Any]], Json]
) -> str | None:
    """Open the form with the input of a failed job, unless it was retried before.

    ``draw`` returns the form of the job with these metadata.
    """
    job = await find_job(ctx, action)
    retry = await ctx.store.jobs.fetch_retry(job)
    if retry is not None:
        ctx.answer_later(action, _already_retried(ctx, retry))
        return None
    view = draw(job, await _retry_metadata(ctx, job))
    return await ctx.open_form(job.kind, action, job.channel, view)


async def _already_retried(ctx: HandlerContext, retry: Job) -> Message:
    card = await ctx.store.deliveries.fetch_card(retry)
    link = await permalink(ctx.client, card, ctx.timings) if card.ts is not None else ""
    where = f" {anchor(link, 'See the new request')}." if link else ""
    return Message(f"{_RETRIED}{where}")


async def _retry_metadata(ctx: HandlerContext, job: Job) -> dict[str, Any]:
    """Return the metadata of a form that retries a job: it goes into the thread of its card."""
    card = await ctx.store.deliveries.fetch_card(job)
    # A job that was to be posted as a direct message has the person's id for a channel.
    as_direct_message = job.channel == job.user
    is_there = card.ts is not None and (as_direct_message or card.channel == job.channel)
    thread_ts = job.thread_ts or (card.ts if is_there else None)
    there = card.channel if is_there else ""
    channel = there if as_direct_message else job.channel
    return {"channel": channel, "thread_ts": thread_ts, "retry_of": job.id}


# ── List and status ───────────────────────────────────────────────────────────────────────────


async def list_jobs(ctx: HandlerContext, command: SlashCommand, kind: str) -> Message:
    """Return the user's jobs of a kind, newest first."""
    presenter = ctx.presenters[kind]
    jobs = await ctx.store.jobs.list_for_user(command.user, kind, _MAX_LISTED)
    if not jobs:
        text = f"You don't have any {presenter.noun}s yet. Start with `{command.command}`."
        return Message.of([section(text)])
    return listed(jobs, presenter, f"Your {presenter.noun}s, newest first:")


async def find_made(
    ctx: HandlerContext, command: SlashCommand, kind: str, wanted: str, as_script: Json
) -> Message:
    """Return what was made whose name or script has all the words that are wanted, newest first.

    That is the user's own and, if they are a full member, what was posted in public channels that
    are public still. ``as_script`` is what offers to use the words as a script.
    """
    presenter, deadline = ctx.presenters[kind], ctx.service_deadline()
    needed = _WORD.findall(_folded(wanted)) or _folded(wanted).split()

    def matches(job: Job) -> bool:
        text = _folded(f"{presenter.name(job)}\n{script_of(job, job.snapshot)}")
        return all(word in text for word in needed)

    in_public = await ctx.access.reads_public_channels(command.user, deadline)
    found = await ctx.store.jobs.find_made(command.user, kind, matches, in_public=in_public)
    asked = list(dict.fromkeys(job.channel for job in found if job.user != command.user))
    public = {each for each in asked[:_MAX_FOUND] if await ctx.access.is_public(each, deadline)}
    seen = [job for job in found if job.user == command.user or job.channel in public]
    return found_jobs(seen, presenter, wanted, command.user, as_script)


def found_jobs(
    jobs: Sequence[Job], presenter: Presenter, wanted: str, reader: str, as_script: Json
) -> Message:
    """Return the newest of the jobs that were found, and how many more there are at least."""
    nouns, searched = f"{presenter.noun}s", f"“{escape(wanted)}”"
    if not jobs:
        text = f"No {nouns} with {searched}. Try fewer words or the {presenter.noun}'s name."
        return Message.of([section(text), as_script])
    heading = f"{nouns.capitalize()} with {searched}, newest first:"
    message = listed(jobs[:_MAX_FOUND], presenter, heading, reader)
    left_out = len(jobs) - _MAX_FOUND
    end = f"At least {left_out:,} more. Add a word to narrow it down." if left_out > 0 else ""
    return Message.of([*message.blocks, *([section(end)] if end else []), as_script])


def _folded(text: str) -> str:
    """Return a text in which case, and how an umlaut is written, make no difference."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def listed(
    jobs: Sequence[Job], presenter: Presenter, heading: str, reader: str | None = None
) -> Message:
    """Return a list of jobs: state, name, when each was asked for, and its links.

    With a ``reader``, it says of the jobs of others in which channel they are.
    """
    items = [
        paragraph(
            words(state_word(job, presenter), bold=True),
            words(f" · {title_of(job, presenter)} · "),
            moment_of(job.created_at),
            *([words(" · "), in_channel(job.channel)] if reader not in {None, job.user} else []),
            *[
                part
                for label, url in presenter.links(job).items()
                for part in (words(" · "), linked(url, label))
            ],
        )
        for job in jobs
    ]
    return Message.of([section(heading), rich(bullets(items))])


async def show_status(
    ctx: HandlerContext, command: SlashCommand, kind_name: str, wanted: str
) -> Said:
    """Return the current status of a job, or of anything else at the service.

    None if the service has to be asked: then the answer comes later.

    Args:
        ctx: the bot's parts.
        command: the command that asks.
        kind_name: the kind that the command is about.
        wanted: the id of a job, or an id at the service.
    """
    kind, presenter = ctx.kinds[kind_name], ctx.presenters[kind_name]
    wanted = wanted.strip("`#")
    if not wanted or len(wanted) > MAX_ID or not wanted.isprintable():
        return "That's not an ID. Find it under *Details*."
    job = await ctx.store.jobs.fetch(wanted) or await ctx.store.jobs.fetch_by_remote_id(
        kind.name, wanted
    )
    if job is not None and job.kind != kind.name:
        return _of_another_kind(ctx, job)
    if job is not None and not await ctx.may_see(command.user, command.channel, job):
        state = state_word(job, presenter).lower()
        return f"This {presenter.noun}: {state}. Only {_who_sees(job)} can see the rest."
    if job is None and not (
        ctx.store.replicas.get(wanted) or await ctx.access.is_admin(command.user)
    ):
        # It may be what was made for somebody, and deleted here since.
        return (
            f"I can't find a {presenter.noun} “{escape(wanted)}”. "
            f"Ask {ctx.access.admin_mentions} to look it up."
        )
    if job is not None and job.remote_id is None:
        return status_message(presenter, job, None, command.user)
    work = current_status(ctx, command.user, kind, job, wanted)
    ctx.answer_later(command, work)
    return None


def _who_sees(job: Job) -> str:
    """Return who may see all of a job; see ``HandlerContext.may_see``.

    Slack shows the name of a private channel only to its members, but that of a direct conversation
    means nothing to those outside it.
    """
    if job.channel.startswith(("C", "G")):
        return f"<@{job.user}>, admins and people in <#{job.channel}>"
    return f"<@{job.user}> or an admin"


def _of_another_kind(ctx: HandlerContext, job: Job) -> str:
    if job.kind not in ctx.presenters:
        return UNKNOWN_KIND
    other = ctx.presenters[job.kind].noun
    return f"That's a {other}: `{ctx.command(job.kind)} status {job.id}` shows it."


async def current_status(
    ctx: HandlerContext, reader: str, kind: Kind, job: Job | None, wanted: str
) -> Message:
    """Return the status of a job, or of anything else at the service, as it is now.

    Args:
        ctx: the bot's parts.
        reader: the id of the user who asks.
        kind: the kind of what is asked about.
        job: the job, if it is one.
        wanted: the job's id, or an id at the service.
    """
    presenter, remote_id = ctx.presenters[kind.name], (job and job.remote_id) or wanted
    try:
        answer = await ctx.service.read(kind.path, remote_id)
        snapshot = kind.read(answer, remote_id)
    except (OutsideError, Unreadable) as error:
        why = error.reason if isinstance(error, OutsideError) else "Its answer couldn't be read."
        if job is not None:
            return status_message(presenter, job, None, reader, why)
        said = escaped(only_hosts(why), 500)
        text = f"I couldn't look up {escape(wanted)}: {said} Please try again in a moment."
        if isinstance(error, Refused) and error.code in UNKNOWN_ID:
            text = f"I can't find a {presenter.noun} “{escape(wanted)}”: “{said}”"
        return Message(text)
    if kind.catalogued and (job is not None or ctx.store.replicas.get(remote_id)):
        await ctx.store.replicas.learn(snapshot, ctx.clock.now())
    if job is not None:
        await ctx.store.jobs.wake(job, ctx.clock.now())
    elif not await ctx.access.is_admin(reader):
        # A replica that everybody can pick. For whom it was trained is not known any more.
        public = {name: text for name, text in snapshot.facts.items() if name in _PUBLIC}
        snapshot = replace(snapshot, reason="", facts=public)
    return status_message(presenter, job, snapshot, reader)


def status_message(
    presenter: Presenter, job: Job | None, snapshot: Snapshot | None, reader: str, unread: str = ""
) -> Message:
    """Return all that is known; ``unread`` is why the service could not be asked just now."""
    known = snapshot or (job.snapshot if job is not None else None)
    # A job's words, and what the service says about them, are for the person who asked.
    own = job is None or reader == job.user
    facts: list[Fact] = []
    if job is not None:
        # Without a name of its own, it is shown by the beginning of its script.
        name = presenter.name(job) if own else job.params.get(f"{presenter.noun}_name", "")
        facts += [("Status", state_word(job, presenter)), ("Name", title(name))]
        facts += [("Requested", job.created_at), ("Usually takes", usually(job))]
    facts += facts_of(known, presenter, job, own=own)
    if unread:
        facts.append(("Couldn't check just now", only_hosts(unread)))
    items = rows(facts)
    if known is not None and known.verdict is Verdict.SUCCEEDED:
        items += [
            paragraph(linked(url, label))
            for field, label in _LINKS.items()
            if (url := link(known.facts.get(field, ""))) is not None
        ]
    # It is unknown who may read what belongs to no job of ours.
    script = script_of(job, known) if own and job is not None else ""
    quoted = [rich(quote(cut(script, MAX_QUOTE)))] if script else []
    return Message.of([rich(bullets(items)), *quoted])


def usually(job: Job) -> str:
    """Return how long jobs like this one take; "" if that is not known, or it has ended."""
    if job.state.ended or job.typical_duration is None:
        return ""
    typical = span(job.typical_duration)
    if job.slow_after is None:
        return f"about {typical}"
    return f"about {typical}, rarely over {span(job.slow_after)}"


def facts_of(
    known: Snapshot | None, presenter: Presenter, job: Job | None, *, own: bool
) -> list[Fact]:
    """Return what the service has said, by labels; ``own`` is whether its words are for the reader.

    ``job`` is the job that it is about, if there is one.
    """
    facts: list[Fact] = []
    if own and job is not None and job.reason:
        facts.append(("Reason", only_hosts(job.reason)))
    if known is None:
        return facts
    facts.append((f"{presenter.noun.capitalize()} ID", known.remote_id))
    facts.append(("Video service status", only_hosts(known.status)))
    details = (known.facts.get("status_details") or known.reason) if own else ""
    if details and (job is None or details != job.reason):
        facts.append(("Details", only_hosts(details)))
    facts += [(label, known.facts[field]) for field, label in _MORE.items() if field in known.facts]
    facts += [
        (label, at)
        for label, field in (("Created", "created_at"), ("Updated", "updated_at"))
        if (at := moment(known.facts.get(field, ""))) is not None
    ]
    return facts


def rows(facts: Iterable[Fact]) -> list[Json]:
    """Return facts as the lines of a list, those without a value left out."""
    lines = (
        (label, value if isinstance(value, datetime) else one_line(value)) for label, value in facts
    )
    return [
        paragraph(
            words(f"{label}: ", bold=True),
            moment_of(value) if isinstance(value, datetime) else words(cut(value, _MAX_FACT)),
        )
        for label, value in lines
        if value
    ]
