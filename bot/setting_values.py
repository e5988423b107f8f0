"""The values of single settings: text of the environment, checked and converted.

A function gets the text of a setting and raises ValueError with the rest of a sentence that begins
with the setting's name. It never repeats the text, which could be a secret.
"""

import re
from collections.abc import Callable
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pydantic import SecretStr

_MAX_RETENTION_DAYS: Final = 36500  # far more would overflow dates
_MAX_STATEMENT: Final = 2000  # characters
_VISIBLE: Final = re.compile(r"[!-~]+")  # what an HTTP header can carry, without spaces
_BOT_TOKEN: Final = re.compile(r"xoxb-[!-~]+")
_APP_TOKEN: Final = re.compile(r"xapp-[!-~]+")
# Slack documents no shape; the ones that it makes are all like this.
_SIGNING_SECRET: Final = re.compile(r"[0-9a-f]{32}")
# https://docs.slack.dev/authentication/tokens
_BEGINNINGS: Final = {
    "xoxb-": "a bot token",
    "xapp-": "an app-level token",
    "xoxp-": "a user token",
    "xoxe": "a configuration token",
    "http://": "a web address",
    "https://": "a web address",
}
_HOST: Final = re.compile(r"[a-z0-9_.-]+|[0-9a-f:.]+")
_LABEL: Final = "[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
# With a letter at the beginning of the last part: no address is one.
_HOST_NAME: Final = re.compile(rf"(\*\.)?({_LABEL}\.)+(?=[a-z]){_LABEL}")
_PATH: Final = re.compile(r"(/(?!\.\.?(/|$))[\w.~%-]+)*", re.ASCII)
# https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNSTRING-URIS
_POSTGRES_HOST: Final = r"(?:[\w.%-]*|\[[0-9A-Fa-f:.%]+\])(?::\d{1,5})?"
_POSTGRES_URL: Final = re.compile(
    rf"postgres(?:ql)?://(?:[^@/?#]*@)?{_POSTGRES_HOST}(?:,{_POSTGRES_HOST})*/[^@/?#]+(?:\?[^#]*)?",
    re.ASCII,
)
_MAX_PREFIX: Final = 32 - len("/replica")
_PREFIX: Final = re.compile(f"[a-z0-9_-]{{1,{_MAX_PREFIX}}}")
_USER: Final = re.compile(r"[UW][A-Z0-9]{2,}")
_USER_OR_GROUP: Final = re.compile(r"[UWS][A-Z0-9]{2,}")
_CHANNEL: Final = re.compile(r"[CG][A-Z0-9]{2,}")
_MAX_REQUESTS: Final = 1_000_000
MAX_SCRIPT: Final = 20_000  # in a text file: two hours of speech, and details that a view can hold


def bot_token(text: str) -> str:
    """Return the token of the Slack app's bot."""
    if not _BOT_TOKEN.fullmatch(text):
        raise ValueError(
            f"{_unlike(text, 'a bot token, which starts with xoxb-')}: copy the Bot User OAuth "
            "Token from OAuth & Permissions."
        )
    return text


def app_token(text: str) -> str:
    """Return the token that opens Socket Mode."""
    if not _APP_TOKEN.fullmatch(text):
        raise ValueError(
            f"{_unlike(text, 'an app-level token, which starts with xapp-')}: generate one with "
            "the scope connections:write in the Slack app, Basic Information, App-Level Tokens."
        )
    return text


def signing_secret(text: str | None) -> str | None:
    """Return the secret that Slack signs its requests with; None is the default."""
    if text is not None and not _SIGNING_SECRET.fullmatch(text):
        shape = "a signing secret, which is 32 characters from 0 to 9 and a to f"
        raise ValueError(
            f"{_unlike(text, shape)}: copy the Signing Secret, not the Verification Token, "
            "from Basic Information, App Credentials."
        )
    return text


def api_key(text: str) -> str:
    """Return the key for the video service, which may have any shape."""
    if text.startswith(tuple(_BEGINNINGS)):
        raise ValueError(f"{_unlike(text, 'a key')}: copy your key for the video service.")
    return single_word(text)


def single_word(text: str) -> str:
    """Return a text that an HTTP header can carry."""
    if not _VISIBLE.fullmatch(text):
        raise ValueError("has a space, a line break or a letter beyond ASCII in it: copy it again.")
    return text


def _unlike(text: str, wanted: str) -> str:
    """Return that a text is not what is wanted, and what it is if its beginning says that."""
    for beginning, name in _BEGINNINGS.items():
        if text.startswith(beginning) and beginning not in wanted:
            return f"is {name}, not {wanted}"
    return f"does not look like {wanted}"


