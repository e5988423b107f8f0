"""Limits on what people may ask for: open at once, in a day, and the length of a script."""

import asyncio

import pytest

from sandbox.delivery import deliver, encoded, interaction
from sandbox.driver import Person
from sandbox.faults import CannedResponse
from sandbox.scenarios import Scenario
from sandbox.slack_objects import Message
from tests.engine.test_unconfirmed import AGAIN
from tests.modes import on_both_engines
from tests.world import REPLICA, World

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


# ── Open at once ──────────────────────────────────────────────────────────────────────────────


async def test_a_person_with_too_many_open_requests_is_told_so_in_the_form(
    quiet_world: World,
) -> None:
    world = quiet_world
    async with world.running_bot(MAX_OPEN_PER_USER="2"):
        await world.request_video(world.ana)
        await world.request_replica(world.ana)
        await world.ana.command("/video")
        assert world.ana.modal is None
        assert world.ephemerals(world.ana)[-1] == (
            "You've reached your limit of 2 requests in progress. Try again when one is done. Need "
            "more? Ask a workspace admin."
        )
        assert world.created_count() == 1
        await world.request_video(world.ben)
        await world.advance(minutes=5)
        await world.request_video(world.ana)


async def test_a_form_without_fields_is_drawn_anew_and_says_what_the_limit_is(
    quiet_world: World,
) -> None:
    world = quiet_world
    async with world.running_bot(MAX_OPEN_PER_USER="1"):
        form = await world.open_form(world.ana)
        await form._fill_in(form._field("replica_id"), REPLICA)
        await form._fill_in(form._field("script"), "Hello, world.")
        await world.request_video(world.ben)
        await world.request_replica(world.ana)
        studio = world.slack.channel("studio")
        submission = interaction(world.slack, world.ana.user, "view_submission", studio)
        view = {**form.view.payload(), "blocks": []}

        answer = await deliver(world.slack, encoded({**submission, "view": view}))

        assert answer.json is not None
        assert answer.json["response_action"] == "update"
        assert "Hello, world." in answer.body
        again = {**view, "blocks": answer.json["view"]["blocks"]}
        answer = await deliver(world.slack, encoded({**submission, "view": again}))
        assert answer.json is not None
        assert answer.json["response_action"] == "errors"
        assert "limit of 1 request in progress" in answer.body


async def test_what_was_typed_can_be_sent_again_once_there_is_room(quiet_world: World) -> None:
    world = quiet_world
    async with world.running_bot(MAX_OPEN_PER_USER="1"):
        await world.request_video(world.ana)
    async with world.running_bot(MAX_OPEN_PER_USER="1"):  # which remembers nobody's requests
        form = await world.open_form(world.ana)
        await form.submit(VALUES)
        assert "limit of 1 request in progress" in form.errors["replica_id"]
        await world.advance(minutes=5)
        await form.submit()
        assert not form.is_open
        await world.settle()
        assert [video.script for video in world.service.videos.values()][1:] == [VALUES["script"]]


async def test_a_request_that_is_overdue_does_not_count_as_open(quiet_world: World) -> None:
    world = quiet_world
    world.service.faults.always("read_video", BUSY)
    async with world.running_bot(MAX_OPEN_PER_USER="1", callbacks=False):
        await world.request_video(world.ana)
        await world.advance(hours=4)
        await world.request_video(world.ana)


@on_both_engines
async def test_forms_that_are_sent_at_once_do_not_pass_a_limit_together(
    quiet_world: World,
) -> None:
    world = quiet_world
    world.service.faults.always("create_video", BUSY)
    names = [f"person-{number}" for number in range(10)]
    people = [Person(world.slack, world.slack.add_user(name).name) for name in names]
    async with world.running_bot(MAX_PER_DAY="3"):
        forms = [await world.open_form(person, channel="lobby") for person in people]
        await asyncio.gather(*(form.submit(VALUES) for form in forms))
        assert [form.is_open for form in forms].count(False) == 3


async def test_a_form_that_is_sent_twice_is_not_limited_by_itself(quiet_world: World) -> None:
    world = quiet_world
    async with world.running_bot(MAX_OPEN_PER_USER="1", MAX_PER_USER_PER_DAY="1", MAX_PER_DAY="1"):
        form = await world.open_form(world.ana)
        await form.submit(VALUES)
        assert [answer.body for answer in await form.resubmit(5)] == [""] * 5
        await world.settle()
        assert world.created_count() == 1


# ── In a day ──────────────────────────────────────────────────────────────────────────────────


async def test_a_person_may_make_so_many_requests_a_day(quiet_world: World) -> None:
    world = quiet_world
    async with world.running_bot(MAX_PER_USER_PER_DAY="2"):
        await make(world, world.ana, 2)
        await world.advance(hours=2)

        text = await refused(world, world.ana)

        assert text == (
            f"You've reached your limit of 2 requests a day. It resets {MIDNIGHT}. Need more? Ask "
            "a workspace admin."
        )
        await make(world, world.ben, 2)
        await refused(world, world.ben)
        await world.advance(hours=13)
        await make(world, world.ana)


@on_both_engines
async def test_all_people_together_may_make_so_many_requests_a_day(
    quiet_world: World,
) -> None:
    world = quiet_world
    async with world.running_bot(MAX_PER_DAY="2"):
        await make(world, world.ana)
        await make(world, world.ben)
        await world.advance(hours=14)

        text = await refused(world, world.ana)

        assert text == (
            f"Your workspace has reached its limit of 2 requests a day. It resets {MIDNIGHT}. Need "
            "more? Ask a workspace admin."
        )
        await world.advance(hours=1)
        await make(world, world.ana)


