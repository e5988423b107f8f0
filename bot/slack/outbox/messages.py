"""What a delivery says, in which form, and where it goes."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from bot.model import Delivery, Job, Role, State
from bot.slack.views.blocks import (
    MAX_TEXT,
    NO_NAMES,
    Message,
    context,
    escape,
    mrkdwn,
    section,
    short_name,
    shortened,
)
from bot.slack.views.blocks import listed as enumerated
from bot.slack.views.card import AN_ADMIN, FOR_ADMINS, card, reply
from bot.slack.views.kinds import Presenter, Presenters
from bot.slack.views.limits import NO_PRICE, Price
from bot.slack.views.question import (
    approval_request,
    notice_of_day,
    people_asked,
    question,
    question_list,
    training_notice,
)
from bot.store import Asked, Outgoing, Store

# A refusal of so few bytes of text is not for their number.
_MIN_TEXT: Final = 100


def compose(
    delivery: Delivery,
    job: Job,
    presenters: Presenters,
    admins: Collection[str] = (),
    *,
    admins_first: bool = False,
    approvers: Collection[str] = (),
    replica: str = "",
    retry: str | None = None,
    listed: Sequence[Asked] = (),
    names: Mapping[str, str] = NO_NAMES,
    month: str = "",
    price: Price = NO_PRICE,
    made: Sequence[Job] = (),
    public: Collection[str] = (),
) -> Message:
    """Return what a delivery says now.

    ``admins`` can answer a question, and are asked first with ``admins_first``; ``listed`` are the
    further ones in its message. ``approvers`` can approve, and see this ``month`` and the
    ``price``. See ``card`` for ``replica`` and ``retry``. ``names`` are those of ``people_named``,
    as far as they are known. ``made`` is what a notice about a day tells, and ``public`` has the
    ids of what all can read.
    """
    said = {user: safe for user, name in names.items() if (safe := short_name(name))}
    presenter = presenters[job.kind]
    if delivery.role is Role.QUESTION:
        # Of a request that was asked about before, the last question counts.
        last = {of.id: (each, of) for each, of in ((delivery, job), *listed)}
        asked = [each for each in last.values() if each[1].kind in presenters]
        if len(asked) > 1:
            return question_list(
                delivery, job, asked, presenters, admins, admins_first=admins_first
            )
        return question(delivery, job, presenter, admins, admins_first=admins_first)
    if delivery.role is Role.APPROVAL:
        return approval_request(
            delivery, job, presenter, approvers, replica=replica, month=month, price=price
        )
    if delivery.role is Role.NOTICE:
        if made:
            return notice_of_day(made, public, presenters)
        return training_notice(job, presenter.name(job))
    known = [said[each] for each in sorted(admins) if each in said]
    who = enumerated(known, "or") if known else AN_ADMIN
    if delivery.role is Role.REPLY:
        return reply(job, presenter, retry=retry, names=said, who=who)
    return card(
        job, presenter, replica=replica, retry=retry, approvers=approvers, names=said, who=who
    )


def people_named(
    delivery: Delivery, job: Job, approvers: Collection[str] = (), admins: Collection[str] = ()
) -> set[str]:
    """Return the ids of those whose names a delivery says instead of mentioning them."""
    people = {job.user} if delivery.role is Role.CARD else set[str]()
    if FOR_ADMINS & {job.held_by, job.failure}:
        people.update(admins)
    if (approval := job.approval) is not None and delivery.role in {Role.CARD, Role.REPLY}:
        if approval.decided_by is not None:
            people.add(approval.decided_by)
        if job.state is State.WAITING_FOR_APPROVAL:
            people.update(people_asked(approval, approvers))
    return people


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


def as_sent(message: Message, delivery: Delivery) -> Message:
    """Return a delivery's message in the form that Slack has not refused yet.

    Each refusal of a text alone halves it, so that a limit that we do not know ends that too.
    """
    if not delivery.rewrites:
        return message
    return Message(shortened(message.text, _text_limit(delivery)))


def can_be_rewritten(delivery: Delivery) -> bool:
    """Return whether there is another form to try."""
    return not delivery.rewrites or _text_limit(delivery) > _MIN_TEXT


def rewritten(delivery: Delivery) -> Delivery:
    """Return a delivery, whose form was refused, in the next one."""
    return replace(delivery, rewrites=delivery.rewrites + 1, refusals=0)


def accepted(delivery: Delivery) -> Delivery:
    """Return a delivery whose current version Slack shows. The next one is tried in full length."""
    return replace(
        delivery,
        shown_version=delivery.version,
        failures=0,
        refusals=0,
        rewrites=min(delivery.rewrites, 1),
    )


def _text_limit(delivery: Delivery) -> int:
    """Return how many bytes of text a delivery without blocks may have."""
    return MAX_TEXT >> (delivery.rewrites - 1)


def placed(outgoing: Outgoing) -> Delivery:
    """Return the delivery with its channel and thread: below the card, unless it has its own."""
    delivery, card = outgoing.delivery, outgoing.card
    if delivery.role in {Role.CARD, Role.APPROVAL} or delivery.direct:
        return delivery
    if card.ts is None:
        return redirect(delivery, outgoing.job)
    thread_ts = card.ts if card.direct else outgoing.job.thread_ts or card.ts
    return replace(delivery, channel=card.channel, thread_ts=thread_ts)


def addressee(delivery: Delivery, job: Job) -> str:
    """Return the user to whom a delivery goes directly, always or if a channel refuses it."""
    return delivery.addressee or job.user


def redirect(delivery: Delivery, job: Job) -> Delivery:
    """Return the delivery as a direct message to the user who asked."""
    return replace(delivery, direct=True, channel=addressee(delivery, job), thread_ts=None)


def is_broadcast(delivery: Delivery, job: Job) -> bool:
    """Return whether a reply is shown in its channel too, and not in the thread alone.

    Not once Slack has refused its form: it may be this.
    """
    in_thread = delivery.thread_ts is not None and delivery.channel.startswith(("C", "G"))
    is_good = delivery.role is Role.REPLY and job.state is State.SUCCEEDED
    return job.tell_channel and is_good and in_thread and not delivery.rewrites


def may_be_in_slack(delivery: Delivery, job: Job) -> bool:
    """Return whether a message that is not posted yet, as far as we know, may be in Slack.

    It may if its job comes from a backup, until it is posted or searched for. A question is asked
    again: what it asks is open again.
    """
    return job.copied and delivery.sent_at is None and delivery.role is not Role.QUESTION


def with_names(
    claimed: Sequence[Outgoing], store: Store, presenters: Presenters
) -> Sequence[Outgoing]:
    """Return deliveries with the names of the replicas that their jobs use."""
    used = {
        each.delivery.id: replica_id
        for each in claimed
        if (presenter := presenters.get(each.job.kind)) is not None
        and (replica_id := presenter.replica_id(each.job)) is not None
    }
    names = store.replicas.names(set(used.values()))
    return [
        replace(each, replica=names.get(used.get(each.delivery.id, ""), "")) for each in claimed
    ]


def log_fields(delivery: Delivery, reason: Exception | str) -> dict[str, str]:
    """Return what a log line says of a delivery and of what became of a call for it."""
    return {"job": delivery.job_id, "role": delivery.role.value, "reason": str(reason)}
