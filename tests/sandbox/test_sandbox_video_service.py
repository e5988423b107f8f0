"""The sandbox's video service, its faults and its server, over real HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import httpx
import pytest
from aiohttp import web

from sandbox.clock import ManualClock
from sandbox.faults import CannedResponse, Fault, Hang, Reset, Truncated
from sandbox.http import Server
from sandbox.scenarios import CallbackPlan, Pace, Scenario
from sandbox.service_limits import RateLimit
from sandbox.video_service import CREATES, Operation, SandboxVideoService
from tests.tcp import connected

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
PACE = Pace(queued=MINUTE, generating=4 * MINUTE, training=HOUR, training_steps=10)

VIDEO = {"script": "Hello <there> & welcome", "replica_id": "r-anna"}
REPLICA = {"train_video_url": "https://videos.example/anna.mp4", "replica_name": "Anna"}


@dataclass
class ReceivedCallback:
    method: str
    body: Any


class Receiver:
    """Receives callbacks, as the bot does."""

    def __init__(self) -> None:
        self.received: list[ReceivedCallback] = []
        self.status = 200
        app = web.Application()
        app.router.add_route("*", "/callbacks/{token}", self._on_callback)
        self.server = Server(app)

    @property
    def url(self) -> str:
        return f"{self.server.url}/callbacks/token-1"

    async def _on_callback(self, request: web.Request) -> web.Response:
        text = await request.text()
        body = json.loads(text) if request.content_type == "application/json" else text
        self.received.append(ReceivedCallback(request.method, body))
        return web.Response(status=self.status)


@pytest.fixture
async def service(clock: ManualClock) -> AsyncIterator[SandboxVideoService]:
    service = SandboxVideoService(clock, pace=PACE)
    service.add_replica("r-anna", "Anna")
    await service.start()
    yield service
    await service.stop()


@pytest.fixture
async def client(service: SandboxVideoService) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(
        base_url=service.url, headers={"x-api-key": service.api_key}, timeout=30
    ) as client:
        yield client


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    await receiver.server.start()
    yield receiver
    await receiver.server.stop()


async def create_video(client: httpx.AsyncClient, **more: str) -> str:
    answer = await client.post("/v2/videos", json={**VIDEO, **more})
    assert answer.status_code == 200
    return str(answer.json()["video_id"])


async def create_replica(client: httpx.AsyncClient, **more: str) -> str:
    answer = await client.post("/v2/replicas", json={**REPLICA, **more})
    assert answer.status_code == 200
    return str(answer.json()["replica_id"])


async def read_video(client: httpx.AsyncClient, video_id: str) -> dict[str, Any]:
    answer = await client.get(f"/v2/videos/{video_id}")
    assert answer.status_code == 200
    body: dict[str, Any] = answer.json()
    return body


async def read_replica(client: httpx.AsyncClient, replica_id: str) -> dict[str, Any]:
    answer = await client.get(f"/v2/replicas/{replica_id}")
    assert answer.status_code == 200
    body: dict[str, Any] = answer.json()
    return body


# The four operations


async def test_a_created_video_answers_with_the_members_of_the_contract(
    client: httpx.AsyncClient, service: SandboxVideoService
) -> None:
    answer = await client.post("/v2/videos", json={**VIDEO, "video_name": "Greeting"})
    video_id = next(iter(service.videos))
    assert answer.json() == {
        "video_id": video_id,
        "video_name": "Greeting",
        "status": "queued",
        "hosted_url": f"{service.url}/watch/{video_id}",
        "created_at": "2026-03-02 09:00:00.000000",
    }


async def test_a_video_goes_from_queued_to_generating_to_ready(
    client: httpx.AsyncClient, service: SandboxVideoService, clock: ManualClock
) -> None:
    video_id = await create_video(client)
    queued = await read_video(client, video_id)
    assert (queued["status"], queued["download_url"], queued["stream_url"]) == (
        "queued",
        None,
        None,
    )
    await clock.advance(MINUTE)
    assert (await read_video(client, video_id))["status"] == "generating"
    await clock.advance(4 * MINUTE)
    ready = await read_video(client, video_id)
    assert ready == {
        "video_id": video_id,
        "status": "ready",
        "data": {"script": VIDEO["script"]},
        "download_url": f"{service.url}/files/{video_id}.mp4",
        "stream_url": f"{service.url}/files/{video_id}.m3u8",
        "hosted_url": f"{service.url}/watch/{video_id}",
        "status_details": "The video is ready",
        "created_at": "Mon, 02 Mar 2026 09:00:00 GMT",
        "updated_at": "Mon, 02 Mar 2026 09:05:00 GMT",
        "still_image_url": None,
    }


async def test_a_request_without_the_right_key_is_refused(
    service: SandboxVideoService, subtests: pytest.Subtests
) -> None:
    for key, status in [(None, 401), ("", 401), ("another-key", 401), ("another-key", 403)]:
        with subtests.test(key=key, status=status):
            service.wrong_key_status = status
            headers = {} if key is None else {"x-api-key": key}
            async with httpx.AsyncClient(base_url=service.url, headers=headers) as stranger:
                for answer in (
                    await stranger.post("/v2/videos", json=VIDEO),
                    await stranger.get("/v2/videos/v-1"),
                    await stranger.post("/v2/replicas", json=REPLICA),
                    await stranger.get("/v2/replicas/r-anna"),
                ):
                    assert (answer.status_code, list(answer.json())) == (status, ["message"])
            assert not service.videos
            assert not any(each.done for each in service.requests)


async def test_a_create_request_with_something_missing_or_wrong_is_refused(
    client: httpx.AsyncClient, service: SandboxVideoService, subtests: pytest.Subtests
) -> None:
    for path, body in [
        ("/v2/videos", {"replica_id": "r-anna"}),
        ("/v2/videos", {"script": "", "replica_id": "r-anna"}),
        ("/v2/videos", {"script": "Hello"}),
        ("/v2/videos", {"script": "Hello", "replica_id": "r-nobody"}),
        ("/v2/videos", {**VIDEO, "video_name": 7}),
        ("/v2/videos", {**VIDEO, "background_url": "not a link"}),
        ("/v2/replicas", {"replica_name": "Anna"}),
        ("/v2/replicas", {"train_video_url": "file:///anna.mp4"}),
        ("/v2/replicas", []),
    ]:
        with subtests.test(path=path, body=body):
            answer = await client.post(path, json=body)
            assert (answer.status_code, list(answer.json())) == (400, ["error"])
            assert not service.videos
            assert list(service.replicas) == ["r-anna"]


async def test_a_gateway_forbids_everything_while_it_refuses_the_key(
    client: httpx.AsyncClient, service: SandboxVideoService
) -> None:
    service.wrong_key_status, service.key_revoked = 403, True
    assert (await client.get("/v2/replicas/r-anna")).status_code == 403
    assert (await client.post("/v2/videos", json=VIDEO)).status_code == 403
    service.key_revoked = False
    await create_video(client)


async def test_an_unknown_id_is_a_bad_request_not_found_or_forbidden(
    client: httpx.AsyncClient, service: SandboxVideoService, subtests: pytest.Subtests
) -> None:
    for path in ["/v2/videos/v-none", "/v2/replicas/r-none"]:
        with subtests.test(path=path):
            assert (await client.get(path)).status_code == 400
            for status in (404, 403):
                service.unknown_id_status = status
                answer = await client.get(path)
                assert (answer.status_code, list(answer.json())) == (status, ["error"])
            service.unknown_id_status = 400
            assert (await client.get("/v2/replicas/r-anna")).status_code == 200


# Callbacks


async def test_a_ready_video_calls_back_once_with_the_whole_read_answer(
    client: httpx.AsyncClient, service: SandboxVideoService, clock: ManualClock, receiver: Receiver
) -> None:
    video_id = await create_video(client, callback_url=receiver.url)
    await clock.advance(5 * MINUTE - SECOND)
    assert receiver.received == []
    await clock.advance(SECOND)
    read = await read_video(client, video_id)
    await clock.advance(HOUR)
    assert receiver.received == [
        ReceivedCallback(
            "POST",
            {
                **read,
                "created_at": "2026-03-02T09:00:00.000Z",
                "updated_at": "2026-03-02T09:05:00.000Z",
                "generation_progress": "100/100",
                "replica_id": "r-anna",
            },
        )
    ]
    (record,) = service.callbacks
    assert (record.url, record.status) == (receiver.url, 200)
    assert record.at == datetime(2026, 3, 2, 9, 5, tzinfo=UTC)


async def test_a_callback_is_sent_the_planned_number_of_times_at_the_planned_time(
    client: httpx.AsyncClient,
    service: SandboxVideoService,
    clock: ManualClock,
    receiver: Receiver,
    subtests: pytest.Subtests,
) -> None:
    for plan, received_at_the_end, received_later in [
        (CallbackPlan(times=0), 0, 0),
        (CallbackPlan(times=3), 3, 3),
        (CallbackPlan(after=HOUR), 0, 1),
    ]:
        with subtests.test(plan=plan):
            receiver.received.clear()
            service.callback_plan = plan
            await create_video(client, callback_url=receiver.url)
            await clock.advance(5 * MINUTE)
            assert len(receiver.received) == received_at_the_end
            await clock.advance(2 * HOUR)
            assert len(receiver.received) == received_later


async def test_an_early_callback_arrives_while_the_create_request_is_open(
    client: httpx.AsyncClient, service: SandboxVideoService, clock: ManualClock, receiver: Receiver
) -> None:
    received_before_the_answer = []

    async def look(phase: Literal["before", "after"], _operation: Operation, _path: str) -> None:
        received_before_the_answer.append((phase, len(receiver.received)))

    service.on_request = look
    service.next_video(Scenario(callback_plan=CallbackPlan(early=True)))
    video_id = await create_video(client, callback_url=receiver.url)
    assert received_before_the_answer == [("before", 0), ("after", 1)]
    assert (receiver.received[0].body["video_id"], receiver.received[0].body["status"]) == (
        video_id,
        "ready",
    )
    assert (await read_video(client, video_id))["status"] == "queued"
    await clock.advance(HOUR)
    assert len(receiver.received) == 1


async def test_a_callback_has_the_planned_method_and_body(
    client: httpx.AsyncClient,
    service: SandboxVideoService,
    clock: ManualClock,
    receiver: Receiver,
    subtests: pytest.Subtests,
) -> None:
    bodies: list[object] = ["rubbish", {"status": "ready"}, [], None]
    for body in bodies:
        for plan in (
            CallbackPlan(method="GET", body=body),
            CallbackPlan(method="POST", body=body),
            CallbackPlan(method="PUT", body=body),
        ):
            with subtests.test(plan=plan):
                service.next_replica(Scenario(callback_plan=plan))
                await create_replica(client, callback_url=receiver.url)
                await clock.advance(HOUR)
                assert receiver.received.pop() == ReceivedCallback(plan.method, body)


async def test_a_receiver_that_fails_or_is_gone_is_recorded_and_ignored(
    client: httpx.AsyncClient, service: SandboxVideoService, clock: ManualClock, receiver: Receiver
) -> None:
    receiver.status = 500
    await create_video(client, callback_url=receiver.url)
    await clock.advance(5 * MINUTE)
    url = receiver.url
    await receiver.server.stop()
    await create_video(client, callback_url=url)
    await clock.advance(5 * MINUTE)
    assert [each.status for each in service.callbacks] == [500, None]


# The account


async def test_the_rate_limit_ends_at_its_time(
    client: httpx.AsyncClient,
    service: SandboxVideoService,
    clock: ManualClock,
    subtests: pytest.Subtests,
) -> None:
    for retry_after, said in [(None, None), (30 * SECOND, "30")]:
        with subtests.test(retry_after=retry_after, said=said):
            service.rate_limited = RateLimit(clock.now() + MINUTE, retry_after)
            answer = await client.get("/v2/replicas/r-anna")
            assert (answer.status_code, answer.headers.get("retry-after")) == (429, said)
            await clock.advance(MINUTE)
            assert (await client.get("/v2/replicas/r-anna")).status_code == 200


# Faults


async def test_a_connection_breaks_before_or_after_the_work(
    client: httpx.AsyncClient, service: SandboxVideoService, subtests: pytest.Subtests
) -> None:
    cases: list[tuple[Fault, bool]] = [
        (Reset(), False),
        (Reset(done=True), True),
        (Truncated(), False),
        (Truncated('{"video_id": "v', done=True), True),
    ]
    for fault, done in cases:
        with subtests.test(fault=fault, done=done):
            service.faults.next("create_video", fault)
            with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
                await client.post("/v2/videos", json=VIDEO)
            assert len(service.videos) == int(done)
            assert (service.requests[-1].status, service.requests[-1].done) == (None, done)
            service.videos.clear()


async def outcome_of(client: httpx.AsyncClient, method: str, path: str, patience: float) -> object:
    """Return the status of the answer, or the class of the error that came instead."""
    try:
        answer = await client.request(method, path, json=VIDEO, timeout=patience)
    except httpx.TimeoutException:
        return TimeoutError
    except httpx.ReadError:
        return ConnectionError
    return answer.status_code


async def test_everything_is_answered_the_same_until_that_ends(
    client: httpx.AsyncClient, service: SandboxVideoService, subtests: pytest.Subtests
) -> None:
    said = {"error": "Down for maintenance"}
    cases: list[tuple[Fault, object, float]] = [
        (CannedResponse(503, said), 503, 30),
        (CannedResponse(502, "<html>Bad gateway</html>"), 502, 30),
        (Reset(), ConnectionError, 30),
        (Hang(), TimeoutError, 0.2),
    ]
    for fault, outcome, patience in cases:
        with subtests.test(fault=fault):
            service.answer_all(fault)
            for method, path in [("POST", "videos"), ("GET", "videos/v"), ("GET", "replicas")]:
                assert await outcome_of(client, method, f"/v2/{path}", patience) == outcome
            service.answer_all(None)
            service.answer_all(fault, CREATES)
            assert await outcome_of(client, "POST", "/v2/replicas", patience) == outcome
            assert (await client.get("/v2/replicas")).status_code == 200
            service.answer_all(None)
            await create_video(client)


async def test_stalled_create_calls_are_answered_as_things_are_when_that_ends(
    client: httpx.AsyncClient, service: SandboxVideoService
) -> None:
    arrived = asyncio.Event()

    async def note(_phase: object, _operation: object, _path: str) -> None:
        arrived.set()

    service.on_request, service.stalled = note, True
    async with asyncio.TaskGroup() as group:
        creating = group.create_task(client.post("/v2/videos", json=VIDEO))
        await arrived.wait()
        assert (await client.get("/v2/replicas")).status_code == 200
        assert not creating.done()
        service.down, service.stalled = True, False
    assert creating.result().status_code == 503
    service.down = False
    await create_video(client)


async def test_a_reset_is_a_real_one(service: SandboxVideoService) -> None:
    service.faults.next("read_replica", Reset())
    host, port = service.url.removeprefix("http://").split(":")
    async with connected(int(port)) as (reader, writer):
        writer.write(f"GET /v2/replicas/r-anna HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        with pytest.raises(ConnectionResetError):
            await reader.read()


async def test_any_answer_can_come_before_or_after_the_work(
    client: httpx.AsyncClient, service: SandboxVideoService, subtests: pytest.Subtests
) -> None:
    for done in [False, True]:
        for answer, status, body, headers in [
            (CannedResponse(500, {"error": "Your plan does not allow this"}), 500, None, {}),
            (
                CannedResponse(502, "<html>Bad gateway</html>"),
                502,
                None,
                {"content-type": "text/html"},
            ),
            (CannedResponse(503, "busy"), 503, b"busy", {"content-type": "text/plain"}),
            (CannedResponse(429), 429, b"", {}),
            (CannedResponse(429, headers={"Retry-After": "7"}), 429, b"", {"retry-after": "7"}),
            (CannedResponse(302, headers={"Location": "/login"}), 302, b"", {"location": "/login"}),
            (CannedResponse(body=None), 200, b"null", {"content-type": "application/json"}),
            (CannedResponse(body=[]), 200, b"[]", {"content-type": "application/json"}),
            (
                CannedResponse(body="{", headers={"Content-Type": "application/json"}),
                200,
                b"{",
                {"content-type": "application/json"},
            ),
            (
                CannedResponse(body=b" " * 3_000_000),
                200,
                b" " * 3_000_000,
                {"content-length": "3000000"},
            ),
        ]:
            with subtests.test(done=done, answer=answer):
                fault = CannedResponse(answer.status, answer.body, answer.headers, done=done)
                service.faults.next("create_video", fault)
                response = await client.post("/v2/videos", json=VIDEO)
                assert response.status_code == status
                if body is not None:
                    assert response.content == body
                assert response.headers.items() >= headers.items()
                assert len(service.videos) == int(done)
                assert (service.requests[-1].status, service.requests[-1].done) == (status, done)
                service.videos.clear()


# The server and the scheduler


async def test_a_stopped_service_refuses_connections_and_comes_back_with_its_videos(
    client: httpx.AsyncClient, service: SandboxVideoService, clock: ManualClock, receiver: Receiver
) -> None:
    video_id = await create_video(client, callback_url=receiver.url)
    port = int(service.url.rpartition(":")[2])
    await service.stop()
    await clock.advance(HOUR)
    assert receiver.received == []
    with pytest.raises(httpx.ConnectError):
        await client.get(f"/v2/videos/{video_id}")
    await service.start(port)
    await clock.settle()
    assert (await read_video(client, video_id))["status"] == "ready"
    assert len(receiver.received) == 1
