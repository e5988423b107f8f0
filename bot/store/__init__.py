"""The store of what must survive the process: jobs, attempts, deliveries and replicas."""

import contextlib
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Final

from bot.metrics import Metrics
from bot.model import ApprovalPolicy
from bot.store.database import (
    ANY,
    Alarm,
    Database,
    DatabaseCorrupt,
    DatabaseError,
    DatabaseInUse,
    DatabaseUnavailable,
    DatabaseUncertain,
    RowUnreadable,
    Topic,
    log_failure,
)
from bot.store.deliveries import Asked, Deliveries, Limited, Outgoing, covering
from bot.store.due import Claimed, UnreadableRows, soonest, try_again
from bot.store.engines import open_database
from bot.store.installation import Figures, Installations, read_figures
from bot.store.job_rows import AddedCandidate
from bot.store.jobs import AlreadyRequested, Jobs, NobodyToApprove
from bot.store.memory import InMemory, Memory
from bot.store.replicas import KnownReplica, Replicas
from bot.store.usage import (
    LIMITS,
    Bound,
    Left,
    Limit,
    LimitChange,
    LimitReached,
    Limits,
    LimitsInForce,
    LimitsTable,
    MonthSpending,
    NotAllowed,
    PersonSpending,
    limit_hash,
    month_start,
)
from bot.timings import Timings

__all__ = [
    "ANY",
    "LIMITS",
    "AddedCandidate",
    "Alarm",
    "AlreadyRequested",
    "Asked",
    "Bound",
    "Claimed",
    "Database",
    "DatabaseCorrupt",
    "DatabaseError",
    "DatabaseInUse",
    "DatabaseUnavailable",
    "DatabaseUncertain",
    "Figures",
    "KnownReplica",
    "Left",
    "Limit",
    "LimitChange",
    "LimitReached",
    "Limited",
    "Limits",
    "LimitsInForce",
    "LimitsTable",
    "Memory",
    "MonthSpending",
    "NobodyToApprove",
    "NotAllowed",
    "Outgoing",
    "PersonSpending",
    "RowUnreadable",
    "Store",
    "Topic",
    "covering",
    "limit_hash",
    "log_failure",
    "month_start",
    "soonest",
]

_NO_LIMITS: Final = Limits()
_NO_APPROVALS: Final = ApprovalPolicy()


class Store:
    """The tables, each with its methods, in one database.

    Attributes:
        jobs: what people asked for, and the create calls that were made for it.
        deliveries: the Slack messages that we owe.
        limits: what people may ask for, and how much they did, by month and day.
        replicas: those that people may choose.
        installation: the workspace that all of this belongs to.
        in_memory: what of these is kept in memory; see ``Memory``.
        database: the database that holds them, to check and to watch.
    """

    def __init__(
        self,
        database: Database,
        timings: Timings,
        limits: Limits = _NO_LIMITS,
        approvals: ApprovalPolicy = _NO_APPROVALS,
    ) -> None:
        self.database = database
        unreadable = UnreadableRows()
        self.limits = LimitsTable(database, limits, unreadable)
        self.jobs = Jobs(database, timings, self.limits, unreadable, approvals)
        self.deliveries = Deliveries(database, timings, unreadable)
        self.replicas = Replicas(database, unreadable)
        self.installation = Installations(database)
        self.in_memory: tuple[InMemory, ...] = (self.replicas, self.limits, self.jobs.durations)

    async def figures(self, now: datetime) -> Figures:
        """Return what waits now in the tables of jobs and deliveries."""
        return await self.database.run(lambda tx: read_figures(tx, now), durable=False)

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        address: Path | str,
        timings: Timings,
        limits: Limits = _NO_LIMITS,
        metrics: Metrics | None = None,
        approvals: ApprovalPolicy = _NO_APPROVALS,
    ) -> AsyncIterator["Store"]:
        """Open the database, and make due again what could not be read.

        If no other process can use it, the leases of an earlier one end.

        ``address`` is a file, which SQLite reads, or the URL of a PostgreSQL database.

        Raises:
            DatabaseError: it cannot be opened or written, or another process has it.
        """
        async with open_database(address, timings, metrics or Metrics()) as database:
            store = cls(database, timings, limits, approvals)
            if database.is_sole_process:
                await store.jobs.void_leases()
                await store.deliveries.void_leases()
            await database.run(try_again, durable=False)
            yield store
