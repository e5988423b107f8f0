"""The settings: one table, read from the environment and .env, and refused with all mistakes."""

import hashlib
import hmac
import io
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Final, Self, get_args
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
from bot.errors import OperatorError

ENV_FILE: Final = Path(".env")
_OTHERS: Final = 0o077  # what the mode of a file allows to others than its owner
_QUOTES: Final = "\"'`“”"
_PLACEHOLDER: Final = "YOUR-"
_MISSING: Final = "is missing"
_REFUSAL: Final = "These settings have to be corrected:"
_IN_SMALL_LETTERS: Final = frozenset({"https_proxy", "no_proxy"})
# What a value begins with that belongs elsewhere: https://docs.slack.dev/authentication/tokens
_BEGINNINGS: Final = {
    "xoxb-": ("SLACK_BOT_TOKEN", "a bot token"),
    "xapp-": ("SLACK_APP_TOKEN", "an app-level token"),
    "xoxp-": ("", "a user token"),
    "xoxe": ("", "a configuration token"),
}
# How alike a variable and a setting are, from 0 to 1: SLACK_TOKEN and SLACK_BOT_TOKEN are 0.85.
_ALIKE: Final = 0.8
_MIN_NAME: Final = 6  # characters: HOME is not meant to be HOST
# Of other programs' variables, however alike they look.
_OTHER_PROGRAMS: Final = ("PROXY", "PATH")
# The name of a command has at most 32 characters with the slash, in small letters and without
# spaces: https://docs.slack.dev/reference/app-manifest and
# https://docs.slack.dev/interactivity/implementing-slash-commands
_MAX_PREFIX: Final = 32 - len("/replica")
_MAX_RETENTION_DAYS: Final = 36_500  # far more would overflow dates
_MAX_STATEMENT: Final = 2000  # characters


class SettingsError(OperatorError):
    """The bot cannot start; ``str()`` lists all that is missing or wrong, without secrets.

    Attributes:
        mistakes: what is wrong with each setting, as the rest of a sentence that begins with its
            name.
    """

    def __init__(self, message: str, mistakes: Mapping[str, str]) -> None:
        self.mistakes = mistakes
        is_missing = any(said.startswith(_MISSING) for said in mistakes.values())
        if is_missing and not ENV_FILE.exists():
            message += (
                f"\nSettings come from the environment and from {ENV_FILE}, and there is no "
                f"{ENV_FILE} in {Path.cwd()}. To make one: {sys.executable} -m bot init"
            )
        super().__init__(message)


# ── Where they come from ──────────────────────────────────────────────────────────────────────


def environment(*, with_file: bool = True) -> dict[str, str]:
    """Return the environment of the process, and what only ``.env`` sets.

    A variable that is set to nothing is set: that is how one of the file is switched off.

    Raises:
        OperatorError: the file cannot be read, or is wrong.
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


def read_env_file() -> dict[str, str]:
    """Return what the file sets; nothing if there is none.

    A ``$`` stands for itself: no names are replaced by values.

    Raises:
        OperatorError: it cannot be read, or a line of it is not ``NAME=value``.
    """
    try:
        text = ENV_FILE.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", "no UTF-8")
        raise OperatorError(
            f"{ENV_FILE.absolute()} cannot be read ({why}): make it a text file in UTF-8 of the "
            "user that the bot runs as, or move it away."
        ) from None
    from dotenv.parser import parse_stream  # noqa: PLC0415 - many deployments have no file

    values = {}
    # Not dotenv_values(), which logs what it cannot read, and goes on without it.
    for each in parse_stream(io.StringIO(text)):
        if each.error or (each.key and each.value is None):
            lines = each.original.string.rstrip().splitlines()  # blank ones before it are its own
            raise OperatorError(
                f"Line {each.original.line + len(lines) - 1} of {ENV_FILE.absolute()} is not "
                "NAME=value, or has a quotation mark without a second one: correct it."
            )
        if each.key:
            values[each.key] = each.value or ""
    return values


def is_exposed() -> bool:
    """Return whether others than its owner can read or write the file, with the secrets in it."""
    is_here = os.name == "posix" and ENV_FILE.exists()
    return is_here and bool(ENV_FILE.stat().st_mode & _OTHERS)


def misspelt(environ: Mapping[str, str], in_file: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each variable that looks like a setting and is none, and the setting that is meant.

    Of ``in_file``, what ``.env`` sets, all are named that nobody reads, with "" where none is like
    it.
    """
    names = Settings.table()
    for given in sorted(environ):
        upper = given.upper()
        if given in names or given in _IN_SMALL_LETTERS:
            continue
        of_others = upper.endswith(_OTHER_PROGRAMS) or len(given) < _MIN_NAME
        similar = [] if of_others else get_close_matches(upper, names, n=1, cutoff=_ALIKE)
        if similar or given in in_file:
            yield given, "".join(similar)


