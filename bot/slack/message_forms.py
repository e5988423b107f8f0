"""The form in which a message is sent: with blocks, or without them and shorter once refused."""

from dataclasses import replace
from typing import Final

from bot.model import Delivery
from bot.slack.blocks import MAX_TEXT, Message, shortened

# A refusal of so few bytes of text is not for their number.
_MIN_TEXT: Final = 100


def as_sent(message: Message, delivery: Delivery) -> Message:
    """Return a delivery's message in the form that Slack has not refused yet.

    Each refusal of a text alone halves it, so that a limit that we do not know ends that too.
    """
    if not delivery.rewrites:
        return message
    return Message(shortened(message.text, _text_limit(delivery)), ())


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
