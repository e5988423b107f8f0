"""Runs the page until the process is asked to stop."""

import asyncio
import contextlib
import shlex
import signal
import sys
import threading
import webbrowser
from dataclasses import replace
from datetime import timedelta
from typing import Final, TextIO

from bot.timings import PollSchedule, SystemClock, Timings
from sandbox.clock import TrailingClock
from sandbox.driver import Person
from sandbox.page import sample
from sandbox.page.server import PORT, Page
from sandbox.running import REPLICA, Sandbox, running
from sandbox.scenarios import Pace

_POLLING: Final = PollSchedule(
    first_interval=timedelta(seconds=1),
    growth=0.1,
    max_interval=timedelta(seconds=2),
    late_after=timedelta(minutes=1),
    overdue_after=timedelta(minutes=3),
    overdue_interval=timedelta(seconds=5),
    give_up_after=timedelta(hours=1),
)
#: Of the bot: long enough to see what happens, short enough to wait for.
TIMINGS: Final = Timings(
    minutes=_POLLING,
    hours=_POLLING,
    call_timeout=timedelta(seconds=10),
    retry_interval=timedelta(milliseconds=500),
    reconcile_within=timedelta(seconds=10),
    recheck_key=timedelta(seconds=5),
    recheck_credit=timedelta(seconds=10),
    post_hold=timedelta(seconds=3),
    pause=timedelta(seconds=5),
    callback_spacing=timedelta(milliseconds=200),
)
_PACE: Final = Pace(
    queued=timedelta(seconds=3),
    generating=timedelta(seconds=12),
    training=timedelta(seconds=40),
    training_steps=20,
)
_SAMPLE_TIMEOUT: Final = timedelta(minutes=1)
# Browsers that would take over the terminal.
_TERMINAL_BROWSERS: Final = frozenset({"elinks", "links", "lynx", "w3m", "www-browser"})


async def run(
    out: TextIO, *, port: int | None, open_browser: bool, socket_mode: bool = False
) -> int:
    """Serve the page until SIGINT or SIGTERM, and return an exit code.

    Args:
        out: where the page's address is printed.
        port: where to listen, or on the next free port; None for the default.
        open_browser: whether to open the page in the user's browser.
        socket_mode: whether Slack's requests come over Socket Mode.
    """
    stopped = _stop_signal()
    clock = TrailingClock(SystemClock(), sample.SPAN)
    async with running(clock, _PACE, TIMINGS, socket_mode=socket_mode) as sandbox:
        command = shlex.join(sys.orig_argv)
        page = Page(
            sandbox.slack, sandbox.service, sandbox.bot_url, command, lambda: sandbox.bot.store
        )
        await page.start(port or PORT)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SAMPLE_TIMEOUT.total_seconds()):
                    await begin(sandbox, clock)
            as_asked = port is None or page.url.endswith(f":{port}")
            opening = "Open" if as_asked else f"Port {port} is taken: open"
            address = _ADDRESS.format(opening=opening, page=page, sandbox=sandbox)
            print(address, file=out, flush=True)
            if open_browser:
                # Some browsers return only once they are closed.
                threading.Thread(target=_open, args=(page.url,), daemon=True).start()
            await stopped.wait()
        finally:
            await page.stop()
    return 0


async def begin(sandbox: Sandbox, clock: TrailingClock) -> None:
    """Play the sample; where settings limit what can be asked for, only add the replica.

    Nothing in the sample needs approval: it is over.
    """
    if not sandbox.limited:
        jobs = sandbox.bot.store.jobs
        given, jobs.approvals = jobs.approvals, replace(jobs.approvals, approvers=frozenset())
        try:
            await sample.play(sandbox.slack, sandbox.service, REPLICA, clock)
        finally:
            jobs.approvals = given
        return
    clock.skip(clock.lag)
    *_, replicas = (each.command for each in sandbox.slack.app.commands)
    for user in list(sandbox.slack.users.values()):
        if user.title == "Admin":
            await Person(sandbox.slack, user.name).command(replicas, f"add {REPLICA}", "studio")


def _open(url: str) -> None:
    with contextlib.suppress(webbrowser.Error):
        browser = webbrowser.get()
        if getattr(browser, "name", "") not in _TERMINAL_BROWSERS:
            browser.open(url)


def _stop_signal() -> asyncio.Event:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    return stopped


_ADDRESS: Final = """\
{opening} {page.url} in a browser, and use the bot as you would in Slack.
Everything runs on this machine only. Ctrl-C ends it, and nothing is kept.

  the bot        {sandbox.bot_url}
  Slack          {sandbox.slack.url}
  video service  {sandbox.service.url}
"""
