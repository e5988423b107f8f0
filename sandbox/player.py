"""The page on which a sandbox video is watched: a clip of our own, with the script as captions."""

import html
import re
import textwrap
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from bot.timings import Clock
from sandbox.faults import Fault, respond
from sandbox.scenarios import Ending
from sandbox.scheduler import Scheduler
from sandbox.service_jobs import Replica, Video

#: The name under which downloads of MP4 files are found in ``faults``.
DOWNLOAD: Final = "download"
_CLIP: Final = Path(__file__).parent / "clip"
# The duration of the clip.
DURATION: Final = timedelta(seconds=8)
# The files of each video and replica by their ending: a file of the clip, and its type.
_FILES: Final = {
    "mp4": ("clip.mp4", "video/mp4"),
    "webm": ("clip.webm", "video/webm"),
}
# The files that the page itself needs, with their types.
_ASSETS: Final = {
    "icon.svg": "image/svg+xml",
    "watch.css": "text/css; charset=utf-8",
    "watch.js": "text/javascript; charset=utf-8",
}
# In `clip.mp4`, one fragment follows the header.
_HEADER_BYTES: Final = 1334
_CAPTION_LENGTH: Final = 74
_NOTE: Final = (
    "Sandbox: this is neither Slack nor a video service. Nothing was filmed, and everything runs "
    "on your machine."
)
_PAGE: Final = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · a sandbox video</title>
<link rel="icon" href="/clip/icon.svg">
<link rel="stylesheet" href="/clip/watch.css">
{script}</head>
<body>
<p class="note" role="note">{note}</p>
<main>
<h1 dir="auto">{title}</h1>
{picture}
<h2>Script</h2>
<blockquote dir="auto">{spoken}</blockquote>
<p class="facts">A sandbox video · Replica: {replica}{download}</p>
</main>
</body>
</html>
"""
_PLAYER: Final = """\
<video controls playsinline preload="auto" width="640" height="360">
<source src="/files/{id}.webm" type="video/webm">
<source src="/files/{id}.mp4" type="video/mp4">
<track kind="captions" label="Script" srclang="en" src="/files/{id}.vtt" default>
</video>"""
_OPEN: Final = (
    '<p class="state" role="status">This video is not ready yet. Its status is “{status}”. '
    "This page updates by itself.</p>"
)
_FAILED: Final = '<p class="state" role="status">This video cannot be watched: {reason}.</p>'


class Downloads:
    """The MP4 files as they are asked for; ``take`` returns the fault of each."""

    def __init__(self, take: Callable[[], Fault | None], scheduler: Scheduler) -> None:
        self.paths: list[str] = []
        self._take = take
        self._scheduler = scheduler

    @web.middleware
    async def serve(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Note what is asked for, and apply a fault."""
        if not request.path.endswith(".mp4"):
            return await handler(request)
        self.paths.append(request.path)
        fault = self._take()
        return await respond(request, fault, lambda: handler(request), self._scheduler)


def add_routes(
    app: web.Application, clock: Clock, find: Callable[[str], Video | Replica | None]
) -> None:
    """Serve what the links of jobs lead to; ``find`` returns the job with an id."""

    async def serve_page(request: web.Request) -> web.Response:
        video = find(request.match_info["id"])
        if not isinstance(video, Video):
            raise web.HTTPNotFound
        replica = find(video.replica_id)
        return _page(video, replica.title if replica else video.replica_id, clock.now())

    async def serve_file(request: web.Request) -> web.StreamResponse:
        job_id, ending = request.match_info["id"], request.match_info["ending"]
        job = find(job_id)
        if job is None or job.ended(clock.now()) != "success":
            raise web.HTTPNotFound
        return _job_file(job, job_id, ending)

    async def serve_asset(request: web.Request) -> web.StreamResponse:
        return _asset(request.match_info["name"])

    app.router.add_get("/watch/{id}", serve_page)
    app.router.add_get("/files/{id}.{ending}", serve_file)
    app.router.add_get("/clip/{name}", serve_asset)


