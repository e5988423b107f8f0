"""What people are told when a limit on requests is reached."""

from datetime import datetime
from typing import Final

from bot.slack.blocks import span
from bot.store import Limit, LimitReached

_REMEDY: Final = "If you need more, ask the person who runs the bot."


def limit_sentence(reached: LimitReached, now: datetime, person: str = "You have") -> str:
    """Return which limit is reached, when there is room again, and what else to do.

    ``person`` begins a sentence about the person whose limit it is.
    """
    number = f"{reached.maximum:,}"
    requests = "request" if reached.maximum == 1 else "requests"
    match reached.limit:
        case Limit.OPEN_PER_USER:
            text = f"{person} {number} {requests} in progress, and {number} is the limit."
            again = "when one of them is done"
        case Limit.PER_USER_PER_DAY:
            text = (
                f"{person} made {number} {requests} in the last 24 hours, and {number} is the "
                "limit."
            )
        case Limit.PER_DAY:
            were = "was" if reached.maximum == 1 else "were"
            text = (
                f"{number} {requests} {were} made here in the last 24 hours, and {number} is the "
                "limit for everyone together."
            )
    if reached.free_at is not None:
        # Errors in a form are plain text, without Slack's dates:
        # https://docs.slack.dev/surfaces/modals#displaying_errors
        again = f"in about {span(reached.free_at - now)}"
    return f"{text} Try again {again}. {_REMEDY}"
