"""An outage of the video service: few questions to people, and all that was not sent is made."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest

from bot.model import Request
from bot.timings import Timings
from sandbox.driver import Person
from sandbox.faults import CannedResponse, Fault, Hang, Reset
from sandbox.service_limits import RateLimit
from sandbox.video_service import CREATES
from tests.modes import on_both_engines
from tests.world import REPLICA, World, delivery_of, is_question, number_of

pytestmark = on_both_engines

TIMINGS: Final = Timings(jitter=0)
# Real time: long enough that a busy machine does not look like a call that hangs.
IMPATIENT: Final = replace(
    TIMINGS,
    hang_after=timedelta(seconds=3),
    call_timeout=timedelta(seconds=6),
    recheck_down=timedelta(seconds=10),
)
DOWN: Final = CannedResponse(503, {"message": "Try later"})
OUTAGES: Final = {
    "503": DOWN,
    "502 of a gateway": CannedResponse(502, "<html><h1>502 Bad Gateway</h1></html>"),
    "reset": Reset(),
    "silence": Hang(),
}
MADE: Final = 10
BROKEN, GOOD = "r-broken", "r-good"


@asynccontextmanager
async def bot_at_work(world: World, timings: Timings = TIMINGS) -> AsyncIterator[None]:
    """Run a bot that no callback reaches, and that has made videos since its start.

    After a rest, it has four create calls under way at most.
    """
    world.timings = timings
    async with world.running_bot(callbacks=False):
        await world.after(ask_at_once(world, MADE))
        yield


async def ask(world: World, person: Person, replica: str = REPLICA, script: str = "Hello.") -> None:
    """Submit the form, without waiting for what becomes of it."""
    form = await world.submit_form(person, {"replica_id": replica, "script": script})
    assert not form.is_open, form.errors


async def ask_at_once(world: World, number: int, replicas: Sequence[str] = (REPLICA,)) -> None:
    """Have ten people submit forms, all in one moment."""
    channel = world.slack.channel("studio").id
    users = [add_person(world, f"person{each}").user.id for each in range(10)]
    requests = [
        Request(
            secrets.token_hex(8),
            "video",
            {"replica_id": replicas[place % len(replicas)], "script": "Hello."},
            users[place % len(users)],
            channel,
        )
        for place in range(number)
    ]
    now = world.clock.now()
    await asyncio.gather(*(world.bot.store.jobs.submit(each, now) for each in requests))


def add_person(world: World, name: str) -> Person:
    """Return a person of the channel."""
    if name not in {user.name for user in world.slack.users.values()}:
        world.slack.add_user(name, channels=["studio"])
    return Person(world.slack, name)


async def ask_often(
    world: World, number: int, replicas: Sequence[str] = (REPLICA,), *, people: int = 10
) -> None:
    """Have people of the channel ask for videos, in turn, with these replicas, in turn."""
    for each in range(number):
        person = add_person(world, f"person{each % people}")
        await ask(world, person, replicas[each % len(replicas)])


def asked_about(world: World) -> int:
    """Return how many requests people were asked about."""
    return len({delivery_of(m).partition("/")[0] for m in world.posts() if is_question(m)})


def sent(world: World, since: int) -> int:
    """Return how many create calls reached the service since there were ``since``."""
    return len(world.requests_for("create_video")) - since


def outage_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what the log says about the service: that it is down, or back."""
    return [each.message for each in caplog.records if "video service is" in each.message]


