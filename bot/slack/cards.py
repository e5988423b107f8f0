"""A job's messages: its card and its closing reply, pure functions of the job."""

import re
from typing import Final

from bot.links import only_hosts
from bot.model import Delivery, Failure, Job, Role, State
from bot.slack.blocks import (
    MAX_QUOTE,
    MAX_SECTION,
    MAX_TEXT,
    Json,
    Message,
    actions,
    ago,
    anchor,
    button,
    confirm,
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
from bot.slack.presenters import CANCELLED, Presenter, Presenters, state_word

_ATTEMPTS: Final = re.compile(r"[0-9]{1,9}", re.ASCII)
_MAX_REASON: Final = 500
_MAX_FACTS: Final = 500
_MAX_ID: Final = 100
_MAX_ORPHANED: Final = 5

CHECK_AGAIN: Final = "job_check_again"
HAVE_ID: Final = "job_have_id"
CREATE_AGAIN: Final = "job_create_again"
GIVE_UP: Final = "job_give_up"
RETRY: Final = "retry"
"""Each kind has its own form: ``<kind>_retry`` opens it."""
OPEN_LINK: Final = "open_link"
MAKE_VIDEO: Final = "replica_make_video"
"""Its value is the replica's id."""


def compose(delivery: Delivery, job: Job, presenters: Presenters) -> Message:
    """Return what a delivery says now."""
    presenter = presenters[job.kind]
    if delivery.role is Role.REPLY:
        return reply(job, presenter)
    return card(job, presenter, posted=delivery.ts is not None)


# ── The card ──────────────────────────────────────────────────────────────────────────────────


def card(job: Job, presenter: Presenter, *, posted: bool = True) -> Message:
    """Return the status card of a job.

    It mentions the requester once it is ``posted``: a mention pings in a new message but not in an
    edit, and the only ping is that of the closing reply.
    """
    whose = f"{_capital(presenter.noun)} for <@{job.user}>" if posted else _capital(presenter.noun)
    emoji, sentence = _emoji_and_sentence(job, presenter)
    heading = f"{emoji} {state_word(job, presenter)}"
    name, said = title(presenter.name(job)), _service_reason(job)
    orphaned, since = _orphaned(job, presenter), _since(job, presenter)
    facts = cut(
        " · ".join([*presenter.facts(job), *_service_status(job), f"No. {job.id}"]), _MAX_FACTS
    )
    blocks = [*_headed(f"*{whose}* · {heading}", name), section(sentence)]
    if said:
        blocks.append(rich(quote(said)))
    if orphaned:
        blocks.append(context(plain(orphaned, MAX_SECTION)))
    blocks.append(context(plain(facts, MAX_SECTION), mrkdwn(since)))
    if buttons := _buttons(job, presenter):
        blocks.append(actions(buttons))
    text = [
        f"{whose}: {heading}. {sentence}",
        f"“{escaped(said, _MAX_REASON)}”" if said else "",
        f"{_capital(presenter.noun)}: “{escape(name)}”" if name else "",
        escape(orphaned),
        f"{escaped(facts, _MAX_FACTS)}. {since}",
        *_anchors(job, presenter),
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
            again = "Asking again: " if job.asked > 1 else ""
            return ":question:", (
                f"{again}We don't know whether this {noun} was created, because the video service "
                "gave no clear answer. Please check your account there. If it's there, give me "
                "its ID; if not, create it again."
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
            return ":x:", _explanation(job, presenter)


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


def _buttons(job: Job, presenter: Presenter) -> list[Json]:
    noun = presenter.noun
    match job.state:
        case State.OVERDUE:
            return [button("Check again", CHECK_AGAIN, value=job.id)]
        case State.UNCONFIRMED if job.asked:
            # A late click is not taken for an answer about the next attempt.
            pressed = f"{job.id}:{job.attempts}"
            again = confirm(
                f"Create the {noun} again?",
                f"If an earlier {noun} was created after all, it is charged too.",
                yes="Create again",
                no="Keep waiting",
            )
            give_up = confirm(
                "Cancel this request?",
                f"It ends here. If the {noun} turns up later, this message will say so.",
                yes="Cancel request",
                no="Keep waiting",
            )
            return [
                button("I found it", HAVE_ID, value=pressed, style="primary"),
                button(
                    "Create again (may be charged twice)",
                    CREATE_AGAIN,
                    value=pressed,
                    confirm=again,
                ),
                button("Cancel request", GIVE_UP, value=pressed, style="danger", confirm=give_up),
            ]
        case State.SUCCEEDED:
            next_steps = list(presenter.next_steps(job))
            links = [
                button(label, f"{OPEN_LINK}_{at}", url=url)
                for at, (label, url) in enumerate(presenter.links(job).items())
            ]
            return [*next_steps, *links]
        case State.FAILED if not job.erased:
            return [button("Edit and retry", f"{job.kind}_{RETRY}", value=job.id, style="primary")]
        case _:
            return []


def attempt_of(value: str) -> tuple[str, int]:
    """Return the job id and the attempt count in the value of a button that answers the question.

    A button of an earlier version of the bot has only the job id, and means attempt 1.
    """
    job_id, colon, attempts = value.partition(":")
    if not colon:
        return job_id, 1
    return job_id, int(attempts) if _ATTEMPTS.fullmatch(attempts) else 0


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


def _service_reason(job: Job) -> str:
    """Return what the service said about a failure, in its own words."""
    return cut(only_hosts(job.reason.strip()), _MAX_REASON) if job.state is State.FAILED else ""


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


# ── The closing reply ─────────────────────────────────────────────────────────────────────────


def reply(job: Job, presenter: Presenter) -> Message:
    """Return the closing reply of an ended job: it mentions who asked, once."""
    name, said, anchors = title(presenter.name(job)), _service_reason(job), _anchors(job, presenter)
    called = f" “{escape(name)}”" if name else ""
    transcript = ""
    if job.state is State.SUCCEEDED:
        ending = "is ready."
        body = joined([joined(anchors, MAX_SECTION, by=" · "), presenter.ready(job)], MAX_SECTION)
        transcript = presenter.transcript(job).strip()
    else:
        again = " again" if job.asked_at is not None and job.remote_id is None else ""
        if job.failure in CANCELLED:
            ending = "was cancelled."
        elif job.deleted:
            ending = "was deleted."
        else:
            ending = f"couldn't be created{again}."
        body = _explanation(job, presenter)
    # In blocks the name is shown letter for letter; in text it can only be escaped. Where it is
    # the beginning of the text below anyway, it is not repeated.
    head = f"<@{job.user}> your {presenter.noun} {ending}"
    blocks = [
        *_headed(head, "" if name == title(transcript) else name),
        section(body),
    ]
    if said:
        blocks.append(rich(quote(said)))
    if transcript:
        blocks.append(rich(quote(cut(transcript, MAX_QUOTE))))
    # Its links are in it already.
    ended_well = job.state is State.SUCCEEDED
    if buttons := presenter.next_steps(job) if ended_well else _buttons(job, presenter):
        blocks.append(actions(buttons))
    text = [
        f"<@{job.user}> your {presenter.noun}{called} {ending}",
        *([*anchors, presenter.ready(job)] if ended_well else [body]),
        f"“{escaped(said, _MAX_REASON)}”" if said else "",
    ]
    if transcript:
        text.append(f"Transcript: {escaped(transcript, MAX_TEXT - len(joined(text)) - 20)}")
    return Message(joined(text), blocks)


def redirected(message: Message, job: Job) -> Message:
    """Return a message as it is sent to the person directly, because the channel refused it."""
    # The name of a direct conversation means nothing to those outside it.
    place = f"in <#{job.channel}>, where you asked," if job.channel[:1] in {"C", "G"} else ""
    note = f"I couldn't post this {place or 'where you asked,'} so I'm sending it to you."
    return Message(f"{note}\n{message.text}", [context(mrkdwn(note)), *message.blocks])


def _explanation(job: Job, presenter: Presenter) -> str:
    """Return what a failure means and what to do next. The service's reason follows below."""
    parts = [_failure_sentence(job, presenter)]
    explained = _service_reason(job) or job.deleted
    if job.failure in {Failure.SERVICE_FAILED, Failure.REFUSED} and not explained:
        parts.append("It didn't say why.")
    if not job.erased:
        fixed = (
            "After that, " if job.failure in {Failure.KEY_REJECTED, Failure.OUT_OF_CREDIT} else ""
        )
        parts.append(f"{fixed}*Edit and retry* opens the form with everything that was entered.")
    parts.append(presenter.advice(job))
    if _service_reason(job):
        parts.append("The video service says:")
    return " ".join(filter(None, parts))


def _failure_sentence(job: Job, presenter: Presenter) -> str:
    noun, created = presenter.noun, _created_nothing(job)
    match job.failure:
        case Failure.SERVICE_FAILED if job.deleted:
            return f"This {noun} was deleted at the video service."
        case Failure.SERVICE_FAILED | None:
            return f"The video service couldn't create this {noun}."
        case Failure.REFUSED:
            return f"The video service refused the request; {created}."
        case Failure.KEY_REJECTED:
            return (
                f"The video service doesn't accept this bot's key; {created}. Please tell "
                "the person who runs this bot: it needs a working key."
            )
        case Failure.OUT_OF_CREDIT:
            return (
                f"The video service's account is out of credit; {created}. Please tell "
                "the person who manages that account."
            )
        case Failure.UNREACHABLE:
            return (
                "I couldn't send this to the video service for too long, so I stopped trying; "
                f"{created}."
            )
        case Failure.NOT_FOUND:
            return f"The video service can't find this {noun} any more: it may have been deleted."
        case Failure.TIMED_OUT:
            return (
                f"The video service never finished this {noun}, so I stopped checking. "
                f"`/{noun} status {job.id}` still checks it."
            )
        case Failure.CANCELLED:
            return (
                f"We don't know whether this {noun} was created. If it turns up, its "
                "card will say so."
            )
        case Failure.UNANSWERED:
            return (
                f"Nobody could say whether this {noun} was created, so I stopped "
                "waiting. If it turns up, its card will say so."
            )


def _created_nothing(job: Job) -> str:
    """Return that a job's last create call made nothing, and what is known of the others.

    Only *Create again* follows a call of which it is unknown what it made. Those that are known to
    have made something are named on the card.
    """
    if job.asked_at is None:
        return "nothing was created"
    if job.orphaned_ids:
        return "this attempt created nothing"
    return "this attempt created nothing, but an earlier one may have"


def _anchors(job: Job, presenter: Presenter) -> list[str]:
    if job.state is not State.SUCCEEDED:
        return []
    return [anchor(url, label) for label, url in presenter.links(job).items()]


def _headed(head: str, name: str) -> list[Json]:
    blocks: list[Json] = [section(head)]
    if name:
        blocks.append(rich(paragraph(words(name, bold=True))))
    return blocks


def _capital(noun: str) -> str:
    return noun[:1].upper() + noun[1:]
