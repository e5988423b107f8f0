"""The table of the messages that were answered with help: each is answered once."""

from datetime import datetime, timedelta
from typing import Final

from bot.store.database import Database, Transaction, to_ms
from bot.store.sql import Query

# Slack sends an event again within minutes. This is longer than any outage in between.
_KEPT_FOR: Final = timedelta(days=2)
_MARK: Final = Query(
    """
    INSERT INTO answered_messages (channel, ts, answered_at) VALUES (:channel, :ts, :now)
    ON CONFLICT (channel, ts) DO NOTHING RETURNING ts
    """
)
_FORGET: Final = Query("DELETE FROM answered_messages WHERE answered_at < :before")


class AnsweredMessages:
    """The messages of the last days that were answered with help."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def mark(self, channel: str, ts: str, now: datetime) -> bool:
        """Store that a message is answered now; return False if it was before."""

        def work(tx: Transaction) -> bool:
            tx.all(_FORGET, before=to_ms(now - _KEPT_FOR))
            return tx.one(_MARK, channel=channel, ts=ts, now=to_ms(now)) is not None

        return await self._database.run(work)
