"""The sandbox's video service: the interface's four operations and a list, as seen elsewhere."""

import secrets
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Any, Final, Literal, get_args

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from bot.timings import Clock
from sandbox import player, service_bodies
from sandbox.callbacks import Callback, CallbackSender
from sandbox.faults import Fault, Faults, Queues, hang, respond
from sandbox.http import Server
from sandbox.key_quotes import KeyQuote, quoting
from sandbox.scenarios import AS_SEEN, CallbackPlan, Ending, Pace, Scenario
from sandbox.scheduler import Scheduler
from sandbox.service_jobs import ENDS, Replica, Video
from sandbox.service_limits import Limits, RateLimit
from sandbox.service_lists import Lists
from sandbox.wire import Wire

Operation = Literal["create_video", "read_video", "create_replica", "read_replica", "list_replicas"]
#: All that the bot can ask for, but for the files of videos.
OPERATIONS: Final[tuple[Operation, ...]] = get_args(Operation)
#: Those that cost money.
CREATES: Final[tuple[Operation, ...]] = ("create_video", "create_replica")

Hook = Callable[[Literal["before", "after"], Operation, str], Awaitable[None]]

_DOWN: Final = "<html><body><h1>503 Service Temporarily Unavailable</h1></body></html>"


@dataclass
class Request:
    """One request that arrived.

    Attributes:
        operation: which one.
        method: the HTTP method.
        path: the path, without a query.
        body: the JSON value that came with it; None if none did.
        at: when it arrived.
        status: the HTTP status of its response; None while there is none, and for good if the
            connection was dropped.
        done: whether the work was done.
    """

    operation: Operation
    method: str
    path: str
    body: Any
    at: datetime
    status: int | None = None
    done: bool = False


