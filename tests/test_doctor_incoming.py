"""The doctor on what comes in: whether callbacks and Slack's requests reach this bot."""

import contextlib
import secrets
from collections.abc import AsyncIterator
from dataclasses import replace

import aiohttp
import pytest
from aiohttp import web

from bot.clock import SystemClock
from bot.store.inspection import stored_probe
from sandbox.http import Server, free_port
from tests.report import report
from tests.world import World

EVENTS = "/slack/events"


@pytest.fixture
async def live_world(quiet_world: World) -> AsyncIterator[World]:
    """A world whose bot has the machine's clock: it judges what doctor signs."""
    quiet_world.bot_clock = SystemClock()
    async with quiet_world.running_bot():
        yield quiet_world


@contextlib.asynccontextmanager
async def answering(status: int, text: str = "", server: str = "") -> AsyncIterator[str]:
    """Run another program that answers everything alike; yield its address."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, text=text, headers={"Server": server})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    other = Server(app)
    await other.start()
    try:
        yield other.url
    finally:
        await other.stop()


async def test_callbacks_and_requests_reach_the_bot_that_runs(live_world: World) -> None:
    found = await report(live_world)
    url = f"http://127.0.0.1:{live_world.bot.port}"
    assert found["callbacks"].message == f"the service reaches this bot at {url}"
    assert found["callbacks"].state == "ok"
    assert found["Slack requests"].message == f"they reach this bot at {url}{EVENTS}"
    assert found["Slack requests"].state == "ok"
    # No job is read for it.
    assert live_world.service.requests == [
        each for each in live_world.service.requests if "is-anyone-there" in str(each)
    ]


async def test_where_no_bot_runs_doctor_listens_in_its_place(quiet_world: World) -> None:
    found = await report(quiet_world)
    assert found["callbacks"].state == "ok"
    assert found["Slack requests"].state == "ok"
    assert not quiet_world.database.exists()


async def test_a_bot_on_another_database_is_not_taken_for_this_one(
    live_world: World,
) -> None:
    other = World(live_world.database.parent / "other")
    other.database.parent.mkdir()
    other.slack, other.service = live_world.slack, live_world.service
    async with other.running_bot():
        found = await report(live_world, PUBLIC_URL=f"http://127.0.0.1:{other.bot.port}")
    assert found["callbacks"].state == "warning"
    assert "another bot answers at PUBLIC_URL" in found["callbacks"].message


async def test_a_bot_with_another_signing_secret_is_named(live_world: World) -> None:
    finding = (await report(live_world, SLACK_SIGNING_SECRET="0" * 32))["Slack requests"]
    assert finding.state == "error"
    assert "refuses what is signed with SLACK_SIGNING_SECRET" in finding.message
    assert "restart it" in finding.remedy


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize(
    ("status", "said", "remedy"),
    [
        (502, "does not reach the bot: it says 502", "pass requests on to 127.0.0.1:"),
        (404, "another program answers at PUBLIC_URL, not this bot (nginx, 404)", "PUBLIC_URL"),
        (200, "another program answers at PUBLIC_URL, not this bot (nginx, 200)", "PUBLIC_URL"),
        (308, "sends callers to another address (308)", "Set PUBLIC_URL to that address"),
    ],
)
async def test_what_answers_in_place_of_the_bot_is_named(
    *, running: bool, status: int, said: str, remedy: str, quiet_world: World
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        if running:
            await stack.enter_async_context(quiet_world.running_bot())
        url = await stack.enter_async_context(answering(status, "<h1>Hello</h1>", "nginx"))
        found = await report(quiet_world, PUBLIC_URL=url)
    for name, state in (("callbacks", "warning"), ("Slack requests", "error")):
        assert found[name].state == state
        assert said in found[name].message
        assert remedy in found[name].remedy


async def test_a_public_url_where_nothing_listens_is_named(live_world: World) -> None:
    found = await report(live_world, PUBLIC_URL=f"http://127.0.0.1:{free_port()}")
    for name in ("callbacks", "Slack requests"):
        assert (
            "cannot be reached: the connection was refused (nothing listens there)"
            in found[name].message
        )
    found = await report(live_world, PUBLIC_URL="https://bot.invalid")
    assert "bot.invalid cannot be resolved (DNS)" in found["Slack requests"].message


async def test_a_port_that_another_program_has_is_named(quiet_world: World) -> None:
    async with answering(200) as url:
        port = url.rpartition(":")[2]
        found = await report(quiet_world, PORT=port, PUBLIC_URL=url)
    assert found["port"].state == "error"
    assert f"another program has port {port}" in found["port"].message
    assert "set PORT to another one" in found["port"].remedy
    found = await report(quiet_world, HOST="no-such-host.invalid")
    assert "HOST (no-such-host.invalid) is no address of this machine" in found["port"].message


async def test_a_private_address_is_named_where_the_service_is_elsewhere(
    quiet_world: World,
) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"  # so that nothing leaves this machine
    found = await report(quiet_world, VIDEO_API_URL="https://1.1.1.1", HTTPS_PROXY=nowhere)
    assert found["public address"].state == "warning"
    assert "127.0.0.1 is an address of this machine" in found["public address"].message
    assert "use Socket Mode" in found["public address"].remedy


async def test_without_a_public_url_it_says_how_the_bot_gets_by(quiet_world: World) -> None:
    found = await report(quiet_world, PUBLIC_URL="")
    assert found["callbacks"].state == "off"
    assert "the bot polls the service" in found["callbacks"].message
    assert found["Slack requests"].state == "warning"
    assert "Set SLACK_APP_TOKEN to use Socket Mode" in found["Slack requests"].remedy


async def test_the_token_of_doctor_is_answered_like_any_other(live_world: World) -> None:
    probe = stored_probe(live_world.database)
    assert probe is not None
    assert len(probe.token) == len(secrets.token_urlsafe(32))
    answers = []
    async with aiohttp.ClientSession() as session:
        for token in (probe.token, secrets.token_urlsafe(32)):
            url = f"http://127.0.0.1:{live_world.bot.port}/callbacks/{token}"
            async with session.post(url, json={"status": "ready"}) as response:
                same = {name: text for name, text in response.headers.items() if name != "Date"}
                answers.append((response.status, await response.text(), same))
    assert answers[0] == answers[1]
    assert stored_probe(live_world.database) == replace(probe, received=probe.received + 1)
