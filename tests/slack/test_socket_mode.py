"""Socket Mode: what arrives over the connection is answered once, as over HTTP."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import aiohttp
import pytest

from sandbox.block_kit import Json
from sandbox.delivery import deliver
from sandbox.driver import CommandResponse
from tests.invalid_input import command
from tests.modes import in_both_modes
from tests.world import REPLICA, World


@pytest.fixture
async def world(quiet_world: World) -> AsyncIterator[World]:
    """A world whose bot uses Socket Mode."""
    quiet_world.socket_mode = True
    async with quiet_world.running_bot():
        yield quiet_world
    assert quiet_world.slack.socket_mode.refused == []


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
async def test_while_the_database_is_down_a_form_says_the_same_in_both_modes(
    quiet_world: World,
) -> None:
    world = quiet_world
    async with world.running_bot():
        form = await world.open_form(world.ana)
        await form.suggest("replica_id", REPLICA)
        await world.bot.store.database.close()
        await form.submit({"replica_id": REPLICA, "script": "Hello."})
    [error] = form.errors.values()
    assert error.startswith("This couldn't be saved. Please try again in a moment.")


async def test_an_envelope_that_is_being_answered_at_the_end_is_answered_and_no_new_one_is_taken(
    quiet_world: World,
) -> None:
    world = quiet_world
    world.socket_mode = True
    held = Held(world, "views.open")
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(world.running_bot())
        answered = started(world)
        await held.reached.wait()
        ending = asyncio.ensure_future(stack.aclose())  # noqa: TID251 - awaited below
        for _ in range(20):  # it stops to read in the first of them
            await asyncio.sleep(0)
        late = started(world, "help")
        await asyncio.sleep(0)
        held.released.set()
        assert (await answered).ok
        await ending
    assert world.slack.socket_mode.connections == []
    assert not late.done()
    # Slack sends it again: on the next connection.
    async with world.running_bot():
        answer = await late
    assert answer.message is not None
    assert "/video" in answer.message.text


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


async def test_with_both_secrets_requests_are_taken_either_way(quiet_world: World) -> None:
    world = quiet_world
    world.socket_mode = True
    async with world.running_bot(SLACK_SIGNING_SECRET=world.slack.signing_secret):
        assert (await world.ana.command("/video", "help")).ok
        world.slack.socket_mode.enabled = False
        world.slack.request_url = f"http://127.0.0.1:{world.bot.port}/slack/events"
        assert (await world.ana.command("/video", "help")).ok
