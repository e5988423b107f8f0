"""Without ``ADMIN_USERS``, the workspace's own owners and admins act as admins."""

from dataclasses import replace
from typing import Literal

import pytest

from sandbox.driver import Person
from sandbox.faults import CannedResponse, Hang
from sandbox.slack import RESPONSE_TIMEOUT
from tests.journeys.test_admin_home import PER_DAY, limits_form
from tests.journeys.test_home import opened, words
from tests.journeys.test_people import unconfirmed
from tests.world import World


def promote(world: World, person: Person, role: Literal["admin", "owner"] = "admin") -> None:
    """Make somebody an admin or owner of the workspace."""
    user = person.user
    world.slack.users[user.id] = replace(world.slack.users[user.id], role=role)


@pytest.mark.parametrize("role", ["admin", "owner"])
async def test_the_workspaces_admins_act_as_admins_where_none_are_named(
    world: World, role: Literal["admin", "owner"]
) -> None:
    promote(world, world.ben, role)
    card = await unconfirmed(world)
    assert "Limits" not in words(await opened(world, world.ana))
    form = await limits_form(world, world.ben)
    await form.submit({PER_DAY: "7"})
    assert not form.is_open, form.errors
    await world.advance(seconds=10)
    assert f"Requests per workspace per day: *7*, changed by <@{world.ben.user.id}>" in words(
        world.ben.home
    )
    await world.ben.click(world.question(card), "Cancel request")
    await world.settle()
    assert world.ephemerals(world.ben) == []
    assert "ancelled" in world.now(card).text
    asked = [
        each for each in world.calls("users.info") if each.arguments["user"] == world.ben.user.id
    ]
    assert len(asked) == 1, "what Slack says counts for some minutes"


async def test_where_admins_are_named_the_workspaces_own_are_nobody(quiet_world: World) -> None:
    world = quiet_world
    promote(world, world.ben)
    async with world.running_bot(ADMIN_USERS=world.ana.user.id):
        assert "Limits" not in words(await opened(world, world.ben))
        assert "Limits" in words(await opened(world, world.ana))


async def test_only_full_members_of_the_workspace_are_its_admins(quiet_world: World) -> None:
    slack = quiet_world.slack
    slack.enterprise = "E0ORG"
    people = {
        "pam": slack.add_user("pam", team="T0OTHER", enterprise="E0ORG", channels=["studio"]),
        "otto": slack.add_user("otto", team="T0GLOBEX", channels=["studio"]),
        "gus": slack.add_user("gus", guest="multi-channel", channels=["studio"]),
    }
    for user in people.values():
        slack.users[user.id] = replace(user, role="admin")
    async with quiet_world.running_bot():
        for name in people:
            person = Person(slack, name)
            await person.open_home()
            await quiet_world.settle()
            assert person.home is None or "Limits" not in words(person.home), name


@pytest.mark.parametrize("fault", [Hang(), CannedResponse(503)], ids=["silence", "503"])
async def test_where_slack_does_not_say_it_nobody_is_an_admin(
    world: World, fault: Hang | CannedResponse
) -> None:
    promote(world, world.ben)
    form = await limits_form(world, world.ben)
    world.slack.faults.always("users.info", fault)
    world.slack.response_timeout = RESPONSE_TIMEOUT
    await world.clock.advance(world.timings.person_max_age * 2)
    await form.submit({PER_DAY: "1"})
    assert "Only admins can change limits" in str(form.errors)
