"""A job's closing reply: a pure function of the job."""

from bot.model import Job, State
from bot.slack.blocks import (
    MAX_QUOTE,
    MAX_SECTION,
    MAX_TEXT,
    Message,
    actions,
    cut,
    escape,
    escaped,
    joined,
    quote,
    rich,
    section,
    size,
    title,
)
from bot.slack.buttons import buttons_of
from bot.slack.cards import anchors_of, headed
from bot.slack.failures import MAX_REASON, explanation, service_reason
from bot.slack.presenters import CANCELLED, Presenter


def reply(job: Job, presenter: Presenter) -> Message:
    """Return the closing reply of an ended job: it mentions who asked, once."""
    name, said, anchors = (
        title(presenter.name(job)),
        service_reason(job),
        anchors_of(job, presenter),
    )
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
        body = explanation(job, presenter)
    # In blocks the name is shown letter for letter; in text it can only be escaped. Where it is
    # the beginning of the text below anyway, it is not repeated.
    head = f"<@{job.user}> your {presenter.noun} {ending}"
    blocks = [
        *headed(head, "" if name == title(transcript) else name),
        section(body),
    ]
    if said:
        blocks.append(rich(quote(said)))
    if transcript:
        blocks.append(rich(quote(cut(transcript, MAX_QUOTE))))
    # Its links are in it already.
    ended_well = job.state is State.SUCCEEDED
    if buttons := presenter.next_steps(job) if ended_well else buttons_of(job, presenter):
        blocks.append(actions(buttons))
    text = [
        f"<@{job.user}> your {presenter.noun}{called} {ending}",
        *([*anchors, presenter.ready(job)] if ended_well else [body]),
        f"“{escaped(said, MAX_REASON)}”" if said else "",
    ]
    if transcript:
        text.append(f"Transcript: {escaped(transcript, MAX_TEXT - size(joined(text)) - 20)}")
    return Message(joined(text), blocks)
