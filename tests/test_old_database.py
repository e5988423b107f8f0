"""A user's database from an earlier version opens in this one, with everything in it.

The file was made by the code of commit e5b9d10: ``data/make_old_database.py.txt`` did it, and wrote
down beside the dump what that code read from it.
"""

import contextlib
import json
import sqlite3
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from bot.model import DeliveryState, Job, Role, State, token_hash
from bot.store import Store
from bot.store.database import Transaction
from bot.store.sql import Query
from bot.timings import Timings

DATA: Final = Path(__file__).parent / "data"
NOW: Final = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
TIMINGS: Final = Timings()
OLD: Final[dict[str, list[dict[str, Any]]]] = json.loads((DATA / "old_database.json").read_text())

FAILURES: Final = {
    "broken": "service_failed",
    "key": "key_rejected",
    "credit": "out_of_credit",
    "forgotten": "not_found",
    "endless": "timed_out",
    "given_up": "cancelled",
}
STATES: Final = {"owed": "pending", "lost": "undeliverable"}
JOB_NAMES: Final = {"usual": "typical_duration", "strays": "orphaned_ids"}
ATTEMPT_NAMES: Final = {"hint": "candidate_id", "vouched": "user_supplied"}
DELIVERY_NAMES: Final = {
    "posting": "state",
    "wanted": "version",
    "shown": "shown_version",
    "plain": "rewrites",
}
REPLICA_NAMES: Final = {"sought": "search_name"}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    path = tmp_path / "bot.db"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript((DATA / "old_database.sql").read_text())
    async with Store.open(path, TIMINGS) as store:
        yield store


