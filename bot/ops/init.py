"""The guided set-up: ask for the settings, check each, write ``.env``, say how to start.

Of a ``.env`` that is there, only the settings that change are touched.
"""

import asyncio
import contextlib
import io
import json
import logging
import os
import re
import sys
import webbrowser
from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from http import HTTPStatus
from itertools import count
from typing import Any, Final, TypeVar
from urllib.parse import quote

import click
from dotenv import set_key, unset_key

from bot import log
from bot.clock import SystemClock
from bot.errors import OperatorError
from bot.masking import Mask
from bot.ops import doctor, terminal
from bot.ops.doctor import list_replicas, read_unknown
from bot.ops.doctor_slack import CreatedApp, create_app, try_app_token, try_bot_token
from bot.ops.finding import CheckState, Finding, report, sentence
from bot.ops.manifest import manifest, read
from bot.settings import (
    ENV_FILE,
    ConnectionSettings,
    EnvFileError,
    ManifestSettings,
    Settings,
    environment,
    is_exposed,
    read_env_file,
)
from bot.timings import Timings

_HEADER: Final = (
    "# Settings of the bot, written by `python -m bot init`. It holds secrets: keep it private.\n"
)
# What every reader takes as it is. Anything else gets quotes, which docker --env-file takes for a
# part of the value: https://docs.docker.com/reference/cli/docker/container/run/#env
_PLAIN: Final = re.compile(r"[\w.:/@%+,=^-]*", re.ASCII)


def write(changed: Mapping[str, str | None]) -> None:
    """Set settings in ``.env``, for its owner alone; all else in it is kept.

    None means that a setting that it has is not to be there.

    Raises:
        EnvFileError: it cannot be written.
    """
    target = os.path.realpath(ENV_FILE)  # through a link, so that the link stays
    try:
        if not ENV_FILE.exists():
            ENV_FILE.touch(mode=0o600)
            ENV_FILE.write_text(_HEADER)
        for name, text in changed.items():
            if text:
                is_plain = _PLAIN.fullmatch(text)
                set_key(target, name, text, quote_mode="never" if is_plain else "always")
            else:
                unset_key(target, name)
    except OSError as error:
        raise EnvFileError(
            f"{ENV_FILE.absolute()} cannot be written ({error.strerror}): run this in a folder "
            "that is yours, on a disk with space left."
        ) from None


# ── Questions and checks ──────────────────────────────────────────────────────────────────────────

_T = TypeVar("_T")
_ABOUT: Final = Settings.table()
#: What has a good answer: it is taken from the environment, or as it is, and not asked for.
_TAKEN: Final = ("PUBLIC_URL", "COMMAND_PREFIX", "ADMIN_USERS")
#: In the order in which they are written.
_WRITTEN: Final = (
    *("SLACK_BOT_TOKEN", "SLACK_APP_TOKEN", "SLACK_SIGNING_SECRET", *_TAKEN),
    *("VIDEO_API_URL", "VIDEO_API_KEY"),
)
_OFFER_AFTER: Final = 3  # tries: then it may go on with what was found wrong
_MAX_NAMED: Final = 5  # replicas

_APPS: Final = "https://api.slack.com/apps"

# Allowed as they are in a query: https://www.rfc-editor.org/rfc/rfc3986#section-3.4
_NOT_ENCODED: Final = "/:@,"

# https://docs.slack.dev/app-manifests/configuring-apps-with-app-manifests#config-tokens
_CONFIGURATION_TOKEN: Final = "xoxe.xoxp-"  # noqa: S105 - how one begins

_TIMINGS: Final = Timings(call_timeout=timedelta(seconds=8))  # a person waits for it


# ── Answers ──────────────────────────────────────────────────────────────────────────────────────


def mistake_in(name: str, text: str) -> str | None:
    """Return what is wrong with a value, as a sentence without it."""
    mistake = Settings.mistake(name, text)
    return f"That {mistake.removeprefix(name).strip()}" if mistake else None


