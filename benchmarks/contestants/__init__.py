"""What is measured: the bot and its baselines, each in a process of its own."""

import asyncio
import json
import signal


def announce(**said: object) -> None:
    """Tell the harness that this process is ready: the one line that it waits for."""
    print(json.dumps(said), flush=True)


async def asked_to_end() -> None:
    """Return when the process is asked to end (SIGTERM, SIGINT)."""
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await ended.wait()