@pytest.mark.slow
@pytest.mark.parametrize("outage", OUTAGES.values(), ids=OUTAGES.keys())
async def test_an_outage_leaves_few_questions_and_all_others_are_made_by_themselves(
    quiet: World, outage: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    # As many as docs/promises.md says, once: what matters is that they are more than slots.
    world, number, is_silence = quiet, 100 if outage is DOWN else 40, isinstance(outage, Hang)
    async with bot_at_work(world, IMPATIENT if is_silence else TIMINGS):
        world.service.answer_all(outage)
        await world.after(ask_at_once(world, number), seconds=10)
        waiting = [each for each in world.slack.messages("studio") if "is down" in each.text]
        assert len(waiting) >= number - 4
        if not is_silence:  # it would be as long in real time
            await world.advance(minutes=10)
        assert sent(world, MADE) <= 4
        world.service.answer_all(None)
        await world.advance(seconds=10)

        assert world.created_count() >= MADE + number - 4
        await world.advance(minutes=20)
        assert asked_about(world) <= 4
        assert world.created_count() + asked_about(world) >= MADE + number
    assert outage_lines(caplog) == ["the video service is down", "the video service is back"]


@pytest.mark.parametrize("replicas", [(REPLICA,), (REPLICA, GOOD)], ids=["one", "two"])
async def test_where_creates_alone_fail_few_are_tried_and_all_others_are_made_later(
    quiet: World, replicas: Sequence[str], caplog: pytest.LogCaptureFixture
) -> None:
    world, number = quiet, 60
    world.service.add_replica(GOOD, "Good")
    async with bot_at_work(world):
        world.service.answer_all(DOWN, CREATES)
        await world.after(ask_often(world, number, replicas), minutes=10)
        tried = sent(world, MADE)
        assert 2 <= tried <= 4 + 8
        world.service.answer_all(None, CREATES)
        await world.advance(minutes=6)

        assert world.created_count() == MADE + number - tried
    # With one replica, it may be that one alone.
    both = ["the video service is down", "the video service is back"]
    assert outage_lines(caplog) == (both if len(replicas) > 1 else [])


async def test_a_replica_that_always_fails_holds_nobody_else_up(
    quiet: World, caplog: pytest.LogCaptureFixture
) -> None:
    quiet.service.add_replica(BROKEN, "Broken")
    quiet.service.limits.broken.add(BROKEN)
    async with bot_at_work(quiet):
        began = quiet.clock.now()
        await ask_at_once(quiet, 4, [BROKEN])
        for _ in range(10):
            await ask(quiet, quiet.ana, BROKEN)
            await ask_often(quiet, 5, people=5)
        await quiet.advance(seconds=30)

        made = [each for each in quiet.requests_for("create_video") if each.status == 200]
        assert len(made) == MADE + 50
        assert max(each.at for each in made) - began < timedelta(seconds=30)
        await quiet.advance(minutes=10)
    bodies = [each.body for each in quiet.requests_for("create_video")]
    tries = [each for each in bodies if isinstance(each, dict) and each["replica_id"] == BROKEN]
    assert len(tries) <= 4 + 8
    assert "the video service is down" not in caplog.text


async def test_trainings_that_fail_hold_no_videos_up(quiet: World) -> None:
    async with bot_at_work(quiet):
        quiet.service.answer_all(DOWN, ["create_replica"])
        for person in (quiet.ana, quiet.ben):
            await quiet.request_replica(person)
        await quiet.after(ask_often(quiet, 10), seconds=10)
        assert quiet.created_count() == MADE + 10


async def test_after_a_start_one_create_finds_out_whether_the_service_works(quiet: World) -> None:
    async with bot_at_work(quiet):
        quiet.service.answer_all(DOWN)
        await quiet.after(ask_often(quiet, 20), minutes=1)
    before = sent(quiet, 0)
    quiet.service.answer_all(None)
    quiet.service.answer_all(DOWN, CREATES)
    async with quiet.running_bot(callbacks=False):
        await quiet.settle()
        assert sent(quiet, before) == 1
        quiet.service.answer_all(None)
        await quiet.advance(seconds=30)
        assert quiet.created_count() >= 20 - 4


async def test_the_card_home_and_readyz_say_since_when_and_how_many_wait(quiet: World) -> None:
    quiet.timings = TIMINGS
    async with quiet.running_bot(callbacks=False, ADMIN_USERS=quiet.ana.user.id) as bot:
        await quiet.after(ask_at_once(quiet, MADE))
        began = quiet.clock.now()
        quiet.service.answer_all(DOWN)
        await quiet.after(ask_often(quiet, 10), minutes=2)
        said = "The video service is down. I'll send this when it's back."
        assert [each for each in quiet.slack.messages("studio") if said in each.text]
        waiting = 10 - sent(quiet, MADE)
        url = f"http://127.0.0.1:{bot.port}/readyz"
        async with quiet.slack.session.get(url, headers=quiet.operator) as response:
            report = await response.json()
        service = report["checks"]["video_service"]
        assert (service["ok"], service["waiting"]) == (False, waiting)
        assert service["since"] == began.isoformat().replace("+00:00", "Z")
        assert report["checks"]["work"]["ok"], "what waits for the service is not late"
        await quiet.after(quiet.ana.open_home())
        assert quiet.ana.home is not None
        home = str(quiet.ana.home.view.body)
        assert "The video service went down" in home
        assert f"Requests waiting: {waiting}." in home


async def test_a_request_that_waits_for_the_end_of_an_outage_for_a_day_ends_with_an_answer(
    quiet: World,
) -> None:
    quiet.pauses = {**quiet.pauses, "recheck_down": timedelta(minutes=10)}
    async with bot_at_work(quiet):
        quiet.service.answer_all(DOWN)
        await quiet.after(ask_often(quiet, 5))
        card = [each for each in quiet.slack.messages("studio") if "is down" in each.text][-1]
        await quiet.advance(hours=26)
        assert "couldn't send this in time" in quiet.reply(card).text


async def test_what_waits_for_the_end_of_an_outage_costs_no_work(quiet: World) -> None:
    async with bot_at_work(quiet):
        quiet.service.answer_all(DOWN)
        await quiet.after(ask_often(quiet, 10), seconds=10)
        claims = await quiet.after(claims_of(quiet), minutes=10)
        assert await claims_of(quiet) == claims


async def claims_of(world: World) -> list[int]:
    """Return how often each job that waits for the service was claimed."""
    jobs = [
        await world.bot.store.jobs.fetch(number_of(each))
        for each in world.slack.messages("studio")
        if "is down" in each.text
    ]
    return [job.claim for job in jobs if job is not None]


async def test_a_create_that_hangs_gives_its_place_to_others(quiet: World) -> None:
    quiet.service.add_replica(GOOD, "Good")
    async with bot_at_work(quiet):
        pass
    quiet.timings = replace(IMPATIENT, call_timeout=timedelta(minutes=2))
    answered = asyncio.Event()

    async def hang(phase: str, operation: str, _path: str) -> None:
        body = quiet.service.requests[-1].body
        hangs = isinstance(body, dict) and body["replica_id"] == REPLICA
        if hangs and (phase, operation) == ("before", "create_video"):
            await answered.wait()

    quiet.service.on_request = hang
    async with quiet.running_bot(callbacks=False):
        for _ in range(8):
            await ask(quiet, quiet.ana)
        for number in range(5):
            await ask(quiet, add_person(quiet, f"person{number}"), GOOD)
        async with asyncio.timeout(30):
            while quiet.created_count() < MADE + 5:
                await asyncio.sleep(0.1)  # in real time, as the calls that hang are
                quiet.clock.set(quiet.clock.now() + timedelta(seconds=1))
        answered.set()


async def test_a_callback_is_worth_a_read_while_reads_are_limited(world: World) -> None:
    card = await world.request_video(world.ana)
    other = await world.request_video(world.ben)
    wait = timedelta(days=1)
    world.service.faults.next("read_video", CannedResponse(429, headers={"Retry-After": "86400"}))
    await world.advance(seconds=15)
    world.service.rate_limited = RateLimit(world.clock.now() + wait, retry_after=wait)
    await world.advance(seconds=30)
    assert "The video service is busy." in world.now(card).text + world.now(other).text
    world.service.rate_limited = None
    await world.advance(minutes=2)
    assert "is ready" in world.replies(card)[0].text


async def test_a_long_wait_that_a_read_is_asked_for_is_not_taken_at_its_word(quiet: World) -> None:
    async with bot_at_work(quiet):
        wait = timedelta(days=1)
        quiet.service.rate_limited = RateLimit(quiet.clock.now() + wait, retry_after=wait)
        await quiet.advance(minutes=1)
        quiet.service.rate_limited = None
        await quiet.advance(minutes=6)
        for card in quiet.slack.messages("studio"):
            assert "is ready" in quiet.replies(card)[0].text


async def test_a_service_that_fails_for_unknown_ids_is_not_read_without_pause(quiet: World) -> None:
    world, reads = quiet, 0
    world.timings = TIMINGS
    world.service.unknown_id_status = 500

    async def count(phase: str, _operation: str, path: str) -> None:
        nonlocal reads
        if (phase, path) == ("before", "/v2/videos/is-anyone-there"):
            reads += 1
            if reads > 20:  # so that the test ends
                world.service.unknown_id_status = 400

    world.service.on_request = count
    async with world.running_bot(callbacks=False):
        await world.settle()
        assert reads <= 2


async def test_a_service_that_answers_502_to_unknown_ids_is_not_down(
    quiet: World, caplog: pytest.LogCaptureFixture
) -> None:
    quiet.timings = TIMINGS
    quiet.service.unknown_id_status = 502
    async with quiet.running_bot(callbacks=False):
        await quiet.after(ask_often(quiet, 5), minutes=10)
        assert quiet.created_count() == 5
    assert outage_lines(caplog) == ["the video service is down", "the video service is back"]


async def test_a_403_is_an_answer_where_unknown_ids_answer_500(quiet: World) -> None:
    quiet.service.unknown_id_status = 500
    quiet.service.add_replica(GOOD, "Good")
    async with bot_at_work(quiet):
        quiet.service.limits.forbidden.add(GOOD)
        await quiet.after(ask(quiet, quiet.ana, GOOD), minutes=10)
        card = quiet.slack.messages("studio")[-1]
        assert quiet.replies(card), "the person is told"
        assert sent(quiet, MADE) <= 2


async def test_several_broken_replicas_are_no_outage(
    quiet: World, caplog: pytest.LogCaptureFixture
) -> None:
    world, broken = quiet, [f"r-broken-{each}" for each in range(4)]
    for each in broken:
        world.service.add_replica(each, each)
    world.service.limits.broken.update(broken)
    async with bot_at_work(world):
        await ask_often(world, 40, broken, people=4)
        for _ in range(30):
            await world.after(ask(world, world.ana), seconds=10)
        assert asked_about(world) <= len(broken) * (4 + 8)
    # One may be seen where another fails within a minute of the one before, and never again for
    # those: its beginning and its end are a line each.
    assert len(outage_lines(caplog)) <= 2 * (len(broken) - 1)


async def test_a_wait_that_a_read_is_asked_for_hides_no_outage(quiet: World) -> None:
    async with bot_at_work(quiet):
        limited = CannedResponse(429, headers={"Retry-After": "300"})
        quiet.service.answer_all(limited, ["read_video"])
        await quiet.advance(seconds=15)
        quiet.service.answer_all(DOWN)
        await quiet.after(ask_often(quiet, 20), minutes=10)
        assert sent(quiet, MADE) <= 4


async def test_a_429_during_an_outage_is_not_its_end(quiet: World) -> None:
    async with bot_at_work(quiet):
        quiet.service.answer_all(DOWN)
        await quiet.after(ask_often(quiet, 20), seconds=30)
        for _ in range(10):
            limited = CannedResponse(429, headers={"Retry-After": "30"})
            quiet.service.faults.next("read_video", limited)
            await quiet.advance(minutes=1)
        assert sent(quiet, MADE) <= 4


async def test_after_trouble_nobody_is_let_in_before_the_calls_under_way_are_answered(
    quiet: World,
) -> None:
    for each in range(10):
        quiet.service.add_replica(f"r-{each}", f"Replica {each}")
    failing = asyncio.Event()

    async def fail_late(phase: str, operation: str, _path: str) -> None:
        if (phase, operation) == ("before", "create_video") and sent(quiet, MADE) > 1:
            await failing.wait()

    async with bot_at_work(quiet):
        quiet.service.on_request = fail_late
        quiet.service.limits.broken.update(f"r-{each}" for each in range(10))
        await ask_at_once(quiet, 40, [f"r-{each}" for each in range(10)])
        async with asyncio.timeout(20):
            while sent(quiet, MADE) < 4 or asked_about(quiet) < 1:  # noqa: ASYNC110 - of both sides
                await asyncio.sleep(0.01)
        failing.set()
        await quiet.settle()
        assert sent(quiet, MADE) == 4
