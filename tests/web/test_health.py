"""What /readyz and /metrics say: whether the bot can do its work, how it does, and what to do."""

import asyncio
import contextlib
import json
import re
import sqlite3
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final
from unittest.mock import AsyncMock

import aiohttp
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from bot.store import Database, installation
from bot.timings import Timings
from sandbox.faults import CannedResponse, Reset
from sandbox.http import free_port
from tests.databases import migrate
from tests.modes import on_sqlite_alone
from tests.store.test_query_cost import cost
from tests.world import World, number_of


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
    await world.after(ready(world))
    return await ready(world)


async def test_a_bot_that_works_says_so_with_its_last_successes(world: World) -> None:
    await world.after(world.request_video(world.ana), seconds=10)
    status, said = await ready(world)
    assert status == 200
    assert (said["ready"], said["degraded"]) == (True, False)
    assert set(said["checks"]) == {"database", "slack", "video_service", "work"}
    assert all(each["ok"] and not each["reason"] for each in said["checks"].values())
    last = datetime.fromisoformat(said["checks"]["video_service"]["last_success"])
    assert timedelta(0) <= world.clock.now() - last < timedelta(seconds=10)


async def test_a_bot_that_reaches_neither_slack_nor_the_service_is_not_ready(quiet: World) -> None:
    gone = f"http://127.0.0.1:{free_port()}"
    async with quiet.running_bot(SLACK_API_URL=f"{gone}/api/", VIDEO_API_URL=gone):
        status, said = await ready(quiet)
    assert (status, said["ready"]) == (503, False)
    for side, setting in (("slack", "SLACK_API_URL"), ("video_service", "VIDEO_API_URL")):
        part = said["checks"][side]
        assert not part["ok"]
        assert "the connection was refused" in part["reason"]
        assert f"is {setting} right and reachable from here?" in part["reason"]
        assert part["last_success"] is None
        assert part["since"]


async def test_an_outage_of_one_side_leaves_the_bot_ready_but_degraded(world: World) -> None:
    world.service.down = True
    await world.after(world.request_video(world.ana), minutes=1)
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


async def test_a_bot_whose_token_is_refused_is_not_ready_until_it_is_accepted(quiet: World) -> None:
    quiet.slack.auth_error = "invalid_auth"
    async with quiet.running_bot():
        status, slack = await check(quiet, "slack")
        assert (status, slack["ok"]) == (503, False)
        assert slack["reason"].startswith("Slack refuses SLACK_BOT_TOKEN (invalid_auth): install")
        quiet.slack.auth_error = None
        await quiet.advance(minutes=1)
        status, slack = await check(quiet, "slack")
        assert (status, slack["ok"]) == (200, True)


async def test_where_another_call_finds_the_token_refused_messages_wait_until_it_is_asked_about(
    quiet: World, caplog: pytest.LogCaptureFixture
) -> None:
    quiet.timings = replace(quiet.timings, recheck_side=timedelta(seconds=5))
    refused = CannedResponse(200, {"ok": False, "error": "token_revoked"})
    async with quiet.running_bot():
        card = await quiet.request_video(quiet.ana)
        await quiet.advance(seconds=6)
        assert not quiet.replies(card)
        quiet.slack.faults.next("bots.info", refused)
        await quiet.after(ready(quiet))
        assert "Slack refuses SLACK_BOT_TOKEN" in caplog.text
        await quiet.advance(minutes=10)
        assert len(quiet.replies(card)) == 1


async def test_a_service_that_fails_for_unknown_ids_is_not_read_at_each_look(quiet: World) -> None:
    quiet.service.faults.always("read_video", CannedResponse(500))
    async with quiet.running_bot():
        for _ in range(5):
            await ready(quiet)
            await quiet.advance(seconds=5)
        read = [each for each in quiet.service.requests if each.operation == "read_video"]
    assert len(read) <= 2, "at the start, and once a minute"


