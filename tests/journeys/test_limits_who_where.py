"""Who may ask for what and in which channels, and what a form says is left of the limits."""

from sandbox.driver import Person
from sandbox.faults import CannedResponse
from sandbox.slack_objects import UserGroup
from tests.engine.test_unconfirmed import AGAIN
from tests.journeys.test_limits import MIDNIGHT, VALUES, make
from tests.modes import on_both_engines
from tests.world import FOOTAGE, World

GROUP = "S0614TZR7"
# The clock of a world begins on 2026-03-02. A limit's day is no reader's: Slack shows it in theirs.
UNTIL_TOMORROW = f"until {MIDNIGHT}"
UNTIL_APRIL = "until <!date^1775001600^{date_short_pretty} at {time}|2026-04-01 00:00 UTC>"


async def told(world: World, person: Person, command: str = "/video") -> str:
    """Type a command that opens no form, and return the answer."""
    await person.command(command, "", "studio")
    assert person.modal is None
    return world.ephemerals(person)[-1]


# ── Who ───────────────────────────────────────────────────────────────────────────────────────


@on_both_engines
async def test_only_the_people_of_a_list_may_create_or_train_and_admins_always(
    quiet_world: World,
) -> None:
    world = quiet_world
    ana, ben, cleo = world.ana, world.ben, Person(world.slack, "cleo")
    ids = {"VIDEO_USERS": ana.user.id, "TRAINING_USERS": ben.user.id, "ADMIN_USERS": cleo.user.id}
    async with world.running_bot(**ids):  # type: ignore[arg-type]
        await make(world, ana)
        refusal = f"Only some people here can do that. Ask <@{cleo.user.id}>."
        assert await told(world, ana, "/replica") == refusal
        assert await told(world, ben) == refusal
        await world.request_replica(ben)
        await world.request_video(cleo)

        form = await world.open_form(ana)
        limits, now = world.bot.store.limits, world.clock.now()
        await limits.change({"VIDEO_USERS": ben.user.id}, cleo.user.id, now)
        await form.submit(VALUES)
        assert form.errors == {
            "replica_id": "Only some people here can do that. Ask cleo. What you entered "
            "stays here."
        }
        assert world.created_count() == 2


async def test_the_members_of_a_user_group_may_ask_as_slack_says(quiet_world: World) -> None:
    world = quiet_world
    assert world.slack.user_groups is not None
    world.slack.user_groups[GROUP] = group = UserGroup({world.ana.user.id})
    async with world.running_bot(VIDEO_USERS=GROUP, callbacks=False):
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
        await world.ana.click(world.question(card), AGAIN)
        await world.settle()
        assert world.ephemerals(world.ana)[-1] == refusal
        assert world.created_count() == 1


async def test_without_the_scope_nobody_of_a_user_group_may_ask_and_is_told_what_to_do(
    quiet_world: World,
) -> None:
    world = quiet_world
    cleo = world.slack.user("cleo").id
    world.slack.scopes -= {"usergroups:read", "users:read"}
    settings = {"ADMIN_USERS": cleo, "MAX_PER_USER_PER_DAY": "1"}
    async with world.running_bot(VIDEO_USERS=f"{GROUP},{world.ben.user.id}", **settings):  # type: ignore[arg-type]
        assert await told(world, world.ana) == (
            f"I can't check your user groups. Let <@{cleo}> know: I need the usergroups:read scope."
        )
        form = await world.open_form(world.ben)
        assert f"You can make 1 request {UNTIL_TOMORROW}." in str(form.view.body)
        await form.close()
        await make(world, world.ben)
        assert "limit of 1 request a day" in await told(world, world.ben)


async def test_while_slack_does_not_answer_who_is_in_a_user_group_nothing_is_spent(
    quiet_world: World,
) -> None:
    world = quiet_world
    world.slack.faults.always("usergroups.users.list", CannedResponse(503))
    async with world.running_bot(VIDEO_USERS=GROUP):
        form = await world.open_form(world.ana)
        await form.submit(VALUES)
        assert form.errors["replica_id"].startswith("I couldn't check")
        world.slack.faults.always("usergroups.users.list", None)
        assert world.slack.user_groups is not None
        world.slack.user_groups[GROUP] = UserGroup({world.ana.user.id})
        await form.submit()
        assert not form.is_open
        await world.settle()
        assert world.created_count() == 1


# ── Where ─────────────────────────────────────────────────────────────────────────────────────


async def test_other_channels_than_the_allowed_ones_are_refused_with_where_to_go(
    quiet_world: World,
) -> None:
    world = quiet_world
    lobby, studio = world.slack.channel("lobby"), world.slack.channel("studio")
    async with world.running_bot(ALLOWED_CHANNELS=lobby.id, ADMIN_USERS=world.ben.user.id):
        assert await told(world, world.ana) == (
            f"I don't post in this channel. Use <#{lobby.id}>, or a direct message with me. To "
            f"use it here, ask <@{world.ben.user.id}>."
        )
        form = await world.open_form(world.ana, channel="lobby")
        await form.submit({**VALUES, "where": studio.id})
        assert form.errors == {
            "where": "I don't post in this channel. Use #lobby, or a direct message with me. To "
            "use it here, ask ben."
        }
        await form.submit({"where": lobby.id})
        await world.settle()
        assert len(world.slack.messages("lobby")) == 1
        assert world.slack.messages("studio") == []


# ── What is left ──────────────────────────────────────────────────────────────────────────────


async def test_a_form_says_what_is_left_when_that_is_little(quiet_world: World) -> None:
    world = quiet_world
    settings = {"MAX_PER_USER_PER_DAY": "10", "MAX_PER_MONTH": "20"}
    async with world.running_bot(ADMIN_USERS=world.ben.user.id, **settings):  # type: ignore[arg-type]
        await make(world, world.ana, 7)
        assert "left" not in str((await world.open_form(world.ana)).view.body)
        await make(world, world.ana)
        form = await world.open_form(world.ana)
        assert form.view.body["blocks"][0]["elements"][0]["text"] == (
            f"2 of your 10 requests are left {UNTIL_TOMORROW}."
        )
        await form.choose("background", "background_url")
        assert f"2 of your 10 requests are left {UNTIL_TOMORROW}." in str(form.view.body)
        await form.close()
        await make(world, world.ana, 1)
        await make(world, world.ben, 7)
        form = await world.open_form(world.ana, command="/replica")
        assert form.view.body["blocks"][0]["elements"][0]["text"] == (
            f"1 of your 10 requests is left {UNTIL_TOMORROW}.\n"
            f"4 of your workspace's 20 requests are left {UNTIL_APRIL}."
        )
        await form.submit({"train_video_url": FOOTAGE, "agreed": ["yes"]})
        await world.settle()
        assert "limit of 10 requests a day" in await told(world, world.ana)
