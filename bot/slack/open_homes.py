"""The Home tabs that people opened at this copy of the bot, and which of them are due."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from bot.clock import Clock
from bot.store import ANY, Claimed, Database, Topic, soonest
from bot.timings import Timings

_MAX_HOMES: Final = 1000  # more than a workspace has open; the least recently opened is forgotten


@dataclass(slots=True, eq=False)
class OpenHome:
    """A Home tab that a person has opened."""

    user: str
    opened_at: datetime
    not_before: datetime
    page: int = 0
    """Which part of the list of jobs it shows, counted from 0."""
    changed: bool = False
    """Whether it is to be published again."""


class OpenHomes:
    """Remembers who has opened their Home tab within a week, in memory.

    After that, and after a restart, a tab is current once it is opened again.
    """

    def __init__(self, database: Database, clock: Clock, timings: Timings) -> None:
        self._database = database
        self._clock = clock
        self._interval = timings.home_interval
        self._kept_for = timings.home_kept_for
        self._homes: dict[str, OpenHome] = {}  # the least recently opened first
        self.due = database.event(Topic.HOMES)
        """Set when one may have become due."""
        database.subscribe(Topic.HOMES, self._on_change)

    async def open(self, user: str, page: int = 0) -> None:
        """Have a user's Home tab published on this page, and whenever it changes."""
        now = self._clock.now()
        home = self._homes.pop(user, OpenHome(user, now, not_before=now))
        home.opened_at = now
        self._homes[user] = home
        if len(self._homes) > _MAX_HOMES:
            del self._homes[next(iter(self._homes))]
        # Other copies that know this person turn to the same page.
        await self._database.run(lambda tx: tx.notify(Topic.HOMES, f"{user} {page}"), durable=False)

    def change(self, home: OpenHome) -> None:
        """Make a Home tab due."""
        home.changed = True
        self.due.set()

    def claim(self, limit: int, held: Collection[OpenHome]) -> Claimed[OpenHome]:
        """Return up to ``limit`` that are due and not ``held``; they are due after a change."""
        now = self._clock.now()
        due = [
            home
            for home in self._changed(held)
            # A wait that is too long is from before the clock was set back.
            if not now < home.not_before <= now + self._interval
        ]
        claimed = sorted(due, key=lambda home: home.not_before)[:limit]
        for home in claimed:
            home.changed = False
        return Claimed(claimed, soonest(home.not_before for home in self._changed(held)))

    def published(self, home: OpenHome) -> None:
        """Leave a Home tab alone for a moment: then it shows the newest of all changes."""
        home.not_before = self._clock.now() + self._interval

    def _changed(self, held: Collection[OpenHome]) -> list[OpenHome]:
        opened_after = self._clock.now() - self._kept_for
        return [
            home
            for home in self._homes.values()
            if home.changed and home not in held and home.opened_at > opened_after
        ]

    def _on_change(self, subject: str) -> None:
        """Note a change: ``subject`` is a user's id, with a page where they have turned to it."""
        if subject == ANY:
            for home in self._homes.values():
                home.changed = True
            return
        user, _, page = subject.partition(" ")
        if (known := self._homes.get(user)) is not None:
            known.changed = True
            known.page = int(page) if page else known.page
