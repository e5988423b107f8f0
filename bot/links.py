"""Links that people give us: checked before they are sent on, and shown safely; none is opened."""

import re
import unicodedata
from datetime import UTC, datetime, timedelta
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import httpx

# In characters, as the forms' fields have it. Signed links are long.
_MAX_LINK: Final = 3000
_MAX_GIVEN_LINK: Final = 4000  # by the service
_MAX_HOST: Final = 253
_MAX_SHOWN: Final = 60
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
# Ports below belong to other protocols (RFC 6335), as do these above: those that browsers do not
# open (https://fetch.spec.whatwg.org/#port-blocking), databases and remote desktops.
_FIRST_FREE_PORT: Final = 1024
_MAX_PORT: Final = 65535
_OTHER_PORTS: Final = {
    *(1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6679, 6697, 10080),
    *range(6665, 6670),
    *(1433, 1521, 3306, 3389, 5432, 5900, 6379, 11211, 27017),
}

# What a link that is copied from a text may have around it.
_QUOTES: Final = {"<>", '""', "''", "``", "“”", "„“", "«»", "\u2018\u2019", "\u2039\u203a"}

# re.ASCII: to re.IGNORECASE alone, "http" with a long s (U+017F) is https.
_LINK: Final = re.compile(
    r"(?P<scheme>https?)://(?P<authority>[^/?#]*)(?P<rest>.*)",
    re.ASCII | re.DOTALL | re.IGNORECASE,
)
_AUTHORITY: Final = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:\[\]]*)(:(?P<port>[0-9]{0,5}))?")
_LABEL: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
# A name whose last label reads as a number is an IPv4 address to browsers (WHATWG URL, 3.5).
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
# Characters that RFC 3986 does not allow after a host, and a percent sign that encodes nothing.
_UNENCODED: Final = re.compile(r"[^!#-;=?-Z_a-z~%]|%(?![0-9A-Fa-f]{2})")
# The same for the service's links: an encoded bracket could invalidate a signature.
_UNENCODED_BY_SERVICE: Final = re.compile(r"[^!#-;=?-Z\[\]_a-z~%]|%(?![0-9A-Fa-f]{2})")
# A link by the service, without control characters, and without halves of characters, which cannot
# be encoded.
_GIVEN_LINK: Final = re.compile(
    r"(https?://[\w-]+(?:\.[\w-]+)*\.?(?::[0-9]{1,5})?)((?:[/?#][^\x00-\x1f\x7f\ud800-\udfff]*)?)",
    re.ASCII | re.IGNORECASE,
)

# The query of a link that is quoted: with its beginning, without it, or as part of another link. A
# link without one matches too: otherwise each that begins within it would be searched to its end.
_QUERY: Final = re.compile(
    r"""(https?:\\?/\\?/(?:[^\s?#"<>%]|%(?!3F))*+)(?:(?:[?]|\#|%3F)[^\s"<>]*+)?
    |(?<=\S)[?][\w.~%-]++=[^\s"<>]*+
    |%3F[^\s"<>]*+""",
    re.IGNORECASE | re.VERBOSE,
)
_CALLBACK: Final = re.compile(r"(/callbacks\\?/|%2Fcallbacks%2F)[^\s\"'<>]+", re.IGNORECASE)
# A link in a text, plain, with slashes that JSON escapes, or as part of another link.
_HOST_OF_LINK: Final = re.compile(
    r"""https?(?::\\?/\\?/|%3A%2F%2F)(?:[^\s/?#"<>@\\%]*@)?([^\s/?#"<>@\\%]+)[^\s"<>]*+""",
    re.IGNORECASE,
)
_PUNCTUATION: Final = ".,:;!?')]}”"
# Seconds since 1970, for a day since 2001; a smaller number means something else.
_EPOCH: Final = 1_000_000_000

# Ends of names that mean nothing, or something else, outside one network: first those reserved by
# RFC 6761, 6762, 7686, 8375 and 9476, then those that routers, offices and clusters use.
_PRIVATE_NAMES: Final = {
    *("alt", "arpa", "example", "invalid", "local", "localhost", "onion", "test"),
    *("corp", "home", "internal", "intranet", "lan", "localdomain", "private", "wlan", "workgroup"),
    *("consul", "docker", "k8s", "svc"),
    "fritz.box",
}
# What ipaddress calls global, in some version of Python, and what is not the address of one host.
_NOT_PUBLIC: Final[tuple[IPv4Network | IPv6Network, ...]] = (
    IPv4Network("192.0.0.0/24"),  # IETF protocols
    IPv4Network("192.88.99.0/24"),  # 6to4 relays
    IPv4Network("224.0.0.0/4"),  # multicast
    IPv6Network("2001::/23"),  # IETF protocols, among them Teredo, which wraps an IPv4 address
    IPv6Network("2001:db8::/32"),  # documentation
    IPv6Network("2002::/16"),  # 6to4, which wraps an IPv4 address
    IPv6Network("3fff::/20"),  # documentation
)
# All of IPv6 that is handed out to hosts: mapped IPv4, NAT64 and local ranges lie outside.
_UNICAST: Final = IPv6Network("2000::/3")

