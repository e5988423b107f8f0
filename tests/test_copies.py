"""Two copies of the bot on one PostgreSQL database: each request may reach either of them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.world import REPLICA, World, offered_ids


@pytest.fixture
async def world(memory: Path, postgres_url: str) -> AsyncIterator[World]:
    """A world on PostgreSQL, without a bot yet."""
    world = World(memory)
    world.postgres_url = postgres_url
    async with world.running_sandbox():
        yield world


async def test_a_form_that_one_copy_opened_is_served_and_submitted_at_another(world: World) -> None:
    async with world.running_copies(2) as (first, second):
        form = await world.at(first, world.open_form(world.ana))
        assert await world.at(second, offered_ids(form)) == await world.at(first, offered_ids(form))
        await world.at(second, form.submit({"replica_id": REPLICA, "script": "Hello."}))
        await world.advance(minutes=5)
        assert world.created_count() == 1
        card, reply = world.posts()
        assert reply.thread_ts == card.ts
