"""Connections and unfinished requests: limits on their number, time and memory.

Anybody on the internet can open connections and send what they like.
"""

import asyncio
import contextlib
import gc
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from aiohttp import web

from bot.timings import Timings
from sandbox.delivery import deliver, timestamp_of
from tests.invalid_input import BotUnderTest, command, parse_response
from tests.tcp import connected
from tests.world import World

KIB = 1024
# Less than the time for which the rest of a request is waited for.
AT_ONCE_S = 8
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


def slack_head(
    world: World, *, late_s: int = 0, length: int = 1000, headers: Mapping[str, str] | None = None
) -> bytes:
    """Return the head of a request that looks like one of Slack's, with other ``headers``."""
    fields = {
        "Host": "bot.example.com",
        "X-Slack-Request-Timestamp": str(int(timestamp_of(world.slack)) - late_s),
        "X-Slack-Signature": "v0=" + "0" * 64,
        "Content-Length": str(length),
        **(headers or {}),
    }
    lines = [f"{name}: {text}" for name, text in fields.items() if text]
    return "\r\n".join(["POST /slack/events HTTP/1.1", *lines, "", ""]).encode()


IMPLAUSIBLE: Final[Mapping[str, Mapping[str, str]]] = {
    "no timestamp": {"X-Slack-Request-Timestamp": ""},
    "a timestamp in words": {"X-Slack-Request-Timestamp": "soon"},
    "no signature": {"X-Slack-Signature": ""},
    "a signature of its version alone": {"X-Slack-Signature": "v0="},
    "a signature that is too short": {"X-Slack-Signature": "v0=" + "0" * 63},
    "a signature that is too long": {"X-Slack-Signature": "v0=" + "0" * 65},
    "a signature that is not hexadecimal": {"X-Slack-Signature": "v0=" + "g" * 64},
    "a signature of another version": {"X-Slack-Signature": "v1=" + "0" * 64},
}


async def test_a_stale_timestamp_or_a_malformed_signature_is_refused_before_the_body_is_read(
    bot: BotUnderTest,
) -> None:
    heads = {name: slack_head(bot.world, headers=each) for name, each in IMPLAUSIBLE.items()}
    heads |= {f"{late_s} s late": slack_head(bot.world, late_s=late_s) for late_s in (-301, 301)}
    async with asyncio.timeout(AT_ONCE_S):
        for name, head in heads.items():
            async with bot.connected() as (reader, writer):
                writer.write(head)
                # The body never comes.
                assert parse_response(await reader.readuntil(b"\r\n\r\n")).status == 401, name


async def test_a_body_of_more_than_256_kib_is_refused_before_it_is_read(bot: BotUnderTest) -> None:
    async with asyncio.timeout(AT_ONCE_S), bot.connected() as (reader, writer):
        writer.write(slack_head(bot.world, length=256 * KIB + 1))
        assert parse_response(await reader.readuntil(b"\r\n\r\n")).status == 413


ODD_TARGETS: Final = (
    *("http://xn--a/", "http://xn--/", "//xn--a/", "http://xn--a:80/healthz", "xn--a:443"),
    *("http://[::1/", "http://[::1]/", "http://[v1.x]/", "http://[fe80::1%25eth0]/", "http://]/"),
    *("http://a:b@c:d@e/", "http://a:99999/", "http://a:-1/", "http://:80/", "http:///", "http:"),
    *("http://%zz/", "http://a%00b/", "http://a%2fb/", "http://\u00ad/", "http://" + "a." * 200),
    *("http://1.2.3.4.5/", "http://0x7f.1/", "http://..../", "http://-/", "http://_/", "ftp://x/"),
    *("javascript:alert(1)", "mailto:a@b", "data:,", "a:b:c", ":80", "://", "?", "#", "?#", "*"),
    *("/%", "/%zz", "/%00", "/%ff%fe", "/%2e%2e/%2e%2e", "/..", "/./", "//", "///", "/\\", "/;"),
    *("/callbacks/%", "/callbacks/%zz", "/callbacks/%ff", "/callbacks/%2f", "/callbacks/a%2fb"),
    *("/callbacks/%ed%a0%80", "/callbacks/..", "/callbacks/?%", "/callbacks/x?%ff=%ff&&=;"),
)


