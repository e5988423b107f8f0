"""Calls to the outside: the one rule for proxies, and the limit on Slack's answers."""

import re
import tracemalloc
import zlib
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from bot.errors import Uncertain
from bot.ops.doctor import examine
from bot.settings import Settings, SettingsError
from bot.slack.client import open_session, web_client
from bot.slack.errors import translated
from bot.slack.views.blocks import MAX_TEXT, cut, shortened, size
from bot.timings import Timings
from sandbox.delivery import deliver
from sandbox.faults import CannedResponse
from sandbox.http import Server
from tests.invalid_input import command
from tests.journeys.test_approval import requests, settings
from tests.modes import on_sqlite_alone
from tests.processes_of_commands import started
from tests.tcp import Proxy
from tests.world import World

MIB = 1024 * 1024


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    async with Proxy().running() as proxy:
        yield proxy


BOTH = {"SLACK_API_URL": "https://slack.example/api/", "VIDEO_API_URL": "https://videos.example"}
SLACK, SERVICE = "CONNECT slack.example:443", "CONNECT videos.example:443"


async def test_slack_and_the_service_are_called_through_the_proxy_of_the_environment(
    quiet: World, proxy: Proxy
) -> None:
    async with quiet.running_bot(SLACK_API_URL=BOTH["SLACK_API_URL"], HTTPS_PROXY=proxy.url):
        await quiet.after(deliver(quiet.slack, command(quiet, "")))
    assert set(proxy.asked) == {SLACK}
    proxy.asked.clear()
    admin, service = quiet.ana.user.id, BOTH["VIDEO_API_URL"]
    async with quiet.running_bot(VIDEO_API_URL=service, HTTPS_PROXY=proxy.url, ADMIN_USERS=admin):
        await quiet.after(deliver(quiet.slack, command(quiet, "status some-id")))
    assert set(proxy.asked) == {SERVICE}


async def test_hosts_in_no_proxy_are_called_directly(quiet: World, proxy: Proxy) -> None:
    environ = quiet.environment("0") | BOTH | {"HTTPS_PROXY": proxy.url}
    _ = [finding async for finding in examine(environ | {"NO_PROXY": "slack.example"})]
    assert set(proxy.asked) == {SERVICE}
    proxy.asked.clear()
    _ = [finding async for finding in examine(environ | {"NO_PROXY": ".example"})]
    assert proxy.asked == []


async def test_this_machine_is_called_without_a_proxy(quiet: World, proxy: Proxy) -> None:
    async with quiet.running_bot(HTTPS_PROXY=proxy.url, HTTP_PROXY=proxy.url):
        await quiet.request_video(quiet.ana)
    assert proxy.asked == []


