"""The real bot in a process of its own, which can be killed."""

import asyncio
import logging
import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from bot import log
from bot.app import serve
from bot.settings import Settings
from bot.store import DatabaseError
from bot.timings import SystemClock, Timings

# Many times what anything takes: other work may keep the machine busy.
_TIMEOUT_S: Final = 30.0

# The fork server has imported everything, so a child is ready in a few milliseconds.
_CONTEXT: Final = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["pytest", "tests.bot_process"])


class OffsetClock(SystemClock):
    """The clock of a machine whose time is ahead by ``offset``."""

    def __init__(self, offset: timedelta) -> None:
        self._offset = offset

    def now(self) -> datetime:
        return super().now() + self._offset


class BotProcess:
    """The bot in a process of its own, started by the constructor.

    ``run_first`` is called in that process before anything else. Its clock is ahead by
    ``clock_offset``.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        timings: Timings,
        log_file: Path,
        run_first: Callable[[], None] | None = None,
        clock_offset: timedelta = timedelta(0),
    ) -> None:
        self._messages, sender = _CONTEXT.Pipe(duplex=False)
        self._process = _CONTEXT.Process(
            target=_run_bot,
            args=(dict(environ), timings, log_file, sender),
            kwargs={"run_first": run_first, "clock_offset": clock_offset},
            daemon=True,
        )
        self._process.start()
        sender.close()

    @property
    def pid(self) -> int:
        """Return the process id."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Return whether the process has ended."""
        return not self._process.is_alive()

    async def wait_until_listening(self) -> int:
        """Wait until the bot listens and return its port."""
        port = await asyncio.to_thread(self._receive)
        assert isinstance(port, int), f"the bot did not start: {port}"
        return port

    async def startup_error(self) -> str:
        """Return the message with which the start failed."""
        return str(await asyncio.to_thread(self._receive))

    async def kill(self) -> int:
        """Send SIGKILL and return the exit code."""
        self._process.kill()
        return await self.wait()

    async def terminate(self) -> int:
        """Send SIGTERM, as a host does, and return the exit code."""
        self._process.terminate()
        return await self.wait()

    async def wait(self) -> int:
        """Wait for the process to end and return its exit code."""
        await asyncio.to_thread(self._process.join, _TIMEOUT_S)
        assert self._process.exitcode is not None, "the bot did not end"
        return self._process.exitcode

    def _receive(self) -> object:
        return self._messages.recv() if self._messages.poll(_TIMEOUT_S) else "no message"


class _PortReporter(logging.Handler):
    """Sends the bot's port to the parent process when the log says it listens."""

    def __init__(self, sender: Connection) -> None:
        super().__init__()
        self._sender = sender

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == "listening":
            self._sender.send(vars(record)["port"])


def _run_bot(
    environ: Mapping[str, str],
    timings: Timings,
    log_file: Path,
    sender: Connection,
    *,
    run_first: Callable[[], None] | None,
    clock_offset: timedelta,
) -> None:
    if run_first is not None:
        run_first()
    settings = Settings.read(environ)
    with log_file.open("a") as stream:
        # Printed text counts as logged.
        for printed in (1, 2):
            os.dup2(stream.fileno(), printed)
        log.configure(stream, logging.INFO, secrets=settings.secrets)
        logging.getLogger("bot.app").addHandler(_PortReporter(sender))
        try:
            asyncio.run(serve(settings, clock=OffsetClock(clock_offset), timings=timings))
        except DatabaseError as error:
            sender.send(str(error))
            sys.exit(1)
