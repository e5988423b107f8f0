"""What a statement reads does not grow with what it does not need."""

import contextlib
import sqlite3
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bot.store.attempts import _CAN_ADOPT, SET_CANDIDATE
from bot.store.audit import LAST_LIMIT_CHANGES
from bot.store.database import Query, Value
from bot.store.deliveries import _ASKING, _FIRST, _LISTED
from bot.store.jobs import _FORM, _IN_PUBLIC, _OF_HOME, _OF_USER
from bot.store.sqlite import migrate
from bot.store.usage import _GIVE_BACK, _OF_MONTH, USED, periods

_PERIODS: Mapping[str, Value] = periods("U1", datetime(2026, 11, 24, tzinfo=UTC))
_FORM_VALUES: dict[str, Value] = {
    "key": "another",
    "retry_of": "none",
    "face": "r-1",
    "fingerprint": "1",
    "since": 0,
    "seen_in": "C1",
    "sees_all": 0,
    **_PERIODS,
}


def add_jobs(db: sqlite3.Connection, count: int, state: str = "running") -> None:
    """Add jobs, each of a person of its own, with a card whose edit is due."""
    known = db.execute("SELECT count(*) FROM jobs").fetchone()[0]
    for number in range(known, known + count):
        db.execute(
            "INSERT INTO jobs (id, request_key, kind, params, user_id, channel, created_at, state)"
            " VALUES (:n, :n, 'video', '{}', :n, 'C1', 1, :state)",
            {"n": f"job-{number}", "state": state},
        )
        db.execute(
            "INSERT INTO attempts"
            " (job_id, user_id, kind, token_hash, made_at, remote_id, candidate_id)"
            " VALUES (:n, 'U1', 'video', :n, 1, :n, :n)",
            {"n": f"job-{number}"},
        )
        db.execute(
            "INSERT INTO usage VALUES (:n, '2026-11-24', 1, 1, 1, 1), (:n, '2026-10', 1, 1, 1, 1)",
            {"n": f"job-{number}"},
        )
        db.execute(
            "INSERT INTO deliveries (job_id, role, state, channel, due_at, version)"
            " VALUES (?, 'card', 'posted', 'C1', ?, 2)",
            (f"job-{number}", number),
        )
        db.execute("INSERT INTO audit (at, action, detail) VALUES (?, 'found', 'v1')", [number])
    db.commit()


def end_jobs(db: sqlite3.Connection) -> None:
    """Have all jobs succeeded, of one person, with replies in public channels."""
    db.execute("UPDATE jobs SET ended_at = 1, state = 'succeeded', user_id = 'U1'")
    db.execute("UPDATE deliveries SET public = 1")


def cost(db: sqlite3.Connection, query: Query, values: Mapping[str, Value]) -> int:
    """Return how many instructions SQLite runs for a statement, in hundreds."""
    hundreds = 0

    def count() -> int:
        nonlocal hundreds
        hundreds += 1
        return 0

    db.set_progress_handler(count, 100)
    db.execute(query.sqlite, dict(values)).fetchall()
    db.rollback()
    return hundreds


async def test_a_statement_costs_the_same_beside_many_rows_that_do_not_concern_it(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    cases: list[tuple[Query, Mapping[str, Value]]] = [
        (SET_CANDIDATE, {"kind": "video", "remote_id": "job-7", "attempt_id": 1, "now": 1}),
        (
            _CAN_ADOPT,
            {"kind": "video", "remote_id": "job-7", "attempt_id": 8, "user_supplied": 1},
        ),
        (_FIRST, {"held": "[]", "window": 128}),
        (_ASKING, {"job_id": "job-7"}),
        (_LISTED, {"ids": "[7]"}),
        (_FORM, _FORM_VALUES),
        (USED, _PERIODS),
        (_GIVE_BACK, {"videos": 1, "spoken_ms": 1, "trainings": 0, "now": 1, **_PERIODS}),
        (_OF_MONTH, {"month": "2026-11"}),
        (LAST_LIMIT_CHANGES, {"limit": 5}),
    ]
    for query, values in cases:
        with subtests.test(query=query, values=values):
            path = tmp_path / "bot.db"
            await migrate(path)
            with contextlib.closing(sqlite3.connect(path)) as db:
                add_jobs(db, 100)
                few = cost(db, query, values)
                add_jobs(db, 1900)
                assert cost(db, query, values) <= few * 1.2 + 1


async def test_a_form_home_and_a_search_cost_the_same_for_a_person_with_many_ended_jobs(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    cases: list[tuple[Query, Mapping[str, Value]]] = [
        (_FORM, _FORM_VALUES),
        (_OF_HOME, {"user": "U1", "limit": 11, "skip": 0}),
        (_OF_USER, {"user": "U1", "kind": "video", "limit": 11}),
        (_IN_PUBLIC, {"kind": "video", "limit": 11}),
    ]
    for query, values in cases:
        with subtests.test(query=query):
            path = tmp_path / "bot.db"
            await migrate(path)
            with contextlib.closing(sqlite3.connect(path)) as db:
                add_jobs(db, 100)
                end_jobs(db)
                few = cost(db, query, values)
                add_jobs(db, 1900)
                end_jobs(db)
                assert cost(db, query, values) <= few * 1.2 + 1
