"""The question whether create calls made something: a pure function of deliveries and jobs."""

from collections.abc import Collection, Sequence
from typing import Final

from bot.model import Delivery, Job, Settlement
from bot.slack.views.blocks import (
    MAX_SECTION,
    MAX_TEXT,
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
    unformatted,
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
    if delivery.settled_as is None:
        is_first = admins_first and job.asked == 1
        asked, who_else = _who(delivery, job, admins, admins_first=is_first)
        head = f"{asked} {ask(noun)}"
        body = _what_to_do(who_else)
        small = (
            "I'll close this in a few days."
            if job.asked > 1
            else "I'll ask again tomorrow, and close this in a week."
        )
        buttons = question_buttons(job, presenter)
    else:
        head = ask(noun)
        body, small, buttons = _settled(delivery.settled_as, delivery.settled_by, noun), "", []
    blocks = [section(head)]
    if name:
        blocks.append(rich(paragraph(words(name, bold=True))))
    blocks.append(section(body))
    if buttons:
        blocks.append(actions(buttons))
    if small:
        blocks.append(context(mrkdwn(small)))
    called = f"{noun.capitalize()}: “{unformatted(name)}”" if name else ""
    return Message(joined([head, called, body, small]), blocks)


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
            else "I'll ask again tomorrow, and close these in a week."
        )
    else:
        body, small = "None of these needs an answer now.", ""
    more = len(asked) - len(lines)
    if more:
        small = joined([f"And {more} more, in your Home tab.", small], by=" ")
    names, items = [], []
    for each, of in lines:
        name = title_of(of, presenters[of.kind])
        how = f" · {_HOW[each.settled_as]}" if each.settled_as is not None else ""
        names.append(f"• {unformatted(name)}{how}")
        items.append(paragraph(words(name, bold=not how), *([words(how)] if how else [])))
    blocks = [section(head), rich(bullets(items)), section(body)]
    if still:
        blocks.append(actions(list_buttons(job, still[:MAX_LISTED])))
    if small:
        blocks.append(context(mrkdwn(small)))
    return Message(joined([head, joined(names, MAX_TEXT // 2), body, small]), blocks)


def ask(noun: str) -> str:
    """Return the question itself, as mrkdwn."""
    return f"*Did this {noun} get made?*"


def title_of(job: Job, presenter: Presenter) -> str:
    """Return what names a request among others."""
    return title(presenter.name(job)) or f"A {presenter.noun} without a name"


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


def _what_to_do(who_else: str) -> str:
    """Return why there is a question, and what to do about it."""
    what = (
        "We never got a confirmation. If it's in your account, choose *I found it*. If not, "
        "*Create again* or *Cancel request*."
    )
    return joined([what, who_else], MAX_SECTION)


def _settled(settlement: Settlement, user: str | None, noun: str) -> str:
    """Return how a question was settled, and by whom."""
    who = f"<@{user}>" if user is not None else "someone"
    match settlement:
        case Settlement.FOUND:
            return f"Settled: {who} found it."
        case Settlement.TURNED_UP:
            return f"Settled: the {noun} turned up."
        case Settlement.CREATED_AGAIN:
            return f"Settled: {who} chose to create it again."
        case Settlement.CANCELLED:
            return f"Settled: {who} cancelled the request."
        case Settlement.UNANSWERED:
            return "Closed: no answer within a week."
        case _:
            return "No answer, so I asked again."