async def test_a_token_of_another_workspace_is_not_ready(quiet: World) -> None:
    async with quiet.running_bot():
        pass
    other = {"ok": True, "team_id": "T0THER", "user": "bot", "bot_id": "B1"}
    quiet.slack.faults.next("auth.test", CannedResponse(200, other))
    async with quiet.running_bot():
        status, slack = await check(quiet, "slack")
    assert status == 503
    assert "belongs to another workspace" in slack["reason"]


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
    await world.after(world.request_video(world.ana))
    # Until the token works again nothing is posted, and what is due stays due.
    world.slack.auth_error = "token_revoked"
    await world.advance(minutes=30)
    _, work = await check(world, "work")
    assert not work["ok"]
    assert 20 * 60 < work["oldest_due_delivery_s"] <= 30 * 60
    assert work["oldest_due_job_s"] == 0
    world.slack.auth_error = None
    await world.advance(minutes=2)
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


async def test_a_closed_socket_is_not_ready_after_a_minute(quiet: World) -> None:
    quiet.socket_mode = True
    async with quiet.running_bot():
        status, socket = await check(quiet, "socket")
        assert (status, socket["ok"], socket["connected"]) == (200, True, True)
        assert socket["last_success"]

        quiet.slack.faults.always("apps.connections.open", CannedResponse(503))
        await quiet.slack.socket_mode.close()
        async with asyncio.timeout(30):
            while (await check(quiet, "socket"))[1]["connected"]:
                pass
        assert (await ready(quiet))[0] == 200, "it is opened again within seconds, usually"
        await quiet.advance(minutes=2)
        status, socket = await check(quiet, "socket")
        assert (status, socket["ok"]) == (503, False)
        assert "SLACK_APP_TOKEN" in socket["reason"]

        quiet.slack.faults.clear()
        await quiet.slack.socket_mode.reached(opened=2)
        async with asyncio.timeout(30):
            while (await ready(quiet))[0] != 200:
                pass


@pytest.fixture
async def patient_world(quiet: World) -> AsyncIterator[World]:
    """A world whose bot answers from its last look for as long as it does outside of tests."""
    quiet.pauses = {**quiet.pauses, "report_max_age": Timings().report_max_age}
    async with quiet.running_bot():
        await quiet.settle()
        yield quiet


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


async def test_many_who_ask_within_a_second_share_one_look_and_one_write(
    patient_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = AsyncMock()
    monkeypatch.setattr(Database, "check", check)
    await patient_world.advance(seconds=1)
    calls = len(patient_world.slack.calls), len(patient_world.service.requests)
    assert len(await flood(patient_world, "/readyz")) == 1
    assert len(await flood(patient_world, "/metrics")) == 1
    assert (len(patient_world.slack.calls), len(patient_world.service.requests)) == calls
    assert check.await_count == 1


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
    await world.after(world.request_video(world.ana), seconds=20)
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
    assert done.value("process_start_time_seconds") > 0
    assert done.value("replica_bot_build_info") == 1
    assert done.value("replica_bot_ready") == 1


async def test_failed_calls_are_counted_by_their_class(world: World) -> None:
    world.service.faults.next("create_video", CannedResponse(429), CannedResponse(400), Reset())
    for person in (world.ana, world.ben):
        await world.after(world.request_video(person), minutes=1)
    refused = {"ok": False, "error": "cant_update_message"}
    world.slack.faults.next("chat.update", CannedResponse(200, refused))
    await world.after(world.request_video(world.ana), minutes=5)
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
    world.slack.auth_error = "token_revoked"
    await world.advance(minutes=10)
    found = await scrape(world)
    assert found.value("replica_bot_due", queue="deliveries") >= 1
    assert 5 * 60 < found.value("replica_bot_oldest_due_seconds", queue="deliveries") <= 10 * 60
    assert found.value("replica_bot_oldest_due_seconds", queue="jobs") == 0
    held = {each.labels["by"]: each.value for each in found.samples if "_blocked" in each.name}
    assert held["service_credit"] == held["slack_token"] == 1
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
            await world.after(person.command("/video", "list"))
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
    await world.after(world.request_video(world.ana), minutes=5)
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