class SandboxVideoService:
    """A video service on this machine that keeps its videos and replicas in memory.

    Attributes:
        api_key: the only key that it accepts.
        faults: what goes wrong with coming requests.
        scenarios: how the jobs go that coming requests create; the others succeed.
        requests: every request that arrived, without its key, in order.
        downloads: the MP4 files that were asked for.
        videos: by id, in the order of creation.
        replicas: likewise.
        pace: how long jobs take that are created from now on.
        callback_plan: how the callbacks are sent of jobs that are created from now on.
        on_request: awaited just before the work of a request and just after it, before the response
            is sent, with the operation and the path; not called when a fault prevents the work.
        on_learned: called once for each job, when the bot has read that it ended.
        out_of_credit: whether create calls are answered 402.
        key_revoked: whether everything is answered as a wrong key is.
        wrong_key_status: the answer to a wrong key: 401, or 403 of a gateway before the service.
        down: whether everything is answered 503, in HTML.
        stalled: whether create calls wait until this ends, and are answered as things are then.
        rate_limited: until when everything is answered 429.
        quotes_key: how it writes the key into its answers; None for not at all.
        limits: whom it turns away otherwise: for one id, one replica, or too many calls a second.
        unknown_id_status: the answer to a read of an unknown id; 400 has been seen, not 404. With
            403, the service hides which ids there are.
        lists: how it lists its replicas.
        wire: the log of requests and callbacks.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        api_key: str = "sandbox-key/4+2=&x",
        pace: Pace | None = None,
    ) -> None:
        """Make a service that does not listen yet.

        Args:
            clock: the time of its jobs and callbacks.
            api_key: the only key that it accepts.
            pace: how long its jobs take; by default as long as at real services.
        """
        self.api_key = api_key
        self.faults = Faults()
        self.scenarios = Queues[Scenario]()
        self.requests: list[Request] = []
        self.videos: dict[str, Video] = {}
        self.replicas: dict[str, Replica] = {}
        self.pace = pace or Pace()
        self.callback_plan = CallbackPlan()
        self.on_request: Hook | None = None
        self.on_learned: Callable[[Video | Replica], None] | None = None
        self.out_of_credit = False
        self.key_revoked = False
        self.wrong_key_status = 401
        self.down = False
        self.stalled = False
        self.rate_limited: RateLimit | None = None
        self.quotes_key: KeyQuote | None = None
        self.limits = Limits()
        self.lists = Lists()
        self.unknown_id_status = 400
        self.wire = Wire(clock)
        self.wire.secrets.add(api_key)
        self._clock = clock
        self._scheduler = Scheduler(clock)
        self.downloads = player.Downloads(
            lambda: self.faults.take(player.DOWNLOAD), self._scheduler
        )
        self._callbacks = CallbackSender(
            clock, self._scheduler, wire=lambda: self.wire, base_url=lambda: self.url
        )
        self._server = Server(self._app())

    @property
    def url(self) -> str:
        """Return the interface's ``{base_url}``, such as ``http://127.0.0.1:41233``."""
        return self._server.url

    @property
    def callbacks(self) -> list[Callback]:
        """Return every callback that was sent, in order."""
        return self._callbacks.sent

    async def start(self, port: int = 0) -> None:
        """Listen on ``port``, or on any free one for 0, and send the callbacks that are due.

        A service that was stopped continues with everything that it had.

        Raises:
            OSError: the port is taken.
        """
        await self._server.start(port)
        await self._scheduler.start()

    async def stop(self) -> None:
        """Stop listening, drop the open requests and send no more callbacks."""
        await self._scheduler.stop()
        await self._server.stop()

    # What a tester decides

    def next_video(self, *scenarios: Scenario) -> None:
        """Play ``scenarios`` with the next videos created, one each; the others succeed."""
        self.scenarios.next("create_video", *scenarios)

    def next_replica(self, *scenarios: Scenario) -> None:
        """Play ``scenarios`` with the next replicas created, one each; the others succeed."""
        self.scenarios.next("create_replica", *scenarios)

    def set_callback_times(self, times: int) -> None:
        """Send every callback ``times`` times: those of open jobs and of coming ones."""
        self.callback_plan = replace(self.callback_plan, times=times)
        for job in (*self.videos.values(), *self.replicas.values()):
            job.callback_plan = replace(job.callback_plan, times=times)

    def answer_all(self, fault: Fault | None, operations: Iterable[Operation] = OPERATIONS) -> None:
        """Answer all requests with ``fault`` from now on; None ends that."""
        for operation in operations:
            self.faults.always(operation, fault)

    def add_replica(self, replica_id: str, name: str, status: str = "completed") -> Replica:
        """Add a replica that has ``status`` from the start: trained, failed or stuck."""
        end, now = ENDS.get(status, "never"), self._clock.now()
        final_status = None if end == "never" else status
        self.replicas[replica_id] = replica = Replica(
            replica_id=replica_id,
            name=name,
            created_at=now,
            pace=self.pace,
            scenario=Scenario(end=end, final_status=final_status, statuses=(status,)),
            callback_plan=self.callback_plan,
            ended_by_hand_at=None if end == "never" else now,
        )
        return replica

    def finish(self, job_id: str) -> None:
        """Let an open video or replica succeed now.

        Raises:
            KeyError: there is no such video or replica.
            ValueError: it has ended.
        """
        self._end_now(self._job(job_id), "success", None)

    def fail(self, job_id: str, reason: str | None) -> None:
        """Let an open video or replica fail now; raises as ``finish`` does."""
        self._end_now(self._job(job_id), "error", reason)

    def delete(self, job_id: str) -> None:
        """Delete a video or replica, open or ended, without a callback; raises ``KeyError``."""
        job = self._job(job_id)
        if job.ended(self._clock.now()) is None:
            self._end_now(job, "deleted", None)
        job.deleted = True
        job.call_back_at = None

    async def call_back(self, job_id: str, body: object = AS_SEEN) -> None:
        """Send the callback of a job's end once, now, even if the job goes on.

        Raises:
            KeyError: there is no such video or replica.
            ValueError: no callback was asked for.
        """
        job = self._job(job_id)
        if job.callback_url is None:
            raise ValueError(f"{job_id} was created without a callback_url")
        await self._callbacks.send(job, job.callback_url, body)

    def _video(self, video_id: str) -> Video | None:
        found = self.videos.get(video_id) or self.videos.get(video_id.lower())
        exact = found is not None and found.video_id == video_id
        return found if found and (exact or found.scenario.id_case == "upper") else None

    def _find(self, job_id: str) -> Video | Replica | None:
        return self.videos.get(job_id) or self.replicas.get(job_id)

    def _job(self, job_id: str) -> Video | Replica:
        if (job := self._find(job_id)) is None:
            raise KeyError(job_id)
        return job

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
            self._callbacks.plan(each)

    # The four operations

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._record, self.downloads.serve])
        get, post = app.router.add_get, app.router.add_post
        post("/v2/videos", partial(self._serve, "create_video", self._create_video))
        get("/v2/replicas", partial(self._serve, "list_replicas", self._list_replicas))
        get("/v2/videos/{id}", partial(self._serve, "read_video", self._read_video))
        post("/v2/replicas", partial(self._serve, "create_replica", self._create_replica))
        get("/v2/replicas/{id}", partial(self._serve, "read_replica", self._read_replica))
        player.add_routes(app, self._clock, self._find)
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
        body = service_bodies.parse(await request.text())
        record = Request(operation, request.method, request.path, body, self._clock.now())
        self.requests.append(record)

        async def work() -> web.Response:
            if self.on_request is not None:
                await self.on_request("before", operation, request.path)
            if operation in CREATES:
                await hang(request, lambda: self.stalled)
            response = self._refusal(operation, request) or self.limits.refusal(
                operation, request, body
            )
            if response is None:
                response = await operate(request, body)
            record.done = response.status == HTTPStatus.OK
            if self.quotes_key is not None and response.content_type == "application/json":
                response = quoting(response, self.api_key, self.quotes_key)
            if self.on_request is not None:
                await self.on_request("after", operation, request.path)
            return response

        fault = self.faults.take(operation)
        response = await respond(request, fault, work, self._scheduler)
        if request.transport is not None and not request.transport.is_closing():
            record.status = response.status
        if fault is None and record.done and (job_id := request.match_info.get("id")):
            self._note_read(self._video(job_id) or self.replicas[job_id])
        return response

    def _note_read(self, job: Video | Replica) -> None:
        """Note how the bot learned of a job's end, if it has just read that."""
        had_ended = job.ended_by_hand_at == job.created_at
        if job.learned_by or had_ended or job.ended(self._clock.now()) is None:
            return
        job.learned_by = "callback" if self._callbacks.has_told(job) else "poll"
        if self.on_learned is not None:
            self.on_learned(job)

    def _refusal(self, operation: Operation, request: web.Request) -> web.Response | None:
        if self.down:
            return web.Response(status=503, text=_DOWN, content_type="text/html")
        if self.key_revoked or request.headers.get("x-api-key") != self.api_key:
            said = {"message": "Invalid API key"}
            return web.json_response(said, status=self.wrong_key_status)
        if self.rate_limited is not None and self._clock.now() < self.rate_limited.until:
            wait = self.rate_limited.retry_after
            headers = {} if wait is None else {hdrs.RETRY_AFTER: f"{wait.total_seconds():.0f}"}
            return web.json_response({"message": "Too many requests"}, status=429, headers=headers)
        if self.out_of_credit and operation in CREATES:
            return web.json_response({"error": "The account is out of credit"}, status=402)
        return None

    async def _create_video(self, request: web.Request, body: object) -> web.Response:
        optional = ("video_name", "background_url", "background_source_url", "callback_url")
        members = service_bodies.check(
            request, body, required=("script", "replica_id"), optional=optional
        )
        if isinstance(members, str):
            return service_bodies.bad_request(members)
        replica = self.replicas.get(members["replica_id"])
        if replica is None:
            return service_bodies.bad_request("Invalid replica_id")
        scenario = self.scenarios.take("create_video") or Scenario()
        video_id = f"v{secrets.token_hex(5)}"
        video = Video(
            video_id=video_id,
            name=members.get("video_name") or f"Video {video_id}",
            named=bool(members.get("video_name")),
            script=members["script"],
            replica_id=members["replica_id"],
            replica=replica,
            created_at=self._clock.now(),
            pace=scenario.pace or self.pace,
            scenario=scenario,
            callback_plan=scenario.callback_plan or self.callback_plan,
            callback_url=members.get("callback_url"),
        )
        self.videos[video_id] = video
        await self._callbacks.job_created(video)
        return web.json_response(service_bodies.video_created(video, self.url))

    async def _read_video(self, request: web.Request, _body: object) -> web.Response:
        video = self._video(request.match_info["id"])
        if video is None:
            return web.json_response({"error": "Invalid video_id"}, status=self.unknown_id_status)
        return web.json_response(service_bodies.video_read(video, self._clock.now(), self.url))

    async def _list_replicas(self, request: web.Request, _body: object) -> web.Response:
        replicas = [*self.replicas.values()]
        return self.lists.page(request, replicas, self._clock.now(), self.url)

    async def _create_replica(self, request: web.Request, body: object) -> web.Response:
        optional = ("consent_video_url", "replica_name", "callback_url")
        members = service_bodies.check(
            request, body, required=("train_video_url",), optional=optional
        )
        if isinstance(members, str):
            return service_bodies.bad_request(members)
        scenario = self.scenarios.take("create_replica") or Scenario()
        replica_id = f"r{secrets.token_hex(5)}"
        replica = Replica(
            replica_id=replica_id,
            name=members.get("replica_name") or f"Replica {replica_id}",
            created_at=self._clock.now(),
            pace=scenario.pace or self.pace,
            scenario=scenario,
            callback_plan=scenario.callback_plan or self.callback_plan,
            callback_url=members.get("callback_url"),
        )
        self.replicas[replica_id] = replica
        await self._callbacks.job_created(replica)
        return web.json_response(service_bodies.replica_created(replica))

    async def _read_replica(self, request: web.Request, _body: object) -> web.Response:
        replica = self.replicas.get(request.match_info["id"])
        if replica is None:
            return web.json_response({"error": "Invalid replica_id"}, status=self.unknown_id_status)
        return web.json_response(service_bodies.replica_read(replica, self._clock.now(), self.url))
