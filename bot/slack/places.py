"""Where a message is posted, and whether it may be there already."""

import logging
import re
from dataclasses import replace
from typing import Final

from slack_sdk.web.async_client import AsyncWebClient

from bot.errors import Refused, Uncertain
from bot.model import Delivery, Job, Role
from bot.outages import Outages
from bot.slack.errors import translated
from bot.slack.outgoing import log_fields
from bot.store import Outgoing
from bot.timings import CallTimings

_LOG: Final = logging.getLogger(__name__)
_CONVERSATION: Final = re.compile(r"[CDG][A-Z0-9]+", re.ASCII)


def placed(outgoing: Outgoing) -> Delivery:
    """Return the delivery with its channel and thread: below the card, unless it has its own."""
    delivery, card = outgoing.delivery, outgoing.card
    if delivery.role in {Role.CARD, Role.SHARE, Role.APPROVAL} or delivery.direct:
        return delivery
    if card.ts is None:
        return redirect(delivery, outgoing.job)
    thread_ts = card.ts if card.direct else outgoing.job.thread_ts or card.ts
    return replace(delivery, channel=card.channel, thread_ts=thread_ts)


def addressee(delivery: Delivery, job: Job) -> str:
    """Return the user to whom a delivery goes directly, always or if a channel refuses it."""
    return delivery.addressee or delivery.shared_by or job.user


def redirect(delivery: Delivery, job: Job) -> Delivery:
    """Return the delivery as a direct message to the user who asked, or shared it."""
    return replace(delivery, direct=True, channel=addressee(delivery, job), thread_ts=None)


def may_be_posted(delivery: Delivery, job: Job) -> bool:
    """Return whether a message that is not posted yet, as far as we know, may be in Slack.

    It may if its job comes from a backup, until it is posted or searched for. A question is asked
    again: what it asks is open again.
    """
    return job.copied and delivery.sent_at is None and delivery.role is not Role.QUESTION


async def open_conversation(
    delivery: Delivery, client: AsyncWebClient, timings: CallTimings, outages: Outages
) -> str:
    """Return the conversation with the user of a direct message, so that it can be found there.

    If the app may not open it, this is the user's id, which also accepts posts.

    Raises:
        Unavailable, Uncertain: Slack did not answer; asking again does no harm.
    """
    try:
        async with translated(timings.call_timeout, outages):
            answer = await client.conversations_open(users=delivery.channel)
            opened = answer["channel"]["id"]
    except Refused as error:
        _LOG.info("a conversation may not be opened", extra=log_fields(delivery, error))
        return delivery.channel
    except (KeyError, TypeError):
        opened = None
    if not isinstance(opened, str) or not _CONVERSATION.fullmatch(opened):
        raise Uncertain("Slack's answer could not be read.")
    return opened
