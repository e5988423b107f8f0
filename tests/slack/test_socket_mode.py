"""Socket Mode: what arrives over the connection is answered once, as over HTTP."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import aiohttp
import pytest

from bot.timings import Timings
from sandbox.block_kit import Json
from sandbox.delivery import deliver
from sandbox.driver import CommandResponse
from sandbox.faults import CannedResponse, Drip, Hang, Reset
from sandbox.socket_mode import OPEN
from tests.invalid_input import command
from tests.modes import in_both_modes
from tests.tcp import Proxy
from tests.world import REPLICA, World


@pytest.fixture
async def world(quiet: World) -> AsyncIterator[World]:
    """A world whose bot uses Socket Mode."""
    quiet.socket_mode = True
    async with quiet.running_bot():
        yield quiet
    assert quiet.slack.socket_mode.refused == []


class Held:
    """Holds the bot's call of one method, and with it the answer to a request."""

    def __init__(self, world: World, method: str) -> None:
        self.reached, self.released = asyncio.Event(), asyncio.Event()
        self._method = method
        world.slack.on_request = self._hold

    async def _hold(self, phase: str, method: str, _arguments: Json) -> None:
        if phase == "before" and method == self._method:
            self.reached.set()
            await self.released.wait()


def started(world: World, text: str = "") -> "asyncio.Task[CommandResponse]":
    """Type a command without waiting for the answer."""
    return asyncio.ensure_future(world.ana.command("/video", text))  # noqa: TID251 - awaited


@in_both_modes
async def test_while_the_database_is_down_a_form_says_the_same_in_both_modes(quiet: World) -> None:
    async with quiet.running_bot():
        form = await quiet.open_form(quiet.ana)
        await form.suggest("replica_id", REPLICA)
        await quiet.bot.store.database.close()
        await form.submit({"replica_id": REPLICA, "script": "Hello."})
    [error] = form.errors.values()
    assert error.startswith("This couldn't be saved. Please try again in a moment.")


async def test_an_envelope_that_is_being_answered_at_the_end_is_answered_and_no_new_one_is_taken(
    quiet: World,
) -> None:
    quiet.socket_mode = True
    held = Held(quiet, "views.open")
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(quiet.running_bot())
        answered = started(quiet)
        await held.reached.wait()
        ending = asyncio.ensure_future(stack.aclose())  # noqa: TID251 - awaited below
        for _ in range(20):  # it stops to read in the first of them
            await asyncio.sleep(0)
        late = started(quiet, "help")
        await asyncio.sleep(0)
        held.released.set()
        assert (await answered).ok
        await ending
    assert quiet.slack.socket_mode.connections == []
    assert not late.done()
    # Slack sends it again: on the next connection.
    async with quiet.running_bot():
        answer = await late
    assert "/video" in answer.shown.text


