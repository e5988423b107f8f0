"""The settings: read from the environment once, and refused with one list of all mistakes."""

import os
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, ClassVar, Final, Self
from urllib.parse import unquote, urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from bot.errors import OperatorError

_MAX_RETENTION_DAYS: Final = 36500  # far more would overflow dates
_MAX_STATEMENT: Final = 2000  # characters
_MAX_LIMIT: Final = 1_000_000
_DEFAULT_SCRIPT: Final = 3000  # the most that a field of a Slack form holds
_MAX_SCRIPT: Final = 20_000  # in a text file: two hours of speech, and details that a view can hold
_VISIBLE: Final = re.compile(r"[!-~]+")  # what an HTTP header can carry, without spaces
_BOT_TOKEN: Final = re.compile(r"xoxb-[!-~]+")
_APP_TOKEN: Final = re.compile(r"xapp-[!-~]+")
_HOST: Final = re.compile(r"[a-z0-9_.-]+|[0-9a-f:.]+")
_PATH: Final = re.compile(r"(/(?!\.\.?(/|$))[\w.~%-]+)*", re.ASCII)
_QUOTES: Final = "\"'`“”"
_PLACEHOLDER: Final = "YOUR-"
_MAX_PREFIX: Final = 32 - len("/replica")
_PREFIX: Final = re.compile(f"[a-z0-9_-]{{1,{_MAX_PREFIX}}}")
_USER: Final = re.compile(r"[UW][A-Z0-9]{2,}")


class SettingsError(OperatorError):
    """The bot cannot start; ``str()`` lists all that is missing or wrong, without any value.

    Attributes:
        mistakes: a sentence for each setting that is missing or wrong, by its name.
    """

    def __init__(self, message: str, mistakes: Mapping[str, str]) -> None:
        super().__init__(message)
        self.mistakes = mistakes


def environment() -> dict[str, str]:
    """Return the environment of the process."""
    return dict(os.environ)  # noqa: TID251 - the one place


# The validators below get the text from the environment and raise ValueError with the rest of a
# sentence that begins with the setting's name. They never repeat the text: it could be a secret.


def _bot_token(text: str) -> str:
    if not _BOT_TOKEN.fullmatch(text):
        raise ValueError(
            "does not look like a bot token, which starts with xoxb-: copy the Bot User OAuth "
            "Token from OAuth & Permissions."
        )
    return text


def _single_word(text: str) -> str:
    if not _VISIBLE.fullmatch(text):
        raise ValueError("has a space, a line break or a letter beyond ASCII in it: copy it again.")
    return text


def _signing_secret(text: str | None) -> str | None:
    return None if text is None else _single_word(text)  # None is the default


def _app_token(text: str) -> str:
    if not _APP_TOKEN.fullmatch(text):
        raise ValueError(
            "does not look like an app-level token, which starts with xapp-: generate one with the "
            "scope connections:write in the Slack app, Basic Information, App-Level Tokens."
        )
    return text


def _base_url(text: str) -> str:
    """Return an http or https URL without a slash at its end; http only for this machine."""
    try:
        url = urlsplit(text)
        host, port = url.hostname or "", url.port
    except ValueError:
        host, port = "", None
    # urlsplit drops line breaks silently: hence isprintable().
    if not (_HOST.fullmatch(host) and url.scheme in {"http", "https"} and text.isprintable()):
        raise ValueError("is not a web URL: it should look like https://bot.example.com.")
    if "@" in url.netloc:
        raise ValueError("contains a user name or password: leave out everything up to the @.")
    if "?" in text or "#" in text:
        raise ValueError("contains a query or fragment: leave out everything from the ? or # on.")
    if url.scheme == "http" and not _is_loopback(host):
        raise ValueError("is not encrypted: use https:// (http:// is only for this machine).")
    path = url.path.rstrip("/")
    if not _PATH.fullmatch(path):
        raise ValueError("has an empty part, dots or special characters in its path: simplify it.")
    host = f"[{host}]" if ":" in host else host
    return f"{url.scheme}://{host}{'' if port is None else f':{port}'}{path}"


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _slack_api_url(text: str) -> str:
    # Slack's client appends its method names, so the slash has to be there.
    return _base_url(text) + "/"


def _video_api_url(text: str) -> str:
    url = _base_url(text)
    if url.endswith("/v2"):
        raise ValueError("ends in /v2, which the bot adds itself: leave it out.")
    return url


def _public_url(text: str) -> str:
    url = _base_url(text)
    if url.endswith(("/slack/events", "/callbacks")):
        raise ValueError(
            "ends in one of the bot's own paths: give only what comes before /slack/events."
        )
    return url


def _database(text: str) -> Path:
    scheme, separator, path = text.partition("://")
    if scheme.partition("+")[0] in {"postgres", "postgresql"}:
        raise ValueError(
            "is for PostgreSQL, which the bot does not support yet: use sqlite:///bot.db, and run "
            "one process."
        )
    if scheme != "sqlite" or not separator:
        raise ValueError("is not a SQLite database: it should look like sqlite:///bot.db.")
    if not path.startswith("/"):
        raise ValueError("needs three slashes before a file name and four before a full path.")
    name = path.removeprefix("/")
    if not name or name.startswith(":") or name.endswith("/") or re.search(r"[?#\x00]", name):
        raise ValueError(
            "does not name a file: it should look like sqlite:///bot.db or "
            "sqlite:////var/lib/bot/bot.db, without options after it."
        )
    return Path(name)


