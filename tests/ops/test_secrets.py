"""Secrets and user content stay where they belong, and the leak detector finds them elsewhere."""

import contextlib
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from bot.store.migrate import steps
from sandbox.block_kit import Json
from sandbox.faults import CannedResponse
from sandbox.scenarios import CallbackPlan, Scenario
from tests.leaks import COLUMNS, MarkType
from tests.world import REPLICA, World

SIGNED = "https://storage.example.com/sea.mp4?X-Amz-Signature=7fe2b1"
HOST = "storage.example.com"  # in a channel, links are shown by their host alone
SCRIPT = "Nobody but me has to know this."
SILENT = CallbackPlan(times=0)


async def asks_with_a_signed_link(world: World) -> None:
    """Have Ana ask for a video whose background has a signed link."""
    form = await world.open_form(world.ana)
    await form.choose("background", "background_source_url")
    await form.send({"replica_id": REPLICA, "script": SCRIPT, "background_source_url": SIGNED})
    await world.settle()


def callback_url(world: World) -> str:
    """Return the callback URL of the last create call."""
    sent = world.requests_for("create_video")[-1].body
    assert isinstance(sent, dict)
    return str(sent["callback_url"])


async def test_a_refusal_that_quotes_our_request_leaks_none_of_it(
    world: World, subtests: pytest.Subtests
) -> None:
    world.service.callback_plan = SILENT
    body: dict[str, str] = {}

    async def quote(phase: str, operation: str, _: str) -> None:
        if (phase, operation) == ("before", "create_video"):
            key = world.service.api_key
            body["error"] = f"Key {key}: cannot fetch {SIGNED} nor reach {callback_url(world)} now"

    world.service.on_request = quote
    for status in [400, 422, 500, 429, 403, 402, 401]:
        with subtests.test(status=status):
            body.clear()
            world.service.faults.next("create_video", CannedResponse(status, body, done=True))
            await world.after(asks_with_a_signed_link(world), minutes=1)
            assert body
            if status in {400, 422}:
                assert f"Key ***: cannot fetch {HOST} nor reach " in world.posts()[-1].text


@pytest.mark.parametrize("word", ["error", "generating", "ready"])
async def test_a_read_that_quotes_our_request_leaks_none_of_it(word: str, world: World) -> None:
    world.service.callback_plan = SILENT
    await asks_with_a_signed_link(world)
    quoted = f"Cannot fetch {SIGNED} nor reach {callback_url(world)}"
    said = {"status": word, "status_details": quoted, "data": {"script": SCRIPT}}
    world.service.faults.always("read_video", CannedResponse(200, said))
    await world.advance(minutes=1)
    await world.after(world.ana.command("/video", f"status {next(iter(world.service.videos))}"))
    assert f"Cannot fetch {HOST} nor reach 127.0.0.1" in world.ephemerals(world.ana)[-1]


async def test_a_failed_training_with_a_link_in_its_reason_leaks_no_query(world: World) -> None:
    world.service.next_replica(Scenario(end="error", reason=f"Cannot fetch {SIGNED}"))
    await world.after(world.request_replica(world.ana, {"train_video_url": SIGNED}), hours=5)
    assert f"Cannot fetch {HOST}" in world.posts()[-1].text


@pytest.mark.parametrize("method", ["chat.postMessage", "chat.update", "views.open"])
async def test_a_refusal_of_slack_that_quotes_a_message_leaves_its_text_out_of_the_log(
    method: str, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    messages = [f"[ERROR] must not say “{SCRIPT}” [json-pointer:/blocks/1/text]"]
    refusal = {"ok": False, "error": "bad_one", "response_metadata": {"messages": messages}}
    await world.request_video(world.ana, {"script": SCRIPT})
    world.slack.faults.next(method, CannedResponse(200, refusal))
    with contextlib.suppress(LookupError, ValueError):  # there is no form, or no card
        await world.request_video(world.ana, {"script": SCRIPT})
    await world.advance(minutes=5)
    logged = caplog.text + str([vars(record) for record in caplog.records])
    assert "Slack refused (bad_one) json-pointer:/blocks/1/text" in logged


LOG = logging.getLogger("bot.somewhere")
Leak = Callable[[World], Awaitable[None]]


async def _a_token_in_a_log_line(world: World) -> None:
    LOG.info("called with %s", world.slack.bot_token)


async def _slack(world: World, method: str, **arguments: Any) -> None:  # noqa: ANN401 - any JSON
    """Call Slack as the bot would."""
    headers = {"Authorization": f"Bearer {world.slack.bot_token}"}
    url = world.slack.api_url + method
    async with world.slack.session.post(url, json=arguments, headers=headers) as answer:
        assert (await answer.json())["ok"], await answer.text()


async def _a_query_in_a_message(world: World) -> None:
    await _slack(world, "chat.postMessage", channel="C000000005", text=SIGNED)


def _form(text: str) -> Json:
    block = {"type": "section", "text": {"type": "plain_text", "text": text}}
    return {"type": "modal", "title": {"type": "plain_text", "text": "T"}, "blocks": [block]}


async def _a_script_in_a_form_of_another_user(world: World) -> None:
    trigger = world.slack.new_trigger(world.ben.user.id, None)
    await _slack(world, "views.open", trigger_id=trigger, view=_form(SCRIPT))


async def _a_query_in_an_ephemeral_message(world: World) -> None:
    studio = world.slack.channel("studio").id
    url = world.slack.new_response_url(world.ana.user.id, studio)
    async with world.slack.session.post(url, json={"text": SIGNED}) as answer:
        assert answer.ok


LEAKS: dict[Leak, str] = {
    _a_token_in_a_log_line: "the bot's token is in the log",
    _a_query_in_a_message: "the query of a .* is in a call of chat.postMessage",
    _a_script_in_a_form_of_another_user: "a script is in a form of another user",
    _a_query_in_an_ephemeral_message: "the query of a .* is in an ephemeral message",
}


async def test_the_leak_detector_finds(
    tmp_path_factory: pytest.TempPathFactory, subtests: pytest.Subtests
) -> None:
    async def story(leak: Leak, folder: Path) -> None:
        world = World(folder)
        async with world.running_sandbox(), world.running_bot():
            await asks_with_a_signed_link(world)
            await leak(world)

    for leak, complaint in LEAKS.items():
        with subtests.test(leak.__name__):
            with pytest.raises(AssertionError, match=complaint) as found:
                await story(leak, tmp_path_factory.mktemp(leak.__name__))
            assert len(str(found.value).splitlines()) <= 3, "nothing but that"


def _columns(database: Path) -> list[tuple[str, str]]:
    with contextlib.closing(sqlite3.connect(database)) as db:
        names = [name for [name] in db.execute("SELECT name FROM sqlite_master WHERE type='table'")]
        return [
            (name, column)
            for name in names
            for _, column, kind, *_ in db.execute(f"PRAGMA table_info({name})")
            if kind == "TEXT"
        ]


def test_no_column_may_hold_a_secret_and_each_named_column_exists(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "bot.db")) as db:
        db.executescript("".join(steps("sqlite").values()))
    assert COLUMNS.keys() <= set(_columns(tmp_path / "bot.db"))
    assert not any(MarkType.SECRET in types for types in COLUMNS.values())
