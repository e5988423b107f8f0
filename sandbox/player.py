"""What the sandbox's videos show: one clip of our own making, under the script as captions."""

import html
import re
from datetime import timedelta
from pathlib import Path
from typing import Final

from aiohttp import hdrs, web

CLIP: Final = Path(__file__).parent / "clip"
#: How long the clip is.
LENGTH: Final = timedelta(seconds=8)
#: The files there are of each video and replica, by their ending: a file of the clip and its type.
FILES: Final = {
    "mp4": ("clip.mp4", "video/mp4"),
    "webm": ("clip.webm", "video/webm"),
}
#: What the page itself needs, likewise.
ASSETS: Final = {
    "icon.svg": "image/svg+xml",
    "watch.css": "text/css; charset=utf-8",
}
# In `clip.mp4` one fragment follows the header.
_HEADER: Final = 1334
_CAPTION: Final = 74
# What a page of the sandbox says of itself.
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
{refresh}<title>{title} · a sandbox video</title>
<link rel="icon" href="/clip/icon.svg">
<link rel="stylesheet" href="/clip/watch.css">
</head>
<body>
<p class="note" role="note">{note}</p>
<main>
<h1 dir="auto">{title}</h1>
{picture}
<h2>Script</h2>
<blockquote dir="auto">{script}</blockquote>
<p class="facts">A sandbox video · replica {replica}{download}</p>
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
_GOING: Final = (
    '<p class="state" role="status">It is not ready yet: the service says “{status}”. '
    "This page looks again by itself.</p>"
)
_FAILED: Final = '<p class="state" role="status">It cannot be watched: {reason}.</p>'


def page(
    video_id: str, name: str, script: str, replica: str, *, status: str, ready: bool, reason: str
) -> web.Response:
    """Return the page of a video; ``reason`` says why it will never be ready, if so."""
    if ready:
        picture = _PLAYER.format(id=html.escape(video_id))
    elif reason:
        picture = _FAILED.format(reason=html.escape(reason.removesuffix(".")))
    else:
        picture = _GOING.format(status=html.escape(status))
    text = _PAGE.format(
        title=html.escape(name),
        note=_NOTE,
        refresh="" if ready or reason else '<meta http-equiv="refresh" content="3">\n',
        picture=picture,
        script=html.escape(script),
        replica=html.escape(replica),
        download=f' · <a download href="/files/{html.escape(video_id)}.mp4">Download</a>'
        if ready
        else "",
    )
    return web.Response(text=text, content_type="text/html")


def captions(script: str) -> str:
    """Return the script as a WebVTT track: cut into lines, which share the clip by their length."""
    lines = _lines(script)
    whole = sum(map(len, lines)) or 1
    cues, said = ["WEBVTT"], 0
    for line in lines:
        begin, said = said, said + len(line)
        # A caption is text with markup, so what is markup has to be escaped: `-->` with it.
        times = f"{_moment(begin / whole)} --> {_moment(said / whole)}"
        cues.append(f"{times}\n{html.escape(line, quote=False)}")
    return "\n\n".join(cues) + "\n"


def playlist(clip: str) -> str:
    """Return the clip as a stream: an HLS playlist over parts of the file named ``clip``."""
    rest = (CLIP / "clip.mp4").stat().st_size - _HEADER
    seconds = LENGTH.total_seconds()
    return (
        "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-PLAYLIST-TYPE:VOD\n"
        f"#EXT-X-TARGETDURATION:{seconds:.0f}\n"
        f'#EXT-X-MAP:URI="{clip}",BYTERANGE="{_HEADER}@0"\n'
        f"#EXTINF:{seconds:.3f},\n#EXT-X-BYTERANGE:{rest}@{_HEADER}\n{clip}\n#EXT-X-ENDLIST\n"
    )


def file(name: str, content_type: str) -> web.FileResponse:
    """Return a file of the clip's folder, in parts where those are asked for."""
    return web.FileResponse(CLIP / name, headers={hdrs.CONTENT_TYPE: content_type})


def _lines(script: str) -> list[str]:
    """Cut a script into lines that can be read at once: at sentences, else between words."""
    lines: list[str] = []
    for sentence in re.split(r"(?<=[.!?…])\s+|\s*\n\s*", script.strip()):
        line = ""
        for word in sentence.split():
            parts = [word[at : at + _CAPTION] for at in range(0, len(word), _CAPTION)]
            for part in parts:
                longer = f"{line} {part}".strip()
                if len(longer) > _CAPTION:
                    lines.append(line)
                line = longer if len(longer) <= _CAPTION else part
        lines += [line] if line else []
    return lines


def _moment(share: float) -> str:
    return f"00:00:{share * LENGTH.total_seconds():06.3f}"
