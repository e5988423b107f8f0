"""The parts of the bot that run until it is stopped: one that ends earlier has failed."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final, TypeVar

from bot.errors import OperatorError
from bot.log import reference
from bot.store import DatabaseError

_LOG: Final = logging.getLogger(__name__)
_T = TypeVar("_T")


class PartFailed(OperatorError):
    """A part of the bot ended by itself; ``str()`` says which to the person who runs the bot."""


def start_part(run: Callable[[], Awaitable[None]], name: str) -> asyncio.Task[None]:
    """Start a part. It is given to ``run_until``, and awaited once it has been cancelled."""
    return _start(_run(run, name), name)


async def run_until(stop: asyncio.Event, parts: Iterable[asyncio.Task[None]]) -> None:
    """Return when ``stop`` is set.

    Raises:
        DatabaseError: the database cannot be used any more.
        PartFailed: a part of the bot ended by itself.
    """
    stopped = _start(stop.wait(), "stop")
    done, _ = await asyncio.wait([stopped, *parts], return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    for part in done - {stopped}:
        if not part.cancelled():
            part.result()
        _LOG.error("a part of the bot ended", extra={"part": part.get_name()})
        raise PartFailed(f"The bot ends, because its {part.get_name()} ended.")


async def _run(run: Callable[[], Awaitable[None]], name: str) -> None:
    """Run a part, and log what it fails with."""
    try:
        await run()
    except DatabaseError as error:
        _LOG.error("a part of the bot failed", extra={"part": name, "reason": str(error)})
        raise
    except Exception as error:
        code = reference()
        _LOG.exception("a part of the bot failed", extra={"part": name, "reference": code})
        raise PartFailed(
            f"The bot ends, because its {name} failed. The log has the details under {code}."
        ) from error


def _start(work: Coroutine[Any, Any, _T], name: str) -> asyncio.Task[_T]:
    return asyncio.create_task(work, name=name)  # noqa: TID251 - the caller awaits it
