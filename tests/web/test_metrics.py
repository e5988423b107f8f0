"""What /metrics says: names, units, and nothing about anybody."""

import contextlib
import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from bot.store import installation
from bot.store.sqlite import migrate
from sandbox import events
from sandbox.faults import CannedResponse, Reset
from tests.modes import on_sqlite_alone
from tests.store.test_query_cost import cost
from tests.world import World, number_of


class Scrape:
    """The samples of one scrape."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.families = list(text_string_to_metric_families(text))
        self.samples: list[Sample] = [each for family in self.families for each in family.samples]

    def value(self, name: str, **labels: str) -> float:
        """Return the value of a series; 0 if there is none."""
        found = [
            each.value
            for each in self.samples
            if each.name == name and labels.items() <= each.labels.items()
        ]
        return sum(found)


async def scrape(world: World) -> Scrape:
    """Return what /metrics says."""
    url = f"http://127.0.0.1:{world.bot.port}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return Scrape(await answer.text())


async def test_a_video_from_request_to_reply_is_measured(world: World) -> None:
    await world.request_video(world.ana)
    await world.advance(seconds=20)
    going = await scrape(world)
    assert going.value("replica_bot_jobs", kind="video", state="running") == 1
    assert going.value("replica_bot_reply_seconds_count") == 0

    await world.advance(minutes=5)
    done = await scrape(world)

    assert done.value("replica_bot_jobs") == 0
    replied = {"kind": "video", "outcome": "succeeded"}
    assert done.value("replica_bot_reply_seconds_count", **replied) == 1
    assert 100 < done.value("replica_bot_reply_seconds_sum", **replied) < 300
    assert done.value("replica_bot_reply_delay_seconds_sum", kind="video") < 5
    calls = {"service": "video_service", "outcome": "ok"}
    assert done.value("replica_bot_outside_calls_total", operation="POST /v2/videos", **calls) == 1
    assert done.value("replica_bot_outside_calls_total", operation="GET /v2/videos/{id}", **calls)
    posted = {"service": "slack", "operation": "chat.postMessage", "outcome": "ok"}
    assert done.value("replica_bot_outside_calls_total", **posted) == 2
    assert done.value("replica_bot_outside_call_seconds_count", operation="chat.postMessage") == 2
    for kind in ("command", "view_submission", "block_suggestion"):
        assert done.value("replica_bot_ack_seconds_count", kind=kind) >= 1
    assert done.value("replica_bot_commit_seconds_count", durable="yes") >= 1
    assert done.value("replica_bot_commit_seconds_count", durable="no") >= 1
    assert done.value("process_start_time_seconds") > 0
    assert done.value("replica_bot_build_info") == 1
    assert done.value("replica_bot_ready") == 1
    assert done.value("replica_bot_check_ok") == 4


async def test_failed_calls_are_counted_by_their_class(world: World) -> None:
    world.service.faults.next("create_video", CannedResponse(429), CannedResponse(400), Reset())
    for person in (world.ana, world.ben):
        await world.request_video(person)
        await world.advance(minutes=1)
    refused = {"ok": False, "error": "cant_update_message"}
    world.slack.faults.next("chat.update", CannedResponse(200, refused))
    await world.request_video(world.ana)
    await world.advance(minutes=5)
    found = await scrape(world)
    created = {"service": "video_service", "operation": "POST /v2/videos"}
    for outcome in ("unavailable", "refused", "uncertain"):
        assert found.value("replica_bot_outside_calls_total", **created, outcome=outcome) == 1
    edited = {"service": "slack", "operation": "chat.update", "outcome": "refused"}
    assert found.value("replica_bot_outside_calls_total", **edited) == 1


async def test_what_is_due_and_what_holds_it_back_is_shown(world: World) -> None:
    await world.request_video(world.ana)
    world.service.out_of_credit = True
    await world.request_video(world.ben)
    events.revoke_token(world.slack)
    await world.advance(minutes=10)
    found = await scrape(world)
    assert found.value("replica_bot_due", queue="deliveries") >= 1
    assert 5 * 60 < found.value("replica_bot_oldest_due_seconds", queue="deliveries") <= 10 * 60
    assert found.value("replica_bot_oldest_due_seconds", queue="jobs") == 0
    held = {each.labels["by"]: each.value for each in found.samples if "_blocked" in each.name}
    assert held["service_credit"] == held["uninstalled"] == 1
    assert held["service_key"] == held["service_rate"] == 0
    assert found.value("replica_bot_ready") == 0


async def test_metrics_name_nobody_and_have_a_bounded_number_of_series(world: World) -> None:
    private = [world.ana.user.id, world.ben.user.id, world.slack.bot_token, world.service.api_key]

    async def story() -> None:
        for person in (world.ana, world.ben):
            card = await world.request_video(person, {"script": "A most private announcement."})
            private.extend((number_of(card), card.channel, card.ts))
            await world.advance(minutes=6)
            await world.details(person, card)
            await person.command("/video", "list")
            await world.settle()
        private.extend(world.service.videos)

    await story()
    first = await scrape(world)
    await story()
    second = await scrape(world)
    labels = {value for each in second.samples for value in each.labels.values()}
    assert not labels & set(private)
    assert "private announcement" not in second.text
    assert not [each for each in private if each in second.text]
    assert len(second.samples) == len(first.samples), "nothing grows with the number of jobs"


@on_sqlite_alone
async def test_metrics_answer_without_a_database_and_say_so(world: World) -> None:
    world.database.unlink()
    found = await scrape(world)
    assert found.value("replica_bot_ready") == 0
    assert found.value("replica_bot_check_ok", check="database") == 0
    assert found.value("replica_bot_database_errors_total") >= 1


def _ended(db: sqlite3.Connection, count: int) -> None:
    db.executemany(
        "INSERT INTO jobs (id, request_key, kind, params, user_id, channel, created_at, state,"
        " ended_at) VALUES (:n, :n, 'video', '{}', 'U1', 'C1', 1, 'succeeded', 2)",
        ({"n": f"ended-{number}"} for number in range(count)),
    )
    db.executemany(
        "INSERT INTO deliveries (job_id, role, state, channel, version, shown_version)"
        " VALUES (?, 'reply', 'posted', 'C1', 1, 1)",
        ((f"ended-{number}",) for number in range(count)),
    )
    db.commit()


def _queries() -> Iterator[Any]:
    yield installation._JOBS, {"open": '["queued", "running"]'}
    for table in ("jobs", "deliveries"):
        yield installation._DUE[table], {"now": 5}


async def test_a_scrape_costs_the_same_beside_many_ended_jobs(tmp_path: Path) -> None:
    path = tmp_path / "bot.db"
    await migrate(path)
    with contextlib.closing(sqlite3.connect(path)) as db:
        few = [cost(db, query, values) for query, values in _queries()]
        _ended(db, 5000)
        many = [cost(db, query, values) for query, values in _queries()]
    assert all(after <= before + 1 for before, after in zip(few, many, strict=True)), (few, many)


FOLDER: Final = Path(__file__).parent.parent.parent / "docs" / "monitoring"
ALERTS: Final[Any] = yaml.safe_load((FOLDER / "alerts.yml").read_text(encoding="utf-8"))
DASHBOARD: Final[Any] = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
RULES: Final = [rule for group in ALERTS["groups"] for rule in group["rules"]]
_SELECTED: Final = re.compile(r"\b((?:replica_bot|process)_[a-z_]+)(?:\{([^}]*)\})?")
_GROUPED: Final = re.compile(r"\bby \(([^)]*)\)")
_MATCHED: Final = re.compile(r'(\w+)\s*(?:=~|!=|=)\s*"([^"]*)"')
#: Those that Prometheus adds itself.
_OF_PROMETHEUS: Final = {"instance", "job"}


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in RULES)
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel["targets"])


def labels_of(found: Scrape, name: str) -> set[str]:
    return {label for each in found.samples if each.name == name for label in each.labels}


async def test_what_dashboard_and_alerts_ask_for_is_in_a_scrape(world: World) -> None:
    # Of each metric with labels, one happens.
    world.service.faults.next("read_video", CannedResponse(200, ["odd"]))
    await world.request_video(world.ana)
    await world.advance(minutes=5)
    await world.request_video(world.ben)
    found = await scrape(world)
    names = {each.name for each in found.samples}
    for expression in expressions():
        selected = _SELECTED.findall(expression)
        assert selected, expression
        known = set(_OF_PROMETHEUS)
        for name, matchers in selected:
            assert name in names, f"{name} is not measured: {expression}"
            known |= labels_of(found, name)
            for label, pattern in _MATCHED.findall(matchers):
                assert label in known, expression
                if label not in _OF_PROMETHEUS and "=~" in matchers:
                    values = {each.labels.get(label) for each in found.samples}
                    assert set(pattern.split("|")) <= values, expression
        for group in _GROUPED.findall(expression):
            assert {label.strip() for label in group.split(",")} <= known, expression


async def test_every_metric_of_ours_is_on_the_dashboard(world: World) -> None:
    found = await scrape(world)
    asked = " ".join(expressions())
    ours = {each.name for each in found.families if each.name.startswith("replica_bot_")}
    assert not {name for name in ours if not name.endswith("_created") and name not in asked}


def test_what_all_copies_read_from_one_database_is_not_added_up() -> None:
    shared = r"replica_bot_(?:jobs|due|oldest_due_seconds)\b"
    used = [each for each in expressions() if re.search(shared, each)]
    assert len(used) == 4
    for each in used:
        assert re.match(rf"max by \((?!.*instance.*\) \().*\) \({shared}", each), each
