"""The command line: serve, migrate, doctor, manifest."""

import gc

gc.disable()  # until everything is imported: none of that is garbage, and looking costs a tenth

import argparse
import asyncio
import errno
import logging
import os
import socket
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final

from bot import app, doctor, log
from bot.app import PartFailed
from bot.manifest import manifest
from bot.settings import ManifestSettings, Settings, SettingsError, environment
from bot.store import DatabaseError
from bot.store.sqlite import migrate

gc.enable()


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bot", description="A Slack bot that makes replica videos."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("serve", help="run the bot with the settings of the environment")
    commands.add_parser("migrate", help="bring the database up to date, and do nothing else")
    commands.add_parser("doctor", help="check settings, database, Slack and the video service")
    commands.add_parser("manifest", help="print the Slack app's manifest for the settings")
    chosen = parser.parse_args(arguments)
    try:
        return asyncio.run(_COMMANDS[chosen.command]())
    except KeyboardInterrupt:
        return 130
    except (SettingsError, DatabaseError, PartFailed) as error:
        print(error, file=sys.stderr)
    except socket.gaierror:
        print("The bot cannot listen: HOST is not an address of this machine.", file=sys.stderr)
    except BrokenPipeError:
        # The reader of the output has gone. Without this, Python complains when it flushes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.errno not in {errno.EADDRINUSE, errno.EACCES, errno.EADDRNOTAVAIL}:
            raise
        print(f"The bot cannot listen: {error.strerror}. Set HOST and PORT.", file=sys.stderr)
    return 1


async def _serve() -> int:
    await app.serve(_read_settings())
    return 0


async def _migrate() -> int:
    applied = await migrate(_read_settings().database)
    print("applied: " + ", ".join(applied) if applied else "the database is up to date")
    return 0


async def _doctor() -> int:
    log.configure(sys.stderr, logging.CRITICAL)
    is_ok = True
    async for finding in doctor.examine(environment()):
        print(finding)
        is_ok = is_ok and finding.ok
    return 0 if is_ok else 1


async def _manifest() -> int:
    print(manifest(ManifestSettings.read(environment())), end="")
    return 0


def _read_settings() -> Settings:
    settings = Settings.read(environment())
    log.configure(sys.stderr, logging.INFO, secrets=settings.secrets)
    return settings


_COMMANDS: Final[dict[str, Callable[[], Coroutine[Any, Any, int]]]] = {
    "serve": _serve,
    "migrate": _migrate,
    "doctor": _doctor,
    "manifest": _manifest,
}

if __name__ == "__main__":
    sys.exit(main())
