"""Somebody who types at a real pseudo-terminal, and everything that it showed."""

import asyncio
import contextlib
import io
import os
import re
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Final

import pexpect

from bot.timings import SystemClock
from sandbox import events
from sandbox.running import APP
from sandbox.slack import SandboxSlack
from sandbox.video_service import SandboxVideoService
from tests.world import PATIENCE

_ROOT: Final = Path(__file__).parent.parents[1]
# Many times what anything takes: other work may keep the machine busy.
_TIMEOUT_S: Final = 60.0
_ECHO_OFF_S: Final = 20.0
#: How the question for a secret ends.
HIDDEN: Final = "not shown):"
CTRL_C: Final = "\x03"
CTRL_D: Final = "\x04"


class Typist:
    """A person at a command of the bot's, on a terminal of its own.

    Attributes:
        shown: what the terminal has shown until now, with all control characters.
    """

    def __init__(self, child: "pexpect.spawn[str]") -> None:
        self._child = child
        self._shown = io.StringIO()
        child.logfile_read = self._shown
        child.delaybeforesend = None

    @property
    def shown(self) -> str:
        return self._shown.getvalue()

    async def sees(self, text: str) -> None:
        """Wait until this text is shown, wherever its lines are broken."""
        words = r"\s+".join(map(re.escape, text.split()))
        await asyncio.to_thread(self._child.expect, words)

    async def answers(self, question: str, text: str = "") -> None:
        """Wait for a question, and type a line."""
        await self.sees(question)
        if HIDDEN in question:
            # Turning the echo off, after the question, discards what was typed until then.
            await asyncio.to_thread(self._child.waitnoecho, _ECHO_OFF_S)
            assert not self._child.getecho()
        self._child.sendline(text)

    async def types(self, question: str, keys: str) -> None:
        """Wait for a question, and press keys."""
        await self.sees(question)
        self._child.send(keys)

    async def ends(self) -> int:
        """Wait for the end and return the exit code."""
        await asyncio.to_thread(self._child.expect, pexpect.EOF)
        await asyncio.to_thread(self._child.wait)
        assert self._child.exitstatus is not None
        return self._child.exitstatus


@contextlib.contextmanager
def at_terminal(
    folder: Path, *arguments: str, columns: str = "80", **environ: str
) -> Iterator[Typist]:
    """Start ``python -m bot`` with these arguments in a folder, on a terminal."""
    child = pexpect.spawn(
        sys.executable,
        ["-m", "bot", *arguments],
        cwd=folder,
        env=environment(folder, environ),
        dimensions=(24, int(columns)),
        timeout=_TIMEOUT_S,
        encoding=environ.get("PYTHONIOENCODING", "utf-8"),
    )
    try:
        yield Typist(child)
    finally:
        child.close(force=True)


def environment(folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what a command of the bot's finds in its environment, with ``environ`` added."""
    path = os.defpath  # where git is
    return {"PYTHONPATH": str(_ROOT), "PATH": path, "HOME": str(folder), "TERM": "xterm", **environ}


@dataclass
class Outside:
    """What the set-up talks to."""

    slack: SandboxSlack
    service: SandboxVideoService
    folder: Path

    @property
    def env_file(self) -> Path:
        return self.folder / ".env"

    @property
    def secrets(self) -> list[str]:
        slack = self.slack
        return [
            slack.bot_token,
            slack.signing_secret,
            slack.socket_mode.app_token,
            self.service.api_key,
            "4f00ta9e",
            "wr0ng-key-of-ana",
        ]

    def check_hidden(self, typist: Typist) -> None:
        for secret in self.secrets:
            assert secret not in typist.shown
        assert "Traceback" not in typist.shown


@contextlib.asynccontextmanager
async def running_outside(folder: Path) -> AsyncIterator[Outside]:
    """Run a Slack and a video service in real time, as a person finds them."""
    clock = SystemClock()
    slack, service = SandboxSlack(clock, signing_secret=token_hex(16)), SandboxVideoService(clock)
    slack.response_timeout = slack.socket_mode.response_timeout = PATIENCE
    slack.app = APP
    events.follow(slack)
    await slack.start()
    await service.start()
    try:
        yield Outside(slack, service, folder)
    finally:
        await service.stop()
        await slack.stop()


async def answer_service(typist: Typist, outside: Outside) -> None:
    await typist.answers(
        "from its API documentation, such as https://videos.example.com:", outside.service.url
    )
    await typist.answers(f"API key ({HIDDEN}", outside.service.api_key)
    await typist.sees("video service: answers and accepts the key")
