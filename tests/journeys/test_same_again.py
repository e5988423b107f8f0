"""The same again: what was asked for within a day is offered before it is paid for twice."""

import asyncio

import psycopg
import pytest

from bot.timings import Timings
from sandbox.driver import Modal, Person
from sandbox.scenarios import Scenario
from tests.modes import in_both_modes
from tests.store.test_copies_leases import waiting
from tests.world import REPLICA, World

VALUES = {"replica_id": REPLICA, "script": "Welcome to the team!"}
LABEL = "Create another"


@pytest.fixture
async def quiet(quiet: World) -> World:
    """A world in which a request is compared with those of a day, as it is by default."""
    quiet.pauses = {**quiet.pauses, "same_within": Timings().same_within}
    return quiet


async def submit(world: World, person: Person, channel: str = "studio", **changes: object) -> Modal:
    return await world.after(world.submit_form(person, {**VALUES, **changes}, channel=channel))


def offer(form: Modal) -> str:
    """Return what a form says on top, once it offers what there is; "" if it offers nothing."""
    if not form.is_open:
        return ""
    body = form.view.body
    assert body["submit"]["text"] == LABEL
    [note] = [each["text"]["text"] for each in body["blocks"] if each["block_id"] == "note"]
    return str(note)


@in_both_modes
async def test_the_form_offers_the_same_video_before_it_is_made_again(quiet: World) -> None:
    async with quiet.running_bot():
        world = quiet
        await world.after(submit(world, world.ben), minutes=5)

        form = await submit(world, world.ana, script=" Welcome  to\nthe team!", video_name="Hi")
        [video] = world.service.videos.values()
        text = offer(form)
        assert text.startswith(f"*This video already exists.* <@{world.ben.user.id}> made it ")
        assert f"{video.video_id}|Watch>" in text
        assert text.endswith(f"*{LABEL}* charges you again.")
        assert form.values["script"] == " Welcome  to\nthe team!"
        assert form.values["video_name"] == "Hi"

        # A double click on the first button, late: it is answered as before.
        await form.resubmit(2)
        assert offer(form)
        assert world.created_count() == 1
        await form.send(clicks=2)
        await world.after(form.resubmit(2))
        assert world.created_count() == 2


async def test_a_form_that_is_sent_twice_is_not_offered_its_own_video(world: World) -> None:
    form = await world.open_form(world.ana)
    await form.send(VALUES, clicks=2)
    answers = await form.resubmit(2)
    assert [answer.body for answer in answers] == ["", ""]
    await world.settle()
    assert world.created_count() == 1


async def test_what_is_being_made_is_offered_too(world: World) -> None:
    world.service.next_video(Scenario(end="never"))
    await world.after(submit(world, world.ben), minutes=5)
    form = await submit(world, world.ana)
    studio = world.slack.channel("studio").id
    assert offer(form).startswith(
        f"*This video is already being made.* <@{world.ben.user.id}> requested it "
    )
    assert f" in <#{studio}>." in offer(form)
    await form.close()
    mine = await submit(world, world.ben)
    assert offer(mine).startswith("*This video is already being made.* You requested it ")


async def test_people_who_ask_for_the_same_at_once_do_not_all_pay(world: World) -> None:
    names = [f"person-{number}" for number in range(10)]
    people = [Person(world.slack, world.slack.add_user(name).name) for name in names]
    world.slack.channel("studio").members |= {person.user.id for person in people}
    forms = [await world.open_form(person) for person in people]
    await world.after(asyncio.gather(*(form.submit(VALUES) for form in forms)))
    offered = [offer(form) for form in forms if form.is_open]
    assert len(offered) == 9
    assert all("is already being made" in each for each in offered)
    assert world.created_count() == 1


async def test_of_two_copies_that_are_asked_for_the_same_at_once_one_makes_it(
    world_of_copies: World,
) -> None:
    world = world_of_copies
    world.pauses = {**world.pauses, "same_within": Timings().same_within}
    assert world.postgres_url is not None
    async with world.running_copies() as copies:
        submissions = []
        for copy, person in zip(copies, (world.ana, world.ben), strict=True):
            form = await world.open_form(person)
            await form._fill_in(form._field("replica_id"), REPLICA)
            await form._fill_in(form._field("script"), VALUES["script"])
            submissions.append(world.at(copy, form.submit()))
        # Each that has looked for the same waits before it stores anything.
        with psycopg.connect(world.postgres_url) as other:
            other.execute("LOCK TABLE jobs IN SHARE MODE")
            answers = asyncio.gather(*submissions)
            await waiting(world, 2)
        await answers
        await world.settle()
        assert world.created_count() == 1
        [form] = [each.modal for each in (world.ana, world.ben) if each.modal is not None]
        assert "is already being made" in offer(form)


async def test_nobody_is_shown_what_they_may_not_see(quiet: World) -> None:
    for name in ("root", "carl"):
        quiet.slack.add_user(name)
    root, carl = Person(quiet.slack, "root"), Person(quiet.slack, "carl")
    quiet.slack.change_channel("vault", with_bot=True)
    for channel in quiet.slack.channels.values():
        channel.members |= {root.user.id, carl.user.id}
    async with quiet.running_bot(ADMIN_USERS=root.user.id):
        await quiet.after(submit(quiet, quiet.ben, "vault"), minutes=5)

        # In another channel nothing says that it exists, wherever it is to be posted.
        assert not (await submit(quiet, quiet.ana, where="vault")).is_open
        assert not (await submit(quiet, carl)).is_open
        assert quiet.created_count() == 3

        # The requester, an admin, and people where it was posted are told: of a finished one first.
        bens = f"<@{quiet.ben.user.id}> made it "
        for person, place, who in (
            (root, "attic", bens),
            (quiet.ben, "attic", "You made it "),
            (carl, "vault", bens),
        ):
            form = await submit(quiet, person, place)
            assert who in offer(form)
            await form.close()
        assert quiet.created_count() == 3


async def test_only_the_same_is_offered_and_only_for_a_day(world: World) -> None:
    world.service.add_replica("r-two", "Two")
    world.service.next_video(Scenario(end="error"))
    await world.after(submit(world, world.ben), minutes=5)
    # It failed. Now it is made.
    assert not (await submit(world, world.ana)).is_open
    background = {"background": "background_url", "background_url": "https://example.com/a"}
    for changes in ({"script": "Welcome to the team."}, {"replica_id": "r-two"}):
        assert not (await submit(world, world.ana, **changes)).is_open
    form = await world.open_form(world.ana)
    await form.choose("background", "background_url")
    await world.after(form.send({**VALUES, **background}), hours=24)
    assert not (await submit(world, world.ana)).is_open


async def test_an_erased_script_leaves_nothing_to_compare_with(quiet: World) -> None:
    quiet.timings = Timings(jitter=0)
    async with quiet.running_bot(RETENTION_DAYS="1"):
        await quiet.after(submit(quiet, quiet.ben), days=3)
        assert quiet.query("SELECT fingerprint, erased FROM jobs") == [
            {"fingerprint": None, "erased": 1}
        ]