def encode(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    assert isinstance(value, timedelta)
    return value.total_seconds()


def as_json(value: Any) -> dict[str, Any]:  # noqa: ANN401 - any dataclass
    """Return the fields of a value as the old code's were written down."""
    fields: dict[str, Any] = json.loads(json.dumps(asdict(value), default=encode))
    return fields


def renamed(old: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in old.items()}


async def rows(store: Store, sql: str) -> list[dict[str, Any]]:
    def work(tx: Transaction) -> list[dict[str, Any]]:
        return [dict(row) for row in tx.all(Query(sql))]  # type: ignore[call-overload]

    return await store.database.run(work, durable=False)


async def every_job(store: Store) -> dict[str, Job]:
    jobs = [await store.jobs.fetch(old["id"]) for old in OLD["jobs"]]
    return {job.id: job for job in jobs if job is not None}


async def test_every_field_of_every_job_is_kept(store: Store) -> None:
    jobs = await every_job(store)
    assert len(jobs) == len(OLD["jobs"]) > 20
    for old in OLD["jobs"]:
        new = dict.fromkeys(("held_by", "held_until", "missing_since", "retry_of", "offer"))
        new |= {"copied": False, "slow": False, "slow_after": None, "approval": None}
        expected = renamed(old, JOB_NAMES) | new
        expected["failure"] = FAILURES.get(expected["failure"], expected["failure"])
        if expected.pop("claimed"):  # its process is gone: it is due at once
            expected["due_at"] = "1970-01-01T00:00:00+00:00"
        found = await store.jobs.fetch_by_request(expected.pop("request_key"))
        assert found == jobs[old["id"]]
        assert as_json(found) == expected


async def test_every_field_of_every_attempt_is_kept(store: Store) -> None:
    found = await rows(store, "SELECT * FROM attempts ORDER BY id")
    for row, old in zip(found, OLD["attempts"], strict=True):
        expected = renamed(old, ATTEMPT_NAMES)
        expected["outcome"] = FAILURES.get(expected["outcome"], expected["outcome"])
        row["made_at"] = datetime.fromtimestamp(row["made_at"] / 1000, UTC).isoformat()
        row["user_supplied"] = bool(row["user_supplied"])
        assert (row.pop("named_at") is None) == (old["hint"] is None)
        assert row.pop("user_id") == next(
            job["user"] for job in OLD["jobs"] if job["id"] == row["job_id"]
        )
        assert row.pop("named_by") is None
        assert row.pop("spoken_ms") is None
        assert row == expected
    jobs = await every_job(store)
    candidates = [
        as_json(attempt) for job in jobs.values() for attempt in await store.jobs.candidates(job)
    ]
    named = [old for old in OLD["attempts"] if old["hint"] is not None]
    assert len(candidates) == len(named) == 3
    for old in named:
        expected = renamed(old, ATTEMPT_NAMES)
        expected |= {"named_at": old["made_at"], "named_by": None}
        assert {key: expected[key] for key in candidates[0]} in candidates


async def test_every_field_of_every_delivery_is_kept(store: Store) -> None:
    after_all = NOW + timedelta(days=1)
    old = {each["id"]: renamed(each, DELIVERY_NAMES) for each in OLD["deliveries"]}
    assert {each["state"] for each in old.values()} >= {*STATES, "sending", "uncertain", "posted"}
    jobs = await every_job(store)
    due = {
        each.delivery.id: each.delivery for each in await store.deliveries.claim(after_all, 1000)
    }
    asked = {job.id for job in jobs.values() if job.state is State.UNCONFIRMED and job.asked}
    assert asked
    questions = [due.pop(id_) for id_ in due.keys() - old.keys()]
    assert {(each.job_id, each.role, each.number) for each in questions} == {
        (id_, Role.QUESTION, 1) for id_ in asked
    }
    edited = {
        id_
        for id_, each in old.items()
        if (each["job_id"] in asked, each["role"]) == (True, "card") and each["state"] != "lost"
    }
    assert due.keys() == edited | {
        id_ for id_, each in old.items() if each["due_at"] is not None or each["claimed"]
    }
    cards = {
        card.id: card for card in [await store.deliveries.fetch_card(j) for j in jobs.values()]
    }
    for id_, expected in old.items():
        expected["state"] = STATES.get(expected["state"], expected["state"])
        del expected["claimed"]
        expected |= {"number": 0, "settled_as": None, "settled_by": None, "file_id": None}
        expected |= {"addressee": None}
        expected |= {"shared_by": None, "shared_to": None}
        expected["version"] += id_ in edited
        if id_ in due:
            expected["claim"] += 1
            expected["due_at"] = (after_all + TIMINGS.lease).isoformat()
            assert as_json(due[id_]) == expected
        if id_ in cards:
            assert as_json(cards[id_]) == expected
    [number] = await rows(store, "SELECT count(*) AS of_all FROM deliveries")
    assert number["of_all"] == len(old) + len(asked)


async def test_every_replica_and_default_is_kept(store: Store) -> None:
    for old in OLD["replicas"]:
        replica = await store.replicas.get(old["id"])
        assert replica is not None
        assert as_json(replica) == renamed(old, REPLICA_NAMES)
    found = await store.replicas.find("", "C1", 10)
    assert [each.id for each in found] == ["r-2", "r-1", "r-3"], "r-4 is deleted at the service"
    assert [each.default for each in found] == [True, False, False]
    assert [each.id for each in await store.replicas.find("ännä stras", "C2", 10)] == ["r-2"]


async def test_every_open_job_is_claimed_when_it_is_due(store: Store) -> None:
    jobs = await every_job(store)
    open_jobs = {id_: job for id_, job in jobs.items() if not job.state.ended}
    assert {job.state for job in open_jobs.values()} == {
        state for state in State if not state.ended and state is not State.WAITING_FOR_APPROVAL
    }
    # Those that were at work are due at once; all others, when their wait is over.
    at_work = {old["id"] for old in OLD["jobs"] if old["claimed"]}
    first = {job.id: job for job in await store.jobs.claim(NOW, 100)}
    assert at_work <= first.keys()
    later = {job.id: job for job in await store.jobs.claim(NOW + TIMINGS.max_wait, 100, [*first])}
    ended = {id_ for id_ in first if id_ not in open_jobs}
    assert first.keys() | later.keys() == open_jobs.keys() | ended
    for id_ in ended:
        assert await store.jobs.candidates(jobs[id_]), "only a candidate is looked at after the end"


@pytest.mark.parametrize(
    ("state", "go_on"),
    [
        (State.RUNNING, lambda store, job: store.jobs.finish(job, NOW)),
        (State.UNCONFIRMED, lambda store, job: store.jobs.cancel(job.id, job.attempts, "U1", NOW)),
        (
            State.UNCONFIRMED,
            lambda store, job: store.jobs.create_again(job.id, job.attempts, "U1", NOW),
        ),
        (State.QUEUED, lambda store, job: store.jobs.begin_attempt(job, token_hash("new"), NOW)),
    ],
)
async def test_an_open_job_goes_on(
    store: Store, state: State, go_on: Callable[[Store, Job], Any]
) -> None:
    jobs = await store.jobs.claim(NOW + TIMINGS.max_wait, 100)
    job = next(job for job in jobs if job.state is state)
    assert await go_on(store, job)


async def test_a_callback_for_an_old_attempt_is_processed(store: Store) -> None:
    running = next(old for old in OLD["jobs"] if old["state"] == "running" and not old["claimed"])
    [attempt] = [old for old in OLD["attempts"] if old["job_id"] == running["id"]]
    later = NOW + timedelta(minutes=1)
    await store.jobs.record_callback(attempt["token_hash"], {}, later)
    job = await store.jobs.fetch(running["id"])
    assert job is not None
    assert (job.woken_at, job.due_at) == (later, later)


async def test_a_reply_of_an_old_job_follows_its_card(store: Store) -> None:
    waiting = {
        old["job_id"]
        for old in OLD["deliveries"]
        if (old["role"], old["due_at"], old["claimed"]) == ("reply", None, 0)
    }
    outgoing = await store.deliveries.claim(NOW + timedelta(hours=1), 1000)
    [card, *_] = [
        each.delivery
        for each in outgoing
        if each.delivery.job_id in waiting and each.card.ts is None
    ]
    # Slack takes it nowhere: then the reply is not in its thread.
    lost = replace(card, state=DeliveryState.UNDELIVERABLE)
    assert await store.deliveries.release(lost, NOW, None)
    [reply] = await store.deliveries.claim(NOW, 10)
    assert reply.delivery.job_id == card.job_id
