"""The steps of the guided set-up: what is asked, in which order, and what is written at the end."""

import asyncio
import tempfile
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

from bot.manifest import manifest
from bot.settings import ConnectionSettings, ManifestSettings, Settings
from bot.setup.answers import ASKED, TITLES, SetupError, flag, mistake_in, normal
from bot.setup.checks import (
    Checked,
    Outcome,
    check_app_token,
    check_bot_token,
    check_service,
)
from bot.setup.flags import NONE, Given, scopes
from bot.setup.slack_app import NEW_APP, link, without_scopes
from bot.setup.terminal import Terminal, Unhidden
from bot.slack.scopes import OPTIONAL_SCOPES

_OFFER_AFTER: Final = 3  # tries: then it may go on unchecked, if the check cannot be made


@dataclass(frozen=True, slots=True)
class Known:
    """The value of a setting that is known already, and where it is from."""

    text: str
    origin: str


class Wizard:
    """Collects the settings, one step after the other.

    Args:
        given: what the flags say.
        known: what the environment and ``.env`` say, with where each is from: the defaults.
        port: where the bot listens.
        open_browser: opens a link in the person's browser; None if there is none here.
    """

    def __init__(
        self,
        terminal: Terminal,
        given: Given,
        known: Mapping[str, Known],
        connection: ConnectionSettings,
        *,
        port: str,
        open_browser: Callable[[str], object] | None,
    ) -> None:
        self._terminal = terminal
        self._given = given
        # What the bot would refuse is no default.
        self._known = {
            name: each.text for name, each in known.items() if not Settings.mistake(name, each.text)
        }
        self._origins = {name: each.origin for name, each in known.items()}
        self._connection = connection
        self._port = port
        self._open_browser = open_browser
        self._values: dict[str, str] = {}
        self._socket_mode = True
        self._numbers = count(1)

    def run(self) -> dict[str, str | None]:
        """Ask for everything and return the settings; None stands for one that is not to be set.

        Raises:
            SetupError: something is wrong, and nobody can be asked.
            click.Abort: the person ended it.
        """
        if self._given.is_silent:
            self._require_flags()
        self._connect()
        self._service()
        self._app()
        self._tokens()
        wanted = {name: self._values.get(name) or None for name in ASKED}
        # What the other way needs stays as it is, but for what would switch to it. In Socket Mode,
        # a public address is for callbacks.
        left = ("SLACK_SIGNING_SECRET", "PUBLIC_URL") if self._socket_mode else ()
        return {name: text for name, text in wanted.items() if text or name not in left}

    @property
    def prefix(self) -> str:
        """The command prefix that was chosen."""
        return self._values.get("COMMAND_PREFIX", "")

    @property
    def uses_socket_mode(self) -> bool:
        """Whether Socket Mode was chosen."""
        return self._socket_mode

    # ── Steps ─────────────────────────────────────────────────────────────────────────────────

    def _connect(self) -> None:
        self._heading("How Slack reaches the bot")
        chosen = self._given.socket_mode
        if chosen is None and "PUBLIC_URL" in self._given.values:
            chosen = False
        if chosen is None and self._given.is_silent:
            chosen = self._socket_mode_is_known()
        if chosen is None:
            self._terminal.say(
                "Socket Mode needs no public address: it works on a laptop and behind a firewall. "
                "Without it, Slack calls the bot at an https address of yours."
            )
            chosen = self._terminal.confirm(
                "Use Socket Mode?", default=self._socket_mode_is_known()
            )
        self._socket_mode = chosen
        if chosen and "PUBLIC_URL" not in self._given.values:
            return
        self._values["PUBLIC_URL"] = self._text(
            "PUBLIC_URL", "The bot's address, such as https://bot.example.com"
        )
        self._explain(
            "PUBLIC_URL",
            f"A proxy or your host has to pass what arrives there to the bot: port {self._port}, "
            "without TLS.",
        )

    def _socket_mode_is_known(self) -> bool:
        return "SLACK_APP_TOKEN" in self._known or "PUBLIC_URL" not in self._known

    def _service(self) -> None:
        self._heading("Video service")
        question = "The service's address, such as https://videos.example.com"
        self._explain(
            "VIDEO_API_URL", "You need the address of your video service and a key for it."
        )
        url = self._text("VIDEO_API_URL", question)
        key = self._secret("VIDEO_API_KEY")
        tries = 1
        while True:
            checked = self._wait_for(check_service(url, key, self._connection))
            if self._settled(checked, "VIDEO_API_KEY", tries):
                break
            tries += 1
            if checked.outcome is Outcome.REFUSED:
                key = self._typed_secret("VIDEO_API_KEY")
            else:
                url = self._typed("VIDEO_API_URL", question, url)
        self._values |= {"VIDEO_API_URL": url, "VIDEO_API_KEY": key}

    def _app(self) -> None:
        self._heading("The Slack app")
        if not self._given.is_silent and "COMMAND_PREFIX" not in self._given.values:
            self._terminal.say(
                "Command names are not reserved in Slack: if another app has /video too, the one "
                "that was installed last gets it. With the prefix acme-, yours are /acme-video and "
                "/acme-replica."
            )
        self._values["COMMAND_PREFIX"] = self._text(
            "COMMAND_PREFIX", "Prefix of the commands", optional=True
        )
        if not self._given.is_silent and "ADMIN_USERS" not in self._given.values:
            self._terminal.say(
                "Admins can use the buttons on everyone's requests. To find your member ID, open "
                "your profile in Slack, click the three dots, then Copy member ID."
            )
        self._values["ADMIN_USERS"] = self._text(
            "ADMIN_USERS", "Admins' member IDs, with commas between them", optional=True
        )
        if self._given.is_silent:
            return
        if self._terminal.confirm(
            "Create the app in Slack now?", default="SLACK_BOT_TOKEN" not in self._known
        ):
            self._create_app()
        else:
            self._terminal.say(
                "If your app was made with other answers: `python -m bot manifest` prints what to "
                "paste under App Manifest in its sidebar."
            )

    def _create_app(self) -> None:
        settings = ManifestSettings.read(self._values)
        text = manifest(settings, socket_mode=self._socket_mode)
        text = without_scopes(text, self._declined())
        self._heading("Create the app")
        address = link(text)
        with tempfile.TemporaryDirectory(prefix="replica-videos-") as folder:
            path = Path(folder) / "manifest.json"
            path.write_text(text, encoding="utf-8")
            is_shown = self._open_browser is None or not self._terminal.confirm(
                "Open Slack's form in your browser?", default=True
            )
            if is_shown:
                self._show_link(address)
            elif self._open_browser is not None:
                self._open_browser(address)
            self._terminal.say("In Slack's form, which is filled in already:")
            self._terminal.steps(
                "Pick your workspace. Click Next, then Create.",
                "In the sidebar: Install App > Install to Workspace > Allow. If it says Request to "
                "Install, an admin of the workspace has to approve the app first.",
            )
            self._terminal.say(
                f"No form, or an empty one? Open {NEW_APP}, choose From a manifest, and paste the "
                f"content of {path} under JSON."
            )
            if not self._socket_mode:
                self._terminal.say(
                    "If Slack says that the request URL isn't verified, leave that for later: the "
                    "bot has to run first."
                )
            more = "" if is_shown else " (or type link to see the address)"
            while self._terminal.ask(f"Press Enter once the app is installed{more}:"):
                self._show_link(address)

    def _show_link(self, address: str) -> None:
        self._terminal.say("Open this link in your browser, all of it:")
        self._terminal.verbatim(f"\n{address}\n")

    def _declined(self) -> frozenset[str]:
        if self._given.declined is not None:
            return self._given.declined
        self._terminal.say("These permissions (scopes) are optional. What each one gives you:")
        self._terminal.table({name: each.with_it for name, each in OPTIONAL_SCOPES.items()})
        while True:
            names = scopes(self._terminal.ask("Leave any out? Type their names [none]:"))
            if unknown := names - OPTIONAL_SCOPES.keys():
                self._terminal.bad(f"Not in this list: {', '.join(sorted(unknown))}.")
                continue
            return names

    def _tokens(self) -> None:
        self._heading("The app's tokens")
        self._explain(
            "SLACK_BOT_TOKEN", "In the sidebar: OAuth & Permissions > Bot User OAuth Token > Copy."
        )
        self._checked_secret("SLACK_BOT_TOKEN", check_bot_token)
        if self._socket_mode:
            self._explain(
                "SLACK_APP_TOKEN",
                "In the sidebar: Basic Information > App-Level Tokens > Generate Token and Scopes. "
                "Type any name, then: Add Scope > connections:write > Generate > Copy.",
            )
            self._checked_secret("SLACK_APP_TOKEN", check_app_token)
        else:
            self._explain(
                "SLACK_SIGNING_SECRET",
                "In the sidebar: Basic Information > App Credentials > Signing Secret > Show. Copy "
                "it.",
            )
            self._values["SLACK_SIGNING_SECRET"] = self._secret("SLACK_SIGNING_SECRET")
            self._terminal.good("It looks right. Slack's first request will show whether it is.")

    def _explain(self, name: str, text: str) -> None:
        if name not in self._given.values and not self._given.is_silent:
            self._terminal.say(text)

    def _heading(self, text: str) -> None:
        if not self._given.is_silent:
            self._terminal.heading(f"{next(self._numbers)}. {text}")

    # ── Questions ─────────────────────────────────────────────────────────────────────────────

    def _require_flags(self) -> None:
        """Raise with all that is missing, if nothing can be asked."""
        socket_mode = self._given.socket_mode
        if socket_mode is None:
            socket_mode = "PUBLIC_URL" not in self._given.values and self._socket_mode_is_known()
        needed = ["VIDEO_API_URL", "VIDEO_API_KEY", "SLACK_BOT_TOKEN"]
        needed += ["SLACK_APP_TOKEN"] if socket_mode else ["PUBLIC_URL", "SLACK_SIGNING_SECRET"]
        there = {**self._known, **self._given.values}
        missing = [name for name in needed if not there.get(name)]
        if missing:
            lines = "".join(f"\n  {flag(name)}" for name in missing)
            raise SetupError(
                f"Nothing can be asked here, and these are missing:{lines}\n"
                "Each can be a variable of the environment instead, such as "
                f"{missing[0]}. `python -m bot init --help` says more."
            )

    def _text(self, name: str, question: str, *, optional: bool = False) -> str:
        """Return a setting as the flag says it, as it is known, or as it is typed."""
        known = self._known.get(name, "")
        given = self._given.values.get(name, known if self._given.is_silent else None)
        if given is None:
            return self._typed(name, question, known, optional=optional)
        text = normal(name, given)
        if text and (mistake := mistake_in(name, text, self._values)):
            raise SetupError(f"{flag(name)}: {mistake}")
        return text

    def _typed(self, name: str, question: str, known: str, *, optional: bool = False) -> str:
        default = known or ("none" if optional else "")
        asked = question if default else f"{question}:"
        while True:
            text = normal(name, self._terminal.ask(asked, default) or default)
            if optional and text.casefold() in NONE:
                return ""
            if not text:
                self._terminal.bad("This one is needed.")
            elif mistake := mistake_in(name, text, self._values):
                self._terminal.bad(mistake)
            else:
                return text

    def _checked_secret(
        self, name: str, check: Callable[[str, ConnectionSettings], Coroutine[Any, Any, Checked]]
    ) -> None:
        text = self._secret(name)
        tries = 1
        while True:
            checked = self._wait_for(check(text, self._connection))
            if self._settled(checked, name, tries):
                self._values[name] = text
                return
            tries += 1
            text = self._typed_secret(name)

    def _secret(self, name: str) -> str:
        """Return a secret as the flag says it, as it is known, or as it is typed."""
        known = self._known.get(name) if self._given.is_silent else None
        text = self._given.values.get(name, known)
        if text is None:
            return self._typed_secret(name)
        text = normal(name, text)
        if mistake := mistake_in(name, text, self._values):
            raise SetupError(f"{flag(name)}: {mistake}")
        return text

    def _typed_secret(self, name: str) -> str:
        known = self._known.get(name)
        keep = f"Enter keeps the one in {self._origins[name]}" if known else "not shown"
        while True:
            try:
                typed = self._terminal.ask_hidden(f"{TITLES[name]} ({keep}):")
            except Unhidden:
                raise SetupError(
                    "This terminal would show what you type. Put the value into a file that only "
                    f"you can read, and use {flag(name)}."
                ) from None
            text = normal(name, typed) or known or ""
            if not text:
                self._terminal.bad("Nothing arrived. Paste it once more, then press Enter.")
            elif mistake := mistake_in(name, text, self._values):
                self._terminal.bad(mistake)
            else:
                return text

    def _settled(self, checked: Checked, name: str, tries: int) -> bool:
        """Show the result of a check; return whether to go on with what was checked."""
        if checked.outcome is Outcome.ACCEPTED:
            self._terminal.good(checked.message)
            return True
        if checked.outcome is Outcome.DOUBTFUL:
            self._terminal.bad(checked.message)
            return True
        if self._given.is_silent:
            raise SetupError(f"{TITLES[name]}: {checked.message}")
        self._terminal.bad(checked.message)
        return (
            checked.outcome is Outcome.UNKNOWN
            and tries >= _OFFER_AFTER
            and self._terminal.confirm("Go on without this check?", default=False)
        )

    def _wait_for(self, check: Coroutine[Any, Any, Checked]) -> Checked:
        async def shown() -> Checked:
            # Once it is shown, Ctrl-C meets a loop that runs.
            with self._terminal.waiting("Checking..."):
                return await check

        return asyncio.run(shown())
