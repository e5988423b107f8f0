"""The Home tab: a person's requests, always there, and updated after each change."""

import itertools
from dataclasses import replace
from datetime import timedelta

from bot.slack.features.home import Group, limits_form
from bot.slack.views.buttons import replica_row
from bot.slack.views.home import (
    MAX_COUNTED,
    MAX_MADE,
    MAX_PAST,
    MAX_QUESTIONS,
    MAX_REPLICAS,
    PAGE,
    admin_sections,
    health_text,
    home_view,
    spending_modal,
)
from bot.slack.views.question import made_with
from bot.store import (
    LIMITS,
    KnownReplica,
    LimitChange,
    Limits,
    LimitsInForce,
    MonthSpending,
    PersonSpending,
)
from sandbox.block_kit import Json, objects, validate_view
from sandbox.driver import Modal, Person
from sandbox.faults import CannedResponse
from tests.modes import bot_with, in_both_modes
from tests.slack.test_cards import ASKED, NINE, PRESENTERS
from tests.world import FOOTAGE, REPLICA, World

REFUSED = CannedResponse(200, b'{"ok": false, "error": "not_in_channel"}')


def words(home: Modal | None) -> str:
    """Return all texts of a Home tab, one a line."""
    assert home is not None
    texts = (each.get("text") for each in objects(home.view.body["blocks"]))
    return "\n".join(text for text in texts if isinstance(text, str))


async def opened(world: World, person: Person) -> Modal:
    assert (await person.open_home()).ok
    await world.settle()
    return person.tab


@in_both_modes
async def test_home_shows_my_requests_and_follows_them(world: World) -> None:
    empty = words(await opened(world, world.ana))
    assert "Nothing here yet" in empty
    await world.after(world.request_video(world.ana, {"video_name": "First"}), seconds=5)
    assert "First\n · Rendering" in words(world.ana.home)

    await world.advance(minutes=5)
    await world.after(world.request_video(world.ana, {"video_name": "Second"}), seconds=5)
    shown = words(world.ana.home)
    assert shown.index("Second\n · Rendering") < shown.index("First\n · Ready")
    assert "Watch" in shown
    assert "For admins" not in shown
    assert world.ben.user.id not in world.slack.homes, "who never opened it needs none"


async def test_a_persons_home_is_published_once_in_a_few_seconds_and_shows_the_newest(
    world: World,
) -> None:
    await opened(world, world.ana)
    before = len(world.calls("views.publish"))
    for number in range(6):
        await world.request_video(world.ana, {"video_name": f"Video {number}"})
    assert len(world.calls("views.publish")) == before
    await world.advance(seconds=10)
    calls = world.calls("views.publish")[before:]
    assert 1 <= len(calls) <= 3
    moments = [call.at for call in calls]
    assert all(
        (later - earlier).total_seconds() >= 3 for earlier, later in itertools.pairwise(moments)
    )
    assert all(f"Video {number}" in words(world.ana.home) for number in range(6))


async def test_a_home_that_was_not_opened_for_a_week_is_published_when_it_is_opened_again(
    world: World,
) -> None:
    await opened(world, world.ana)
    await world.after(opened(world, world.ben), days=6)
    await world.after(world.request_video(world.ana, {"video_name": "Within a week"}), seconds=10)
    assert "Within a week" in words(world.ana.home)
    await opened(world, world.ben)

    await world.advance(days=2)
    published = len(world.calls("views.publish"))
    await world.after(world.request_video(world.ana, {"video_name": "Later"}), minutes=5)
    assert len(world.calls("views.publish")) == published
    await world.after(world.request_video(world.ben, {"video_name": "Of Ben"}), minutes=5)
    assert "Of Ben" in words(world.ben.home)

    assert "Later" in words(await opened(world, world.ana))
    await world.after(world.request_video(world.ana, {"video_name": "Last"}), seconds=10)
    assert "Last" in words(world.ana.home)


async def test_a_change_during_the_publication_is_published_after_it(quiet: World) -> None:
    world, admin = quiet, quiet.ana
    changed = False

    async def change(moment: str, method: str, _: Json) -> None:
        nonlocal changed
        if (moment, method, changed) == ("before", "views.publish", False):
            changed = True
            await world.bot.store.limits.change(
                {"MAX_PER_DAY": "7"}, admin.user.id, world.clock.now(), homes=[admin.user.id]
            )

    world.slack.on_request = change
    async with world.running_bot(ADMIN_USERS=admin.user.id):
        await world.after(admin.open_home(), seconds=10)
        assert changed
        assert "Requests per workspace per day: *7*" in words(admin.home)


async def test_an_answer_can_be_found_in_home_when_no_message_can_be_posted(world: World) -> None:
    await opened(world, world.ana)
    world.slack.faults.always("chat.postMessage", REFUSED)
    form = await world.open_form(world.ana)
    await world.after(form.submit({"replica_id": REPLICA, "script": "Hello."}), minutes=10)
    assert world.posts() == []
    shown = words(world.ana.home)
    assert "Ready" in shown
    assert "Watch" in shown


async def test_a_question_can_be_answered_in_home(world: World) -> None:
    await opened(world, world.ana)
    world.slack.faults.always("chat.postMessage", REFUSED)
    world.service.faults.next("create_video", CannedResponse(500))
    form = await world.open_form(world.ana)
    await world.after(form.submit({"replica_id": REPLICA, "script": "Hello."}), minutes=30)
    assert "Needs an answer" in words(world.ana.home)
    stale = world.ana.tab
    await world.after(stale.click("Create again"), minutes=10)
    assert "Ready" in words(world.ana.tab)
    assert world.created_count() == 1

    # A click that comes too late is answered in a modal: there is no conversation.
    assert (await stale.click("I found it")).ok
    await world.settle()
    assert "already settled" in str(world.ana.form.view.body)


