"""What the log and the doctor say about a side that does not answer, and about wrong requests."""

import ssl
from datetime import timedelta

import aiohttp
import httpx
import pytest
from aiohttp.client_reqrep import ConnectionKey

from bot.service.errors import cause_of
from sandbox.delivery import deliver
from sandbox.faults import CannedResponse, Reset
from sandbox.scenarios import Scenario
from sandbox.service_limits import RateLimit
from tests.world import World


def lines(caplog: pytest.LogCaptureFixture, side: str) -> list[tuple[str, object]]:
    """Return the lines about outages of a side, each with its cause."""
    return [
        (record.message.removeprefix(f"{side} is "), vars(record).get("cause"))
        for record in caplog.records
        if record.message.startswith(f"{side} is ")
    ]


# ── The log ───────────────────────────────────────────────────────────────────────────────────


async def test_a_service_that_is_gone_is_one_line_with_the_cause_and_one_when_it_is_back(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    port = int(world.service.url.rpartition(":")[2])
    await world.service.stop()
    await world.request_video(world.ana)
    await world.advance(minutes=10)
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
    await world.request_video(world.ana)
    await world.advance(minutes=2)

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


KEY = ConnectionKey("example.com", 443, True, True, None, None, None)


def test_the_cause_of_an_error_is_one_word(subtests: pytest.Subtests) -> None:
    cases: list[tuple[Exception, str]] = [
        (aiohttp.ClientConnectorDNSError(KEY, OSError(-2, "Name not known")), "dns"),
        (aiohttp.ClientConnectorSSLError(KEY, ssl.SSLError(1, "wrong version")), "tls"),
        (
            aiohttp.ClientConnectorCertificateError(KEY, ssl.SSLCertVerificationError("expired")),
            "tls",
        ),
        (aiohttp.ConnectionTimeoutError("late"), "timeout"),
        (httpx.PoolTimeout("busy"), "timeout"),
        (TimeoutError(), "timeout"),
        (aiohttp.ServerDisconnectedError(), "broken"),
        (ConnectionResetError(), "broken"),
        (ValueError("no JSON"), "broken"),
    ]
    for error, cause in cases:
        with subtests.test(error=error, cause=cause):
            wrapped = httpx.ConnectError("as the transport raises it")
            wrapped.__cause__ = error
            assert cause_of(error) == cause_of(wrapped) == cause


# ── Requests that are turned away ─────────────────────────────────────────────────────────────


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


# ── Odd answers ───────────────────────────────────────────────────────────────────────────────


async def test_videos_that_cannot_be_read_are_no_outage_while_others_can(
    quiet_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = quiet_world
    stuck = Scenario(end="never")
    world.service.next_video(*[stuck] * 4)
    async with world.running_bot(callbacks=False):
        for _ in range(4):
            await world.request_video(world.ana)
        await world.advance(minutes=1)
        odd = list(world.service.videos)[:3]
        world.service.limits.broken.update(odd)
        before = len(world.service.requests)
        await world.advance(hours=2)

    assert not lines(caplog, "the video service")
    reads = [each.path for each in world.service.requests[before:]]
    for video_id in odd:
        assert reads.count(f"/v2/videos/{video_id}") <= 40, "they are read ever more rarely"


async def test_an_outage_after_odd_answers_is_still_noticed(
    quiet_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = quiet_world
    world.service.next_video(*[Scenario(end="never")] * 4)
    async with world.running_bot(callbacks=False):
        for _ in range(4):
            await world.request_video(world.ana)
        world.service.limits.broken.update(list(world.service.videos)[:2])
        await world.advance(hours=1)
        caplog.clear()
        world.service.down = True
        await world.advance(hours=1)
        assert lines(caplog, "the video service") == [("down", "http 503")]
        world.service.down = False
        await world.advance(hours=1)
        assert lines(caplog, "the video service") == [("down", "http 503"), ("back", None)]


async def test_a_long_rate_limit_is_one_line(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.service.rate_limited = RateLimit(world.clock.now() + timedelta(hours=3))
    await world.request_video(world.ana)
    await world.advance(hours=2)

    # Reads have a limit of their own.
    assert len([each for each in caplog.records if "limits calls" in each.message]) <= 2
