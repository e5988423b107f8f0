"""The table of drift: how, and how often, the service's answers differed from its interface."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from bot.store.database import Database, Transaction, to_ms
from bot.store.sql import Query

_MAX_ROWS: Final = 200
_KEPT_FOR: Final = timedelta(days=90)
_FORGET: Final = Query("DELETE FROM drift WHERE last_at < :before")
# A service with another field in each answer fills no disk.
_ADD: Final = Query(
    """
    INSERT INTO drift (kind, what, field, count, first_at, last_at)
    SELECT :kind, :what, :field, :count, :now, :now
    WHERE (SELECT count(*) FROM drift) < :max_rows OR EXISTS (
        SELECT 1 FROM drift WHERE kind = :kind AND what = :what AND field = :field
    )
    ON CONFLICT (kind, what, field) DO UPDATE
    SET count = drift.count + excluded.count, last_at = excluded.last_at
    """
)


class DriftTable:
    """Counts of drift. A power cut may undo the last of them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, counts: Mapping[tuple[str, str, str], int], now: datetime) -> None:
        """Add to the counts, by kind, what and field."""

        def work(tx: Transaction) -> None:
            tx.all(_FORGET, before=to_ms(now - _KEPT_FOR))
            for (kind, what, field), count in counts.items():
                tx.all(
                    _ADD,
                    kind=kind,
                    what=what,
                    field=field,
                    count=count,
                    now=to_ms(now),
                    max_rows=_MAX_ROWS,
                )

        await self._database.run(work, durable=False)
