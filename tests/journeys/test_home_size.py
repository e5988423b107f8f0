"""The Home tab and the modals of admins at their largest: Slack accepts them."""

from dataclasses import replace
from datetime import timedelta

from bot.slack.features.limits import Group, limits_form
from bot.slack.views.approval import made_with
from bot.slack.views.buttons import replica_row
from bot.slack.views.home import (
    MAX_COUNTED,
    MAX_MADE,
    MAX_PAST,
    MAX_QUESTIONS,
    MAX_REPLICAS,
    PAGE,
    AdminContent,
    Health,
    HomeContent,
    home_view,
    spending_modal,
)
from bot.store import (
    LIMITS,
    KnownReplica,
    LimitChange,
    Limits,
    LimitsInForce,
    MonthSpending,
    PersonSpending,
)
from sandbox.block_kit import validate_view
from tests.slack.test_cards import NINE, PRESENTERS
from tests.slack.test_question_message import ASKED

USERS = [f"U{number:010}" for number in range(2000)]
LONG = "\U0001f600" * 3000


def test_the_largest_home_and_the_largest_modals_fit_into_slacks_limits() -> None:
    settings = Limits(max_open_per_user=1, max_per_user_per_day=2, max_per_day=3, max_script=4)
    people, channels = frozenset(USERS), frozenset(f"C{user[1:]}" for user in USERS)
    limits = replace(settings, video_users=people, training_users=people, allowed_channels=channels)
    changes = {name: LimitChange(name, "5", USERS[0], NINE) for name in LIMITS}
    in_force = LimitsInForce(limits, settings, changes)
    past = LimitChange("VIDEO_USERS", ",".join(USERS[1:]), USERS[0], NINE, before=",".join(USERS))
    spending = MonthSpending(
        NINE, [PersonSpending(user, 1_000_000, 1_000_000, timedelta(days=99)) for user in USERS]
    )
    health = Health(1, 2, unsent=3, key_refused=True, next_try=NINE, slowed_down=True)
    job = replace(ASKED, params={"script": LONG, "video_name": LONG})
    content = HomeContent(
        jobs=[job] * PAGE,
        page=5,
        more=True,
        replicas=[replica_row(KnownReplica("r", LONG), LONG[:75], may_change=True)] * MAX_REPLICAS,
        made=made_with([job] * MAX_MADE, {job.id}, PRESENTERS).blocks,
        questions=[job] * MAX_QUESTIONS,
        to_approve=[job] * MAX_COUNTED,
        admin=AdminContent(health, spending, in_force, [past] * MAX_PAST, "cdn.example.com," * 999),
    )
    assert validate_view(home_view(content, PRESENTERS, "/{}".format)) == []
    assert validate_view(spending_modal(spending, NINE)) == []
    groups = [Group(id=f"S{user[1:]}", name="N" * 200, handle="h" * 80) for user in USERS]
    assert validate_view(limits_form(in_force, groups)) == []
