"""Two copies of the bot, and more forms at once than one transaction takes."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import psycopg
import pytest

from bot.app import Bot
from sandbox.delivery import deliver, encoded, interaction
from tests.world import REPLICA, World

FORMS = 24


@pytest.fixture
def world(world_of_copies: World) -> World:
    return world_of_copies


async def forms(world: World, number: int) -> list[bytes]:
    """Return the requests of forms of Ana's, each with a script of its own."""
    form = await world.open_form(world.ana)
    await form._fill_in(form._field("replica_id"), REPLICA)
    await form._fill_in(form._field("script"), "SCRIPT")
    payload = interaction(world.slack, world.ana.user, "view_submission", None)
    text = json.dumps({**payload, "view": form.view.payload()})
    view_id = form.view.payload()["id"]
    await form.close()
    return [
        encoded(json.loads(text.replace("SCRIPT", f"Hello {n}.").replace(view_id, f"{view_id}{n}")))
        for n in range(number)
    ]


def sent(world: World, copies: Sequence[Bot], requests: Sequence[bytes]) -> list[Any]:
    """Return what sends requests to copies in turn."""
    return [
        world.at(copies[number % len(copies)], deliver(world.slack, request))
        for number, request in enumerate(requests)
    ]


async def waiting_for_limits(url: str) -> int:
    """Return how many transactions wait for the lock that forms wait for."""
    query = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        " AND query LIKE '%FROM locks%'"
    )
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        found = await (await connection.execute(query)).fetchone()
    return int(found[0]) if found else 0


@contextlib.asynccontextmanager
async def limits_locked(url: str, copies: int) -> AsyncIterator[None]:
    """Hold the lock that forms wait for, and let it go once transactions of all copies wait."""
    async with await psycopg.AsyncConnection.connect(url) as other:
        await other.execute("SELECT * FROM locks WHERE name = 'limits' FOR UPDATE")
        yield
        async with asyncio.timeout(30):
            while await waiting_for_limits(url) < copies:
                pass


async def test_of_many_forms_that_reach_both_copies_at_once_as_many_are_accepted_as_the_limit_says(
    world: World,
) -> None:
    url = world.postgres_url
    assert url is not None
    async with world.running_copies(MAX_PER_DAY="7", MAX_OPEN_PER_USER="20") as copies:
        requests = await forms(world, FORMS)
        async with limits_locked(url, len(copies)):
            answers = asyncio.gather(*sent(world, copies, requests))
            for copy in (*copies, *copies):  # meanwhile the rest of the forms come in
                assert (await world.at(copy, world.ben.command("/video", "list"))).ok
        await answers
        await world.advance(seconds=10)
        assert world.created_count() == 7
        assert len(world.slack.messages("studio")) == 7


async def test_forms_that_wait_for_the_other_copy_leave_the_rest_of_their_own_free(
    world: World,
) -> None:
    url = world.postgres_url
    assert url is not None
    async with world.running_copies() as copies:
        requests = await forms(world, FORMS)
        await world.settle()  # the first sweep of each copy takes the same lock
        async with limits_locked(url, 1):
            answers = asyncio.gather(*sent(world, copies[:1], requests))
            # Otherwise two wait within a tenth of a second of a processor.
            until = asyncio.get_running_loop().time() + 1
            while asyncio.get_running_loop().time() < until:
                assert (await world.at(copies[0], world.ben.command("/video", "list"))).ok
                assert await waiting_for_limits(url) <= 1
        assert not any(answer.body for answer in await answers), "all forms were accepted"
        # A create call that waits for others for two seconds is put off.
        await world.advance(seconds=10)
        assert world.created_count() == FORMS
        assert len(world.slack.messages("studio")) == FORMS
