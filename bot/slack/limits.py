"""What people are told when a limit on requests is reached."""

from datetime import datetime
from typing import Final

from bot.slack.blocks import span
from bot.store import Limit, LimitReached

_REMEDY: Final = "If you need more, ask the person who runs this bot."


def limit_sentence(reached: LimitReached, now: datetime, person: str = "You") -> str:
    """Return which limit is reached, when there is room again, and what else to do.

    ``person`` begins a sentence about the person whose limit it is.
    """
    one = reached.maximum == 1
    number = f"{reached.maximum:,} request" + ("" if one else "s")
    begin = "You've reached your" if person == "You" else f"{person} has reached their"
    match reached.limit:
        case Limit.OPEN_PER_USER:
            text = f"{begin} limit of {number} in progress."
            again = "when it's done" if one else "when one of them is done"
        case Limit.PER_USER_PER_DAY:
            text = f"{begin} limit of {number} in 24 hours."
        case Limit.PER_DAY:
            text = f"Your workspace has reached its limit of {number} in 24 hours."
    if reached.free_at is not None:
        # Errors in a form are plain text, without Slack's dates:
        # https://docs.slack.dev/surfaces/modals#displaying_errors
        again = f"in about {span(reached.free_at - now)}"
    return f"{text} Try again {again}. {_REMEDY}"
