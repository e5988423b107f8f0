"""A service that answers 403: to a key that it does not accept, or to what it hides."""

from datetime import timedelta

import pytest

from sandbox.service_limits import Limits, RateLimit
from tests.engine.test_service_outage import ask, ask_often
from tests.modes import on_both_engines
from tests.service.test_service_gate import cards, endings
from tests.world import World

pytestmark = on_both_engines

FORBIDDEN = "r-of-others"


in_both_cases = pytest.mark.parametrize(
    "made_before", [True, False], ids=["made before", "nothing made"]
)


async def make_one(world: World) -> None:
    async with world.running_bot(callbacks=False):
        await world.request_video(world.ben)
        await world.advance(minutes=10)


def ask_to_wait(world: World) -> None:
    """Have the service answer 429 for a minute: what is asked for meanwhile is queued."""
    wait = timedelta(minutes=1)
    world.service.rate_limited = RateLimit(world.clock.now() + wait, retry_after=wait)


@in_both_cases
async def test_a_gateway_that_answers_403_to_everything_refuses_the_key(
    quiet_world: World, *, made_before: bool
) -> None:
    world = quiet_world
    if made_before:
        await make_one(world)
    before = len(cards(world))
    world.service.wrong_key_status = 403
    async with world.running_bot(callbacks=False) as bot:
        if not made_before:
            await world.settle()  # the check at the start was answered otherwise
        ask_to_wait(world)
        await ask_often(world, 30)
        world.service.key_revoked = True
        await world.advance(minutes=3)
        refused = [each for each in endings(world)[before:] if each]
        assert len(refused) == 1, "the others wait"
        assert "I've lost access" in refused[0]
        url = f"http://127.0.0.1:{bot.port}/readyz"
        async with world.slack.session.get(url, headers=world.operator) as response:
            report = await response.json()
        assert "VIDEO_API_KEY" in report["checks"]["video_service"]["reason"]

        world.service.key_revoked = False
        await world.advance(minutes=15)
        assert world.created_count() == before + 29


async def test_a_gateway_that_refuses_the_key_from_the_start_on_refuses_it(
    quiet_world: World,
) -> None:
    world = quiet_world
    await make_one(world)
    world.service.wrong_key_status = 403
    ask_to_wait(world)
    async with world.running_bot(callbacks=False):
        await ask_often(world, 10)
        world.service.key_revoked = True
        await world.advance(minutes=3)
        assert len([each for each in endings(world)[1:] if each]) == 1
        world.service.key_revoked = False
        await world.advance(minutes=25)
        assert world.created_count() == 1 + 9


@in_both_cases
async def test_a_service_that_hides_ids_refuses_one_request(
    quiet_world: World, *, made_before: bool
) -> None:
    world = quiet_world
    world.service.unknown_id_status = 403
    world.service.add_replica(FORBIDDEN, "Theirs")
    world.service.limits = Limits(forbidden={FORBIDDEN})
    if made_before:
        await make_one(world)
    before = world.created_count()
    async with world.running_bot(callbacks=False):
        await ask(world, world.ana, FORBIDDEN)
        await world.settle()
        await ask_often(world, 10)
        await world.advance(minutes=1)
        assert "The video service said" in endings(world)[before]
        assert world.created_count() == before + 10