def _proxy(text: str) -> str:
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


def _no_proxy(text: str) -> str:
    if not text.isascii() or not text.isprintable():
        raise ValueError("is not a list of hosts: it should look like example.com,10.1.2.3.")
    return text


def _command_prefix(text: str) -> str:
    # The name of a command has at most 32 characters with the slash, in small letters and without
    # spaces: https://docs.slack.dev/reference/app-manifest and
    # https://docs.slack.dev/interactivity/implementing-slash-commands
    if not _PREFIX.fullmatch(text):
        raise ValueError(
            f"is not the beginning of a command's name: at most {_MAX_PREFIX} small letters, "
            "digits, hyphens and underscores, like acme- for /acme-video."
        )
    return text


def _users(text: str) -> frozenset[str]:
    users = frozenset(re.split(r"[,\s]+", text.strip(", \t\n")))
    if not all(map(_USER.fullmatch, users)):
        raise ValueError(
            "contains something that is not a Slack user id: ids look like U024BE7LH, with commas "
            "between them (in Slack: Profile, More, Copy member ID)."
        )
    return users


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # bytes of the environment that are not UTF-8
        return False
    return True


def _statement(text: str) -> str:
    if not _is_text(text):
        raise ValueError("has bytes in it that are not text: write it again.")
    if len(text) > _MAX_STATEMENT:
        raise ValueError(
            f"has more than {_MAX_STATEMENT} characters: give only what is to be said."
        )
    return text


def _days(text: str) -> timedelta:
    if not re.fullmatch("[0-9]{1,5}", text) or not 1 <= int(text) <= _MAX_RETENTION_DAYS:
        raise ValueError(f"is not a whole number of days from 1 to {_MAX_RETENTION_DAYS}.")
    return timedelta(days=int(text))


def _count(maximum: int) -> Callable[[str], int]:
    """Return a validator for a whole number from 1 to ``maximum``."""

    def count(text: str) -> int:
        if not re.fullmatch("[0-9]{1,9}", text) or not 1 <= int(text) <= maximum:
            raise ValueError(f"is not a whole number from 1 to {maximum}.")
        return int(text)

    return count


def _port(text: str) -> int:
    if not re.fullmatch("[0-9]{1,5}", text) or int(text) > 65535:  # noqa: PLR2004 - 2 ** 16 - 1
        raise ValueError("is not a port: a whole number from 0 to 65535.")
    return int(text)


_WHERE_TO_FIND: Final = {
    "SLACK_BOT_TOKEN": "it is the Bot User OAuth Token under OAuth & Permissions of the Slack app.",
    "SLACK_SIGNING_SECRET": (
        "it is under Basic Information of the Slack app, App Credentials. With Socket Mode it is "
        "not needed: set SLACK_APP_TOKEN instead."
    ),
    "VIDEO_API_URL": "it is the address of the video service, without /v2.",
    "VIDEO_API_KEY": "it is your key for the video service.",
}


_IN_SMALL_LETTERS: Final = frozenset({"https_proxy", "no_proxy"})


class _Settings(BaseModel):
    """Some settings, each read from the variable of the same name in capitals.

    ``repr()`` shows no secret.
    """

    model_config = ConfigDict(frozen=True, alias_generator=str.upper, hide_input_in_errors=True)

    _refusal: ClassVar[str]

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Self:
        """Return the settings in ``environ``; an empty variable counts as not set.

        Raises:
            SettingsError: something is missing or wrong; it lists everything at once.
        """
        given = {name: text for name, text in environ.items() if text.strip()}
        # Other programs read these in small letters first.
        given |= {name.upper(): given[name] for name in _IN_SMALL_LETTERS & given.keys()}
        try:
            return cls.model_validate(given, context={"temporary_disk": "DYNO" in environ})
        except ValidationError as error:
            mistakes = error.errors(include_url=False, include_context=False, include_input=False)
        # A rejected default is listed under the field's own name: hence upper().
        sentences = {
            (name := str(each["loc"][0]).upper()): _sentence(name, each["type"], each["msg"])
            for each in mistakes
        }
        raise SettingsError("\n  ".join([cls._refusal, *sentences.values()]), sentences)

    @classmethod
    def mistake(cls, name: str, text: str) -> str | None:
        """Return what is wrong with one setting, as a sentence that begins with its name."""
        try:
            cls.read({name: text})
        except SettingsError as error:
            return error.mistakes.get(name)
        return None

    @field_validator("*", mode="before")
    @classmethod
    def _has_no_common_mistake(cls, text: object) -> object:
        if not isinstance(text, str):  # a default
            return text
        if text != text.strip():
            raise ValueError("has a space or line break before or after it: remove that.")
        if text[0] in _QUOTES and text[-1] in _QUOTES:
            raise ValueError("has quotes around it: remove them.")
        if _PLACEHOLDER in text:
            raise ValueError("still contains the placeholder of the example: replace it.")
        return text