# ── The table ─────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class About:
    """What people are told about a setting, in Markdown; settings.md and .env.example have it."""

    purpose: str
    """What it is for."""
    without: str
    """What happens if it is not set; it begins with the default, if there is one."""
    example: str
    title: str = ""
    """What Slack or the service call it."""
    hint: str = ""
    """A sentence that says where to find it."""

    @property
    def where(self) -> str:
        """The hint as plain text."""
        return self.hint.replace("*", "").replace("`", "")


class _Settings(BaseModel):
    """Some settings, each read from the variable of the same name in capitals.

    ``repr()`` shows no secret.
    """

    model_config = ConfigDict(frozen=True, alias_generator=str.upper, hide_input_in_errors=True)

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
            mistakes = error.errors(include_url=False, include_context=False)
        wrong = {}
        for each in mistakes:
            name = str(each["loc"][0]).upper()  # a rejected default is listed by the field's name
            said = each["msg"].removeprefix("Value error, ")
            if each["type"] == "missing":
                said = _MISSING
            elif each["type"] == "bool_parsing":
                said = f"must be yes or no, not {values.shown(str(each['input']))}."
            if owner := cls._owner_of_secret(name, given):
                said = f"has the value of {owner} in it"
            if name == "SLACK_SIGNING_SECRET" and said.startswith(_MISSING):
                name = "SLACK_APP_TOKEN"  # of the two, the one that needs no address
            about = cls.table()[name]
            remedy = f": {about.where}." if about.hint and said[-1] != "." else ""
            wrong[name] = f"{said}{remedy}"
        sentences = [
            *(f"{name} {said}" for name, said in wrong.items()),
            *(
                f"{given} is no setting of the bot. Rename it to {meant}, if that is meant."
                for given, meant in misspelt(environ, {})
            ),
        ]
        raise SettingsError("\n  ".join([_REFUSAL, *sentences]), wrong)

    @classmethod
    def _owner_of_secret(cls, name: str, given: Mapping[str, str]) -> str | None:
        """Return which other setting is secret and has its value in this one, which is not."""
        kinds = {str(field.alias): field.annotation for field in cls.model_fields.values()}
        secret = [each for each, kind in kinds.items() if SecretStr in {kind, *get_args(kind)}]
        if name in secret:  # nothing of it is shown
            return None
        parts = {*filter(None, re.split(r"[,\s]+", given.get(name, "")))}
        return next((each for each in secret if given.get(each, "").strip() in parts), None)

    @classmethod
    def mistake(cls, name: str, text: str) -> str | None:
        """Return what is wrong with one setting, as the rest of a sentence about it."""
        try:
            cls.read({name: text})
        except SettingsError as error:
            return error.mistakes.get(name)
        return None

    @classmethod
    def table(cls) -> dict[str, About]:
        """Return what is to be said of each setting, by its name."""
        return {
            str(field.alias): next(each for each in field.metadata if isinstance(each, About))
            for field in cls.model_fields.values()
        }

    @field_validator("*", mode="before")
    @classmethod
    def _has_no_common_mistake(cls, text: object, info: ValidationInfo) -> object:
        if not isinstance(text, str):  # a default
            return text
        name = str(cls.model_fields[str(info.field_name)].alias)
        about = cls.table()[name]
        what = f"the {about.title}" if about.title else "what belongs here."
        values.refuse(
            (
                text != text.strip(),
                "has a space or line break before or after it: remove that.",
            ),
            (text[0] in _QUOTES and text[-1] in _QUOTES, "has quotes around it: remove them."),
            (
                _PLACEHOLDER in text,
                "still contains the placeholder of the example: replace it.",
            ),
            *(
                (text.startswith(beginning) and name != owner, f"is {kind}, not {what}")
                for beginning, (owner, kind) in _BEGINNINGS.items()
            ),
            (
                about.title and not values.VISIBLE.fullmatch(text),  # a secret
                "has a space, a line break or a letter beyond ASCII in it: copy it again.",
            ),
        )
        return text