_NOT_A_HOST: Final = "The link's domain isn't valid. Check it for typos."
_NOT_PUBLIC_ADDRESS: Final = (
    "That address isn't on the public internet. Use a link with a name, like https://example.com."
)


class BadLink(ValueError):
    """The link cannot be used; ``str()`` is a sentence to show under the form field.

    Attributes:
        direct: the link that can be used instead, if it is known.
    """

    def __init__(self, sentence: str, direct: str | None = None) -> None:
        super().__init__(sentence)
        self.direct = direct


def check_link(text: str) -> str:
    """Return ``text`` as a plain ASCII link to a public host, without opening it.

    Spaces, invisible characters and quotation marks around it are dropped, scheme and host are
    lower-case, international host names are in punycode, a default port is left out, and
    characters that are not allowed in a link are percent-encoded. Checking the result
    again does not change it.

    Raises:
        BadLink: if it is not an http or https link to a public name or address on a port that web
            servers use, or if it has more than 3,000 characters.
    """
    text = _unwrapped(text)
    if not text:
        raise BadLink("Paste a link that starts with https://.")
    if " " in text or "\\" in text or not text.isprintable():
        raise BadLink(
            "The link has a space or another character that links can't have. "
            "Copy it again, in one piece."
        )
    parts = _LINK.fullmatch(text)
    if parts is None:
        raise BadLink("That's not a web link. Paste the whole link, starting with https://.")
    if "@" in parts["authority"]:
        raise BadLink(
            "The link has a user name or password (before the @). Use one that opens without them."
        )
    authority = _AUTHORITY.fullmatch(parts["authority"])
    if authority is None:
        raise BadLink(_NOT_A_HOST)
    scheme = parts["scheme"].lower()
    host = _host(authority["host"])
    port = _port(authority["port"], scheme)
    link = f"{scheme}://{host}{port}{_rest(parts['rest'], _UNENCODED)}"
    if len(link) > _MAX_LINK:
        raise BadLink(f"The link has more than {_MAX_LINK:,} characters. Use a shorter one.")
    return link


