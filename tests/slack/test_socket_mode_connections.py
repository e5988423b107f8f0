"""Socket Mode: the connection is opened, watched and replaced, and its loss loses nothing."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import aiohttp
import pytest

from bot.timings import Timings
from sandbox.faults import CannedResponse, Drip, Hang, Reset
from sandbox.socket_mode import OPEN
from tests.proxy import Proxy
from tests.slack.test_socket_mode import Held, started
from tests.world import REPLICA, World

QUICK = Timings(
    jitter=0,
    reconnect_interval=timedelta(milliseconds=2),
    max_reconnect_interval=timedelta(milliseconds=10),
    max_socket_wait=timedelta(milliseconds=100),
)
REFUSED = CannedResponse(body={"ok": False, "error": "invalid_auth"})


@pytest.fixture
async def unconnected(quiet_world: World) -> AsyncIterator[World]:
    """A world whose bot will use Socket Mode, with short waits."""
    quiet_world.socket_mode = True
    quiet_world.timings = QUICK
    yield quiet_world
    assert quiet_world.slack.socket_mode.refused == []


@pytest.fixture
async def world(unconnected: World) -> AsyncIterator[World]:
    async with unconnected.running_bot():
        yield unconnected


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the log lines of warnings and errors about Socket Mode, in order."""
    ours = (r for r in caplog.records if r.name in {"bot.slack.socket_mode", "bot.errors"})
    lines = [each.message for each in ours if each.levelname in {"WARNING", "ERROR"}]
    # Other calls to Slack have outages of their own.
    return [line for line in lines if not line.startswith(("Slack is", "the video service is"))]


# ── A connection that ends ────────────────────────────────────────────────────────────────────


