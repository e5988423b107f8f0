"""The bot itself, as ``python -m bot serve`` runs it, between a Slack and a service of the harness.

With ``--only METHOD ID`` it has one listener, and no others.
"""

import argparse
import asyncio
import gc
import json
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any, Final, TypeVar

from slack_bolt.async_app import AsyncApp

from benchmarks.contestants import announce, asked_to_end
from benchmarks.payloads import SECRET, TOKEN
from bot import log
from bot.app import running
from bot.settings import Settings
from bot.timings import PollSchedule, Timings
from sandbox.http import free_port

# Of all people together, in a day: more than any case sends. Each has the default limits.
_MAX_PER_DAY: Final = 25_000

_T = TypeVar("_T", Timings, PollSchedule)
# Bolt's methods that register listeners.
_METHODS: Final = ("command", "view", "action", "options", "shortcut", "event")


def changed(timings: _T, changes: Mapping[str, Any]) -> _T:
    """Return timings with some of them changed: seconds, shares, and poll schedules as objects."""
    new: dict[str, Any] = {}
    for field in fields(timings):
        if field.name in changes:
            old, value = getattr(timings, field.name), changes[field.name]
            if isinstance(old, PollSchedule):
                new[field.name] = changed(old, value)
            else:
                new[field.name] = timedelta(seconds=value) if isinstance(old, timedelta) else value
    if unknown := changes.keys() - new.keys():
        raise ValueError(f"there is no {unknown}")
    return replace(timings, **new)


def watch_registrations(only: Sequence[str] | None) -> list[tuple[str, str]]:
    """Return a list to which each listener is added as it is registered: Bolt's method, and the id.

    With ``only``, such a pair, Bolt registers that listener and no others.
    """
    registered: list[tuple[str, str]] = []

    def watched(method: str, register: Callable[..., object]) -> Callable[..., object]:
        def watching(app: AsyncApp, constraint: object) -> object:
            listener = method, str(constraint)
            if only is not None and listener != tuple(only):
                return lambda unused: unused
            registered.append(listener)
            return register(app, constraint)

        return watching

    for method in _METHODS:
        setattr(AsyncApp, method, watched(method, getattr(AsyncApp, method)))
    return registered


async def main() -> None:
    """Run the bot until the process is asked to end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--database", required=True, help="its URL")
    parser.add_argument("--slack", type=int, required=True, help="port of the Web API")
    parser.add_argument("--service", type=int, required=True, help="port of the video service")
    parser.add_argument("--callbacks", action="store_true", help="the service can call back")
    parser.add_argument("--timings", type=json.loads, default={}, help="those that differ: JSON")
    parser.add_argument("--only", nargs=2, metavar=("METHOD", "ID"))
    chosen = parser.parse_args()
    port = free_port()
    settings = Settings.read(
        {
            "SLACK_BOT_TOKEN": TOKEN,
            "SLACK_SIGNING_SECRET": SECRET,
            "SLACK_API_URL": f"http://127.0.0.1:{chosen.slack}/api/",
            "VIDEO_API_URL": f"http://127.0.0.1:{chosen.service}",
            "VIDEO_API_KEY": "key-of-the-benchmarks",
            "DATABASE_URL": chosen.database,
            "HOST": "127.0.0.1",
            "PORT": str(port),
            "MAX_PER_DAY": str(_MAX_PER_DAY),
            **({"PUBLIC_URL": f"http://127.0.0.1:{port}"} if chosen.callbacks else {}),
        }
    )
    log.configure(sys.stderr, logging.INFO, secrets=settings.secrets)
    gc.freeze()  # as the command line does
    registered = watch_registrations(chosen.only)
    async with running(settings, timings=changed(Timings(), chosen.timings)) as bot:
        announce(port=bot.port, listeners=registered)
        await asked_to_end()


if __name__ == "__main__":
    asyncio.run(main())
