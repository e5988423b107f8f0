"""What is off, and how to turn it on."""

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from bot.doctor.finding import Finding, off, ok
from bot.manifest import manifest
from bot.settings import Settings

_COMMAND: Final = re.compile(r"(?<=command: )/\S+")


def check_options(settings: Settings) -> Iterator[Finding]:
    """Yield what people can do with these settings, and what not."""
    commands = _COMMAND.findall(manifest(settings))
    yield ok("commands", f"{' and '.join(commands)}")
    if settings.allowed_users:
        yield ok("allowed users", f"{len(settings.allowed_users)}, and the admins")
    else:
        yield off(
            "allowed users",
            "every full member of the workspace may ask",
            "To let only some people ask, set ALLOWED_USERS to their member IDs.",
        )
    if settings.admin_users:
        yield ok("admins", str(len(settings.admin_users)))
    else:
        yield off(
            "admins",
            "nobody can press the buttons of other people's requests",
            "Set ADMIN_USERS to the member IDs of one or two people.",
        )
    if settings.video_api_lists:
        yield ok("listing", "lost requests and replicas are looked for in the service's lists")
    else:
        yield off(
            "listing",
            "the bot does not ask the service which videos and replicas it has",
            "Set VIDEO_API_LISTS=yes if your service can list videos.",
        )
    if settings.join_public_channels:
        yield ok("joining channels", "the bot joins a public channel to look for a lost message")
    else:
        yield off(
            "joining channels",
            "the bot joins no public channel to look for a lost message, and may post it twice",
            "Set JOIN_PUBLIC_CHANNELS to yes.",
        )
    if settings.allow_shared_channels:
        yield ok("shared channels", "the bot posts where other organizations read it, too")
    else:
        yield off(
            "shared channels",
            "the bot posts in no channel that other organizations are in",
            "Set ALLOW_SHARED_CHANNELS to yes to allow it.",
        )
    yield ok(
        "erasing", f"scripts and links {settings.retention.days} days after the end of a request"
    )
    yield from _check_proxy(settings)


def _check_proxy(settings: Settings) -> Iterator[Finding]:
    if settings.https_proxy is None:
        yield off("proxy", "calls go out directly", "Set HTTPS_PROXY if your network needs one.")
        return
    proxy = urlsplit(settings.https_proxy.get_secret_value())
    port = f":{proxy.port}" if proxy.port else ""
    named = (
        ("Slack", settings.slack_api_url),
        ("the video service", settings.video_api_url),
    )
    through = [name for name, url in named if settings.proxy_for(url) is not None]
    yield ok("proxy", f"{proxy.hostname}{port}, for {' and '.join(through) or 'nothing'}")