async def test_an_odd_request_target_is_refused_and_leaves_no_connection_open(
    impatient_bot: BotUnderTest,
) -> None:
    bot = impatient_bot

    async def sent(target: str, before: bytes) -> bytes:
        method = "CONNECT" if target == "xn--a:443" else "GET"
        request = f"{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        return await bot.exchange(before + request.encode("latin-1"))

    for target in ODD_TARGETS:
        for before in (b"", HEALTH):
            assert b"HTTP/1.1 50" not in await sent(target, before), target
    gc.collect()  # so that asyncio logs exceptions that nobody looked at
    await bot.check_works()


async def test_a_request_that_cannot_be_read_is_hung_up_on_at_once(bot: BotUnderTest) -> None:
    for before in (b"", HEALTH):
        request = b"GET http://xn--a/ HTTP/1.1\r\nHost: x\r\n\r\n"
        async with asyncio.timeout(AT_ONCE_S):
            received = await bot.exchange(before + request)
        assert received.count(b"HTTP/1.1 200 OK") == bool(before)
    await bot.check_works()


async def test_no_answer_names_the_versions_of_the_server(bot: BotUnderTest) -> None:
    requests = (b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", HEALTH + b"x\r\n\r\n")
    for request in requests:
        received = (await bot.exchange(request)).lower()
        assert b"python" not in received
        assert b"aiohttp" not in received


async def test_the_head_of_a_second_request_has_as_long_as_that_of_the_first(
    impatient_bot: BotUnderTest,
) -> None:
    start = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: "
    async with asyncio.timeout(30):
        for before in (b"", HEALTH):
            # The first line comes in a packet of its own, when the answer before is out.
            received = await impatient_bot.exchange(before, later=start, drip=b"a")
            assert received.count(b"HTTP/1.1 200 OK") == bool(before)


@pytest.mark.parametrize("part", ["a body", "a callback", "headers", "chunks of a byte"])
async def test_the_oldest_unfinished_requests_are_closed_when_all_together_are_too_large(
    part: str, bot: BotUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.web.connections._MAX_UNVERIFIED_BYTES", 1024 * KIB)
    head = {
        "a body": slack_head(bot.world, length=200 * KIB),
        "a callback": b"POST /callbacks/x HTTP/1.1\r\nHost: x\r\nContent-Length: 204800\r\n\r\n",
        "headers": b"GET / HTTP/1.1\r\nHost: x\r\n" + (b"X: " + b"a" * 8000 + b"\r\n") * 12,
        "chunks of a byte": slack_head(
            bot.world, headers={"Content-Length": "", "Transfer-Encoding": "chunked"}
        ),
    }[part]
    # Each chunk of a byte takes twenty times its size.
    rest = {"headers": b"x" * 10, "chunks of a byte": b"1\r\nx\r\n" * 1000}.get(
        part, b"x" * 100 * KIB
    )
    async with contextlib.AsyncExitStack() as stack:
        ends: set[asyncio.Task[bytes]] = set()
        for _ in range(20):
            reader, writer = await stack.enter_async_context(bot.connected())
            writer.write(head + rest)
            await writer.drain()
            end = asyncio.create_task(reader.read())  # noqa: TID251 - cancelled at the end
            stack.callback(end.cancel)
            ends.add(end)
        async with asyncio.timeout(AT_ONCE_S):
            while len(ends) > 10:
                _, ends = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        await bot.check_works()
        # Those that came last are not closed, and neither is one that is complete at once.
        assert not end.done()


async def test_little_is_read_of_a_connection_before_others_have_their_turn(
    bot: BotUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    portions: list[int] = []
    parse = web.RequestHandler.data_received

    def data_received(self: web.RequestHandler, data: bytes) -> None:
        portions.append(len(data))
        parse(self, data)

    monkeypatch.setattr(web.RequestHandler, "data_received", data_received)
    assert (await bot.send("POST", "/callbacks/x", {}, b"x" * 60_000)).body == "ok"
    assert sum(portions) > 60_000
    assert max(portions) <= 2 * KIB


BODY: Final = 200 * KIB
REFUSED: Final[Mapping[str, tuple[bytes, Mapping[str, str]]]] = {
    "a malformed signature": (b"POST /slack/events", {"X-Slack-Signature": "v0="}),
    "a wrong signature": (b"POST /slack/events", {"Content-Length": str(1000 * KIB)}),
    "a path without anything": (b"POST /nothing", {}),
    "a method without anything": (b"PUT /slack/events", {}),
    "an unknown expectation": (b"POST /slack/events", {"Expect": "the unexpected"}),
}


@pytest.mark.parametrize("reason", REFUSED)
async def test_a_refused_request_whose_body_still_flows_is_no_line_in_the_log(
    reason: str, impatient_bot: BotUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.web.connections._MAX_UNVERIFIED_BYTES", 1024 * KIB)
    bot, (start, headers) = impatient_bot, REFUSED[reason]
    head = slack_head(bot.world, length=BODY, headers=headers)
    request = head.replace(b"POST /slack/events", start) + b"x" * (BODY - 1)
    # Together they are too large: the oldest are closed while the rest of them is dropped.
    async with asyncio.timeout(30):
        await asyncio.gather(*(bot.exchange(request) for _ in range(40)))
    lines = [each for each in bot.logged.splitlines() if "wrong signature" not in each]
    assert not [each for each in lines if "level=error" in each or "level=warning" in each]
    await bot.check_works()


@pytest.fixture
def few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the bot to a hundred connections."""
    monkeypatch.setattr("bot.web.connections._MAX_OPEN_FILES", 200)


@pytest.mark.parametrize("unfinished", ["nothing", "headers", "a body", "a callback"])
@pytest.mark.usefixtures("few_files")
async def test_a_flood_of_unfinished_requests_blocks_no_complete_one(
    unfinished: str, world: World
) -> None:
    start = {
        "nothing": b"",
        "headers": b"POST /slack/events HTTP/1.1\r\nHost: x\r\nX-",
        "a body": slack_head(world) + b"abc",
        "a callback": b"POST /callbacks/x HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc",
    }[unfinished]
    async with contextlib.AsyncExitStack() as stack:
        readers = []
        for _ in range(300):
            reader, writer = await stack.enter_async_context(connected(world.bot.port))
            writer.write(start)
            readers.append(reader)
        assert (await deliver(world.slack, command(world, ""))).ok
        assert world.ana.modal is not None
        # The oldest are closed, so that the process never runs out of files.
        for reader in readers[:150]:
            assert await reader.read() == b""
        assert not readers[-1].at_eof()


async def test_a_connection_without_a_request_is_closed(tmp_path: Path) -> None:
    world = World(tmp_path, Timings(jitter=0, receive_timeout=timedelta(seconds=0.2)))
    async with (
        world.running_sandbox(),
        world.running_bot(),
        connected(world.bot.port) as (reader, _),
        connected(world.bot.port) as (used, writer),
    ):
        writer.write(HEALTH)
        async with asyncio.timeout(30):
            assert await reader.read() == b""
        # A connection that was used stays open for the next request.
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert (await used.read()).count(b"200 OK") == 2


@pytest.mark.usefixtures("few_files")
async def test_a_request_that_is_being_answered_keeps_its_connection(world: World) -> None:
    async with contextlib.AsyncExitStack() as stack:

        async def crowd(phase: str, method: str, _: object) -> None:
            if (phase, method) == ("before", "views.open"):
                for _ in range(200):
                    await stack.enter_async_context(connected(world.bot.port))

        world.slack.on_request = crowd
        assert (await deliver(world.slack, command(world, ""))).ok
        assert world.ana.modal is not None
