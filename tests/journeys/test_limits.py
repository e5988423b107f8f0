"""Limits on what people may ask for: open at once, in a day, and the length of a script."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from bot.store import MonthSpending, PersonSpending, month_start
from sandbox.driver import Modal, Person
from sandbox.faults import CannedResponse, Reset
from sandbox.scenarios import CallbackPlan
from sandbox.slack_objects import Message, UserGroup
from tests.engine.test_unconfirmed import AGAIN
from tests.journeys.test_home import opened, words
from tests.modes import bot_with, on_both_engines
from tests.world import FOOTAGE, REPLICA, World

VALUES = {"replica_id": REPLICA, "script": "Hello, world.", "video_name": "Welcome"}
MIDNIGHT = "<!date^1772496000^{date_short_pretty} at {time}|2026-03-03 00:00 UTC>"
BUSY = CannedResponse(429, "busy")


async def refused(world: World, person: Person) -> str:
    """Ask over a limit; return what the command says, or a form, and require that it is kept."""
    await person.command("/video")
    if person.modal is None:
        return world.ephemerals(person)[-1]
    form = person.modal
    await form.submit(VALUES)
    assert form.is_open
    assert list(form.errors) == ["replica_id"], "under the form's first field"
    await form.close()
    return form.errors["replica_id"]


async def make(world: World, person: Person, count: int = 1) -> list[Message]:
    """Have videos made, one after the other."""
    cards = []
    for _ in range(count):
        cards.append(await world.request_video(person))
        await world.advance(minutes=5)
    return cards


@bot_with(MAX_OPEN_PER_USER="2")
async def test_a_person_with_too_many_open_requests_is_told_so_in_the_form(world: World) -> None:
    await world.request_video(world.ana)
    await world.request_replica(world.ana)
    await world.ana.command("/video")
    assert world.ana.modal is None
    assert world.ephemerals(world.ana)[-1] == (
        "You've reached your limit of 2 requests in progress. Try again when one is done. Need "
        "more? Ask a workspace admin."
    )
    assert world.created_count() == 1
    await world.after(world.request_video(world.ben), minutes=5)
    await world.request_video(world.ana)


@bot_with(MAX_OPEN_PER_USER="1", callbacks=False)
async def test_a_request_that_is_overdue_does_not_count_as_open(world: World) -> None:
    world.service.faults.always("read_video", BUSY)
    await world.after(world.request_video(world.ana), hours=4)
    await world.request_video(world.ana)


@on_both_engines
@bot_with(MAX_PER_DAY="3")
async def test_forms_that_are_sent_at_once_do_not_pass_a_limit_together(world: World) -> None:
    world.service.faults.always("create_video", BUSY)
    names = [f"person-{number}" for number in range(10)]
    people = [Person(world.slack, world.slack.add_user(name).name) for name in names]
    forms = [await world.open_form(person, channel="lobby") for person in people]
    await asyncio.gather(*(form.submit(VALUES) for form in forms))
    assert [form.is_open for form in forms].count(False) == 3


@bot_with(MAX_OPEN_PER_USER="1", MAX_PER_USER_PER_DAY="1", MAX_PER_DAY="1")
async def test_a_form_that_is_sent_twice_is_not_limited_by_itself(world: World) -> None:
    form = await world.submit_form(world.ana, VALUES)
    assert [answer.body for answer in await form.resubmit(5)] == [""] * 5
    await world.settle()
    assert world.created_count() == 1


@bot_with(MAX_PER_USER_PER_DAY="2")
async def test_a_person_may_make_so_many_requests_a_day(world: World) -> None:
    await world.after(make(world, world.ana, 2), hours=2)

    text = await refused(world, world.ana)

    assert text == (
        f"You've reached your limit of 2 requests a day. It resets {MIDNIGHT}. Need more? Ask "
        "a workspace admin."
    )
    await make(world, world.ben, 2)
    await world.after(refused(world, world.ben), hours=13)
    await make(world, world.ana)


@on_both_engines
@bot_with(MAX_PER_DAY="2")
async def test_all_people_together_may_make_so_many_requests_a_day(world: World) -> None:
    await make(world, world.ana)
    await world.after(make(world, world.ben), hours=14)

    text = await refused(world, world.ana)

    assert text == (
        f"Your workspace has reached its limit of 2 requests a day. It resets {MIDNIGHT}. Need "
        "more? Ask a workspace admin."
    )
    await world.advance(hours=1)
    await make(world, world.ana)


async def test_a_request_that_waits_for_the_service_counts_for_the_day_and_the_month(
    quiet: World,
) -> None:
    quiet.service.faults.always("create_video", BUSY)
    async with quiet.running_bot(MAX_PER_USER_PER_DAY="2"):
        await quiet.request_video(quiet.ana)
        await quiet.request_video(quiet.ana)
        assert "limit of 2 requests a day" in await refused(quiet, quiet.ana)
    async with quiet.running_bot(MAX_PER_USER_PER_MONTH="2"):
        assert "limit of 2 requests a month" in await refused(quiet, quiet.ana)


@bot_with(MAX_PER_USER_PER_DAY="1")
async def test_a_request_that_the_service_refused_does_not_count_for_the_day(world: World) -> None:
    world.service.faults.next("create_video", CannedResponse(400, {"message": "no"}))
    await make(world, world.ana)
    await make(world, world.ana)
    await refused(world, world.ana)
    assert world.created_count() == 1


@bot_with(MAX_PER_USER_PER_DAY="2", callbacks=False)
async def test_create_again_counts_for_the_day(world: World) -> None:
    world.service.faults.next("create_video", CannedResponse(500, "?", done=True))
    card = await world.request_video(world.ana)
    await world.after(world.ana.click(world.question(card), AGAIN), minutes=5)
    assert world.created_count() == 2
    await refused(world, world.ana)


@on_both_engines
@pytest.mark.parametrize("limit", ["MAX_PER_USER_PER_DAY", "MAX_PER_DAY"])
async def test_create_again_over_a_limit_creates_nothing_and_says_so_privately(
    quiet: World, limit: str
) -> None:
    quiet.service.faults.next("create_video", CannedResponse(500, "?", done=True))
    settings = {limit: "1", "ADMIN_USERS": quiet.ben.user.id}
    async with quiet.running_bot(callbacks=False, **settings):  # type: ignore[arg-type]
        card = await quiet.request_video(quiet.ana)
        for person in (quiet.ana, quiet.ana, quiet.ben):
            await quiet.after(person.click(quiet.question(card), AGAIN))
        assert quiet.created_count() == 1, "the limit is that of the person who asked"
        [_, text] = quiet.ephemerals(quiet.ana)[-2:]
        assert "limit of 1 request a day" in text
        assert "limit of 1 request a day" in quiet.ephemerals(quiet.ben)[-1]
        assert f"It resets {MIDNIGHT}." in text
        assert AGAIN in str(quiet.question(card).blocks), "it can be pressed again later"
        await quiet.advance(hours=24)
        await quiet.after(quiet.ana.click(quiet.question(card), AGAIN))
        assert quiet.created_count() == 2


APRIL = "<!date^1775001600^{date_short_pretty} at {time}|2026-04-01 00:00 UTC>"


@on_both_engines
async def test_a_month_has_limits_of_its_own_and_ends_with_the_calendar(quiet: World) -> None:
    quiet.clock.set(datetime(2026, 3, 30, 23, tzinfo=UTC))
    settings = {"MAX_PER_USER_PER_MONTH": "2", "MAX_PER_MONTH": "3"}
    async with quiet.running_bot(**settings):  # type: ignore[arg-type]
        form = await quiet.open_form(Person(quiet.slack, "cleo"))
        await make(quiet, quiet.ana, 2)
        await quiet.advance(hours=24)  # on the 31st: nothing is left of the day
        assert (await refused(quiet, quiet.ana)).startswith(
            f"You've reached your limit of 2 requests a month. It resets {APRIL}. "
        )
        await make(quiet, quiet.ben)
        assert (await refused(quiet, quiet.ben)).startswith(
            f"Your workspace has reached its limit of 3 requests a month. It resets {APRIL}. "
        )
        await form.submit(VALUES)
        assert "limit of 3 requests a month" in str(form.errors)
        await quiet.advance(hours=1)
        await make(quiet, quiet.ana)


async def test_a_change_holds_for_every_copy_of_the_bot_at_once(world_of_copies: World) -> None:
    world = world_of_copies
    world.service.faults.always("create_video", BUSY)
    async with world.running_copies(MAX_PER_DAY="9") as copies:
        forms = []
        for person, copy in zip((world.ana, world.ben), copies, strict=True):  # both know limits
            await world.at(copy, person.command("/video"))
            forms.append(person.form)
        await copies[0].store.limits.change({"MAX_PER_DAY": "1"}, "U0", world.clock.now())
        await asyncio.gather(
            *(world.at(copy, form.submit(VALUES)) for copy, form in zip(copies, forms, strict=True))
        )
        assert [form.is_open for form in forms].count(False) == 1


GROUP = "S0614TZR7"
# The clock of a world begins on 2026-03-02. A limit's day is no reader's: Slack shows it in theirs.
UNTIL_TOMORROW = f"until {MIDNIGHT}"
UNTIL_APRIL = "until <!date^1775001600^{date_short_pretty} at {time}|2026-04-01 00:00 UTC>"


async def told(world: World, person: Person, command: str = "/video") -> str:
    """Type a command that opens no form, and return the answer."""
    await person.command(command, "", "studio")
    assert person.modal is None
    return world.ephemerals(person)[-1]


@on_both_engines
async def test_only_the_people_of_a_list_may_create_or_train_and_admins_always(
    quiet: World,
) -> None:
    ana, ben, cleo = quiet.ana, quiet.ben, Person(quiet.slack, "cleo")
    ids = {"VIDEO_USERS": ana.user.id, "TRAINING_USERS": ben.user.id, "ADMIN_USERS": cleo.user.id}
    async with quiet.running_bot(**ids):  # type: ignore[arg-type]
        await make(quiet, ana)
        refusal = f"Only some people here can do that. Ask <@{cleo.user.id}>."
        assert await told(quiet, ana, "/replica") == refusal
        assert await told(quiet, ben) == refusal
        await quiet.request_replica(ben)
        await quiet.request_video(cleo)

        form = await quiet.open_form(ana)
        limits, now = quiet.bot.store.limits, quiet.clock.now()
        await limits.change({"VIDEO_USERS": ben.user.id}, cleo.user.id, now)
        await form.submit(VALUES)
        assert form.errors == {
            "replica_id": "Only some people here can do that. Ask cleo. What you entered "
            "stays here."
        }
        assert quiet.created_count() == 2


@bot_with(VIDEO_USERS=GROUP, callbacks=False)
async def test_the_members_of_a_user_group_may_ask_as_slack_says(world: World) -> None:
    assert world.slack.user_groups is not None
    world.slack.user_groups[GROUP] = group = UserGroup({world.ana.user.id})
    world.service.faults.next("create_video", CannedResponse(500, "?", done=True))
    card = await world.request_video(world.ana)
    refusal = "Only some people here can do that. Ask a workspace admin."
    assert await told(world, world.ben) == refusal
    await world.request_replica(world.ben)
    assert len(world.calls("usergroups.users.list")) == 1, "one answer serves for a while"

    form = await world.open_form(world.ana)
    group.is_disabled = True
    await world.advance(minutes=11)
    await form.submit(VALUES)
    assert form.errors["replica_id"].startswith(refusal)
    await form.close()
    await world.after(world.ana.click(world.question(card), AGAIN))
    assert world.ephemerals(world.ana)[-1] == refusal
    assert world.created_count() == 1


async def test_without_the_scope_nobody_of_a_user_group_may_ask_and_is_told_what_to_do(
    quiet: World,
) -> None:
    cleo = quiet.slack.user("cleo").id
    quiet.slack.scopes -= {"usergroups:read", "users:read"}
    settings = {"ADMIN_USERS": cleo, "MAX_PER_USER_PER_DAY": "1"}
    async with quiet.running_bot(VIDEO_USERS=f"{GROUP},{quiet.ben.user.id}", **settings):  # type: ignore[arg-type]
        assert await told(quiet, quiet.ana) == (
            f"I can't check your user groups. Let <@{cleo}> know: I need the usergroups:read scope."
        )
        form = await quiet.open_form(quiet.ben)
        assert f"You can make 1 request {UNTIL_TOMORROW}." in str(form.view.body)
        await form.close()
        await make(quiet, quiet.ben)
        assert "limit of 1 request a day" in await told(quiet, quiet.ben)


@bot_with(VIDEO_USERS=GROUP)
async def test_while_slack_does_not_answer_who_is_in_a_user_group_nothing_is_spent(
    world: World,
) -> None:
    world.slack.faults.always("usergroups.users.list", CannedResponse(503))
    form = await world.submit_form(world.ana, VALUES)
    assert form.errors["replica_id"].startswith("I couldn't check")
    world.slack.faults.always("usergroups.users.list", None)
    assert world.slack.user_groups is not None
    world.slack.user_groups[GROUP] = UserGroup({world.ana.user.id})
    await world.after(form.send())
    assert world.created_count() == 1


async def test_other_channels_than_the_allowed_ones_are_refused_with_where_to_go(
    quiet: World,
) -> None:
    lobby, studio = quiet.slack.channel("lobby"), quiet.slack.channel("studio")
    async with quiet.running_bot(ALLOWED_CHANNELS=lobby.id, ADMIN_USERS=quiet.ben.user.id):
        assert await told(quiet, quiet.ana) == (
            f"I don't post in this channel. Use <#{lobby.id}>, or a direct message with me. To "
            f"use it here, ask <@{quiet.ben.user.id}>."
        )
        form = await quiet.submit_form(quiet.ana, {**VALUES, "where": studio.id}, channel="lobby")
        assert form.errors == {
            "where": "I don't post in this channel. Use #lobby, or a direct message with me. To "
            "use it here, ask ben."
        }
        await quiet.after(form.submit({"where": lobby.id}))
        assert len(quiet.slack.messages("lobby")) == 1
        assert quiet.slack.messages("studio") == []


async def test_a_form_says_what_is_left_when_that_is_little(quiet: World) -> None:
    settings = {"MAX_PER_USER_PER_DAY": "10", "MAX_PER_MONTH": "20"}
    async with quiet.running_bot(ADMIN_USERS=quiet.ben.user.id, **settings):  # type: ignore[arg-type]
        await make(quiet, quiet.ana, 7)
        assert "left" not in str((await quiet.open_form(quiet.ana)).view.body)
        await make(quiet, quiet.ana)
        form = await quiet.open_form(quiet.ana)
        assert form.view.body["blocks"][0]["elements"][0]["text"] == (
            f"2 of your 10 requests are left {UNTIL_TOMORROW}."
        )
        await form.choose("background", "background_url")
        assert f"2 of your 10 requests are left {UNTIL_TOMORROW}." in str(form.view.body)
        await form.close()
        await make(quiet, quiet.ana, 1)
        await make(quiet, quiet.ben, 7)
        form = await quiet.open_form(quiet.ana, command="/replica")
        assert form.view.body["blocks"][0]["elements"][0]["text"] == (
            f"1 of your 10 requests is left {UNTIL_TOMORROW}.\n"
            f"4 of your workspace's 20 requests are left {UNTIL_APRIL}."
        )
        await quiet.after(form.submit({"train_video_url": FOOTAGE, "agreed": ["yes"]}))
        assert "limit of 10 requests a day" in await told(quiet, quiet.ana)


PER_DAY, PER_USER = "MAX_PER_DAY", "MAX_PER_USER_PER_DAY"
ONE_VIDEO = {"replica_id": REPLICA, "script": "Hello, world."}


async def limits_form(world: World, admin: Person) -> Modal:
    """Open the Home tab and the form for limits."""
    home = await opened(world, admin)
    assert (await home.click("Change limits")).ok
    await world.settle()
    return admin.form


@on_both_engines
async def test_a_limit_that_an_admin_changes_holds_from_the_next_request_on(quiet: World) -> None:
    ana, ben, cleo = quiet.ana, quiet.ben, Person(quiet.slack, "cleo")
    admins = f"{ana.user.id},{cleo.user.id}"
    async with quiet.running_bot(ADMIN_USERS=admins, MAX_PER_USER_PER_DAY="10"):
        await opened(quiet, cleo)
        await quiet.request_video(ben)
        assert "Requests per person per day: *10*\n" in words(await opened(quiet, ana))

        form = await limits_form(quiet, ana)
        assert form.values[f"{PER_USER}.0"] == "10"
        await quiet.after(form.send({PER_USER: "1", "VIDEO_USERS": ["ana", "ben"]}), seconds=10)
        for admin in (ana, cleo):
            shown = words(admin.home)
            assert f"Requests per person per day: *1*, changed by <@{ana.user.id}>" in shown
            assert f"<@{ana.user.id}> lowered requests per person per day from 10 to 1" in shown
        answer = await ben.command("/video")
        assert "your limit of 1 request a day" in answer.body
        request = await quiet.submit_form(cleo, ONE_VIDEO)
        assert not request.is_open, "admins are on every list"

        # An empty number is the one of the settings, and an empty list is everyone.
        form = await limits_form(quiet, cleo)
        await quiet.after(form.submit({PER_USER: None, "VIDEO_USERS": []}), seconds=10)
        shown = words(ana.home)
        assert "Requests per person per day: *10*\n" in shown
        assert "Who can create videos: everyone\n" in shown
        assert f"<@{cleo.user.id}> raised requests per person per day from 1 to 10" in shown
        await quiet.request_video(ben)


@bot_with(ADMIN_USERS="{ana}")
async def test_a_user_group_is_chosen_by_its_name(world: World) -> None:
    ana, ben, group = world.ana, world.ben, "S0MARKETING"
    assert world.slack.user_groups is not None
    world.slack.user_groups[group] = UserGroup({ben.user.id})
    form = await limits_form(world, ana)
    await form.send({"VIDEO_USERS": ["cleo"], "VIDEO_USERS_GROUPS": ["Marketing (@marketing)"]})
    cleo = world.slack.user("cleo").id
    shown = f"Who can create videos: <!subteam^{group}> and <@{cleo}>"
    await world.advance(seconds=10)
    assert shown in words(ana.home)
    await world.request_video(ben)

    # Where Slack does not say them, the groups on the lists stay there.
    world.slack.faults.next("usergroups.list", CannedResponse(503))
    form = await limits_form(world, ana)
    assert "VIDEO_USERS_GROUPS.0" not in form.values
    await world.after(form.submit({"VIDEO_USERS": None, PER_DAY: "50"}), seconds=10)
    assert f"Who can create videos: <!subteam^{group}>," in words(ana.home)


async def test_nobody_but_an_admin_changes_a_limit(quiet: World) -> None:
    async with quiet.running_bot(ADMIN_USERS=quiet.ana.user.id):
        assert "Limits" not in words(await opened(quiet, quiet.ben))
        form = await limits_form(quiet, quiet.ana)
        await quiet.ben.open_home()
    # What an admin had open is of no use to somebody who is none any more.
    async with quiet.running_bot(ADMIN_USERS=quiet.ben.user.id):
        stale = quiet.ana.tab
        await form.submit({PER_DAY: "1"})
        assert form.is_open
        assert "Only admins can change limits" in str(form.errors)
        await form.close()
        await quiet.after(stale.click("Change limits"))
        assert "Only admins can change limits" in str(quiet.ana.form.view.body)
        await quiet.ana.form.close()
        assert f"{PER_DAY}: *1*" not in words(await opened(quiet, quiet.ben))
        await quiet.request_video(quiet.ben)
        await quiet.request_video(quiet.ben)


@on_both_engines
@bot_with(ADMIN_USERS="{ana},{ben}")
async def test_an_admin_is_told_what_another_has_changed_meanwhile(world: World) -> None:
    ana, ben = world.ana, world.ben
    first, second = await limits_form(world, ana), await limits_form(world, ben)
    await first.submit({PER_DAY: "7"}, clicks=2)
    assert first.errors == {}

    await second.submit({PER_USER: "3"})
    assert second.is_open
    told = words(second)
    assert f"<@{ana.user.id}> has set *requests per workspace per day* to 7." in told
    assert "saved yet" in told
    assert second.values[f"{PER_DAY}.1"] == "7", "what nobody touched is what is in force"
    assert second.values[f"{PER_USER}.1"] == "3", "nothing typed is lost"
    await second.submit()
    assert ben.modal is None
    await world.advance(seconds=10)
    shown = words(ana.home)
    assert f"per day: *7*, changed by <@{ana.user.id}>" in shown
    assert f"per day: *3*, changed by <@{ben.user.id}>" in shown
    assert shown.count("lowered requests per workspace") == 1, "two clicks are one change"


@bot_with(ADMIN_USERS="{ana}")
async def test_all_mistakes_in_the_limits_are_shown_at_once(world: World) -> None:
    form = await limits_form(world, world.ana)
    # As a client that does not check numbers could send it.
    for name, value in ((PER_DAY, "0"), (PER_USER, "many")):
        form.view.values[f"{name}.0"][name]["value"] = value
    await form.submit({"MAX_SCRIPT": "100"})
    assert form.errors == {
        f"{PER_DAY}.0": "This must be between 1 and 1,000,000, not 0.",
        f"{PER_USER}.0": "This must be between 1 and 1,000,000 (in digits alone), not “many”.",
    }
    assert form.values["MAX_SCRIPT.0"] == "100"
    await form.send({PER_DAY: "5", PER_USER: "5"})


async def test_admins_see_what_was_spent_each_month_and_by_whom(quiet: World) -> None:
    ana, ben = quiet.ana, quiet.ben
    async with quiet.running_bot(ADMIN_USERS=ana.user.id):
        home = await opened(quiet, ana)
        assert "*Usage this month*\nNothing yet." in words(home)
        for _ in range(2):
            await quiet.request_video(ben, {"script": "word " * 300})
        await quiet.after(quiet.request_replica(ana), seconds=10)
        shown = words(ana.home)
        total = "2 videos, about 4 min spoken, 1 training"
        assert f"*Usage this month*\n{total}.\n<@{ben.user.id}>: 2 videos, about 4 min" in shown
        assert f"\n<@{ana.user.id}>: 1 training" in shown

    await quiet.advance(days=31)  # no bot has work meanwhile, so this takes no time
    async with quiet.running_bot(ADMIN_USERS=ana.user.id):
        await quiet.after(opened(quiet, ana), seconds=10)
        assert "Nothing yet." in words(ana.tab)
        await ana.tab.click("View usage")
        assert "*Nothing yet*" in words(ana.form)
        before = month_start(quiet.clock.now()) - timedelta(days=1)
        await ana.form.choose("month", before.strftime("%B %Y"))
        assert f"*{total}*" in words(ana.form)
        assert f"<@{ben.user.id}>: 2 videos, about 4 min spoken" in words(ana.form)


MINUTE = " ".join(["word"] * 150)


async def spent(world: World, moment: datetime) -> MonthSpending:
    return await world.bot.store.limits.fetch_spending(moment)


@on_both_engines
async def test_sums_count_what_may_have_cost_money_and_outlive_the_jobs(quiet: World) -> None:
    begun = quiet.clock.now()
    ana, ben = quiet.ana.user.id, quiet.ben.user.id
    async with quiet.running_bot():
        await quiet.request_video(quiet.ana, {"script": f"{MINUTE} {MINUTE}"})
        await quiet.after(quiet.request_replica(quiet.ben), minutes=5)
        # One that the service refuses costs nothing; one without an answer may have.
        quiet.service.faults.next("create_video", CannedResponse(400, {"error": "no"}))
        await quiet.after(quiet.request_video(quiet.ana, {"script": "Refused."}), minutes=5)
        quiet.service.callback_plan = CallbackPlan(times=0)
        quiet.service.faults.next("create_video", Reset(done=True))
        asking = await quiet.after(quiet.request_video(quiet.ana, {"script": MINUTE}), minutes=16)
        await quiet.after(quiet.ana.click(quiet.question(asking), "Create again"), minutes=5)
        expected = [
            PersonSpending(ana, 3, 0, timedelta(minutes=4)),
            PersonSpending(ben, 0, 1, timedelta(0)),
        ]
        sums = await spent(quiet, begun)
        assert sums.people == expected
        assert sums.total == PersonSpending("", 3, 1, timedelta(minutes=4))
        assert sums.since == begun.replace(day=1, hour=0, minute=0, second=0, microsecond=0)

        later = begun + timedelta(days=31)
        assert (await spent(quiet, later)).people == []
    await quiet.advance(days=31)
    async with quiet.running_bot():
        await quiet.after(quiet.request_video(quiet.ben, {"script": MINUTE}), minutes=5)
        next_month = [PersonSpending(ben, 1, 0, timedelta(minutes=1))]
        assert (await spent(quiet, later)).people == next_month

    await quiet.advance(days=400)
    for _ in range(2):  # nothing is counted twice
        async with quiet.running_bot():
            await quiet.settle()
            assert quiet.query("SELECT id FROM jobs") == []
            assert quiet.query("SELECT id FROM attempts") == []
            assert (await spent(quiet, begun)).people == expected
            assert (await spent(quiet, later)).people == next_month
