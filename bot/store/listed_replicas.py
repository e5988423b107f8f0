"""The replicas that the service lists: stored so that all copies of the bot offer them."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from bot.model import Snapshot
from bot.store.database import Database, Row, Transaction, to_ms
from bot.store.replicas import FORGET, FORGET_DEFAULTS, next_revision
from bot.store.sql import Query

# One that is gone from the list may be back in the next: it is offered for as long.
_KEPT_FOR: Final = timedelta(days=1)
# What a person's form has just read is newer than a list.
_READ_MS: Final = 10 * 60_000

# Where the clock was set back, it is due as well.
_CLAIM: Final = Query(
    """
    INSERT INTO lists (kind, due_at) VALUES (:kind, :next)
    ON CONFLICT (kind) DO UPDATE SET due_at = excluded.due_at
    WHERE lists.due_at <= :now OR lists.due_at > excluded.due_at
    RETURNING kind
    """
)
_ALL: Final = Query("SELECT * FROM replicas")
_ADD: Final = Query(
    """
    INSERT INTO replicas
        (id, name, search_name, status, verdict, reason, used_at, listed_at, revision)
    VALUES (:id, :name, :search_name, :status, :verdict, :reason, 0, :now, :revision)
    ON CONFLICT (id) DO NOTHING
    """
)
_CHANGE: Final = Query(
    """
    UPDATE replicas SET name = :name, search_name = :search_name, status = :status,
        verdict = :verdict, reason = :reason, revision = :revision
    WHERE id = :id
    """
)
_SEEN: Final = Query(
    "UPDATE replicas SET listed_at = :now WHERE id IN (EACH :ids) AND listed_at IS NOT NULL"
)


class ListedReplicas:
    """What the service lists, in the table of replicas.

    What people added, used or trained stays when it is gone from the list: a read shows whether it
    can be used.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(self, kind: str, now: datetime, interval: timedelta) -> bool:
        """Return whether this process is to ask for the list of a kind now; none other does."""

        def work(tx: Transaction) -> bool:
            values = {"now": to_ms(now), "next": to_ms(now + interval)}
            return tx.one(_CLAIM, kind=kind, **values) is not None

        return await self._database.run(work, durable=False)

    async def store(self, listed: Sequence[Snapshot], now: datetime, *, complete: bool) -> None:
        """Store what the service lists; ``complete`` says that it has nothing else.

        Only what has changed gets a new revision.
        """

        def work(tx: Transaction) -> None:
            known = {row["id"]: row for row in tx.all(_ALL)}
            ids = {each.remote_id for each in listed}
            new = [each for each in listed if each.remote_id not in known]
            changed = [
                each
                for each in listed
                if each.remote_id in known and _differs(known[each.remote_id], each, now)
            ]
            gone = [row for row in known.values() if _is_gone(row, ids, now)] if complete else []
            # The revision is locked before replicas are, as in all that changes them.
            if new or changed or gone:
                revision = next_revision(tx)
                for each in new:
                    tx.all(_ADD, now=to_ms(now), revision=revision, **_columns(each))
                for each in changed:
                    tx.all(_CHANGE, revision=revision, **_columns(each))
                for row in gone:
                    tx.all(FORGET_DEFAULTS, id=row["id"])
                    tx.all(FORGET, id=row["id"])
            if ids:
                tx.all(_SEEN, ids=list(ids), now=to_ms(now))

        await self._database.run(work, durable=False)


def _columns(listed: Snapshot) -> dict[str, str]:
    name = listed.facts.get("replica_name", "")
    return {
        "id": listed.remote_id,
        "name": name,
        "search_name": name.casefold(),
        "status": listed.status,
        "verdict": listed.verdict.value,
        "reason": listed.reason,
    }


def _differs(row: Row, listed: Snapshot, now: datetime) -> bool:
    """Return whether a row is out of date, and was not read just now."""
    if row["read_at"] is not None and abs(to_ms(now) - row["read_at"]) < _READ_MS:
        return False
    return any(row[name] != value for name, value in _columns(listed).items())


def _is_gone(row: Row, listed_ids: set[str], now: datetime) -> bool:
    """Return whether only a list had a replica, and none has had it for long."""
    if row["listed_at"] is None or row["id"] in listed_ids:
        return False
    return bool(row["listed_at"] < to_ms(now - _KEPT_FOR))
