"""The question whether create calls made something: a pure function of deliveries and jobs."""

from collections.abc import Collection, Sequence
from typing import Final

from bot.model import Delivery, Job, Settlement
from bot.slack.views.blocks import (
    MAX_SECTION,
    Json,
    Message,
    actions,
    bullets,
    context,
    joined,
    listed,
    mrkdwn,
    paragraph,
    rich,
    section,
    title,
    words,
)
from bot.slack.views.buttons import list_buttons, question_buttons
from bot.slack.views.presenters import Presenter, Presenters
from bot.store import Asked

MAX_LISTED: Final = 20
_LOOK_FOR_EACH: Final = (
    "We never got a confirmation. Check your account at the video service, then choose "
    "*Answer each*."
)
_HOW: Final = {
    Settlement.FOUND: "found",
    Settlement.TURNED_UP: "turned up",
    Settlement.CREATED_AGAIN: "to be created again",
    Settlement.CANCELLED: "cancelled",
    Settlement.UNANSWERED: "closed without an answer",
    Settlement.ASKED_AGAIN: "asked again",
}
_SETTLED: Final = {
    Settlement.FOUND: "Settled: {who} found it.",
    Settlement.TURNED_UP: "Settled: the {noun} turned up.",
    Settlement.CREATED_AGAIN: "Settled: {who} chose to create it again.",
    Settlement.CANCELLED: "Settled: {who} cancelled the request.",
    Settlement.UNANSWERED: "Closed: no answer within a week.",
}
_WHAT_TO_DO: Final = (
    "We never got a confirmation. If it's in your account, choose *I found it*. If not, "
    "*Create again* or *Cancel request*."
)
_ADMINS_WERE_ASKED: Final = "The person who asked can answer too."


def question(
    delivery: Delivery,
    job: Job,
    presenter: Presenter,
    admins: Collection[str] = (),
    *,
    admins_first: bool = False,
) -> Message:
    """Return the question, or how it was settled.

    An open one mentions the requester and the admins once each: they can answer it. With
    ``admins_first``, the first one mentions the admins alone, where they can see it. Nobody is
    pinged by the edit that says how it was settled.
    """
    noun, name = presenter.noun, title(presenter.name(job))
    named = [rich(paragraph(words(name, bold=True)))] if name else []
    if delivery.settled_as is not None:
        body = _settled(delivery.settled_as, delivery.settled_by, noun)
        return _message(ask(noun), named, body)
    is_first = admins_first and job.asked == 1
    asked, who_else = _who(delivery, job, admins, admins_first=is_first)
    small = (
        "I'll close this in a few days."
        if job.asked > 1
        else "I'll ask again tomorrow and close this in a week."
    )
    body, buttons = joined([_WHAT_TO_DO, who_else], MAX_SECTION), question_buttons(job, presenter)
    return _message(f"{asked} {ask(noun)}", named, body, small=small, buttons=buttons)


def question_list(
    delivery: Delivery,
    job: Job,
    asked: Sequence[Asked],
    presenters: Presenters,
    admins: Collection[str] = (),
    *,
    admins_first: bool = False,
) -> Message:
    """Return one message about several questions to a person, in ``asked``, as ``question`` does.

    ``delivery`` and ``job`` are those of the first one. Each line is a request, open ones first.
    """
    in_order = sorted(asked, key=lambda each: (each[0].settled_as is not None, each[1].created_at))
    lines = in_order[:MAX_LISTED]
    still = [each for question, each in in_order if question.settled_as is None]
    nouns = listed(sorted({f"{presenters[each.kind].noun}s" for _, each in asked}), "and")
    head = f"*Did these {len(asked)} {nouns} get made?*"
    if still:
        again = any(each.asked > 1 for each in still)
        first = admins_first and not again
        who, who_else = _who(delivery, job, admins, admins_first=first)
        head = f"{who} {head}"
        body = joined([_LOOK_FOR_EACH, who_else], MAX_SECTION)
        small = (
            "I'll close these in a few days."
            if again
            else "I'll ask again tomorrow and close these in a week."
        )
    else:
        body, small = "None of these needs an answer now.", ""
    more = len(asked) - len(lines)
    if more:
        small = joined([f"And {more} more, in your Home tab.", small], by=" ")
    items = []
    for each, of in lines:
        name = title_of(of, presenters[of.kind])
        how = f" · {_HOW[each.settled_as]}" if each.settled_as is not None else ""
        items.append(paragraph(words(name, bold=not how), *([words(how)] if how else [])))
    buttons = list_buttons(job, still[:MAX_LISTED]) if still else []
    return _message(head, [rich(bullets(items))], body, small=small, buttons=buttons)


def _message(
    head: str,
    named: Sequence[Json],
    body: str,
    *,
    small: str = "",
    buttons: Sequence[Json] = (),
) -> Message:
    """Return a message about the requests that are ``named``."""
    blocks = [section(head), *named, section(body)]
    if buttons:
        blocks.append(actions(buttons))
    if small:
        blocks.append(context(mrkdwn(small)))
    return Message.of(blocks)


def ask(noun: str) -> str:
    """Return the question itself, as mrkdwn."""
    return f"*Did this {noun} get made?*"


def title_of(job: Job, presenter: Presenter) -> str:
    """Return what names a request among others."""
    return title(presenter.name(job)) or f"Untitled {presenter.noun}"


def _who(
    delivery: Delivery, job: Job, admins: Collection[str], *, admins_first: bool
) -> tuple[str, str]:
    """Return the mentions that a question begins with, and who else may help."""
    others = [f"<@{admin}>" for admin in sorted(set(admins) - {job.user})]
    # Admins see no direct message of somebody else.
    is_seen = delivery.channel.startswith(("C", "G")) and not delivery.direct
    if admins_first and is_seen and others and job.user not in admins:
        return listed(others, "and"), _ADMINS_WERE_ASKED
    return f"<@{job.user}>", f"No access? Ask {listed(others, 'or')}." if others else ""


def _settled(settlement: Settlement, user: str | None, noun: str) -> str:
    """Return how a question was settled, and by whom."""
    said = _SETTLED.get(settlement, "No answer, so I asked again.")
    return said.format(who=f"<@{user}>" if user is not None else "someone", noun=noun)
