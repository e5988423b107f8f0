"""The picker of replicas: what it offers during typing, and how its form is checked."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from bot.timings import Timings
from sandbox.driver import Modal, Person
from sandbox.faults import CannedResponse, Drip, Fault, Hang, Reset
from sandbox.scenarios import Scenario
from tests.modes import bot_with, in_both_modes, on_both_engines
from tests.world import REPLICA, World, offered_ids


async def _adds(world: World, *replicas: str) -> None:
    """Have replicas added one after the other: an id, and its name after a space."""
    for each in replicas:
        replica_id, _, name = each.partition(" ")
        if replica_id not in world.service.replicas:
            world.service.add_replica(replica_id, name)
        await world.after(world.ana.command("/replica", f"add {replica_id}"), seconds=1)


async def _sets_default(world: World, replica_id: str) -> None:
    await world.after(world.ana.command("/replica", f"default {replica_id}"))


async def _texts(form: Modal, query: str = "") -> list[str]:
    return [option["text"]["text"] for option in await form.suggest("replica_id", query)]


async def _sends_off(world: World, person: Person, replica_id: str) -> Modal:
    return await world.submit_form(person, {"replica_id": replica_id}, "Hello.")


async def test_it_finds_what_was_typed_letter_for_letter_in_names_and_ids(
    world: World, subtests: pytest.Subtests
) -> None:
    for query, found in [
        ("anna", ["r-1"]),
        ("NNA LE", ["r-1"]),
        ("  anna ", ["r-1"]),
        ("R-2", ["r-2"]),
        ("żan", ["r-3"]),
        ("ŻANETA", ["r-3"]),
        ("r-", ["r-3", "r-2", "r-1"]),
        ("%", ["r-2"]),
        ("0%", ["r-2"]),
        ("_", ["r-3"]),
        ("\\", ["r-1"]),
        ("a%e", []),
        ("r_1", []),
        ("' OR 1=1", []),
    ]:
        with subtests.test(query=query, found=found):
            await _adds(world, "r-1 Anna Lee \\o/", "r-2 Bob 100%", "r-3 Żaneta_K")
            form = await world.open_form(world.ben)

            offered = await form.suggest("replica_id", query)

            known = [
                each["value"] for each in offered if not each["text"]["text"].startswith("Use ID")
            ]
            assert known == found


async def test_an_unknown_id_can_be_used_and_a_known_one_is_not_offered_twice(world: World) -> None:
    await _adds(world, "r-1 Anna")
    form = await world.open_form(world.ben)

    assert await _texts(form, "r-1234") == ["Use ID “r-1234”"]
    assert await _texts(form, " r-1234 ") == ["Use ID “r-1234”"]
    assert await _texts(form, "r-1") == ["Anna"]
    assert await _texts(form, "no id") == []


@in_both_modes
async def test_the_default_of_the_channel_comes_first_and_then_the_last_used(world: World) -> None:
    await _adds(world, "r-1 Anna", "r-2 Bob", "r-3 Cleo")
    await world.after(_sets_default(world, "r-2"), minutes=1)
    await world.after(_sends_off(world, world.ben, "r-1"))

    studio = await world.open_form(world.ana)
    lobby = await world.open_form(world.ana, channel="lobby")

    assert await offered_ids(studio) == ["r-2", "r-1", "r-3"]
    assert await offered_ids(studio, "-") == ["r-2", "r-1", "r-3"]
    assert await offered_ids(lobby) == ["r-1", "r-3", "r-2"]
    assert studio.values["replica_id"] == "r-2"
    assert lobby.values["replica_id"] is None


async def test_the_picker_offers_the_same_after_a_restart(quiet: World) -> None:
    async with quiet.running_bot():
        assert not await offered_ids(await quiet.open_form(quiet.ana)), (
            "it has been looked up before"
        )
        quiet.service.add_replica("r-1", "Anna", status="training")
        await _adds(quiet, "r-1", "r-2 Bob", "r-3 Cleo", "r-4 Dora", "r-5 Elif")
        for channel, replica_id in (("studio", "r-2"), ("studio", "r-4"), ("lobby", "r-5")):
            await quiet.after(quiet.ana.command("/replica", f"default {replica_id}", channel))
        await quiet.after(_sends_off(quiet, quiet.ben, "r-1"))
        quiet.service.fail("r-1", "Too dark.")
        quiet.service.delete("r-3")
        del quiet.service.replicas["r-5"]
        await quiet.advance(minutes=11)
        for gone in ("r-1", "r-3", "r-5"):
            form = await _sends_off(quiet, quiet.ana, gone)
            assert form.errors
        await _adds(quiet, "r-5 Elif again")

        before = await _offered(quiet)

    async with quiet.running_bot():
        assert await _offered(quiet) == before
    assert before == {
        "studio": ["Dora", "Elif again", "Bob", "Anna · can't be used"],
        "lobby": ["Elif again", "Dora", "Bob", "Anna · can't be used"],
        "chosen": ["r-4", None],
    }


async def _offered(world: World) -> dict[str, list[str] | list[str | None]]:
    """Return what there is to choose in two channels, and what is preselected there."""
    await world.advance(seconds=1)
    forms = [await world.open_form(world.ana, channel=each) for each in ("studio", "lobby")]
    studio, lobby = [await _texts(form) for form in forms]
    chosen = [form.values["replica_id"] for form in forms]
    return {"studio": studio, "lobby": lobby, "chosen": chosen}


async def test_odd_names_and_ids_from_the_service_do_not_break_the_picker(world: World) -> None:
    long = "r" * 150
    world.service.add_replica(long, "N\n<!channel> & " * 20)
    await _adds(world, long, "r-1 \u200b", "r-2")
    # The service names an id that no option of a menu could hold.
    endless = "x" * 200
    world.service.next_replica(Scenario(overrides={"replica_id": endless}))
    card = await world.request_replica(world.ana)
    world.service.add_replica(endless, "Endless")
    await world.advance(hours=1)
    [reply] = world.replies(card)
    assert "is ready" in reply.text
    assert "Use in a video" not in str(reply.blocks)

    form = await world.open_form(world.ben)

    assert set(await offered_ids(form)) == {long, "r-1", "r-2"}
    assert all(len(text) <= 75 for text in await _texts(form))


@on_both_engines
async def test_it_answers_quickly_from_the_database_alone_with_ten_thousand_replicas(
    quiet: World,
) -> None:
    async with quiet.running_bot():
        await _adds(quiet, "r-1 Anna")
    digits = " UNION ALL ".join(f"SELECT '{number:02}' AS two" for number in range(100))
    quiet.query(
        f"""
        WITH digits AS ({digits}), numbers AS (
            SELECT a.two || b.two AS number FROM digits AS a CROSS JOIN digits AS b
        )
        INSERT INTO replicas (id, name, search_name, status, verdict, used_at)
        SELECT 'r0' || number, 'Person ' || number, 'person ' || number, 'completed',
            'succeeded', 0
        FROM numbers
        """  # noqa: S608 - digits
    )
    asked_before = len(quiet.service.requests)
    loop = asyncio.get_running_loop()
    async with quiet.running_bot():
        form = await quiet.open_form(quiet.ben)
        for query, count in (("", 99), ("person 99", 99), ("r09999", 1), ("nobody at all", 0)):
            began = loop.time()
            offered = await offered_ids(form, query)
            assert loop.time() - began < 3, "Slack waits no longer"
            assert len(offered) == count
        assert (await offered_ids(form))[0] == "r-1"

    assert len(quiet.service.requests) == asked_before


@pytest.mark.parametrize(
    "fault",
    [
        CannedResponse(503, "<html>Down</html>"),
        CannedResponse(429),
        Reset(),
        Hang(),
        Drip(),
        CannedResponse(200),
    ],
)
async def test_a_service_that_is_slow_or_down_does_not_block_a_form(
    quiet: World, fault: Fault
) -> None:
    quiet.timings = replace(Timings(jitter=0), service_deadline=timedelta(seconds=1))
    quiet.service.faults.next("read_replica", fault)
    async with quiet.running_bot():
        form = await _sends_off(quiet, quiet.ana, REPLICA)
        assert not form.is_open, form.errors
        await quiet.advance(minutes=5)

    assert len(quiet.requests_for("read_replica")) > 0
    assert quiet.created_count() == 1
    assert len(quiet.posts()) == 2


@pytest.mark.parametrize("leaves_a_trace", [True, False])
async def test_a_default_that_was_deleted_at_the_service_is_refused_and_offered_no_more(
    world: World, *, leaves_a_trace: bool
) -> None:
    await _adds(world, "r-1 Anna", "r-2 Bob")
    await _sets_default(world, "r-1")
    if leaves_a_trace:
        world.service.delete("r-1")
    else:
        del world.service.replicas["r-1"]
    await world.advance(minutes=11)

    form = await world.open_form(world.ben, "Hello.")
    assert form.values["replica_id"] == "r-1"
    await form.submit()

    assert form.errors.keys() == {"replica_id"}
    why = "it was deleted" if leaves_a_trace else "can't find this replica"
    assert why in form.errors["replica_id"]
    await world.settle()
    assert await offered_ids(form) == ["r-2"]
    await form.send({"replica_id": "r-2"})
    again = await world.open_form(world.ben)
    assert again.values["replica_id"] is None
    await world.settle()
    assert world.created_count() == 1


async def test_an_id_that_a_form_refused_is_not_offered_until_it_is_accepted(quiet: World) -> None:
    quiet.service.add_replica("r-9", "Nine lives")
    async with quiet.running_bot(MAX_OPEN_PER_USER="1"):
        await quiet.request_video(quiet.ana)
    async with quiet.running_bot(MAX_OPEN_PER_USER="1"):  # which remembers nobody's requests
        form = await _sends_off(quiet, quiet.ana, "r-9")
        assert "reached your limit" in form.errors["replica_id"]

        assert await _texts(form, "nine l") == []

        await quiet.advance(minutes=11)
        await quiet.after(form.send())
        assert await _texts(await quiet.open_form(quiet.ben), "nine l") == ["Nine lives"]


async def test_the_form_offers_the_replicas_that_the_service_lists(quiet: World) -> None:
    for number in range(45):
        quiet.service.add_replica(f"r-stock-{number:02}", f"Stock {number:02}")
    async with quiet.running_bot(VIDEO_API_LISTS="yes"):
        await quiet.settle()
        await quiet.request_video(quiet.ana)
        form = await quiet.open_form(quiet.ana)
        offered = await offered_ids(form)
        assert offered[0] == REPLICA, "what was used comes first"
        assert offered[1:3] == ["r-stock-00", "r-stock-01"]
        assert len(offered) == 46
        assert await offered_ids(form, "stock 3") == [f"r-stock-3{n}" for n in range(10)]
        pages = len(quiet.requests_for("list_replicas"))
        assert pages == 3

        quiet.service.add_replica("r-new", "New", status="training")
        quiet.service.delete("r-stock-00")
        quiet.service.delete(REPLICA)
        await quiet.advance(minutes=10)
        offered = await offered_ids(form)
        assert {"r-new", "r-stock-00", REPLICA} <= {*offered}, "it may be back in the next list"
        [option] = await form.suggest("replica_id", "r-new")
        assert "training" in str(option["text"])

        await a_day_later(quiet)
        offered = await offered_ids(form)
        assert "r-stock-00" not in offered
        assert REPLICA in offered, "a person has used it: only a read shows whether it is gone"
        await quiet.ana.command("/replica", "list", "studio")
        assert "1970" not in quiet.ephemerals(quiet.ana)[-1]


@bot_with(VIDEO_API_LISTS="yes")
async def test_a_list_that_is_wrong_for_an_hour_takes_nothing_away(world: World) -> None:
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


async def a_day_later(world: World) -> None:
    """Have the list read now and after a day in which nothing else happens."""
    await world.advance(minutes=11)
    world.clock.set(world.clock.now() + timedelta(days=1))
    await world.advance(minutes=20)


@on_both_engines
async def test_a_name_that_no_database_can_store_keeps_no_replica_from_the_form(
    quiet: World,
) -> None:
    quiet.service.add_replica("r-odd", "a\x00b\ud800")
    async with quiet.running_bot(VIDEO_API_LISTS="yes"):
        await quiet.settle()
        assert {REPLICA, "r-odd"} == {*await offered_ids(await quiet.open_form(quiet.ana))}
