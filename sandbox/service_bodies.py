"""The bodies of the video service's requests, answers and callbacks.

Each timestamp has the form that has been seen in its place: three differ.
"""

import html
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from email.utils import format_datetime
from typing import Final

from aiohttp import web

from sandbox.block_kit import Json
from sandbox.scenarios import AS_SEEN, MISSING, CallbackPlan, Echo, Ending
from sandbox.service_jobs import Replica, Video

_CUT_AT: Final = 40  # characters


def parse(text: str) -> object:
    """Return the JSON value of a request body, or None if it is not JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def check(
    request: web.Request, body: object, *, required: Sequence[str], optional: Sequence[str]
) -> dict[str, str] | str:
    """Return the members that the operation knows, or a sentence that says what is wrong."""
    if request.content_type != "application/json" or not isinstance(body, dict):
        return "The body has to be a JSON object, and Content-Type has to say so"
    members: dict[str, str] = {}
    for name in (*required, *optional):
        value = body.get(name)
        if value is None and name in optional:
            continue
        if not isinstance(value, str) or (name in required and not value.strip()):
            return f"Invalid or missing {name}"
        if name.endswith("_url") and not value.startswith(("http://", "https://")):
            return f"Invalid {name}"
        members[name] = value
    return members


def bad_request(error: str) -> web.Response:
    """Return the answer to a request that is wrong."""
    return web.json_response({"error": error}, status=400)


def video_created(video: Video, base_url: str) -> Json:
    """Return the answer to a create-video call."""
    body = {
        "video_id": video.video_id,
        "video_name": video.name,
        "status": "queued",
        "hosted_url": _hosted_url(video, base_url),
        "created_at": f"{video.created_at:%Y-%m-%d %H:%M:%S.%f}",
    }
    return _overridden(body, video.scenario.overrides)


def video_read(video: Video, now: datetime, base_url: str) -> Json:
    """Return the answer to a read of a video."""
    return _video(video, now, base_url, _http_date)


def replica_created(replica: Replica) -> Json:
    """Return the answer to a create-replica call."""
    body = {"replica_id": replica.replica_id, "status": "training"}
    return _overridden(body, replica.scenario.overrides)


def replica_read(replica: Replica, now: datetime, base_url: str) -> Json:
    """Return the answer to a read of a replica."""
    ended = replica.ended(now)
    thumbnail = f"{base_url}/files/{replica.replica_id}.mp4" if ended == "success" else None
    body = {
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
    return _overridden(body, replica.scenario.overrides)


def callback(job: Video | Replica, plan: CallbackPlan, now: datetime, base_url: str) -> object:
    """Return the body of a callback: text to send unchanged, or a value to send as JSON."""
    if plan.body is not AS_SEEN:
        return plan.body
    # An early callback reports an end that is still to come.
    moment = max(now, job.ends_at or now)
    ended = job.ended(moment)
    if isinstance(job, Video):
        body = _video(job, moment, base_url, _iso)
        body |= {"replica_id": job.replica_id, "generation_progress": "100/100"}
        return body | {"error_details": None} if ended == "error" else body
    status = "ready" if ended == "success" else job.status(moment)
    body = {"replica_id": job.replica_id, "status": status}
    return body | {"error_message": job.reason} if ended == "error" else body


def _video(
    video: Video, now: datetime, base_url: str, timestamp: Callable[[datetime], str]
) -> Json:
    ended = video.ended(now)
    files = f"{base_url}/files/{video.video_id}" if ended == "success" else None
    details: dict[Ending | None, str | None] = {
        None: "The video is waiting or being generated",
        "success": "The video is ready",
        "error": video.reason,
        "deleted": "The video was deleted",
    }
    body = {
        "video_id": _shown_id(video),
        "status": video.status(now),
        "data": _data(video.script, video.scenario.echo),
        "download_url": files and f"{files}.mp4",
        "stream_url": files and f"{files}.m3u8",
        "hosted_url": _hosted_url(video, base_url),
        "status_details": details[ended],
        "created_at": timestamp(video.created_at),
        "updated_at": timestamp(video.updated_at(now)),
        "still_image_url": None,
    }
    return _overridden(body, video.scenario.overrides)


def _shown_id(video: Video) -> str:
    return video.video_id.upper() if video.scenario.id_case == "upper" else video.video_id


def _data(script: str, echo: Echo) -> Json | None:
    match echo:
        case Echo.NO_DATA:
            return None
        case Echo.NORMALISED:
            quoted = script.replace(' "', " “").replace('"', "”").replace("'", "\u2019")
            return {"script": " ".join(quoted.lower().split())}
        case Echo.ESCAPED:
            return {"script": html.escape(script)}
        case Echo.CUT:
            return {"script": script if len(script) <= _CUT_AT else f"{script[:_CUT_AT]}…"}
        case Echo.EXACT:
            return {"script": script}


def _hosted_url(video: Video, base_url: str) -> str:
    return f"{base_url}/watch/{video.video_id}"


def _overridden(body: Json, overrides: Mapping[str, object]) -> Json:
    merged = {**body, **overrides}
    return {name: value for name, value in merged.items() if value is not MISSING}


def _http_date(moment: datetime) -> str:
    return format_datetime(moment, usegmt=True)


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