def _page(video: Video, replica: str, now: datetime) -> web.Response:
    """Return the page on which a video is watched."""
    ended = video.ended(now)
    reasons: dict[Ending | None, str] = {
        "error": video.reason or "the service does not say why",
        "deleted": "it was deleted",
    }
    if ended == "success":
        picture = _PLAYER.format(id=html.escape(video.video_id))
    elif reason := reasons.get(ended, ""):
        picture = _FAILED.format(reason=html.escape(reason.removesuffix(".")))
    else:
        picture = _OPEN.format(status=html.escape(video.status(now)))
    text = _PAGE.format(
        title=html.escape(video.title),
        note=_NOTE,
        script="" if ended else '<script type="module" src="/clip/watch.js"></script>\n',
        picture=picture,
        spoken=html.escape(video.script),
        replica=html.escape(replica),
        download=f' · <a download href="/files/{html.escape(video.video_id)}.mp4">Download</a>'
        if ended == "success"
        else "",
    )
    return web.Response(text=text, content_type="text/html")


def _job_file(job: Video | Replica, job_id: str, ending: str) -> web.StreamResponse:
    """Return a file of a finished job by its ending.

    Raises:
        web.HTTPNotFound: there is none.
    """
    if ending in _FILES:
        return _file(*_FILES[ending])
    if ending == "vtt" and isinstance(job, Video):
        return web.Response(text=captions(job.script), content_type="text/vtt")
    if ending == "m3u8":
        text = playlist(f"{job_id}.mp4")
        return web.Response(text=text, content_type="application/vnd.apple.mpegurl")
    raise web.HTTPNotFound


def _asset(name: str) -> web.StreamResponse:
    """Return a file that the page itself needs; raises ``web.HTTPNotFound`` for any other."""
    if name not in _ASSETS:
        raise web.HTTPNotFound
    return _file(name, _ASSETS[name])


def captions(script: str) -> str:
    """Return the script as a WebVTT track, its lines spread over the clip by their length."""
    lines = _lines(script)
    whole = sum(map(len, lines)) or 1
    cues, said = ["WEBVTT"], 0
    for line in lines:
        begin, said = said, said + len(line)
        # Captions may hold markup, so escape it; that also escapes `-->`.
        times = f"{_moment(begin / whole)} --> {_moment(said / whole)}"
        cues.append(f"{times}\n{html.escape(line, quote=False)}")
    return "\n\n".join(cues) + "\n"


def playlist(clip: str) -> str:
    """Return an HLS playlist over parts of the file named ``clip``."""
    rest = (_CLIP / "clip.mp4").stat().st_size - _HEADER_BYTES
    seconds = DURATION.total_seconds()
    return (
        "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-PLAYLIST-TYPE:VOD\n"
        f"#EXT-X-TARGETDURATION:{seconds:.0f}\n"
        f'#EXT-X-MAP:URI="{clip}",BYTERANGE="{_HEADER_BYTES}@0"\n'
        f"#EXTINF:{seconds:.3f},\n#EXT-X-BYTERANGE:{rest}@{_HEADER_BYTES}\n{clip}\n#EXT-X-ENDLIST\n"
    )


def _file(name: str, content_type: str) -> web.FileResponse:
    """Return a file of the clip's folder; range requests are answered."""
    return web.FileResponse(_CLIP / name, headers={hdrs.CONTENT_TYPE: content_type})


def _lines(script: str) -> list[str]:
    """Cut a script into lines for captions: at sentences, else between words."""
    sentences = re.split(r"(?<=[.!?…])\s+|\s*\n\s*", script.strip())
    wrapped = partial(textwrap.wrap, width=_CAPTION_LENGTH, break_on_hyphens=False)
    return [line for sentence in sentences for line in wrapped(sentence)]


def _moment(share: float) -> str:
    return f"00:00:{share * DURATION.total_seconds():06.3f}"
