"""What a running bot says about itself: its ``/readyz``, read on this machine."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, Final

import aiohttp

from bot.doctor.finding import Finding, error, off, ok, split, warning
from bot.settings import Settings
from bot.slack.client import open_session
from bot.store.inspection import find_owner
from bot.timings import Timings

_NAME: Final = "readiness"
_ALL_ADDRESSES: Final = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - to call, not to listen


async def check_readiness(settings: Settings, timings: Timings) -> AsyncIterator[Finding]:
    """Yield what the bot that has the database says is wrong; nothing where none runs."""
    if await asyncio.to_thread(find_owner, settings.database_address) is None:
        return
    host = _ALL_ADDRESSES.get(settings.host, settings.host)
    url = f"http://{host}:{settings.port}/readyz"
    try:
        async with (
            open_session(None) as session,
            asyncio.timeout(timings.call_timeout.total_seconds()),
            session.get(url) as response,
        ):
            report = json.loads(await response.read())
    except (aiohttp.ClientError, OSError, ValueError):
        report = None
    match report:
        case {"ready": bool(is_ready), "checks": dict(checks)}:
            for finding in _judge(is_ready, checks):
                yield finding
        case _:
            yield off(
                _NAME,
                f"the bot that runs does not answer at {url}",
                "Run doctor where the bot runs, with the same HOST and PORT.",
            )


def _judge(is_ready: bool, checks: dict[str, Any]) -> list[Finding]:  # noqa: FBT001
    level = warning if is_ready else error
    found = []
    for name, check in checks.items():
        match check:
            case {"ok": False, "reason": str(reason)}:
                message, remedy = split(reason)
                remedy = remedy or "Read the bot's log."
                found.append(
                    level(_NAME, f"the bot says of {name.replace('_', ' ')}: {message}", remedy)
                )
    return found or [ok(_NAME, "the bot says that it is ready")]
