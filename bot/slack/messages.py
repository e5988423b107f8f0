"""What a delivery says: the message of its role, and where it goes instead of the channel."""

from collections.abc import Collection

from bot.model import Delivery, Job, Role
from bot.slack.approval_message import approval_request
from bot.slack.blocks import Message, context, mrkdwn
from bot.slack.cards import card
from bot.slack.presenters import Presenters
from bot.slack.question_message import question
from bot.slack.replies import reply
from bot.slack.share_message import share


def compose(
    delivery: Delivery,
    job: Job,
    presenters: Presenters,
    admins: Collection[str] = (),
    *,
    approvers: Collection[str] = (),
    replica: str = "",
    retry: str | None = None,
) -> Message:
    """Return what a delivery says now.

    ``admins`` can answer a question, ``approvers`` can approve. See ``card`` for ``replica`` and
    ``retry``.
    """
    presenter = presenters[job.kind]
    if delivery.role is Role.QUESTION:
        return question(delivery, job, presenter, admins)
    if delivery.role is Role.APPROVAL:
        return approval_request(delivery, job, presenter, approvers, replica=replica)
    if delivery.role is Role.SHARE:
        return share(delivery, job, presenter)
    if delivery.role is Role.REPLY:
        return reply(job, presenter, retry=retry)
    return card(
        job,
        presenter,
        posted=delivery.ts is not None,
        replica=replica,
        retry=retry,
        approvers=approvers,
    )


def redirected(message: Message, job: Job) -> Message:
    """Return a message as it is sent to the person directly, because the channel refused it."""
    note = "I couldn't post where you asked, so I'm sending this to you."
    # The name of a direct conversation means nothing to those outside it.
    if job.channel.startswith(("C", "G")):
        note = (
            f"I couldn't post in <#{job.channel}>, where you asked, so I'm sending this to you. "
            "If that channel is private, type `/invite @replica-videos` there."
        )
    return Message(f"{note}\n{message.text}", [context(mrkdwn(note)), *message.blocks])
