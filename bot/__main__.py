"""The command line: serve, doctor, migrate."""

import argparse
import asyncio
import errno
import gc
import logging
import os
import socket
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final

from bot import database, log
from bot.datafile import StoreError, look_ahead
from bot.settings import Settings, SettingsError, environment


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line says and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bot", description="A Slack bot that makes replica videos."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("serve", help="run the bot, with the settings of the environment")
    commands.add_parser("migrate", help="bring the database up to date, and do nothing else")
    commands.add_parser("doctor", help="look at settings, database, Slack and the video service")
    chosen = parser.parse_args(arguments)
    try:
        return asyncio.run(_COMMANDS[chosen.command]())
    except KeyboardInterrupt:
        return 130
    except (SettingsError, StoreError) as error:
        print(error, file=sys.stderr)
    except socket.gaierror:
        print("The bot cannot listen: HOST is no address of this machine.", file=sys.stderr)
    except BrokenPipeError:
        # Whoever read along has enough; Python would complain once more while it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.errno not in {errno.EADDRINUSE, errno.EACCES, errno.EADDRNOTAVAIL}:
            raise
        print(f"The bot cannot listen: {error.strerror}. Set HOST and PORT.", file=sys.stderr)
    return 1


async def _serve() -> int:
    settings = _settings()
    ahead = asyncio.get_running_loop().run_in_executor(None, look_ahead, settings.database)
    # The rest is imported while the database is looked over: both take a while. Nothing of it is
    # garbage, which would be looked for again and again.
    gc.disable()
    from bot import app  # noqa: PLC0415

    gc.freeze()
    gc.enable()
    await ahead
    await app.serve(settings)
    return 0


async def _migrate() -> int:
    applied = await database.migrate(_settings().database)
    print("applied: " + ", ".join(applied) if applied else "the database is up to date")
    return 0


async def _doctor() -> int:
    from bot import doctor  # noqa: PLC0415 - nobody else needs it

    log.configure(sys.stderr, logging.CRITICAL)
    well = True
    async for finding in doctor.examine(environment()):
        print(finding)
        well = well and finding.well
    return 0 if well else 1


def _settings() -> Settings:
    settings = Settings.read(environment())
    log.configure(sys.stderr, logging.INFO, secrets=settings.secrets)
    return settings


_COMMANDS: Final[dict[str, Callable[[], Coroutine[Any, Any, int]]]] = {
    "serve": _serve,
    "migrate": _migrate,
    "doctor": _doctor,
}

if __name__ == "__main__":
    sys.exit(main())
