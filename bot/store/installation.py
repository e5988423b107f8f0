"""The table of the installation: the workspace that the database belongs to, and its app."""

from datetime import datetime
from typing import Final

from bot.model import Installation
from bot.store.database import Database, Row, Transaction, to_ms
from bot.store.sql import Query
from bot.store.unreadable import UnreadableRows, optional_text, read_each, reading, text

_GET: Final = Query("SELECT id, team_id, enterprise_id, app_id FROM installation")
_SAVE: Final = Query(
    """
    INSERT INTO installation (id, team_id, enterprise_id, app_id)
    VALUES (1, :team_id, :enterprise_id, :app_id)
    ON CONFLICT (id) DO UPDATE
    SET enterprise_id = excluded.enterprise_id, app_id = excluded.app_id, uninstalled_at = NULL
    WHERE installation.team_id = excluded.team_id
    """
)
_UNINSTALL: Final = Query("UPDATE installation SET uninstalled_at = :now")
_UNINSTALLED: Final = Query("SELECT 1 AS there FROM installation WHERE uninstalled_at IS NOT NULL")


class Installations:
    """The installation that the database belongs to: its first team stays."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._unreadable = UnreadableRows()

    async def fetch(self) -> Installation | None:
        """Return the installation; None before it was first saved."""
        return await self._database.run(self._get, durable=False)

    async def save(self, installation: Installation) -> Installation | None:
        """Store what Slack says of the installation, unless the database is another team's.

        The app is installed from now on.

        Returns:
            What was stored before.
        """

        def work(tx: Transaction) -> Installation | None:
            before = self._get(tx)
            tx.all(
                _SAVE,
                team_id=installation.team_id,
                enterprise_id=installation.enterprise_id,
                app_id=installation.app_id,
            )
            return before

        return await self._database.run(work)

    async def uninstall(self, now: datetime) -> None:
        """Store that the app was uninstalled. All data is kept."""

        def work(tx: Transaction) -> None:
            tx.all(_UNINSTALL, now=to_ms(now))

        await self._database.run(work)

    async def is_uninstalled(self) -> bool:
        """Return whether the app was uninstalled since a token last worked."""

        def work(tx: Transaction) -> bool:
            return tx.one(_UNINSTALLED) is not None

        return await self._database.run(work, durable=False)

    def _get(self, tx: Transaction) -> Installation | None:
        """Return the installation; None if there is none, or if it is damaged: Slack knows it."""
        installations, errors = read_each(installation_from, tx.all(_GET))
        self._unreadable.report(errors)
        return installations[0] if installations else None


def installation_from(row: Row) -> Installation:
    """Return the installation of a row.

    Raises:
        RowUnreadable: its content is damaged.
    """
    with reading("installation", row):
        if not (team_id := text(row["team_id"])):
            raise ValueError("the team is empty")
        enterprise_id, app_id = optional_text(row["enterprise_id"]), optional_text(row["app_id"])
        return Installation(team_id, enterprise_id, app_id)
