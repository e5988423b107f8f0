"""Checks of everything that the bot depends on, each with a remedy if it fails.

The checks run at the same time and are reported in a fixed order. Nothing is changed.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Final

from bot.clock import Clock, SystemClock
from bot.doctor.database import check_database
from bot.doctor.finding import CheckState, Finding, error, split, summary
from bot.doctor.outside import (
    check_app_token,
    check_limits,
    check_readiness,
    check_service,
    check_slack,
)
from bot.doctor.settings import (
    check_file,
    check_names,
    check_public_url,
    check_sources,
    missing_file,
    mistakes,
    unchecked,
)
from bot.masking import Mask
from bot.settings import (
    ENV_FILE,
    DatabaseSettings,
    EnvFileError,
    Settings,
    SettingsError,
    environment,
    read_env_file,
)
from bot.timings import Timings

__all__ = [
    "CheckState",
    "Finding",
    "examine",
    "examine_deployment",
    "summary",
]

# A person waits for the answers.
_TIMINGS: Final = Timings(call_timeout=timedelta(seconds=8))
# All calls of one check together, as a share of the time for one.
_CHECK_TIMEOUT: Final = 1.25


async def examine(
    environ: Mapping[str, str],
    *,
    in_file: Mapping[str, str] = MappingProxyType({}),
    integrity: bool = False,
    timings: Timings = _TIMINGS,
    clock: Clock | None = None,
) -> AsyncIterator[Finding]:
    """Yield the findings in a fixed order, without changing anything.

    Args:
        environ: the settings, with those of ``.env`` where the environment has none.
        in_file: what ``.env`` sets.
        integrity: whether to read the whole database, however large it is.
        timings: those of the calls.
        clock: this machine's.
    """
    clock = clock or SystemClock()
    for finding in (*check_names(environ, in_file), *(check_file() if in_file else ())):
        yield finding.cleaned(str)
    try:
        settings = Settings.read(environ)
    except SettingsError as refusal:
        found = [*mistakes(refusal)]
        if refusal.has_missing and not ENV_FILE.exists():
            found.append(missing_file())
        if "DATABASE_URL" not in refusal.mistakes:
            path = DatabaseSettings.read(environ).database_address
            found += await _in_thread(
                "database", lambda: check_database(path, clock, integrity=integrity)
            )
        for finding in (*found, unchecked()):
            yield finding.cleaned(str)
        return
    for finding in check_sources(environ, in_file):
        yield finding.cleaned(str)
    mask = Mask(settings.secrets)
    limit = timings.call_timeout * _CHECK_TIMEOUT
    checks = [
        _in_thread(
            "database",
            lambda: check_database(settings.database_address, clock, integrity=integrity),
        ),
        _within(limit, "readiness", check_readiness(settings, timings)),
        _within(limit, "Slack", check_slack(settings, timings, clock)),
        _within(limit, "Socket Mode", check_app_token(settings, timings)),
        _within(limit, "video service", check_service(settings, timings, clock)),
        _within(limit, "public address", check_public_url(settings)),
        _within(limit, "limits", check_limits(settings, timings)),
    ]
    async with contextlib.AsyncExitStack() as stack:
        tasks = [asyncio.create_task(each) for each in checks]  # noqa: TID251 - they end here
        for task in tasks:
            stack.callback(task.cancel)
        for task in tasks:
            for finding in await task:
                yield finding.cleaned(mask)


async def examine_deployment(*, integrity: bool = False) -> AsyncIterator[Finding]:
    """Yield the findings for the settings of this process, and of ``.env`` where it has none."""
    try:
        in_file = read_env_file()
    except EnvFileError as failure:
        yield error(str(ENV_FILE), *split(str(failure))).cleaned(str)
        return
    async for finding in examine(environment(), in_file=in_file, integrity=integrity):
        yield finding


async def _within(limit: timedelta, name: str, check: AsyncIterator[Finding]) -> list[Finding]:
    """Return what a check yields within a time, and a finding if it takes longer or fails."""
    found: list[Finding] = []

    async def collect() -> None:
        async with asyncio.timeout(limit.total_seconds()):
            async for each in check:
                found.append(each)  # noqa: PERF401 - those before an error count

    return await _guarded(name, found, collect)


async def _in_thread(name: str, check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    found: list[Finding] = []
    return await _guarded(name, found, lambda: asyncio.to_thread(lambda: found.extend(check())))


async def _guarded(
    name: str, found: list[Finding], collect: Callable[[], Awaitable[None]]
) -> list[Finding]:
    """Run a check that appends to ``found``; what it raises is one more finding."""
    try:
        await collect()
    except TimeoutError:
        found.append(
            error(name, "the check did not end in time", "Run doctor again: something is slow.")
        )
    except OSError as failure:
        said = failure.strerror or type(failure).__name__
        found.append(
            error(name, f"the check failed: {said}", "Correct that, and run doctor again.")
        )
    except Exception as failure:  # noqa: BLE001 - one check must not hide the others
        found.append(
            error(
                name,
                f"the check itself failed ({type(failure).__name__})",
                "This is a mistake in doctor: please report it.",
            )
        )
    return found
