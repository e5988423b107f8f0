"""The real bot, running between a sandbox Slack and a sandbox video service."""

import contextlib
import re
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bot import app
from bot.app import Bot
from bot.settings import Settings, environment
from bot.store import LIMITS
from bot.timings import Clock, Timings
from sandbox import events
from sandbox.http import free_port
from sandbox.scenarios import Pace
from sandbox.slack import SandboxSlack
from sandbox.slack_objects import App, Shortcut, SlashCommand
from sandbox.video_service import SandboxVideoService

#: The app as its manifest describes it; a test compares the two.
APP: Final = App(
    "Replica Videos",
    (
        SlashCommand(
            "/video",
            "Turn a script into a video",
            "[script] | list | find <words> | status <id> | help",
        ),
        SlashCommand(
            "/replica",
            "Train a replica, or choose one",
            "list | status <id> | add <id> | default <name or id> | help",
        ),
    ),
    takes_messages=True,
    shortcuts=(
        Shortcut(
            "Make a video from this",
            "message",
            "video_from_message",
            "Use this message as the script of a video",
        ),
        Shortcut("Create a video", "global", "video_from_anywhere", "Turn a script into a video"),
    ),
)
#: The id of the replica that the video service has from the start.
REPLICA: Final = "r-anna"
# What the sandbox sets itself: where the services are, and where the bot listens and stores.
_OWN: Final = frozenset(
    {
        "SLACK_APP_TOKEN",
        "SLACK_API_URL",
        "SLACK_BOT_TOKEN",
        "SLACK_SIGNING_SECRET",
        "VIDEO_API_KEY",
        "VIDEO_API_URL",
        "PUBLIC_URL",
        "DATABASE_URL",
        "ALLOW_TEMPORARY_DISK",
        "HTTPS_PROXY",
        "MEDIA_HOSTS",
        "NO_PROXY",
        "HOST",
        "PORT",
    }
)
#: The settings of the bot that are read from the environment: all others.
SETTINGS: Final = tuple(name for name in Settings.table() if name not in _OWN)
# Under these, the sample requests would be refused, or would use up what may be asked for.
_LIMITING: Final = frozenset(LIMITS)
_NAMED: Final = frozenset(
    {"ADMIN_USERS", "VIDEO_USERS", "TRAINING_USERS", "APPROVERS"}
    | {"ALLOWED_CHANNELS", "APPROVAL_CHANNEL"}
)
_ADMIN: Final = "cleo"


def _prefixed(prefix: str) -> App:
    """Return the app with its commands as ``COMMAND_PREFIX`` names them."""
    commands = [
        replace(each, command=f"/{prefix}{each.command.removeprefix('/')}") for each in APP.commands
    ]
    return replace(APP, commands=tuple(commands))


def add_people(slack: SandboxSlack) -> None:
    """Add a guest, and somebody of another organisation in a channel that is shared with it.

    The admin is one of the workspace, too.
    """
    admin = slack.user(_ADMIN)
    slack.users[admin.id] = replace(admin, role="admin")
    slack.add_channel("partners")
    slack.change_channel("partners", is_ext_shared=True)
    slack.add_user("gus", title="Guest", guest="multi-channel", channels=["studio"])
    slack.add_user("otto", title="From Globex", team="T0GLOBEX", channels=["partners"])


def _given(slack: SandboxSlack) -> dict[str, str]:
    """Return the settings in the environment; people and channels may be named, not by id alone.

    What is in ``.env`` is for a real workspace.
    """
    environ = environment(with_file=False)
    given = {name: environ[name] for name in SETTINGS if environ.get(name, "").strip()}
    given.setdefault("ADMIN_USERS", _ADMIN)
    ids = {each.name: each.id for each in slack.users.values()}
    ids |= {each.name: each.id for each in slack.channels.values()}
    for name in _NAMED & given.keys():
        words = re.split(r"[,\s]+", given[name].strip())
        given[name] = ",".join(ids.get(each.lstrip("@#"), each) for each in words)
    return given


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A Slack, a video service, and the address of the bot between them."""

    slack: SandboxSlack
    service: SandboxVideoService
    bot_url: str
    bot: Bot
    limited: bool
    """Whether the settings limit what can be asked for."""


@contextlib.asynccontextmanager
async def running(
    clock: Clock, pace: Pace, timings: Timings, *, socket_mode: bool = False
) -> AsyncIterator[Sandbox]:
    """Run everything, with a database in a temporary folder.

    Args:
        clock: the time of all three.
        pace: how long the service's jobs take.
        timings: the bot's.
        socket_mode: whether Slack's requests come over Socket Mode, not over HTTP.

    Raises:
        SettingsError: a setting in the environment is wrong.
    """
    slack, service = SandboxSlack(clock), SandboxVideoService(clock, pace=pace)
    slack.app = APP
    add_people(slack)
    service.add_replica(REPLICA, "Anna")
    await slack.start()
    await service.start()
    port, given = free_port(), _given(slack)
    bot_url = f"http://127.0.0.1:{port}"
    slack.request_url = f"{bot_url}/slack/events"
    slack.socket_mode.enabled = socket_mode
    events.follow(slack)
    with tempfile.TemporaryDirectory() as folder:
        try:
            settings = Settings.read(
                {
                    "SLACK_BOT_TOKEN": slack.bot_token,
                    "SLACK_SIGNING_SECRET": "" if socket_mode else slack.signing_secret,
                    "SLACK_APP_TOKEN": slack.socket_mode.app_token if socket_mode else "",
                    "SLACK_API_URL": slack.api_url,
                    "VIDEO_API_URL": service.url,
                    "VIDEO_API_KEY": service.api_key,
                    "PUBLIC_URL": bot_url,
                    "DATABASE_URL": f"sqlite:///{Path(folder) / 'bot.db'}",
                    "HOST": "127.0.0.1",
                    "PORT": str(port),
                    "MEDIA_HOSTS": "127.0.0.1",
                    **given,
                }
            )
            slack.app = _prefixed(settings.command_prefix)
            for user in settings.admin_users & slack.users.keys():
                slack.users[user] = replace(slack.users[user], title="Admin")
            async with app.running(settings, clock=clock, timings=timings) as bot:
                if socket_mode:
                    await slack.socket_mode.reached()
                yield Sandbox(slack, service, bot_url, bot, bool(_LIMITING & given.keys()))
        finally:
            await service.stop()
            await slack.stop()