def _base_url(text: str, example: str) -> str:
    """Return an http or https URL without a slash at its end; http only for this machine."""
    try:
        url = urlsplit(text)
        host, port = url.hostname or "", url.port
    except ValueError:
        host, port = "", None
    # urlsplit drops line breaks silently: hence isprintable().
    if not (_HOST.fullmatch(host) and url.scheme in {"http", "https"} and text.isprintable()):
        raise ValueError(f"is not a web URL: it should look like {example}.")
    if "@" in url.netloc:
        raise ValueError("contains a user name or password: leave out everything up to the @.")
    if "?" in text or "#" in text:
        raise ValueError("contains a query or fragment: leave out everything from the ? or # on.")
    if url.scheme == "http" and not is_loopback(host):
        raise ValueError("is not encrypted: use https:// (http:// is only for this machine).")
    path = url.path.rstrip("/")
    if not _PATH.fullmatch(path):
        raise ValueError("has an empty part, dots or special characters in its path: simplify it.")
    host = f"[{host}]" if ":" in host else host
    return f"{url.scheme}://{host}{'' if port is None else f':{port}'}{path}"


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, by its name or address alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def slack_api_url(text: str) -> str:
    """Return the address of Slack's Web API, with the slash that its client needs."""
    return _base_url(text, "https://slack.com/api/") + "/"


def video_api_url(text: str) -> str:
    """Return the address of the video service, to which ``/v2`` is added."""
    url = _base_url(text, "https://videos.example.com")
    if url.endswith("/v2"):
        raise ValueError("ends in /v2, which the bot adds itself: leave it out.")
    if _is_slacks(url):
        raise ValueError("is an address of Slack's: set it to that of the video service.")
    return url


def public_url(text: str) -> str:
    """Return the address of the bot, to which the paths of its own are added."""
    url = _base_url(text, "https://bot.example.com")
    if url.endswith(("/slack/events", "/callbacks")):
        raise ValueError(
            "ends in one of the bot's own paths: give only what comes before /slack/events."
        )
    if _is_slacks(url):
        raise ValueError("is an address of Slack's: set it to that of the bot itself.")
    return url


