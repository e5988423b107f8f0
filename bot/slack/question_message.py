"""The question whether a create call made something: a pure function of its delivery and job."""

from collections.abc import Collection
from typing import Final

from bot.model import Delivery, Job, Settlement
from bot.slack.blocks import (
    MAX_SECTION,
    Message,
    actions,
    context,
    escape,
    joined,
    listed,
    mrkdwn,
    paragraph,
    rich,
    section,
    title,
    words,
)
from bot.slack.buttons import question_buttons
from bot.slack.presenters import Presenter

_ASKED_BEFORE: Final = "I'm asking again because nobody has answered yet."
_ADMINS_WERE_ASKED: Final = (
    "I asked the admins first, who can look there. The person who asked can answer too."
)


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
        others = [f"<@{admin}>" for admin in sorted(set(admins) - {job.user})]
        # Admins see no direct message of somebody else.
        is_seen = delivery.channel.startswith(("C", "G")) and not delivery.direct
        if admins_first and is_seen and others and job.asked == 1 and job.user not in admins:
            asked, who_else = listed(others, "and"), _ADMINS_WERE_ASKED
        else:
            asked, who_else = f"<@{job.user}>", _who_else(delivery, others)
        head = f"{asked} *We don't know whether this {noun} was created.*"
        body = _what_to_do(job, noun, who_else)
        small = (
            "Without an answer, I'll close this request in a few days."
            if job.asked > 1
            else "Without an answer, I'll ask again in a day and close this request after a week."
        )
        buttons = question_buttons(job, presenter)
    else:
        head = f"*We didn't know whether this {noun} was created.*"
        body, small, buttons = _settled(delivery.settled_as, delivery.settled_by, noun), "", []
    blocks = [section(head)]
    if name:
        blocks.append(rich(paragraph(words(name, bold=True))))
    blocks.append(section(body))
    if buttons:
        blocks.append(actions(buttons))
    if small:
        blocks.append(context(mrkdwn(small)))
    called = f"{noun.capitalize()}: “{escape(name)}”" if name else ""
    return Message(joined([head, called, body, small]), blocks)


def _what_to_do(job: Job, noun: str, who_else: str) -> str:
    """Return why there is a question, and what to do about it."""
    what = (
        "The video service gave no clear answer. Please check your account there: if the "
        f"{noun} is there, choose *I found it*. If not, create it again (you may be charged twice) "
        "or cancel the request."
    )
    again = _ASKED_BEFORE if job.asked > 1 else ""
    return joined([again, what, who_else], MAX_SECTION, by=" ")


def _who_else(delivery: Delivery, admins: list[str]) -> str:
    """Return who else may help."""
    if not admins:
        return ""
    if delivery.direct:
        return f"No account there? Ask {listed(admins, 'or')}."
    return f"No account there? {listed(admins, 'and')} can answer too."


def _settled(settlement: Settlement, user: str | None, noun: str) -> str:
    """Return how a question was settled, and by whom."""
    who = f"<@{user}>" if user is not None else "someone"
    match settlement:
        case Settlement.FOUND:
            return f"Settled: {who} found it."
        case Settlement.TURNED_UP:
            return f"Settled: the {noun} turned up after all."
        case Settlement.CREATED_AGAIN:
            return f"Settled: {who} chose to create it again."
        case Settlement.CANCELLED:
            return f"Settled: {who} cancelled the request."
        case Settlement.UNANSWERED:
            return "Closed: there was no answer within a week."
        case _:
            return "There was no answer, so I asked again."
