"""The lists of the sandbox's video service: in no contract, but such services have them.

``GET /v2/videos`` and ``GET /v2/replicas`` with ``limit`` and ``page``, answered with ``data`` and
``total_count`` (https://docs.tavus.io/api-reference/video-request/get-videos).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal

from aiohttp import web

from sandbox import service_bodies
from sandbox.block_kit import Json
from sandbox.service_jobs import Replica, Video

_DEFAULT_LIMIT: Final = "10"
_MAX_LIMIT: Final = 100
# What a list of videos leaves out that a read has.
_UNLISTED: Final = ("created_at", "updated_at")


@dataclass
class Lists:
    """How the service lists.

    Attributes:
        on: whether it lists at all; if not, it answers 404.
        times: the form of ``created_at``: HTTP dates, without a zone, ISO 8601, or left out as in
            the documentation's example.
        replica_ids: whether a video is listed with the id of its replica.
        pages: whether it knows pages; if not, each is the first one.
        echoes: whether what was asked for is listed with its ``callback_url``.
        overrides: members that are listed wrong, by the id of the video or replica.
    """

    on: bool = True
    times: Literal["http", "no zone", "iso", "none"] = "iso"
    replica_ids: bool = True
    pages: bool = True
    echoes: bool = False
    overrides: dict[str, Mapping[str, object]] = field(default_factory=dict)

    def page(
        self, request: web.Request, jobs: Sequence[Video | Replica], now: datetime, base_url: str
    ) -> web.Response:
        """Return a page of what is not deleted, the newest first.

        ``replica_type`` limits replicas to "user" or "system": all are of people here.
        """
        if not self.on:
            return web.json_response({"message": "Not found"}, status=404)
        limit = request.query.get("limit", _DEFAULT_LIMIT)
        page = request.query.get("page", "1")
        if not limit.isdecimal() or not page.isdecimal() or not 1 <= int(limit) <= _MAX_LIMIT:
            return service_bodies.bad_request("Invalid limit or page")
        if request.query.get("replica_type", "user") != "user":
            jobs = []
        shown = sorted(
            (each for each in jobs if not each.deleted),
            key=lambda each: each.created_at,
            reverse=True,
        )
        end = (max(1, int(page)) if self.pages else 1) * int(limit)
        data = [self._listed(each, now, base_url) for each in shown[end - int(limit) : end]]
        return web.json_response({"data": data, "total_count": len(shown)})

    def _listed(self, job: Video | Replica, now: datetime, base_url: str) -> Json:
        if isinstance(job, Video):
            job_id, body = job.video_id, service_bodies.video_read(job, now, base_url)
            body["video_name"] = job.name
            if self.replica_ids:
                body["replica_id"] = job.replica_id
        else:
            job_id, body = job.replica_id, service_bodies.replica_read(job, now, base_url)
        for name in _UNLISTED:
            body.pop(name, None)
        if (created_at := job.scenario.overrides.get("created_at")) is not None:
            body["created_at"] = created_at
        elif self.times != "none":
            body["created_at"] = service_bodies.written(job.created_at, self.times)
        if self.echoes:
            body["callback_url"] = job.callback_url or ""
        return {**body, **self.overrides.get(job_id, {})}
