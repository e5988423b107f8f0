"""Who goes first: people who wait for an answer, before what the bot does for nobody's eyes."""

import asyncio
from datetime import timedelta

from tests.world import REPLICA, World

_LONG = timedelta(minutes=1)
_SHORT = timedelta(milliseconds=50)


class Held:
    """Holds up Slack's answer to the opening of a form: somebody waits for the bot meanwhile."""

    def __init__(self, world: World) -> None:
        self.begun, self.released = asyncio.Event(), asyncio.Event()
        world.slack.on_request = self._hold

    async def _hold(self, when: str, method: str, _: object) -> None:
        if (when, method) == ("before", "views.open"):
            self.begun.set()
            await self.released.wait()


async def _submits_while_somebody_waits(world: World, held: Held) -> asyncio.Task[object]:
    """Have Ana's form sent off while Ben waits for his; return his waiting."""
    form = await world.open_form(world.ana)
    held.begun.clear()
    held.released.clear()
    waiting = asyncio.ensure_future(world.ben.command("/video"))  # noqa: TID251 - awaited
    await held.begun.wait()
    await form.submit({"replica_id": REPLICA, "script": "Hello."})
    assert not form.is_open
    return waiting


async def test_nothing_is_done_in_the_background_while_somebody_waits(quiet_world: World) -> None:
    world = quiet_world
    world.pauses = {"give_way": _LONG}
    async with world.running_bot():
        held = Held(world)
        held.released.set()
        waiting = await _submits_while_somebody_waits(world, held)
        for _ in range(50):
            assert (await world.ben.command("/video", "help")).ok
        assert (world.created_count(), world.posts()) == (0, [])
        held.released.set()
        await waiting
        await world.settle()
        assert (world.created_count(), len(world.posts())) == (1, 1)


async def test_what_waits_for_people_does_not_wait_for_long(quiet_world: World) -> None:
    world = quiet_world
    world.pauses = {"give_way": _SHORT}
    async with world.running_bot():
        held = Held(world)
        held.released.set()
        waiting = await _submits_while_somebody_waits(world, held)
        await world.settle()
        assert (world.created_count(), len(world.posts())) == (1, 1)
        assert not waiting.done()
        held.released.set()
        await waiting
