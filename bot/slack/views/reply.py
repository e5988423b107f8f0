"""A job's closing reply: a pure function of the job. It does not repeat the card."""

from collections.abc import Mapping
from typing import Final

from bot.model import Failure, Job, State
from bot.slack.views.blocks import (
    MAX_QUOTES,
    MAX_SECTION,
    NO_NAMES,
    Message,
    actions,
    anchor,
    context,
    cut,
    joined,
    mrkdwn,
    paragraph,
    quote,
    rich,
    section,
    title,
    unformatted,
    words,
)
from bot.slack.views.buttons import reply_buttons
from bot.slack.views.card import decided_by, links_of
from bot.slack.views.failures import AN_ADMIN, explanation
from bot.slack.views.presenters import MAY_BE_CHARGED, STOPPED, Presenter

MAX_SHOWN: Final = 300
"""Characters of what is spoken: the link and the video must not be below a screen of text."""
_ENDINGS: Final = {
    **dict.fromkeys((Failure.CANCELLED, Failure.WITHDRAWN), "was cancelled."),
    Failure.UNANSWERED: "was closed.",
    Failure.NOT_APPROVED: "wasn't approved in time.",
    **dict.fromkeys((Failure.TIMED_OUT, Failure.NOT_FOUND), "didn't finish."),
}
_BEGINNING: Final = "The rest is under *Details* above."
FILE_COMMENT: Final = "Here's the whole transcript."
"""What is said with the file below a reply that has only the beginning of its transcript."""


def reply(
    job: Job,
    presenter: Presenter,
    *,
    retry: str | None = None,
    names: Mapping[str, str] = NO_NAMES,
    who: str = AN_ADMIN,
) -> Message:
    """Return the closing reply of an ended job: it mentions who asked, once.

    Those who stopped waiting for it themselves know that it has ended, and are not mentioned.
    ``retry`` is the link to the card of its retry, or "" without a link; None if it has none.
    ``names`` are those of other people by their ids, as mrkdwn: a mention would ping them. ``who``
    are the admins, in plain text.
    """
    noun, name = presenter.noun, unformatted(title(presenter.name(job)))
    if job.failure in STOPPED:
        return _stopped(job, noun)
    links, transcript = links_of(job, presenter), presenter.transcript(job).strip()
    called = f"“{name}”" if name else f"your {noun}"
    head = f"<@{job.user}>, {called} {_ending(job, presenter, names)}"
    if job.state is State.SUCCEEDED:
        blocks = [section(joined([head, joined(links, by=" · ")], MAX_SECTION))]
        if transcript:
            shown = cut(transcript, MAX_SHOWN)
            rest = _BEGINNING if shown != transcript else ""
            blocks += [rich(quote(shown)), *([context(mrkdwn(rest))] if rest else [])]
    else:
        retried = ""
        if retry is not None:
            retried = f"{anchor(retry, 'Retried here') if retry else 'Retried'}."
        why = explanation(job, presenter, where="above", who=who)
        blocks = [section(joined([head, retried]))]
        blocks += [rich(paragraph(words(why)))] if why else []
    if buttons := reply_buttons(job, presenter, is_retried=retry is not None):
        blocks.append(actions(buttons))
    return Message.of(blocks)


def needs_file(job: Job, presenter: Presenter) -> bool:
    """Return whether what was spoken is so long that it is a file in the thread."""
    transcript = presenter.transcript(job).strip()
    return job.state is State.SUCCEEDED and cut(transcript, MAX_QUOTES) != transcript


def file_name(name: str, *, otherwise: str = "Transcript", ending: str = "txt") -> str:
    """Return the name of a file about what has this name, or ``otherwise`` if it has none."""
    return f"{name.replace('/', '-').rstrip('.') or otherwise}.{ending}"


def _ending(job: Job, presenter: Presenter, names: Mapping[str, str]) -> str:
    if job.state is State.SUCCEEDED:
        return f"is ready{presenter.ready(job)}."
    if job.failure is Failure.DECLINED:
        return f"was declined{decided_by(job, names)}."
    if job.failure in _ENDINGS:
        return _ENDINGS[job.failure]
    if job.deleted:
        return "was deleted at the video service."
    again = " again" if job.asked_at is not None and job.remote_id is None else ""
    return f"couldn't be created{again}."


def _stopped(job: Job, noun: str) -> Message:
    text = f"You stopped waiting for this {noun}. {MAY_BE_CHARGED}"
    if job.failure is Failure.STOPPED_BY_ADMIN:
        text = f"<@{job.user}>, an admin ended your {noun} request. {MAY_BE_CHARGED}"
    elif job.failure is Failure.STOPPED_BY_OWNER:
        text = f"<@{job.user}>, the person in the footage stopped this {noun}."
        if "script" in job.params:  # it waited to be sent
            text = f"<@{job.user}>, I didn't make your {noun}: its replica was removed."
    return Message.of([section(text)])
