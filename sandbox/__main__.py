"""The command line of the sandbox: the page to use the bot on, or a story in the terminal."""

import argparse
import asyncio
import io
import logging
import os
import sys
import textwrap
from typing import Final

from bot import log
from bot.settings import SettingsError
from sandbox import story
from sandbox.page import run as page
from sandbox.page.server import PORT
from sandbox.running import SETTINGS

_MAX_PORT: Final = 65_535
_DESCRIPTION: Final = f"""\
Try the bot without Slack, a key or a network: the real bot runs between a sandbox Slack and
a sandbox video service, all of it on this machine. Nothing is kept when it ends.

Without options, a page opens in your browser on which you use the bot as you would in Slack,
see the requests on the wire, and make things go wrong. Ctrl-C ends it.

These settings of the bot are read from the environment:
{textwrap.fill(", ".join(SETTINGS), 95)}.
Where a setting takes ids of people or channels, their names here do: ana, ben, cleo, gus, otto;
studio, lobby, vault, partners.
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the page or the story and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m sandbox",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--story", action="store_true", help="play a short story in the terminal and end"
    )
    parser.add_argument(
        "--port",
        type=_port,
        help=f"the port of the page, or the next free one (default: {PORT})",
    )
    parser.add_argument(
        "--no-browser", action="store_true", help="print the page's address and do not open it"
    )
    parser.add_argument(
        "--socket-mode",
        action="store_true",
        help="let Slack's requests reach the bot over Socket Mode, not over HTTP",
    )
    options = parser.parse_args(arguments)
    if options.story and (options.port is not None or options.no_browser):
        parser.error("--port and --no-browser are for the page, and --story opens none")
    log.configure(sys.stderr, logging.ERROR)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that cannot show a bar shows "?"
    try:
        if options.story:
            return asyncio.run(story.play(sys.stdout, socket_mode=options.socket_mode))
        return asyncio.run(
            page.run(
                sys.stdout,
                port=options.port,
                open_browser=not options.no_browser,
                socket_mode=options.socket_mode,
            )
        )
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader has closed the pipe: Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= (port := int(text)) <= _MAX_PORT:
        raise argparse.ArgumentTypeError(f"a port is a number from 1 to {_MAX_PORT}")
    return port


if __name__ == "__main__":
    sys.exit(main())
