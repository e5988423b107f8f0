"""The HTTP server: repeated requests, callbacks, and what is logged.

Invalid requests have a corpus of their own, test_invalid_requests.py, and connections a file,
test_connections.py.
"""

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import aiohttp
import pytest

from sandbox.delivery import (
    _signature,
    button_action,
    deliver,
    encoded,
    find_button,
    interaction,
    timestamp_of,
)
from sandbox.faults import CannedResponse
from sandbox.scenarios import CallbackPlan
from sandbox.slack_objects import Message
from tests.modes import bot_with, on_sqlite_alone
from tests.processes import LiveWorld
from tests.world import REPLICA, World

JSON = "application/json"


@pytest.fixture(autouse=True)
def no_traceback_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever is sent, the bot is prepared for it."""
    caplog.set_level(logging.INFO)
    yield
    surprises = [record for record in caplog.get_records("call") if record.exc_info]
    assert not surprises, caplog.text


@pytest.fixture
async def client(world: World) -> AsyncIterator[aiohttp.ClientSession]:
    """An HTTP client for the bot's own address."""
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


def untouched(world: World) -> bool:
    """Return whether the bot did nothing but ask Slack where it is installed."""
    calls = {call.method for call in world.slack.calls} - {"auth.test", "bots.info"}
    return not calls and not world.service.requests and world.ana.modal is None


