"""The messages that ask people: for approval, and whether create calls made something.

With those to owners of replicas: pure functions of deliveries and jobs.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from bot.model import Approval, ApprovalPolicy, Delivery, Job, Settlement, spoken_time
from bot.slack.views.blocks import (
    MAX_QUOTE,
    MAX_QUOTES,
    MAX_SECTION,
    NO_NAMES,
    Json,
    Message,
    actions,
    bullets,
    button,
    confirm,
    context,
    cut,
    date,
    joined,
    listed,
    mrkdwn,
    one_line,
    paragraph,
    quote,
    quotes,
    rich,
    section,
    title,
    unformatted,
    words,
)
from bot.slack.views.buttons import (
    ASK_FIRST,
    MUTE,
    STOP_TRAINING,
    approval_buttons,
    list_buttons,
    question_buttons,
)
from bot.slack.views.presenters import Presenter, Presenters, script_of, state_word
from bot.slack.views.usage import NO_PRICE, Price
from bot.store import Asked

# ── Approval ──────────────────────────────────────────────────────────────────────────────────────


NOBODY_TO_APPROVE: Final = "You're the only approver. Ask a workspace admin to add another."
_NOTHING_TO_APPROVE: Final = (
    ":white_check_mark: An earlier try worked, so there's nothing to approve."
)
_OUTCOMES: Final = {
    Settlement.APPROVED: ":white_check_mark: Approved by {who}.",
    Settlement.DECLINED: ":no_entry_sign: Declined by {who}.",
    Settlement.CANCELLED: ":no_entry_sign: Cancelled by {who}.",
    Settlement.FOUND: _NOTHING_TO_APPROVE,
    Settlement.TURNED_UP: _NOTHING_TO_APPROVE,
    Settlement.UNANSWERED: ":hourglass: Not approved in time.",
}
_MAX_FACT: Final = 300
_MAX_NAMED: Final = 3
_MAX_LINES: Final = 20
_BEGINNING: Final = "This is the beginning. The whole script is under *Details*."
_COPIED: Final = "This comes from a backup, and may have been made since. Check before you approve."
_ASK_FIRST: Final = "Ask me first"
_AGAIN: Final = "An earlier try was never confirmed. If it worked, you'll pay twice."


def approval_note(policy: ApprovalPolicy, user: str, max_script: int | None) -> str:
    """Return who has to approve what a form asks for, in mrkdwn; "" if nothing needs approval.

    Args:
        policy: what needs approval.
        user: who opens the form.
        max_script: the longest script, in characters; None for a training.
    """
    above = 0 if max_script is None else policy.above
    if not policy.approvers or (max_script is not None and above >= max_script):
        return ""
    people = [f"<@{each}>" for each in policy.people(user)]
    if not people:
        return "" if above else NOBODY_TO_APPROVE
    what = f"Scripts of more than {above:,} characters need" if above else "This needs"
    return f"{what} approval by {_or_others(people[:_MAX_NAMED], len(people))}."


def _or_others(people: Sequence[str], number: int) -> str:
    """Return people as in a sentence, and how many more there are in the whole ``number``."""
    others = number - len(people)
    more = [f"{others} other{'' if others == 1 else 's'}"] if others else []
    return listed([*people, *more], "or")


def people_asked(approval: Approval, approvers: Collection[str]) -> Sequence[str]:
    """Return the ids of those whom a card that waits for approval names."""
    if approval.channel is not None:
        return ()
    return (approval.asked or sorted(approvers))[:_MAX_NAMED]


def waiting_for_approval(
    approval: Approval,
    approvers: Collection[str] = (),
    names: Mapping[str, str] = NO_NAMES,
) -> str:
    """Return who was asked for approval, and when it expires.

    Without anybody who could be asked, it says which ``approvers`` there are, and where they find
    the request. ``names`` are those of people by their ids, as mrkdwn.
    """
    expires = f"Expires {date(approval.until)}."
    if not approval.asked and not approvers:
        return f"There's no approver left. Cancel it and ask again. {expires}"
    return f"{_asked(approval, approvers, names)} {expires}"


def _asked(approval: Approval, approvers: Collection[str], names: Mapping[str, str]) -> str:
    if approval.channel is not None:
        return f"I asked in <#{approval.channel}>."
    known = [names[each] for each in people_asked(approval, approvers) if each in names]
    people = _or_others(known, len(approval.asked or approvers)) if known else ""
    if not approval.asked:
        who = people or "an approver"
        return f"I couldn't message the approvers. Ask {who} to approve it in my *Home* tab."
    return f"Waiting for {people or 'the approvers'}."


def approval_request(
    delivery: Delivery,
    job: Job,
    presenter: Presenter,
    approvers: Collection[str] = (),
    *,
    replica: str = "",
    month: str = "",
    price: Price = NO_PRICE,
) -> Message:
    """Return the message that asks for approval, or says how that was settled.

    An open one shows all that would be paid for, at which ``price`` and after what this ``month``,
    and in a channel mentions the ``approvers``.
    """
    noun, name = presenter.noun, title(presenter.name(job))
    where = f" in <#{job.channel}>" if job.channel.startswith(("C", "G")) else ""
    asked = f"Requested by <@{job.user}>{where}"
    heading = rich(paragraph(words(name or noun.capitalize(), bold=True)))
    if delivery.settled_as is not None:
        outcome = _settled(_OUTCOMES, delivery, noun)
        blocks = [heading, section(outcome)]
        reason = job.reason if delivery.settled_as is Settlement.DECLINED else ""
        if reason:
            blocks.append(rich(quote(reason)))
        blocks.append(context(mrkdwn(asked)))
        return Message.of(blocks)
    script = script_of(job, None).strip()
    own = replace(job, params={at: text for at, text in job.params.items() if at != "script"})
    is_named = bool(presenter.name(own))  # or the script would begin twice
    mentioned = "" if delivery.direct else " ".join(f"<@{each}>" for each in sorted(approvers))
    request, for_owner = f"*Approve this {noun}?*", False
    if job.asks_owner and delivery.addressee == job.owner:
        request = f"*Let <@{job.user}> make this {noun} with your replica?*"
        for_owner = job.owner not in approvers
    head = joined([mentioned, request], by=" ")
    hidden = presenter.replica_id(job) if for_owner and replica else None
    facts = {
        label: value for label, value in presenter.details(job).items() if value and value != hidden
    }
    if replica:
        facts = {"Replica": one_line(replica), **facts}
    if cost := price.of(spoken_time(script)):
        facts["Cost"] = cost
    until = f"Expires {date(job.approval.until)}" if job.approval is not None else ""
    small = [
        joined([asked, until], by=" · "),
        "" if for_owner else month,
        _COPIED if job.copied else "",
        _AGAIN if job.attempts else "",
    ]
    is_whole = cut(script, MAX_QUOTES) == script
    return Message.of(
        [
            section(head),
            *((heading,) if is_named else ()),
            rich(
                bullets(
                    paragraph(words(f"{label}: ", bold=True), words(cut(value, _MAX_FACT)))
                    for label, value in facts.items()
                )
            ),
            *(quotes(script) if is_whole else [rich(quote(cut(script, MAX_QUOTE)))]),
            *(() if is_whole else (context(mrkdwn(_BEGINNING)),)),
            *(context(mrkdwn(line)) for line in small if line),
            actions(approval_buttons(job)),
        ]
    )


def _made(job: Job, presenter: Presenter, *, is_public: bool) -> str:
    name = unformatted(title(presenter.name(job))) if is_public else ""
    what = f"“{name}”" if name else f"a {presenter.noun}"
    return f"• <@{job.user}>: {what} · {state_word(job, presenter)} · {date(job.created_at)}"


def made_with(
    jobs: Sequence[Job], public: Collection[str], presenters: Presenters, *, muted: bool = False
) -> Message:
    """Return what others had made with an owner's replicas: a message, and a part of Home.

    ``public`` has the ids of the jobs that all can read, whose names it says.
    """
    lines = [
        _made(job, presenters[job.kind], is_public=job.id in public)
        for job in jobs
        if job.kind in presenters
    ]
    shown = ["*Made with your face*", *(lines[:_MAX_LINES] or ["Nothing yet."])]
    text = joined(shown, MAX_SECTION - 20)  # there is room for how many more there are
    if (others := len(lines) - text.count("\n")) > 0:
        text += f"\nand {others:,} more"
    label = "Unmute messages" if muted else "Mute messages"
    mute = button(label, MUTE, value="no" if muted else "yes")
    return Message.of([{**section(text), "accessory": mute}])


def notice_of_day(jobs: Sequence[Job], public: Collection[str], presenters: Presenters) -> Message:
    """Return the message about a day; who was not asked each time can have others ask from now on.

    See ``made_with``.
    """
    made = made_with(jobs, public, presenters)
    if all(job.asks_owner for job in jobs):
        return made
    return Message.of([*made.blocks, actions([button(_ASK_FIRST, ASK_FIRST)])])


def training_notice(job: Job, name: str) -> Message:
    """Return the message to the person in the footage of a training, about a replica of a name."""
    training = "trained" if job.state.ended else "is training"
    text = (
        f"<@{job.user}> {training} a replica of you: “{unformatted(name)}”. You own it. Limit "
        "its use or remove it any time in my *Home* tab."
    )
    stop = confirm(
        "Stop this training?",
        "I'll remove it. An admin may have to delete it at the video service.",
        yes="Stop it",
        no="Keep it",
    )
    pressed = button("Stop it", STOP_TRAINING, value=job.id, confirm=stop)
    ask = button(_ASK_FIRST, ASK_FIRST, value=job.id)
    return Message.of([section(text), actions([ask, pressed])])


# ── What was made? ────────────────────────────────────────────────────────────────────────────────


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
    Settlement.ASKED_AGAIN: "No answer, so I asked again.",
}
_WHAT_TO_DO: Final = (
    "We never got a confirmation. If it's in your account, choose *I found it*. If not, "
    "*Create again* or *Cancel request*."
)
_ADMINS_WERE_ASKED: Final = "The person who asked can answer too."


def questions(
    delivery: Delivery,
    job: Job,
    further: Sequence[Asked],
    presenters: Presenters,
    admins: Collection[str] = (),
    *,
    admins_first: bool = False,
) -> Message:
    """Return the question, or how it was settled; with ``further`` ones in its message, a list.

    An open one mentions the requester and the admins once each: they can answer it. With
    ``admins_first``, the first one mentions the admins alone, where they can see it. Nobody is
    pinged by the edit that says how it was settled. A list has a line for each request, open ones
    first.
    """
    # Of a request that was asked about before, the last question counts.
    last = {of.id: (each, of) for each, of in ((delivery, job), *further)}
    asked = sorted(
        (each for each in last.values() if each[1].kind in presenters),
        key=lambda each: (each[0].settled_as is not None, each[1].created_at),
    )
    still = [each for question, each in asked if question.settled_as is None]
    more = len(asked) - MAX_LISTED
    small = f"And {more} more, in your Home tab." if more > 0 else ""
    if len(asked) > 1:
        nouns = listed(sorted({f"{presenters[each.kind].noun}s" for _, each in asked}), "and")
        head = f"*Did these {len(asked)} {nouns} get made?*"
        named = [rich(bullets(_line(*each, presenters) for each in asked[:MAX_LISTED]))]
        settled, what_to_do, them = "None of these needs an answer now.", _LOOK_FOR_EACH, "these"
        buttons = list_buttons(job, still[:MAX_LISTED])
    else:
        presenter = presenters[job.kind]
        head, name = f"*Did this {presenter.noun} get made?*", title(presenter.name(job))
        named = [rich(paragraph(words(name, bold=True)))] if name else []
        settled = _settled(_SETTLED, delivery, presenter.noun)
        what_to_do, them = _WHAT_TO_DO, "this"
        buttons = question_buttons(job, presenter)
    if still:
        again = any(each.asked > 1 for each in still)
        who, who_else = _who(delivery, job, admins, admins_first=admins_first and not again)
        when = (
            f"I'll close {them} in a few days."
            if again
            else f"I'll ask again tomorrow and close {them} in a week."
        )
        body, small = joined([what_to_do, who_else], MAX_SECTION), joined([small, when], by=" ")
        blocks = [section(f"{who} {head}"), *named, section(body), actions(buttons)]
    else:
        blocks = [section(head), *named, section(settled)]
    return Message.of([*blocks, *([context(mrkdwn(small))] if small else [])])


def _line(asked: Delivery, job: Job, presenters: Presenters) -> Json:
    """Return the line of a request in a list, with how its question was settled."""
    name = title_of(job, presenters[job.kind])
    if asked.settled_as is None:
        return paragraph(words(name, bold=True))
    return paragraph(words(name), words(f" · {_HOW[asked.settled_as]}"))


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


def _settled(sentences: Mapping[Settlement, str], delivery: Delivery, noun: str) -> str:
    """Return how a question or an approval was settled, and by whom."""
    otherwise = Settlement.UNANSWERED
    said = sentences.get(delivery.settled_as or otherwise, sentences[otherwise])
    by = delivery.settled_by
    return said.format(who=f"<@{by}>" if by is not None else "someone", noun=noun)