def normal(name: str, text: str) -> str:
    """Return a value as it is written: without ``NAME=`` before it, or a slash at its end."""
    cleaned = terminal.cleaned
    text = cleaned(re.sub(rf"^(?:export\s+)?{name}\s*=", "", cleaned(text)))
    return text.rstrip("/") if name.endswith("_URL") else text


# ── The Slack app ────────────────────────────────────────────────────────────────────────────────


def link(manifest: str) -> str:
    """Return the link that opens Slack's form with this manifest filled in.

    It has less than 3,000 characters, which every browser takes. Others use the parameter too; the
    page about it is https://docs.slack.dev/app-manifests/configuring-apps-with-app-manifests.
    """
    short = json.dumps(read(manifest), separators=(",", ":"))
    return f"{_APPS}?new_app=1&manifest_json={quote(short, safe=_NOT_ENCODED)}"


# ── The steps ────────────────────────────────────────────────────────────────────────────────────


class Wizard:
    """Collects the settings, one step after the other.

    What the environment says and is valid is not asked for.

    Args:
        known: what ``.env`` says: the defaults.
        environ: the environment.
        is_silent: whether nobody can be asked: then the defaults are the answers.
    """

    def __init__(
        self, known: Mapping[str, str], environ: Mapping[str, str], *, is_silent: bool
    ) -> None:
        # What the bot would refuse is no default.
        self._known = {
            name: text
            for name, text in known.items()
            if name in _WRITTEN and not Settings.mistake(name, text)
        }
        given = {name: environ[name] for name in _WRITTEN if environ.get(name, "").strip()}
        self._given = self._known | given if is_silent else given
        self._is_silent = is_silent
        self._connection = ConnectionSettings.read({**known, **environ})
        self._port = {**known, **environ}.get("PORT", "3000")
        self._may_list = "VIDEO_API_LISTS" not in {**known, **environ} and not (is_silent and known)
        self._values: dict[str, str] = {}
        self._refused: object = None  # what was tried last
        ways = given if {"SLACK_APP_TOKEN", "PUBLIC_URL"} & given.keys() else self._known
        self.uses_socket_mode = "SLACK_APP_TOKEN" in ways or "PUBLIC_URL" not in ways
        self.replicas: list[str] | None = None
        """The names of the account's replicas; None if they are not known."""

    def missing(self) -> list[str]:
        """Return the names of the settings that are needed and not known."""
        secret = "SLACK_APP_TOKEN" if self.uses_socket_mode else "SLACK_SIGNING_SECRET"
        needed = ("VIDEO_API_URL", "VIDEO_API_KEY", "SLACK_BOT_TOKEN", secret)
        return [name for name in needed if name not in self._given]

    def run(self) -> dict[str, str | None]:
        """Ask for everything and return the settings; None stands for one that is not to be set.

        Raises:
            OperatorError: something is wrong, and nobody can be asked.
            click.Abort: the person ended it.
        """
        self._values = {name: self._answer(name) or self._known.get(name, "") for name in _TAKEN}
        if not self._is_silent:
            terminal.say(
                "Set up Replica Videos in your Slack workspace. It takes a few minutes. Press "
                "Enter to take what is in [brackets]. Ctrl-C stops: nothing is written before the "
                "end."
            )
            terminal.say(
                "Slack needs no public address of the bot: it works on a laptop and behind a "
                "firewall (Socket Mode). To have Slack call an https address of yours instead, "
                "press Ctrl-C and set PUBLIC_URL."
                if self.uses_socket_mode
                else f"Slack will call {self._values['PUBLIC_URL']}. A proxy or your host has to "
                f"pass what arrives there to the bot: port {self._port}, without TLS."
            )
        self._service()
        self._app()
        self._tokens()
        wanted = {name: self._values.get(name) or None for name in _WRITTEN}
        if self._may_list and self.replicas is not None:
            wanted["VIDEO_API_LISTS"] = "yes"
        # What the other way needs stays as it is, but for what would switch to it. In Socket Mode,
        # a public address is for callbacks.
        left = ("SLACK_SIGNING_SECRET", "PUBLIC_URL") if self.uses_socket_mode else ()
        return {name: text for name, text in wanted.items() if text or name not in left}

    # ── Steps ─────────────────────────────────────────────────────────────────────────────────

    def _service(self) -> None:
        terminal.heading("Video service")
        question = (
            "The address of the service's API, up to /v2, from its API documentation,\n"
            "  such as https://videos.example.com"
        )
        known = self._known.get("VIDEO_API_URL", "")
        url = self._answer("VIDEO_API_URL") or self._typed("VIDEO_API_URL", question, known)
        key = self._secret("VIDEO_API_KEY")
        for tries in count(1):
            proxy, mask = self._connection.proxy_for(url), Mask([key])
            found, status = self._wait_for(
                read_unknown(url, key, proxy, _TIMINGS, SystemClock(), mask=mask)
            )
            is_accepted = found.ok or status == HTTPStatus.PAYMENT_REQUIRED
            found, tried = found.cleaned(mask), (url, key)
            if self._settled(found, "VIDEO_API_KEY", tries, tried, is_accepted=is_accepted):
                break
            if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
                key = self._typed_secret("VIDEO_API_KEY", key if tries >= _OFFER_AFTER else "")
            else:
                url = self._typed("VIDEO_API_URL", question, url)
        self._values |= {"VIDEO_API_URL": url, "VIDEO_API_KEY": key}
        self.replicas = asyncio.run(
            list_replicas(url, key, proxy, _TIMINGS, SystemClock(), mask=mask)
        )
        if self.replicas:
            number, named = len(self.replicas), ", ".join(self.replicas[:_MAX_NAMED])
            more = f" and {number - _MAX_NAMED} more" if number > _MAX_NAMED else ""
            account = f"Your account has {number} replica{'' if number == 1 else 's'}"
            terminal.good(f"{account}: {named}{more}.")

    def _app(self) -> None:
        if "SLACK_BOT_TOKEN" in {**self._known, **self._given}:
            return
        terminal.heading("The Slack app")
        text = manifest(ManifestSettings.read(self._values), socket_mode=self.uses_socket_mode)
        form = link(text)
        terminal.say("This link opens Slack's form for a new app, with everything filled in:")
        click.echo(f"\n{form}\n")
        terminal.say(
            "With an app configuration token (api.slack.com/apps, below your apps: Generate "
            "Token), Slack creates the app without the form. If you have the app, type have."
        )
        if page := self._page_of_app(text):
            click.echo(f"\n{page}\n")
        else:
            terminal.say("In the form: pick your workspace, then Next > Create.")
        if not webbrowser.open(page or form):
            terminal.say("No browser opened. Copy the link above into one.")
        terminal.say(
            "In the sidebar: Install App > Install to Workspace > Allow. If it says Request to "
            "Install, an admin of the workspace has to approve the app first."
        )
        if not page:
            socket = " --json" if self.uses_socket_mode else ""
            terminal.say(
                "No form, or an empty one? Choose From a manifest, and paste what this prints in "
                f"another terminal: {sys.executable} -m bot manifest{socket}"
            )
        terminal.say(
            "An icon for the app is in docs/pictures/icon.png: add it under Basic Information > "
            "Display Information."
        )

    def _page_of_app(self, text: str) -> str:
        """Return where to install the app that is there or was just created; "" to use the form.

        The token for it is kept nowhere.
        """
        question = "Press Enter to open the form, paste a token, or type have (not shown):"
        while token := terminal.ask(question, hidden=True):
            if token == "have":  # noqa: S105 - no token
                terminal.say("Open the app here:")
                return _APPS
            if not token.startswith(_CONFIGURATION_TOKEN):
                terminal.bad(
                    "That is the refresh token. Copy the one that starts with xoxe.xoxp-."
                    if token.startswith("xoxe-")
                    else f"That is no app configuration token: {_CONFIGURATION_TOKEN}..."
                )
                continue
            creating = create_app(token, json.dumps(read(text)), self._connection, _TIMINGS)
            if isinstance(app := self._wait_for(creating), CreatedApp):
                self._given["SLACK_SIGNING_SECRET"] = app.signing_secret
                terminal.good("Slack has created the app. Install it here:")
                return f"{_APPS}/{quote(app.app_id, safe='')}/install-on-team"
            terminal.bad(_said(app.cleaned(Mask([token]))))
        return ""

    def _tokens(self) -> None:
        terminal.heading("The app's tokens")
        self._checked_secret("SLACK_BOT_TOKEN", try_bot_token)
        if self.uses_socket_mode:
            self._checked_secret("SLACK_APP_TOKEN", try_app_token)
        else:
            self._values["SLACK_SIGNING_SECRET"] = self._secret("SLACK_SIGNING_SECRET")
            terminal.good("It looks right. Slack's first request will show whether it is.")

    # ── Questions ─────────────────────────────────────────────────────────────────────────────

    def _answer(self, name: str) -> str | None:
        """Return what is given for a setting; None if that is nothing, or not valid.

        Raises:
            OperatorError: it is not valid, and is not asked for.
        """
        if name not in self._given:
            return None
        text = normal(name, self._given[name])
        if not text or (mistake := mistake_in(name, text)) is None:
            return text
        if self._is_silent or name in _TAKEN:
            raise OperatorError(f"{name}: {mistake}")
        terminal.bad(f"{name} in the environment: {mistake}")
        return None

    def _typed(self, name: str, question: str, known: str, *, hidden: bool = False) -> str:
        """Ask until the answer is valid; Enter takes what is known."""
        while True:
            asked = question if known and not hidden else f"{question}:"
            typed = terminal.ask(asked, "" if hidden else known, hidden=hidden)
            text = normal(name, typed) or known
            if not text:
                nothing = "Nothing arrived. Paste it once more, then press Enter."
                terminal.bad(nothing if hidden else "This one is needed.")
            elif mistake := mistake_in(name, text):
                terminal.bad(mistake)
                part, found, _ = text.partition("/v2")
                if found and not hidden and not mistake_in(name, part):
                    known = part
            else:
                return text

    def _checked_secret(
        self,
        name: str,
        check: Callable[[str, ConnectionSettings, Timings], Coroutine[Any, Any, Finding]],
    ) -> None:
        text = self._secret(name)
        for tries in count(1):
            found = self._wait_for(check(text, self._connection, _TIMINGS))
            if self._settled(found.cleaned(Mask([text])), name, tries, text, is_accepted=found.ok):
                break
            text = self._typed_secret(name, text if tries >= _OFFER_AFTER else "")
        self._values[name] = text

    def _secret(self, name: str) -> str:
        """Return a secret as the environment says it, or as it is typed."""
        if name not in self._given:
            terminal.say(sentence(_ABOUT[name].where))
        return self._answer(name) or self._typed_secret(name)

    def _typed_secret(self, name: str, refused: str = "") -> str:
        """Ask for a secret; Enter takes what was refused, or what is known."""
        known = refused or self._known.get(name, "")
        keep = f"Enter keeps the one in {ENV_FILE}" if known and not refused else "not shown"
        return self._typed(name, f"{_ABOUT[name].title} ({keep})", known, hidden=True)

    def _settled(
        self, found: Finding, name: str, tries: int, tried: object, *, is_accepted: bool
    ) -> bool:
        """Show what a check found; return whether to go on with what was tried.

        After some tries, that is also what was found wrong and is given once more.
        """
        if not is_accepted and self._is_silent:
            raise OperatorError(f"{_ABOUT[name].title}: {_said(found)}")
        (terminal.good if found.state is CheckState.OK else terminal.bad)(_said(found))
        is_repeated, self._refused = tried == self._refused, tried
        if is_accepted or (tries > _OFFER_AFTER and is_repeated):
            return True
        if tries >= _OFFER_AFTER:
            terminal.say("To go on with it anyway, press Enter.")
        return False

    def _wait_for(self, check: Coroutine[Any, Any, _T]) -> _T:
        async def announced() -> _T:
            # Once it is shown, Ctrl-C meets a loop that runs.
            terminal.say("Checking...")
            return await check

        return asyncio.run(announced())


