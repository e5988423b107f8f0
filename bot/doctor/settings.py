"""Checks of the settings: where each comes from, misspelt names, and who can read the file."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from bot.doctor.finding import Finding, error, off, ok, sentence, warning
from bot.env_file import ENV_FILE, is_exposed
from bot.settings import Settings, SettingsError

# HTTPS_PROXY is one of them: it may have a password in it.
_SECRETS: Final = Settings.secret_names()
_FIX: Final = "Correct it, or remove it to have the default."
# How alike two names are, from 0 to 1: SLACK_TOKEN and SLACK_BOT_TOKEN are 0.85.
_ALIKE: Final = 0.8
_MIN_LENGTH: Final = 6  # of a name: HOME is not meant to be HOST
# Other programs' own, however alike they look.
_OTHERS: Final = ("PROXY", "PATH")
_MAX_SHOWN: Final = 60  # characters of a value


def mistakes(refusal: SettingsError) -> Iterator[Finding]:
    """Yield an error for each setting that is missing or wrong."""
    for name, said in refusal.mistakes.items():
        message, _, remedy = said.removeprefix(f"{name} ").partition(": ")
        yield error(name, message.rstrip("."), sentence(remedy) or _FIX)


def unchecked() -> Finding:
    """Return that nothing else was checked, because settings are missing or wrong."""
    return off(
        "everything else",
        "was not checked, because it depends on these settings",
        "Correct them, and run doctor again.",
    )


def missing_file() -> Finding:
    """Return that there is no ``.env`` in the working directory, where settings are missing."""
    return warning(
        str(ENV_FILE),
        f"is not in {Path.cwd()}, and settings are missing",
        f"Run doctor in the folder that has {ENV_FILE}, or make one: python -m bot init",
    )


def check_names(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a warning for each variable that looks like a misspelt setting."""
    names = Settings.names()
    for given in sorted(environ):
        upper = given.upper()
        if given in names or upper.endswith(_OTHERS) or len(given) < _MIN_LENGTH:
            continue
        if similar := get_close_matches(upper, names, n=1, cutoff=_ALIKE):
            yield warning(
                given,
                "is no setting of the bot, and is ignored",
                f"Rename it to {similar[0]}, if that is meant. Otherwise leave it.",
            )


def check_file() -> Iterator[Finding]:
    """Yield a warning if others than the owner can read the file with the secrets."""
    if is_exposed():
        yield warning(
            str(ENV_FILE),
            "has secrets in it, and other users of this machine may read or change it",
            f"Run: chmod 600 {ENV_FILE}",
        )


def check_sources(environ: Mapping[str, str], in_file: Mapping[str, str]) -> Iterator[Finding]:
    """Yield where each setting comes from, with its value if that is no secret.

    Args:
        environ: the environment, in which the values of the file count where it has none.
        in_file: what the file says.
    """
    defaults = []
    for name in Settings.names():
        value = environ.get(name, "").strip()
        from_file = in_file.get(name, "").strip()
        if not value and from_file:
            yield off(
                name,
                f"is empty in the environment, so what {ENV_FILE} says does not count",
                "Remove the empty variable from the environment to have it.",
            )
            continue
        if not value:
            defaults.append(name)
            continue
        shown = "" if name in _SECRETS else f": {_cut(value)}"
        if from_file and from_file != value:
            yield warning(
                name,
                f"is set twice, and what {ENV_FILE} says does not count: from the environment"
                f"{shown}",
                "Remove it from one of them.",
            )
        elif from_file:
            yield ok(name, f"from {ENV_FILE}{shown}")
        else:
            yield ok(name, f"from the environment{shown}")
    if defaults:
        yield ok("other settings", f"not set, so with their defaults: {', '.join(defaults)}")


def _cut(value: str) -> str:
    return value if len(value) <= _MAX_SHOWN else value[: _MAX_SHOWN - 3] + "..."
