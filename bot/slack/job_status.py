"""The state of jobs of any kind: the list of a user's jobs, and the status of one."""

from collections.abc import Sequence
from typing import Final

from slack_bolt.context.ack.async_ack import AsyncAck

from bot.errors import OutsideError, Refused
from bot.kinds import Kind, Unreadable
from bot.kinds.wire import moment
from bot.links import only_hosts
from bot.model import Job, Snapshot, Verdict
from bot.service_errors import UNKNOWN_ID
from bot.slack.blocks import (
    MAX_QUOTE,
    MAX_TEXT,
    Json,
    Message,
    anchor,
    bullets,
    context,
    cut,
    date,
    escape,
    escaped,
    joined,
    link,
    linked,
    mrkdwn,
    one_line,
    paragraph,
    plain,
    quote,
    rich,
    section,
    size,
    title,
    words,
)
from bot.slack.context import UNKNOWN_KIND, HandlerContext, ack_ephemeral
from bot.slack.payloads import SlashCommand
from bot.slack.presenters import Presenter, state_word

_MAX_LISTED: Final = 15
_MAX_ID: Final = 150
_MAX_FACT: Final = 500
# The links of a snapshot, and their labels.
_LINKS: Final = {
    "hosted_url": "Watch",
    "download_url": "Download",
    "stream_url": "Stream",
    "thumbnail_video_url": "Thumbnail",
}
_MORE: Final = {"replica_name": "Name at the service", "training_progress": "Progress"}


async def list_jobs(ctx: HandlerContext, command: SlashCommand, kind: str) -> Message:
    """Return the user's jobs of a kind, newest first."""
    presenter = ctx.presenters[kind]
    jobs = await ctx.store.jobs.list_for_user(command.user, kind, _MAX_LISTED)
    if not jobs:
        text = f"You don't have any {presenter.noun}s yet. Start with `{command.command}`."
        return Message(text, [section(text)])
    heading = f"Your {presenter.noun}s, newest first:"
    items = [
        paragraph(
            words(state_word(job, presenter), bold=True),
            words(f" · {title(presenter.name(job)) or 'no name'} · No. {job.id}"),
            *[
                part
                for label, url in presenter.links(job).items()
                for part in (words(" · "), linked(url, label))
            ],
        )
        for job in jobs
    ]
    lines = [
        " · ".join(
            [
                f"• {state_word(job, presenter)}",
                escape(title(presenter.name(job)) or "no name"),
                f"No. {job.id}",
                *_best_link(presenter, job),
            ]
        )
        for job in jobs
    ]
    blocks = [
        section(heading),
        rich(bullets(items)),
        context(plain(f"{command.command} status {jobs[0].id} shows more about the first.", 200)),
    ]
    return Message(joined([heading, *lines]), blocks)


def _best_link(presenter: Presenter, job: Job) -> list[str]:
    return [anchor(url, label) for label, url in presenter.links(job).items()][:1]


async def show_status(
    ctx: HandlerContext, ack: AsyncAck, command: SlashCommand, kind_name: str, wanted: str
) -> None:
    """Answer with the current status of a job, or of anything else at the service.

    Args:
        ctx: the bot's parts.
        ack: acknowledges the command: with the answer, if the service need not be asked.
        command: the command that asks.
        kind_name: the kind that the command is about.
        wanted: the id of a job, or an id at the service.
    """
    kind, presenter = ctx.kinds[kind_name], ctx.presenters[kind_name]
    wanted = wanted.strip("`#")
    if not wanted or len(wanted) > _MAX_ID or not wanted.isprintable():
        await ack_ephemeral(ack, f"That's not an ID: `{command.command} list` shows yours.")
        return
    job = await ctx.store.jobs.fetch(wanted) or await ctx.store.jobs.fetch_by_remote_id(
        kind.name, wanted
    )
    if job is not None and job.kind != kind.name:
        await ack_ephemeral(ack, _of_another_kind(ctx, job))
    elif job is not None and not _may_see(ctx, command, job):
        state = state_word(job, presenter).lower()
        text = f"No. {job.id}: {state}. Only {_who_sees(job)} can see the rest."
        await ack_ephemeral(ack, text)
    elif job is not None and job.remote_id is None:
        await ack_ephemeral(ack, status_message(presenter, job, None, command.user))
    else:
        work = _current_status(ctx, command, kind, job, wanted)
        ctx.answer_later(command.response_url, work)
        await ack()


def _may_see(ctx: HandlerContext, command: SlashCommand, job: Job) -> bool:
    """Return whether a command may show a job's links and names: its channel has them anyway."""
    return command.channel == job.channel or ctx.may_decide(command.user, job)


