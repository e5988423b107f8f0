"""The sandbox's video service, its faults and its server, over real HTTP."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import httpx
import pytest
from aiohttp import web

from bot.clock import SystemClock
from sandbox.clock import ManualClock
from sandbox.faults import CannedResponse, Drip, Fault, Hang, LateCommit, Reset, Truncated
from sandbox.http import Server
from sandbox.scenarios import MISSING, CallbackPlan, Pace, Scenario, TrainingFailure
from sandbox.scheduler import Scheduler
from sandbox.service_limits import RateLimit
from sandbox.video_service import Operation, SandboxVideoService

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
def clock() -> ManualClock:
    return ManualClock()


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
        base_url=service.url, headers={"x-api-key": service.api_key}, timeout=5
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


async def test_a_replica_trains_step_by_step(
    client: httpx.AsyncClient, service: SandboxVideoService, clock: ManualClock
) -> None:
    created = await client.post("/v2/replicas", json=REPLICA)
    replica_id = created.json()["replica_id"]
    assert created.json() == {"replica_id": replica_id, "status": "training"}
    started = await read_replica(client, replica_id)
    assert (started["status"], started["training_progress"]) == ("started", "0/10")
    await clock.advance(HOUR * 0.75)
    training = await read_replica(client, replica_id)
    assert (training["status"], training["training_progress"]) == ("training", "7/10")
    await clock.advance(HOUR * 0.25)
    assert await read_replica(client, replica_id) == {
        "replica_id": replica_id,
        "replica_name": "Anna",
        "thumbnail_video_url": f"{service.url}/files/{replica_id}.mp4",
        "training_progress": "10/10",
        "status": "completed",
        "created_at": "2026-03-02T09:00:00.000Z",
        "updated_at": "2026-03-02T10:00:00.000Z",
        "error_message": None,
        "replica_type": "user",
    }


async def test_a_video_waits_in_the_queue_until_its_replica_is_trained(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    video_id = await create_video(client, replica_id=await create_replica(client))
    await clock.advance(HOUR)
    assert (await read_video(client, video_id))["status"] == "queued"
    await clock.advance(MINUTE)
    assert (await read_video(client, video_id))["status"] == "generating"


async def test_a_video_fails_when_the_replica_it_waits_for_does(
    client: httpx.AsyncClient, service: SandboxVideoService, clock: ManualClock
) -> None:
    replica_id = await create_replica(client)
    video_id = await create_video(client, replica_id=replica_id)
    service.fail(replica_id, TrainingFailure.NOISE)
    await clock.advance(MINUTE)
    body = await read_video(client, video_id)
    assert (body["status"], body["status_details"]) == (
        "error",
        "The replica of this video could not be trained",
    )


async def test_a_video_waits_forever_for_a_replica_that_is_stuck(
    client: httpx.AsyncClient, service: SandboxVideoService, clock: ManualClock
) -> None:
    service.next_replica(Scenario(end="never"))
    video_id = await create_video(client, replica_id=await create_replica(client))
    await clock.advance(1000 * HOUR)
    assert (await read_video(client, video_id))["status"] == "queued"


@pytest.mark.parametrize("key", [None, "", "another-key"])
async def test_a_request_without_the_right_key_is_refused(
    service: SandboxVideoService, key: str | None
) -> None:
    headers = {} if key is None else {"x-api-key": key}
    async with httpx.AsyncClient(base_url=service.url, headers=headers) as stranger:
        for answer in (
            await stranger.post("/v2/videos", json=VIDEO),
            await stranger.get("/v2/videos/v-1"),
            await stranger.post("/v2/replicas", json=REPLICA),
            await stranger.get("/v2/replicas/r-anna"),
        ):
            assert (answer.status_code, list(answer.json())) == (401, ["message"])
    assert not service.videos
    assert not any(each.done for each in service.requests)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v2/videos", {"replica_id": "r-anna"}),
        ("/v2/videos", {"script": "", "replica_id": "r-anna"}),
        ("/v2/videos", {"script": "Hello"}),
        ("/v2/videos", {"script": "Hello", "replica_id": "r-nobody"}),
        ("/v2/videos", {**VIDEO, "video_name": 7}),
        ("/v2/videos", {**VIDEO, "background_url": "not a link"}),
        ("/v2/replicas", {"replica_name": "Anna"}),
        ("/v2/replicas", {"train_video_url": "file:///anna.mp4"}),
        ("/v2/replicas", []),
    ],
)
async def test_a_create_request_with_something_missing_or_wrong_is_refused(
    client: httpx.AsyncClient, service: SandboxVideoService, path: str, body: object
) -> None:
    answer = await client.post(path, json=body)
    assert (answer.status_code, list(answer.json())) == (400, ["error"])
    assert not service.videos
    assert list(service.replicas) == ["r-anna"]


async def test_a_create_request_has_to_say_that_it_is_json(client: httpx.AsyncClient) -> None:
    assert (await client.post("/v2/videos", content=json.dumps(VIDEO))).status_code == 400
    headers = {"content-type": "application/json"}
    assert (await client.post("/v2/videos", content="{", headers=headers)).status_code == 400


async def test_a_service_that_does_not_know_replicas_accepts_any(clock: ManualClock) -> None:
    service = SandboxVideoService(clock, api_key="k", pace=PACE, know_replicas=False)
    await service.start()
    headers = {"x-api-key": "k"}
    async with httpx.AsyncClient(base_url=service.url, headers=headers) as client:
        video_id = await create_video(client, replica_id="r-nobody")
        await clock.advance(5 * MINUTE)
        assert (await read_video(client, video_id))["status"] == "ready"
    await service.stop()


@pytest.mark.parametrize("path", ["/v2/videos/v-none", "/v2/replicas/r-none"])
async def test_an_unknown_id_is_a_bad_request_or_not_found(
    client: httpx.AsyncClient, service: SandboxVideoService, path: str
) -> None:
    assert (await client.get(path)).status_code == 400
    service.unknown_id_status = 404
    answer = await client.get(path)
    assert (answer.status_code, list(answer.json())) == (404, ["error"])


async def test_the_hosted_page_shows_the_script_as_text(
    client: httpx.AsyncClient, service: SandboxVideoService
) -> None:
    video_id = await create_video(client)
    page = await client.get(f"/watch/{video_id}")
    assert page.headers["content-type"].startswith("text/html")
    assert "sandbox video" in page.text
    assert "Hello &lt;there&gt; &amp; welcome" in page.text
    assert (await client.get("/watch/v-none")).status_code == 404
    assert service.url in (await read_video(client, video_id))["hosted_url"]


# Scenarios


async def test_a_video_fails_with_its_reason_and_keeps_its_page(
    client: httpx.AsyncClient, service: SandboxVideoService, clock: ManualClock
) -> None:
    service.next_video(Scenario(end="error", reason="The script is not allowed"))
    failing, other = await create_video(client), await create_video(client)
    await clock.advance(5 * MINUTE)
    body = await read_video(client, failing)
    assert (body["status"], body["status_details"]) == ("error", "The script is not allowed")
    assert (body["download_url"], body["stream_url"]) == (None, None)
    assert body["hosted_url"]
    assert (await read_video(client, other))["status"] == "ready"


async def test_a_video_may_have_unknown_statuses_and_then_be_ready(
    client: httpx.AsyncClient, service: SandboxVideoService, clock: ManualClock
) -> None:
    service.next_video(Scenario(statuses=("dreaming", "polishing")))
    video_id = await create_video(client)
    seen = []
    for _ in range(6):
        seen.append((await read_video(client, video_id))["status"])
        await clock.advance(MINUTE)
    assert seen == ["queued", "dreaming", "dreaming", "polishing", "polishing", "ready"]


@pytest.mark.parametrize(
    ("scenario", "status"),
    [
        (Scenario(end="never"), "generating"),
        (Scenario(end="never", statuses=("dreaming", "polishing")), "polishing"),
        (Scenario(end="deleted"), "deleted"),
        (Scenario(final_status="finished"), "finished"),
        (Scenario(pace=Pace(queued=2000 * HOUR)), "queued"),
    ],
)
async def test_a_video_may_end_otherwise_or_never(
    client: httpx.AsyncClient,
    service: SandboxVideoService,
    clock: ManualClock,
    scenario: Scenario,
    status: str,
) -> None:
    service.next_video(scenario)
    video_id = await create_video(client)
    await clock.advance(1000 * HOUR)
    assert (await read_video(client, video_id))["status"] == status


async def test_members_may_be_null_missing_or_empty(
    client: httpx.AsyncClient, service: SandboxVideoService, clock: ManualClock
) -> None:
    said = {"data": None, "hosted_url": MISSING, "download_url": "", "stream_url": None, "new": [1]}
    service.next_video(Scenario(overrides=said))
    created = (await client.post("/v2/videos", json=VIDEO)).json()
    assert "hosted_url" not in created
    await clock.advance(5 * MINUTE)
    body = await read_video(client, created["video_id"])
    assert body["status"] == "ready"
    assert "hosted_url" not in body
    assert body.items() >= {"data": None, "download_url": "", "stream_url": None}.items()
    assert body["new"] == [1]


@pytest.mark.parametrize("reason", [*TrainingFailure, None])
async def test_a_training_fails_with_a_sentence_or_without_one(
    client: httpx.AsyncClient,
    service: SandboxVideoService,
    clock: ManualClock,
    reason: str | None,
) -> None:
    service.next_replica(Scenario(end="error", reason=reason))
    replica_id = await create_replica(client)
    await clock.advance(2 * HOUR)
    body = await read_replica(client, replica_id)
    assert (body["status"], body["error_message"]) == ("error", reason)
    assert body["training_progress"] == "9/10"


@pytest.mark.parametrize("progress", ["40/100", "soon", "7/0", "", None, MISSING])
async def test_a_replica_may_report_any_progress_and_either_good_status(
    client: httpx.AsyncClient,
    service: SandboxVideoService,
    clock: ManualClock,
    progress: object,
) -> None:
    service.next_replica(Scenario(final_status="ready", overrides={"training_progress": progress}))
    replica_id = await create_replica(client)
    for _ in range(2):
        body = await read_replica(client, replica_id)
        assert body.get("training_progress", MISSING) == progress
        assert body["status"] == "started"
        await clock.advance(HOUR / 4)
    await clock.advance(HOUR / 2)
    assert (await read_replica(client, replica_id))["status"] == "ready"


@pytest.mark.parametrize("status", ["completed", "ready", "error", "deleted", "training", "odd"])
async def test_a_replica_can_be_there_from_the_start(
    client: httpx.AsyncClient, service: SandboxVideoService, clock: ManualClock, status: str
) -> None:
    service.add_replica("r-ben", "Ben", status)
    await clock.advance(10 * HOUR)
    body = await read_replica(client, "r-ben")
    assert (body["replica_name"], body["status"]) == ("Ben", status)


async def test_a_job_that_goes_on_can_be_ended_by_hand(
    client: httpx.AsyncClient, service: SandboxVideoService, clock: ManualClock
) -> None:
    finished, failed, deleted = [await create_video(client) for _ in range(3)]
    trained = await create_replica(client)
    await clock.advance(SECOND)
    service.finish(finished)
    service.fail(failed, "Out of paint")
    service.delete(deleted)
    service.finish(trained)
    for _ in range(2):
        body = await read_video(client, finished)
        assert (body["status"], body["updated_at"]) == ("ready", "Mon, 02 Mar 2026 09:00:01 GMT")
        body = await read_video(client, failed)
        assert (body["status"], body["status_details"]) == ("error", "Out of paint")
        assert (await read_video(client, deleted))["status"] == "deleted"
        replica = await read_replica(client, trained)
        assert (replica["status"], replica["training_progress"]) == ("completed", "10/10")
        await clock.advance(HOUR)
    with pytest.raises(ValueError, match="ended"):
        service.finish(failed)
    with pytest.raises(KeyError):
        service.finish("v-none")
    service.delete(finished)
    assert (await read_video(client, finished))["status"] == "deleted"


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


async def test_a_failed_video_calls_back_with_the_reason_in_its_details(
    client: httpx.AsyncClient, service: SandboxVideoService, clock: ManualClock, receiver: Receiver
) -> None:
    service.next_video(Scenario(end="error", reason="The script is not allowed"))
    await create_video(client, callback_url=receiver.url)
    await clock.advance(HOUR)
    (callback,) = receiver.received
    assert callback.body["status"] == "error"
    assert callback.body["status_details"] == "The script is not allowed"
    assert callback.body["hosted_url"]
    assert [callback.body[each] for each in ("download_url", "stream_url", "error_details")] == [
        None,
        None,
        None,
    ]


async def test_a_replica_calls_back_with_the_word_ready_or_its_error(
    client: httpx.AsyncClient, service: SandboxVideoService, clock: ManualClock, receiver: Receiver
) -> None:
    service.next_replica(Scenario(), Scenario(end="error", reason=TrainingFailure.TOO_SHORT))
    good = await create_replica(client, callback_url=receiver.url)
    bad = await create_replica(client, callback_url=receiver.url)
    await clock.advance(HOUR)
    assert [each.body for each in receiver.received] == [
        {"replica_id": good, "status": "ready"},
        {"replica_id": bad, "status": "error", "error_message": TrainingFailure.TOO_SHORT},
    ]


@pytest.mark.parametrize(
    ("plan", "received_at_the_end", "received_later"),
    [
        (CallbackPlan(times=0), 0, 0),
        (CallbackPlan(times=3), 3, 3),
        (CallbackPlan(after=HOUR), 0, 1),
    ],
)
async def test_a_callback_is_sent_the_planned_number_of_times_at_the_planned_time(
    client: httpx.AsyncClient,
    service: SandboxVideoService,
    clock: ManualClock,
    receiver: Receiver,
    *,
    plan: CallbackPlan,
    received_at_the_end: int,
    received_later: int,
) -> None:
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


@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
@pytest.mark.parametrize("body", ["rubbish", {"status": "ready"}, [], None])
async def test_a_callback_has_the_planned_method_and_body(
    client: httpx.AsyncClient,
    service: SandboxVideoService,
    clock: ManualClock,
    receiver: Receiver,
    *,
    method: Literal["GET", "POST", "PUT"],
    body: object,
) -> None:
    service.next_replica(Scenario(callback_plan=CallbackPlan(method=method, body=body)))
    await create_replica(client, callback_url=receiver.url)
    await clock.advance(HOUR)
    assert receiver.received == [ReceivedCallback(method, body)]


async def test_a_callback_can_be_sent_at_any_moment(
    client: httpx.AsyncClient, service: SandboxVideoService, receiver: Receiver
) -> None:
    video_id = await create_video(client, callback_url=receiver.url)
    await service.call_back(video_id)
    await service.call_back(video_id, {"video_id": "v-forged"})
    assert receiver.received[0].body.items() >= {"video_id": video_id, "status": "ready"}.items()
    assert receiver.received[1].body == {"video_id": "v-forged"}
    with pytest.raises(ValueError, match="without a callback_url"):
        await service.call_back(await create_video(client))


async def test_a_job_ended_by_hand_calls_back_then_and_not_again(
    client: httpx.AsyncClient, service: SandboxVideoService, clock: ManualClock, receiver: Receiver
) -> None:
    failed = await create_video(client, callback_url=receiver.url)
    deleted = await create_video(client, callback_url=receiver.url)
    replica_id = await create_replica(client)
    waiting = await create_video(client, callback_url=receiver.url, replica_id=replica_id)
    service.fail(failed, "Out of paint")
    service.delete(deleted)
    service.finish(replica_id)
    await clock.settle()
    assert [each.body["video_id"] for each in receiver.received] == [failed]
    await clock.advance(5 * MINUTE)
    assert [each.body["video_id"] for each in receiver.received] == [failed, waiting]
    await clock.advance(2 * HOUR)
    assert len(receiver.received) == 2


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


async def test_an_account_out_of_credit_may_read_but_not_create(
    client: httpx.AsyncClient, service: SandboxVideoService
) -> None:
    service.out_of_credit = True
    for path, body in (("/v2/videos", VIDEO), ("/v2/replicas", REPLICA)):
        answer = await client.post(path, json=body)
        assert (answer.status_code, list(answer.json())) == (402, ["error"])
    assert (await client.get("/v2/replicas/r-anna")).status_code == 200
    service.out_of_credit = False
    await create_video(client)


async def test_with_a_revoked_key_every_call_is_refused(
    client: httpx.AsyncClient, service: SandboxVideoService
) -> None:
    service.key_revoked = True
    assert (await client.get("/v2/replicas/r-anna")).status_code == 401


async def test_a_service_that_is_down_answers_in_html(
    client: httpx.AsyncClient, service: SandboxVideoService
) -> None:
    service.down = True
    answer = await client.post("/v2/videos", json=VIDEO)
    assert (answer.status_code, answer.headers["content-type"].split(";")[0]) == (503, "text/html")
    assert not service.videos


@pytest.mark.parametrize(("retry_after", "said"), [(None, None), (30 * SECOND, "30")])
async def test_the_rate_limit_ends_at_its_time(
    client: httpx.AsyncClient,
    service: SandboxVideoService,
    clock: ManualClock,
    retry_after: timedelta | None,
    said: str | None,
) -> None:
    service.rate_limited = RateLimit(clock.now() + MINUTE, retry_after)
    answer = await client.get("/v2/replicas/r-anna")
    assert (answer.status_code, answer.headers.get("retry-after")) == (429, said)
    await clock.advance(MINUTE)
    assert (await client.get("/v2/replicas/r-anna")).status_code == 200


# Records and the hook


async def test_each_request_is_recorded_without_its_key(
    client: httpx.AsyncClient, service: SandboxVideoService, clock: ManualClock
) -> None:
    await create_video(client)
    await client.get("/v2/videos/v-none")
    created, read = service.requests
    assert (created.operation, created.method, created.path) == (
        "create_video",
        "POST",
        "/v2/videos",
    )
    assert (created.body, created.at, created.status, created.done) == (
        VIDEO,
        clock.now(),
        200,
        True,
    )
    assert (read.operation, read.path, read.body) == ("read_video", "/v2/videos/v-none", None)
    assert (read.status, read.done) == (400, False)
    assert service.api_key not in repr(service.requests)


async def test_the_hook_is_awaited_before_and_after_the_work(
    client: httpx.AsyncClient, service: SandboxVideoService
) -> None:
    seen = []

    async def look(phase: Literal["before", "after"], operation: Operation, path: str) -> None:
        seen.append((phase, operation, path, len(service.videos)))

    service.on_request = look
    await create_video(client)
    assert seen == [
        ("before", "create_video", "/v2/videos", 0),
        ("after", "create_video", "/v2/videos", 1),
    ]


# Faults


@pytest.mark.parametrize(
    ("fault", "done"),
    [
        (Reset(), False),
        (Reset(done=True), True),
        (Truncated(), False),
        (Truncated('{"video_id": "v', done=True), True),
    ],
)
async def test_a_connection_breaks_before_or_after_the_work(
    client: httpx.AsyncClient, service: SandboxVideoService, fault: Fault, *, done: bool
) -> None:
    service.faults.next("create_video", fault)
    with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
        await client.post("/v2/videos", json=VIDEO)
    assert len(service.videos) == int(done)
    assert (service.requests[0].status, service.requests[0].done) == (None, done)
    await create_video(client)


async def test_a_reset_is_a_real_one(service: SandboxVideoService) -> None:
    service.faults.next("read_replica", Reset())
    host, port = service.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET /v2/replicas/r-anna HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()
    with contextlib.suppress(ConnectionResetError):
        await writer.wait_closed()


async def test_a_late_commit_resets_at_once_and_does_the_work_later(
    client: httpx.AsyncClient, service: SandboxVideoService, clock: ManualClock, receiver: Receiver
) -> None:
    service.faults.next("create_video", LateCommit(MINUTE))
    with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
        await client.post("/v2/videos", json={**VIDEO, "callback_url": receiver.url})
    await clock.advance(MINUTE - SECOND)
    assert not service.videos
    await clock.advance(SECOND)
    (video,) = service.videos.values()
    assert video.created_at == clock.now()
    assert service.requests[0].done
    await clock.advance(5 * MINUTE)
    assert receiver.received[0].body["video_id"] == video.video_id


@pytest.mark.parametrize(("fault", "done"), [(Hang(), False), (Hang(done=True), True)])
async def test_a_request_hangs_before_or_after_the_work(
    client: httpx.AsyncClient, service: SandboxVideoService, fault: Fault, *, done: bool
) -> None:
    service.faults.next("create_video", fault)
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(client.post("/v2/videos", json=VIDEO, timeout=None))
        async with asyncio.timeout(30):
            while not service.requests or len(service.videos) < done:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert not asking.done()
        assert len(service.videos) == int(done)
        assert service.requests[0].status is None
        asking.cancel()


async def test_stopping_drops_a_request_that_hangs_at_once(
    client: httpx.AsyncClient, service: SandboxVideoService
) -> None:
    hanging = asyncio.Event()

    async def look(phase: Literal["before", "after"], _operation: Operation, _path: str) -> None:
        if phase == "after":
            hanging.set()

    async def ask() -> None:
        with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
            await client.get("/v2/replicas/r-anna")

    service.on_request = look
    service.faults.always("read_replica", Hang(done=True))
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        tasks.create_task(ask())
        await hanging.wait()
        await service.stop()


@pytest.mark.parametrize(
    ("answer", "status", "body", "headers"),
    [
        (CannedResponse(500, {"error": "Your plan does not allow this"}), 500, None, {}),
        (CannedResponse(502, "<html>Bad gateway</html>"), 502, None, {"content-type": "text/html"}),
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
    ],
)
@pytest.mark.parametrize("done", [False, True])
async def test_any_answer_can_come_before_or_after_the_work(
    client: httpx.AsyncClient,
    service: SandboxVideoService,
    *,
    answer: CannedResponse,
    status: int,
    body: bytes | None,
    headers: Mapping[str, str],
    done: bool,
) -> None:
    fault = CannedResponse(answer.status, answer.body, answer.headers, done=done)
    service.faults.next("create_video", fault)
    response = await client.post("/v2/videos", json=VIDEO)
    assert response.status_code == status
    if body is not None:
        assert response.content == body
    assert response.headers.items() >= headers.items()
    assert len(service.videos) == int(done)
    assert (service.requests[0].status, service.requests[0].done) == (status, done)


async def test_an_answer_can_drip_without_end(
    client: httpx.AsyncClient, service: SandboxVideoService
) -> None:
    service.faults.next("create_video", Drip(done=True))
    async with client.stream("POST", "/v2/videos", json=VIDEO) as response:
        assert response.status_code == 200
        bytes_read = 0
        async for chunk in response.aiter_bytes():
            bytes_read += len(chunk)
            if bytes_read >= 3:
                break
    assert len(service.videos) == 1


async def test_faults_apply_in_order_and_can_be_cleared(
    client: httpx.AsyncClient, service: SandboxVideoService
) -> None:
    async def statuses(count: int) -> list[int]:
        return [(await client.get("/v2/replicas/r-anna")).status_code for _ in range(count)]

    service.faults.next("read_replica", CannedResponse(500), CannedResponse(502))
    assert (await client.get("/v2/videos/v-none")).status_code == 400
    assert await statuses(3) == [500, 502, 200]
    service.faults.always("read_replica", CannedResponse(503))
    service.faults.next("read_replica", CannedResponse(500))
    assert await statuses(3) == [500, 503, 503]
    service.faults.always("read_replica", None)
    assert await statuses(1) == [200]
    service.faults.always("read_replica", CannedResponse(503))
    service.faults.next("read_replica", CannedResponse(500))
    service.faults.clear()
    assert await statuses(1) == [200]


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


async def test_a_port_that_is_taken_is_an_error(service: SandboxVideoService) -> None:
    other = Server(web.Application())
    with pytest.raises(OSError, match="address already in use"):
        await other.start(int(service.url.rpartition(":")[2]))


async def test_scheduled_work_that_fails_does_not_stop_the_rest(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[int] = []

    async def fail() -> None:
        raise RuntimeError("no")

    async def note() -> None:
        done.append(len(done))

    scheduler = Scheduler(clock)
    clock.settles_with(scheduler.settled)
    await scheduler.start()
    scheduler.after(SECOND, note)
    scheduler.at(clock.now(), fail)
    scheduler.after(SECOND, note)
    await clock.advance(SECOND)
    assert done == [0, 1]
    assert "scheduled work failed" in caplog.text
    assert not await scheduler.settled()
    await scheduler.stop()
    scheduler.after(timedelta(0), note)
    assert not await scheduler.settled()


async def test_callbacks_are_sent_by_the_machines_own_clock_too() -> None:
    received = asyncio.Event()

    async def receive(_request: web.Request) -> web.Response:
        received.set()
        return web.Response()

    app = web.Application()
    app.router.add_post("/", receive)
    server = Server(app)
    await server.start()
    moment = timedelta(milliseconds=20)
    service = SandboxVideoService(SystemClock(), pace=Pace(queued=moment, generating=moment))
    service.add_replica("r-anna", "Anna")
    await service.start()
    headers = {"x-api-key": service.api_key}
    async with httpx.AsyncClient(base_url=service.url, headers=headers) as client:
        await create_video(client, callback_url=server.url)
    async with asyncio.timeout(30):
        await received.wait()
    await service.stop()
    await server.stop()
