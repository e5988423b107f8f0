"""The sandbox's video service: the interface's four operations, with the habits seen in life."""

import json
import secrets
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from email.utils import format_datetime
from enum import StrEnum
from functools import partial
from http import HTTPStatus
from typing import Final, Literal
from urllib.parse import urlsplit

import aiohttp
from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from bot.clock import Clock
from sandbox import player
from sandbox.clock import ManualClock
from sandbox.faults import Faults, respond
from sandbox.http import Scheduler, Server
from sandbox.wire import NO_ANSWER, Wire

Operation = Literal["create_video", "read_video", "create_replica", "read_replica"]
Ending = Literal["success", "error", "deleted", "never"]
Hook = Callable[[Literal["before", "after"], Operation, str], Awaitable[None]]

MISSING: Final = object()
"""As a member's value in ``Scenario.overrides``: the member is left out."""

AS_SEEN: Final = object()
"""As ``CallbackPlan.body``: what the service has been seen to send."""

# What a status word says of a replica's training.
_ENDS: Final[Mapping[str, Ending]] = {
    "completed": "success",
    "ready": "success",
    "error": "error",
    "deleted": "deleted",
}
_CALLBACK_SECONDS: Final = 5.0
_REPLICA_FAILED: Final = "The replica of this video could not be trained"
_DOWN: Final = "<html><body><h1>503 Service Temporarily Unavailable</h1></body></html>"


class TrainingFailure(StrEnum):
    """Why a training fails: sentences for ``Scenario.reason``."""

    NOT_REACHABLE = "The training video could not be downloaded: check that its link is public"
    TOO_LARGE = "The training video is larger than 750 MB"
    WRONG_CODEC = "The training video has to be an mp4 file with the H.264 codec"
    TOO_SHORT = "The training video is shorter than 1 minute"
    LOW_FRAME_RATE = "The training video has fewer than 25 frames per second"
    NO_CONSENT = "The consent statement was not found"
    FACE_HIDDEN = "The face is hidden in part of the training video"
    TWO_PEOPLE = "There is more than one person in the training video"
    BAD_LIGHT = "The training video is too dark or unevenly lit"
    NOISE = "There is too much noise in the sound of the training video"


@dataclass(frozen=True)
class Pace:
    """How long things take, and in how many steps a training says it proceeds."""

    queued: timedelta = timedelta(seconds=10)
    generating: timedelta = timedelta(minutes=2)
    training: timedelta = timedelta(hours=3, minutes=30)
    training_steps: int = 100


@dataclass(frozen=True)
class CallbackPlan:
    """How often, when and how a job's callback is sent; ``times=0`` for never.

    It is sent ``after`` the end of the job. An ``early`` one tells of the end too, but is sent
    between the work and the answer of the create request. A ``body`` of type str is sent as it
    stands, any other as JSON.
    """

    times: int = 1
    after: timedelta = timedelta(0)
    early: bool = False
    method: Literal["GET", "POST", "PUT"] = "POST"
    body: object = AS_SEEN


@dataclass(frozen=True)
class Scenario:
    """How a job will go.

    Attributes:
        end: how it ends; ``never`` for a job that is stuck.
        reason: why it fails: a video's ``status_details``, a replica's ``error_message``.
        final_status: the status after the end, instead of the usual one.
        statuses: the statuses on the way, in order, instead of the usual ones; a job that is stuck
            keeps the last one.
        overrides: members of answers about the job that replace the usual ones, or are left out
            where ``MISSING``.
        pace: overrides the service's.
        callback_plan: likewise.
    """

    end: Ending = "success"
    reason: str | None = None
    final_status: str | None = None
    statuses: Sequence[str] = ()
    overrides: Mapping[str, object] = field(default_factory=dict)
    pace: Pace | None = None
    callback_plan: CallbackPlan | None = None


