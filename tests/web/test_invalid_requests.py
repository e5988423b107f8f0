"""Invalid HTTP requests, connections and callbacks: refused, without effect, and not logged."""

import asyncio
import hashlib
import json
from dataclasses import dataclass
from typing import Final

import pytest

from sandbox.delivery import timestamp_of
from sandbox.scenarios import CallbackPlan
from tests.invalid_cases import (
    CALLBACK_BODIES,
    CALLBACK_TOKENS,
    CONNECTIONS,
    REQUESTS,
    Connection,
    Request,
    body_of,
    encoded,
)
from tests.invalid_input import (
    _HEAD,
    _STATUS_LINE,
    BotUnderTest,
    Response,
    parse_response,
    signature_of,
)
from tests.world import World

# ── HTTP ──────────────────────────────────────────────────────────────────────────────────────


async def test_an_invalid_request_is_refused(bot: BotUnderTest, subtests: pytest.Subtests) -> None:
    for case in REQUESTS:
        with subtests.test(case.name):
            answer = await bot.send(
                case.method,
                case.path + case.path_unit * case.path_times,
                *signed(bot.world, case),
            )
            assert (answer.status, answer.body) == (case.status, answer.body)
            assert case.answer in answer.body
            await bot.check_unchanged(answer.head + answer.body)


def signed(world: World, case: Request) -> tuple[dict[str, str], bytes]:
    """Return headers and body as Slack would send them, but for what is wrong with this one."""
    body = encoded(body_of(case), case.encoding)
    now = str(int(world.clock.now().timestamp()) + case.offset_s)
    stamps = {"{now}": now, "+now": f"+{now}", "_now": f"{now[:4]}_{now[4:]}"}
    stamp = stamps.get(case.timestamp, case.timestamp * case.timestamp_times)
    secret = world.slack.signing_secret if case.secret is None else case.secret
    over = body if case.signed_body is None else case.signed_body.encode()
    signature = signature_of(secret, stamp, over)
    headers = {"Content-Type": case.type}
    if not case.unsigned:
        headers["X-Slack-Request-Timestamp"] = stamp
        headers["X-Slack-Signature"] = signature.upper() if case.uppercase_signature else signature
    if case.repeated_header:
        headers[case.repeated_header.lower()] = headers[case.repeated_header]
    if case.encoding:
        headers["Content-Encoding"] = case.encoding
    for name, text in case.headers.items():
        headers[name] = text + "0" * case.header_times
    return headers, body


async def test_invalid_http_is_refused(bot: BotUnderTest, subtests: pytest.Subtests) -> None:
    for case in (each for each in CONNECTIONS if not each.incomplete):
        with subtests.test(case.name):
            disconnects = case.status == 0
            content = bytes_of(case, bot.world)
            received = await bot.exchange(content, disconnects=disconnects)
            check_response(case, received)
            await bot.check_unchanged(received.decode("latin-1"))


async def test_an_incomplete_request_is_closed_by_the_server(
    impatient_bot: BotUnderTest, subtests: pytest.Subtests
) -> None:
    stalling = [case for case in CONNECTIONS if case.incomplete]
    ends = await asyncio.gather(
        *(
            impatient_bot.exchange(
                bytes_of(case, impatient_bot.world),
                later=case.later.encode("latin-1"),
                drip=case.drip.encode(),
            )
            for case in stalling
        ),
        return_exceptions=True,
    )
    for case, received in zip(stalling, ends, strict=True):
        with subtests.test(case.name):
            assert isinstance(received, bytes), "the connection was left open"
            check_response(case, received)
    await impatient_bot.check_works()


def bytes_of(case: Connection, world: World) -> bytes:
    # The signature is wrong, which is not known before the whole body has arrived.
    stamp, signature = timestamp_of(world.slack), "v0=" + "0" * 64
    signed = f"X-Slack-Request-Timestamp: {stamp}\r\nX-Slack-Signature: {signature}\r\n"
    text = case.send + case.unit * case.times + case.end
    return text.replace("{head}", _HEAD + signed).encode("latin-1")


def check_response(case: Connection, received: bytes) -> None:
    answer = parse_response(received)
    assert answer.status == case.status, received
    assert case.answer.encode() in received
    if case.responses:
        assert len(_STATUS_LINE.findall(received)) == case.responses, received


# ── Callbacks ─────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
async def callbacks(bot: BotUnderTest) -> "Callbacks":
    """A running video of Ana's and one of Ben's, and the token of the first."""
    world = bot.world
    world.service.callback_plan = CallbackPlan(times=0)
    await world.request_video(world.ana)
    await world.request_video(world.ben, {"script": "Quite another thing."})
    await world.advance(seconds=30)
    known, other = world.service.videos.values()
    assert known.callback_url is not None
    bot = BotUnderTest(world, bot._log)
    return Callbacks(bot, known.callback_url.rpartition("/")[2], known.video_id, other.video_id)


@dataclass(frozen=True)
class Callbacks:
    """Tokens and ids for callbacks."""

    bot: BotUnderTest
    token: str
    known: str
    other: str


METHODS: Final = ("POST", "PUT", "GET", "DELETE", "PATCH", "OPTIONS", "PROPFIND")


async def test_every_callback_gets_the_same_answer_and_is_not_believed(
    callbacks: Callbacks, subtests: pytest.Subtests
) -> None:
    bot, world = callbacks.bot, callbacks.bot.world
    words = {"known": callbacks.known, "other": callbacks.other}
    for case in CALLBACK_BODIES:
        with subtests.test(case.name):
            body = encoded(body_of(case, words), case.encoding)
            query = case.path.replace("{other}", callbacks.other) + case.path_unit * case.path_times
            headers = {"Content-Type": case.type, **case.headers}
            if case.encoding:
                headers["Content-Encoding"] = case.encoding
            for method in METHODS if len(body) < 1000 else METHODS[:1]:
                known, unknown = [
                    await bot.send(method, f"/callbacks/{token}{query}", headers, body)
                    for token in (callbacks.token, "x" * 43)
                ]
                assert (known.status, known.body) == (200, "ok")
                assert without_date(known) == without_date(unknown)
            await bot.check_unchanged(known.head)
    await world.advance(minutes=10)
    # Each video is reported once, to the person who asked for it.
    assert len(world.posts()) == 4
    assert world.created_count() == 2
    for card in [message for message in world.posts() if message.thread_ts is None]:
        [reply] = world.replies(card)
        assert "is ready" in reply.text
        assert "evil" not in reply.text + world.now(card).text


def without_date(answer: Response) -> tuple[str, str]:
    lines = [line for line in answer.head.split("\r\n") if not line.startswith("Date:")]
    return "\n".join(lines), answer.body


async def test_an_unknown_token_has_no_effect(
    callbacks: Callbacks, subtests: pytest.Subtests
) -> None:
    bot, token = callbacks.bot, callbacks.token
    body = json.dumps({"video_id": callbacks.known, "status": "ready"}).encode()
    words = {
        "known": token,
        "short": token[:-1],
        "capitals": token.upper(),
        "hash": hashlib.sha256(token.encode()).hexdigest(),
    }
    reads = len(bot.world.requests_for("read_video"))
    for case in CALLBACK_TOKENS:
        with subtests.test(case.name):
            tried = case.token + case.unit * case.times
            for word, replacement in words.items():
                tried = tried.replace(f"{{{word}}}", replacement)
            answer = await bot.send("POST", f"/callbacks/{tried}", {}, body)
            assert answer.status == case.status, answer
            await bot.check_unchanged()
            assert len(bot.world.requests_for("read_video")) == reads