class ManifestSettings(_Settings):
    """The settings that the Slack app's manifest depends on."""

    public_url: Annotated[
        str | None,
        BeforeValidator(
            values.address(
                "https://bot.example.com",
                "/(slack/events|callbacks)$",
                "ends in one of the bot's own paths: give only what comes before /slack/events.",
            )
        ),
        About(
            "the address at which the service can reach the bot, to call back when a video is done",
            "the bot asks the service again and again; answers come a little later. What a create "
            "call without an answer has made, a person has to look for",
            "https://bot.example.com",
        ),
    ] = None
    command_prefix: Annotated[
        str,
        BeforeValidator(
            values.word(
                f"[a-z0-9_-]{{1,{_MAX_PREFIX}}}",
                f"is not the beginning of a command's name: at most {_MAX_PREFIX} small letters, "
                "digits, hyphens and underscores, like acme- for /acme-video.",
                is_shown=True,
            )
        ),
        About(
            "what the commands' names begin with, for a workspace where another app has `/video` "
            "already, or a second deployment is. The Slack app's manifest needs the same prefix "
            "(`python -m bot manifest`). At most 24 small letters, digits, `-` and `_`",
            "the commands are `/video` and `/replica`",
            "acme-",
        ),
    ] = ""
    slack_app_token: Annotated[
        SecretStr | None,
        BeforeValidator(
            values.word("xapp-.+", "does not look like an app-level token, which starts with xapp-")
        ),
        About(
            "the *App-Level Token*. It switches Socket Mode on, where Slack needs no public "
            "address of the bot",
            "Slack sends to the request URLs",
            "xapp-YOUR-TOKEN",
            "App-Level Token",
            "generate it in the Slack app's sidebar under *Basic Information* > *App-Level "
            "Tokens* > *Generate Token and Scopes*, with the scope `connections:write`",
        ),
    ] = None


class ConnectionSettings(_Settings):
    """The settings that say how Slack and the video service are called."""

    slack_api_url: Annotated[
        str,
        BeforeValidator(lambda text: values.base_url(text, "https://slack.com/api/") + "/"),
        About(
            "the address of Slack's Web API, for a proxy or for tests",
            "`https://slack.com/api/`",
            "https://slack.com/api/",
        ),
    ] = "https://slack.com/api/"
    https_proxy: Annotated[
        SecretStr | None,
        BeforeValidator(
            values.word(
                r"(?i:http)://(?:[!-?A-~]*@)?(?:[\w.-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?/?",
                "is not the address of a proxy: it should look like http://proxy.example.com:3128.",
            )
        ),
        About(
            "the proxy through which the bot calls Slack and the service",
            "it calls them directly",
            "http://proxy.example.com:3128",
        ),
    ] = None
    no_proxy: Annotated[
        str,
        BeforeValidator(
            values.word(
                r"[\x20-\x7e]*",
                "is not a list of hosts: it should look like example.com,10.1.2.3.",
            )
        ),
        About(
            "hosts that are called without the proxy, with commas between them",
            "every host is called through it",
            "videos.example.com",
        ),
    ] = ""

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

    database: Annotated[
        Path | SecretStr,
        BeforeValidator(values.database),
        About(
            "the file of the database: three slashes before a name in the working directory, four "
            "before a full path. Its disk has to survive restarts. Or a "
            "[PostgreSQL](postgresql.md) database, for several copies of the bot: "
            "`postgresql://bot:PASSWORD@db.example.com/bot`",
            "`sqlite:///bot.db`",
            "sqlite:////var/lib/bot/bot.db",
        ),
    ] = Field(Path("bot.db"), alias="DATABASE_URL")

    @property
    def database_address(self) -> Path | str:
        """The file of the database, or its URL on a server, which may have a password."""
        database = self.database
        return database if isinstance(database, Path) else database.get_secret_value()