@dataclass(kw_only=True)
class Job(ABC):
    """A video or a replica: where it stands follows from its fields and the time alone."""

    name: str
    created_at: datetime
    pace: Pace
    scenario: Scenario
    callback_plan: CallbackPlan
    callback_url: str | None = None
    ended_by_hand_at: datetime | None = None
    deleted: bool = False
    call_back_at: datetime | None = None

    @property
    def end(self) -> Ending:
        """Return what it comes to."""
        return self.scenario.end

    @property
    def reason(self) -> str | None:
        """Return why it fails."""
        return self.scenario.reason

    @property
    @abstractmethod
    def ends_at(self) -> datetime | None:
        """Return when it ends, or ended; None for never."""

    @abstractmethod
    def status(self, now: datetime) -> str:
        """Return the status that a read says at ``now``."""

    def ended(self, now: datetime) -> Ending | None:
        """Return what it has come to by ``now``; None while it goes on."""
        if self.deleted:
            return "deleted"
        return self.end if self.ends_at is not None and self.ends_at <= now else None

    def next_change(self, now: datetime) -> datetime | None:
        """Return when its status changes next; None where it stays as it is."""
        coming = [at for at in self._changes() if at is not None and at > now]
        return min(coming, default=None) if self.ended(now) is None else None

    def share(self, now: datetime) -> float:
        """Return how much of the way to its end is behind it, from 0 to 1."""
        if self.ended(now) is not None:
            return 1.0
        return _share(now - self.created_at, self.ends_at - self.created_at) if self.ends_at else 0

    def _changes(self) -> Sequence[datetime | None]:
        return (self.ends_at,)


@dataclass(kw_only=True)
class Replica(Job):
    """A replica, in training or trained."""

    replica_id: str

    @property
    def ends_at(self) -> datetime | None:
        """Return when its training ends, or ended; None for never."""
        if self.ended_by_hand_at is not None:
            return self.ended_by_hand_at
        return None if self.end == "never" else self.created_at + self.pace.training

    def status(self, now: datetime) -> str:
        """Return the status that a read says at ``now``."""
        if self.deleted:
            return "deleted"
        ended = self.ended(now)
        if ended is None:
            return _word(self.scenario.statuses or ("started", "training"), self._share(now))
        return self.scenario.final_status or ("completed" if ended == "success" else ended)

    def progress(self, now: datetime) -> str:
        """Return how far its training is, as ``<done>/<total>`` steps; only success does all."""
        total = self.pace.training_steps
        done = total
        if self.ended(now) != "success":
            done = min(int(self._share(now) * total), total - 1)
        return f"{done}/{total}"

    def _share(self, now: datetime) -> float:
        moment = now if self.ends_at is None else min(now, self.ends_at)
        return _share(moment - self.created_at, self.pace.training)


@dataclass(kw_only=True)
class Video(Job):
    """A video; it waits in the queue until its replica is trained, and fails with it."""

    video_id: str
    script: str
    replica_id: str
    replica: Replica | None = None

    @property
    def begins_at(self) -> datetime | None:
        """Return when it leaves the queue; None for never, as its replica is stuck."""
        replica_at = self.created_at if self.replica is None else self.replica.ends_at
        return None if replica_at is None else max(self.created_at, replica_at) + self.pace.queued

    @property
    def end(self) -> Ending:
        """Return what it comes to."""
        return "error" if self._fails_with_replica else self.scenario.end

    @property
    def reason(self) -> str | None:
        """Return why it fails."""
        return _REPLICA_FAILED if self._fails_with_replica else self.scenario.reason

    @property
    def ends_at(self) -> datetime | None:
        """Return when its generation ends, or ended; None for never."""
        if self.ended_by_hand_at is not None:
            return self.ended_by_hand_at
        begins_at = self.begins_at
        if self.end == "never" or begins_at is None:
            return None
        return begins_at if self._fails_with_replica else begins_at + self.pace.generating

    def status(self, now: datetime) -> str:
        """Return the status that a read says at ``now``."""
        if self.deleted:
            return "deleted"
        ended, begins_at = self.ended(now), self.begins_at
        if ended is not None:
            return self.scenario.final_status or ("ready" if ended == "success" else ended)
        if begins_at is None or now < begins_at:
            return "queued"
        share = _share(now - begins_at, self.pace.generating)
        return _word(self.scenario.statuses or ("generating",), share)

    def updated_at(self, now: datetime) -> datetime:
        """Return when it last changed, as seen at ``now``."""
        for change in (self.ends_at, self.begins_at):
            if change is not None and change <= now:
                return change
        return self.created_at

    def _changes(self) -> Sequence[datetime | None]:
        return (self.begins_at, self.ends_at)

    @property
    def _fails_with_replica(self) -> bool:
        if self.ended_by_hand_at is not None or self.replica is None:
            return False
        return self.replica.end in {"error", "deleted"}


