"""Checks of the database: its file and disk or its server, its owner, and what waits in it."""

import os
import shutil
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from bot.clock import Clock
from bot.ops.finding import Finding, counted, error, ok, split, warning
from bot.slack.views.blocks import span
from bot.store import DatabaseError
from bot.store.database import Server
from bot.store.engines import inspect_server
from bot.store.inspection import Inspection, find_owner, inspect
from bot.store.sqlite_file import beside, check_file

_NAME: Final = "database"
_MIB: Final = 1024 * 1024
# Up to this size all of it is read. A disk that reads 100 MB/s takes 2.5 s.
# Measured for 1.6 GB in memory: quick_check 0.9 s, its 380,000 rows 10 s.
_SMALL_BYTES: Final = 256 * _MIB
# To erase texts for good, the file is rewritten: that takes as much again.
_LITTLE_SPACE_BYTES: Final = 512 * _MIB
_NO_SPACE_BYTES: Final = 16 * _MIB
_UNITS: Final = (("GB", 10**9), ("MB", 10**6), ("kB", 1000), ("bytes", 1))
_MAX_LISTED: Final = 10
# Beyond this, two copies may post the same message: see docs/postgresql.md.
_MAX_DIFFERENCE: Final = timedelta(seconds=30)
_MAX_AHEAD: Final = timedelta(seconds=5)


def check_database(address: Path | str, clock: Clock) -> Iterator[Finding]:
    """Yield what is found about the database, without changing or creating anything.

    Args:
        address: its file, or the URL of a PostgreSQL database.
        clock: for the age of what waits.
    """
    try:
        if isinstance(address, str):
            yield from _check_on_server(address, clock)
        else:
            yield from _check_file(address, clock)
    except DatabaseError as failure:
        yield error(_NAME, *split(str(failure)))


def _check_on_server(url: str, clock: Clock) -> Iterator[Finding]:
    server = inspect_server(url, clock)
    is_small = server.size_bytes <= _SMALL_BYTES
    found = inspect(url, clock.now(), read_rows=is_small)
    read = "all rows were read" if is_small else "its rows were not read"
    about = f"PostgreSQL {server.version}, {_bytes(server.size_bytes)}"
    yield _describe(about, found, read)
    yield from check_server(server)
    yield from _check_rows(found)
    running = f" ({counted(server.bots, 'connection')})" if server.bots else None
    yield _check_work(running, found, clock.now())


def _check_file(path: Path, clock: Clock) -> Iterator[Finding]:
    folder = path.absolute().parent
    # A log without its database has what was accepted last: check_file says what to do.
    is_new = not path.exists() and not beside(path, "-wal").exists()
    if is_new and not folder.is_dir():
        yield error(
            _NAME,
            f"{path} cannot be created: the folder {folder} is missing",
            "Create it, or set DATABASE_URL to a file in another one.",
        )
    elif not os.access(folder, os.W_OK) or (path.is_file() and not os.access(path, os.W_OK)):
        yield error(
            _NAME,
            f"{path} or its folder cannot be written",
            "Make the bot's user the owner: "
            f"chown USER {folder}{f' {path}' if path.exists() else ''}",
        )
    elif is_new:
        yield ok(_NAME, f"{path} does not exist yet: the bot creates it when it starts")
        yield from _check_space(folder, 0)
    else:
        size = _size(path) + _size(beside(path, "-wal"))
        is_small = size <= _SMALL_BYTES
        check_file(path, pages="quick_check" if is_small else "")
        found = inspect(path, clock.now(), read_rows=is_small)
        read = "no damage found" if is_small else "its pages were not read (backup reads them)"
        yield _describe(f"{path.absolute()}, {_bytes(size)}", found, read)
        yield from _check_space(folder, size)
        yield from _check_rows(found)
        owner = find_owner(path)
        process = f" (process {owner})" if owner else ""
        yield _check_work(None if owner is None else process, found, clock.now())


def check_server(server: Server) -> Iterator[Finding]:
    """Yield what is found about a server that accepts connections."""
    if not server.is_protected:
        yield warning(
            "database connection",
            "can be read or changed on the way to the server, whose certificate is not verified",
            "Add ?sslmode=verify-full&sslrootcert=system to DATABASE_URL, or the file of your "
            "host's certificate authority as sslrootcert.",
        )
    seconds = abs(server.ahead).total_seconds()
    way = "ahead of" if server.ahead > timedelta(0) else "behind"
    said = f"this machine's clock is {seconds:,.1f} s {way} the server's"
    if abs(server.ahead) <= _MAX_AHEAD:
        yield ok("database clock", f"{said} (up to 30 seconds between two copies do no harm)")
    else:
        yield (error if abs(server.ahead) >= _MAX_DIFFERENCE else warning)(
            "database clock",
            f"{said}: from 30 seconds on, two copies of the bot may post the same message",
            "Keep the clocks of all machines in time with NTP.",
        )


def _check_rows(found: Inspection) -> Iterator[Finding]:
    if unreadable := found.unreadable:
        rows = ", ".join(f"row {each.row} of {each.table}" for each in unreadable[:_MAX_LISTED])
        more = len(unreadable) - _MAX_LISTED
        yield error(
            "database rows",
            f"has rows that the bot cannot read, and leaves as they are: {rows}"
            f"{f', and {more} more' if more > 0 else ''}",
            "Repair them or restore a backup, and start the bot again: it tries them once more.",
        )
    elif found.set_aside:
        yield error(
            "database rows",
            f"{counted(found.set_aside, 'row')} could not be read, and the bot leaves alone "
            f"{'it' if found.set_aside == 1 else 'them'}",
            "Start the bot again: it tries them once more. If they stay, restore a backup.",
        )


def _describe(about: str, found: Inspection, read: str) -> Finding:
    version = "up to date"
    if found.pending:
        count = counted(len(found.pending), "migration")
        version = f"{count} to apply, which the next start does"
    return ok(_NAME, f"{about}, {version}; {read}")


def _check_space(folder: Path, size: int) -> Iterator[Finding]:
    free = shutil.disk_usage(folder).free
    if free < _NO_SPACE_BYTES:
        yield error(
            "disk space",
            f"{_bytes(free)} free: the disk is full",
            f"Make room on the disk of {folder}: until then, the bot takes no requests.",
        )
    elif free < max(_LITTLE_SPACE_BYTES, 2 * size):
        yield warning(
            "disk space",
            f"{_bytes(free)} free",
            f"Make room on the disk of {folder}: to erase old texts for good, the bot rewrites the "
            f"database, which takes {_bytes(size)} more for a moment.",
        )
    else:
        yield ok("disk space", f"{_bytes(free)} free")


def _check_work(running: str | None, found: Inspection, now: datetime) -> Finding:
    """``running`` says which bot uses the database, in brackets; None if none does."""
    if running is not None:
        return ok("bot", f"is running on this database{running}")
    count = sum(found.waiting.values())
    if not count:
        return ok("bot", "no bot runs on this database, and nothing waits in it")
    work = [counted(number, noun) for noun, number in found.waiting.items() if number]
    since = "" if found.oldest is None else f", the oldest for {span(now - found.oldest)}"
    return warning(
        "bot",
        f"no bot runs on this database, and {' and '.join(work)} "
        f"{'waits' if count == 1 else 'wait'}{since}",
        "Start it: python -m bot serve.",
    )


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _bytes(count: int) -> str:
    unit, size = next(((u, s) for u, s in _UNITS if count >= s), _UNITS[-1])
    return f"{count / size:.3g} {unit}"