async def test_slacks_library_does_not_look_for_a_proxy_itself(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"):
        monkeypatch.setenv(name, proxy.url)
    async with open_session(None) as session:
        assert web_client("xoxb-1", "https://slack.example/api/", session).proxy is None


def test_what_is_no_proxy_is_refused(quiet: World, subtests: pytest.Subtests) -> None:
    for url in ("proxy:3128", "https://proxy:3128", "http://:1", "http://a:b"):
        with (
            subtests.test(url=url),
            pytest.raises(SettingsError, match=r"HTTPS_PROXY is not the address of a proxy"),
        ):
            Settings.read(quiet.environment("0") | {"HTTPS_PROXY": url})


async def test_an_answer_of_slacks_is_read_up_to_a_limit_however_it_is_compressed() -> None:
    packer = zlib.compressobj(9, wbits=31)
    packed = b"".join(packer.compress(b" " * MIB) for _ in range(200)) + packer.flush()
    app = web.Application()

    async def answer(_: web.Request) -> web.Response:
        headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
        return web.Response(body=packed, headers=headers)

    app.router.add_post("/{path:.*}", answer)
    server = Server(app)
    await server.start()
    tracemalloc.start()
    try:
        async with open_session(None) as session:
            client = web_client("xoxb-1", f"{server.url}/", session)
            with pytest.raises(Uncertain):
                async with translated(Timings().call_timeout):
                    await client.api_call("chat.postMessage")
            with pytest.raises(Uncertain):
                async with translated(Timings().call_timeout):
                    await (await session.post(f"{server.url}/", json={"text": "x"})).read()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        await server.stop()
    assert peak < 50 * MIB, "200 MiB were decompressed"


def lines(caplog: pytest.LogCaptureFixture, *words: str) -> list[str]:
    """Return the warnings and errors with one of these words."""
    ours = [each for each in caplog.records if each.name.startswith("bot.")]
    events = [each.message for each in ours if each.levelname != "DEBUG"]
    return [each for each in events if any(word in each for word in words)]


async def test_a_refused_token_is_one_line_with_what_to_do_and_one_when_it_is_accepted(
    quiet: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="bot")
    quiet.slack.auth_error = "invalid_auth"
    async with quiet.running_bot():
        await quiet.advance(minutes=5)
        [line] = lines(caplog, "SLACK_BOT_TOKEN", "workspace")
        assert line.startswith("Slack refuses SLACK_BOT_TOKEN: install the app again, copy its ")
        assert len(quiet.calls("auth.test")) >= 5, "the bot goes on trying"

        quiet.slack.auth_error = None
        await quiet.advance(minutes=5)
        assert lines(caplog, "SLACK_BOT_TOKEN")[1:] == ["Slack accepts SLACK_BOT_TOKEN again"]
        tries = len(quiet.calls("auth.test"))
        await quiet.advance(minutes=30)
        assert len(quiet.calls("auth.test")) == tries, "now it is known"


async def test_a_refused_key_is_found_at_the_start_and_forms_say_so_before_they_are_sent(
    quiet: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="bot")
    key, quiet.service.api_key = quiet.service.api_key, "another"
    async with quiet.running_bot(VIDEO_API_KEY=key):
        await quiet.settle()
        [line] = [each for each in caplog.records if "refuses new work" in each.message]
        assert vars(line)["code"] == "401"
        assert vars(line)["remedy"] == "is VIDEO_API_KEY right?"

        quiet.service.api_key = key
        await quiet.advance(minutes=2)
        assert lines(caplog, "new work") == [
            "the video service refuses new work",
            "the video service accepts new work again",
        ]
        await quiet.request_video(quiet.ana)
    assert quiet.created_count() == 1


@on_sqlite_alone
async def test_what_only_other_commands_and_settings_need_is_not_imported(quiet: World) -> None:
    environ = quiet.environment("0") | {"PYTHONPROFILEIMPORTTIME": "1"}
    async with started("serve", environ=environ, folder=quiet.database.parent) as command:
        said = await command.until("listening")
    imported = set(re.findall(r"\| +([\w.]+)$", said, re.MULTILINE))
    assert "bot.app" in imported
    assert not imported & {
        *("bot.ops.doctor", "bot.ops.init", "bot.ops.export", "bot.ops.manifest"),
        *("bot.store.postgres.engine", "bot.store.move", "bot.store.backup"),
        *("dotenv", "psycopg", "slack_bolt.adapter.socket_mode", "slack_sdk.socket_mode", "yaml"),
    }


#: What a text consists of: people's words are escaped, and only links and mentions have "<".
PIECES = ("a", " ", "|", ";", "é", "你", "😀", "&amp;", "&lt;", "<@U012>", "<https://e.org/a|b>")


@given(st.text(), st.integers(0, 30))
def test_a_cut_text_has_no_more_utf16_units_than_its_limit(text: str, limit: int) -> None:
    short = cut(text, limit)
    assert len(short) <= len(short.encode("utf-16-le")) // 2 <= limit


@given(st.lists(st.sampled_from(PIECES)).map("".join), st.integers(10, 60))
def test_a_shortened_text_fits_and_has_no_half_of_a_link(text: str, limit: int) -> None:
    short = shortened(text, limit)
    assert size(short) <= limit
    assert short == text or not re.search(r"<[^>]*\Z|&[a-z]*\Z", short.removesuffix("…"))
    assert text.startswith(short.removesuffix("…"))


def test_a_shortened_text_keeps_its_mention_or_loses_it_as_a_whole() -> None:
    assert shortened("<@U1> hello &amp; goodbye", 18) == "<@U1> hello…"
    assert shortened("a mention of <@U0123456789> here", 25) == "a mention of…"


async def test_a_request_for_approval_of_a_script_of_any_letters_is_shown_in_full_form(
    quiet: World, subtests: pytest.Subtests
) -> None:
    quiet.slack.add_channel("approvals")
    async with quiet.running_bot(**settings(quiet)):
        for letter in ["😀", "你", "é", "&", "a"]:
            with subtests.test(letter=letter):
                await quiet.request_video(quiet.ana, {"script": "a" + letter * 1499})

                shown = requests(quiet)[-1]
                assert shown.blocks
                assert all(call.error is None for call in quiet.slack.calls)
                assert size(shown.text) <= MAX_TEXT


@pytest.mark.parametrize("limit", [1000, 120])
async def test_a_card_is_shortened_until_slack_takes_it(world: World, limit: int) -> None:
    card = await world.request_video(world.ana, {"video_name": "A very long name " * 5})
    world.slack.text_limit = limit
    [video_id] = world.service.videos
    world.service.fail(video_id, "It failed for this reason: " + "é" * 700)
    await world.advance(minutes=5)

    shown = world.now(card)
    assert "Failed" in shown.text
    assert size(shown.text) <= limit
    [reply] = world.replies(card)
    assert size(reply.text) <= limit
    assert f"<@{world.ana.user.id}>" in reply.text


def limited(seconds: object) -> CannedResponse:
    headers = {"Retry-After": str(seconds)}
    return CannedResponse(429, {"ok": False, "error": "ratelimited"}, headers)


async def test_after_an_outage_of_slack_a_card_does_not_wait_out_its_own_back_off(
    world: World,
) -> None:
    card = await world.request_video(world.ana)
    port = int(world.slack.url.rpartition(":")[2])
    await world.slack.stop()
    await world.advance(minutes=20)
    await world.slack.start(port)
    assert "Ready" not in world.now(card).text

    await world.after(world.open_form(world.ben), seconds=1)

    assert "Ready" in world.now(card).text
    assert len(world.replies(card)) == 1


async def test_a_message_that_slack_may_still_do_is_not_hastened(world: World) -> None:
    card = await world.request_video(world.ana)
    world.slack.faults.always("chat.postMessage", CannedResponse(503, done=True))
    await world.advance(minutes=4, seconds=30)
    world.slack.faults.clear()
    await world.advance(minutes=5)
    assert len(world.replies(card)) == 1


@pytest.mark.parametrize("asked", [0, 10**30, "soon"])
async def test_any_wait_that_slack_asks_for_is_kept_within_bounds(
    world: World, asked: object
) -> None:
    world.slack.faults.always("chat.postMessage", limited(asked))
    world.slack.faults.always("chat.update", limited(asked))
    form = await world.open_form(world.ana)
    await world.after(form.submit({"replica_id": "r-anna-42", "script": "Hello."}), minutes=10)
    assert len(world.slack.calls) < 600
    world.slack.faults.clear()

    await world.advance(hours=1, minutes=10)

    [card] = world.slack.messages("studio")
    assert "Ready" in card.text
    assert len(world.replies(card)) == 1
