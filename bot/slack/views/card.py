"""A job's card and its closing reply: pure functions of the job.

A card has four lines at most: its title, its state, one line that helps now, and buttons. Who
asked, and with which replica, is in small print. All else is in its details. A reply does not
repeat its card.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from bot.model import Failure, Job, State
from bot.slack.views.blocks import (
    MAX_QUOTES,
    MAX_SECTION,
    NO_NAMES,
    Message,
    actions,
    ago,
    anchor,
    brief,
    context,
    cut,
    date,
    escape,
    joined,
    mrkdwn,
    paragraph,
    quote,
    rich,
    section,
    short_name,
    size,
    title,
    unformatted,
    words,
)
from bot.slack.views.buttons import card_buttons, reply_buttons
from bot.slack.views.failures import (
    AN_ADMIN,
    LOST_ACCESS,
    OUT_OF_CREDIT,
    explanation,
    remedy,
)
from bot.slack.views.presenters import (
    CANCELLED,
    MAY_BE_CHARGED,
    NOT_APPROVED,
    STOPPED,
    Presenter,
    state_word,
)
from bot.slack.views.question import waiting_for_approval

_BAR_WIDTH: Final = 12
_HUNDRED: Final = 100


@dataclass(frozen=True, slots=True)
class _Status:
    """What a card says about a state, in mrkdwn."""

    emoji: str
    more: str = ""
    """How the sentence goes on that begins with the word for the state."""
    line: str = ""
    """What helps now."""
    word: str = ""
    """The word for the state, where it is another one than in lists."""


def card(
    job: Job,
    presenter: Presenter,
    *,
    replica: str = "",
    retry: str | None = None,
    approvers: Collection[str] = (),
    names: Mapping[str, str] = NO_NAMES,
    who: str = AN_ADMIN,
) -> Message:
    """Return the status card of a job.

    It mentions nobody, but has names: a mention pings in a new message, and the only ping is that
    of the closing reply.

    Args:
        job: the job.
        presenter: the presenter of its kind.
        replica: the name of the replica that it uses, if that is known.
        retry: if the job was retried, the link to that card, or "" if there is none.
        approvers: the ids of those who can approve it.
        names: the names of people by their ids, as mrkdwn.
        who: the admins, in plain text.
    """
    noun, name = presenter.noun.capitalize(), title(presenter.name(job))
    status = _status(job, presenter, replica, retry, approvers=approvers, names=names, who=who)
    word = status.word or state_word(job, presenter)
    why = explanation(job, presenter, where="here", who=who)
    blocks = [
        rich(paragraph(words(name or noun, bold=True))),
        section(
            joined(
                [
                    f"{status.emoji} *{word}*{status.more}",
                    joined([_progress(job, presenter), status.line], by=" "),
                ]
            )
        ),
        *([rich(paragraph(words(why)))] if why else []),
    ]
    blocks += [context(mrkdwn(line)) for line in _small_print(job, replica, names)]
    blocks.append(actions(card_buttons(job, presenter, is_retried=retry is not None)))
    return Message.of(blocks)


# ── Its state ─────────────────────────────────────────────────────────────────────────────────────


def _status(
    job: Job,
    presenter: Presenter,
    replica: str,
    retry: str | None,
    *,
    approvers: Collection[str],
    names: Mapping[str, str],
    who: str,
) -> _Status:
    waiting, running = ":hourglass:", ":hourglass_flowing_sand:"
    match job.state:
        case State.WAITING_FOR_APPROVAL:
            asked = job.approval
            line = waiting_for_approval(asked, approvers, names) if asked else ""
            return _Status(":raised_hand:", line=line)
        case State.QUEUED | State.CREATING if job.held_by is not None:
            return _Status(waiting, line=_held(job, who))
        case State.QUEUED | State.CREATING if job.unreachable:
            return _Status(waiting, line="I can't send this right now. I'll keep trying.")
        case State.QUEUED | State.CREATING:
            return _Status(waiting, word="Sending your request…")
        case State.UNCONFIRMED:
            return _Status(":question:", line=_unconfirmed(job, presenter.noun))
        case State.RUNNING if job.held_by is not None or job.unreachable:
            return _Status(running, line=_unread(job))
        case State.RUNNING if job.waits_for is not None:
            named = short_name(replica) or "The replica"
            line = f"{named} is still training. The {presenter.noun} starts after that."
            return _Status(running, line=line)
        case State.RUNNING if job.unusual:
            more = " is taking longer than usual."
            return _Status(running, more, line=_since(job))
        case State.RUNNING:
            return _running(job, presenter, running)
        case State.OVERDUE:
            line = "This is taking far longer than usual. I'll keep checking."
            return _Status(":turtle:", line=line)
        case State.SUCCEEDED:
            ready = presenter.ready(job)
            return _Status(":white_check_mark:", f"{ready}." if ready else "")
        case State.FAILED:
            return _failed(job, retry, names)


def _running(job: Job, presenter: Presenter, emoji: str) -> _Status:
    usual = job.typical_duration
    if usual is not None:
        more = f", usually about {brief(usual)}"
    else:
        more = " takes hours" if presenter.slow else ""
    return _Status(emoji, f"{more}. I'll reply here.", _since(job) if presenter.slow else "")


def _failed(job: Job, retry: str | None, names: Mapping[str, str]) -> _Status:
    emoji, more = ":x:", ""
    if job.deleted:
        emoji, more = ":wastebasket:", " at the video service"
    elif job.failure in STOPPED:
        emoji, more = ":no_entry_sign:", f" {STOPPED[job.failure]}"
    elif job.failure in NOT_APPROVED:
        emoji, more = ":no_entry_sign:", decided_by(job, names)
    elif job.failure in CANCELLED:
        emoji = ":no_entry_sign:"
    if retry is not None:
        more += f" · {anchor(retry, 'Retried here') if retry else 'Retried'}"
    return _Status(emoji, more)


def _unconfirmed(job: Job, noun: str) -> str:
    if not job.asked:
        return "I'm waiting for a confirmation."
    return f"Did this {noun} get made? Answer in my *Home* tab."


def _unread(job: Job) -> str:
    if job.held_until is None:
        return "I can't check this right now. I'll keep trying."
    return f"The video service is busy. Next check: {date(job.held_until)}."


def _held(job: Job, who: str) -> str:
    """Return what a queued job waits for. It holds however often it is tried without success."""
    match job.held_by:
        case Failure.KEY_REJECTED:
            why = f"{LOST_ACCESS} {remedy(job.held_by, who)}"
        case Failure.SERVICE_DOWN:
            return "The video service is down. I'll send this when it's back."
        case Failure.SERVICE_TROUBLE:
            why = "The video service is having trouble."
        case Failure.OUT_OF_CREDIT:
            why = f"{OUT_OF_CREDIT} {remedy(job.held_by, who)}"
        case _:
            why = "The video service is busy."
    return f"{why} I'll keep retrying for a day."


def _since(job: Job) -> str:
    if job.started_at is None:
        return ""
    usual = job.typical_duration
    most = f" (most take {brief(usual)})" if usual is not None and job.unusual else ""
    return f"Started {ago(job.started_at)}{most}."


def _progress(job: Job, presenter: Presenter) -> str:
    """Return how far a running job is, with a bar."""
    is_shown = job.state is State.RUNNING and not job.unreachable and job.waits_for is None
    progress = presenter.progress(job) if is_shown else None
    if progress is None:
        return ""
    done, total = progress
    figures = f"{done}% done." if total == _HUNDRED else f"{done} of {total} steps done."
    full = round(_BAR_WIDTH * done / total)
    return f"`{'█' * full}{'░' * (_BAR_WIDTH - full)}` {figures}"


# ── Small print ───────────────────────────────────────────────────────────────────────────────────


def _small_print(job: Job, replica: str, names: Mapping[str, str]) -> list[str]:
    """Return the lines of small print, in mrkdwn."""
    who = f"Requested by {names[job.user]}" if job.user in names else ""
    with_replica = f"Replica: {named}" if (named := short_name(replica)) else ""
    by = decided_by(job, names)
    approved = f"Approved{by}" if by and job.failure not in NOT_APPROVED else ""
    lines = [_orphaned(job), joined([who, approved, with_replica], by=" · ")]
    return [line for line in lines if line]


def decided_by(job: Job, names: Mapping[str, str]) -> str:
    """Return who decided about a request that needed approval, as the rest of a sentence.

    "" if nobody did, or their name is not among ``names``.
    """
    user = job.approval.decided_by if job.approval is not None else None
    return f" by {names[user]}" if user is not None and user in names else ""


def _orphaned(job: Job) -> str:
    """Return that earlier create calls made something too, which its details name."""
    if not job.orphaned_ids:
        return ""
    if (number := len(job.orphaned_ids)) > 1:
        return f"{number} earlier tries worked too. You may be charged for each."
    return "An earlier try worked too. You may be charged for both."


# ── Its closing reply ─────────────────────────────────────────────────────────────────────────────


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
    transcript = presenter.transcript(job).strip()
    called = f"“{name}”" if name else f"your {noun}"
    head = f"<@{job.user}>, {called} {_ending(job, presenter, names)}"
    if job.state is State.SUCCEEDED:
        links = [anchor(url, label) for label, url in presenter.links(job).items()]
        room = MAX_SECTION - size(f"{head}\n")
        blocks = [section(joined([head, joined(links, room, by=" · ")]))]
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


# ── Elsewhere than asked ────────────────────────────────────────────────────────────────────────


def redirected(message: Message, job: Job, bot_name: str) -> Message:
    """Return a message as it is sent to the person directly, because the channel refused it.

    ``bot_name`` is what to invite to a private channel.
    """
    note = "I couldn't post where you asked, so here it is."
    # The name of a direct conversation means nothing to those outside it.
    if job.channel.startswith(("C", "G")):
        note = (
            f"I couldn't post in <#{job.channel}>: it may be private (type "
            f"`/invite @{escape(bot_name)}` there) or shared."
        )
    return Message.of([context(mrkdwn(note)), *message.blocks])


def ended_outside(presenter: Presenter) -> Message:
    """Return the card of an ended job in a channel that another organisation has come to read."""
    text = f"This {presenter.noun} has ended. I don't post in shared channels."
    return Message.of([section(text)])