def plain_link(text: str) -> str | None:
    """Return a link by the service in plain ASCII, to any host; None if it is no usable web link.

    A user name or password, a line break and a host that is not written in ASCII are refused; what
    is encoded in it stays as it is, as it may be signed.
    """
    parts = _GIVEN_LINK.fullmatch(text) if len(text) <= _MAX_GIVEN_LINK else None
    if parts is None:
        return None
    return parts[1].lower() + _rest(parts[2], _UNENCODED_BY_SERVICE)


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Return whether an address is one of a host on the public internet."""
    return (
        address.is_global
        and (not isinstance(address, IPv6Address) or address in _UNICAST)
        and not any(address in network for network in _NOT_PUBLIC)
    )


def show_link(link: str) -> str:
    """Return the host of ``link`` for people to read, at most 60 characters.

    All else is left out: the path of a shared link is often all that it takes to open it.
    """
    host = re.split(r"[/?#]", link.partition("://")[2], maxsplit=1)[0].rpartition("@")[2]
    # The end of a name says whose it is.
    return host if len(host) <= _MAX_SHOWN else "…" + host[1 - _MAX_SHOWN :]


def only_hosts(text: str) -> str:
    """Return a text by the service, which may quote links, with their hosts alone."""

    def host(found: re.Match[str]) -> str:
        link = found[0]
        return found[1].rstrip(_PUNCTUATION) + link[len(link.rstrip(_PUNCTUATION)) :]

    return _HOST_OF_LINK.sub(host, text)


def without_keys(text: str) -> str:
    """Return a text by the service with its links cut before what may grant access.

    It may quote links that it was given: a query can be signed, and a callback address is
    secret.
    """
    return _CALLBACK.sub(r"\1…", _QUERY.sub(lambda found: found[1] or "", text))


def expiry_of(link: str) -> datetime | None:
    """Return when a signed storage link expires; None if it does not say so itself.

    It reads the query parameters of Amazon S3 and Google Cloud Storage (a date and the seconds it
    is good for; in their older form, and CloudFront's, the moment itself) and of Azure (``se``).
    """
    query = {name.lower(): value for name, value in parse_qsl(urlsplit(link).query)}
    try:
        for prefix in ("x-amz-", "x-goog-"):
            if f"{prefix}expires" in query:
                signed = datetime.strptime(query[f"{prefix}date"], "%Y%m%dT%H%M%S%z")
                return signed + timedelta(seconds=int(query[f"{prefix}expires"]))
        if "expires" in query and "signature" in query:
            seconds = int(query["expires"])
            return datetime.fromtimestamp(seconds, UTC) if seconds >= _EPOCH else None
        if "se" in query and "sig" in query:
            until = datetime.fromisoformat(query["se"])
            return until.replace(tzinfo=UTC) if until.tzinfo is None else until.astimezone(UTC)
    except (KeyError, ValueError, OverflowError, OSError):
        pass
    return None


def _unwrapped(text: str) -> str:
    """Return ``text`` without what copying may have left around it."""
    start, end = 0, len(text)
    while start < end:
        if _is_blank(text[start]):
            start += 1
        elif _is_blank(text[end - 1]):
            end -= 1
        elif end - start > 1 and text[start] + text[end - 1] in _QUOTES:
            start, end = start + 1, end - 1
        else:
            break
    return text[start:end]


def _is_blank(letter: str) -> bool:
    """Return whether a character is white space, or invisible, such as a byte order mark."""
    return letter.isspace() or unicodedata.category(letter) == "Cf"


def _rest(text: str, unencoded: re.Pattern[str]) -> str:
    """Return path, query and fragment with the characters ``unencoded`` percent-encoded."""
    rest = text if text.startswith("/") else "/" + text
    return unencoded.sub(lambda found: quote(found[0], safe=""), rest)


def _host(text: str) -> str:
    if not text:
        raise BadLink("The link has no domain. It should look like https://example.com.")
    if text.startswith("["):
        return f"[{_address(IPv6Address, text[1:-1])}]"
    host = _ascii_host(text).removesuffix(".")
    labels = host.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        # Strict: of all the ways to write an IPv4 address only four plain numbers pass.
        return _address(IPv4Address, host)
    if len(host) > _MAX_HOST or not all(map(_LABEL.fullmatch, labels)):
        raise BadLink(_NOT_A_HOST)
    if len(labels) == 1 or {labels[-1], ".".join(labels[-2:])} & _PRIVATE_NAMES:
        raise BadLink("That link isn't reachable from the internet. Use one that anyone can open.")
    return host


def _ascii_host(text: str) -> str:
    # NFKC makes full-width letters, digits and dots plain, which some keyboards write.
    host = unicodedata.normalize("NFKC", text).lower()
    if host.isascii():
        return host
    try:  # by the rules of today (IDNA 2008): those of Python itself lead to another host for "ß"
        return httpx.URL(scheme="https", host=host).raw_host.decode("ascii")
    except httpx.InvalidURL:
        raise BadLink(_NOT_A_HOST) from None


def _address(kind: type[IPv4Address] | type[IPv6Address], text: str) -> str:
    try:
        address = kind(text)
    except AddressValueError:
        raise BadLink(_NOT_PUBLIC_ADDRESS) from None
    if not is_public(address) or "%" in text:  # a zone, which has a meaning on one machine only
        raise BadLink(_NOT_PUBLIC_ADDRESS)
    return str(address)


def _port(text: str | None, scheme: str) -> str:
    if not text or int(text) == _DEFAULT_PORTS[scheme]:
        return ""
    port = int(text)
    if (port < _FIRST_FREE_PORT and port not in _DEFAULT_PORTS.values()) or (
        port > _MAX_PORT or port in _OTHER_PORTS
    ):
        raise BadLink(
            f"Port {port} in the link isn't one that web servers use. Try the link without it."
        )
    return f":{port}"


# ── Links that are known to open a page, where a file is needed ───────────────────────────────────

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
            "This link opens a page, not the file. If anyone with the link may see the file, paste "
            f"this one: {direct}",
            direct,
        )
    if direct is None and _is_page(host, urlsplit(link).path):
        raise BadLink(
            f"A link to {host} opens a page, not the file. Use one that downloads it, such "
            "as from cloud storage."
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
