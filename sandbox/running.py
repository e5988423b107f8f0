"""The real bot, running between a sandbox Slack and a sandbox video service."""

import contextlib
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bot import app
from bot.app import Bot
from bot.clock import Clock
from bot.settings import Settings, environment
from bot.timings import Timings
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
            "/video", "Turn a script into a video", "[script] | list | status <id> | help"
        ),
        SlashCommand(
            "/replica",
            "Train a replica, or choose one",
            "list | status <id> | add <id> | default <id> | help",
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
#: The settings of the bot that are read from the environment. With a limit on a day's requests, on
#: scripts or on who may ask, the page could not begin with its sample requests.
SETTINGS: Final = ("ADMIN_USERS", "MAX_OPEN_PER_USER")


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A Slack, a video service, and the address of the bot between them."""

    slack: SandboxSlack
    service: SandboxVideoService
    bot_url: str
    bot: Bot


@contextlib.asynccontextmanager
async def running(clock: Clock, pace: Pace, timings: Timings) -> AsyncIterator[Sandbox]:
    """Run everything, with a database in a temporary folder.

    Args:
        clock: the time of all three.
        pace: how long the service's jobs take.
        timings: the bot's.

    Raises:
        SettingsError: a setting in the environment is wrong.
    """
    slack, service = SandboxSlack(clock), SandboxVideoService(clock, pace=pace)
    slack.app = APP
    service.add_replica(REPLICA, "Anna")
    await slack.start()
    await service.start()
    port, given = free_port(), environment()
    bot_url = f"http://127.0.0.1:{port}"
    slack.request_url = f"{bot_url}/slack/events"
    events.follow(slack)
    with tempfile.TemporaryDirectory() as folder:
        try:
            settings = Settings.read(
                {
                    "SLACK_BOT_TOKEN": slack.bot_token,
                    "SLACK_SIGNING_SECRET": slack.signing_secret,
                    "SLACK_API_URL": slack.api_url,
                    "VIDEO_API_URL": service.url,
                    "VIDEO_API_KEY": service.api_key,
                    "PUBLIC_URL": bot_url,
                    "DATABASE_URL": f"sqlite:///{Path(folder) / 'bot.db'}",
                    "HOST": "127.0.0.1",
                    "PORT": str(port),
                    **{name: given[name] for name in SETTINGS if name in given},
                }
            )
            async with app.running(settings, clock=clock, timings=timings) as bot:
                yield Sandbox(slack, service, bot_url, bot)
        finally:
            await service.stop()
            await slack.stop()
