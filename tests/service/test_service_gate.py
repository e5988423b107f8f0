"""Calls that the video service would refuse are held back, and the jobs wait without failing."""

from datetime import timedelta

import pytest

from sandbox.service_limits import Limits, RateLimit
from sandbox.slack_objects import Message
from tests.engine.test_service_outage import ask, ask_often
from tests.modes import bot_with, on_both_engines
from tests.world import World

NOT_OURS = "r-of-others"
UNPAID = "r-premium"


def cards(world: World) -> list[Message]:
    """Return the cards in the channel, oldest first."""
    return world.slack.messages("studio")


def endings(world: World) -> list[str]:
    """Return the closing replies of the cards, oldest card first; "" where there is none."""
    return ["".join(reply.text for reply in world.replies(card)) for card in cards(world)]


async def test_all_creates_wait_as_long_as_one_of_them_is_asked_to(world: World) -> None:
    began = world.clock.now()
    wait = timedelta(minutes=3)
    world.service.rate_limited = RateLimit(began + wait, retry_after=wait)
    await world.request_video(world.ana)
    await world.request_video(world.ben)
    await world.request_replica(world.ben)
    assert len(world.requests_for("create_video")) == 1
    assert not world.requests_for("create_replica")
    assert all("The video service is busy." in card.text for card in cards(world))

    await world.advance(minutes=10)

    assert [each.at - began for each in world.requests_for("create_video")[:2]] == [
        timedelta(0),
        wait,
    ]
    assert world.created_count() == 2
    assert len(world.requests_for("create_replica")) == 1


async def test_a_401_for_one_request_stops_nobody_elses(world: World) -> None:
    world.service.add_replica(NOT_OURS, "Theirs")
    world.service.limits.unauthorized.add(NOT_OURS)
    await world.after(ask(world, world.ana, NOT_OURS))

    await world.after(world.request_video(world.ben), minutes=5)

    refused, made = endings(world)
    assert "The video service said" in refused
    assert "You do not own this" in refused
    assert "is ready" in made


@bot_with(ADMIN_USERS="{ana}")
async def test_a_401_for_one_read_stops_no_creates(world: World) -> None:
    world.service.limits.unauthorized.add("v-of-others")
    await world.after(world.ana.command("/video", "status v-of-others"))

    await world.request_video(world.ben)

    assert world.created_count() == 1


async def test_queued_requests_wait_while_the_key_is_refused(world: World) -> None:
    world.service.rate_limited = RateLimit(
        world.clock.now() + timedelta(minutes=1), retry_after=timedelta(minutes=1)
    )
    for person in (world.ana, world.ben, world.ana):
        await ask(world, person)
    await world.settle()
    world.service.key_revoked = True

    await world.advance(minutes=10)

    refused = [ending for ending in endings(world) if ending]
    assert len(refused) == 1, "only the one whose own call was refused"
    assert "I've lost access" in refused[0]
    waiting = [card for card in cards(world) if not world.replies(card)]
    assert len(waiting) == 2
    for card in waiting:
        assert "Waiting" in card.text
        assert "I've lost access" in card.text
    calls = len(world.requests_for("create_video"))
    edits = len(world.calls("chat.update"))
    await world.advance(minutes=10)
    assert len(world.calls("chat.update")) == edits, "no edit for each try"
    assert len(world.requests_for("create_video")) == calls, "reads find out, not creates"

    world.service.key_revoked = False
    await world.advance(minutes=5)

    assert world.created_count() == 2
    assert len([ending for ending in endings(world) if "is ready" in ending]) == 2


async def test_an_odd_request_does_not_keep_its_kind_closed(world: World) -> None:
    world.service.add_replica(UNPAID, "Premium")
    world.service.out_of_credit = True
    await world.request_video(world.ana)
    world.service.limits.unpaid.add(UNPAID)
    await ask(world, world.ana, UNPAID)
    await world.after(ask(world, world.ben))
    world.service.out_of_credit = False

    await world.advance(minutes=45)

    assert "is ready" in endings(world)[2]
    assert "Out of video credits." in endings(world)[1]


async def test_a_request_that_waits_for_credit_for_a_day_ends_with_an_answer(world: World) -> None:
    world.service.out_of_credit = True
    await world.request_video(world.ana)
    await world.after(world.request_video(world.ben), hours=23)
    assert not endings(world)[1]

    await world.advance(hours=2)

    assert "Out of video credits. You weren't charged." in endings(world)[1]


