"""What people are told about limits and prices: their names, what is left, what they refuse."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from bot.setting_values import LONGEST_SCRIPT
from bot.slack.views.blocks import date, listed
from bot.store import Bound, Left, Limit, Limits, NotAllowed

OPERATOR: Final = "a workspace admin"
"""Who is asked where there are no admins."""
NOT_CHECKED: Final = "I couldn't check if you can do that. Please try again in a moment."
_FEW: Final = 2
_SMALL_SHARE: Final = 5  # a fifth
_MAX_LISTED: Final = 10


@dataclass(frozen=True, slots=True)
class Membership:
    """The user groups that a person is in, of those that limits name."""

    groups: frozenset[str] = frozenset()
    problem: str = ""
    """What hindered to find out about all of them: a sentence, with ``{}`` for whom to tell."""


def limit_sentence(
    reached: Left, resets: str = "", *, person: str = "You", who: str = OPERATOR
) -> str:
    """Return which limit is reached, when there is room again, and what else to do.

    In mrkdwn: a form takes ``resets`` from ``resets_in_form``. ``person`` begins a sentence about
    the person whose limit it is; ``who`` can raise it.
    """
    one = reached.maximum == 1
    number = f"{reached.maximum:,} request" + ("" if one else "s")
    begin = "You've reached your" if person == "You" else f"{person} has reached their"
    begin = "Your workspace has reached its" if reached.limit.of_all else begin
    if reached.resets_at is None:
        again = "when it's done" if one else "when one is done"
        text = f"{begin} limit of {number} in progress. Try again {again}."
    else:
        resets = resets or date(reached.resets_at)
        text = f"{begin} limit of {number} a {reached.limit.period}. It resets {resets}."
    return f"{text} Need more? Ask {who}."


def resets_in_form(reached: Left, zone: tzinfo | None, now: datetime) -> str:
    """Return when a limit resets in a person's time zone, in plain text; UTC if it is not known.

    Errors in a form are plain text, without Slack's dates:
    https://docs.slack.dev/surfaces/modals#displaying_errors
    """
    if reached.resets_at is None:
        return ""
    moment, today = (each.astimezone(zone or UTC) for each in (reached.resets_at, now))
    at = f"at {moment:%I:%M %p}".replace("at 0", "at ") + ("" if zone else " UTC")
    days = (moment.date() - today.date()).days
    return {0: "", 1: "tomorrow "}.get(days, f"on {moment:%B} {moment.day} ") + at


def left_sentences(found: Sequence[Left]) -> list[str]:
    """Return what is left of each limit of which little is left, but not nothing.

    In mrkdwn, and until when: a limit's day is not that of its reader.
    """
    return [
        _left_sentence(each, f"until {date(each.resets_at)}")
        for each in found
        if each.resets_at and 0 < each.number <= max(_FEW, each.maximum // _SMALL_SHARE)
    ]


def _left_sentence(left: Left, until: str) -> str:
    if left.maximum == 1:
        return f"{'Your workspace' if left.limit.of_all else 'You'} can make 1 request {until}."
    whose = "your workspace's" if left.limit.of_all else "your"
    verb = "is" if left.number == 1 else "are"
    return f"{left.number:,} of {whose} {left.maximum:,} requests {verb} left {until}."


def month_so_far(used: int, most: int | None) -> str:
    """Return how many requests of the workspace count for this month, of how many at most."""
    of = "" if most is None else f" of {most:,}"
    return f"This month so far: {used:,}{of} request{'' if (most or used) == 1 else 's'}."


@dataclass(frozen=True, slots=True)
class Price:
    """What a minute of speech costs, as far as that is known."""

    per_minute: float = 0
    """0 if it is not known."""
    currency: str = "$"

    def of(self, spoken: timedelta) -> str:
        """Return about what that costs: "about $0.40"; "" if it is not known."""
        if not self.per_minute or not spoken:
            return ""
        amount = max(0.01, self.per_minute * (spoken / timedelta(minutes=1)))
        space = " " if self.currency.isalpha() else ""
        return f"about {self.currency}{space}{amount:,.2f}"


NO_PRICE: Final = Price()


# ── Who, where and how long ───────────────────────────────────────────────────────────────────────


REPLICA_REMOVED: Final = "This replica was removed. Pick another one."
GROUP_HIDDEN: Final = (
    "I can't check your user groups. Let {} know: I need the usergroups:read scope."
)
_NOT_LISTED: Final = "Only some people here can do that. Ask {}."


def bound_error(outside: NotAllowed, script: str, membership: Membership, who: str) -> str:
    """Return why a request is not within a bound. ``who`` can change that."""
    match outside.bound:
        case Bound.PERSON:
            return person_sentence(membership, who)
        case Bound.CHANNEL:
            return channel_sentence([], who)
        case Bound.SCRIPT:
            return too_long(script, outside.limits.max_script, who)
        case Bound.REPLICA:
            return REPLICA_REMOVED


def person_sentence(membership: Membership, who: str) -> str:
    """Return why a person may not ask for something that only some may ask for."""
    return (membership.problem or _NOT_LISTED).format(who)


def channel_sentence(allowed: Sequence[str], who: str) -> str:
    """Return that a channel is not posted in. ``allowed`` are names or mentions of others."""
    where = (
        f"Use {listed(allowed, 'or')}, or a direct message with me."
        if allowed
        else "Choose another, or leave this blank for a direct message."
    )
    return f"I don't post in this channel. {where} To use it here, ask {who}."


def groups_asked(limits: Limits, kind: str, user: str) -> frozenset[str]:
    """Return the user groups of which it matters whether a person is in them."""
    if limits.allows_person(kind, user, frozenset()):
        return frozenset()
    return frozenset(each for each in limits.users(kind) if each.startswith("S"))


def too_long(script: str, max_script: int, who: str) -> str:
    """Return that a script has too many characters. ``who`` can raise the limit, up to a point."""
    remedy = f"shorten it, or ask {who} to raise the limit"
    if max_script >= LONGEST_SCRIPT:
        remedy = "shorten it"
    return f"The script has {len(script):,} characters. The limit is {max_script:,}: {remedy}."


def label(limit: Limit) -> str:
    """Return what a limit is called before its value."""
    return limit.words.removeprefix("the ").capitalize()


def value_words(limit: Limit, value: str) -> str:
    """Return the value of a limit in mrkdwn; ``value`` is as it would stand in the setting."""
    if not value:
        return limit.empty
    if limit.most:
        return f"{int(value):,}{limit.unit}"
    shown = [mention(each) for each in value.split(",")]
    if len(shown) > _MAX_LISTED:
        shown = [*shown[: _MAX_LISTED - 1], f"{len(shown) - _MAX_LISTED + 1} more"]
    return listed(shown, "and")


def change_words(limit: Limit, before: str, after: str) -> str:
    """Return what was done to a limit, as a sentence without its subject."""
    words, old, new = limit.words, value_words(limit, before), value_words(limit, after)
    if not limit.most:
        return f"changed {words} from {old} to {new}"
    if not before:
        return f"limited {words} to {new}"
    if not after:
        return f"removed the limit on {words}, which was {old}"
    verb = "raised" if int(after) > int(before) else "lowered"
    return f"{verb} {words} from {int(before):,} to {new}"


def mention(identifier: str) -> str:
    """Return a person, a user group or a channel in mrkdwn.

    https://docs.slack.dev/messaging/formatting-message-text
    """
    if identifier.startswith("S"):
        return f"<!subteam^{identifier}>"
    return f"<#{identifier}>" if identifier.startswith(("C", "G")) else f"<@{identifier}>"
