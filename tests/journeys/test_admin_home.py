"""What admins see and change in the Home tab: spending and limits, and nobody else."""

from datetime import timedelta

from bot.store import month_start
from sandbox.driver import Modal, Person
from sandbox.faults import CannedResponse
from sandbox.slack_objects import UserGroup
from tests.journeys.test_home import opened, words
from tests.modes import on_both_engines
from tests.world import REPLICA, World

PER_DAY, PER_USER = "MAX_PER_DAY", "MAX_PER_USER_PER_DAY"
ONE_VIDEO = {"replica_id": REPLICA, "script": "Hello, world."}


async def limits_form(world: World, admin: Person) -> Modal:
    """Open the Home tab and the form for limits."""
    home = await opened(world, admin)
    assert (await home.click("Change limits")).ok
    await world.settle()
    assert admin.modal is not None
    return admin.modal


@on_both_engines
async def test_a_limit_that_an_admin_changes_holds_from_the_next_request_on(
    quiet_world: World,
) -> None:
    world = quiet_world
    ana, ben, cleo = world.ana, world.ben, Person(world.slack, "cleo")
    admins = f"{ana.user.id},{cleo.user.id}"
    async with world.running_bot(ADMIN_USERS=admins, MAX_PER_USER_PER_DAY="10"):
        await opened(world, cleo)
        await world.request_video(ben)
        assert "Requests per person per day: *10*\n" in words(await opened(world, ana))

        form = await limits_form(world, ana)
        assert form.values[f"{PER_USER}.0"] == "10"
        await form.submit({PER_USER: "1", "VIDEO_USERS": ["ana", "ben"]})
        assert not form.is_open, form.errors
        await world.advance(seconds=10)
        for admin in (ana, cleo):
            shown = words(admin.home)
            assert f"Requests per person per day: *1*, changed by <@{ana.user.id}>" in shown
            assert f"<@{ana.user.id}> lowered requests per person per day from 10 to 1" in shown
        answer = await ben.command("/video")
        assert "your limit of 1 request a day" in answer.body
        request = await world.open_form(cleo)
        await request.submit(ONE_VIDEO)
        assert not request.is_open, "admins are on every list"

        # An empty number is the one of the settings, and an empty list is everyone.
        form = await limits_form(world, cleo)
        await form.submit({PER_USER: None, "VIDEO_USERS": []})
        await world.advance(seconds=10)
        shown = words(ana.home)
        assert "Requests per person per day: *10*\n" in shown
        assert "Who can create videos: everyone\n" in shown
        assert f"<@{cleo.user.id}> raised requests per person per day from 1 to 10" in shown
        await world.request_video(ben)


async def test_a_user_group_is_chosen_by_its_name(quiet_world: World) -> None:
    world = quiet_world
    ana, ben, group = world.ana, world.ben, "S0MARKETING"
    assert world.slack.user_groups is not None
    world.slack.user_groups[group] = UserGroup({ben.user.id})
    async with world.running_bot(ADMIN_USERS=ana.user.id):
        form = await limits_form(world, ana)
        await form.submit(
            {"VIDEO_USERS": ["cleo"], "VIDEO_USERS_GROUPS": ["Marketing (@marketing)"]}
        )
        assert not form.is_open, form.errors
        cleo = world.slack.user("cleo").id
        shown = f"Who can create videos: <!subteam^{group}> and <@{cleo}>"
        await world.advance(seconds=10)
        assert shown in words(ana.home)
        await world.request_video(ben)

        # Where Slack does not say them, the groups on the lists stay there.
        world.slack.faults.next("usergroups.list", CannedResponse(503))
        form = await limits_form(world, ana)
        assert "VIDEO_USERS_GROUPS.0" not in form.values
        await form.submit({"VIDEO_USERS": None, PER_DAY: "50"})
        await world.advance(seconds=10)
        assert f"Who can create videos: <!subteam^{group}>," in words(ana.home)


async def test_nobody_but_an_admin_changes_a_limit(quiet_world: World) -> None:
    world = quiet_world
    async with world.running_bot(ADMIN_USERS=world.ana.user.id):
        assert "Limits" not in words(await opened(world, world.ben))
        form = await limits_form(world, world.ana)
        await world.ben.open_home()
    # What an admin had open is of no use to somebody who is none any more.
    async with world.running_bot(ADMIN_USERS=world.ben.user.id):
        assert world.ana.home is not None
        stale = world.ana.home
        await form.submit({PER_DAY: "1"})
        assert form.is_open
        assert "Only admins can change limits" in str(form.errors)
        await form.close()
        await stale.click("Change limits")
        await world.settle()
        assert world.ana.modal is not None
        assert "Only admins can change limits" in str(world.ana.modal.view.body)
        await world.ana.modal.close()
        assert f"{PER_DAY}: *1*" not in words(await opened(world, world.ben))
        await world.request_video(world.ben)
        await world.request_video(world.ben)


@on_both_engines
async def test_an_admin_is_told_what_another_has_changed_meanwhile(quiet_world: World) -> None:
    world = quiet_world
    ana, ben = world.ana, world.ben
    async with world.running_bot(ADMIN_USERS=f"{ana.user.id},{ben.user.id}"):
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


async def test_all_mistakes_in_the_limits_are_shown_at_once(quiet_world: World) -> None:
    world = quiet_world
    async with world.running_bot(ADMIN_USERS=world.ana.user.id):
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
        await form.submit({PER_DAY: "5", PER_USER: "5"})
        assert not form.is_open


async def test_admins_see_what_was_spent_each_month_and_by_whom(quiet_world: World) -> None:
    world = quiet_world
    ana, ben = world.ana, world.ben
    async with world.running_bot(ADMIN_USERS=ana.user.id):
        home = await opened(world, ana)
        assert "*Usage this month*\nNothing yet." in words(home)
        for _ in range(2):
            await world.request_video(ben, {"script": "word " * 300})
        await world.request_replica(ana)
        await world.advance(seconds=10)
        shown = words(ana.home)
        total = "2 videos, about 4 min spoken, 1 training"
        assert f"*Usage this month*\n{total}.\n<@{ben.user.id}>: 2 videos, about 4 min" in shown
        assert f"\n<@{ana.user.id}>: 1 training" in shown

    await world.advance(days=31)  # no bot has work meanwhile, so this takes no time
    async with world.running_bot(ADMIN_USERS=ana.user.id):
        await opened(world, ana)
        await world.advance(seconds=10)
        assert ana.home is not None
        assert "Nothing yet." in words(ana.home)
        await ana.home.click("View usage")
        assert ana.modal is not None
        assert "*Nothing yet*" in words(ana.modal)
        before = month_start(world.clock.now()) - timedelta(days=1)
        await ana.modal.choose("month", before.strftime("%B %Y"))
        assert f"*{total}*" in words(ana.modal)
        assert f"<@{ben.user.id}>: 2 videos, about 4 min spoken" in words(ana.modal)


async def test_admins_see_how_many_requests_wait_for_approval(quiet_world: World) -> None:
    world = quiet_world
    ana, ben = world.ana, world.ben
    async with world.running_bot(ADMIN_USERS=ana.user.id, APPROVERS=ana.user.id):
        assert "approval" not in words(await opened(world, ana))
        await world.request_replica(ben)
        await world.ana.open_home()
        await world.advance(seconds=10)
        assert "Waiting for approval: 1." in words(ana.home)
