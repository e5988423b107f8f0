"""Checks of the settings: mistakes, misspelt names, who can read them, and the public address."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from bot.doctor.finding import Finding, error, ok, sentence, warning
from bot.settings import ENV_FILE, Settings, SettingsError, is_exposed, misspelt

_FIX: Final = "Correct it, or remove it to have the default."


def mistakes(refusal: SettingsError) -> Iterator[Finding]:
    """Yield an error for each setting that is missing or wrong."""
    for name, said in refusal.mistakes.items():
        message, _, remedy = said.removeprefix(f"{name} ").partition(": ")
        yield error(name, message.rstrip("."), sentence(remedy) or _FIX)


def unchecked() -> Finding:
    """Return that nothing else was checked, because settings are missing or wrong."""
    return warning(
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


def check_names(environ: Mapping[str, str], in_file: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a warning for each variable that looks like a misspelt setting."""
    for name, meant in misspelt(environ, in_file):
        yield warning(
            name,
            "is no setting of the bot, and is ignored",
            f"Rename it to {meant}, if that is meant. Otherwise leave it."
            if meant
            else f"Remove it from {ENV_FILE}: nothing else reads that file.",
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
    """Yield which settings are set twice.

    Args:
        environ: the environment, in which the values of the file count where it has none.
        in_file: what the file says.
    """
    values = {name: environ.get(name, "").strip() for name in Settings.table()}
    twice = [
        name
        for name, text in values.items()
        if text and in_file.get(name, "").strip() not in {"", text}
    ]
    for name in twice:
        yield warning(
            name,
            f"is set twice: the environment's value counts, and not the one in {ENV_FILE}",
            "Remove it from one of them.",
        )
    if not twice:
        yield ok("settings", "complete, and none is wrong")


async def check_public_url(settings: Settings) -> AsyncIterator[Finding]:
    """Yield whether Slack and the service can reach this bot, as far as the address shows it."""
    name, url = "public address", settings.public_url
    if url is None and settings.slack_app_token is None:
        yield warning(
            name,
            "neither SLACK_APP_TOKEN nor PUBLIC_URL is set: it is not known how Slack reaches the "
            "bot",
            "Set SLACK_APP_TOKEN to use Socket Mode, or PUBLIC_URL to the address in the Slack "
            "app's request URLs.",
        )
    elif url is None:
        yield ok(name, "none: the bot polls the service, and answers come a few minutes later")
    elif settings.proxy_for(url) is None:  # else this machine may know no names outside
        host, is_private = urlsplit(url).hostname, await _is_private(url)
        if is_private is None:
            yield warning(
                name,
                f"{host} cannot be resolved (DNS): Slack and the service may not reach the bot",
                "Correct the host in PUBLIC_URL, or add it to your domain's DNS.",
            )
        # Where the service is in this network too, it is a test, or one's own.
        elif is_private and await _is_private(settings.video_api_url) is False:
            yield warning(
                name,
                f"{host} is an address of this machine or of a private network: nobody reaches it "
                "from outside",
                "Set PUBLIC_URL to a public address. On a laptop, use Socket Mode "
                "(SLACK_APP_TOKEN) and leave PUBLIC_URL out.",
            )
        else:
            yield ok(name, f"{host} has an address; whether calls arrive there was not tried")


async def _is_private(url: str) -> bool | None:
    """Return whether a host has only addresses of private networks; None if it has none."""
    host = urlsplit(url).hostname or ""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return None
    return not any(ip_address(str(each[4][0]).partition("%")[0]).is_global for each in found)
