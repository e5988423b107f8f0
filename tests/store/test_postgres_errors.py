"""What PostgreSQL's errors mean, and what of them reaches people and the log."""

import inspect
import logging
import re

import psycopg
import pytest
from psycopg import errors

from bot.store import DatabaseError, DatabaseUnavailable
from bot.store.database import Query, Transaction
from bot.store.postgres.engine import PostgresDatabase, migrate
from bot.store.postgres.errors import MEANINGS, Meaning, meaning_of

SECRET = "the launch is on Friday"
PASSWORD = "pa%3Asq%40zebra"

_CHANNEL = Query("INSERT INTO channel_defaults (channel, replica_id) VALUES (:text, :text)")
_TWICE = Query("INSERT INTO answered_messages VALUES (:text, 'ts', 0), (:text, 'ts', 0)")
_NOT_NULL = Query("INSERT INTO jobs (id, reason) VALUES (:text, :text)")
_NO_NUMBER = Query("SELECT CAST(CAST(:text AS TEXT) AS BIGINT)")
_RAISED = Query("DO $$ BEGIN RAISE EXCEPTION 'the launch is on Friday'; END $$")


def test_every_error_of_psycopg_has_a_meaning() -> None:
    found = [each for _, each in inspect.getmembers(errors, inspect.isclass)]
    kinds = [each for each in found if issubclass(each, psycopg.Error)]
    assert len(kinds) > 200
    for kind in kinds:
        if kind.sqlstate is not None:
            assert kind.sqlstate[:2] in MEANINGS, f"{kind.__name__} ({kind.sqlstate}) has none"
        assert isinstance(meaning_of(kind()), Meaning)
    known = {each.sqlstate for each in kinds} | {(each.sqlstate or "")[:2] for each in kinds}
    assert known >= MEANINGS.keys(), "these do not exist"


def test_nothing_that_may_have_been_stored_is_repeated_as_a_conflict() -> None:
    conflicts = {state for state, each in MEANINGS.items() if each is Meaning.CONFLICT}
    assert conflicts == {"0A000", "40", "55P03", "72"}
    assert MEANINGS["40003"] is Meaning.LOST


async def test_no_error_of_a_statement_shows_what_is_stored(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with PostgresDatabase.open(postgres_url) as database:
        for query in (_CHANNEL, _TWICE, _NOT_NULL, _NO_NUMBER, _RAISED):

            def work(tx: Transaction, query: Query = query) -> None:
                tx.all(query, **({} if query is _RAISED else {"text": SECRET}))

            with pytest.raises(DatabaseError) as raised:
                await database.run(work)
            logging.error("a step failed", exc_info=raised.value)  # noqa: LOG015 - with all causes
    assert len(caplog.records) >= 5
    assert SECRET not in caplog.text
    assert "violates not-null constraint" in caplog.text


def test_no_error_of_a_connection_shows_a_part_of_its_url(
    caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests
) -> None:
    for url, words in [
        (f"postgresql://bot:{PASSWORD}@127.0.0.1:1/bot", "start it"),
        (f"postgresql://bot:{PASSWORD}@nowhere.invalid/bot", "name cannot be resolved"),
        (f"postgresql://bot@127.0.0.1:1/bot?password={PASSWORD}", "start it"),
        (f"postgresql://bot:{PASSWORD}%zz@127.0.0.1:1/bot", "not a URL of PostgreSQL's"),
        (f"postgresql://bot:x@{PASSWORD}@127.0.0.1:1/bot", "name cannot be resolved"),
        (f"postgresql://bot:{PASSWORD}@127.0.0.1:1/bot?sslmode={PASSWORD}", "sslmode"),
        (f"postgresql://bot@127.0.0.1:1/bot?pasword={PASSWORD}", "not a URL of PostgreSQL's"),
    ]:
        with subtests.test(url=url, words=words):
            caplog.set_level(logging.DEBUG)
            with pytest.raises(DatabaseError, match=words) as raised:
                migrate(url)
            logging.error("the start failed", exc_info=raised.value)  # noqa: LOG015 - as a start
            assert not re.search("zebra|pa:sq|pa%3A", caplog.text)
            waits = "resolved" in words or "start" in words
            assert isinstance(raised.value, DatabaseUnavailable) is waits
