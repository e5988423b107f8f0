"""An account that is out of credit: people read whom to ask, and the next form is a try."""

import re
from datetime import datetime

from sandbox.driver import Person
from sandbox.slack_objects import Message
from tests.web.test_ready import check
from tests.world import REPLICA, World


async def ask(world: World, person: Person) -> None:
    form = await world.open_form(person)
    await form.submit({"replica_id": REPLICA, "script": "Hello, world."})
    assert not form.is_open, form.errors
    await world.settle()


def card(world: World, number: int) -> Message:
    return world.slack.messages("studio")[number]


async def test_who_waits_for_credit_reads_whom_to_ask_by_name_and_nobody_is_pinged(
    quiet_world: World,
) -> None:
    world = quiet_world
    world.service.out_of_credit = True
    cleo = Person(world.slack, "cleo")
    async with world.running_bot(ADMIN_USERS=cleo.user.id):
        for person in (world.ana, world.ben):
            await ask(world, person)
        first, second = card(world, 0), card(world, 1)
        [reply] = world.replies(first)
        ask_cleo = "Ask cleo to top up the account."
        assert f"Out of video credits. You weren't charged. {ask_cleo}" in reply.text
        assert f"Out of video credits. {ask_cleo} I'll keep retrying for a day." in second.text
        assert not second.pings
        assert reply.pings == {world.ana.user.id}
        tries = len(world.requests_for("create_video"))
        await world.advance(minutes=11)
        assert len(world.requests_for("create_video")) == tries + 1


async def test_the_next_form_after_it_was_paid_is_sent_at_once_and_frees_those_that_wait(
    world: World,
) -> None:
    world.service.out_of_credit = True
    for person in (world.ana, world.ben):
        await ask(world, person)
    await world.advance(minutes=1)
    [reply] = world.replies(card(world, 0))
    assert "Out of video credits. You weren't charged. Ask an admin to top up" in reply.text

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
        assert re.search(r"top up the account\. Next try: <!date\^\d+\^", shown), shown
        _, service = await check(world, "video_service")
        assert datetime.fromisoformat(service["next_try"]) > world.clock.now()
