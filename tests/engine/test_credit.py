"""An account that is out of credit: people read when the next try is, and the next form is one."""

import re
from datetime import datetime

from sandbox.driver import Person
from sandbox.slack_objects import Message
from tests.web.test_ready import check
from tests.world import REPLICA, World

NEXT_TRY = re.compile(r"Next try: <!date\^(\d+)\^[^>]*>, then every few minutes, and at once with ")


async def ask(world: World, person: Person) -> None:
    form = await world.open_form(person)
    await form.submit({"replica_id": REPLICA, "script": "Hello, world."})
    assert not form.is_open, form.errors
    await world.settle()


def card(world: World, number: int) -> Message:
    return world.slack.messages("studio")[number]


async def test_who_waits_reads_when_the_next_try_is_also_after_many_of_them(world: World) -> None:
    world.service.out_of_credit = True
    for person in (world.ana, world.ben):
        await ask(world, person)
    said = NEXT_TRY.search(card(world, 1).text)
    assert said, card(world, 1).text
    tries = len(world.requests_for("create_video"))
    wait = int(said[1]) - world.clock.now().timestamp()
    await world.advance(seconds=wait + 60)
    assert len(world.requests_for("create_video")) == tries + 1
    await world.advance(minutes=45)
    assert "then every few minutes" in card(world, 1).text, "it stays true without an edit"


async def test_the_next_form_after_it_was_paid_is_sent_at_once_and_frees_those_that_wait(
    world: World,
) -> None:
    world.service.out_of_credit = True
    for person in (world.ana, world.ben):
        await ask(world, person)
    await world.advance(minutes=1)
    [reply] = world.replies(card(world, 0))
    assert "is out of credit; nothing was created" in reply.text
    assert "a new request is sent at once" in reply.text

    world.service.out_of_credit = False
    await ask(world, world.ana)
    assert world.created_count() == 2, "nobody waits for the ten minutes to end"
    _, service = await check(world, "video_service")
    assert (service["ok"], service["next_try"]) == (True, None)


async def test_admins_read_in_home_and_monitoring_when_the_next_try_is(quiet_world: World) -> None:
    world = quiet_world
    world.service.out_of_credit = True
    async with world.running_bot(ADMIN_USERS=world.ana.user.id):
        await ask(world, world.ben)
        await world.ana.open_home()
        await world.advance(seconds=5)
        assert world.ana.home is not None
        shown = str(world.ana.home.view.body)
        assert re.search(r"no credit left\. Requests wait\. Next try: <!date\^\d+\^", shown), shown
        _, service = await check(world, "video_service")
        assert datetime.fromisoformat(service["next_try"]) > world.clock.now()
