"""What admins see in the Home tab: how the bot is, what was spent, and the limits in force."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from bot.slack.blocks import MAX_SECTION, Json, ago, button, context, date, joined, mrkdwn, section
from bot.slack.buttons import CHANGE_LIMITS, OPEN_SPENDING
from bot.slack.failures import KEY_REFUSED
from bot.slack.limit_words import WORDS, change_words, value_words
from bot.slack.presenters import Presenters
from bot.slack.spending_view import spending_text
from bot.store import LimitsInForce, MonthSpending, PastChange

MAX_PAST: Final = 5
"""Changes of limits that are shown."""


@dataclass(frozen=True, slots=True)
class Health:
    """How the whole bot is."""

    used: int
    """Create calls that count for the last 24 hours."""
    limit: int
    unsent: int
    """Messages that wait to be posted."""
    key_refused: bool
    no_credit: bool
    """Whether the service has refused to create something for lack of credit."""
    next_try: datetime | None
    """When the next call finds out whether there is credit again."""
    slowed_down: bool
    """Whether the service has asked to wait before it creates more."""
    to_approve: int = 0
    """Requests that wait for approval."""


@dataclass(frozen=True, slots=True)
class AdminContent:
    """What admins see."""

    health: Health
    spending: MonthSpending
    """Of this month."""
    in_force: LimitsInForce
    past: Sequence[PastChange] = ()
    """The last changes of limits, newest first."""


def admin_sections(content: AdminContent, presenters: Presenters) -> list[Json]:
    """Return the sections for admins: a few blocks, however much there is to say."""
    change, more = button("Change limits", CHANGE_LIMITS), button("All months", OPEN_SPENDING)
    blocks = [
        section(_health(content.health)),
        {**section(spending_text(content.spending, presenters)), "accessory": more},
        {**section(_limits(content.in_force)), "accessory": change},
    ]
    if content.past:
        said = joined(["Recent changes:", *map(_change, content.past)], MAX_SECTION)
        blocks.append(context(mrkdwn(said)))
    return blocks


def _limits(in_force: LimitsInForce) -> str:
    values, lines = in_force.values(), ["*Limits*"]
    for name, words in WORDS.items():
        value = value_words(name, values[name])
        line = f"{words.label}: {value if words.is_list else f'*{value}*'}"
        if (change := in_force.changes.get(name)) is not None:
            line += f", changed by <@{change.changed_by}> {ago(change.changed_at)}"
        lines.append(line)
    lines.append(
        "All others come from the settings."
        if in_force.changes
        else "All of them come from the settings."
    )
    return joined(lines, MAX_SECTION)


def _change(past: PastChange) -> str:
    said = change_words(past.name, past.before, past.after)
    return f"<@{past.changed_by}> {said}, {ago(past.changed_at)}"


def _health(health: Health) -> str:
    service = (
        f":x: {KEY_REFUSED}: it needs a working one."
        if health.key_refused
        else ":white_check_mark: The video service accepts this bot's key."
    )
    if health.no_credit:
        service += "\n:x: The video service says that there is no credit left. Requests wait."
        if health.next_try is not None:
            service += f" Next try: {date(health.next_try)}, or at once with the next request."
    if health.slowed_down:
        service += "\n:hourglass: The video service asks to wait. Requests go on by themselves."
    posted = ":white_check_mark: Every message is posted."
    if health.unsent:
        posted = f":hourglass: Messages waiting to be posted: {health.unsent:,}."
    if health.to_approve:
        posted += f"\n:hourglass: Requests waiting for approval: {health.to_approve:,}."
    used = f"Requests in the last 24 hours: {health.used:,} of {health.limit:,}."
    return f"{used}\n{service}\n{posted}"
