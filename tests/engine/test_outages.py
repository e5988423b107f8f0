"""What the log and the doctor say about a side that does not answer, and about wrong requests."""

import asyncio
import re
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from bot.model import Request
from sandbox.delivery import deliver
from sandbox.driver import Person
from sandbox.faults import CannedResponse, Reset
from sandbox.scenarios import CallbackPlan, Scenario
from sandbox.service_limits import RateLimit
from sandbox.slack_objects import Message
from tests.web.test_health import check
from tests.world import REPLICA, World


def lines(caplog: pytest.LogCaptureFixture, side: str) -> list[tuple[str, object]]:
    """Return the lines about outages of a side, each with its cause."""
    return [
        (record.message.removeprefix(f"{side} is "), vars(record).get("cause"))
        for record in caplog.records
        if record.message.startswith(f"{side} is ")
    ]


async def test_a_service_that_is_gone_is_one_line_with_the_cause_and_one_when_it_is_back(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    port = int(world.service.url.rpartition(":")[2])
    await world.service.stop()
    await world.after(world.request_video(world.ana), minutes=10)
    assert lines(caplog, "the video service") == [("down", "refused")]

    await world.service.start(port)
    await world.advance(minutes=10)

    assert lines(caplog, "the video service") == [("down", "refused"), ("back", None)]
    [back] = [each for each in caplog.records if "service is back" in each.message]
    assert 600 <= vars(back)["down_s"] <= 900


async def test_a_single_failed_call_is_no_outage(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="bot")
    world.service.faults.next("create_video", CannedResponse(503, "<html>Secret words</html>"))
    await world.after(world.request_video(world.ana), minutes=2)

    assert lines(caplog, "the video service") == []
    [failed] = [each for each in caplog.records if each.message == "a call failed"]
    assert vars(failed)["cause"] == "http 503"
    assert "Secret words" not in caplog.text


async def test_an_outage_of_slack_is_one_line_with_the_cause_and_one_when_it_is_back(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    card = await world.request_video(world.ana)
    for method in ("chat.postMessage", "chat.update"):
        world.slack.faults.always(method, Reset())
    await world.advance(minutes=20)
    assert lines(caplog, "Slack") == [("down", "broken")]

    world.slack.faults.clear()
    await world.advance(minutes=20)

    assert lines(caplog, "Slack") == [("down", "broken"), ("back", None)]
    assert len(world.replies(card)) == 1


async def test_a_wrong_signing_secret_is_one_counted_line_a_minute(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.slack.signing_secret = "0" * 32
    for _ in range(5):
        await deliver(world.slack, b"payload=x")
    await world.advance(minutes=1)
    await deliver(world.slack, b"payload=x")

    found = [each for each in caplog.records if "wrong signature" in each.message]
    assert [vars(each)["count"] for each in found] == [1, 5]


@pytest.mark.parametrize("ahead", [timedelta(minutes=6), timedelta(days=-400)])
async def test_a_clock_that_is_off_is_one_counted_line_a_minute_with_the_difference(
    ahead: timedelta, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    stale = str(int((world.clock.now() - ahead).timestamp()))
    for _ in range(3):
        assert (await deliver(world.slack, b"payload=x", timestamp=stale)).status == 401

    found = [each for each in caplog.records if "set its clock" in each.message]
    assert [vars(each)["count"] for each in found] == [1]
    assert abs(vars(found[0])["clock_ahead_s"] - ahead.total_seconds()) <= 1


async def test_videos_that_cannot_be_read_are_no_outage_while_others_can(
    quiet: World, caplog: pytest.LogCaptureFixture
) -> None:
    stuck = Scenario(end="never")
    quiet.service.next_video(*[stuck] * 4)
    async with quiet.running_bot(callbacks=False):
        for _ in range(4):
            await quiet.request_video(quiet.ana)
        await quiet.advance(minutes=1)
        odd = list(quiet.service.videos)[:3]
        quiet.service.limits.broken.update(odd)
        before = len(quiet.service.requests)
        await quiet.advance(hours=2)

    assert not lines(caplog, "the video service")
    reads = [each.path for each in quiet.service.requests[before:]]
    for video_id in odd:
        assert reads.count(f"/v2/videos/{video_id}") <= 40, "they are read ever more rarely"


async def test_a_long_rate_limit_is_one_line(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.service.rate_limited = RateLimit(world.clock.now() + timedelta(hours=3))
    await world.after(world.request_video(world.ana), hours=2)

    # Reads have a limit of their own.
    assert len([each for each in caplog.records if "limits calls" in each.message]) <= 2


async def ask(world: World, person: Person) -> None:
    form = await world.submit_form(person, {"replica_id": REPLICA, "script": "Hello, world."})
    assert not form.is_open, form.errors
    await world.settle()


def card(world: World, number: int) -> Message:
    return world.slack.messages("studio")[number]


async def test_who_waits_for_credit_reads_whom_to_ask_by_name_and_nobody_is_pinged(
    quiet: World,
) -> None:
    quiet.service.out_of_credit = True
    cleo = Person(quiet.slack, "cleo")
    async with quiet.running_bot(ADMIN_USERS=cleo.user.id):
        for person in (quiet.ana, quiet.ben):
            await ask(quiet, person)
        first, second = card(quiet, 0), card(quiet, 1)
        [reply] = quiet.replies(first)
        ask_cleo = "Ask cleo to top up the account."
        assert f"Out of video credits. You weren't charged. {ask_cleo}" in reply.text
        assert f"Out of video credits. {ask_cleo} I'll keep retrying for a day." in second.text
        assert not second.pings
        assert reply.pings == {quiet.ana.user.id}
        tries = len(quiet.requests_for("create_video"))
        await quiet.advance(minutes=11)
        assert len(quiet.requests_for("create_video")) == tries + 1


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


async def test_admins_read_in_home_and_monitoring_when_the_next_try_is(quiet: World) -> None:
    quiet.service.out_of_credit = True
    async with quiet.running_bot(ADMIN_USERS=quiet.ana.user.id):
        await ask(quiet, quiet.ben)
        await quiet.after(quiet.ana.open_home(), seconds=5)
        assert quiet.ana.home is not None
        shown = str(quiet.ana.home.view.body)
        assert re.search(r"top up the account\. Next try: <!date\^\d+\^", shown), shown
        _, service = await check(quiet, "video_service")
        assert datetime.fromisoformat(service["next_try"]) > quiet.clock.now()


ODD = "r-odd"


@pytest.fixture
async def odd(quiet: World) -> World:
    """A world with the default jitter, in which creates with one replica are throttled."""
    quiet.service.add_replica(ODD, "Odd")
    quiet.service.callback_plan = CallbackPlan(times=0)
    quiet.timings = replace(quiet.timings, jitter=0.1)
    return quiet


async def ask_with(world: World, person: Person, replica_id: str) -> Message:
    """Ask for a video, and return its card."""
    return await world.request_video(person, {"replica_id": replica_id})


async def send_at_once(world: World, person: Person, count: int) -> None:
    """Have several requests stored before the first of them is tried."""
    channel, now = world.slack.channel("studio").id, world.clock.now()
    params = {"replica_id": ODD, "script": "Me"}
    requests = [Request(f"V{n}", "video", params, person.user.id, channel) for n in range(count)]
    await asyncio.gather(*(world.bot.store.jobs.submit(each, now) for each in requests))
    await world.settle()


@pytest.mark.parametrize("wait", [timedelta(seconds=30), timedelta(hours=1), timedelta(hours=5)])
async def test_the_next_try_after_a_rate_limit_is_that_of_another_person(
    odd: World, wait: timedelta
) -> None:
    odd.service.limits.throttled[ODD] = wait
    async with odd.running_bot():
        for _ in range(3):
            await ask_with(odd, odd.ana, ODD)
        await odd.advance(seconds=1)
        await ask_with(odd, odd.ben, REPLICA)
        await odd.advance(seconds=wait.total_seconds() + 1)
        assert odd.created_count() == 1


async def test_one_persons_throttled_requests_do_not_go_before_a_later_one_of_somebody_else(
    odd: World,
) -> None:
    odd.service.limits.throttled[ODD] = timedelta(hours=1)
    async with odd.running_bot():
        # All at once: the turns of those that were not tried yet come before Ben's.
        await odd.after(send_at_once(odd, odd.ana, 10), minutes=55)
        await odd.after(ask_with(odd, odd.ben, REPLICA), minutes=6)
        assert odd.created_count() == 1


async def test_a_throttled_read_does_not_go_before_all_others_for_ever(odd: World) -> None:
    async with odd.running_bot(callbacks=False):
        await ask_with(odd, odd.ana, REPLICA)
        odd.service.limits.throttled[next(iter(odd.service.videos))] = timedelta(hours=1)
        card = await ask_with(odd, odd.ben, REPLICA)
        for _ in range(8):
            await odd.advance(hours=1)
        assert odd.replies(card)
