"""The settings: read from the environment and .env, and refused with one list of all mistakes."""

import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, ClassVar, Final, Self
from urllib.parse import parse_qs, unquote, urlsplit
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

from bot import setting_values as values
from bot.env_file import read_env_file
from bot.errors import OperatorError

_DEFAULT_SCRIPT: Final = 3000  # the most that a field of a Slack form holds
_QUOTES: Final = "\"'`“”"
_PLACEHOLDER: Final = "YOUR-"
_MISSING: Final = "is missing"
_IN_SMALL_LETTERS: Final = frozenset({"https_proxy", "no_proxy"})


class SettingsError(OperatorError):
    """The bot cannot start; ``str()`` lists all that is missing or wrong, without any value.

    Attributes:
        mistakes: a sentence for each setting that is missing or wrong, by its name.
    """

    def __init__(self, message: str, mistakes: Mapping[str, str]) -> None:
        super().__init__(message)
        self.mistakes = mistakes

    @property
    def has_missing(self) -> bool:
        """Whether a setting that is needed is not set at all."""
        return any(said.startswith(f"{name} {_MISSING}") for name, said in self.mistakes.items())


def environment(*, with_file: bool = True) -> dict[str, str]:
    """Return the environment of the process, and what only ``.env`` sets.

    A variable that is set to nothing is set: that is how one of the file is switched off.

    Raises:
        EnvFileError: the file cannot be read, or is wrong.
    """
    environ = dict(os.environ)  # noqa: TID251 - the one place
    if not with_file:
        return environ
    # In capitals, or they would go before what the process has in capitals.
    of_file = {
        name.upper() if name in _IN_SMALL_LETTERS else name: text
        for name, text in read_env_file().items()
    }
    return of_file | environ