async def test_a_silent_connection_is_replaced_and_what_was_sent_on_it_is_answered_once(
    unconnected: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = unconnected
    world.timings = replace(QUICK, socket_heartbeat=timedelta(milliseconds=300))
    async with world.running_bot():
        form = await world.open_form(world.ana)
        socket = world.slack.socket_mode
        socket.go_silent()
        answer = await form.submit({"replica_id": REPLICA, "script": "Hello."})
        assert answer.ok  # within three seconds
        assert not form.is_open
        await socket.reached(opened=2)
        await world.settle()
        assert len(world.slack.messages("studio")) == 1
    assert world.created_count() == 1
    # On a busy machine, one more may seem silent.
    assert set(logged(caplog)) == {"a connection of Socket Mode was lost"}
    causes = {vars(each)["cause"] for each in caplog.records if "was lost" in each.message}
    assert causes == {"timeout"}


async def test_after_a_warning_the_next_connection_is_open_before_the_old_one_is_closed(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    socket = world.slack.socket_mode
    held = Held(world, "views.open")
    answered = started(world)
    await held.reached.wait()

    await socket.disconnect("warning", close=False)
    await socket.reached(opened=2, connections=2)
    # The answer goes out on the connection that the envelope came on.
    held.released.set()
    assert (await answered).ok
    await socket.reached(opened=2, connections=1)

    assert (await world.ana.command("/video", "help")).ok
    assert logged(caplog) == []


async def test_connections_that_slack_ends_are_replaced(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    socket = world.slack.socket_mode
    await socket.disconnect("refresh_requested")
    await socket.reached(opened=2)
    assert (await world.ana.command("/video", "help")).ok
    assert logged(caplog) == []
    await socket.close()
    await socket.reached(opened=3)
    assert (await world.ana.command("/video", "help")).ok
    assert logged(caplog) == ["a connection of Socket Mode was lost"]
    await socket.disconnect("link_disabled")
    await socket.reached(opened=4)
    assert "Socket Mode is switched off in the Slack app: switch it on there" in logged(caplog)
    socket.enabled = True
    assert (await world.ana.command("/video", "help")).ok


async def test_connections_that_had_worked_are_replaced_without_a_back_off(
    unconnected: World,
) -> None:
    world = unconnected
    world.timings = replace(
        QUICK,
        reconnect_interval=timedelta(milliseconds=100),
        max_reconnect_interval=timedelta(minutes=10),
    )
    async with world.running_bot():
        socket = world.slack.socket_mode
        began = time.monotonic()
        async with asyncio.timeout(12):  # with a back-off, the last one would take 13 s
            for ended in range(1, 9):
                if ended % 2:
                    await socket.close()
                else:
                    await socket.disconnect("refresh_requested")
                await socket.reached(opened=ended + 1, connections=1)
        # Those that end at once are opened one after the other, not as fast as possible.
        assert time.monotonic() - began >= 0.7


async def test_an_envelope_whose_connection_ends_before_the_answer_is_sent_again_and_done_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    form = await world.open_form(world.ana)
    held = Held(world, "conversations.info")
    world.clock.set(world.clock.now() + timedelta(days=1))  # the channel is asked about again
    submitted = asyncio.ensure_future(  # noqa: TID251 - awaited below
        form.submit({"replica_id": REPLICA, "script": "Hello."})
    )
    await held.reached.wait()
    await world.slack.socket_mode.close()
    held.released.set()
    assert (await submitted).ok
    assert not form.is_open
    await world.settle()
    assert world.created_count() == 1
    assert "a Slack request cannot be read" not in caplog.text


# ── A connection that cannot be opened ────────────────────────────────────────────────────────


async def test_a_token_that_is_refused_is_reported_once_and_tried_until_it_is_accepted(
    unconnected: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = unconnected
    caplog.set_level("INFO")
    later = ["Slack opens connections again"]
    refusal = (
        "Slack refuses SLACK_APP_TOKEN: generate another one with the scope connections:write, "
        "under Basic Information of the Slack app"
    )
    world.slack.faults.next(OPEN, *[REFUSED] * 3)
    async with world.running_bot():
        assert (await world.ana.command("/video", "help")).ok
        assert logged(caplog) == [refusal, *later]

        caplog.clear()
        other = CannedResponse(body={"ok": False, "error": "forbidden"})
        world.slack.faults.next(OPEN, *[REFUSED] * 3, other, other)
        await world.slack.socket_mode.close()
        await world.slack.socket_mode.reached(opened=2)
        assert (await world.ana.command("/video", "help")).ok
    asked = "Slack opens no connection: is Socket Mode switched on in the Slack app?"
    assert logged(caplog) == ["a connection of Socket Mode was lost", refusal, asked, *later]
    assert world.slack.socket_mode.app_token not in caplog.text


async def test_while_no_connection_can_be_opened_the_bot_serves_its_health_and_goes_on_trying(
    unconnected: World, caplog: pytest.LogCaptureFixture
) -> None:
    world = unconnected
    world.timings = replace(QUICK, call_timeout=timedelta(seconds=1))
    world.slack.faults.next(
        OPEN,
        CannedResponse(500, "<html>"),
        CannedResponse(429, {"ok": False, "error": "ratelimited"}, {"Retry-After": "300"}),
        CannedResponse(body={"ok": True}),
        CannedResponse(body={"ok": True, "url": ["ws://127.0.0.1:9/"]}),
        CannedResponse(body={"ok": True, "url": "ws://127.0.0.1:9/link/?ticket=t1cket"}),
        CannedResponse(body={"ok": True, "url": f"{world.slack.url}/link/?ticket=t1cket"}),
        CannedResponse(body=[]),
        CannedResponse(body="nonsense"),
        Reset(),
        Hang(),
        Drip(),
    )
    began = time.monotonic()
    async with world.running_bot():
        # Slack asked for a wait, which is limited.
        assert time.monotonic() - began > 0.1
        assert (await world.ana.command("/video", "help")).ok
        assert logged(caplog) == ["Socket Mode is down", "Socket Mode is back"]
        world.slack.faults.always(OPEN, Reset())
        await world.slack.socket_mode.close()
        await world.slack.socket_mode.reached(connections=0)
        url = f"http://127.0.0.1:{world.bot.port}/healthz"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            assert answer.status == 200
        world.slack.faults.clear()
        await world.slack.socket_mode.reached(opened=2)
    assert "t1cket" not in caplog.text
    assert all(each.exc_info is None for each in caplog.records)


# ── Proxies ───────────────────────────────────────────────────────────────────────────────────


async def test_a_connection_goes_through_the_proxy_of_the_settings_and_no_other(
    unconnected: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = unconnected
    elsewhere = CannedResponse(body={"ok": True, "url": "wss://127.0.0.1:9/link/?ticket=1"})
    async with Proxy().running() as proxy, Proxy().running() as of_the_environment:
        monkeypatch.setenv("HTTPS_PROXY", of_the_environment.url)
        for address, without, asked in (
            (proxy.url, "", ["CONNECT 127.0.0.1:9"]),
            (proxy.url, "127.0.0.1", []),
            ("", "", []),
        ):
            proxy.asked.clear()
            world.slack.faults.next(OPEN, elsewhere)
            async with world.running_bot(HTTPS_PROXY=address, NO_PROXY=without):
                assert proxy.asked == asked
    assert of_the_environment.asked == []