async def test_a_form_with_invalid_metadata_shows_an_error_with_a_reference_under_a_field(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A form to create or to train is drawn anew instead: see test_open_forms."""
    form = await world.open_form(world.ana)
    calls, studio = len(world.slack.calls), world.slack.channel("studio")
    for metadata in ("", "{broken", '{"version": 2}'):
        other = {"callback_id": "decline_form", "private_metadata": metadata}
        payload = interaction(world.slack, world.ana.user, "view_submission", studio)
        view = {**form.view.payload(), **other}
        answer = await deliver(world.slack, encoded({**payload, "view": view}))
        assert answer.json is not None
        [error] = answer.json["errors"].values()
        assert answer.json["response_action"] == "errors"
        assert error.split()[-1] in [getattr(record, "reference", "") for record in caplog.records]
    assert len(world.slack.calls) == calls
    assert world.service.requests == []


async def replay(world: World, body: bytes, times: int = 5) -> None:
    """Deliver one request that was sent before several times more, at once and one by one."""
    answers = await asyncio.gather(*(deliver(world.slack, body) for _ in range(times)))
    answers += [
        await deliver(world.slack, body, retry=1),
        await deliver(world.slack, body, headers={"User-Agent": "another client"}),
    ]
    assert all(answer.ok for answer in answers), answers
    await world.settle()


def click(world: World, message: Message, button: str) -> bytes:
    """Return the body of Ana's click on a button of a message in #studio."""
    ana, studio = world.ana.user, world.slack.channel("studio")
    payload = {
        **interaction(world.slack, ana, "block_actions", studio),
        "channel": {"id": studio.id},
        "response_url": world.slack.new_response_url(ana.id, studio.id),
        "actions": [button_action(world.slack, *find_button(message.blocks, button))],
    }
    return encoded(payload)


async def test_a_replayed_command_opens_one_form(world: World) -> None:
    body = command(world)
    await asyncio.gather(*(deliver(world.slack, body) for _ in range(5)))
    await replay(world, body)
    assert len(world.slack.modals[world.ana.user.id]) == 1


async def test_a_replayed_submission_makes_one_video_after_a_restart_too(quiet: World) -> None:
    async with quiet.running_bot():
        form = await quiet.open_form(quiet.ana)
        await quiet.after(form.submit({"replica_id": REPLICA, "script": "Hello, world."}))
    async with quiet.running_bot():
        assert {answer.status for answer in await form.resubmit(3)} == {200}
        await quiet.advance(minutes=10)
    assert quiet.created_count() == 1
    assert len(quiet.posts()) == 2


async def asks_what_to_do(world: World) -> Message:
    """Have a create call of Ana's fail without a trace, and return the card that asks her."""
    world.service.faults.next("create_video", CannedResponse(500))
    card = world.now(await world.request_video(world.ana))
    assert "Needs an answer" in card.text
    return card


@bot_with(callbacks=False)
async def test_a_replayed_create_again_does_not_count_for_the_next_attempt(world: World) -> None:
    card = await asks_what_to_do(world)
    world.service.faults.next("create_video", CannedResponse(500))
    body = click(world, world.question(card), "job_create_again")
    await world.after(deliver(world.slack, body), seconds=5)
    assert "Needs an answer" in world.now(card).text
    await world.after(replay(world, body), minutes=5)
    assert len(world.requests_for("create_video")) == 2
    assert "Needs an answer" in world.now(card).text


async def test_headers_that_choose_what_bolt_runs_are_dropped(world: World) -> None:
    headers = {
        "X-Slack-Bolt-Lazy-Only": "1",
        "x-slack-bolt-lazy-function-name": "_on_command",
        "X-SLACK-BOLT-Anything": "else",
    }
    assert (await deliver(world.slack, command(world), headers=headers)).ok
    assert world.ana.modal is not None


async def callback_path(world: World) -> str:
    """Ask for a video and return the path of its callback URL."""
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
    """Return the times at which the video was read."""
    return [request.at for request in world.requests_for("read_video")]


async def call_back(
    client: aiohttp.ClientSession, path: str, times: int, body: bytes = b"{}"
) -> None:
    """Call back ``times`` times, fifty at once."""
    for _ in range(times // 50):
        await asyncio.gather(*(answer_to(client, "POST", path, body) for _ in range(50)))


@on_sqlite_alone
async def test_a_callback_that_cannot_be_stored_is_answered_so_that_it_comes_again(
    world: World, client: aiohttp.ClientSession
) -> None:
    path = await callback_path(world)
    away = world.database.rename(world.database.with_suffix(".away"))
    async with client.post(path, data=b"{}") as answer:
        assert answer.status == 503
    away.rename(world.database)
    async with client.post(path, data=b"{}") as answer:
        assert answer.status == 200


async def test_a_thousand_callbacks_cause_a_read_every_two_seconds_and_one_after_the_last(
    world: World, client: aiohttp.ClientSession
) -> None:
    path = await world.after(callback_path(world), seconds=30)
    before = len(reads_at(world))
    for _ in range(10):
        await world.after(call_back(client, path, 100), seconds=1)
    last = world.clock.now() - timedelta(seconds=1)
    await world.advance(seconds=5)
    reads = reads_at(world)[before - 1 :]
    assert all(after - earlier >= timedelta(seconds=2) for earlier, after in pairwise(reads))
    assert len(reads) >= 6, "reads are delayed, not dropped"
    assert reads[-1] > last


async def test_callbacks_that_each_name_another_id_cause_few_reads(
    world: World, client: aiohttp.ClientSession
) -> None:
    world.service.callback_plan = CallbackPlan(times=0)
    world.service.faults.next("create_video", CannedResponse(500))
    await world.request_video(world.ana)
    before = len(reads_at(world))
    sent = world.requests_for("create_video")[0].body
    assert isinstance(sent, dict)
    path = urlsplit(sent["callback_url"]).path
    for number in range(20):
        await answer_to(client, "POST", path, f'{{"video_id": "v{number}"}}'.encode())
        await world.settle()
    assert len(reads_at(world)) == before + 1
    await world.advance(seconds=5)
    paths = [each.path for each in world.requests_for("read_video")]
    assert paths[before + 1 :] == ["/v2/videos/v19"]


@on_sqlite_alone
async def test_only_the_hash_of_a_token_is_stored(quiet: World) -> None:
    async with quiet.running_bot():
        token = (await callback_path(quiet)).removeprefix("/callbacks/")
    stored = quiet.database.read_bytes()
    assert hashlib.sha256(token.encode()).hexdigest().encode() in stored
    assert token.encode() not in stored


async def test_the_log_holds_no_secrets_and_no_text_that_people_wrote(tmp_path: Path) -> None:
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


async def test_an_empty_body_has_to_be_signed_too(
    world: World, client: aiohttp.ClientSession
) -> None:
    headers = {
        "X-Slack-Request-Timestamp": timestamp_of(world.slack),
        "X-Slack-Signature": "v0=" + "0" * 64,
    }
    async with client.post("/slack/events", headers=headers) as answer:
        assert (answer.status, await answer.text()) == (401, "")
    assert untouched(world)


async def test_a_signature_covers_the_exact_bytes_and_not_their_meaning(world: World) -> None:
    body = command(world, text="two words")
    same_meaning = body.replace(b"+", b"%20")
    signed = _signature(world.slack.signing_secret, timestamp_of(world.slack), body)
    assert (await deliver(world.slack, same_meaning, signature=signed)).status == 401
    assert untouched(world)