_WHERE_TO_FIND: Final = {
    "SLACK_BOT_TOKEN": "it is the Bot User OAuth Token under OAuth & Permissions of the Slack app.",
    "SLACK_SIGNING_SECRET": (
        "it is under Basic Information of the Slack app, App Credentials. With Socket Mode it is "
        "not needed: set SLACK_APP_TOKEN instead."
    ),
    "VIDEO_API_URL": "it is the address of the video service, without /v2.",
    "VIDEO_API_KEY": "it is your key for the video service.",
}


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
    def mistake(cls, name: str, text: str, beside: Mapping[str, str] | None = None) -> str | None:
        """Return what is wrong with one setting, as a sentence that begins with its name.

        ``beside`` has others that it has to fit.
        """
        try:
            cls.read({**(beside or {}), name: text})
        except SettingsError as error:
            return error.mistakes.get(name)
        return None

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names of the settings, in the order in which they are declared."""
        return tuple(str(field.alias or name.upper()) for name, field in cls.model_fields.items())

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

    public_url: Annotated[str | None, BeforeValidator(values.public_url)] = None
    command_prefix: Annotated[str, BeforeValidator(values.command_prefix)] = ""
    slack_app_token: Annotated[SecretStr | None, BeforeValidator(values.app_token)] = None
    """Slack sends everything through Socket Mode if it is set, and to request URLs if not."""


class ConnectionSettings(_Settings):
    """The settings that say how Slack and the video service are called."""

    _refusal: ClassVar = "Nothing can be called with these settings:"

    slack_api_url: Annotated[str, BeforeValidator(values.slack_api_url)] = "https://slack.com/api/"
    https_proxy: Annotated[SecretStr | None, BeforeValidator(values.proxy)] = None
    no_proxy: Annotated[str, BeforeValidator(values.no_proxy)] = ""

    def proxy_for(self, url: str) -> str | None:
        """Return the proxy for calls to an address; None if they go there directly."""
        parts = urlsplit(url)
        if (
            self.https_proxy is None
            or parts.scheme not in {"https", "wss"}
            or proxy_bypass_environment(parts.netloc, {"no": self.no_proxy})
        ):
            return None
        return self.https_proxy.get_secret_value()


class DatabaseSettings(_Settings):
    """The setting that says where the database is."""

    _refusal: ClassVar = "There is no database with this setting:"

    database: Annotated[Path | SecretStr, BeforeValidator(values.database)] = Field(
        Path("bot.db"), alias="DATABASE_URL"
    )

    @property
    def database_address(self) -> Path | str:
        """The file of the database, or its URL on a server, which may have a password."""
        database = self.database
        return database if isinstance(database, Path) else database.get_secret_value()


class Settings(ManifestSettings, ConnectionSettings, DatabaseSettings):
    """All settings of a deployment, checked and converted."""

    _refusal: ClassVar = "The bot cannot start with these settings:"

    slack_bot_token: Annotated[SecretStr, BeforeValidator(values.bot_token)]
    slack_signing_secret: Annotated[SecretStr | None, BeforeValidator(values.signing_secret)] = (
        Field(None, validate_default=True)
    )
    video_api_url: Annotated[str, BeforeValidator(values.video_api_url)]
    video_api_key: Annotated[SecretStr, BeforeValidator(values.api_key)]
    admin_users: Annotated[frozenset[str], BeforeValidator(values.users)] = frozenset()
    allow_shared_channels: bool = False
    join_public_channels: bool = False
    retention: Annotated[timedelta, BeforeValidator(values.days)] = Field(
        timedelta(days=90), alias="RETENTION_DAYS"
    )
    max_open_per_user: Annotated[int, BeforeValidator(values.requests)] = 20
    max_per_user_per_day: Annotated[int, BeforeValidator(values.requests)] = 100
    max_per_day: Annotated[int, BeforeValidator(values.requests)] = 500
    max_per_user_per_month: Annotated[int | None, BeforeValidator(values.requests)] = None
    max_per_month: Annotated[int | None, BeforeValidator(values.requests)] = None
    max_script: Annotated[int, BeforeValidator(values.script_length)] = _DEFAULT_SCRIPT
    video_users: Annotated[frozenset[str], BeforeValidator(values.users_and_groups)] = frozenset()
    training_users: Annotated[frozenset[str], BeforeValidator(values.users_and_groups)] = (
        frozenset()
    )
    allowed_channels: Annotated[frozenset[str], BeforeValidator(values.channels)] = frozenset()
    approvers: Annotated[frozenset[str], BeforeValidator(values.users)] = frozenset()
    approval_above: Annotated[int, BeforeValidator(values.characters)] = 0
    approval_channel: Annotated[str | None, BeforeValidator(values.channel)] = None
    video_api_lists: bool = False
    media_hosts: Annotated[frozenset[str], BeforeValidator(values.hosts)] = frozenset()
    consent_statement: Annotated[str, BeforeValidator(values.statement)] = ""
    allow_temporary_disk: bool = Field(False, validate_default=True)
    host: Annotated[str, BeforeValidator(values.host)] = "0.0.0.0"  # noqa: S104 - as in a container
    port: Annotated[int, BeforeValidator(values.port)] = 3000

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
        passwords: tuple[str, ...] = (password, unquote(password)) if password else ()
        if isinstance(self.database, SecretStr):
            url = urlsplit(self.database.get_secret_value())
            named = parse_qs(url.query)  # decoded
            password = url.password
            passwords += (password, unquote(password)) if password else ()
            passwords += (*named.get("password", ()), *named.get("sslpassword", ()))
        return (*(secret.get_secret_value() for secret in secrets if secret), *passwords)

    @field_validator("slack_signing_secret")
    @classmethod
    def _is_given_for_http(cls, secret: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        # A wrong app token is not in the data: then it alone is refused.
        if secret is None and info.data.get("slack_app_token", ...) is None:
            raise ValueError(f"{_MISSING}: {_WHERE_TO_FIND['SLACK_SIGNING_SECRET']}")
        return secret

    @field_validator("video_api_url")
    @classmethod
    def _is_not_the_bots_own(cls, url: str, info: ValidationInfo) -> str:
        if url == info.data.get("public_url"):
            raise ValueError(
                "is the same as PUBLIC_URL, which is the address of the bot itself: one of them is "
                "wrong."
            )
        return url

    @field_validator("allow_temporary_disk")
    @classmethod
    def _disk_is_permanent(cls, allowed: bool, info: ValidationInfo) -> bool:  # noqa: FBT001
        is_lost = info.context and info.context["temporary_disk"] and not allowed
        if is_lost and not isinstance(info.data.get("database"), SecretStr):
            raise ValueError(
                "is not yes, and this is Heroku, which empties its disks at least once a day: all "
                "requests would be lost. Set DATABASE_URL to a PostgreSQL database, run the bot "
                "where the disk is permanent, or set this to yes, only to try the bot out."
            )
        return allowed


def _sentence(name: str, kind: str, reason: str) -> str:
    if kind == "missing":
        return f"{name} {_MISSING}: {_WHERE_TO_FIND[name]}"
    if kind == "bool_parsing":
        return f"{name} is neither yes nor no."
    return f"{name} {reason.removeprefix('Value error, ')}"
