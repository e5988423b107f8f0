"""The guided set-up from its beginning to its end: ask, write ``.env``, check, say how to start."""

import asyncio
import logging
import shutil
import subprocess
import sys
import webbrowser
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import click

from bot import doctor, log
from bot.doctor.finding import CheckState, Finding
from bot.env_file import ENV_FILE
from bot.settings import ConnectionSettings, environment
from bot.setup.answers import ASKED, SetupError
from bot.setup.env_file_editor import Changes, EnvFile
from bot.setup.flags import Given
from bot.setup.terminal import Terminal
from bot.setup.wizard import Known, Wizard

_NOT_IGNORED: Final = 1  # https://git-scm.com/docs/git-check-ignore#_exit_status


def run(given: Given, *, overwrite: bool) -> int:
    """Run the set-up in the working directory and return the exit code.

    Args:
        given: what the flags say.
        overwrite: whether settings that are in ``.env`` may be replaced without asking.

    Raises:
        SetupError, EnvFileError, SettingsError: it cannot go on.
    """
    log.configure(sys.stderr, logging.CRITICAL)
    environ = environment(with_file=False)
    terminal = Terminal(environ)
    file = EnvFile.read()
    try:
        wizard = _ask(terminal, given, file, environ)
        values = wizard.run()
        is_written = _write(terminal, file, values, overwrite=overwrite, given=given)
    except (KeyboardInterrupt, click.Abort):
        click.echo()
        terminal.say("Stopped. Nothing was written.")
        return 130
    if not is_written:
        terminal.say("Nothing was written.")
        return 1
    _warn(terminal, values, environ)
    return _finish(terminal, wizard, environment(), is_new=not file.exists)


def _ask(terminal: Terminal, given: Given, file: EnvFile, environ: Mapping[str, str]) -> Wizard:
    known = {
        name: Known(text, origin)
        for origin, values in ((str(ENV_FILE), file.values), ("the environment", environ))
        for name in ASKED
        if (text := values.get(name, "")).strip()
    }
    connection = ConnectionSettings.read({**file.values, **environ})
    port = {**file.values, **environ}.get("PORT", "3000")
    wizard = Wizard(terminal, given, known, connection, port=port, open_browser=_browser(environ))
    if not given.is_silent:
        terminal.say("Set up Replica Videos in your Slack workspace. It takes a few minutes.")
        terminal.say(
            "Press Enter to take what is in [brackets]. Ctrl-C stops: nothing is written before "
            "the end."
        )
    return wizard


def _browser(environ: Mapping[str, str]) -> Callable[[str], object] | None:
    """Return what opens a link in a browser with windows; None if there is none here."""
    has_windows = sys.platform in {"darwin", "win32"} or any(
        environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
    )
    return webbrowser.open if has_windows else None


def _write(
    terminal: Terminal,
    file: EnvFile,
    values: Mapping[str, str | None],
    *,
    overwrite: bool,
    given: Given,
) -> bool:
    """Write the settings if that is allowed; return whether ``.env`` holds them now."""
    terminal.heading("Settings")
    changes = file.changes(values)
    if not changes:
        terminal.good(f"{ENV_FILE} has these settings already.")
        return True
    if file.exists:
        terminal.say(f"There is a {ENV_FILE}. This would change in it, and nothing else:")
        _show(terminal, changes)
        if not overwrite:
            if given.is_silent:
                raise SetupError("Nothing was written. Add --overwrite if that is what you want.")
            replaces = bool(changes.replaced or changes.removed)
            if not terminal.confirm("Change it?", default=not replaces):
                return False
    file.write(values)
    terminal.good(f"{ENV_FILE} is written. Only you can read it.")
    return True


def _show(terminal: Terminal, changes: Changes) -> None:
    for verb, names in (
        ("add", changes.added),
        ("replace", changes.replaced),
        ("remove", changes.removed),
    ):
        if names:
            terminal.table({f"{verb:<7}": ", ".join(names)})


def _warn(terminal: Terminal, values: Mapping[str, str | None], environ: Mapping[str, str]) -> None:
    winning = [
        name for name, text in values.items() if environ.get(name, text or "") != (text or "")
    ]
    if winning:
        terminal.bad(
            f"The environment has other values of {', '.join(winning)}, and those win over .env: "
            "unset them there."
        )
    if _is_tracked():
        terminal.bad("git does not ignore .env, which holds secrets: add it to .gitignore.")


def _is_tracked() -> bool:
    """Return whether ``.env`` would go into the repository around it, if there is one."""
    git = shutil.which("git")
    if git is None:
        return False
    asked = [git, "check-ignore", "--quiet", ".env"]
    return subprocess.run(asked, capture_output=True, check=False).returncode == _NOT_IGNORED  # noqa: S603


def _finish(terminal: Terminal, wizard: Wizard, environ: Mapping[str, str], *, is_new: bool) -> int:
    terminal.heading("Check")
    findings = asyncio.run(_examine(terminal, environ))
    for finding in findings:
        if finding.state in {CheckState.ERROR, CheckState.WARNING}:
            terminal.bad(f"{finding.name}: {finding.message}. {finding.remedy}")
    is_ok = all(finding.ok for finding in findings)
    (terminal.good if is_ok else terminal.bad)(doctor.summary(findings))
    terminal.say("All that was checked:")
    terminal.verbatim(f"    {_python()} -m bot doctor")
    terminal.heading("Start the bot" if is_ok else "Once that is corrected, start the bot")
    prefix, restart = wizard.prefix, "" if is_new else "If it is running, restart it. "
    terminal.verbatim(f"    {_python()} -m bot serve\n")
    terminal.say(f"{restart}Then type /{prefix}video help in Slack.")
    terminal.say("In a private channel, invite it first: /invite @replica-videos")
    if not wizard.uses_socket_mode:
        terminal.say(
            "Once it runs, open Event Subscriptions in the app's sidebar. If the request URL isn't "
            "verified, click Retry there."
        )
    return 0 if is_ok else 1


async def _examine(terminal: Terminal, environ: Mapping[str, str]) -> list[Finding]:
    with terminal.waiting("Checking everything..."):
        return [finding async for finding in doctor.examine(environ)]


def _python() -> str:
    """Return how to call this Python from here."""
    path = Path(sys.executable)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
