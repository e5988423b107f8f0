"""The front door: what impatient and repeated requests get, floods, and what gets into the log.

What is no good in itself is a corpus of its own: test_bad_input.py.
"""

import asyncio
import contextlib
import hashlib
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote, quote_plus, urlencode, urlsplit

import aiohttp
import pytest

from bot.timings import Timings
from bot.web import _unwrapped
from sandbox.delivery import _signature, deliver, timestamp_of
from sandbox.faults import CannedResponse
from sandbox.video_service import CallbackPlan
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


# ── Signed, and nonsense all the same ─────────────────────────────────────────────────────────


async def test_a_known_form_with_nonsense_in_it_is_told_under_a_field_with_a_reference(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    form = await world.open_form(world.ana)
    calls = len(world.slack.calls)
    for metadata in ("", "{broken", '{"version": 2}'):
        view = {**form.view.payload(), "private_metadata": metadata}
        answer = await deliver(world.slack, interaction(world, "view_submission", view=view))
        assert answer.json is not None
        [told] = answer.json["errors"].values()
        assert answer.json["response_action"] == "errors"
        assert told.split()[-1] in [getattr(record, "reference", "") for record in caplog.records]
    assert len(world.slack.calls) == calls
    assert world.service.requests == []


# ── The same once more ────────────────────────────────────────────────────────────────────────


async def test_a_request_that_is_replayed_gets_the_same_answer_and_changes_nothing(
    world: World,
) -> None:
    body = command(world, text="list")
    first = await deliver(world.slack, body)
    await world.request_video(world.ana)
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
    form = await world.open_form(world.ana)
    values = {"replica_id": REPLICA, "script": "Hello, world."}
    await form.submit(values, clicks=5)
    await form.resubmit(5)
    await world.advance(minutes=10)
    assert world.created_count() == 1
    assert len(world.posts()) == 2
    assert {answer.status for answer in await form.resubmit(2)} == {401}  # too old by now


async def test_what_is_remembered_against_replays_outlives_the_signature(world: World) -> None:
    # Slack's clock is ahead of ours: its signature stays good for longer than five minutes.
    ahead = world.clock.now() + timedelta(minutes=4)
    body, stamp = command(world, text="list"), str(int(ahead.timestamp()))
    first = await deliver(world.slack, body, timestamp=stamp)
    await world.request_video(world.ana)
    await world.advance(minutes=8)
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


@pytest.mark.parametrize(
    "text",
    ["", "a+b c%20d", "=3D=\r\n= \n", "100 % & more=less", "Żaneta 😀 \t", "payload={}", "\x00"],
)
@pytest.mark.parametrize("encoded", [quote, quote_plus])
def test_what_somebody_typed_comes_out_of_the_form_letter_for_letter(
    text: str, encoded: Callable[[str], str]
) -> None:
    payload = json.dumps({"value": text}, ensure_ascii=False) + text
    assert _unwrapped(f"payload={encoded(payload)}".encode()).decode() == payload


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"command=%2Fvideo&text=payload%3D%7B",
        b"payload=%7B%22a%22%3A1%7D&more=1",
        b"payload=%7B%22a%22=3A1%7D",
        b"payload=%7B%22a%22%3A1%7D\n",
        b"payload=1",
        b"%7B%22a%22%3A1%7D",
        b'{"payload": 1}',
    ],
)
def test_what_is_no_form_with_one_payload_is_left_as_it_is(body: bytes) -> None:
    assert _unwrapped(body) == body


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_how_it_is_can_only_be_asked(path: str, client: aiohttp.ClientSession) -> None:
    async with client.get(path) as answer:
        assert (answer.status, await answer.text()) == (200, "ok")
    async with client.post(path) as answer:
        assert answer.status == 405


async def test_it_is_not_ready_once_its_database_is_gone(
    world: World, client: aiohttp.ClientSession
) -> None:
    world.database.unlink()
    async with client.get("/readyz") as answer:
        assert (answer.status, await answer.text()) == (503, "no database")
    async with client.get("/healthz") as answer:
        assert answer.status == 200


async def test_a_form_is_not_closed_where_its_job_could_not_be_kept(world: World) -> None:
    form = await world.open_form(world.ana)
    await form.suggest("replica_id", REPLICA)
    world.database.unlink()
    await form.submit({"replica_id": REPLICA, "script": "Hello, world."})
    assert form.is_open
    assert "could not be saved" in " ".join(form.errors.values())
    await world.settle()
    assert world.posts() == []
    assert world.created_count() == 0


