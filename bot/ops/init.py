"""The guided set-up: ask for the settings, check each, write ``.env``, say how to start.

Of a ``.env`` that is there, only the settings that change are touched. Each question raises
``click.Abort`` when the person ends it, with Ctrl-C or Ctrl-D.
"""

import asyncio
import io
import json
import logging
import os
import re
import sys
import webbrowser
from collections.abc import Callable, Coroutine, Mapping, Sequence
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


def _ask(question: str, name: str, *, hidden: bool = False) -> str:
    """Return what is typed for a setting; nothing of it is shown if it is ``hidden``.

    Raises:
        click.UsageError: nobody can be asked.
    """
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"This is not a terminal: set {name} in the environment, or run this at one."
        )
    typed: str = click.prompt(
        f"{_INDENT}{question}:",
        default="",
        show_default=False,
        hide_input=hidden,
        prompt_suffix=" ",
    )
    return typed.strip()


def _confirmed(question: str, *, default: bool = False) -> bool:
    """Return whether somebody at a terminal says yes."""
    return sys.stdin.isatty() and click.confirm(_INDENT + question, default=default)


# ── Answers ──────────────────────────────────────────────────────────────────────────────────────


def mistake_in(name: str, text: str) -> str | None:
    """Return what is wrong with a value, as a sentence without it."""
    mistake = Settings.mistake(name, text)
    return f"That {mistake}" if mistake else None


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

    What ``.env`` or the environment says is not asked for.

    Args:
        known: what ``.env`` says; what the bot would refuse of it is asked for.
        environ: the environment.

    Raises:
        OperatorError: the bot would refuse what the environment says.
    """

    def __init__(self, known: Mapping[str, str], environ: Mapping[str, str]) -> None:
        given = {name: text for name, text in environ.items() if name in _WRITTEN and text.strip()}
        for name, text in given.items():
            if mistake := mistake_in(name, text):
                raise OperatorError(f"{name}: {mistake}")
        kept = {
            name: text
            for name, text in known.items()
            if name in _WRITTEN and not mistake_in(name, text)
        }
        self._answers = kept | given
        self._connection = ConnectionSettings.read({**known, **environ})
        self._port = {**known, **environ}.get("PORT", "3000")
        self._may_list = "VIDEO_API_LISTS" not in {**known, **environ}
        self._values: dict[str, str] = {}
        ways = given if {"SLACK_APP_TOKEN", "PUBLIC_URL"} & given.keys() else kept
        self.uses_socket_mode = "SLACK_APP_TOKEN" in ways or "PUBLIC_URL" not in ways
        self.replicas: list[str] | None = None
        """The names of the account's replicas; None if they are not known."""

    def run(self) -> dict[str, str | None]:
        """Ask for everything and return the settings; None stands for one that is not to be set.

        Raises:
            click.UsageError: something is missing or refused, and nobody can be asked.
            click.Abort: the person ended it.
        """
        self._values = {name: self._answers.get(name, "") for name in _TAKEN}
        _say(
            "Set up Replica Videos in your Slack workspace. It takes a few minutes. What "
            f"{ENV_FILE} or the environment says is not asked for. Ctrl-C stops: nothing is "
            "written before the end."
        )
        _say(
            "Slack needs no public address of the bot: it works on a laptop and behind a firewall "
            "(Socket Mode). To have Slack call an https address of yours instead, press Ctrl-C and "
            "set PUBLIC_URL."
            if self.uses_socket_mode
            else f"Slack will call {self._values['PUBLIC_URL']}. A proxy or your host has to pass "
            f"what arrives there to the bot: port {self._port}, without TLS."
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
            return read_unknown(url.rstrip("/"), key, self._connection, TIMINGS, mask=Mask([key]))

        url, key = self._checked(["VIDEO_API_URL", "VIDEO_API_KEY"], check)
        self.replicas = asyncio.run(
            list_replicas(
                url.rstrip("/"), key, self._connection, TIMINGS, SystemClock(), mask=Mask([key])
            )
        )
        if self.replicas:
            s = "" if len(self.replicas) == 1 else "s"
            _good(f"Your account has {len(self.replicas)} replica{s}: {listed(self.replicas)}.")

    def _app(self) -> None:
        if "SLACK_BOT_TOKEN" in self._answers:
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
        while token := _ask(question, "SLACK_BOT_TOKEN", hidden=True):
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
                self._answers["SLACK_SIGNING_SECRET"] = app.signing_secret
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

    def _value(self, name: str) -> str:
        """Return a setting as it is known, or as it is typed."""
        if name in self._answers:
            return self._answers[name]
        if _ABOUT[name].title:
            _say(sentence(_ABOUT[name].where))
        return self._typed(name)

    def _typed(self, name: str) -> str:
        """Ask until the answer is one that the bot takes."""
        secret = _ABOUT[name].title
        question = f"{secret} (not shown)" if secret else _ADDRESS
        while True:
            text = _ask(question, name, hidden=bool(secret))
            if not text:
                _bad("Nothing arrived. Paste it once more, then press Enter.")
            elif mistake := mistake_in(name, text):
                _bad(mistake)
            else:
                return text

    def _checked(
        self, names: Sequence[str], check: Callable[..., Coroutine[Any, Any, tuple[Finding, str]]]
    ) -> list[str]:
        """Ask for some settings, the last a secret, until they are accepted; return them.

        Args:
            names: theirs.
            check: returns what it found, and which of them is to be typed again, if any.
        """
        values = {name: self._value(name) for name in names}
        while True:
            found, wrong = self._wait_for(check(*values.values()))
            say = _good if found.state is CheckState.OK else _bad
            say(_said(found, values[names[-1]]))
            if not wrong or _confirmed("Use it anyway?"):
                break
            values[wrong] = self._typed(wrong)
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
    found = {name: text for name, text in read_env_file().items() if text.strip()}
    wizard = Wizard(found, environ)
    try:
        values = wizard.run()
        _write(found, values)
    except (KeyboardInterrupt, click.Abort):
        click.echo()
        _say("Stopped. Nothing was written.")
        return 130
    return _finish(wizard, f"/{values.get('COMMAND_PREFIX') or ''}")


def _write(found: Mapping[str, str], values: Mapping[str, str | None]) -> None:
    """Write the settings.

    Raises:
        click.UsageError: the ``.env`` that is there would change, and nobody can be asked.
        click.Abort: the person does not want that.
    """
    _heading("Settings")
    if is_exposed():
        try:
            ENV_FILE.chmod(0o600)
            _good(f"Others could read {ENV_FILE}. Now only you can.")
        except OSError:
            _bad(f"Others can read {ENV_FILE}. Its owner can change that: chmod 600 {ENV_FILE}")
    changed = {name: text for name, text in values.items() if found.get(name) != text}
    if not changed:
        _good(f"{ENV_FILE} has these settings already.")
        return
    if ENV_FILE.exists():
        _say(f"There is a {ENV_FILE}. This would change in it, and nothing else:")
        _say(", ".join(each if changed[each] else f"{each} (removed)" for each in changed))
        if not _confirmed("Change it?", default=not changed.keys() & found.keys()):
            if sys.stdin.isatty():
                raise click.Abort
            raise click.UsageError(
                "Nothing was written, as this is not a terminal: run it at one to change the file."
            )
    write(changed)
    _good(f"{ENV_FILE} is written. Only you can read it.")


def _finish(wizard: Wizard, slash: str) -> int:
    _heading("Check")
    findings = asyncio.run(report(doctor.examine_deployment(), in_full=False))
    is_ok = all(finding.ok for finding in findings)
    _heading("Start the bot, or restart it" if is_ok else "Once that is corrected, start the bot")
    click.echo(f"    {sys.executable} -m bot serve\n")
    _say(f"Then make your first video: type {slash}video Hello team in Slack.")
    if not wizard.replicas:
        _say(
            f"It needs a replica: {slash}replica add <id> adds one that your account has, and "
            f"{slash}replica trains a new one."
        )
    if not wizard.uses_socket_mode:
        _say(
            "Once it runs, open Event Subscriptions in the app's sidebar. If the request URL isn't "
            "verified, click Retry there."
        )
    return 0 if is_ok else 1
