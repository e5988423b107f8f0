"""The replicas that this workspace knows: trained here, added by hand, or used with success."""

import sqlite3
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from bot.database import Database, all_rows, first_row, moment_of, ms_of, transaction
from bot.model import Snapshot, Verdict

_COLUMNS: Final = "id, name, status, verdict, reason, read_at"


@dataclass(frozen=True, slots=True)
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
    default: bool = False
    """It is the one that is chosen beforehand in the channel that was asked about."""


class Replicas:
    """The table of them, and which one is a channel's default."""

    def __init__(self, database: Database) -> None:
        self.database = database

    @transaction
    def find(
        self, db: sqlite3.Connection, query: str, channel: str, limit: int
    ) -> list[KnownReplica]:
        """Return those with ``query`` in name or id: the channel's default, then the last used.

        Those that cannot be used come last.

        What was deleted at the service is nobody's to choose any more.
        """
        # Folded here: databases do not agree on what the capitals of all alphabets are.
        literal = query.casefold().replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
        rows = all_rows(
            db,
            rf"""
            SELECT {_COLUMNS}, id = coalesce(
                (SELECT replica_id FROM channel_defaults WHERE channel = :channel), '') AS chosen
            FROM replicas
            WHERE (lower(id) LIKE :pattern ESCAPE '\' OR sought LIKE :pattern ESCAPE '\')
                AND lower(status) <> 'deleted'
            ORDER BY chosen DESC, verdict = 'failed', used_at DESC, id LIMIT :limit
            """,  # noqa: S608 - constants
            {"pattern": f"%{literal}%", "channel": channel, "limit": limit},
        )
        return [replace(_replica(row), default=bool(row["chosen"])) for row in rows]

    @transaction
    def get(self, db: sqlite3.Connection, replica_id: str) -> KnownReplica | None:
        """Return the replica with this id, if it is known here."""
        row = first_row(
            db,
            f"SELECT {_COLUMNS} FROM replicas WHERE id = :id",  # noqa: S608 - a constant
            {"id": replica_id},
        )
        return _replica(row) if row else None

    @transaction
    def learn(self, db: sqlite3.Connection, snapshot: Snapshot, now: datetime) -> None:
        """Keep what the service said of a replica, and offer it from now on."""
        name = snapshot.facts.get("replica_name", "")
        db.execute(
            """
            INSERT INTO replicas (id, name, sought, status, verdict, reason, read_at, used_at)
            VALUES (:id, :name, :sought, :status, :verdict, :reason, :now, :now)
            ON CONFLICT (id) DO UPDATE SET
                name = CASE WHEN excluded.name = '' THEN replicas.name ELSE excluded.name END,
                sought = CASE WHEN excluded.name = '' THEN replicas.sought ELSE excluded.sought END,
                status = excluded.status, verdict = excluded.verdict,
                reason = excluded.reason, read_at = excluded.read_at
            """,
            {
                "id": snapshot.remote_id,
                "name": name,
                "sought": name.casefold(),
                "status": snapshot.status,
                "verdict": snapshot.verdict.value,
                "reason": snapshot.reason,
                "now": ms_of(now),
            },
        )

    @transaction
    def use(self, db: sqlite3.Connection, replica_id: str, now: datetime) -> None:
        """Offer a replica first of all from now on: a create call was accepted with it."""
        db.execute(
            """
            INSERT INTO replicas (id, used_at) VALUES (:id, :now)
            ON CONFLICT (id) DO UPDATE SET used_at = excluded.used_at
            """,
            {"id": replica_id, "now": ms_of(now)},
        )

    @transaction
    def forget(self, db: sqlite3.Connection, replica_id: str) -> None:
        """Offer a replica no more: the service does not know it any longer."""
        values = {"id": replica_id}
        db.execute("DELETE FROM channel_defaults WHERE replica_id = :id", values)
        db.execute("DELETE FROM replicas WHERE id = :id", values)

    @transaction
    def set_default(self, db: sqlite3.Connection, channel: str, replica_id: str) -> None:
        """Choose a known replica beforehand in the create form of a channel."""
        db.execute(
            """
            INSERT INTO channel_defaults (channel, replica_id)
            SELECT :channel, id FROM replicas WHERE id = :id
            ON CONFLICT (channel) DO UPDATE SET replica_id = excluded.replica_id
            """,
            {"channel": channel, "id": replica_id},
        )


def _replica(row: Any) -> KnownReplica:  # noqa: ANN401 - a row
    return KnownReplica(
        id=row["id"],
        name=row["name"],
        status=row["status"],
        verdict=Verdict(row["verdict"]) if row["verdict"] else None,
        reason=row["reason"],
        read_at=moment_of(row["read_at"]),
    )
