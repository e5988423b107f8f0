"""Links that are known to open a page in a browser, where a video file is needed."""

import re
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from bot.links import BadLink, check_link

_DRIVE_FILE: Final = re.compile(r"/file/(?:u/\d+/)?d/([\w-]{10,})")
# https://help.dropbox.com/share/force-download
_DROPBOX_FILE: Final = re.compile(r"/(s|scl/fi)/")
_SHAREPOINT_FILE: Final = re.compile(r"/:[a-z]:/")
_SHAREPOINT_PAGE: Final = re.compile(r".*/_layouts/.*(?<!/download)\.aspx", re.IGNORECASE)
_SHAREPOINT: Final = ".sharepoint.com"
# Hosts, without "www.", whose links open a page and have no direct form that is known.
_PAGES: Final = frozenset(
    {
        *("1drv.ms", "onedrive.live.com", "docs.google.com", "drive.google.com"),
        *("photos.google.com", "photos.app.goo.gl", "dropbox.com", "wetransfer.com", "we.tl"),
        *("mega.nz", "youtu.be", "vimeo.com", "loom.com", "app.frame.io", "f.io"),
    }
)
# The same for hosts at the end of whose names these are: acme.slack.com, music.youtube.com. What
# Slack keeps can only be opened by people who have signed in.
_SITES: Final = (
    *("youtube.com", "youtube-nocookie.com", "icloud.com", "box.com", "slack.com", "zoom.us"),
    *("tiktok.com", "instagram.com", "facebook.com"),
)
# Of those, and of players: host and path.
_BOX_FILE: Final = re.compile(r"([\w-]+\.)*box\.com/shared/static/")
_PLAYER: Final = re.compile(r"player\.vimeo\.com/video/")


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
    if direct is None and _is_page(host, urlsplit(link).path):
        raise BadLink(
            f"A link to {host} opens a page, not the file itself. Put the file where it gets a "
            "direct link, such as a cloud storage bucket."
        )
    return link


def _direct_form(host: str, link: str) -> str | None:
    """Return the link that downloads the file of a link, itself if it does; None if unknown."""
    parts = urlsplit(link)
    query = dict(parse_qsl(parts.query))
    if host in {"drive.google.com", "docs.google.com"}:
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


def _is_page(host: str, path: str) -> bool:
    """Return whether links of this host and path are known to open a page."""
    if host.endswith(_SHAREPOINT):
        return _SHAREPOINT_PAGE.fullmatch(path) is not None
    if _BOX_FILE.match(host + path):
        return False
    is_site = any(host == site or host.endswith(f".{site}") for site in _SITES)
    return is_site or host in _PAGES or _PLAYER.match(host + path) is not None


def _with(link: str, **more: str) -> str:
    parts = urlsplit(link)
    query = {**dict(parse_qsl(parts.query, keep_blank_values=True)), **more}
    return urlunsplit(parts._replace(query=urlencode(query)))
