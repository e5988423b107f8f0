"""The replicas that the service lists are offered in forms, in every copy of the bot."""

from datetime import timedelta

from sandbox.faults import CannedResponse
from tests.modes import on_both_engines
from tests.world import REPLICA, World, offered_ids


async def test_the_form_offers_the_replicas_that_the_service_lists(quiet_world: World) -> None:
    world = quiet_world
    for number in range(45):
        world.service.add_replica(f"r-stock-{number:02}", f"Stock {number:02}")
    async with world.running_bot(VIDEO_API_LISTS="yes"):
        await world.settle()
        await world.request_video(world.ana)
        form = await world.open_form(world.ana)
        offered = await offered_ids(form)
        assert offered[0] == REPLICA, "what was used comes first"
        assert offered[1:3] == ["r-stock-00", "r-stock-01"]
        assert len(offered) == 46
        assert await offered_ids(form, "stock 3") == [f"r-stock-3{n}" for n in range(10)]
        pages = len(world.requests_for("list_replicas"))
        assert pages == 3

        world.service.add_replica("r-new", "New", status="training")
        world.service.delete("r-stock-00")
        world.service.delete(REPLICA)
        await world.advance(minutes=10)
        offered = await offered_ids(form)
        assert {"r-new", "r-stock-00", REPLICA} <= {*offered}, "it may be back in the next list"
        [option] = await form.suggest("replica_id", "r-new")
        assert "training" in str(option["text"])

        await a_day_later(world)
        offered = await offered_ids(form)
        assert "r-stock-00" not in offered
        assert REPLICA in offered, "a person has used it: only a read shows whether it is gone"
        await world.ana.command("/replica", "list", "studio")
        assert "1970" not in world.ephemerals(world.ana)[-1]


async def test_a_list_that_is_wrong_for_an_hour_takes_nothing_away(quiet_world: World) -> None:
    world = quiet_world
    async with world.running_bot(VIDEO_API_LISTS="yes"):
        await world.settle()
        for fault in (
            CannedResponse(500, "<html>Oops</html>"),
            CannedResponse(200, {"data": []}),
            CannedResponse(200, {"data": [{"replica_id": "two words", "status": "ready"}, 7]}),
            CannedResponse(200, '{"data": ' * 900 + "[]" + "}" * 900),
        ):
            world.service.faults.always("list_replicas", fault)
            await world.advance(hours=1)
            form = await world.open_form(world.ana)
            assert await offered_ids(form) == [REPLICA], fault
            await form.close()


async def test_one_copy_asks_for_the_list_and_all_offer_it(world_of_copies: World) -> None:
    world = world_of_copies
    async with world.running_copies(2, VIDEO_API_LISTS="yes") as copies:
        await world.settle()
        world.service.add_replica("r-new", "New")
        before = len(world.requests_for("list_replicas"))
        await world.advance(minutes=10)
        assert len(world.requests_for("list_replicas")) == before + 1
        for copy in copies:
            form = await world.at(copy, world.open_form(world.ana))
            assert "r-new" in await world.at(copy, offered_ids(form))
            await form.close()


async def test_a_list_of_which_a_part_is_unreadable_or_repeated_takes_nothing_away(
    quiet_world: World,
) -> None:
    world = quiet_world
    for number in range(45):
        world.service.add_replica(f"r-{number:02}", f"Stock {number:02}")
    async with world.running_bot(VIDEO_API_LISTS="yes"):
        await world.settle()
        world.service.lists.overrides = {"r-07": {"status": None}}
        await a_day_later(world)
        form = await world.open_form(world.ana)
        assert "r-07" in await offered_ids(form)
        world.service.lists.overrides = {}
        world.service.lists.pages = False
        await a_day_later(world)
        assert len(await offered_ids(form)) == 46


async def a_day_later(world: World) -> None:
    """Have the list read now and after a day in which nothing else happens."""
    await world.advance(minutes=11)
    world.clock.set(world.clock.now() + timedelta(days=1))
    await world.advance(minutes=20)


@on_both_engines
async def test_a_name_that_no_database_can_store_keeps_no_replica_from_the_form(
    quiet_world: World,
) -> None:
    world = quiet_world
    world.service.add_replica("r-odd", "a\x00b\ud800")
    async with world.running_bot(VIDEO_API_LISTS="yes"):
        await world.settle()
        assert {REPLICA, "r-odd"} == {*await offered_ids(await world.open_form(world.ana))}