def _said(found: Finding) -> str:
    return f"{found.name}: {found.message}. {found.remedy}".rstrip()


# ── From the first question to the end ───────────────────────────────────────────────────────────


def run() -> int:
    """Run the set-up in the working directory and return the exit code.

    Raises:
        OperatorError: it cannot go on.
    """
    log.configure(sys.stderr, logging.CRITICAL)
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # "?" for what it lacks
    environ = environment(with_file=False)
    found = {name: text for name, text in read_env_file().items() if text}
    is_new = not ENV_FILE.exists()
    is_silent = not sys.stdin.isatty()
    wizard = Wizard(found, environ, is_silent=is_silent)
    if is_silent and (missing := wizard.missing()):
        click.echo(
            f"This is not a terminal: set {', '.join(missing)} in the environment, or run this at "
            "one.",
            err=True,
        )
        return 2
    try:
        values = wizard.run()
        is_written = _write(found, values, is_silent=is_silent)
    except (KeyboardInterrupt, click.Abort):
        click.echo()
        terminal.say("Stopped. Nothing was written.")
        return 130
    if not is_written:
        terminal.say("Nothing was written.")
        return 1
    return _finish(wizard, f"/{values.get('COMMAND_PREFIX') or ''}", is_new=is_new)


def _write(found: Mapping[str, str], values: Mapping[str, str | None], *, is_silent: bool) -> bool:
    """Write the settings if that is allowed; return whether ``.env`` holds them now."""
    terminal.heading("Settings")
    if is_exposed():
        with contextlib.suppress(OSError):  # the check below says it
            ENV_FILE.chmod(0o600)
            terminal.good(f"Others could read {ENV_FILE}. Now only you can.")
    changed = {name: text for name, text in values.items() if found.get(name) != text}
    if not changed:
        terminal.good(f"{ENV_FILE} has these settings already.")
        return True
    if ENV_FILE.exists():
        terminal.say(f"There is a {ENV_FILE}. This would change in it, and nothing else:")
        terminal.say(", ".join(each if changed[each] else f"{each} (removed)" for each in changed))
        if is_silent:
            raise OperatorError(
                "Nothing was written, because this is not a terminal, where you could confirm it: "
                "change the file by hand, or run this at a terminal."
            )
        if not terminal.confirm("Change it?", default=not changed.keys() & found.keys()):
            return False
    write(changed)
    terminal.good(f"{ENV_FILE} is written. Only you can read it.")
    return True


def _finish(wizard: Wizard, slash: str, *, is_new: bool) -> int:
    terminal.heading("Check")
    examined = report(doctor.examine_deployment(), in_full=False)
    findings = asyncio.run(examined)
    is_ok = all(finding.ok for finding in findings)
    terminal.heading("Start the bot" if is_ok else "Once that is corrected, start the bot")
    click.echo(f"    {sys.executable} -m bot serve\n")
    restart = "" if is_new else "If it is running, restart it. "
    terminal.say(f"{restart}Then make your first video: type {slash}video Hello team in Slack.")
    if not wizard.replicas:
        terminal.say(
            f"It needs a replica: {slash}replica add <id> adds one that your account has, and "
            f"{slash}replica trains a new one."
        )
    for each in findings:
        if each.name == "Slack" and each.ok:
            bot = each.message.partition(" ")[0]
            terminal.say(f"In a private channel, invite it first: /invite @{bot}")
    if not wizard.uses_socket_mode:
        terminal.say(
            "Once it runs, open Event Subscriptions in the app's sidebar. If the request URL isn't "
            "verified, click Retry there."
        )
    return 0 if is_ok else 1
