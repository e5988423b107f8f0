"""The store of what must survive the process: jobs, attempts, deliveries and replicas."""

import contextlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final

from bot.approval import ApprovalPolicy
from bot.metrics import Metrics
from bot.store.answered import AnsweredMessages
from bot.store.attempts import AddedCandidate
from bot.store.backlog import Backlog, Figures
from bot.store.database import (
    Database,
    DatabaseCorrupt,
    DatabaseError,
    DatabaseInUse,
    DatabaseUnavailable,
    DatabaseUncertain,
    RowUnreadable,
)
from bot.store.deliveries import Deliveries
from bot.store.delivery_claims import Limited, Outgoing
from bot.store.drift import DriftTable
from bot.store.engines import require_psycopg
from bot.store.homes import Home, Homes
from bot.store.installation import Installations
from bot.store.jobs import Jobs
from bot.store.limit_changes import (
    CHANGEABLE,
    InvalidLimits,
    LimitChange,
    LimitsChanged,
    LimitsInForce,
    LimitsTable,
    PastChange,
    fingerprint,
)
from bot.store.limits import Bound, Left, Limit, LimitReached, Limits, NotAllowed
from bot.store.listed_replicas import ListedReplicas
from bot.store.replicas import KnownReplica, Replicas
from bot.store.same_again import AlreadyRequested, Viewer
from bot.store.spending import MonthSpending, PersonSpending, Spending, month_start
from bot.store.sqlite import SQLiteDatabase
from bot.store.submissions import NobodyToApprove, Submitted
from bot.store.unreadable import UnreadableRows
from bot.timings import StoreTimings

__all__ = [
    "CHANGEABLE",
    "AddedCandidate",
    "AlreadyRequested",
    "Bound",
    "DatabaseCorrupt",
    "DatabaseError",
    "DatabaseInUse",
    "DatabaseUnavailable",
    "DatabaseUncertain",
    "Figures",
    "Home",
    "InvalidLimits",
    "KnownReplica",
    "Left",
    "Limit",
    "LimitChange",
    "LimitReached",
    "Limited",
    "Limits",
    "LimitsChanged",
    "LimitsInForce",
    "MonthSpending",
    "NobodyToApprove",
    "NotAllowed",
    "Outgoing",
    "PastChange",
    "PersonSpending",
    "RowUnreadable",
    "Store",
    "Submitted",
    "Viewer",
    "fingerprint",
    "month_start",
]

_NO_LIMITS: Final = Limits()
_NO_APPROVALS: Final = ApprovalPolicy()


class Store:
    """The tables, each with its methods, in one database.

    Attributes:
        jobs: what people asked for, and the create calls that were made for it.
        deliveries: the Slack messages that we owe.
        limits: what people may ask for.
        replicas: those that people may choose.
        listed_replicas: the same, as the service lists them.
        homes: the Home tabs that people have opened.
        answered: the messages of people that were answered with help.
        installation: the workspace that all of this belongs to.
        backlog: what waits.
        drift: how the service's answers differed from its interface.
        spending: what people had created, by month.
        database: the database that holds them, to check and to watch.
    """

    def __init__(
        self,
        database: Database,
        timings: StoreTimings,
        limits: Limits = _NO_LIMITS,
        approvals: ApprovalPolicy = _NO_APPROVALS,
    ) -> None:
        self.database = database
        unreadable = UnreadableRows()
        self.jobs = Jobs(database, timings, limits, unreadable, approvals)
        self.limits = LimitsTable(database, limits, unreadable)
        self.deliveries = Deliveries(database, timings, unreadable)
        self.replicas = Replicas(database, unreadable)
        self.listed_replicas = ListedReplicas(database)
        self.homes = Homes(database, timings)
        self.answered = AnsweredMessages(database)
        self.installation = Installations(database)
        self.backlog = Backlog(database)
        self.drift = DriftTable(database)
        self.spending = Spending(database)

    def wake_senders(self) -> None:
        """Have the workers look again that send to Slack."""
        self.deliveries.due.set()
        self.homes.due.set()

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        address: Path | str,
        timings: StoreTimings,
        limits: Limits = _NO_LIMITS,
        metrics: Metrics | None = None,
        approvals: ApprovalPolicy = _NO_APPROVALS,
    ) -> AsyncIterator["Store"]:
        """Open the database; if no other process can use it, end the leases of an earlier one.

        ``address`` is a file, which SQLite reads, or the URL of a PostgreSQL database.

        Raises:
            DatabaseError: it cannot be opened or written, or another process has it.
        """
        async with _opened(address, timings, metrics or Metrics()) as database:
            store = cls(database, timings, limits, approvals)
            if database.is_sole_process:
                await store.jobs.void_leases()
                await store.deliveries.void_leases()
                await store.homes.void_leases()
            yield store


def _opened(
    address: Path | str, timings: StoreTimings, metrics: Metrics
) -> AbstractAsyncContextManager[Database]:
    if isinstance(address, Path):
        return SQLiteDatabase.open(address, timings.lock_timeout, metrics)
    require_psycopg()
    from bot.store.postgres import PostgresDatabase  # noqa: PLC0415 - an extra

    return PostgresDatabase.open(address, metrics, timings)
