"""What the bot relies on holds with all defaults of its role, and on a shared pool."""

import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import psycopg
import pytest

from bot.clock import SystemClock
from bot.ops.doctor import check_database
from bot.store import Store
from bot.store.database import Query, Row, Transaction
from bot.store.postgres.engine import PostgresDatabase, find_blocker, migrate
from tests.store.test_locked_database import Admin
from tests.store.test_migrations import next_migrations, run
from tests.store.test_postgres_wakes import pooled_by_transaction
from tests.store.test_store import NOW, TIMINGS, submit

COPIES: Final = 4
DEFAULTS: Final = {
    "default_transaction_isolation": "repeatable read",
    "default_transaction_deferrable": "on",
    "lock_timeout": "10s",
    "statement_timeout": "10s",
    "idle_in_transaction_session_timeout": "10s",
    "search_path": '"$user", "bot-s", public',
    "timezone": "Asia/Kathmandu",
    "datestyle": "SQL, DMY",
    "intervalstyle": "postgres_verbose",
    "standard_conforming_strings": "off",
    "bytea_output": "escape",
    "extra_float_digits": "-15",
    "transform_null_equals": "on",
    "array_nulls": "off",
    "row_security": "off",
}
_SETTINGS: Final = Query(
    "SELECT current_setting('transaction_isolation') AS isolation,"
    " current_setting('search_path') AS search_path"
)


def set_defaults(url: str, defaults: dict[str, str]) -> None:
    name = url.partition("?")[0].rpartition("/")[2]
    for setting, value in defaults.items():
        text = value if setting == "search_path" else f"'{value}'"
        run(url, f"ALTER ROLE postgres IN DATABASE {name} SET {setting} TO {text}")


@contextlib.contextmanager
def reached(url: str, *, pooled: bool) -> Iterator[str]:
    """Return the URL that copies use."""
    with pooled_by_transaction(url) if pooled else contextlib.nullcontext(url) as used:
        yield used


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
async def test_copies_that_start_at_once_on_an_empty_database_work_whatever_their_roles_defaults(
    isolation: str, empty_url: str, *, pooled: bool
) -> None:
    run(empty_url, 'CREATE SCHEMA "bot-s"')
    set_defaults(empty_url, DEFAULTS | {"default_transaction_isolation": isolation})
    async with AsyncExitStack() as stack:
        url = stack.enter_context(reached(empty_url, pooled=pooled))
        opening = [stack.enter_async_context(Store.open(url, TIMINGS)) for _ in range(COPIES)]
        copies = await asyncio.gather(*opening)
        async with asyncio.timeout(30):
            await asyncio.gather(
                *(submit(copies[number % COPIES], f"V{number}") for number in range(40))
            )
            claimed = await asyncio.gather(*(each.jobs.claim(NOW, 20) for each in copies))
        assert sum(len(jobs) for jobs in claimed) == 40
        found = {each.name: each for each in check_database(empty_url, SystemClock())}
        assert found["database"].ok, found["database"]
        with Admin(empty_url, "LOCK TABLE jobs") as admin:
            waiting = asyncio.ensure_future(copies[0].jobs.claim(NOW, 1))  # noqa: TID251
            blocker = None
            async with asyncio.timeout(30):
                while blocker is None:
                    blocker = await find_blocker(empty_url, None)
            assert (blocker["pid"], blocker["application"]) == (admin.pid, "psql")
            assert blocker["since"].startswith("20")
        await asyncio.wait([waiting])
    assert run(empty_url, 'SELECT count(*) FROM "bot-s".jobs') == [(40,)]


async def test_a_transaction_is_not_what_others_have_made_of_a_pooled_connection(
    postgres_url: str,
) -> None:
    def settings(tx: Transaction) -> Row | None:
        return tx.one(_SETTINGS)

    with reached(postgres_url, pooled=True) as url:
        async with PostgresDatabase.open(url) as database:
            others = [psycopg.connect(url, autocommit=True) for _ in range(3)]
            for other in others:
                other.execute("BEGIN")  # each has a connection of the pool for itself
            for other in others:
                other.execute(
                    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE;"
                    " SET search_path TO pg_catalog; COMMIT"
                )
            assert await database.run(settings) == {
                "isolation": "read committed",
                "search_path": '"$user", public',
            }
            for other in others:
                other.close()


def test_a_migration_goes_where_the_tables_are_also_if_the_role_has_got_a_schema_since(
    empty_url: str, tmp_path: Path
) -> None:
    migrate(empty_url)
    run(empty_url, "CREATE SCHEMA postgres")  # the role's own, which comes first
    with next_migrations(tmp_path / "next", _9999_newer="CREATE TABLE newer (id BIGINT)"):
        assert migrate(empty_url) == ["9999_newer"]
    names = "SELECT tablename FROM pg_tables WHERE schemaname = '{}'"
    assert run(empty_url, names.format("postgres")) == []
    assert ("newer",) in run(empty_url, names.format("public"))
