"""A job's card: a pure function of the job."""

from typing import Final

from bot.links import only_hosts
from bot.model import Failure, Job, State
from bot.slack.blocks import (
    MAX_SECTION,
    Json,
    Message,
    actions,
    ago,
    anchor,
    context,
    cut,
    date,
    escape,
    escaped,
    joined,
    mrkdwn,
    one_line,
    paragraph,
    plain,
    quote,
    rich,
    section,
    span,
    title,
    words,
)
from bot.slack.buttons import buttons_of
from bot.slack.failures import MAX_REASON, explanation, service_reason
from bot.slack.presenters import Presenter, state_word

_MAX_FACTS: Final = 500
_MAX_ID: Final = 100
_MAX_ORPHANED: Final = 5


def card(job: Job, presenter: Presenter, *, posted: bool = True) -> Message:
    """Return the status card of a job.

    It mentions the requester once it is ``posted``: a mention pings in a new message but not in an
    edit, and the only ping is that of the closing reply.
    """
    whose = f"{_capital(presenter.noun)} for <@{job.user}>" if posted else _capital(presenter.noun)
    emoji, sentence = _emoji_and_sentence(job, presenter)
    heading = f"{emoji} {state_word(job, presenter)}"
    name, said = title(presenter.name(job)), service_reason(job)
    orphaned, since = _orphaned(job, presenter), _since(job, presenter)
    facts = cut(
        " · ".join([*presenter.facts(job), *_service_status(job), f"No. {job.id}"]), _MAX_FACTS
    )
    blocks = [*headed(f"*{whose}* · {heading}", name), section(sentence)]
    if said:
        blocks.append(rich(quote(said)))
    if orphaned:
        blocks.append(context(plain(orphaned, MAX_SECTION)))
    blocks.append(context(plain(facts, MAX_SECTION), mrkdwn(since)))
    if buttons := buttons_of(job, presenter):
        blocks.append(actions(buttons))
    text = [
        f"{whose}: {heading}. {sentence}",
        f"“{escaped(said, MAX_REASON)}”" if said else "",
        f"{_capital(presenter.noun)}: “{escape(name)}”" if name else "",
        escape(orphaned),
        f"{escaped(facts, _MAX_FACTS)}. {since}",
        *anchors_of(job, presenter),
    ]
    return Message(joined(text), blocks)


def _emoji_and_sentence(job: Job, presenter: Presenter) -> tuple[str, str]:
    """Return an emoji for the state of a job, and a sentence about it in mrkdwn."""
    noun, running = presenter.noun, ":hourglass_flowing_sand:"
    match job.state:
        case State.QUEUED | State.CREATING if job.held_by is not None:
            return ":hourglass:", _held(job)
        case State.QUEUED | State.CREATING if job.unreachable:
            return ":hourglass:", (
                "I can't send this right now. I'll keep trying; there is nothing for you to do."
            )
        case State.QUEUED | State.CREATING:
            return ":hourglass:", "Sending your request…"
        case State.UNCONFIRMED if not job.asked:
            why = ", so that nobody pays twice" if job.asked_at is None else ""
            return ":question:", (
                "The video service gave no clear answer. I'm waiting for it to confirm before "
                f"anything is sent again{why}."
            )
        case State.UNCONFIRMED:
            return ":question:", (
                f"We don't know whether this {noun} was created. "
                "Please answer my question in the thread."
            )
        case State.RUNNING if job.unreachable:
            return running, "I can't check this right now. I'll keep trying."
        case State.RUNNING if job.waits_for is not None:
            return running, ("The replica is still training. The video starts when it's ready.")
        case State.RUNNING if job.late:
            sentence = "This is taking longer than usual; I'm still checking."
            return running, joined([sentence, presenter.running(job)], by=" ")
        case State.RUNNING:
            usual = job.typical_duration
            usually = f"Usually about {span(usual)}." if usual is not None else ""
            return running, joined([presenter.running(job), usually, "I'll reply here."], by=" ")
        case State.OVERDUE:
            return ":turtle:", (
                "This should have finished long ago. I'll check it only now and then; "
                "*Check again* checks right away."
            )
        case State.SUCCEEDED:
            return ":white_check_mark:", presenter.ready(job) or "See my reply in the thread."
        case State.FAILED:
            return ":x:", explanation(job, presenter)


def _held(job: Job) -> str:
    """Return what a queued job waits for. It holds however often it is tried without success."""
    match job.held_by:
        case Failure.KEY_REJECTED:
            why = (
                "The video service doesn't accept this bot's key. Please tell the person who runs "
                "this bot."
            )
        case Failure.OUT_OF_CREDIT:
            why = (
                "The video service's account is out of credit. Please tell the person "
                "who manages that account."
            )
        case _:
            why = "The video service asks me to wait."
    when = f"Next try: {date(job.held_until)}. " if job.held_until is not None else ""
    return f"{why} {when}I'll keep trying for a day, so there is no need to ask again."


def _since(job: Job, presenter: Presenter) -> str:
    asked = f"requested {date(job.created_at)}"
    if job.started_at is not None and presenter.slow and not job.state.ended:
        asked += f" · started {ago(job.started_at)}"
    if job.ended_at is not None:
        return f"{asked}, ended {date(job.ended_at)}"
    if job.typical_duration is not None and job.state not in {State.RUNNING, State.UNCONFIRMED}:
        asked += f" · usually takes about {span(job.typical_duration)}"
    return asked


def _service_status(job: Job) -> list[str]:
    """Return the service's own status of a running job, if there is one."""
    if job.snapshot is None or job.state.ended or not job.snapshot.status:
        return []
    return [f"service status: {cut(one_line(only_hosts(job.snapshot.status)), 40)}"]


def _orphaned(job: Job, presenter: Presenter) -> str:
    """Return a sentence about what earlier create calls made after all."""
    noun, ids = presenter.noun, [cut(id_, _MAX_ID) for id_ in job.orphaned_ids[-_MAX_ORPHANED:]]
    match ids:
        case []:
            return ""
        case [id_]:
            return (
                f"An earlier attempt was created after all: {noun} {id_}. It may be charged "
                f"too. /{noun} status {id_} shows it."
            )
        case _:
            return (
                f"Earlier attempts were created after all: {noun}s {', '.join(ids)}. They may be "
                f"charged too. /{noun} status <id> shows one."
            )


def anchors_of(job: Job, presenter: Presenter) -> list[str]:
    """Return the links of what was made, as mrkdwn."""
    if job.state is not State.SUCCEEDED:
        return []
    return [anchor(url, label) for label, url in presenter.links(job).items()]


def headed(head: str, name: str) -> list[Json]:
    """Return the blocks of a heading, with a name below it if there is one."""
    blocks: list[Json] = [section(head)]
    if name:
        blocks.append(rich(paragraph(words(name, bold=True))))
    return blocks


def _capital(noun: str) -> str:
    return noun[:1].upper() + noun[1:]