def _who_sees(job: Job) -> str:
    """Return who may see all of a job; see ``_may_see``.

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


async def _current_status(
    ctx: HandlerContext, command: SlashCommand, kind: Kind, job: Job | None, wanted: str
) -> Message:
    presenter, remote_id = ctx.presenters[kind.name], (job and job.remote_id) or wanted
    try:
        answer = await ctx.service.read(kind.path, remote_id, for_person=True)
        snapshot = kind.read(answer, remote_id)
    except Unreadable:
        return _unread(presenter, job, command, wanted, "Its answer couldn't be read.")
    except Refused as error:
        if error.code not in UNKNOWN_ID:
            return _unread(presenter, job, command, wanted, error.reason)
        if job is not None:
            return status_message(presenter, job, None, command.user, error.reason)
        reason = escaped(only_hosts(error.reason), 500)
        return Message(
            f"I can't find a {presenter.noun} “{escape(wanted)}”. "
            f"The video service says: “{reason}”. `{command.command} list` shows yours.",
            (),
        )
    except OutsideError as error:
        return _unread(presenter, job, command, wanted, error.reason)
    if kind.catalogued and (job is not None or await ctx.store.replicas.get(remote_id)):
        await ctx.store.replicas.learn(snapshot, ctx.clock.now())
    if job is not None:
        await ctx.store.jobs.wake(job, ctx.clock.now())
    return status_message(presenter, job, snapshot, command.user)


def _unread(
    presenter: Presenter, job: Job | None, command: SlashCommand, wanted: str, why: str
) -> Message:
    """Return what can be said although the service could not be asked."""
    if job is not None:
        return status_message(presenter, job, None, command.user, why)
    return Message(
        f"I don't know {escape(wanted)}, and the video service couldn't be asked: "
        f"{escaped(only_hosts(why), 500)} Please try again in a moment.",
        (),
    )


def status_message(
    presenter: Presenter, job: Job | None, snapshot: Snapshot | None, reader: str, unread: str = ""
) -> Message:
    """Return all that is known; ``unread`` is why the service could not be asked just now."""
    known = snapshot or (job.snapshot if job is not None else None)
    facts: list[tuple[str, str]] = []
    # A job's words, and what the service says about them, are for the person who asked.
    own = job is None or reader == job.user
    if job is not None:
        facts.append((f"No. {job.id}", state_word(job, presenter).lower()))
        # Without a name of its own, it is shown by the beginning of its script.
        name = presenter.name(job) if own else job.params.get(f"{presenter.noun}_name", "")
        if name := title(name):
            facts.append(("Name", name))
        if own and job.reason:
            facts.append(("Reason", only_hosts(job.reason)))
    if known is not None:
        facts.append((f"{presenter.noun.capitalize()} ID", known.remote_id))
        facts.append(("Video service status", only_hosts(known.status)))
        details = (known.facts.get("status_details") or known.reason) if own else ""
        if known.deleted and not details:
            details = f"This {presenter.noun} was deleted at the video service."
        if details:
            facts.append(("Details", only_hosts(details)))
        facts += [
            (label, known.facts[field]) for field, label in _MORE.items() if field in known.facts
        ]
    if unread:
        facts.append(("Couldn't be checked just now", only_hosts(unread)))
    links: dict[str, str] = {}
    if known is not None and known.verdict is Verdict.SUCCEEDED:
        links = {
            label: safe
            for field, label in _LINKS.items()
            if (safe := link(known.facts.get(field, ""))) is not None
        }
    times = [
        f"{label} {date(at)}"
        for label, field in (("created", "created_at"), ("updated", "updated_at"))
        if known is not None and (at := moment(known.facts.get(field, ""))) is not None
    ]
    script = ""
    # It is unknown who may read what belongs to no job of ours.
    if own and job is not None:
        script = (known.facts.get("script", "") if known is not None else "") or job.params.get(
            "script", ""
        )
    return _drawn(facts, links, times, script)


def _drawn(
    facts: Sequence[tuple[str, str]], links: dict[str, str], times: Sequence[str], script: str
) -> Message:
    said = [(label, line) for label, value in facts if (line := one_line(value))]
    rows = [
        paragraph(words(f"{label}: ", bold=True), words(cut(line, _MAX_FACT)))
        for label, line in said
    ]
    rows += [paragraph(linked(url, label)) for label, url in links.items()]
    blocks: list[Json] = [rich(bullets(rows))]
    if times:
        blocks.append(context(mrkdwn(" · ".join(times))))
    if script:
        blocks.append(rich(quote(cut(script, MAX_QUOTE))))
    text = [
        *(f"{label}: {escaped(line, _MAX_FACT)}" for label, line in said),
        *times,
        *(anchor(url, label) for label, url in links.items()),
    ]
    if script:
        text.append(f"Script: {escaped(script, MAX_TEXT - size(joined(text)) - 20)}")
    return Message(joined(text), blocks)
