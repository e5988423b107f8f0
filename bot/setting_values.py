"""The values of single settings: text of the environment, checked and converted.

A function gets the text of a setting and raises ValueError with the rest of a sentence that begins
with the setting's name. It repeats the text only where that is no secret and no address.
"""

import re
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pydantic import SecretStr

MAX_BOX: Final = 3000
"""The most characters that a text field of a form holds, and the default of ``MAX_SCRIPT``.

https://docs.slack.dev/reference/block-kit/block-elements/plain-text-input-element
"""
LONGEST_SCRIPT: Final = 20_000
"""The highest ``MAX_SCRIPT``: two hours of speech in a text file, and details that a view holds."""
MOST_REQUESTS: Final = 1_000_000
"""The highest limit on numbers of requests."""
_MAX_SHOWN: Final = 40  # characters of what was given
VISIBLE: Final = re.compile(r"[!-~]+")
"""What an HTTP header can carry, without spaces."""
_HOST: Final = re.compile(r"[a-z0-9_.-]+|[0-9a-f:.]+")
_LABEL: Final = "[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
# With a letter at the beginning of the last part: no address is one.
HOST_NAME: Final = rf"(\*\.)?({_LABEL}\.)+(?=[a-z]){_LABEL}"
_PATH: Final = re.compile(r"(/(?!\.\.?(/|$))[\w.~%-]+)*", re.ASCII)
# https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNSTRING-URIS
_POSTGRES_HOST: Final = r"(?:[\w.%-]*|\[[0-9A-Fa-f:.%]+\])(?::\d{1,5})?"
_POSTGRES_URL: Final = re.compile(
    rf"postgres(?:ql)?://(?:[^@/?#]*@)?{_POSTGRES_HOST}(?:,{_POSTGRES_HOST})*/[^@/?#]+(?:\?[^#]*)?",
    re.ASCII,
)


def shown(text: str) -> str:
    """Return what was given, short and printable, for a sentence about it."""
    visible = "".join(each if each.isprintable() else "?" for each in text[:_MAX_SHOWN])
    short = visible if len(text) <= _MAX_SHOWN else f"{visible}…"
    return short if short.isdecimal() else f"“{short}”"


def whole_number(most: int, least: int = 1) -> Callable[[str], int]:
    """Return a reader of whole numbers from ``least`` to ``most``."""

    def read(text: str) -> int:
        is_number = re.fullmatch("[0-9]{1,9}", text) is not None
        if is_number and least <= int(text) <= most:
            return int(text)
        digits = "" if is_number else " (in digits alone)"
        raise ValueError(f"must be between {least:,} and {most:,}{digits}, not {shown(text)}.")

    return read


def word(pattern: str, refusal: str, *, is_shown: bool = False) -> Callable[[str], str]:
    """Return a reader of texts that match ``pattern``, which refuses others with a clause."""

    def read(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"is {shown(text)}, which {refusal}" if is_shown else refusal)
        return text

    return read


def each_of(
    pattern: str, what: str, like: str, *, is_shown: bool = True
) -> Callable[[str], frozenset[str]]:
    """Return a reader of lists, separated by commas or spaces, of what matches ``pattern``."""

    def read(text: str) -> frozenset[str]:
        found = re.split(r"[,\s]+", text.strip(", \t\n"))
        wrong = [each for each in found if not re.fullmatch(pattern, each)]
        if wrong:
            which = shown(wrong[0]) if is_shown else "something"
            raise ValueError(f"has {which} in it, which is no {what}: {like}.")
        return frozenset(found)

    return read


users: Final = each_of(
    "[UW][A-Z0-9]{2,}",
    "Slack user id",
    "ids look like U024BE7LH, with commas between them (in Slack: Profile, More, Copy member ID)",
)
users_and_groups: Final = each_of(
    "[UWS][A-Z0-9]{2,}",
    "id of a Slack user or user group",
    "ids look like U024BE7LH or S0614TZR7, with commas between them (in Slack: Profile, More, Copy "
    "member ID; for a group: More, Copy group ID)",
)
CHANNEL: Final = "[CG][A-Z0-9]{2,}"
channels: Final = each_of(
    CHANNEL,
    "id of a Slack channel",
    "ids look like C012AB3CD, with commas between them (in Slack: the channel's name, at the end "
    "of About)",
)
requests: Final = whole_number(MOST_REQUESTS)
"""Reads a number of requests."""
script_length: Final = whole_number(LONGEST_SCRIPT)
"""Reads the longest script, in characters."""


def refuse(*cases: tuple[object, str]) -> None:
    """Raise ValueError with the rest of the sentence of the first case that holds."""
    for holds, refusal in cases:
        if holds:
            raise ValueError(refusal)


def base_url(text: str, example: str) -> str:
    """Return an http or https URL without a slash at its end; http only for this machine."""
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        url, port = urlsplit(""), None
    host, path = url.hostname or "", url.path.rstrip("/")
    # urlsplit drops line breaks silently: hence isprintable().
    is_web = _HOST.fullmatch(host) and url.scheme in {"http", "https"} and text.isprintable()
    refuse(
        (not is_web, f"is not a web URL: it should look like {example}."),
        (
            "@" in url.netloc,
            "contains a user name or password: leave out everything up to the @.",
        ),
        (
            "?" in text or "#" in text,
            "contains a query or fragment: leave out everything from the ? or # on.",
        ),
        (
            url.scheme == "http" and not is_loopback(host),
            "is not encrypted: use https:// (http:// is only for this machine).",
        ),
        (
            not _PATH.fullmatch(path),
            "has an empty part, dots or special characters in its path: simplify it.",
        ),
    )
    host = f"[{host}]" if ":" in host else host
    return f"{url.scheme}://{host}{'' if port is None else f':{port}'}{path}"


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, by its name or address alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def address(example: str, added: str, refusal: str) -> Callable[[str], str]:
    """Return a reader of addresses without what is added to them, which is a pattern."""

    def read(text: str) -> str:
        url = base_url(text, example)
        if re.search(added, url):
            raise ValueError(refusal)
        return url

    return read


def database(text: str) -> Path | SecretStr:
    """Return the file of a SQLite database, or the URL of a PostgreSQL database."""
    if re.match("postgres(ql)?://", text):
        return SecretStr(_postgres_url(text))
    if not (found := re.fullmatch(r"sqlite:///([^~:$?#\x00][^$?#\x00]*(?<!/))", text)):
        raise ValueError(
            "is no database: it should look like sqlite:///bot.db for a file in this folder, "
            "sqlite:////var/lib/bot/bot.db for one with its whole path (four slashes, without ~, $ "
            "and options), or postgresql://user:password@db.example.com/bot."
        )
    return Path(found[1])


def _postgres_url(text: str) -> str:
    """Return a URL that libpq reads as it is meant: with several hosts, or options after a ``?``.

    In others it takes a part of the password for a host, which then stands in its errors.
    """
    found = _POSTGRES_URL.fullmatch(text)
    refuse(
        (
            found is None and re.search("[@/?#].*@", text.partition("://")[2]),
            (
                "has an @ in its password or name: write it as %40 there, and likewise / as %2F, "
                "? as %3F and # as %23."
            ),
        ),
        (
            found is None or not VISIBLE.fullmatch(text),
            (
                "does not name a database: it should look like "
                "postgresql://user:password@db.example.com/bot."
            ),
        ),
        (
            re.search("%(?![0-9A-Fa-f]{2})", text),
            "has a % in it that stands for itself: write it as %25.",
        ),
    )
    return text
