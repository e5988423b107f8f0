"""The options of the commands about jobs, and what people may write for them."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

import click

MAX_LISTED: Final = 10_000
"""Lines that a list has at most."""


class _Moment(click.ParamType[datetime]):
    """A day, or a moment with its zone, in ISO 8601. A day ends when the next one begins."""

    name = "TIME"

    def __init__(self, *, ends: bool = False) -> None:
        self._ends = ends

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        try:
            day = date.fromisoformat(value)
            start = datetime(day.year, day.month, day.day, tzinfo=UTC)
            return start + timedelta(days=1) if self._ends else start
        except (ValueError, OverflowError):
            pass
        try:
            moment = datetime.fromisoformat(value)
            if moment.tzinfo is not None:
                return moment.astimezone(UTC)
        except (ValueError, OverflowError):
            pass
        return self.fail(
            f"{value!r} is not a time: write a day (2026-11-22) or a moment (2026-11-22T16:00Z).",
            param,
            ctx,
        )


class Month(click.ParamType[datetime]):
    """A calendar month."""

    name = "MONTH"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """Return its first moment."""
        try:
            return datetime.strptime(value, "%Y-%m").replace(tzinfo=UTC)
        except ValueError:
            return self.fail(f"{value!r} is not a month: write it like 2026-11.", param, ctx)


class _SlackId(click.ParamType[str]):
    """An id of Slack's, which people also paste as Slack's links have it."""

    name = "ID"

    def __init__(self, letters: str, what: str, where: str) -> None:
        self._letters, self._what, self._where = letters, what, where

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        found = str(value).strip("<>@#").partition("|")[0]
        if found[:1] in self._letters and found.isascii() and found.isalnum() and found.isupper():
            return found
        return self.fail(f"{value!r} is not a {self._what}: {self._where}.", param, ctx)


USER: Final = click.option(
    "--user",
    type=_SlackId("UW", "member ID", "copy it from the person's profile in Slack, under More"),
    help="Of this person.",
)
CHANNEL: Final = click.option(
    "--channel",
    type=_SlackId("CDG", "channel ID", "it is at the end of the channel's details in Slack"),
    help="In this channel.",
)
SINCE: Final = click.option("--since", type=_Moment(), help="From this day or moment on (UTC).")
UNTIL: Final = click.option(
    "--until", type=_Moment(ends=True), help="To the end of this day, or before this moment (UTC)."
)
STATE: Final = click.option("--state", metavar="STATE", help="In this state, such as failed.")
KIND: Final = click.option("--kind", metavar="KIND", help="Of this kind: video or replica.")
OUTPUT: Final = click.option(
    "--output", type=click.Path(path_type=Path), help="Write to this file, for you alone."
)
FORCE: Final = click.option("--force", is_flag=True, help="Replace the file if it is there.")
LIMIT: Final = click.option(
    "--limit",
    type=click.IntRange(1, MAX_LISTED),
    default=50,
    show_default=True,
    help="List at most this many, the newest.",
)
