"""Invalid HTTP requests, connections and callbacks: refused, without effect, and not logged."""

import asyncio
import gzip
import hashlib
import json
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.kinds.replica import REPLICA
from bot.kinds.video import VIDEO
from bot.web.callbacks import MAX_CALLBACK_BYTES, IdFinder
from sandbox.callback_shapes import SHAPES
from sandbox.callback_shapes import encoded as shaped
from sandbox.delivery import timestamp_of
from sandbox.faults import Reset
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


async def test_an_invalid_request_is_refused(bot: BotUnderTest, subtests: pytest.Subtests) -> None:
    for case in REQUESTS:
        with subtests.test(case.name):
            answer = await bot.send(
                case.method, case.path + case.path_unit * case.path_times, *signed(bot.world, case)
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


FINDER = IdFinder([VIDEO, REPLICA])
BODY = {"video_id": "v-1", "status": "ready", "replica_id": "r-1", "data": {"script": "Hello."}}


def found(body: bytes, encoding: str = "") -> str | None:
    return FINDER.find(body, encoding, "").get("video")


async def test_a_lost_video_is_found_whatever_form_its_callback_has(
    world: World, subtests: pytest.Subtests
) -> None:
    for shape in sorted(SHAPES):
        with subtests.test(shape=shape):
            world.service.callback_plan = CallbackPlan(shape=shape)
            world.service.faults.next("create_video", Reset(done=True))
            card = await world.request_video(world.ana)

            await world.advance(minutes=8)  # until a failed call holds no create back any more

            assert "is ready" in world.replies(card)[0].text
            assert {callback.status for callback in world.service.callbacks} == {200}


def test_an_id_is_found_wherever_it_stands(subtests: pytest.Subtests) -> None:
    for body in [
        b'{"video_id": "v-1", "status": "ready",}',
        b"{'video_id': 'v-1', 'status': 'ready'}",
        b'{\n  "video_id": "v-1",\n  "status": "ready", // done\n}',
        b'callback: {"status": "ready", "video_id": "v-1"} -- end',
        b'{"a": {"b": {"c": [{"video_id": "v-1"}]}}}',
        b'[{"status": "ready"}, {"video_id": "v-1"}, {"video_id": "v-2"}]',
        b'{"payload": "{\\"video_id\\": \\"v-1\\"}"}',
        b'"{\\"video_id\\": \\"v-1\\"}"',
        json.dumps(json.dumps(json.dumps(BODY))).encode(),
        b"video_id=v%2D1&status=ready",
        b"payload=%7B%22video_id%22%3A%22v-1%22%7D",
        b"<video><video_id>v-1</video_id></video>",
        b'--x\r\nContent-Disposition: form-data; name="video_id"\r\n\r\nv-1\r\n--x--',
        b'{"video_id": "v-1", "script": "' + b"x" * MAX_CALLBACK_BYTES,
        b'\xef\xbb\xbf{"video_id": "v-1"}',
        json.dumps(BODY).encode("utf-16"),
        json.dumps(BODY).encode("utf-32-be"),
        '{"video_id": "v-1", "name": "é"}'.encode("latin-1"),
        gzip.compress(json.dumps(BODY).encode(), mtime=0),
        gzip.compress(json.dumps(BODY).encode() + b" " * 10_000_000, mtime=0),
    ]:
        with subtests.test(body=body):
            assert found(body) == "v-1"


async def test_a_lost_video_is_found_by_a_callback_that_has_an_id_and_nothing_else(
    world: World,
) -> None:
    world.service.callback_plan = CallbackPlan(times=0)
    world.service.faults.next("create_video", Reset(done=True))
    card = await world.request_video(world.ana)
    [video] = world.service.videos
    await world.advance(minutes=8)

    await world.after(world.service.call_back(video, {"id": video}), minutes=1)

    assert "is ready" in world.replies(card)[0].text
    assert world.created_count() == 1


def test_a_compressed_body_is_read_up_to_a_limit(subtests: pytest.Subtests) -> None:
    compressors: list[Callable[[bytes], bytes]] = [gzip.compress, zlib.compress]
    for compress in compressors:
        with subtests.test(compress=compress):
            assert found(compress(json.dumps(BODY).encode()), "deflate") == "v-1"
            bomb = compress(b'{"video_id": "v-1", "x": "' + b"x" * 50_000_000)
            began = time.process_time()
            assert found(bomb, "gzip") == "v-1"
            assert time.process_time() - began < 1
            assert found(b'{"video_id": "v-1"}', "gzip") == "v-1", "it is not compressed after all"


def test_a_body_without_an_id_names_none_and_takes_no_long_time(subtests: pytest.Subtests) -> None:
    for body in [
        b"",
        b"null",
        b"[]",
        b'{"video_id": null}',
        b'{"video_id": true}',
        b'{"video_id": ""}',
        b'{"video_id": {"video_id": []}}',
        b'{"video_id": "' + b"v" * 201 + b'"}',
        b'{"my_video_id": "v-1"',
        b"The video_id is missing",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"1" * 100_000,
        b"\xff\xfe\x00",
        b"\x1f\x8b not gzip",
        b'{"x": ' + b"[0]," * 20_000,
        b"video_id" * 30_000,
        b'video_id"' + b" " * 200_000,
    ]:
        with subtests.test(body=body):
            began = time.process_time()
            assert found(body) is None
            assert time.process_time() - began < 0.5


@given(st.binary(max_size=2_000) | st.text(max_size=500).map(str.encode), st.text(max_size=10))
def test_any_body_is_read_without_an_error(body: bytes, encoding: str) -> None:
    for remote_id in FINDER.find(body, encoding, "").values():
        assert 0 < len(remote_id) <= 200


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(st.lists(JSON_VALUES, max_size=3), JSON_VALUES, st.sampled_from(sorted(SHAPES)))
def test_an_id_is_found_beside_anything_else(
    before: list[object], after: object, shape: str
) -> None:
    body = {"before": before, "video_id": "v-1", "after": after}
    content, headers = shaped(body, shape)
    assert found(content, headers.get("Content-Encoding", "")) == "v-1"


def test_a_renamed_id_is_accepted() -> None:
    for _ in range(3):
        assert FINDER.find(b'{"face_id": "r-1"}', "", "") == {"replica": "r-1"}
    assert REPLICA.created({"face_id": "r-1", "status": "started"}).remote_id == "r-1"
    assert REPLICA.read({"face_id": "r-1", "status": "ready"}, "r-1").status == "ready"
