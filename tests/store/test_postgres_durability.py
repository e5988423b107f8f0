"""What the server waits for before it says that a work is committed."""

import asyncio

from bot.store.database import Query, Transaction
from bot.store.postgres.engine import PostgresDatabase
from tests.postgres_server import QUICK

_SHOW = Query("SHOW synchronous_commit")


def shown(tx: Transaction) -> str:
    row = tx.one(_SHOW)
    assert row is not None
    return str(row["synchronous_commit"])


async def test_what_must_not_be_lost_waits_for_the_servers_disk_and_what_may_be_does_not(
    postgres_url: str,
) -> None:
    assert QUICK["synchronous_commit"] == "off", "the server alone would wait for nothing"
    async with PostgresDatabase.open(postgres_url) as database:
        assert await database.run(shown) == "on"
        assert await database.run(shown, durable=False) == "off"
        # Those that are committed together wait for the one that must not be lost.
        works = [database.run(shown, durable=number == 40) for number in range(41)]
        *others, durable = await asyncio.gather(*works)
        assert durable == "on"
        assert "off" in others