async def test_messages_that_are_no_envelopes_are_logged_and_the_next_request_is_answered(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    [connection] = world.slack.socket_mode.connections
    deep = '{"a":' * 100_000
    for text in ("{", "null", "[]", '"hello"', deep, '{"type": ["disconnect"]}'):
        await connection.socket.send_str(text)
    envelope: Json = {"type": "interactive", "envelope_id": "e-1"}
    await connection.send(envelope | {"payload": "text"})
    # Bolt raises on this:
    await connection.send(envelope | {"payload": {"type": "event_callback", "event": "text"}})
    await connection.send(envelope | {"payload": {"type": "view_submission", "view": []}})
    await connection.socket.send_bytes(b"hello")

    assert (await world.ana.command("/video", "help")).ok

    errors = [each.message for each in caplog.records if each.levelname == "ERROR"]
    assert errors.count("a message of Slack cannot be read: it is no envelope") == 8
    assert world.slack.socket_mode.opened == 1
    assert all(each.exc_info is None for each in caplog.records)


async def test_a_large_envelope_is_answered(world: World) -> None:
    answer = await deliver(world.slack, command(world, "help " + "x" * 1_000_000))
    assert answer.ok
    assert world.slack.socket_mode.opened == 1


async def test_without_a_signing_secret_the_web_server_takes_nothing_of_slack(world: World) -> None:
    url = f"http://127.0.0.1:{world.bot.port}"
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{url}/slack/events", data=b"command=/video") as answer:
            assert answer.status == 404
        for path in ("/healthz", "/readyz"):
            async with session.get(url + path) as answer:
                assert answer.status == 200


async def test_with_both_secrets_requests_are_taken_either_way(quiet: World) -> None:
    quiet.socket_mode = True
    async with quiet.running_bot(SLACK_SIGNING_SECRET=quiet.slack.signing_secret):
        assert (await quiet.ana.command("/video", "help")).ok
        quiet.slack.socket_mode.enabled = False
        quiet.slack.request_url = f"http://127.0.0.1:{quiet.bot.port}/slack/events"
        assert (await quiet.ana.command("/video", "help")).ok


QUICK = Timings(
    jitter=0,
    reconnect_interval=timedelta(milliseconds=2),
    max_reconnect_interval=timedelta(milliseconds=10),
    max_socket_wait=timedelta(milliseconds=100),
)
REFUSED = CannedResponse(body={"ok": False, "error": "invalid_auth"})


@pytest.fixture
async def unconnected(quiet: World) -> AsyncIterator[World]:
    """A world whose bot will use Socket Mode, with short waits."""
    quiet.socket_mode = True
    quiet.timings = QUICK
    yield quiet
    assert quiet.slack.socket_mode.refused == []


@pytest.fixture
async def connected(unconnected: World) -> AsyncIterator[World]:
    async with unconnected.running_bot():
        yield unconnected


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the log lines of warnings and errors about Socket Mode, in order."""
    ours = (r for r in caplog.records if r.name in {"bot.slack.socket_mode", "bot.outages"})
    lines = [each.message for each in ours if each.levelname in {"WARNING", "ERROR"}]
    # Other calls to Slack have outages of their own.
    return [line for line in lines if not line.startswith(("Slack is", "the video service is"))]


async def test_a_silent_connection_is_replaced_and_what_was_sent_on_it_is_answered_once(
    unconnected: World, caplog: pytest.LogCaptureFixture
) -> None:
    connected = unconnected
    connected.timings = replace(QUICK, socket_heartbeat=timedelta(milliseconds=300))
    async with connected.running_bot():
        form = await connected.open_form(connected.ana)
        socket = connected.slack.socket_mode
        socket.go_silent()
        answer = await form.submit({"replica_id": REPLICA, "script": "Hello."})
        assert answer.ok  # within three seconds
        assert not form.is_open
        await socket.reached(opened=2)
        await connected.settle()
        assert len(connected.slack.messages("studio")) == 1
    assert connected.created_count() == 1
    # On a busy machine, one more may seem silent.
    ended = {vars(each)["reason"] for each in caplog.records if "has ended" in each.message}
    assert ended == {"timeout"}


async def test_after_a_warning_the_next_connection_is_open_before_the_old_one_is_closed(
    connected: World, caplog: pytest.LogCaptureFixture
) -> None:
    socket = connected.slack.socket_mode
    held = Held(connected, "views.open")
    answered = started(connected)
    await held.reached.wait()

    await socket.disconnect("warning", close=False)
    await socket.reached(opened=2, connections=2)
    # The answer goes out on the connection that the envelope came on.
    held.released.set()
    assert (await answered).ok
    await socket.reached(opened=2, connections=1)

    assert (await connected.ana.command("/video", "help")).ok
    assert logged(caplog) == []


async def test_connections_that_slack_ends_are_replaced(
    connected: World, caplog: pytest.LogCaptureFixture
) -> None:
    socket = connected.slack.socket_mode
    await socket.disconnect("refresh_requested")
    await socket.reached(opened=2)
    assert (await connected.ana.command("/video", "help")).ok
    await socket.close()
    await socket.reached(opened=3)
    assert (await connected.ana.command("/video", "help")).ok
    await socket.disconnect("link_disabled")
    await socket.reached(opened=4)
    assert logged(caplog) == []
    socket.enabled = True
    assert (await connected.ana.command("/video", "help")).ok


async def test_connections_that_had_worked_are_replaced_without_a_back_off(
    unconnected: World,
) -> None:
    connected = unconnected
    connected.timings = replace(
        QUICK,
        reconnect_interval=timedelta(milliseconds=100),
        max_reconnect_interval=timedelta(minutes=10),
    )
    async with connected.running_bot():
        socket = connected.slack.socket_mode
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
    connected: World, caplog: pytest.LogCaptureFixture
) -> None:
    form = await connected.open_form(connected.ana)
    held = Held(connected, "conversations.info")
    connected.clock.set(
        connected.clock.now() + timedelta(days=1)
    )  # the channel is asked about again
    submitted = asyncio.ensure_future(  # noqa: TID251 - awaited below
        form.submit({"replica_id": REPLICA, "script": "Hello."})
    )
    await held.reached.wait()
    await connected.slack.socket_mode.close()
    held.released.set()
    assert (await submitted).ok
    assert not form.is_open
    await connected.settle()
    assert connected.created_count() == 1
    assert "a Slack request cannot be read" not in caplog.text


async def test_a_token_that_is_refused_is_reported_once_and_tried_until_it_is_accepted(
    unconnected: World, caplog: pytest.LogCaptureFixture
) -> None:
    connected = unconnected
    caplog.set_level("INFO")
    reported = "Slack refuses to open a connection of Socket Mode"
    connected.slack.faults.next(OPEN, *[REFUSED] * 3)
    async with connected.running_bot():
        assert (await connected.ana.command("/video", "help")).ok
        assert logged(caplog) == [reported]

        caplog.clear()
        other = CannedResponse(body={"ok": False, "error": "forbidden"})
        connected.slack.faults.next(OPEN, *[REFUSED] * 3, other, other)
        await connected.slack.socket_mode.close()
        await connected.slack.socket_mode.reached(opened=2)
        assert (await connected.ana.command("/video", "help")).ok
    assert logged(caplog) == [reported, reported], "once for each reason"
    assert connected.slack.socket_mode.app_token not in caplog.text


async def test_while_no_connection_can_be_opened_the_bot_serves_its_health_and_goes_on_trying(
    unconnected: World, caplog: pytest.LogCaptureFixture
) -> None:
    connected = unconnected
    connected.timings = replace(QUICK, call_timeout=timedelta(seconds=1))
    connected.slack.faults.next(
        OPEN,
        CannedResponse(500, "<html>"),
        CannedResponse(429, {"ok": False, "error": "ratelimited"}, {"Retry-After": "300"}),
        CannedResponse(body={"ok": True}),
        CannedResponse(body={"ok": True, "url": ["ws://127.0.0.1:9/"]}),
        CannedResponse(body={"ok": True, "url": "ws://127.0.0.1:9/link/?ticket=t1cket"}),
        CannedResponse(body={"ok": True, "url": f"{connected.slack.url}/link/?ticket=t1cket"}),
        CannedResponse(body=[]),
        CannedResponse(body="nonsense"),
        Reset(),
        Hang(),
        Drip(),
    )
    began = time.monotonic()
    async with connected.running_bot():
        # Slack asked for a wait, which is limited.
        assert time.monotonic() - began > 0.1
        assert (await connected.ana.command("/video", "help")).ok
        assert logged(caplog) == ["Socket Mode is down", "Socket Mode is back"]
        connected.slack.faults.always(OPEN, Reset())
        await connected.slack.socket_mode.close()
        await connected.slack.socket_mode.reached(connections=0)
        url = f"http://127.0.0.1:{connected.bot.port}/healthz"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            assert answer.status == 200
        connected.slack.faults.clear()
        await connected.slack.socket_mode.reached(opened=2)
    assert "t1cket" not in caplog.text
    assert all(each.exc_info is None for each in caplog.records)


async def test_a_connection_goes_through_the_proxy_of_the_settings_and_no_other(
    unconnected: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected = unconnected
    elsewhere = CannedResponse(body={"ok": True, "url": "wss://127.0.0.1:9/link/?ticket=1"})
    async with Proxy().running() as proxy, Proxy().running() as of_the_environment:
        monkeypatch.setenv("HTTPS_PROXY", of_the_environment.url)
        for address, without, asked in (
            (proxy.url, "", ["CONNECT 127.0.0.1:9"]),
            (proxy.url, "127.0.0.1", []),
            ("", "", []),
        ):
            proxy.asked.clear()
            connected.slack.faults.next(OPEN, elsewhere)
            async with connected.running_bot(HTTPS_PROXY=address, NO_PROXY=without):
                assert proxy.asked == asked
    assert of_the_environment.asked == []
