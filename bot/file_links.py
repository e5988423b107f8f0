"""Links that are known to open a page in a browser, where a video file is needed."""

import re
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from bot.links import BadLink, check_link

_DRIVE_FILE: Final = re.compile(r"/file/(?:u/\d+/)?d/([\w-]{10,})")
# https://help.dropbox.com/share/force-download
_DROPBOX_FILE: Final = re.compile(r"/(s|scl/fi)/")
_SHAREPOINT_FILE: Final = re.compile(r"/:[a-z]:/")
_SHAREPOINT: Final = ".sharepoint.com"
# Hosts, without "www.", whose links open a page and have no direct form that is known.
_PAGES: Final = frozenset(
    {
        *("1drv.ms", "onedrive.live.com", "docs.google.com", "photos.google.com"),
        *("photos.app.goo.gl", "icloud.com", "app.box.com", "wetransfer.com", "we.tl", "mega.nz"),
        *("youtube.com", "m.youtube.com", "youtu.be", "vimeo.com", "loom.com", "app.frame.io"),
        *("tiktok.com", "instagram.com", "facebook.com"),
    }
)


def check_file_link(text: str) -> str:
    """Return ``text`` as ``check_link`` does, if it can be a link to a file.

    Raises:
        BadLink: it is no usable link, or one that is known to open a page. The sentence has the
            direct form of the link if there is one.
    """
    link = check_link(text)
    host = (urlsplit(link).hostname or "").removeprefix("www.")
    direct = _direct_form(host, link)
    if direct is not None and direct != link:
        raise BadLink(
            "This link opens a page, not the file itself. If anyone with the link may see the "
            f"file, paste this one: {direct}"
        )
    if direct is None and host in {*_PAGES, "drive.google.com", "dropbox.com"}:
        raise BadLink(
            f"A link to {host} opens a page, not the file itself. Put the file where it gets a "
            "direct link, such as a cloud storage bucket."
        )
    return link


def _direct_form(host: str, link: str) -> str | None:
    """Return the link that downloads the file of a link, itself if it does; None if unknown."""
    parts = urlsplit(link)
    query = dict(parse_qsl(parts.query))
    if host == "drive.google.com":
        found = _DRIVE_FILE.match(parts.path)
        file = found[1] if found is not None else query.get("id", "")
        # Without ``confirm``, a large file is a page that warns of a missing virus scan.
        wanted = urlencode({"id": file, "export": "download", "confirm": "t"})
        return f"https://drive.usercontent.google.com/download?{wanted}" if file else None
    if host == "dropbox.com" and _DROPBOX_FILE.match(parts.path):
        return link if "1" in {query.get("dl"), query.get("raw")} else _with(link, dl="1")
    if host.endswith(_SHAREPOINT) and _SHAREPOINT_FILE.match(parts.path):
        return link if "download" in query else _with(link, download="1")
    return None


def _with(link: str, **more: str) -> str:
    parts = urlsplit(link)
    query = {**dict(parse_qsl(parts.query, keep_blank_values=True)), **more}
    return urlunsplit(parts._replace(query=urlencode(query)))