# ── Callbacks ─────────────────────────────────────────────────────────────────────────────────


async def callback_path(world: World) -> str:
    """Ask for a video and return where the service was told to call back."""
    world.service.callback_plan = CallbackPlan(times=0)
    await world.request_video(world.ana)
    [video] = world.service.videos.values()
    assert video.callback_url is not None
    return video.callback_url.removeprefix(f"http://127.0.0.1:{world.bot.port}")


async def answer_to(
    client: aiohttp.ClientSession, method: str, path: str, body: bytes
) -> tuple[int, str, str]:
    async with client.request(method, path, data=body, headers={"Content-Type": JSON}) as answer:
        return answer.status, await answer.text(), answer.headers["Content-Type"]


def reads_at(world: World) -> list[datetime]:
    """Return when the video was read."""
    return [request.at for request in world.requests_for("read_video")]


async def call_back(
    client: aiohttp.ClientSession, path: str, times: int, body: bytes = b"{}"
) -> None:
    """Call back so many times, many of them at once."""
    for _ in range(times // 50):
        await asyncio.gather(*(answer_to(client, "POST", path, body) for _ in range(50)))


async def test_a_thousand_callbacks_make_a_read_each_two_seconds_and_one_after_the_last(
    world: World, client: aiohttp.ClientSession
) -> None:
    path = await callback_path(world)
    await world.advance(seconds=30)
    before = len(reads_at(world))
    for _ in range(10):
        await call_back(client, path, 100)
        await world.advance(seconds=1)
    last = world.clock.now() - timedelta(seconds=1)
    await world.advance(seconds=5)
    reads = reads_at(world)[before - 1 :]
    assert all(after - earlier >= timedelta(seconds=2) for earlier, after in pairwise(reads))
    assert len(reads) >= 6, "they are put off, not dropped"
    assert reads[-1] > last


async def test_callbacks_that_come_while_the_video_is_read_wait_their_two_seconds(
    world: World, client: aiohttp.ClientSession
) -> None:
    path = await callback_path(world)
    await world.advance(seconds=30)
    before = len(reads_at(world))

    async def more_of_them(phase: str, operation: str, _: str) -> None:
        if (phase, operation) == ("before", "read_video") and len(reads_at(world)) < before + 20:
            await call_back(client, path, 50)

    world.service.on_request = more_of_them
    await call_back(client, path, 50)
    await world.advance(seconds=1.9)
    assert len(reads_at(world)) == before
    await world.advance(seconds=0.2)
    assert len(reads_at(world)) == before + 1
    await world.advance(seconds=5)
    reads = reads_at(world)[before:]
    assert all(after - earlier >= timedelta(seconds=2) for earlier, after in pairwise(reads))


async def test_callbacks_that_name_one_id_after_the_other_make_few_reads(
    world: World, client: aiohttp.ClientSession
) -> None:
    world.service.callback_plan = CallbackPlan(times=0)
    world.service.faults.next("create_video", CannedResponse(500))
    await world.request_video(world.ana)
    sent = world.requests_for("create_video")[0].body
    assert isinstance(sent, dict)
    path = urlsplit(sent["callback_url"]).path
    for number in range(20):
        await answer_to(client, "POST", path, f'{{"video_id": "v{number}"}}'.encode())
        await world.settle()
    assert len(reads_at(world)) == 1
    await world.advance(seconds=5)
    assert [each.path for each in world.requests_for("read_video")][1:] == ["/v2/videos/v19"]


async def test_the_last_of_many_callbacks_finds_the_end(
    world: World, client: aiohttp.ClientSession
) -> None:
    path = await callback_path(world)
    await world.advance(seconds=30)
    await call_back(client, path, 50)
    await world.advance(seconds=2)
    await call_back(client, path, 50)
    world.service.finish(next(iter(world.service.videos)))
    await call_back(client, path, 50)
    await world.advance(seconds=2)
    assert "is ready" in world.posts()[-1].text


async def test_no_callback_is_answered_before_its_time_whether_its_token_is_known_or_not(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, Timings(jitter=0, callback_answer=timedelta(seconds=0.3)))
    async with (
        world.running_sandbox(),
        world.running_bot(),
        aiohttp.ClientSession(f"http://127.0.0.1:{world.bot.port}") as client,
    ):
        known = await callback_path(world)
        reads = len(reads_at(world))
        loop = asyncio.get_running_loop()
        for path in (known, "/callbacks/" + "x" * 43):
            began = loop.time()
            assert await answer_to(client, "POST", path, b"{}") == ANSWERED
            # That is many times what the look at the token, and all that follows, takes.
            assert loop.time() - began >= 0.3
        await world.settle()
        assert len(reads_at(world)) == reads + 1


ANSWERED = (200, "ok", "text/plain; charset=utf-8")


async def test_a_token_is_stored_as_a_hash_alone(quiet_world: World) -> None:
    async with quiet_world.running_bot():
        token = (await callback_path(quiet_world)).removeprefix("/callbacks/")
    stored = quiet_world.database.read_bytes()
    assert hashlib.sha256(token.encode()).hexdigest().encode() in stored
    assert token.encode() not in stored


# ── Connections ───────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process asks for so few files that half of them are a hundred."""
    monkeypatch.setattr("bot.web._FILES", 200)


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"POST /slack/events HTTP/1.1\r\nHost: x\r\nX-",
        b"POST /slack/events HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc",
        b"POST /callbacks/x HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc",
    ],
    ids=["nothing", "headers", "a body", "a callback"],
)
@pytest.mark.usefixtures("few_files")
async def test_a_flood_of_connections_that_are_only_begun_stops_no_good_request(
    begun: bytes, world: World
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        readers = []
        for _ in range(300):
            reader, writer = await asyncio.open_connection("127.0.0.1", world.bot.port)
            stack.callback(writer.close)
            writer.write(begun)
            readers.append(reader)
        assert (await deliver(world.slack, command(world))).ok
        assert world.ana.modal is not None
        # Those that came first are closed, and there are never so many that files run out.
        for reader in readers[:150]:
            assert await reader.read() == b""
        assert not readers[-1].at_eof()


async def test_a_connection_over_which_nothing_comes_is_closed(tmp_path: Path) -> None:
    world = World(tmp_path, Timings(jitter=0, receive_timeout=timedelta(seconds=0.2)))
    async with world.running_sandbox(), world.running_bot():
        reader, writer = await asyncio.open_connection("127.0.0.1", world.bot.port)
        used, other = await asyncio.open_connection("127.0.0.1", world.bot.port)
        other.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        # One that was used stays open for the next request.
        other.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert (await used.read()).count(b"200 OK") == 2
        for each in (writer, other):
            each.close()


@pytest.mark.usefixtures("few_files")
async def test_a_request_that_is_being_answered_is_not_cut_off_by_others(world: World) -> None:
    others = []

    async def crowd(phase: str, method: str, _: object) -> None:
        if (phase, method) == ("before", "views.open"):
            port = world.bot.port
            others.extend([await asyncio.open_connection("127.0.0.1", port) for _ in range(200)])

    world.slack.on_request = crowd
    assert (await deliver(world.slack, command(world))).ok
    assert world.ana.modal is not None
    for _, writer in others:
        writer.close()


# ── Logs ──────────────────────────────────────────────────────────────────────────────────────


async def test_neither_secrets_nor_what_people_wrote_get_into_the_log(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path)
    async with world.running() as live:
        await live.request_video("A very private script.")
        await live.wait_until(lambda: live.card_says("Ready") and live.replies())
        [video] = live.service.videos.values()
        assert video.callback_url is not None
        token = video.callback_url.rpartition("/")[2]
        broken = (b"payload=%7Bbroken", b"payload=%7B%7D", b"[" * 100_000)
        answers = [await deliver(live.slack, each, JSON, retry=1) for each in broken]
        async with live.slack.session.post(video.callback_url, data=b"\xff") as answer:
            assert answer.status == 200
        await live.stop_when_idle()
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
    await world.request_video(world.ana)
    body = world.requests_for("create_video")[0].body
    assert isinstance(body, dict)
    url = body["callback_url"]
    raw = f'{{"video_id": "{named}"}}'.encode()
    async with world.slack.session.post(url, data=raw) as answer:
        assert (answer.status, await answer.text()) == (200, "ok")


# ── The signature once more ───────────────────────────────────────────────────────────────────


async def test_an_empty_body_has_to_be_signed_too(
    world: World, client: aiohttp.ClientSession
) -> None:
    async with client.post("/slack/events") as answer:
        assert (answer.status, await answer.text()) == (401, "")
    assert untouched(world)


async def test_a_signature_covers_the_very_bytes_and_not_what_they_mean(world: World) -> None:
    body = command(world, text="two words")
    meaning_the_same = body.replace(b"+", b"%20")
    signed = _signature(world.slack.signing_secret, timestamp_of(world.slack), body)
    assert (await deliver(world.slack, meaning_the_same, signature=signed)).status == 401
    assert untouched(world)
