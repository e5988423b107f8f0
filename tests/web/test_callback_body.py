"""Callbacks in whatever form name the same id, and get the same answer."""

import gzip
import json
import time
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.kinds.replica import REPLICA
from bot.kinds.video import VIDEO
from bot.web.server import MAX_CALLBACK_BYTES, IdFinder
from sandbox.callback_shapes import SHAPES, encoded
from sandbox.faults import Reset
from sandbox.scenarios import CallbackPlan
from tests.world import World

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


def test_an_id_without_a_kind_counts_where_none_is_named_for_the_kind(
    subtests: pytest.Subtests,
) -> None:
    for body, video in [
        (b'{"id": "v-1"}', "v-1"),
        (b'{"id": 17, "status": "ready"}', "17"),
        (b'{"data": {"id": "v-1", "user": {"id": "u-1"}}}', "v-1"),
        (b'{"id": "v-1", "replica_id": "r-1"}', "v-1"),
        (b"id=v-1&status=ready", "v-1"),
        (b'{"id": "v-1",', "v-1"),
        (b'{"id": "event-1", "video": {"video_id": "v-1"}}', "v-1"),
        (b'{"id": null, "video_id": "v-1"}', "v-1"),
        (b'{"id": "e-1", ' * 200 + b'"video_id": "v-1"', "v-1"),
        (b'{"uid": "u-1"}', None),
        (b'{"id": {}}', None),
    ]:
        with subtests.test(body=body):
            assert found(body) == video
    assert FINDER.find(b'{"id": "x-1", "replica_id": "r-1"}', "", "")["replica"] == "r-1"


async def test_a_lost_video_is_found_by_a_callback_that_has_an_id_and_nothing_else(
    world: World,
) -> None:
    world.service.callback_plan = CallbackPlan(times=0)
    world.service.faults.next("create_video", Reset(done=True))
    card = await world.request_video(world.ana)
    [video] = world.service.videos
    await world.advance(minutes=8)

    await world.service.call_back(video, {"id": video})
    await world.advance(minutes=1)

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
    content, headers = encoded(body, shape)
    assert found(content, headers.get("Content-Encoding", "")) == "v-1"


def test_a_renamed_id_is_accepted() -> None:
    for _ in range(3):
        assert FINDER.find(b'{"face_id": "r-1"}', "", "") == {"replica": "r-1"}
    assert REPLICA.created({"face_id": "r-1", "status": "started"}).remote_id == "r-1"
    assert REPLICA.read({"face_id": "r-1", "status": "ready"}, "r-1").status == "ready"
