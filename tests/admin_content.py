"""What admins could see in the Home tab, for the page of all texts."""

from dataclasses import replace
from datetime import timedelta
from typing import Final

from bot.slack.features.home import Group
from bot.slack.views.home import AdminContent, Health
from bot.store import (
    LimitChange,
    Limits,
    LimitsInForce,
    MonthSpending,
    PersonSpending,
)
from tests.slack.test_cards import ANA, BEN, NINE

_HEALTH: Final = Health(
    used=12,
    limit=500,
    unsent=0,
    key_refused=False,
    next_try=None,
    slowed_down=False,
)
_SETTINGS: Final = Limits(
    max_open_per_user=20, max_per_user_per_day=100, max_per_day=500, max_script=3000
)
_CHANGES: Final = {
    "MAX_PER_USER_PER_MONTH": LimitChange("MAX_PER_USER_PER_MONTH", "30", ANA, NINE),
    "TRAINING_USERS": LimitChange("TRAINING_USERS", f"{ANA},{BEN}", BEN, NINE),
}
_PEOPLE: Final = (
    PersonSpending(ANA, 3, 1, timedelta(minutes=4)),
    PersonSpending(BEN, 1, 0, timedelta(seconds=40)),
)
GROUPS: Final = (Group(id="S0MARKETING", name="Marketing", handle="marketing"),)
ADMIN: Final = AdminContent(
    health=_HEALTH,
    spending=MonthSpending(NINE, _PEOPLE),
    in_force=LimitsInForce(
        replace(_SETTINGS, max_per_user_per_month=30, training_users=frozenset({ANA, BEN})),
        _SETTINGS,
        _CHANGES,
    ),
    past=(
        *_CHANGES.values(),
        LimitChange("MAX_SCRIPT", "3000", BEN, NINE, before="1000"),
    ),
    media_hosts="stream.example.com",
)
IN_TROUBLE: Final = AdminContent(
    health=replace(
        _HEALTH,
        unsent=3,
        key_refused=True,
        next_try=NINE,
        slowed_down=True,
        to_approve=2,
    ),
    spending=MonthSpending(NINE),
    in_force=LimitsInForce(_SETTINGS, _SETTINGS, {}),
)
DOWN: Final = replace(IN_TROUBLE, health=replace(_HEALTH, down_since=NINE, waiting=12))