async def test_what_waits_for_the_reader_comes_first_in_home(quiet: World) -> None:
    cleo = Person(quiet.slack, "cleo").user.id
    async with quiet.running_bot(APPROVERS=f"{quiet.ana.user.id} {cleo}", APPROVAL_ABOVE="0"):
        await opened(quiet, quiet.ana)
        for person in (quiet.ben, quiet.ana):
            await quiet.request_video(person, {"script": f"Of {person.user.name}."})
        await quiet.advance(minutes=1)
        shown = words(quiet.ana.home)
        order = ["Waiting for your approval", "Of ben.", "Your requests", "Of ana."]
        assert sorted(order, key=shown.index) == order


async def test_forms_open_from_home_and_ask_where_to_post(world: World) -> None:
    home = await opened(world, world.ana)
    await home.click("Create a video")
    form = world.ana.form
    assert not form.values["where"]
    await form.submit({"replica_id": REPLICA, "script": "Hello.", "where": "studio"})
    await home.click("Train a replica")
    form = world.ana.form
    await form.submit({"train_video_url": FOOTAGE, "agreed": ["yes"], "where": "studio"})
    await world.advance(seconds=10)
    shown = words(world.ana.home)
    assert "Training" in shown
    assert "Rendering" in shown
    assert len(world.posts()) == 2


async def test_more_requests_than_fit_are_on_further_pages(world: World) -> None:
    for number in range(12):
        await world.request_video(world.ana, {"video_name": f"Video {number:02}"})
        await world.advance(seconds=1)
    await world.advance(minutes=10)
    home = await opened(world, world.ana)
    assert len(home.view.body["blocks"]) <= 100
    assert "Video 11" in words(home)
    assert "Video 01" not in words(home)
    await world.after(home.click("Next"), seconds=5)
    assert "Video 01" in words(world.ana.home)
    await world.after(world.ana.tab.click("Back"), seconds=5)
    assert "Video 11" in words(world.ana.tab)


@bot_with(ADMIN_USERS="{ana}", MAX_PER_DAY="20")
async def test_admins_see_how_much_is_used_and_what_waits(world: World) -> None:
    await world.request_video(world.ben)
    shown = words(await opened(world, world.ana))
    assert "Requests today (UTC): 1 of 20." in shown
    assert "Connected to the video service" in shown
    assert "All messages delivered" in shown


async def test_a_home_that_was_not_published_is_published_later(world: World) -> None:
    slow = CannedResponse(429, b'{"ok": false, "error": "ratelimited"}', {"Retry-After": "30"})
    world.slack.faults.next("views.publish", slow)
    await world.after(world.ana.open_home(), seconds=29)
    assert len(world.calls("views.publish")) == 1
    await world.advance(seconds=5)
    assert world.ana.home is not None
    # What fails in another way waits for the next change.
    world.slack.faults.next("views.publish", CannedResponse(500))
    await world.after(world.ana.open_home(), seconds=5)
    assert len(world.calls("views.publish")) == 3
    await world.after(world.request_video(world.ana, {"video_name": "Kept"}), seconds=5)
    assert "Kept" in words(world.ana.tab)


async def test_after_a_restart_buttons_of_an_old_home_work_and_opening_it_makes_it_current(
    quiet: World,
) -> None:
    async with quiet.running_bot():
        await quiet.request_video(quiet.ana, {"video_name": "Kept"})
        await opened(quiet, quiet.ana)
    async with quiet.running_bot():
        await quiet.advance(minutes=10)
        assert "Ready" not in words(quiet.ana.home)
        assert (await quiet.ana.tab.click("Details")).ok
        assert "Ready" in words(quiet.ana.form)
        assert "Ready" in words(await opened(quiet, quiet.ana))
        await quiet.after(quiet.request_video(quiet.ana, {"video_name": "New"}), seconds=5)
        assert "New" in words(quiet.ana.tab)


@bot_with(ADMIN_USERS="{ana}")
async def test_admins_answer_questions_that_went_to_somebody_else(world: World) -> None:
    world.service.faults.next("create_video", CannedResponse(500))
    form = await world.open_form(world.ben)
    await form.submit({"replica_id": REPLICA, "script": "A secret.", "where": None})
    await world.advance(minutes=30)
    home = await opened(world, world.ana)
    shown = words(home)
    assert "Waiting for your answer" in shown
    assert f"Requested by <@{world.ben.user.id}>" in shown
    assert "secret" not in shown
    assert "Questions waiting" not in words(await opened(world, world.ben))

    await world.after(home.click("Create again"), minutes=10)
    assert world.created_count() == 1
    assert "Questions waiting" not in words(world.ana.home)


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
    health = health_text(
        used=1, limit=2, unsent=3, key_refused=True, next_try=NINE, slowed_down=True
    )
    job = replace(ASKED, params={"script": LONG, "video_name": LONG})
    view = home_view(
        [job] * PAGE,
        PRESENTERS,
        "/{}".format,
        page=5,
        more=True,
        replicas=[replica_row(KnownReplica("r", LONG), LONG[:75], may_change=True)] * MAX_REPLICAS,
        made=made_with([job] * MAX_MADE, {job.id}, PRESENTERS).blocks,
        questions=[job] * MAX_QUESTIONS,
        to_approve=[job] * MAX_COUNTED,
        admin=admin_sections(
            in_force, spending, health, past=[past] * MAX_PAST, media_hosts="cdn.example.com," * 999
        ),
    )
    assert validate_view(view) == []
    assert validate_view(spending_modal(spending, NINE)) == []
    groups = [Group(id=f"S{user[1:]}", name="N" * 200, handle="h" * 80) for user in USERS]
    assert validate_view(limits_form(in_force, groups)) == []