def _is_slacks(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host == "slack.com" or host.endswith(".slack.com")


def database(text: str) -> Path | SecretStr:
    """Return the file of a SQLite database, or the URL of a PostgreSQL database."""
    scheme, separator, path = text.partition("://")
    if scheme in {"postgres", "postgresql"} and separator:
        return SecretStr(_postgres_url(text))
    if scheme != "sqlite" or not separator:
        raise ValueError(
            "is no database: it should look like sqlite:///bot.db or "
            "postgresql://user:password@db.example.com/bot."
        )
    if not path.startswith("/"):
        raise ValueError("needs three slashes before a file name and four before a full path.")
    name = path.removeprefix("/")
    if name.startswith("~") or "$" in name:
        raise ValueError(
            "has a ~ or $ in it, which stands for itself here: write the whole path, with four "
            "slashes before it."
        )
    if not name or name.startswith(":") or name.endswith("/") or re.search(r"[?#\x00]", name):
        raise ValueError(
            "does not name a file: it should look like sqlite:///bot.db or "
            "sqlite:////var/lib/bot/bot.db, without options after it."
        )
    return Path(name)


def database_address(text: str) -> Path | str:
    """Return the file of a SQLite database, or the URL of a PostgreSQL database as plain text."""
    found = database(text)
    return found.get_secret_value() if isinstance(found, SecretStr) else found


def _postgres_url(text: str) -> str:
    """Return a URL that libpq reads as it is meant: with several hosts, or options after a ``?``.

    In others it takes a part of the password for a host, which then stands in its errors.
    """
    found = _POSTGRES_URL.fullmatch(text)
    if found is None and re.search("[@/?#].*@", text.partition("://")[2]):
        raise ValueError(
            "has an @ in its password or name: write it as %40 there, and likewise / as %2F, ? as "
            "%3F and # as %23."
        )
    if found is None or not _VISIBLE.fullmatch(text):
        raise ValueError(
            "does not name a database: it should look like "
            "postgresql://user:password@db.example.com/bot."
        )
    if re.search("%(?![0-9A-Fa-f]{2})", text):
        raise ValueError("has a % in it that stands for itself: write it as %25.")
    return text


def proxy(text: str) -> str:
    """Return the address of an HTTP proxy."""
    try:
        url = urlsplit(text)
        scheme, host, _ = url.scheme, url.hostname, url.port
    except ValueError:
        scheme = host = ""
    if scheme != "http" or not host or not _VISIBLE.fullmatch(text):
        raise ValueError(
            "is not the address of a proxy: it should look like http://proxy.example.com:3128."
        )
    return text


def no_proxy(text: str) -> str:
    """Return a list of hosts."""
    if not text.isascii() or not text.isprintable():
        raise ValueError("is not a list of hosts: it should look like example.com,10.1.2.3.")
    return text


def command_prefix(text: str) -> str:
    """Return what the names of the commands begin with."""
    # The name of a command has at most 32 characters with the slash, in small letters and without
    # spaces: https://docs.slack.dev/reference/app-manifest and
    # https://docs.slack.dev/interactivity/implementing-slash-commands
    if not _PREFIX.fullmatch(text):
        raise ValueError(
            f"is not the beginning of a command's name: at most {_MAX_PREFIX} small letters, "
            "digits, hyphens and underscores, like acme- for /acme-video."
        )
    return text


def hosts(text: str) -> frozenset[str]:
    """Return names of hosts; one that begins with ``*.`` stands for all below it."""
    hosts = frozenset(each.lower() for each in re.split(r"[,\s]+", text.strip(", \t\n")))
    if not all(_HOST_NAME.fullmatch(host) or is_loopback(host) for host in hosts):
        raise ValueError(
            "is not a list of hosts: it should look like cdn.example.com,*.media.example.com, "
            "without https:// and paths."
        )
    return hosts


def _ids(text: str) -> frozenset[str]:
    return frozenset(re.split(r"[,\s]+", text.strip(", \t\n")))


def users(text: str) -> frozenset[str]:
    """Return Slack user ids."""
    users = _ids(text)
    if not all(map(_USER.fullmatch, users)):
        raise ValueError(
            "contains something that is not a Slack user id: ids look like U024BE7LH, with commas "
            "between them (in Slack: Profile, More, Copy member ID)."
        )
    return users


def users_and_groups(text: str) -> frozenset[str]:
    """Return ids of Slack users and user groups."""
    found = _ids(text)
    if not all(map(_USER_OR_GROUP.fullmatch, found)):
        raise ValueError(
            "contains something that is not the id of a Slack user or user group: ids look like "
            "U024BE7LH or S0614TZR7, with commas between them (in Slack: Profile, More, Copy "
            "member ID; for a group: More, Copy group ID)."
        )
    return found


def channels(text: str) -> frozenset[str]:
    """Return ids of Slack channels."""
    found = _ids(text)
    if not all(map(_CHANNEL.fullmatch, found)):
        raise ValueError(
            "contains something that is not the id of a Slack channel: ids look like C012AB3CD, "
            "with commas between them (in Slack: the channel's name, at the end of About)."
        )
    return found


def channel(text: str) -> str:
    """Return the Slack id of a channel."""
    if not _CHANNEL.fullmatch(text):
        raise ValueError(
            "is not the id of a Slack channel: it looks like C024BE91L (in Slack: the channel's "
            "name, About, Channel ID)."
        )
    return text


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # bytes of the environment that are not UTF-8
        return False
    return True


def statement(text: str) -> str:
    """Return a sentence that a form can show."""
    if not _is_text(text):
        raise ValueError("has bytes in it that are not text: write it again.")
    if len(text) > _MAX_STATEMENT:
        raise ValueError(
            f"has more than {_MAX_STATEMENT} characters: give only what is to be said."
        )
    return text


def days(text: str) -> timedelta:
    """Return a duration of whole days."""
    if not re.fullmatch("[0-9]{1,5}", text) or not 1 <= int(text) <= _MAX_RETENTION_DAYS:
        raise ValueError(f"is not a whole number of days from 1 to {_MAX_RETENTION_DAYS}.")
    return timedelta(days=int(text))


def count(maximum: int, minimum: int = 1) -> Callable[[str], int]:
    """Return a validator for a whole number from ``minimum`` to ``maximum``."""

    def count(text: str) -> int:
        if not re.fullmatch("[0-9]{1,9}", text) or not minimum <= int(text) <= maximum:
            raise ValueError(f"is not a whole number from {minimum} to {maximum}.")
        return int(text)

    return count


requests: Final = count(_MAX_REQUESTS)
"""A number of requests."""
script_length: Final = count(MAX_SCRIPT)
"""The longest script, in characters."""
characters: Final = count(MAX_SCRIPT, 0)
"""The longest script of some; 0 for none."""


def host(text: str) -> str:
    """Return the name or address of this machine to listen on."""
    if "/" in text:
        raise ValueError(
            "is not an address to listen on: it should look like 0.0.0.0 or 127.0.0.1 (the port "
            "is PORT, and the address for others is PUBLIC_URL)."
        )
    return single_word(text)


def port(text: str) -> int:
    """Return a port; with 0 the system chooses one."""
    if not re.fullmatch("[0-9]{1,5}", text) or int(text) > 65535:  # noqa: PLR2004 - 2 ** 16 - 1
        raise ValueError("is not a port: a whole number from 0 to 65535.")
    return int(text)
