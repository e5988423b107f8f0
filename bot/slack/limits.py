"""What people are told when a limit on requests is reached."""

from datetime import datetime
from typing import Final

from bot.slack.blocks import span
from bot.store import Bound, Limit, LimitReached, NotAllowed

_REMEDY: Final = "If you need more, ask the person who runs this bot."

NOT_LISTED: Final = "Only some people here can do that. Please ask the person who runs this bot."
OTHER_CHANNEL: Final = "I don't post in this channel. Please choose another one."
_MONTHLY: Final = (Limit.PER_USER_PER_MONTH, Limit.PER_MONTH)


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
        case Limit.PER_USER_PER_MONTH:
            text = f"{begin} limit of {number} a month."
        case Limit.PER_MONTH:
            text = f"Your workspace has reached its limit of {number} a month."
    if reached.limit in _MONTHLY and reached.free_at is not None:
        again = f"on {reached.free_at:%B} 1"
    elif reached.free_at is not None:
        # Errors in a form are plain text, without Slack's dates:
        # https://docs.slack.dev/surfaces/modals#displaying_errors
        again = f"in about {span(reached.free_at - now)}"
    return f"{text} Try again {again}. {_REMEDY}"


def bound_errors(outside: NotAllowed, script: str) -> dict[str, str]:
    """Return what is wrong with a form that is not within a bound, by the id of its field.

    "" stands for no field in particular.
    """
    match outside.bound:
        case Bound.PERSON:
            return {"": NOT_LISTED}
        case Bound.CHANNEL:
            return {"where": OTHER_CHANNEL}
        case Bound.SCRIPT:
            return {"script": too_long(script, outside.limits.max_script)}


def too_long(script: str, max_script: int) -> str:
    """Return that a script has too many characters."""
    return f"The script has {len(script):,} characters. The limit is {max_script:,}."
