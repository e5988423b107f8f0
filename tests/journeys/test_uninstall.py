"""Uninstalling the app: nothing is sent, everything is kept, and it goes on when it is back."""

import aiohttp

from sandbox import events
from sandbox.slack import Call
from tests.modes import on_both_engines
from tests.world import World


def sent(world: World) -> list[Call]:
    """Return the calls that send something."""
    return [
        call
        for call in world.slack.calls
        if call.method.startswith(("chat.", "views.", "conversations."))
    ]


async def readiness(world: World) -> tuple[int, str]:
    """Return the status of /readyz, and what it says of Slack."""
    url = world.slack.request_url.removesuffix("/slack/events") + "/readyz"
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, headers=world.operator) as answer,
    ):
        return answer.status, (await answer.json())["checks"]["slack"]["reason"]


@on_both_engines
async def test_an_uninstalled_app_sends_nothing_and_keeps_everything(quiet_world: World) -> None:
    world = quiet_world
    async with world.running_bot():
        await world.ana.open_home()
        await world.request_video(world.ana)
        await world.advance(seconds=10)
        assert await readiness(world) == (200, "")
        events.uninstall(world.slack)
        await world.settle()
        before = len(sent(world))
        await world.advance(minutes=30)
        assert len(sent(world)) == before
        status, reason = await readiness(world)
        assert status == 503, "nothing that it accepts could be answered"
        assert reason.startswith("the app is uninstalled: install it again")
    # A start without a working token sends nothing either.
    async with world.running_bot():
        await world.advance(minutes=5)
        assert len(sent(world)) == before
    events.reinstall(world.slack)
    async with world.running_bot():
        await world.advance(minutes=1)
        assert await readiness(world) == (200, "")
        card, reply = world.posts()
    assert reply.thread_ts == card.ts
    assert "is ready" in reply.text


async def test_a_reinstalled_app_goes_on_without_a_restart(world: World) -> None:
    card = await world.request_video(world.ana)
    events.revoke_token(world.slack)
    await world.advance(minutes=20)
    assert world.replies(card) == []
    events.reinstall(world.slack)
    await world.advance(minutes=11)
    assert "is ready" in world.replies(card)[0].text

    # The first request shows it earlier.
    card = await world.request_video(world.ana)
    events.revoke_token(world.slack)
    await world.advance(minutes=5)
    events.reinstall(world.slack)
    await world.ben.command("/video", "list")
    await world.settle()
    assert "is ready" in world.replies(card)[0].text


async def test_a_persons_token_that_is_revoked_changes_nothing(world: World) -> None:
    card = await world.request_video(world.ana)
    tokens = {"oauth": [world.ana.user.id], "bot": []}
    await events.send(world.slack, {"type": "tokens_revoked", "tokens": tokens})
    assert await readiness(world) == (200, "")
    await world.advance(minutes=5)
    assert len(world.replies(card)) == 1