@dataclass
class Request:
    """One request that arrived.

    Attributes:
        operation: which of the four.
        method: the HTTP method.
        path: the path, without a query.
        body: the JSON that came with it; None where none did.
        at: when it arrived.
        status: the HTTP status of its answer; None while there is none, and for ever where the
            connection was dropped.
        done: whether what it asked for was done.
    """

    operation: Operation
    method: str
    path: str
    body: object
    at: datetime
    status: int | None = None
    done: bool = False


@dataclass
class Callback:
    """One callback that was sent; ``status`` is None where no answer came to it."""

    url: str
    method: str
    body: object
    at: datetime
    status: int | None = None


@dataclass(frozen=True)
class RateLimit:
    """Too many requests ``until`` then; ``retry_after`` is what the answers say, if anything."""

    until: datetime
    retry_after: timedelta | None = None


class SandboxVideoService:
    """A video service on this machine that keeps its videos and replicas in memory.

    Attributes:
        faults: what goes wrong with coming requests.
        requests: each request that arrived, without its key, in order.
        callbacks: each callback sent, in order.
        videos: by id, in the order of creation.
        replicas: likewise.
        pace: how long the jobs created from now on take.
        callback_plan: how the jobs created from now on call back.
        on_request: awaited just before the work of a request and just after it, before the answer
            is sent, with the operation and the path; a fault that keeps the work from being done
            keeps it from being called too.
        out_of_credit: whether creates answer 402.
        key_revoked: whether everything answers 401.
        down: whether everything answers 503, in HTML.
        rate_limited: until when everything answers 429.
        unknown_id_status: what a read of an unknown id answers; 400 is what was seen, not 404.
        wire: the last requests and callbacks.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        api_key: str = "sandbox-key",
        pace: Pace = Pace(),
        know_replicas: bool = True,
    ) -> None:
        """Make a service that does not listen yet.

        Args:
            clock: what its jobs and callbacks go by.
            api_key: the only key that it accepts.
            pace: how long its jobs take.
            know_replicas: whether it refuses a video whose replica it does not have; if not, such a
                replica counts as trained.
        """
        self.faults = Faults()
        self.requests: list[Request] = []
        self.callbacks: list[Callback] = []
        self.videos: dict[str, Video] = {}
        self.replicas: dict[str, Replica] = {}
        self.pace = pace
        self.callback_plan = CallbackPlan()
        self.on_request: Hook | None = None
        self.out_of_credit = False
        self.key_revoked = False
        self.down = False
        self.rate_limited: RateLimit | None = None
        self.unknown_id_status = 400
        self._clock = clock
        self.api_key = api_key
        self.wire = Wire(clock)
        self.wire.secrets.add(api_key)
        self._know_replicas = know_replicas
        self._video_scenarios: deque[Scenario] = deque()
        self._replica_scenarios: deque[Scenario] = deque()
        self._scheduler = Scheduler(clock)
        self._server = Server(self._app())
        self._session: aiohttp.ClientSession | None = None
        self._leave_clock: Callable[[], None] | None = None

    @property
    def url(self) -> str:
        """Return the interface's ``{base_url}``, such as ``http://127.0.0.1:41233``."""
        return self._server.url

    async def start(self, port: int = 0) -> None:
        """Listen on ``port``, or on any free one, and begin to send what callbacks are due.

        A service that was stopped starts again with all that it had.

        Raises:
            OSError: the port is taken.
        """
        await self._server.start(port)
        timeout = aiohttp.ClientTimeout(total=_CALLBACK_SECONDS)
        self._session = aiohttp.ClientSession(timeout=timeout)
        await self._scheduler.start()
        if isinstance(self._clock, ManualClock):
            self._leave_clock = self._clock.settles_with(self.settled)

    async def stop(self) -> None:
        """Listen no more, drop the open requests and send no more callbacks."""
        if self._leave_clock is not None:
            self._leave_clock()
            self._leave_clock = None
        await self._scheduler.stop()
        await self._server.stop()
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def settled(self) -> bool:
        """Return once no callback is due or under way, and whether there was anything to do."""
        return await self._scheduler.settled()

    def next_video(self, *scenarios: Scenario) -> None:
        """Play ``scenarios`` with the next videos created, one each; the others succeed."""
        self._video_scenarios.extend(scenarios)

    def next_replica(self, *scenarios: Scenario) -> None:
        """Play ``scenarios`` with the next replicas created, one each; the others succeed."""
        self._replica_scenarios.extend(scenarios)

    def pending_scenarios(self) -> list[tuple[Operation, Scenario]]:
        """Return the scenarios of coming jobs, each with the operation that creates its job."""
        videos: list[tuple[Operation, Scenario]] = [
            ("create_video", each) for each in self._video_scenarios
        ]
        return [*videos, *(("create_replica", each) for each in self._replica_scenarios)]

    def clear_scenarios(self) -> None:
        """Let the coming jobs succeed."""
        self._video_scenarios.clear()
        self._replica_scenarios.clear()

    def call_back_from_now_on(self, times: int) -> None:
        """Have the jobs that go on, and those that come, call back so often at their end."""
        self.callback_plan = replace(self.callback_plan, times=times)
        for job in (*self.videos.values(), *self.replicas.values()):
            job.callback_plan = replace(job.callback_plan, times=times)

    def add_replica(self, replica_id: str, name: str, status: str = "completed") -> Replica:
        """Put in a replica that says ``status`` from the start: trained, failed or going on."""
        now = self._clock.now()
        end = _ENDS.get(status, "never")
        replica = Replica(
            replica_id=replica_id,
            name=name,
            created_at=now,
            pace=self.pace,
            scenario=Scenario(
                end=end, final_status=None if end == "never" else status, statuses=(status,)
            ),
            callback_plan=self.callback_plan,
            ended_by_hand_at=None if end == "never" else now,
        )
        self.replicas[replica_id] = replica
        return replica

    def finish(self, job_id: str) -> None:
        """Let the video or replica that is still going succeed now.

        Raises:
            KeyError: there is no such video or replica.
            ValueError: it has ended.
        """
        self._end_now(self._job(job_id), "success", None)

    def fail(self, job_id: str, reason: str | None) -> None:
        """Let the video or replica that is still going fail now; raises as ``finish`` does."""
        self._end_now(self._job(job_id), "error", reason)

    def delete(self, job_id: str) -> None:
        """Delete the video or replica, going or ended; nothing calls back about that.

        Raises:
            KeyError: there is no such video or replica.
        """
        job = self._job(job_id)
        if job.ended(self._clock.now()) is None:
            self._end_now(job, "deleted", None)
        job.deleted = True
        job.call_back_at = None

    async def call_back(self, job_id: str, body: object = AS_SEEN) -> None:
        """Send the callback that tells of the job's end once, now, also where it goes on.

        Raises:
            KeyError: there is no such video or replica.
            ValueError: no callback was asked for.
        """
        job = self._job(job_id)
        if job.callback_url is None:
            raise ValueError(f"{job_id} was created without a callback_url")
        plan = job.callback_plan if body is AS_SEEN else replace(job.callback_plan, body=body)
        await self._send(job.callback_url, plan.method, self._callback_body(job, plan))

    # The four operations, and what is behind the links to videos

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._record])
        app.router.add_post("/v2/videos", partial(self._serve, "create_video", self._create_video))
        app.router.add_get("/v2/videos/{id}", partial(self._serve, "read_video", self._read_video))
        app.router.add_post(
            "/v2/replicas", partial(self._serve, "create_replica", self._create_replica)
        )
        app.router.add_get(
            "/v2/replicas/{id}", partial(self._serve, "read_replica", self._read_replica)
        )
        app.router.add_get("/watch/{id}", self._watch)
        app.router.add_get("/files/{id}.{ending}", self._serve_file)
        app.router.add_get("/clip/{name}", self._serve_asset)
        return app

    @web.middleware
    async def _record(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not request.path.startswith("/v2/"):
            return await handler(request)
        return await self.wire.served("service", request, handler)

    async def _serve(
        self,
        operation: Operation,
        operate: Callable[[web.Request, object], Awaitable[web.Response]],
        request: web.Request,
    ) -> web.StreamResponse:
        body = _parsed(await request.text())
        record = Request(operation, request.method, request.path, body, self._clock.now())
        self.requests.append(record)

        async def work() -> web.Response:
            if self.on_request is not None:
                await self.on_request("before", operation, request.path)
            response = self._refusal(operation, request)
            if response is None:
                response = await operate(request, body)
            record.done = response.status == HTTPStatus.OK
            if self.on_request is not None:
                await self.on_request("after", operation, request.path)
            return response

        response = await respond(request, self.faults.take(operation), work, self._scheduler)
        if request.transport is not None and not request.transport.is_closing():
            record.status = response.status
        return response

    def _refusal(self, operation: Operation, request: web.Request) -> web.Response | None:
        if self.down:
            return web.Response(status=503, text=_DOWN, content_type="text/html")
        if self.key_revoked or request.headers.get("x-api-key") != self.api_key:
            return web.json_response({"message": "Invalid API key"}, status=401)
        if self.rate_limited is not None and self._clock.now() < self.rate_limited.until:
            wait = self.rate_limited.retry_after
            headers = {} if wait is None else {hdrs.RETRY_AFTER: f"{wait.total_seconds():.0f}"}
            return web.json_response({"message": "Too many requests"}, status=429, headers=headers)
        if self.out_of_credit and operation in {"create_video", "create_replica"}:
            return web.json_response({"error": "The account is out of credit"}, status=402)
        return None

    async def _create_video(self, request: web.Request, body: object) -> web.Response:
        optional = ("video_name", "background_url", "background_source_url", "callback_url")
        asked = _asked(request, body, required=("script", "replica_id"), optional=optional)
        if isinstance(asked, str):
            return _bad_request(asked)
        replica = self.replicas.get(asked["replica_id"])
        if replica is None and self._know_replicas:
            return _bad_request("Invalid replica_id")
        scenario = self._video_scenarios.popleft() if self._video_scenarios else Scenario()
        video_id = f"v{secrets.token_hex(5)}"
        video = Video(
            video_id=video_id,
            name=asked.get("video_name") or f"Video {video_id}",
            script=asked["script"],
            replica_id=asked["replica_id"],
            replica=replica,
            created_at=self._clock.now(),
            pace=scenario.pace or self.pace,
            scenario=scenario,
            callback_plan=scenario.callback_plan or self.callback_plan,
            callback_url=asked.get("callback_url"),
        )
        self.videos[video_id] = video
        await self._begin(video)
        answer = {
            "video_id": video_id,
            "video_name": video.name,
            "status": "queued",
            "hosted_url": self._hosted_url(video),
            "created_at": f"{video.created_at:%Y-%m-%d %H:%M:%S.%f}",
        }
        return web.json_response(_with(scenario.overrides, answer))

    async def _read_video(self, request: web.Request, _body: object) -> web.Response:
        video = self.videos.get(request.match_info["id"])
        if video is None:
            return web.json_response({"error": "Invalid video_id"}, status=self.unknown_id_status)
        return web.json_response(self._video_body(video, self._clock.now(), _http_date))

    async def _create_replica(self, request: web.Request, body: object) -> web.Response:
        optional = ("consent_video_url", "replica_name", "callback_url")
        asked = _asked(request, body, required=("train_video_url",), optional=optional)
        if isinstance(asked, str):
            return _bad_request(asked)
        scenario = self._replica_scenarios.popleft() if self._replica_scenarios else Scenario()
        replica_id = f"r{secrets.token_hex(5)}"
        replica = Replica(
            replica_id=replica_id,
            name=asked.get("replica_name") or f"Replica {replica_id}",
            created_at=self._clock.now(),
            pace=scenario.pace or self.pace,
            scenario=scenario,
            callback_plan=scenario.callback_plan or self.callback_plan,
            callback_url=asked.get("callback_url"),
        )
        self.replicas[replica_id] = replica
        await self._begin(replica)
        answer = {"replica_id": replica_id, "status": "training"}
        return web.json_response(_with(scenario.overrides, answer))

    async def _read_replica(self, request: web.Request, _body: object) -> web.Response:
        replica = self.replicas.get(request.match_info["id"])
        if replica is None:
            return web.json_response({"error": "Invalid replica_id"}, status=self.unknown_id_status)
        now = self._clock.now()
        ended = replica.ended(now)
        thumbnail = f"{self.url}/files/{replica.replica_id}.mp4" if ended == "success" else None
        answer = {
            "replica_id": replica.replica_id,
            "replica_name": replica.name,
            "thumbnail_video_url": thumbnail,
            "training_progress": replica.progress(now),
            "status": replica.status(now),
            "created_at": _iso(replica.created_at),
            "updated_at": _iso(now if ended is None else replica.ends_at or now),
            "error_message": replica.reason if ended == "error" else None,
            "replica_type": "user",
        }
        return web.json_response(_with(replica.scenario.overrides, answer))

    async def _watch(self, request: web.Request) -> web.Response:
        video = self.videos.get(request.match_info["id"])
        if video is None:
            raise web.HTTPNotFound
        now = self._clock.now()
        ended = video.ended(now)
        reasons: dict[Ending | None, str] = {
            "error": video.reason or "the service does not say why",
            "deleted": "it was deleted",
        }
        return player.page(
            video.video_id,
            video.name,
            video.script,
            video.replica_id,
            status=video.status(now),
            ready=ended == "success",
            reason=reasons.get(ended, ""),
        )

    async def _serve_file(self, request: web.Request) -> web.StreamResponse:
        job_id, ending = request.match_info["id"], request.match_info["ending"]
        job = self.videos.get(job_id) or self.replicas.get(job_id)
        if job is None or job.ended(self._clock.now()) != "success":
            raise web.HTTPNotFound
        if ending in player.FILES:
            return player.file(*player.FILES[ending])
        if ending == "vtt" and isinstance(job, Video):
            return web.Response(text=player.captions(job.script), content_type="text/vtt")
        if ending == "m3u8":
            text = player.playlist(f"{job_id}.mp4")
            return web.Response(text=text, content_type="application/vnd.apple.mpegurl")
        raise web.HTTPNotFound

    async def _serve_asset(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if name not in player.ASSETS:
            raise web.HTTPNotFound
        return player.file(name, player.ASSETS[name])

    def _video_body(
        self, video: Video, now: datetime, stamp: Callable[[datetime], str]
    ) -> dict[str, object]:
        ended = video.ended(now)
        files = f"{self.url}/files/{video.video_id}" if ended == "success" else None
        details: dict[Ending | None, str | None] = {
            None: "The video is waiting or being generated",
            "success": "The video is ready",
            "error": video.reason,
            "deleted": "The video was deleted",
        }
        body = {
            "video_id": video.video_id,
            "status": video.status(now),
            "data": {"script": video.script},
            "download_url": files and f"{files}.mp4",
            "stream_url": files and f"{files}.m3u8",
            "hosted_url": self._hosted_url(video),
            "status_details": details[ended],
            "created_at": stamp(video.created_at),
            "updated_at": stamp(video.updated_at(now)),
            "still_image_url": None,
        }
        return _with(video.scenario.overrides, body)

    def _hosted_url(self, video: Video) -> str:
        return f"{self.url}/watch/{video.video_id}"

    # Ends and callbacks

    def _job(self, job_id: str) -> Video | Replica:
        return self.videos.get(job_id) or self.replicas[job_id]

    def _end_now(self, job: Video | Replica, end: Ending, reason: str | None) -> None:
        now = self._clock.now()
        if job.ended(now) is not None:
            raise ValueError("it has ended")
        waiting = [
            each for each in self.videos.values() if each.replica is job and each.ended(now) is None
        ]
        job.scenario = replace(job.scenario, end=end, reason=reason)
        job.ended_by_hand_at = now
        for each in (job, *waiting):
            self._plan_callback(each)

    async def _begin(self, job: Video | Replica) -> None:
        if job.callback_url is not None and job.callback_plan.early:
            await self._send_as_planned(job, job.callback_url)
        self._plan_callback(job)

    def _plan_callback(self, job: Video | Replica) -> None:
        url, plan, ends_at = job.callback_url, job.callback_plan, job.ends_at
        job.call_back_at = None
        if url is None or plan.early or ends_at is None or job.end == "deleted":
            return
        moment = job.call_back_at = ends_at + plan.after

        async def call_back() -> None:
            # The job may have been ended by hand since: only the newest plan counts.
            if job.call_back_at == moment:
                job.call_back_at = None
                await self._send_as_planned(job, url)

        self._scheduler.at(moment, call_back)

    async def _send_as_planned(self, job: Video | Replica, url: str) -> None:
        for _ in range(job.callback_plan.times):
            body = self._callback_body(job, job.callback_plan)
            await self._send(url, job.callback_plan.method, body)

    def _callback_body(self, job: Video | Replica, plan: CallbackPlan) -> object:
        if plan.body is not AS_SEEN:
            return plan.body
        # An early callback tells of an end that is still to come.
        now = self._clock.now()
        moment = max(now, job.ends_at or now)
        ended = job.ended(moment)
        if isinstance(job, Video):
            body = self._video_body(job, moment, _iso)
            body |= {"replica_id": job.replica_id, "generation_progress": "100/100"}
            return body | {"error_details": None} if ended == "error" else body
        status = "ready" if ended == "success" else job.status(moment)
        body = {"replica_id": job.replica_id, "status": status}
        return body | {"error_message": job.reason} if ended == "error" else body

    async def _send(self, url: str, method: str, body: object) -> None:
        if self._session is None:
            raise RuntimeError("the service is stopped")
        callback = Callback(url, method, body, self._clock.now())
        self.callbacks.append(callback)
        data = body if isinstance(body, str) else json.dumps(body)
        content_type = "text/plain" if isinstance(body, str) else "application/json"
        path = urlsplit(url).path
        with self.wire.exchange("service", "bot", method, path, data.encode()) as exchange:
            try:
                async with self._session.request(
                    method,
                    url,
                    data=data,
                    headers={hdrs.CONTENT_TYPE: content_type},
                    allow_redirects=False,
                ) as answer:
                    callback.status = answer.status
                    exchange.answered(answer.status, await answer.read())
            except (aiohttp.ClientError, TimeoutError) as error:
                # The service cares as little: `status` stays None.
                exchange.failed = f"{NO_ANSWER}: {type(error).__name__}"


def _share(passed: timedelta, whole: timedelta) -> float:
    return min(1.0, passed / whole) if whole else 1.0


def _word(words: Sequence[str], share: float) -> str:
    return words[min(int(share * len(words)), len(words) - 1)]


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _asked(
    request: web.Request, body: object, *, required: Sequence[str], optional: Sequence[str]
) -> dict[str, str] | str:
    """Return the members that the operation knows, or what is wrong with the request."""
    if request.content_type != "application/json" or not isinstance(body, dict):
        return "The body has to be a JSON object, and Content-Type has to say so"
    asked: dict[str, str] = {}
    for name in (*required, *optional):
        value = body.get(name)
        if value is None and name in optional:
            continue
        if not isinstance(value, str) or (name in required and not value.strip()):
            return f"Invalid or missing {name}"
        if name.endswith("_url") and not value.startswith(("http://", "https://")):
            return f"Invalid {name}"
        asked[name] = value
    return asked


def _bad_request(error: str) -> web.Response:
    return web.json_response({"error": error}, status=400)


def _with(said: Mapping[str, object], answer: Mapping[str, object]) -> dict[str, object]:
    merged = {**answer, **said}
    return {name: value for name, value in merged.items() if value is not MISSING}


def _http_date(moment: datetime) -> str:
    return format_datetime(moment, usegmt=True)


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