# Slack documents no shape; the ones that it makes are all like this.
_signing_secret: Final = values.word(
    "[0-9a-f]{32}",
    "does not look like a signing secret, which is 32 characters from 0 to 9 and a to f (the "
    "Verification Token is another one)",
)


class Settings(ManifestSettings, ConnectionSettings, DatabaseSettings):
    """All settings of a deployment, checked and converted."""

    slack_bot_token: Annotated[
        SecretStr,
        BeforeValidator(
            values.word("xoxb-.+", "does not look like a bot token, which starts with xoxb-")
        ),
        About(
            "the *Bot User OAuth Token*, with which the bot calls Slack",
            "the bot doesn't start",
            "xoxb-YOUR-TOKEN",
            "Bot User OAuth Token",
            "copy it in the Slack app's sidebar from *OAuth & Permissions* > *Bot User OAuth "
            "Token*",
        ),
    ]
    slack_signing_secret: Annotated[
        SecretStr | None,
        BeforeValidator(lambda text: text and _signing_secret(text)),
        About(
            "the *Signing Secret*. The bot uses it to tell Slack's requests from forged ones",
            "the bot doesn't start, unless `SLACK_APP_TOKEN` is set: Socket Mode needs none",
            "YOUR-SIGNING-SECRET",
            "Signing Secret",
            "copy it in the Slack app's sidebar from *Basic Information* > *App Credentials* > "
            "*Signing Secret* > *Show*",
        ),
    ] = Field(None, validate_default=True)
    video_api_url: Annotated[
        str,
        BeforeValidator(
            values.address(
                "https://videos.example.com",
                "[^/]/v2(/|$)",
                "has /v2 in it, which the bot adds itself: leave it out, with all that follows.",
            )
        ),
        About(
            "where the video service is",
            "the bot doesn't start",
            "https://YOUR-VIDEO-SERVICE",
            hint="give the address of the service's API, without `/v2`",
        ),
    ]
    video_api_key: Annotated[
        SecretStr,
        About(
            "your key for the video service",
            "the bot doesn't start",
            "YOUR-KEY",
            "API key",
            "copy it from your account at the video service",
        ),
    ]
    admin_users: Annotated[
        frozenset[str],
        BeforeValidator(values.users),
        About(
            "people who may press the buttons of every request, and who see usage and change "
            "limits in Home. Without `PUBLIC_URL` they are asked first when it is not known "
            "whether something was created",
            "the workspace's owners and admins may, where the scope `users:read` is granted; no "
            "message names them",
            "U012AB3CD,U045EF6GH",
        ),
    ] = frozenset()
    allow_shared_channels: Annotated[
        bool,
        About("`yes`: post in channels that are shared with other organizations", "`no`", "yes"),
    ] = False
    join_public_channels: Annotated[
        bool,
        About(
            "`yes`: when Slack's answer to a post was lost, the bot joins a public channel to look "
            "for the message (scope `channels:join`)",
            "`no`: in public channels that it isn't in, it posts such a message again, perhaps "
            "twice",
            "yes",
        ),
    ] = False
    retention: Annotated[
        timedelta,
        BeforeValidator(lambda days: timedelta(days=days)),
        BeforeValidator(values.whole_number(_MAX_RETENTION_DAYS)),
        About(
            "days after which scripts and links of ended requests are erased, but for the name of "
            "a video that succeeded and the link to watch it. After as long again, at least 30 "
            "days, the requests are deleted, with these",
            "`90`",
            "30",
        ),
    ] = Field(timedelta(days=90), alias="RETENTION_DAYS")
    max_open_per_user: Annotated[
        int,
        BeforeValidator(values.requests),
        About("how many requests one person may have in progress", "`20`", "5"),
    ] = 20
    max_per_user_per_day: Annotated[
        int,
        BeforeValidator(values.requests),
        About("how many requests one person may make in a calendar day (UTC)", "`100`", "20"),
    ] = 100
    max_per_day: Annotated[
        int,
        BeforeValidator(values.requests),
        About(
            "how many requests everyone together may make in a calendar day (UTC)", "`500`", "50"
        ),
    ] = 500
    max_per_user_per_month: Annotated[
        int | None,
        BeforeValidator(values.requests),
        About("how many requests one person may make in a calendar month (UTC)", "no limit", "200"),
    ] = None
    max_per_month: Annotated[
        int | None,
        BeforeValidator(values.requests),
        About(
            "how many requests everyone together may make in a calendar month (UTC)",
            "no limit",
            "1000",
        ),
    ] = None
    max_script: Annotated[
        int,
        BeforeValidator(values.script_length),
        About(
            f"the longest script, in characters. Above {values.MAX_BOX}, which is what the "
            "form's box holds, the form takes a text file too (scope `files:read`). At most "
            f"{values.LONGEST_SCRIPT}",
            f"`{values.MAX_BOX}`",
            "10000",
        ),
    ] = values.MAX_BOX
    video_users: Annotated[
        frozenset[str],
        BeforeValidator(values.users_and_groups),
        About(
            "who may create videos: people and user groups (`S…`, scope `usergroups:read`; in "
            "Slack: the group, *More*, *Copy group ID*). Guests may if they are listed themselves. "
            "Admins always may, people of other organizations never",
            "every full member of the workspace",
            "U012AB3CD,S0614TZR7",
        ),
    ] = frozenset()
    training_users: Annotated[
        frozenset[str],
        BeforeValidator(values.users_and_groups),
        About(
            "who may train replicas, likewise", "every full member of the workspace", "S0614TZR7"
        ),
    ] = frozenset()
    allowed_channels: Annotated[
        frozenset[str],
        BeforeValidator(values.channels),
        About(
            "the ids of the channels in which videos and replicas may be asked for and posted (in "
            "Slack: at the end of the channel's details). Direct messages with the app always work",
            "all channels",
            "C012AB3CD",
        ),
    ] = frozenset()
    approvers: Annotated[
        frozenset[str],
        BeforeValidator(values.users),
        About(
            "the people who approve requests before anything is created. Admins may too, and "
            "no one may approve their own",
            "nothing needs approval",
            "U012AB3CD,U045EF6GH",
        ),
    ] = frozenset()
    approval_above: Annotated[
        int,
        BeforeValidator(values.whole_number(values.LONGEST_SCRIPT, 0)),
        About(
            "the longest script that needs no approval, in characters. A training always needs "
            "approval",
            "`0`: every video needs approval",
            "1000",
        ),
    ] = 0
    approval_channel: Annotated[
        str | None,
        BeforeValidator(
            values.word(
                values.CHANNEL,
                "is not the id of a Slack channel: it looks like C024BE91L (in Slack: the "
                "channel's name, at the end of About).",
                is_shown=True,
            )
        ),
        About(
            "the id of the channel in which approvers are asked (in Slack: at the end of the "
            "channel's details). All its members see the scripts. The bot has to be able to post "
            "there",
            "each approver is asked in a direct message",
            "C012AB3CD",
        ),
    ] = None
    price_per_minute: Annotated[
        float,
        BeforeValidator(
            values.word(
                r"(?!0*\.?0*$)[0-9]{1,6}(\.[0-9]{1,4})?",
                "is no price: it should look like 0.40.",
                is_shown=True,
            )
        ),
        About(
            "what a minute of speech costs at the service: the form, approvers and Home then say "
            "about what a script comes to",
            "no prices are shown",
            "0.40",
        ),
    ] = 0
    price_currency: Annotated[
        str,
        BeforeValidator(
            values.word(
                r"[A-Za-z]{3}|[$\xa2-\xa5\u20a0-\u20cf]",  # signs: Unicode's currency symbols
                "is no currency: it should look like $, € or EUR.",
                is_shown=True,
            )
        ),
        About("what that price is in, as it is written before the number", "`$`", "EUR"),
    ] = "$"
    video_api_lists: Annotated[
        bool,
        About(
            "`yes`: your service can [list its replicas](interface.md#lists), at `/v2/replicas`. "
            "Forms offer those, too",
            "`no`: forms offer the replicas that were trained or used here",
            "yes",
        ),
    ] = False
    media_hosts: Annotated[
        frozenset[str],
        BeforeValidator(
            values.each_of(
                rf"{values.HOST_NAME}|localhost|127\.[\d.]+|::1",
                "host",
                "they look like cdn.example.com,*.media.example.com, without https:// and paths",
                is_shown=False,  # of a link
            )
        ),
        BeforeValidator(str.lower),
        About(
            "hosts from which a finished video may be fetched, to show it in the thread: those of "
            "the service's download links, with commas between them. `*.example.com` stands for "
            "all hosts below `example.com`. They are called over https alone, at public addresses; "
            "behind a proxy, the proxy decides about addresses. Needs the scopes `files:write` and "
            "`files:read`",
            "the reply has the links alone",
            "cdn.example.com",
        ),
    ] = frozenset()
    consent_statement: Annotated[
        str,
        BeforeValidator(
            values.word(  # without bytes of the environment that are no UTF-8
                rf"[^\ud800-\udfff]{{1,{_MAX_STATEMENT}}}",
                f"must be a text of at most {_MAX_STATEMENT:,} characters.",
            )
        ),
        About(
            "the sentence that the service wants to hear in a training video, word for word. The "
            "training form shows it for copying",
            "the form says only that consent has to be spoken",
            "I agree that a replica of me is trained from this video.",
        ),
    ] = ""
    allow_temporary_disk: Annotated[
        bool,
        About(
            "with SQLite, `yes`: start although the host's disk is temporary. Requests in progress "
            "are lost at each restart",
            "`no`: on a host that is known for it, the bot doesn't start",
            "yes",
        ),
    ] = Field(False, validate_default=True)
    host: Annotated[
        str,
        BeforeValidator(
            values.word(
                "[!-.0-~]+",
                "is not an address to listen on: it should look like 0.0.0.0 or 127.0.0.1 (the "
                "port is PORT, and the address for others is PUBLIC_URL).",
            )
        ),
        About(
            "the address on which the bot listens",
            "`0.0.0.0`: every address of the machine",
            "127.0.0.1",
        ),
    ] = "0.0.0.0"  # noqa: S104 - as in a container
    port: Annotated[
        int,
        BeforeValidator(values.whole_number(2**16 - 1, 0)),
        About("the port on which the bot listens, for plain HTTP", "`3000`", "8080"),
    ] = 3000

    @property
    def report_token(self) -> str:
        """What `doctor` shows to be told all that ``/readyz`` knows; no secret follows from it."""
        secret = self.slack_bot_token.get_secret_value().encode()
        return hmac.new(secret, b"/readyz", hashlib.sha256).hexdigest()

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values to mask in logs."""
        secrets = (
            self.slack_bot_token,
            self.slack_signing_secret,
            self.slack_app_token,
            self.video_api_key,
        )
        urls = [
            urlsplit(each.get_secret_value())
            for each in (self.https_proxy, self.database)
            if isinstance(each, SecretStr)
        ]
        options = [parse_qs(url.query) for url in urls]  # decoded
        passwords = [
            *(url.password for url in urls if url.password),
            # A proxy is sent it decoded.
            *(unquote(url.password) for url in urls if url.password),
            *(each for given in options for each in given.get("password", ())),
            *(each for given in options for each in given.get("sslpassword", ())),
        ]
        return (*(secret.get_secret_value() for secret in secrets if secret), *passwords)

    @field_validator("slack_signing_secret")
    @classmethod
    def _is_given_for_http(cls, secret: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        # A wrong app token is not in the data: then it alone is refused.
        if secret is None and info.data.get("slack_app_token", ...) is None:
            where = cls.table()["SLACK_APP_TOKEN"].where
            raise ValueError(
                f"{_MISSING}: {where} (or set SLACK_SIGNING_SECRET, with an https address)."
            )
        return secret

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
