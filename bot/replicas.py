"""The replicas that this workspace knows: trained here, added by hand, or used with success."""

import sqlite3
from bisect import bisect_right
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import accumulate
from typing import Any, Final, TypeVar

from bot.database import Database, all_rows, moment_of, ms_of, transaction
from bot.model import Snapshot, Verdict

_T = TypeVar("_T")

_COLUMNS: Final = "id, name, sought, status, verdict, reason, read_at, used_at"


# Two are the same if they are one: what is made of it for the picker is found again at once.
@dataclass(frozen=True, slots=True, eq=False)
class KnownReplica:
    """A replica as it was when the service was last asked about it.

    ``verdict`` is None where it was never asked; ``FAILED`` means that it cannot be used.
    """

    id: str
    name: str = ""
    status: str = ""
    verdict: Verdict | None = None
    reason: str = ""
    read_at: datetime | None = None
    sought: str = ""
    """The name as it is searched: without capitals."""
    used_at: int = 0
    """When it was used last, or became known, in milliseconds since 1970."""
    default: bool = False
    """It is the one that is chosen beforehand in the channel that was asked about."""

    @property
    def deleted(self) -> bool:
        """Whether it is gone at the service: nobody's to choose any more."""
        return self.status.lower() == "deleted"


class Replicas:
    """The table of them, and which one is a channel's default.

    Nobody else has the database open: what was read from it once is kept, and people who type are
    answered without it. Each change is made there first, and here once it is committed. The
    database answers in the order in which it commits, so what is kept is never older than it.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self._kept: _Kept | None = None
        self._doubts = 0

    async def find(self, query: str, channel: str, limit: int) -> list[KnownReplica]:
        """Return those with ``query`` in name or id: the channel's default, then the last used.

        Those that cannot be used come last.

        What was deleted at the service is nobody's to choose any more.
        """
        kept = await self._all()
        return kept.find(query.casefold(), kept.defaults.get(channel, ""), limit)

    async def get(self, replica_id: str) -> KnownReplica | None:
        """Return the replica with this id, if it is known here."""
        return (await self._all()).known.get(replica_id)

    async def learn(self, snapshot: Snapshot, now: datetime) -> None:
        """Keep what the service said of a replica, and offer it from now on."""
        await self._change(self._learn(snapshot, now), _Kept.put)

    async def use(self, replica_id: str, now: datetime) -> None:
        """Offer a replica first of all from now on: a create call was accepted with it."""
        await self._change(self._use(replica_id, now), _Kept.put)

    async def forget(self, replica_id: str) -> None:
        """Offer a replica no more: the service does not know it any longer."""
        await self._change(self._forget(replica_id), _Kept.drop)

    async def set_default(self, channel: str, replica_id: str) -> None:
        """Choose a known replica beforehand in the create form of a channel."""
        await self._change(self._set_default(channel, replica_id), _Kept.choose)

    async def _all(self) -> "_Kept":
        while (kept := self._kept) is None:
            doubts = self._doubts
            kept = _Kept(*await self._read())
            if doubts == self._doubts:
                self._kept = kept
        return kept

    async def _change(
        self, change: Coroutine[Any, Any, _T], keep: Callable[["_Kept", _T], None]
    ) -> None:
        try:
            changed = await change
        except BaseException:
            # It may be done or not: a caller that is cancelled gives up the answer, not the work.
            # What is being read at this moment may be older than it.
            self._kept = None
            self._doubts += 1
            raise
        if self._kept is not None:
            keep(self._kept, changed)

    @transaction
    def _read(self, db: sqlite3.Connection) -> tuple[dict[str, KnownReplica], dict[str, str]]:
        known = all_rows(db, f"SELECT {_COLUMNS} FROM replicas")  # noqa: S608 - a constant
        defaults = all_rows(db, "SELECT channel, replica_id FROM channel_defaults")
        return (
            {row["id"]: _replica(row) for row in known},
            {row["channel"]: row["replica_id"] for row in defaults},
        )

    @transaction
    def _learn(self, db: sqlite3.Connection, snapshot: Snapshot, now: datetime) -> KnownReplica:
        name = snapshot.facts.get("replica_name", "")
        [row] = all_rows(
            db,
            f"""
            INSERT INTO replicas (id, name, sought, status, verdict, reason, read_at, used_at)
            VALUES (:id, :name, :sought, :status, :verdict, :reason, :now, :now)
            ON CONFLICT (id) DO UPDATE SET
                name = CASE WHEN excluded.name = '' THEN replicas.name ELSE excluded.name END,
                sought = CASE WHEN excluded.name = '' THEN replicas.sought ELSE excluded.sought END,
                status = excluded.status, verdict = excluded.verdict,
                reason = excluded.reason, read_at = excluded.read_at
            RETURNING {_COLUMNS}
            """,  # noqa: S608 - a constant
            {
                "id": snapshot.remote_id,
                "name": name,
                # Folded here: databases do not agree on what the capitals of all alphabets are.
                "sought": name.casefold(),
                "status": snapshot.status,
                "verdict": snapshot.verdict.value,
                "reason": snapshot.reason,
                "now": ms_of(now),
            },
        )
        return _replica(row)

    @transaction
    def _use(self, db: sqlite3.Connection, replica_id: str, now: datetime) -> KnownReplica:
        [row] = all_rows(
            db,
            f"""
            INSERT INTO replicas (id, used_at) VALUES (:id, :now)
            ON CONFLICT (id) DO UPDATE SET used_at = excluded.used_at RETURNING {_COLUMNS}
            """,  # noqa: S608 - a constant
            {"id": replica_id, "now": ms_of(now)},
        )
        return _replica(row)

    @transaction
    def _forget(self, db: sqlite3.Connection, replica_id: str) -> str:
        values = {"id": replica_id}
        db.execute("DELETE FROM channel_defaults WHERE replica_id = :id", values)
        db.execute("DELETE FROM replicas WHERE id = :id", values)
        return replica_id

    @transaction
    def _set_default(
        self, db: sqlite3.Connection, channel: str, replica_id: str
    ) -> Mapping[str, str]:
        chosen = all_rows(
            db,
            """
            INSERT INTO channel_defaults (channel, replica_id)
            SELECT :channel, id FROM replicas WHERE id = :id
            ON CONFLICT (channel) DO UPDATE SET replica_id = excluded.replica_id
            RETURNING channel, replica_id
            """,
            {"channel": channel, "id": replica_id},
        )
        return {row["channel"]: row["replica_id"] for row in chosen}


class _Kept:
    """What stands in the tables, and one long text of it all to search in.

    A text of ten thousand names is searched in a tenth of a millisecond; asking each of them takes
    four times that. It is put together when somebody searches after a change.
    """

    def __init__(self, known: dict[str, KnownReplica], defaults: dict[str, str]) -> None:
        """``defaults`` has the replica of each channel that has one."""
        self.known = known
        self.defaults = defaults
        self._text: str | None = None
        self._offered: list[KnownReplica] = []
        # Where in the text each of those that are offered begins, and where it ends.
        self._begins: list[int] = []

    def put(self, replica: KnownReplica) -> None:
        """Add a replica, or keep what became of it."""
        self.known[replica.id] = replica
        self._text = None

    def drop(self, replica_id: str) -> None:
        """Keep it no more, nor as anybody's default."""
        self.known.pop(replica_id, None)
        self.defaults = {at: each for at, each in self.defaults.items() if each != replica_id}
        self._text = None

    def choose(self, defaults: Mapping[str, str]) -> None:
        """Keep the replica of a channel, if it has one now."""
        self.defaults.update(defaults)

    def find(self, folded: str, first: str, limit: int) -> list[KnownReplica]:
        """Return those in which ``folded`` occurs, the one with the id ``first`` first of all."""
        found = []
        chosen = self.known.get(first)
        if chosen is not None and not chosen.deleted and folded in _text_of(chosen):
            found.append(replace(chosen, default=True))
        for replica in self._matches(folded):
            if len(found) == limit:
                break
            if replica is not chosen:
                found.append(replica)
        return found

    def _matches(self, folded: str) -> Iterator[KnownReplica]:
        if self._text is None:
            self._text = self._arrange()
        at = self._text.find(folded)
        while 0 <= at < len(self._text):
            number = bisect_right(self._begins, at)
            yield self._offered[number - 1]
            # Each is found once, however often it matches.
            at = self._text.find(folded, self._begins[number])

    def _arrange(self) -> str:
        """Put those that are offered in order, and return the text of all of them."""
        offered = [replica for replica in self.known.values() if not replica.deleted]
        offered.sort(key=lambda each: (each.verdict is Verdict.FAILED, -each.used_at, each.id))
        texts = [_text_of(replica) for replica in offered]
        self._offered = offered
        self._begins = [0, *accumulate(map(len, texts))]
        return "".join(texts)


def _text_of(replica: KnownReplica) -> str:
    # No match begins in one name and ends in another: nobody types the ends of lines.
    return f"{replica.sought}\n{replica.id.casefold()}\n"


def _replica(row: sqlite3.Row) -> KnownReplica:
    return KnownReplica(
        id=row["id"],
        name=row["name"],
        status=row["status"],
        verdict=Verdict(row["verdict"]) if row["verdict"] else None,
        reason=row["reason"],
        read_at=moment_of(row["read_at"]),
        sought=row["sought"],
        used_at=row["used_at"],
    )