@bot_with(callbacks=False)
async def test_after_an_outage_all_jobs_go_on_as_soon_as_one_call_succeeds(world: World) -> None:
    await world.after(world.request_video(world.ana), seconds=30)
    world.service.down = True
    await world.advance(minutes=30)
    world.service.down = False
    await world.advance(seconds=1)
    await world.after(world.request_video(world.ben), seconds=6)

    assert "is ready" in endings(world)[0]


@pytest.mark.parametrize("refusal", ["key", "credit"])
async def test_a_restart_ends_no_request_that_waits_for_the_account(
    quiet: World, refusal: str
) -> None:
    async with quiet.running_bot():
        quiet.service.rate_limited = RateLimit(
            quiet.clock.now() + timedelta(minutes=1), retry_after=timedelta(minutes=1)
        )
        for person in (quiet.ana, quiet.ben, quiet.ana, quiet.ben):
            await ask(quiet, person)
        await quiet.settle()
        quiet.service.key_revoked = refusal == "key"
        quiet.service.out_of_credit = refusal == "credit"
        await quiet.advance(minutes=5)
    assert len([ending for ending in endings(quiet) if ending]) == 1

    for _ in range(2):
        async with quiet.running_bot():
            await quiet.advance(minutes=15)
    assert len([ending for ending in endings(quiet) if ending]) == 1

    quiet.service.key_revoked = quiet.service.out_of_credit = False
    async with quiet.running_bot():
        await quiet.advance(minutes=30)
    assert len([ending for ending in endings(quiet) if "is ready" in ending]) == 3


in_both_cases = pytest.mark.parametrize(
    "made_before", [True, False], ids=["made before", "nothing made"]
)


async def make_one(world: World) -> None:
    async with world.running_bot(callbacks=False):
        await world.after(world.request_video(world.ben), minutes=10)


def ask_to_wait(world: World) -> None:
    """Have the service answer 429 for a minute: what is asked for meanwhile is queued."""
    wait = timedelta(minutes=1)
    world.service.rate_limited = RateLimit(world.clock.now() + wait, retry_after=wait)


@on_both_engines
@in_both_cases
async def test_a_gateway_that_answers_403_to_everything_refuses_the_key(
    quiet: World, *, made_before: bool
) -> None:
    if made_before:
        await make_one(quiet)
    before = len(cards(quiet))
    quiet.service.wrong_key_status = 403
    async with quiet.running_bot(callbacks=False) as bot:
        if not made_before:
            await quiet.settle()  # the check at the start was answered otherwise
        ask_to_wait(quiet)
        await ask_often(quiet, 30)
        quiet.service.key_revoked = True
        await quiet.advance(minutes=3)
        refused = [each for each in endings(quiet)[before:] if each]
        assert len(refused) == 1, "the others wait"
        assert "I've lost access" in refused[0]
        url = f"http://127.0.0.1:{bot.port}/readyz"
        async with quiet.slack.session.get(url, headers=quiet.operator) as response:
            report = await response.json()
        assert "VIDEO_API_KEY" in report["checks"]["video_service"]["reason"]

        quiet.service.key_revoked = False
        await quiet.advance(minutes=15)
        assert quiet.created_count() == before + 29


@on_both_engines
async def test_a_gateway_that_refuses_the_key_from_the_start_on_refuses_it(quiet: World) -> None:
    await make_one(quiet)
    quiet.service.wrong_key_status = 403
    ask_to_wait(quiet)
    async with quiet.running_bot(callbacks=False):
        await ask_often(quiet, 10)
        quiet.service.key_revoked = True
        await quiet.advance(minutes=3)
        assert len([each for each in endings(quiet)[1:] if each]) == 1
        quiet.service.key_revoked = False
        await quiet.advance(minutes=25)
        assert quiet.created_count() == 1 + 9


@on_both_engines
@in_both_cases
async def test_a_service_that_hides_ids_refuses_one_request(
    quiet: World, *, made_before: bool
) -> None:
    quiet.service.unknown_id_status = 403
    quiet.service.add_replica(NOT_OURS, "Theirs")
    quiet.service.limits = Limits(forbidden={NOT_OURS})
    if made_before:
        await make_one(quiet)
    before = quiet.created_count()
    async with quiet.running_bot(callbacks=False):
        await quiet.after(ask(quiet, quiet.ana, NOT_OURS))
        await quiet.after(ask_often(quiet, 10), minutes=1)
        assert "The video service said" in endings(quiet)[before]
        assert quiet.created_count() == before + 10
