"""The front door: what strangers, broken senders and impatient ones get, and what they change."""

import asyncio
import hashlib
import json
import logging
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlencode

import aiohttp
import pytest

from bot.sandbox.delivery import Answer, _signature, deliver, timestamp_of
from bot.sandbox.video_service import CallbackPlan
from tests.processes import LiveWorld
from tests.world import REPLICA, World

JSON = "application/json"


@pytest.fixture(autouse=True)
def nothing_unforeseen_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever strangers send, it is no surprise."""
    caplog.set_level(logging.INFO)
    yield
    surprises = [record for record in caplog.get_records("call") if record.exc_info]
    assert not surprises, caplog.text


@pytest.fixture
async def client(world: World) -> AsyncIterator[aiohttp.ClientSession]:
    """A stranger's client, at the bot's own address."""
    async with aiohttp.ClientSession(f"http://127.0.0.1:{world.bot.port}") as client:
        yield client


def command(world: World, name: str = "/video", text: str = "") -> bytes:
    """Return the body of a slash command as Slack sends it."""
    channel, user = world.slack.channel("studio"), world.ana.user
    form = {
        "command": name,
        "text": text,
        "user_id": user.id,
        "channel_id": channel.id,
        "response_url": world.slack.new_response_url(user.id, channel.id),
        "trigger_id": world.slack.new_trigger(user.id, channel.id),
        "team_id": "T0SANDBOX",
        "api_app_id": "A0SANDBOX",
    }
    return urlencode(form).encode()


def interaction(world: World, kind: str, **more: object) -> bytes:
    """Return the body of an interaction of one kind."""
    payload = {
        "type": kind,
        "user": {"id": world.ana.user.id},
        "team": {"id": "T0SANDBOX"},
        "trigger_id": "1.2.3",
        **more,
    }
    return urlencode({"payload": json.dumps(payload)}).encode()


def untouched(world: World) -> bool:
    """Return whether nobody outside heard of anything."""
    return not world.slack.calls and not world.service.requests and world.ana.modal is None


# ── Who is let in ─────────────────────────────────────────────────────────────────────────────


async def test_a_signed_command_is_answered(world: World) -> None:
    # What the refusals below are measured against.
    assert (await deliver(world.slack, command(world))).ok
    assert world.ana.modal is not None


@pytest.mark.parametrize(
    "signature", ["", "v0=", "v0=" + "0" * 64, "v1=" + "0" * 64, "gibberish", "v0=é", "x" * 5000]
)
async def test_a_wrong_signature_is_turned_away(signature: str, world: World) -> None:
    answer = await deliver(world.slack, command(world), headers={"X-Slack-Signature": signature})
    assert (answer.status, answer.body) == (401, "")
    assert untouched(world)


async def test_a_request_without_any_signature_is_turned_away(
    world: World, client: aiohttp.ClientSession
) -> None:
    async with client.post("/slack/events", data=command(world)) as answer:
        assert answer.status == 401
    assert untouched(world)


async def test_a_signature_with_another_secret_is_turned_away(world: World) -> None:
    body, right = command(world), world.slack.signing_secret
    world.slack.signing_secret = "somebody-else's"
    assert (await deliver(world.slack, body)).status == 401
    world.slack.signing_secret = right
    assert untouched(world)


async def test_a_signature_does_not_cover_another_body(world: World) -> None:
    signed = _signature(
        world.slack.signing_secret, timestamp_of(world.slack), command(world, text="help")
    )
    answer = await deliver(world.slack, command(world), signature=signed)
    assert answer.status == 401
    assert untouched(world)


@pytest.mark.parametrize("minutes", [-60, -6, 6, 60])
async def test_a_signature_is_good_for_five_minutes_either_way(minutes: int, world: World) -> None:
    then = world.clock.now() + timedelta(minutes=minutes)
    answer = await deliver(world.slack, command(world), timestamp=str(int(then.timestamp())))
    assert answer.status == 401
    assert untouched(world)


@pytest.mark.parametrize(
    "stamp", ["soon", "-", "nan", "inf", "1e9", "9" * 30, "9" * 5000, "-1", "0x10", "٣", "12.5"]
)
async def test_a_timestamp_that_is_none_is_turned_away(stamp: str, world: World) -> None:
    answer = await deliver(world.slack, command(world), timestamp=stamp)
    assert answer.status == 401
    assert untouched(world)


# ── Signed, and nonsense all the same ─────────────────────────────────────────────────────────

BROKEN = {
    "not UTF-8": (b"payload=\xff\xfe\x00", None),
    "not UTF-8 as JSON": (b"\xff\xfe\x00", JSON),
    "empty": (b"", None),
    "empty as JSON": (b"", JSON),
    "a form without payload": (b"a=b&c=d", None),
    "an empty payload": (b"payload=", None),
    "a broken payload": (b"payload=%7Bbroken", None),
    "a payload that is no object": (b"payload=%5B1%2C2%5D", None),
    "a payload that is a number": (b"payload=7", None),
    "a payload that is null": (b"payload=null", None),
    "a payload without anything": (b"payload=%7B%7D", None),
    "a payload of an unknown type": (b"payload=%7B%22type%22%3A%22new%22%7D", None),
    "a payload whose type is no text": (b"payload=%7B%22type%22%3A%5B%5D%7D", None),
    "broken JSON": (b'{"type": ', JSON),
    "JSON that is no object": (b"[1, 2]", JSON),
    "JSON that is a text": (b'"text"', JSON),
    "JSON that is null": (b"null", JSON),
    "an event without a body": (b'{"type": "event_callback"}', JSON),
    "an event that is none": (b'{"type": "event_callback", "event": 7}', JSON),
    "an event of an unknown type": (
        b'{"type": "event_callback", "event": {"type": "new_thing"}}',
        JSON,
    ),
    "JSON that nests too deep": (b"[" * 100_000, JSON),
    "a payload that nests too deep": (b"payload=" + b"[" * 100_000, None),
    "a body of zeros": (b"\x00" * 1000, None),
}


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN.keys())
async def test_a_signed_request_that_makes_no_sense_is_answered_calmly(
    body: tuple[bytes, str | None], world: World
) -> None:
    content, content_type = body
    if content_type is None:
        answer = await deliver(world.slack, content)
    else:
        answer = await deliver(world.slack, content, content_type)
    assert answer.status is not None
    assert answer.status < 500
    assert untouched(world)


VIEW = {"id": "V1", "callback_id": "unknown_form", "state": {"values": {}}}
UNKNOWN = {
    "a view": ("view_submission", {"view": VIEW}),
    "a view without anything": ("view_submission", {"view": {}}),
    "no view": ("view_submission", {}),
    "a view that was closed": ("view_closed", {"view": VIEW}),
    "a button": ("block_actions", {"actions": [{"action_id": "unknown", "type": "button"}]}),
    "no button": ("block_actions", {"actions": []}),
    "a menu": ("block_suggestion", {"action_id": "unknown", "block_id": "b", "value": "x"}),
    "a menu without anything": ("block_suggestion", {}),
    "a shortcut": ("shortcut", {"callback_id": "unknown"}),
    "a message shortcut": ("message_action", {"callback_id": "unknown", "message": {}}),
}


@pytest.mark.parametrize("payload", UNKNOWN.values(), ids=UNKNOWN.keys())
async def test_an_interaction_that_nobody_knows_is_answered_calmly(
    payload: tuple[str, dict[str, object]], world: World
) -> None:
    kind, more = payload
    answer = await deliver(world.slack, interaction(world, kind, **more))
    assert answer.status is not None
    assert answer.status < 500
    assert untouched(world)


async def test_a_command_that_nobody_knows_is_answered_calmly(world: World) -> None:
    answer = await deliver(world.slack, command(world, "/unknown"))
    assert answer.ok
    assert untouched(world)


async def test_a_known_form_with_nonsense_in_it_is_told_under_a_field_with_a_reference(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    form = await world.opens_form(world.ana)
    calls = len(world.slack.calls)
    for metadata in ("", "{broken"):
        view = {**form.view.payload(), "private_metadata": metadata}
        answer = await deliver(world.slack, interaction(world, "view_submission", view=view))
        assert answer.json is not None
        [told] = answer.json["errors"].values()
        assert answer.json["response_action"] == "errors"
        assert told.split()[-1] in [getattr(record, "reference", "") for record in caplog.records]
    assert len(world.slack.calls) == calls
    assert world.service.requests == []
    caplog.clear()  # such a form is a mistake of ours: its traceback belongs into the log


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
@pytest.mark.parametrize("path", ["/slack/events", "/callbacks/unknown"])
async def test_a_body_that_is_too_long_changes_nothing(
    path: str, world: World, client: aiohttp.ClientSession
) -> None:
    async with client.post(path, data=b"x" * (1024 * 1024 + 1)) as answer:
        assert answer.status == (413 if path == "/slack/events" else 200)
    assert untouched(world)


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_a_body_that_is_too_long_is_refused_signed_or_not(world: World) -> None:
    answer = await deliver(world.slack, b"payload=" + b"x" * 1024 * 1024)
    assert answer.status == 413


# ── The same once more ────────────────────────────────────────────────────────────────────────


async def test_a_request_that_is_replayed_gets_the_same_answer_and_changes_nothing(
    world: World,
) -> None:
    body = command(world, text="list")
    first = await deliver(world.slack, body)
    await world.asks(world.ana)
    again = await deliver(world.slack, body)
    assert "not asked for a video yet" in first.body
    assert (again.status, again.body) == (first.status, first.body)


async def test_a_command_that_is_replayed_opens_one_form(world: World) -> None:
    body = command(world)
    answers = await asyncio.gather(*(deliver(world.slack, body) for _ in range(5)))
    assert {(answer.status, answer.body) for answer in answers} == {(200, "")}
    assert len(world.calls("views.open")) == 1


async def test_a_replay_with_other_headers_is_still_a_replay(world: World) -> None:
    body = command(world)
    await deliver(world.slack, body)
    await deliver(world.slack, body, retry=1)
    await deliver(world.slack, body, headers={"User-Agent": "somebody else"})
    assert len(world.calls("views.open")) == 1


async def test_a_submission_that_is_replayed_makes_one_video(world: World) -> None:
    form = await world.opens_form(world.ana)
    values = {"replica_id": REPLICA, "script": "Hello, world."}
    await form.submit(values, clicks=5)
    await form.resubmit(5)
    await world.passes(minutes=10)
    assert world.creates() == 1
    assert len(world.posts()) == 2
    assert {answer.status for answer in await form.resubmit(2)} == {401}  # too old by now


async def test_what_is_remembered_against_replays_outlives_the_signature(world: World) -> None:
    # Slack's clock is ahead of ours: its signature stays good for longer than five minutes.
    ahead = world.clock.now() + timedelta(minutes=4)
    body, stamp = command(world, text="list"), str(int(ahead.timestamp()))
    first = await deliver(world.slack, body, timestamp=stamp)
    await world.asks(world.ana)
    await world.passes(minutes=8)
    again = await deliver(world.slack, body, timestamp=stamp)
    assert (again.status, again.body) == (first.status, first.body)


async def test_headers_that_steer_slacks_own_framework_are_not_for_strangers(
    world: World,
) -> None:
    steering = {
        "X-Slack-Bolt-Lazy-Only": "1",
        "x-slack-bolt-lazy-function-name": "_on_command",
        "X-SLACK-BOLT-Anything": "else",
    }
    assert (await deliver(world.slack, command(world), headers=steering)).ok
    assert world.ana.modal is not None


# ── Paths and methods ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE"])
async def test_slack_only_posts(method: str, world: World, client: aiohttp.ClientSession) -> None:
    async with client.request(method, "/slack/events") as answer:
        assert answer.status == 405
    assert untouched(world)


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_how_it_is_can_only_be_asked(path: str, client: aiohttp.ClientSession) -> None:
    async with client.get(path) as answer:
        assert (answer.status, await answer.text()) == (200, "ok")
    async with client.post(path) as answer:
        assert answer.status == 405


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/slack",
        "/slack/events/",
        "/slack/install",
        "/callbacks",
        "/callbacks/",
        "/callbacks/a/b",
        "/bot.db",
        "/../bot.db",
        "/%2e%2e/bot.db",
        "/healthz/",
        "/.env",
    ],
)
async def test_there_is_nothing_else(
    path: str, world: World, client: aiohttp.ClientSession
) -> None:
    for method in ("GET", "POST"):
        async with client.request(method, path) as answer:
            assert answer.status == 404
    assert untouched(world)


async def test_it_is_not_ready_once_its_database_is_gone(
    world: World, client: aiohttp.ClientSession
) -> None:
    world.database.unlink()
    async with client.get("/readyz") as answer:
        assert (answer.status, await answer.text()) == (503, "no database")
    async with client.get("/healthz") as answer:
        assert answer.status == 200


async def test_a_form_is_not_closed_where_its_job_could_not_be_kept(world: World) -> None:
    form = await world.opens_form(world.ana)
    await form.suggest("replica_id", REPLICA)
    world.database.unlink()
    await form.submit({"replica_id": REPLICA, "script": "Hello, world."})
    assert form.is_open
    assert "could not be saved" in " ".join(form.errors.values())
    await world.settles()
    assert world.posts() == []
    assert world.creates() == 0


# ── Callbacks ─────────────────────────────────────────────────────────────────────────────────


async def callback_path(world: World) -> str:
    """Ask for a video and return where the service was told to call back."""
    world.service.callback_plan = CallbackPlan(times=0)
    await world.asks(world.ana)
    [video] = world.service.videos.values()
    assert video.callback_url is not None
    return video.callback_url.removeprefix(f"http://127.0.0.1:{world.bot.port}")


BODIES = {
    "nothing": b"",
    "rubbish": b"\xff\xfe\x00",
    "broken JSON": b'{"video_id": ',
    "too deep": b"[" * 100_000,
    "a list": b"[1]",
    "an id that is no text": b'{"video_id": {"$ne": null}}',
    "somebody's id": b'{"video_id": "v-somebody-else", "status": "ready"}',
    "a path": b'{"video_id": "../replicas/r-anna-42", "status": "ready"}',
    "a long id": b'{"video_id": "' + b"v" * 100_000 + b'"}',
    "odd characters": b'{"video_id": "\\u0000\\ud800", "x": {"video_id": "\\n"}}',
    "a failure that is none": b'{"status": "error", "status_details": "a lie"}',
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
async def test_a_callback_gets_the_same_answer_whatever_it_says_and_lies_change_nothing(
    body: bytes, world: World, client: aiohttp.ClientSession
) -> None:
    known, unknown = await callback_path(world), "/callbacks/" + "x" * 43
    for method in ("POST", "PUT", "GET", "DELETE", "PATCH", "OPTIONS"):
        answers = [await answer_to(client, method, path, body) for path in (known, unknown)]
        assert answers[0] == answers[1] == (200, "ok", "text/plain; charset=utf-8")
    await world.settles()
    assert len(world.posts()) == 1
    await world.passes(minutes=10)
    assert "is ready" in world.posts()[-1].text
    assert len(world.posts()) == 2
    assert world.creates() == 1


async def answer_to(
    client: aiohttp.ClientSession, method: str, path: str, body: bytes
) -> tuple[int, str, str]:
    async with client.request(method, path, data=body, headers={"Content-Type": JSON}) as answer:
        return answer.status, await answer.text(), answer.headers["Content-Type"]


@pytest.mark.parametrize(
    "token", ["%00", "%ff", "..", "%2e%2e", "a" * 5000, "%F0%9F%98%80", "'; DROP TABLE jobs; --"]
)
async def test_a_token_may_be_anything(
    token: str, world: World, client: aiohttp.ClientSession
) -> None:
    async with client.post(f"/callbacks/{token}", data=b"{}") as answer:
        assert answer.status in {200, 404}
    assert untouched(world)


async def test_a_flood_of_callbacks_makes_few_reads(
    world: World, client: aiohttp.ClientSession
) -> None:
    path = await callback_path(world)
    for _ in range(30):
        await answer_to(client, "POST", path, b"{}")
        await world.settles()
    assert len(world.asked("read_video")) <= 2


async def test_a_token_is_stored_as_a_hash_alone(quiet_world: World) -> None:
    async with quiet_world.bot_runs():
        token = (await callback_path(quiet_world)).removeprefix("/callbacks/")
    stored = quiet_world.database.read_bytes()
    assert hashlib.sha256(token.encode()).hexdigest().encode() in stored
    assert token.encode() not in stored


# ── Logs ──────────────────────────────────────────────────────────────────────────────────────


async def test_neither_secrets_nor_what_people_wrote_get_into_the_log(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path)
    answers: list[Answer] = []
    async with world.runs() as live:
        await live.asks("A very private script.")
        await live.until(lambda: live.says("Ready") and live.replies())
        [video] = live.service.videos.values()
        assert video.callback_url is not None
        token = video.callback_url.rpartition("/")[2]
        for content, content_type in BROKEN.values():
            answers.append(
                await deliver(live.slack, content, content_type or "text/plain", retry=1)
            )
        async with live.slack.session.post(video.callback_url, data=b"\xff") as answer:
            assert answer.status == 200
        await live.rests()
        logged = live.log_file.read_text()
    assert all(answer.status is not None and answer.status < 500 for answer in answers)
    assert "event=ended" in logged
    for secret in (
        live.slack.bot_token,
        live.slack.signing_secret,
        live.service.api_key,
        token,
        "private script",
    ):
        assert secret not in logged


@pytest.mark.parametrize("named", ["\\ud800", "x" * 201])
async def test_a_callback_that_names_an_impossible_id_is_taken_and_forgotten(
    world: World, named: str
) -> None:
    await world.asks(world.ana)
    body = world.asked("create_video")[0].body
    assert isinstance(body, dict)
    url = body["callback_url"]
    raw = f'{{"video_id": "{named}"}}'.encode()
    async with world.slack.session.post(url, data=raw) as answer:
        assert (answer.status, await answer.text()) == (200, "ok")
