"""The guided set-up: ask for the settings, check each, write ``.env``, say how to start.

Of a ``.env`` that is there, only the settings that change are touched. Each question raises
``click.Abort`` when the person ends it, with Ctrl-C or Ctrl-D.
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
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import count
from typing import Any, Final, TypeVar
from urllib.parse import quote

import click
from dotenv import set_key, unset_key

from bot import log
from bot.errors import OperatorError
from bot.masking import Mask
from bot.ops import doctor
from bot.ops.doctor import (
    TIMINGS,
    CreatedApp,
    create_app,
    list_replicas,
    read_unknown,
    try_token,
)
from bot.ops.finding import (
    CheckState,
    Finding,
    listed,
    printable,
    report,
    sentence,
    wrapped,
)
from bot.ops.manifest import manifest, read
from bot.settings import (
    ENV_FILE,
    ConnectionSettings,
    ManifestSettings,
    Settings,
    environment,
    is_exposed,
    read_env_file,
)
from bot.timings import SystemClock

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
        OperatorError: it cannot be written.
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
        raise OperatorError(
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

_ADDRESS: Final = (
    "The address of the service's API, up to /v2, from its API documentation,\n"
    "  such as https://videos.example.com"
)
_APPS: Final = "https://api.slack.com/apps"

# Allowed as they are in a query: https://www.rfc-editor.org/rfc/rfc3986#section-3.4
_NOT_ENCODED: Final = "/:@,"

# https://docs.slack.dev/app-manifests/configuring-apps-with-app-manifests#config-tokens
_CONFIGURATION_TOKEN: Final = "xoxe.xoxp-"  # noqa: S105 - how one begins

_WIDTH: Final = 80  # columns at most: longer lines are hard to read
_INDENT: Final = "  "
# What a terminal sends around what is pasted, and for keys that edit no line.
_SEQUENCE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.)?")
_INVISIBLE: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff]"
)
_QUOTES: Final = "\"'`\u2018\u2019\u201c\u201d"


# ── The terminal: colours only repeat what the words say ──────────────────────────────────────────


def _heading(text: str) -> None:
    """Print a heading, with an empty line before it."""
    click.echo()
    _say(text, "", bold=True)


def _say(text: str, start: str = _INDENT, **style: Any) -> None:  # noqa: ANN401 - as click has it
    """Print a paragraph, wrapped."""
    # A part of it may come from the file, or from another program.
    lines = "\n".join(wrapped(printable(text), start, " " * len(start), _WIDTH))
    click.echo(click.style(lines, **style) if style else lines)


def _good(text: str) -> None:
    """Print that something is as it should be."""
    _say(text, f"{_INDENT}ok: ", fg="green")


def _bad(text: str) -> None:
    """Print what is wrong and what to do."""
    _say(text, f"{_INDENT}!  ", fg="red")


def _ask(question: str, default: str = "", *, hidden: bool = False) -> str:
    """Return what is typed, without what surrounds it; the default for an empty line.

    Nothing of it is shown if it is ``hidden``.
    """
    typed = click.prompt(
        _INDENT + (f"{question} [{default}]:" if default else f"{question}:"),
        default="",
        show_default=False,
        hide_input=hidden,
        prompt_suffix=" ",
    )
    return cleaned(typed)


def cleaned(text: str) -> str:
    """Return a pasted value without the spaces, line breaks and quotes around it.

    A terminal's own sequences and invisible characters go too, wherever they are.
    """
    text = _INVISIBLE.sub("", _SEQUENCE.sub("", text)).strip()
    while len(text) > 1 and text[0] in _QUOTES and text[-1] in _QUOTES:
        text = text[1:-1].strip()
    return text


# ── Answers ──────────────────────────────────────────────────────────────────────────────────────


def mistake_in(name: str, text: str) -> str | None:
    """Return what is wrong with a value, as a sentence without it."""
    mistake = Settings.mistake(name, text)
    return f"That {mistake}" if mistake else None


def normal(name: str, text: str) -> str:
    """Return a value as it is written: without ``NAME=`` before it, or a slash at its end."""
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
            _say(
                "Set up Replica Videos in your Slack workspace. It takes a few minutes. Press "
                "Enter to take what is in [brackets]. Ctrl-C stops: nothing is written before the "
                "end."
            )
            _say(
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
        _heading("Video service")

        def check(url: str, key: str) -> Coroutine[Any, Any, tuple[Finding, str]]:
            return read_unknown(
                url, key, self._connection, TIMINGS, SystemClock(), mask=Mask([key])
            )

        url, key = self._checked(["VIDEO_API_URL", "VIDEO_API_KEY"], check)
        self.replicas = asyncio.run(
            list_replicas(url, key, self._connection, TIMINGS, SystemClock(), mask=Mask([key]))
        )
        if self.replicas:
            s = "" if len(self.replicas) == 1 else "s"
            _good(f"Your account has {len(self.replicas)} replica{s}: {listed(self.replicas)}.")

    def _app(self) -> None:
        if "SLACK_BOT_TOKEN" in {**self._known, **self._given}:
            return
        _heading("The Slack app")
        text = manifest(ManifestSettings.read(self._values), socket_mode=self.uses_socket_mode)
        form = link(text)
        _say("This link opens Slack's form for a new app, with everything filled in:")
        click.echo(f"\n{form}\n")
        _say(
            "With an app configuration token (api.slack.com/apps, below your apps: Generate "
            "Token), Slack creates the app without the form. If you have the app, type have."
        )
        if page := self._page_of_app(text):
            click.echo(f"\n{page}\n")
        else:
            _say("In the form: pick your workspace, then Next > Create.")
        if not webbrowser.open(page or form):
            _say("No browser opened. Copy the link above into one.")
        _say(
            "In the sidebar: Install App > Install to Workspace > Allow. If it says Request to "
            "Install, an admin of the workspace has to approve the app first."
        )
        if not page:
            socket = " --json" if self.uses_socket_mode else ""
            _say(
                "No form, or an empty one? Choose From a manifest, and paste what this prints in "
                f"another terminal: {sys.executable} -m bot manifest{socket}"
            )
        _say(
            "An icon for the app is in docs/pictures/icon.png: add it under Basic Information > "
            "Display Information."
        )

    def _page_of_app(self, text: str) -> str:
        """Return where to install the app that is there or was just created; "" to use the form.

        The token for it is kept nowhere.
        """
        question = "Press Enter to open the form, paste a token, or type have (not shown)"
        while token := _ask(question, hidden=True):
            if token == "have":  # noqa: S105 - no token
                _say("Open the app here:")
                return _APPS
            if not token.startswith(_CONFIGURATION_TOKEN):
                _bad(
                    "That is the refresh token. Copy the one that starts with xoxe.xoxp-."
                    if token.startswith("xoxe-")
                    else f"That is no app configuration token: {_CONFIGURATION_TOKEN}..."
                )
                continue
            creating = create_app(token, json.dumps(read(text)), self._connection, TIMINGS)
            if isinstance(app := self._wait_for(creating), CreatedApp):
                self._given["SLACK_SIGNING_SECRET"] = app.signing_secret
                _good("Slack has created the app. Install it here:")
                return f"{_APPS}/{quote(app.app_id, safe='')}/install-on-team"
            _bad(_said(app, token))
        return ""

    def _tokens(self) -> None:
        _heading("The app's tokens")
        self._token("SLACK_BOT_TOKEN")
        if self.uses_socket_mode:
            self._token("SLACK_APP_TOKEN")
        else:
            self._values["SLACK_SIGNING_SECRET"] = self._value("SLACK_SIGNING_SECRET")
            _good("It looks right. Slack's first request will show whether it is.")

    def _token(self, name: str) -> None:
        async def check(token: str) -> tuple[Finding, str]:
            found = await try_token(name, token, self._connection, TIMINGS)
            return found, "" if found.ok else name

        self._checked([name], check)

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
        _bad(f"{name} in the environment: {mistake}")
        return None

    def _value(self, name: str) -> str:
        """Return a setting as the environment says it, or as it is typed."""
        if name not in self._given and _ABOUT[name].title:
            _say(sentence(_ABOUT[name].where))
        return self._answer(name) or self._typed(name)

    def _typed(self, name: str, refused: str = "") -> str:
        """Ask until the answer is valid; Enter takes what was refused, or what is known."""
        secret = _ABOUT[name].title
        known = refused or self._known.get(name, "")
        keep = f"Enter keeps the one in {ENV_FILE}" if known and not refused else "not shown"
        question = f"{secret} ({keep})" if secret else _ADDRESS
        nothing = "Nothing arrived. Paste it once more, then press Enter."
        while True:
            typed = _ask(question, "" if secret else known, hidden=bool(secret))
            text = normal(name, typed) or known
            if not text:
                _bad(nothing if secret else "This one is needed.")
            elif mistake := mistake_in(name, text):
                _bad(mistake)
                part, found, _ = text.partition("/v2")
                if found and not secret and not mistake_in(name, part):
                    known = part
            else:
                return text

    def _checked(
        self, names: Sequence[str], check: Callable[..., Coroutine[Any, Any, tuple[Finding, str]]]
    ) -> list[str]:
        """Ask for some settings, the last a secret, until a check accepts them; return them.

        After some tries, what was found wrong and is given once more is taken, too.

        Args:
            names: theirs.
            check: returns what it found, and which of them is to be typed again, if any.
        """
        secret = names[-1]
        values = {name: self._value(name) for name in names}
        refused: dict[str, str] = {}
        for tries in count(1):
            found, wrong = self._wait_for(check(*values.values()))
            said = _said(found, values[secret])
            if wrong and self._is_silent:
                raise OperatorError(f"{_ABOUT[secret].title}: {said}")
            (_good if found.state is CheckState.OK else _bad)(said)
            if not wrong or (tries > _OFFER_AFTER and values == refused):
                break
            if tries >= _OFFER_AFTER:
                _say("To go on with it anyway, press Enter.")
            refused = dict(values)
            is_offered = wrong != secret or tries >= _OFFER_AFTER
            values[wrong] = self._typed(wrong, values[wrong] if is_offered else "")
        self._values |= values
        return [*values.values()]

    def _wait_for(self, check: Coroutine[Any, Any, _T]) -> _T:
        async def announced() -> _T:
            # Once it is shown, Ctrl-C meets a loop that runs.
            _say("Checking...")
            return await check

        return asyncio.run(announced())


def _said(found: Finding, secret: str) -> str:
    found = found.cleaned(Mask([secret]))
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
        _say("Stopped. Nothing was written.")
        return 130
    if not is_written:
        _say("Nothing was written.")
        return 1
    return _finish(wizard, f"/{values.get('COMMAND_PREFIX') or ''}", is_new=is_new)


def _write(found: Mapping[str, str], values: Mapping[str, str | None], *, is_silent: bool) -> bool:
    """Write the settings if that is allowed; return whether ``.env`` holds them now."""
    _heading("Settings")
    if is_exposed():
        with contextlib.suppress(OSError):  # the check below says it
            ENV_FILE.chmod(0o600)
            _good(f"Others could read {ENV_FILE}. Now only you can.")
    changed = {name: text for name, text in values.items() if found.get(name) != text}
    if not changed:
        _good(f"{ENV_FILE} has these settings already.")
        return True
    if ENV_FILE.exists():
        _say(f"There is a {ENV_FILE}. This would change in it, and nothing else:")
        _say(", ".join(each if changed[each] else f"{each} (removed)" for each in changed))
        if is_silent:
            raise OperatorError(
                "Nothing was written, because this is not a terminal, where you could confirm it: "
                "change the file by hand, or run this at a terminal."
            )
        if not click.confirm(f"{_INDENT}Change it?", default=not changed.keys() & found.keys()):
            return False
    write(changed)
    _good(f"{ENV_FILE} is written. Only you can read it.")
    return True


def _finish(wizard: Wizard, slash: str, *, is_new: bool) -> int:
    _heading("Check")
    examined = report(doctor.examine_deployment(), in_full=False)
    findings = asyncio.run(examined)
    is_ok = all(finding.ok for finding in findings)
    _heading("Start the bot" if is_ok else "Once that is corrected, start the bot")
    click.echo(f"    {sys.executable} -m bot serve\n")
    restart = "" if is_new else "If it is running, restart it. "
    _say(f"{restart}Then make your first video: type {slash}video Hello team in Slack.")
    if not wizard.replicas:
        _say(
            f"It needs a replica: {slash}replica add <id> adds one that your account has, and "
            f"{slash}replica trains a new one."
        )
    for each in findings:
        if each.name == "Slack" and each.ok:
            bot = each.message.partition(" ")[0]
            _say(f"In a private channel, invite it first: /invite @{bot}")
    if not wizard.uses_socket_mode:
        _say(
            "Once it runs, open Event Subscriptions in the app's sidebar. If the request URL isn't "
            "verified, click Retry there."
        )
    return 0 if is_ok else 1