class ManifestSettings(_Settings):
    """The settings that the Slack app's manifest depends on."""

    _refusal: ClassVar = "There is no manifest for these settings:"

    public_url: Annotated[str | None, BeforeValidator(_public_url)] = None
    command_prefix: Annotated[str, BeforeValidator(_command_prefix)] = ""
    slack_app_token: Annotated[SecretStr | None, BeforeValidator(_app_token)] = None
    """Slack sends everything through Socket Mode if it is set, and to request URLs if not."""


class ConnectionSettings(_Settings):
    """The settings that say how Slack and the video service are called."""

    _refusal: ClassVar = "Nothing can be called with these settings:"

    slack_api_url: Annotated[str, BeforeValidator(_slack_api_url)] = "https://slack.com/api/"
    https_proxy: Annotated[SecretStr | None, BeforeValidator(_proxy)] = None
    no_proxy: Annotated[str, BeforeValidator(_no_proxy)] = ""

    def proxy_for(self, url: str) -> str | None:
        """Return the proxy for calls to an address; None if they go there directly."""
        parts = urlsplit(url)
        if (
            self.https_proxy is None
            or parts.scheme != "https"
            or proxy_bypass_environment(parts.netloc, {"no": self.no_proxy})
        ):
            return None
        return self.https_proxy.get_secret_value()


class Settings(ManifestSettings, ConnectionSettings):
    """All settings of a deployment, checked and converted."""

    _refusal: ClassVar = "The bot cannot start with these settings:"

    slack_bot_token: Annotated[SecretStr, BeforeValidator(_bot_token)]
    slack_signing_secret: Annotated[SecretStr | None, BeforeValidator(_signing_secret)] = Field(
        None, validate_default=True
    )
    video_api_url: Annotated[str, BeforeValidator(_video_api_url)]
    video_api_key: Annotated[SecretStr, BeforeValidator(_single_word)]
    database: Annotated[Path, BeforeValidator(_database)] = Field(
        Path("bot.db"), alias="DATABASE_URL"
    )
    admin_users: Annotated[frozenset[str], BeforeValidator(_users)] = frozenset()
    allowed_users: Annotated[frozenset[str], BeforeValidator(_users)] = frozenset()
    allow_shared_channels: bool = False
    join_public_channels: bool = False
    retention: Annotated[timedelta, BeforeValidator(_days)] = Field(
        timedelta(days=90), alias="RETENTION_DAYS"
    )
    max_open_per_user: Annotated[int, BeforeValidator(_count(_MAX_LIMIT))] = 20
    max_per_user_per_day: Annotated[int, BeforeValidator(_count(_MAX_LIMIT))] = 100
    max_per_day: Annotated[int, BeforeValidator(_count(_MAX_LIMIT))] = 500
    max_script: Annotated[int, BeforeValidator(_count(_MAX_SCRIPT))] = _DEFAULT_SCRIPT
    consent_statement: Annotated[str, BeforeValidator(_statement)] = ""
    allow_temporary_disk: bool = Field(False, validate_default=True)
    host: Annotated[str, BeforeValidator(_single_word)] = "0.0.0.0"  # noqa: S104 - as in a container
    port: Annotated[int, BeforeValidator(_port)] = 3000

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values to mask in logs."""
        secrets = (
            self.slack_bot_token,
            self.slack_signing_secret,
            self.slack_app_token,
            self.video_api_key,
        )
        password = (
            urlsplit(self.https_proxy.get_secret_value()).password if self.https_proxy else None
        )
        # A proxy is sent it decoded.
        passwords = (password, unquote(password)) if password else ()
        return (*(secret.get_secret_value() for secret in secrets if secret), *passwords)

    @field_validator("slack_signing_secret")
    @classmethod
    def _is_given_for_http(cls, secret: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        # A wrong app token is not in the data: then it alone is refused.
        if secret is None and info.data.get("slack_app_token", ...) is None:
            raise ValueError(f"is missing: {_WHERE_TO_FIND['SLACK_SIGNING_SECRET']}")
        return secret

    @field_validator("allow_temporary_disk")
    @classmethod
    def _disk_is_permanent(cls, allowed: bool, info: ValidationInfo) -> bool:  # noqa: FBT001
        if info.context and info.context["temporary_disk"] and not allowed:
            raise ValueError(
                "is not yes, and this is Heroku, which empties its disks at least once a day: all "
                "requests would be lost. Run the bot where the disk is permanent, or set this to "
                "yes, only to try the bot out."
            )
        return allowed


def _sentence(name: str, kind: str, reason: str) -> str:
    if kind == "missing":
        return f"{name} is missing: {_WHERE_TO_FIND[name]}"
    if kind == "bool_parsing":
        return f"{name} is neither yes nor no."
    return f"{name} {reason.removeprefix('Value error, ')}"
