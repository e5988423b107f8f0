"""What people had created in a month, for admins: a few lines in Home, and all of it in a modal."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from bot.slack.blocks import (
    MAX_SECTION,
    Json,
    actions,
    brief,
    element,
    joined,
    modal,
    option,
    section,
)
from bot.slack.buttons import CHOOSE_MONTH
from bot.slack.presenters import Presenters
from bot.store import MonthSpending, PersonSpending, month_start

MONTH: Final = "month"
"""The id of the block with the menu of months."""
_MONTHS: Final = 12
_TOP: Final = 5
_MAX_PEOPLE: Final = 1_000
_PER_SECTION: Final = 20


def spending_text(spending: MonthSpending, presenters: Presenters) -> str:
    """Return what was spent this month: all of it, and by those who spent most."""
    people = [_person(each, presenters) for each in spending.people[:_TOP]]
    if (others := len(spending.people) - _TOP) > 0:
        people.append(f"and {others:,} more {'person' if others == 1 else 'people'}")
    return joined(
        ["*Spending this month*", f"{_total(spending, presenters)}.", *people], MAX_SECTION
    )


def spending_modal(spending: MonthSpending, presenters: Presenters, now: datetime) -> Json:
    """Return the modal for a month, with a menu of those before ``now``."""
    months = {_value(each): _option(each) for each in _months(now)}
    chosen = months.setdefault(_value(spending.since), _option(spending.since))
    menu = element("static_select", CHOOSE_MONTH, options=[*months.values()], initial_option=chosen)
    people = [_person(each, presenters) for each in spending.people[:_MAX_PEOPLE]]
    blocks = [{**actions([menu]), "block_id": MONTH}, section(f"*{_total(spending, presenters)}*")]
    blocks += [
        section(joined(people[at : at + _PER_SECTION], MAX_SECTION))
        for at in range(0, len(people), _PER_SECTION)
    ]
    return modal("", "Spending", close="Close", blocks=blocks)


def month_named(value: str, now: datetime) -> datetime:
    """Return the month that was chosen in the menu; this one if there is none of that name."""
    return next((each for each in _months(now) if _value(each) == value), now)


def spent(created: Mapping[str, int], spoken: timedelta, presenters: Presenters) -> str:
    """Return what was created, in words: "3 videos, about 4 min spoken, 1 training"."""
    parts = [
        f"{number:,} {presenter.counted}{'' if number == 1 else 's'}"
        for kind, presenter in presenters.items()
        if (number := created.get(kind, 0))
    ]
    if parts and spoken:
        parts.insert(1, f"about {brief(spoken)} spoken")
    return ", ".join(parts)


def _total(spending: MonthSpending, presenters: Presenters) -> str:
    return spent(spending.created, spending.spoken, presenters) or "Nothing was created"


def _person(person: PersonSpending, presenters: Presenters) -> str:
    return f"<@{person.user}>: {spent(person.created, person.spoken, presenters)}"


def _months(now: datetime) -> list[datetime]:
    """Return the first moments of the last months, newest first."""
    months = [month_start(now)]
    while len(months) < _MONTHS:
        months.append(month_start(months[-1] - timedelta(days=1)))
    return months


def _value(month: datetime) -> str:
    return month.strftime("%Y-%m")


def _option(month: datetime) -> Json:
    return option(month.strftime("%B %Y"), _value(month))
