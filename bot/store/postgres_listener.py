"""Notifications between the processes that use one PostgreSQL database."""

import asyncio
import secrets
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import psycopg
from psycopg import sql

from bot.store.database import Topic, Transaction
from bot.store.postgres_link import defaults
from bot.store.sql import Query

_NOTIFY: Final = Query(
    "SELECT pg_notify(channel, :sender) FROM unnest(CAST(:channels AS TEXT[])) AS channel"
)
_CHANNELS: Final = {topic: f"bot_{topic.value}" for topic in Topic}
_TOPICS: Final = {channel: topic for topic, channel in _CHANNELS.items()}
# Between two notifications, and from a lost connection to the next one, which doubles.
_INTERVAL_S: Final = 0.05
_RECONNECT_S: Final = 1.0
_MAX_RECONNECT_S: Final = 10.0


class Listener:
    """Wakes this process for what others have committed, and the others for what it has.

    A notification is sent after the commit, in a transaction of its own: PostgreSQL lets those
    that notify commit one after the other. So one may be lost, if this process ends in between.
    Then, while there is no connection to listen on, and behind a pooler, the slow poll finds the
    work.
    """

    def __init__(
        self,
        url: str,
        wake: Callable[[Topic], None],
        *,
        poll_interval: timedelta,
        pooled_poll_interval: timedelta,
    ) -> None:
        """``wake`` is called for a topic that has changed, or may have."""
        self._url = url
        self._wake = wake
        self._poll_s = poll_interval.total_seconds()
        self._pooled_poll_s = pooled_poll_interval.total_seconds()
        self._sender = secrets.token_hex(8)
        self._changed: set[Topic] = set()
        self._has_changed = asyncio.Event()

    def tell_others(self, topics: set[Topic]) -> None:
        """Have the other processes notified soon."""
        if topics:
            self._changed |= topics
            self._has_changed.set()

    async def changed(self) -> None:
        """Wait until there is something to notify the others of.

        All of a moment is one notification, however much is committed.
        """
        await asyncio.sleep(_INTERVAL_S)
        await self._has_changed.wait()

    def take_notification(self) -> Callable[[Transaction], None] | None:
        """Return a work that notifies the others of what they were not notified of; or None."""
        if not self._changed:
            return None
        channels = [_CHANNELS[topic] for topic in self._changed]
        self._changed = set()
        self._has_changed.clear()

        def work(tx: Transaction) -> None:
            tx.all(_NOTIFY, channels=channels, sender=self._sender)

        return work

    async def run(self) -> None:
        """Listen, and poll slowly, until this is cancelled."""
        pause = _RECONNECT_S
        while True:
            try:
                connection = await psycopg.AsyncConnection.connect(
                    self._url, autocommit=True, prepare_threshold=None, **defaults(self._url)
                )
                async with connection:
                    if await _is_pooled(connection):
                        break
                    pause = _RECONNECT_S
                    await self._listen(connection)
            except (psycopg.Error, OSError):
                self._wake_all()
                await asyncio.sleep(pause)
                pause = min(2 * pause, _MAX_RECONNECT_S)
        while True:
            self._wake_all()
            await asyncio.sleep(self._pooled_poll_s)

    async def _listen(self, connection: psycopg.AsyncConnection) -> None:
        for channel in _TOPICS:
            await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        while True:
            self._wake_all()
            async for each in connection.notifies(timeout=self._poll_s):
                if each.payload != self._sender:
                    self._wake(_TOPICS[each.channel])

    def _wake_all(self) -> None:
        for topic in Topic:
            self._wake(topic)


async def _is_pooled(connection: psycopg.AsyncConnection) -> bool:
    """Return whether a pooler is in between, which may not pass notifications on.

    It answers with a process id of its own making when a connection begins.
    """
    cursor = await connection.execute("SELECT pg_backend_pid()")
    return await cursor.fetchone() != (connection.info.backend_pid,)
