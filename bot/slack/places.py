"""Where a message is posted, and whether it may be there already."""

from dataclasses import replace

from bot.model import Delivery, Job, Role
from bot.store import Outgoing


def placed(outgoing: Outgoing) -> Delivery:
    """Return the delivery with its channel and thread: all others go below the card."""
    delivery, card = outgoing.delivery, outgoing.card
    if delivery.role is Role.CARD or delivery.direct:
        return delivery
    if card.ts is None:
        return redirect(delivery, outgoing.job)
    thread_ts = card.ts if card.direct else outgoing.job.thread_ts or card.ts
    return replace(delivery, channel=card.channel, thread_ts=thread_ts)


def redirect(delivery: Delivery, job: Job) -> Delivery:
    """Return the delivery as a direct message to the user who asked."""
    return replace(delivery, direct=True, channel=job.user, thread_ts=None)


def may_be_posted(delivery: Delivery, job: Job) -> bool:
    """Return whether a message that is not posted yet, as far as we know, may be in Slack.

    It may if its job comes from a backup, until it is posted or searched for. A question is asked
    again: what it asks is open again.
    """
    return job.copied and delivery.sent_at is None and delivery.role is not Role.QUESTION
