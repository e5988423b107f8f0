"""The table of the installation: the workspace that the database belongs to, and its app."""

from typing import Final

from bot.model import Installation
from bot.store.database import Database, Transaction
from bot.store.sql import Query

_GET: Final = Query("SELECT team_id, enterprise_id, app_id FROM installation")
_SAVE: Final = Query(
    """
    INSERT INTO installation (id, team_id, enterprise_id, app_id)
    VALUES (1, :team_id, :enterprise_id, :app_id)
    ON CONFLICT (id) DO UPDATE
    SET enterprise_id = excluded.enterprise_id, app_id = excluded.app_id
    WHERE installation.team_id = excluded.team_id
    """
)


class Installations:
    """The installation that the database belongs to: its first team stays."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def fetch(self) -> Installation | None:
        """Return the installation; None before it was first saved."""
        return await self._database.run(_get, durable=False)

    async def save(self, installation: Installation) -> Installation | None:
        """Store what Slack says of the installation, unless the database is another team's.

        Returns:
            What was stored before.
        """

        def work(tx: Transaction) -> Installation | None:
            before = _get(tx)
            tx.all(
                _SAVE,
                team_id=installation.team_id,
                enterprise_id=installation.enterprise_id,
                app_id=installation.app_id,
            )
            return before

        return await self._database.run(work)


def _get(tx: Transaction) -> Installation | None:
    row = tx.one(_GET)
    if row is None:
        return None
    return Installation(row["team_id"], row["enterprise_id"], row["app_id"])
