"""What /readyz says: whether the bot can do its work now, and what to do if not."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import aiohttp
import pytest

from bot.timings import Timings
from sandbox import events
from sandbox.faults import CannedResponse, Reset
from sandbox.http import free_port
from tests.modes import on_sqlite_alone
from tests.web.test_metrics import Scrape, scrape
from tests.world import World


async def ready(world: World) -> tuple[int, dict[str, Any]]:
    """Return the status of /readyz and its body."""
    url = f"http://127.0.0.1:{world.bot.port}/readyz"
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, headers=world.operator) as answer,
    ):
        return answer.status, await answer.json()


async def check(world: World, name: str) -> tuple[int, dict[str, Any]]:
    """Return the status of /readyz, and one part of it."""
    status, said = await ready(world)
    return status, said["checks"][name]


async def ready_later(world: World) -> tuple[int, dict[str, Any]]:
    """Ask, let the bot find out what was asked for, and ask again."""
    await ready(world)
    await world.settle()
    return await ready(world)


async def test_a_bot_that_works_says_so_with_its_last_successes(world: World) -> None:
    await world.request_video(world.ana)
    await world.advance(seconds=10)
    status, said = await ready(world)
    assert status == 200
    assert (said["ready"], said["degraded"]) == (True, False)
    assert set(said["checks"]) == {"database", "slack", "video_service", "work"}
    assert all(each["ok"] and not each["reason"] for each in said["checks"].values())
    last = datetime.fromisoformat(said["checks"]["video_service"]["last_success"])
    assert timedelta(0) <= world.clock.now() - last < timedelta(seconds=10)


async def test_a_bot_that_reaches_neither_slack_nor_the_service_is_not_ready(
    quiet_world: World,
) -> None:
    world = quiet_world
    gone = f"http://127.0.0.1:{free_port()}"
    async with world.running_bot(SLACK_API_URL=f"{gone}/api/", VIDEO_API_URL=gone):
        status, said = await ready(world)
    assert (status, said["ready"]) == (503, False)
    for side, setting in (("slack", "SLACK_API_URL"), ("video_service", "VIDEO_API_URL")):
        part = said["checks"][side]
        assert not part["ok"]
        assert "the connection was refused" in part["reason"]
        assert f"is {setting} right and reachable from here?" in part["reason"]
        assert part["last_success"] is None
        assert part["since"]


async def test_a_quiet_bot_notices_that_both_are_gone_and_that_they_are_back(world: World) -> None:
    await world.advance(hours=5)
    world.service.down = True
    world.slack.faults.always("auth.test", Reset())
    await ready_later(world)
    await world.advance(minutes=1)
    status, said = await ready_later(world)
    assert status == 503, said
    world.service.down = False
    world.slack.faults.clear()
    await world.advance(minutes=1)
    status, said = await ready_later(world)
    assert (status, said["degraded"]) == (200, False), said


async def test_an_outage_of_one_side_leaves_the_bot_ready_but_degraded(world: World) -> None:
    world.service.down = True
    await world.request_video(world.ana)
    await world.advance(minutes=1)
    status, said = await ready(world)
    assert (status, said["ready"], said["degraded"]) == (200, True, True)
    assert "does not answer (it answered 503)" in said["checks"]["video_service"]["reason"]
    assert said["checks"]["slack"]["ok"]

    world.service.down = False
    await world.advance(minutes=5)
    world.slack.faults.always("auth.test", CannedResponse(503))
    for _ in range(2):
        await world.advance(minutes=1)
        status, said = await ready_later(world)
    assert (status, said["ready"], said["degraded"]) == (200, True, True)
    assert said["checks"]["video_service"]["ok"]
    assert "Slack does not answer" in said["checks"]["slack"]["reason"]


async def test_a_bot_whose_token_is_refused_is_not_ready_until_it_is_accepted(
    quiet_world: World,
) -> None:
    world = quiet_world
    world.slack.auth_error = "invalid_auth"
    async with world.running_bot():
        status, slack = await check(world, "slack")
        assert (status, slack["ok"]) == (503, False)
        assert slack["reason"].startswith("Slack refuses SLACK_BOT_TOKEN (invalid_auth): install")
        world.slack.auth_error = None
        await world.advance(minutes=1)
        status, slack = await check(world, "slack")
        assert (status, slack["ok"]) == (200, True)


async def test_closed_gates_of_the_service_are_named_with_what_to_do(world: World) -> None:
    world.service.out_of_credit = True
    await world.request_video(world.ana)
    status, service = await check(world, "video_service")
    assert (status, service["ok"], service["held_back_by"]) == (200, False, ["credit"])
    assert "top it up" in service["reason"]

    world.service.api_key = "another"
    await world.advance(minutes=11)
    await ready_later(world)
    status, service = await check(world, "video_service")
    assert (status, service["held_back_by"]) == (200, ["key", "credit"])
    assert service["reason"].startswith("the service refuses VIDEO_API_KEY: copy the key again")


async def test_work_that_is_overdue_is_counted_from_when_it_was_due(world: World) -> None:
    await world.request_video(world.ana)
    await world.settle()
    # Until the token works again nothing is posted, and what is due stays due.
    events.revoke_token(world.slack)
    await world.advance(minutes=30)
    _, work = await check(world, "work")
    assert not work["ok"]
    assert 20 * 60 < work["oldest_due_delivery_s"] <= 30 * 60
    assert work["oldest_due_job_s"] == 0
    events.reinstall(world.slack)
    await world.advance(minutes=11)
    _, work = await check(world, "work")
    assert (work["ok"], work["oldest_due_delivery_s"]) == (True, 0)


@on_sqlite_alone
async def test_strangers_are_told_only_whether_the_bot_is_ready(world: World) -> None:
    url = f"http://127.0.0.1:{world.bot.port}/readyz"
    right = world.operator["Authorization"]
    wrong = ("", "Bearer ", right[:-1], right + "0", right.removeprefix("Bearer "), "Bearer \xe9")
    async with aiohttp.ClientSession() as session:
        for is_ready, status in ((True, 200), (False, 503)):
            if not is_ready:
                world.database.unlink()
                await world.advance(seconds=2)
            for each in wrong:
                async with session.get(url, headers={"Authorization": each}) as answer:
                    assert (answer.status, await answer.json()) == (status, {"ready": is_ready})
            assert (await ready(world))[1]["checks"]["database"]["ok"] is is_ready


async def test_readiness_says_nothing_about_anybody(world: World) -> None:
    card = await world.request_video(world.ana, {"script": "A most private announcement."})
    world.service.down = True
    await world.advance(minutes=1)
    _, said = await ready(world)
    shown = str(said)
    for private in (world.ana.user.id, card.channel, card.ts, "private", world.service.api_key):
        assert private not in shown
    assert world.slack.bot_token not in shown


async def test_a_closed_socket_is_not_ready_after_a_minute(quiet_world: World) -> None:
    world = quiet_world
    world.socket_mode = True
    async with world.running_bot():
        status, socket = await check(world, "socket")
        assert (status, socket["ok"], socket["connected"]) == (200, True, True)
        assert socket["last_success"]

        world.slack.faults.always("apps.connections.open", CannedResponse(503))
        await world.slack.socket_mode.close()
        async with asyncio.timeout(30):
            while (await check(world, "socket"))[1]["connected"]:
                pass
        assert (await ready(world))[0] == 200, "it is opened again within seconds, usually"
        await world.advance(minutes=2)
        status, socket = await check(world, "socket")
        assert (status, socket["ok"]) == (503, False)
        assert "SLACK_APP_TOKEN" in socket["reason"]
        assert (await scrape(world)).value("replica_bot_check_ok", check="socket") == 0

        # A clock that was set back makes it a minute from then.
        world.clock.set(world.clock.now() - timedelta(days=1))
        assert (await ready(world))[0] == 200
        await world.advance(minutes=2)
        assert (await ready(world))[0] == 503

        world.slack.faults.clear()
        await world.slack.socket_mode.reached(opened=2)
        async with asyncio.timeout(30):
            while (await ready(world))[0] != 200:
                pass


@pytest.fixture
async def patient_world(quiet_world: World) -> AsyncIterator[World]:
    """A world whose bot answers from its last look for as long as it does outside of tests."""
    quiet_world.pauses = {**quiet_world.pauses, "report_max_age": Timings().report_max_age}
    async with quiet_world.running_bot():
        await quiet_world.settle()
        yield quiet_world


async def flood(patient_world: World, path: str) -> set[bytes]:
    """Ask 200 times, as fast as it goes; return the different answers."""
    url = f"http://127.0.0.1:{patient_world.bot.port}{path}"
    async with aiohttp.ClientSession() as session:

        async def ask() -> bytes:
            async with session.get(url, headers=patient_world.operator) as answer:
                return await answer.read()

        said: set[bytes] = set()
        for _ in range(4):
            said |= set(await asyncio.gather(*(ask() for _ in range(50))))
        return said


async def durable_commits(patient_world: World) -> float:
    """Return how many transactions waited for the disk until now."""
    await patient_world.advance(seconds=1)
    said: Scrape = await scrape(patient_world)
    return said.value("replica_bot_commit_seconds_count", durable="yes")


async def test_many_who_ask_within_a_second_share_one_look_and_one_write(
    patient_world: World,
) -> None:
    before = await durable_commits(patient_world)
    await patient_world.advance(seconds=1)
    calls = len(patient_world.slack.calls), len(patient_world.service.requests)
    assert len(await flood(patient_world, "/readyz")) == 1
    assert len(await flood(patient_world, "/metrics")) == 1
    assert (len(patient_world.slack.calls), len(patient_world.service.requests)) == calls
    # One for the flood and one for this look.
    assert await durable_commits(patient_world) - before <= 2


@on_sqlite_alone
async def test_a_report_is_new_after_a_second_and_when_the_clock_was_set_back(
    patient_world: World,
) -> None:
    [before] = await flood(patient_world, "/readyz")
    patient_world.database.unlink()
    assert await flood(patient_world, "/readyz") == {before}
    patient_world.clock.set(patient_world.clock.now() - timedelta(hours=1))
    [after] = await flood(patient_world, "/readyz")
    assert b"nothing can be stored" in after


async def test_a_bot_that_is_asked_to_end_says_so_at_once(patient_world: World) -> None:
    [before] = await flood(patient_world, "/readyz")
    assert b'"ready": true' in before
    await patient_world.bot.drain(timedelta(0))
    [after] = await flood(patient_world, "/readyz")
    assert b"the bot is stopping" in after
