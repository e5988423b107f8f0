"""A job's closing reply: a pure function of the job. It does not repeat the card."""

from collections.abc import Mapping
from typing import Final

from bot.model import Failure, Job, State
from bot.slack.views.blocks import (
    MAX_QUOTE,
    MAX_QUOTES,
    MAX_SECTION,
    MAX_TEXT,
    NO_NAMES,
    Message,
    actions,
    anchor,
    context,
    cut,
    escape,
    escaped,
    joined,
    mrkdwn,
    paragraph,
    quote,
    quotes,
    rich,
    section,
    size,
    title,
    unformatted,
    words,
)
from bot.slack.views.buttons import reply_buttons
from bot.slack.views.card import decided_by, links_of
from bot.slack.views.failures import explanation
from bot.slack.views.presenters import CANCELLED, STOPPED, Presenter

_BEGINNING: Final = "This is the beginning. The whole transcript is under *Details* above."
FILE_COMMENT: Final = "Here's the whole transcript."
"""What is said with the file below a reply that has only the beginning of its transcript."""


def reply(
    job: Job,
    presenter: Presenter,
    *,
    retry: str | None = None,
    names: Mapping[str, str] = NO_NAMES,
) -> Message:
    """Return the closing reply of an ended job: it mentions who asked, once.

    Those who stopped following it themselves know that it has ended, and are not mentioned.
    ``retry`` is the link to the card of its retry, or "" without a link; None if it has none.
    ``names`` are those of other people by their ids, as mrkdwn: a mention would ping them.
    """
    noun, name = presenter.noun, title(presenter.name(job))
    if job.failure in STOPPED:
        return _stopped(job, noun)
    links, transcript = links_of(job, presenter), presenter.transcript(job).strip()
    ending = _ending(job, presenter, names)
    head = f"<@{job.user}> your {noun} {ending}"
    text = [f"<@{job.user}> your {noun}{f' “{unformatted(name)}”' if name else ''} {ending}"]
    if job.state is State.SUCCEEDED:
        blocks = [section(joined([head, joined(links, by=" · ")], MAX_SECTION))]
        text += links
        if transcript:
            if cut(transcript, MAX_QUOTES) == transcript:
                blocks += quotes(transcript)
            else:
                blocks += [rich(quote(cut(transcript, MAX_QUOTE))), context(mrkdwn(_BEGINNING))]
            text += _transcript_text(transcript, MAX_TEXT - size(joined(text)))
    else:
        retried = ""
        if retry is not None:
            retried = f"{anchor(retry, 'Retried here') if retry else 'Retried'}."
        why = explanation(job, presenter, this="the message above")
        blocks = [section(joined([head, retried]))]
        blocks += [rich(paragraph(words(why)))] if why else []
        text += [escape(why), retried]
    if buttons := reply_buttons(job, presenter, is_retried=retry is not None):
        blocks.append(actions(buttons))
    return Message(joined(text), blocks)


def shows_all(job: Job, presenter: Presenter, *, text_only: bool) -> bool:
    """Return whether the closing reply of a job has the whole transcript.

    ``text_only``: Slack refused its blocks, and shows its text.
    """
    transcript = presenter.transcript(job).strip()
    if job.state is not State.SUCCEEDED or not text_only:
        return job.state is not State.SUCCEEDED or cut(transcript, MAX_QUOTES) == transcript
    return _BEGINNING not in reply(job, presenter).text


def file_name(name: str, *, otherwise: str = "Transcript", ending: str = "txt") -> str:
    """Return the name of a file about what has this name, or ``otherwise`` if it has none."""
    return f"{name.replace('/', '-').rstrip('.') or otherwise}.{ending}"


def _transcript_text(transcript: str, limit: int) -> list[str]:
    """Return the transcript in ``limit`` bytes of text, and where the rest of it is."""
    label = "Transcript: "
    room = limit - size(label) - 2 * size("\n")
    if size(whole := escape(transcript)) <= room:
        return [f"{label}{whole}"]
    return [_BEGINNING, f"{label}{escaped(transcript, room - size(_BEGINNING))}"]


def _ending(job: Job, presenter: Presenter, names: Mapping[str, str]) -> str:
    if job.state is State.SUCCEEDED:
        return f"is ready{presenter.ready(job)}."
    if job.failure in CANCELLED:
        return "was cancelled."
    if job.failure is Failure.DECLINED:
        return f"was declined{decided_by(job, names)}."
    if job.failure is Failure.NOT_APPROVED:
        return "wasn't approved in time."
    if job.failure is Failure.WITHDRAWN:
        return "was cancelled."
    if job.deleted:
        return "was deleted at the video service."
    if job.failure in {Failure.TIMED_OUT, Failure.NOT_FOUND}:
        return "didn't finish."
    again = " again" if job.asked_at is not None and job.remote_id is None else ""
    return f"couldn't be created{again}."


def _stopped(job: Job, noun: str) -> Message:
    text = f"You stopped following this {noun}. It may still be created and charged."
    if job.failure is Failure.STOPPED_BY_ADMIN:
        text = (
            f"<@{job.user}> an admin stopped following your {noun}. It may still be created and "
            "charged."
        )
    elif job.failure is Failure.STOPPED_BY_OWNER:
        text = f"<@{job.user}> the person in the footage stopped this {noun}."
    return Message(text, [section(text)])
