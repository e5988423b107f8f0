"""Nobody gets around the owner of a replica, and each owner is told what there is to say."""

from dataclasses import replace
from datetime import timedelta

import pytest

from sandbox.driver import Person
from sandbox.faults import LateCommit, Reset
from tests.databases import query
from tests.journeys.test_owners import (
    SCRIPT,
    change,
    direct,
    home,
    limit_to_asking,
    made,
    not_theirs,
    notice_of_use,
    offered,
    owner_of,
    says,
    told,
    train,
)
from tests.journeys.test_workspace_admins import promote
from tests.modes import on_both_engines
from tests.world import REPLICA, World


@on_both_engines
@pytest.mark.parametrize("named", [REPLICA, REPLICA.upper()], ids=["same", "other case"])
async def test_who_names_anothers_replica_as_their_training_does_not_own_it(
    quiet_world: World, named: str
) -> None:
    world = quiet_world
    world.service.add_replica(REPLICA.upper(), "Anna")
    async with world.running_bot(callbacks=False):
        await limit_to_asking(world, world.ana)
        world.service.faults.next("create_replica", Reset())
        card = await train(world, world.ben, "ben")
        await world.advance(hours=1)
        await world.ben.click(world.question(card), "I found it")
        form = world.ben.modal
        assert form is not None
        await form.submit({"remote_id": named})
        if form.is_open:
            await form.submit({"remote_id": named})
        assert not form.is_open, form.errors
        await world.advance(hours=1)
        assert owner_of(world, REPLICA) == world.ana.user.id
        created = world.created_count()
        await world.request_video(world.ben, {"replica_id": named, "script": SCRIPT})
        await world.advance(minutes=5)
        assert world.created_count() == created


@on_both_engines
async def test_an_admin_who_adds_another_spelling_does_not_become_the_owner(
    quiet_world: World,
) -> None:
    world, cleo = quiet_world, Person(quiet_world.slack, "cleo")
    world.service.add_replica(REPLICA.upper(), "Anna")
    async with world.running_bot(ADMIN_USERS=cleo.user.id):
        await limit_to_asking(world, world.ana)
        await says(world, cleo, f"add {REPLICA.upper()}")
        assert owner_of(world, REPLICA.upper()) in {None, world.ana.user.id}
        await world.request_video(cleo, {"replica_id": REPLICA.upper(), "script": SCRIPT})
        await world.advance(minutes=5)
        assert world.created_count() == 0
        assert told(world, "ana")


async def test_what_a_stopped_training_made_after_all_is_not_offered(world: World) -> None:
    world.service.faults.next("create_replica", LateCommit(timedelta(minutes=10)))
    await train(world, world.ana, "ben")
    await world.advance(minutes=2)
    await world.ben.click(told(world, "ben")[0], "Stop it")
    await world.settle()
    assert "Stopped" in world.ephemerals(world.ben, direct(world, "ben"))[-1]
    await world.advance(hours=8)
    assert not offered(world, world.last_replica_id())


async def test_a_muted_owner_stays_muted_with_another_replica(quiet_world: World) -> None:
    world = quiet_world
    async with world.running_bot():
        await world.ana.click(await notice_of_use(world), "Mute messages")
        await world.settle()
        world.service.add_replica("r-anna-2", "Anna 2")
        await says(world, world.ana, "add r-anna-2")
        await world.request_video(world.ben, {"script": "Second."})
        await world.advance(hours=25)
        assert len(made(world, "ana")) == 1
        await (await home(world, world.ana)).click("Unmute messages")
        await world.request_video(world.ben, {"script": "Third."})
        await world.advance(hours=25)
        assert len(made(world, "ana")) == 2


async def test_the_workspaces_admins_change_replicas_where_none_are_named(
    quiet_world: World,
) -> None:
    world, cleo = quiet_world, Person(quiet_world.slack, "cleo")
    promote(world, cleo)
    async with world.running_bot():
        await says(world, world.ana, f"add {REPLICA}")
        assert await says(world, world.ben, f"rename {REPLICA}") == not_theirs(world, "ana")
        form = await change(world, cleo, f"rename {REPLICA}")
        await form.submit({"owner": "ben"})
        assert not form.is_open, form.errors
        assert owner_of(world, REPLICA) == world.ben.user.id
        form = await change(world, cleo, f"remove {REPLICA}")
        await form.submit()
        assert not form.is_open
        assert not offered(world, REPLICA)


@on_both_engines
async def test_admins_decide_where_a_new_owner_cannot_be_reached(quiet_world: World) -> None:
    world, cleo = quiet_world, Person(quiet_world.slack, "cleo")
    dora = world.slack.add_user("dora")
    async with world.running_bot(ADMIN_USERS=cleo.user.id):
        await limit_to_asking(world, world.ana)
        card = await world.request_video(world.ben, {"script": SCRIPT})
        form = await change(world, cleo, "rename Anna")
        world.slack.faults.next("conversations.open", Reset())
        await form.submit({"owner": "dora"})
        world.slack.users[dora.id] = replace(dora, is_deactivated=True)
        await world.advance(hours=2)
        [asked] = told(world, "cleo")
        await cleo.click(asked, "Approve")
        await world.advance(minutes=5)
        assert world.created_count() == 1
        assert "Ready" in world.now(card).text


async def test_a_notice_about_a_damaged_video_speaks_of_no_training(quiet_world: World) -> None:
    world = quiet_world
    async with world.running_bot(RETENTION_DAYS="1"):
        await says(world, world.ana, f"add {REPLICA}")
        await world.request_video(world.ben, {"script": SCRIPT})
        await world.advance(hours=1)
    query(world.address, "UPDATE jobs SET params = '{'")
    for _ in range(3):
        async with world.running_bot(RETENTION_DAYS="1"):
            await world.advance(hours=25)
    assert not [each.text for each in told(world, "ana") if "training a replica" in each.text]


@on_both_engines
async def test_a_new_owner_decides_about_no_other_replica_of_a_similar_id(
    quiet_world: World,
) -> None:
    world, cleo = quiet_world, Person(quiet_world.slack, "cleo")
    world.slack.add_user("dora")
    for replica in ("r_1", "rx1"):
        world.service.add_replica(replica, replica)
    async with world.running_bot(ADMIN_USERS=cleo.user.id):
        for replica in ("r_1", "rx1"):
            await limit_to_asking(world, world.ana, replica)
        await world.request_video(world.ben, {"replica_id": "rx1", "script": SCRIPT})
        await (await change(world, cleo, "rename r_1")).submit({"owner": "dora"})
        await world.settle()
        assert not told(world, "dora")
        await world.request_video(world.ben, {"replica_id": "r_1", "script": SCRIPT})
        await (await change(world, cleo, "rename r_1")).submit({"owner": "ana"})
        await world.settle()
        assert len(told(world, "ana")) == 2