async def test_a_request_that_waits_for_the_service_counts_for_the_day_and_the_month(
    quiet_world: World,
) -> None:
    world = quiet_world
    world.service.faults.always("create_video", BUSY)
    async with world.running_bot(MAX_PER_USER_PER_DAY="2"):
        await world.request_video(world.ana)
        await world.request_video(world.ana)
        assert "limit of 2 requests a day" in await refused(world, world.ana)
    async with world.running_bot(MAX_PER_USER_PER_MONTH="2"):
        assert "limit of 2 requests a month" in await refused(world, world.ana)


async def test_a_job_under_way_counts_for_the_day(quiet_world: World) -> None:
    world = quiet_world
    async with world.running_bot(MAX_PER_USER_PER_DAY="1"):
        await world.request_video(world.ana)
        await refused(world, world.ana)


async def test_a_request_that_the_service_refused_does_not_count_for_the_day(
    quiet_world: World,
) -> None:
    world = quiet_world
    world.service.faults.next("create_video", CannedResponse(400, {"message": "no"}))
    async with world.running_bot(MAX_PER_USER_PER_DAY="1"):
        await make(world, world.ana)
        await make(world, world.ana)
        await refused(world, world.ana)
    assert world.created_count() == 1


async def test_a_request_that_failed_at_the_service_counts_for_the_day(
    quiet_world: World,
) -> None:
    world = quiet_world
    world.service.next_video(Scenario("error"))
    async with world.running_bot(MAX_PER_USER_PER_DAY="1"):
        await make(world, world.ana)
        await refused(world, world.ana)


async def test_create_again_counts_for_the_day(quiet_world: World) -> None:
    world = quiet_world
    world.service.faults.next("create_video", CannedResponse(500, "?", done=True))
    async with world.running_bot(MAX_PER_USER_PER_DAY="2", callbacks=False):
        card = await world.request_video(world.ana)
        await world.ana.click(world.question(card), AGAIN)
        await world.advance(minutes=5)
        assert world.created_count() == 2
        await refused(world, world.ana)


async def test_what_counted_still_counts_after_create_again_was_refused(
    quiet_world: World,
) -> None:
    world = quiet_world
    unanswered, no = CannedResponse(500, "?", done=True), CannedResponse(400, {"message": "no"})
    world.service.faults.next("create_video", unanswered, no)
    async with world.running_bot(MAX_PER_USER_PER_DAY="2", callbacks=False):
        card = await world.request_video(world.ana)
        await world.ana.click(world.question(card), AGAIN)
        await world.advance(minutes=5)
        await make(world, world.ana)
        assert world.created_count() == 2
        await refused(world, world.ana)


@on_both_engines
@pytest.mark.parametrize("limit", ["MAX_PER_USER_PER_DAY", "MAX_PER_DAY"])
async def test_create_again_over_a_limit_creates_nothing_and_says_so_privately(
    quiet_world: World, limit: str
) -> None:
    world = quiet_world
    world.service.faults.next("create_video", CannedResponse(500, "?", done=True))
    settings = {limit: "1", "ADMIN_USERS": world.ben.user.id}
    async with world.running_bot(callbacks=False, **settings):  # type: ignore[arg-type]
        card = await world.request_video(world.ana)
        for person in (world.ana, world.ana, world.ben):
            await person.click(world.question(card), AGAIN)
            await world.settle()
        assert world.created_count() == 1, "the limit is that of the person who asked"
        [_, text] = world.ephemerals(world.ana)[-2:]
        assert "limit of 1 request a day" in text
        assert "limit of 1 request a day" in world.ephemerals(world.ben)[-1]
        assert f"It resets {MIDNIGHT}." in text
        assert AGAIN in str(world.question(card).blocks), "it can be pressed again later"
        await world.advance(hours=24)
        await world.ana.click(world.question(card), AGAIN)
        await world.settle()
        assert world.created_count() == 2


async def test_create_again_is_not_held_up_by_open_requests(quiet_world: World) -> None:
    world = quiet_world
    world.service.faults.next("create_video", CannedResponse(500, "?", done=True))
    async with world.running_bot(MAX_OPEN_PER_USER="1", callbacks=False):
        card = await world.request_video(world.ana)
        await world.ana.click(world.question(card), AGAIN)
        await world.advance(seconds=5)
        assert world.created_count() == 2


# ── The length of a script ────────────────────────────────────────────────────────────────────


async def test_a_shorter_limit_for_scripts_is_that_of_the_form(quiet_world: World) -> None:
    world = quiet_world
    async with world.running_bot(MAX_SCRIPT="40"):
        form = await world.open_form(world.ana, "x" * 40)
        assert form.values["script"] == "x" * 40
        assert "Up to 40 characters." in str(form.view.body)
        await form.close()
        form = await world.open_form(world.ana, "x" * 41)
        assert form.values["script"] == "x" * 41
        assert "The script has 41 characters. The limit is 40: cut 1." in str(form.view.body)


async def test_a_script_that_became_too_long_can_be_shortened_on_a_retry(
    quiet_world: World,
) -> None:
    world = quiet_world
    world.service.next_video(Scenario("error"))
    async with world.running_bot():
        [card] = await make(world, world.ana)
    async with world.running_bot(MAX_SCRIPT="5", ADMIN_USERS=world.ben.user.id):
        await world.ana.click(world.now(card), "Edit and retry")
        form = world.ana.modal
        assert form is not None
        await form.submit()
        assert form.errors == {
            "script": "The script has 13 characters. The limit is 5: shorten it, or ask ben to "
            "raise the limit."
        }
        await form.submit({"script": "Hello"})
        assert not form.is_open
