"""What is measured, in the format that Prometheus reads: https://prometheus.io/docs/practices/naming.

No label has a value that a person, a job or the video service chooses: each metric has a bounded
number of series, and says nothing about anybody.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from bot.errors import OutsideError, Refused, Unavailable

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
_PREFIX: Final = "replica_bot"
_OK: Final = "ok"
_LAG_INTERVAL_S: Final = 1.0
# In seconds.
_ACK_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 3)
_CALL_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_LAG_BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1)
_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
# A video takes minutes, a training hours, and some weeks.
_REPLY_BUCKETS: Final = (
    *(30, _MINUTE, 2 * _MINUTE, 4 * _MINUTE, 8 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE),
    *(_HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR, 24 * _HOUR, 7 * 24 * _HOUR),
)
_DELAY_BUCKETS: Final = (0.5, 1, 2, 5, 10, 30, _MINUTE, 5 * _MINUTE, 30 * _MINUTE, _HOUR)


def _outcome(error: BaseException) -> str:
    """Return how a call ended: one that was cancelled may have been done, too."""
    if isinstance(error, Refused):
        return "refused"
    return "unavailable" if isinstance(error, Unavailable) else "uncertain"


class Metrics:
    """All metrics of one bot, in a registry of their own.

    Attributes:
        database_errors: each transaction that failed because of the file or its disk.
        drift: each answer of the video service that was not as its interface promises, by the kind
            and what differs.
    """

    def __init__(self, version: str = "") -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        info = Info(f"{_PREFIX}_build", "The version that runs.", registry=registry)
        info.info({"version": version or "unknown"})

        counter = partial(Counter, namespace=_PREFIX, registry=registry)
        gauge = partial(Gauge, namespace=_PREFIX, registry=registry)
        histogram = partial(Histogram, namespace=_PREFIX, registry=registry)
        self._ready = gauge("ready", "1 if /readyz says ready.")
        self._blocked = gauge("blocked", "1 for each cause that holds work back now.", ["by"])
        self._jobs = gauge("jobs", "Jobs that have not ended.", ["kind", "state"])
        self._seen_jobs: set[tuple[str, str]] = set()
        self._due = gauge("due", "Rows that are due and not claimed.", ["queue"])
        self._oldest_due = gauge("oldest_due_seconds", "How long the oldest is due.", ["queue"])
        self._reply = histogram(
            "reply_seconds",
            "From a request to its closing reply in Slack.",
            ["kind", "outcome"],
            buckets=_REPLY_BUCKETS,
        )
        self._reply_delay = histogram(
            "reply_delay_seconds",
            "From the end of a job to its closing reply in Slack.",
            ["kind"],
            buckets=_DELAY_BUCKETS,
        )
        self._ack = histogram(
            "ack_seconds",
            "From a request of Slack to its answer.",
            ["kind"],
            buckets=_ACK_BUCKETS,
        )
        self._calls = counter(
            "outside_calls",
            "Calls to Slack and the video service, by how they ended.",
            ["service", "operation", "outcome"],
        )
        self._call_seconds = histogram(
            "outside_call_seconds",
            "How long calls to Slack and the video service took.",
            ["service", "operation"],
            buckets=_CALL_BUCKETS,
        )
        self.database_errors = counter(
            "database_errors", "Transactions that failed because of the file or its disk."
        )
        self._lag = histogram(
            "event_loop_lag_seconds",
            "How late the event loop runs what is due.",
            buckets=_LAG_BUCKETS,
        )
        self.drift = counter(
            "drift",
            "Answers of the video service that were not as its interface promises.",
            ["kind", "what"],
        )

    # ── What happens ──────────────────────────────────────────────────────────────────────────

    @contextlib.contextmanager
    def call(
        self,
        service: str,
        operation: str,
        meaning: Callable[[BaseException], OutsideError | None] = lambda _: None,
    ) -> Iterator[None]:
        """Measure a call to the outside, and count it by how it ends.

        Args:
            service: "slack" or "video_service".
            operation: the method, or the route without an id.
            meaning: what an exception means that is not one of ours.
        """
        outcome, began = _OK, time.perf_counter()
        try:
            yield
        except BaseException as error:
            outcome = _outcome(meaning(error) or error)
            raise
        finally:
            self._calls.labels(service, operation, outcome).inc()
            self._call_seconds.labels(service, operation).observe(time.perf_counter() - began)

    def acknowledged(self, payload: Mapping[str, object], seconds: float) -> None:
        """Note that a request of Slack was answered: it has a type, unless it is a command."""
        self._ack.labels(payload.get("type", "command")).observe(seconds)

    def replied(self, kind: str, outcome: str, age: timedelta, delay: timedelta) -> None:
        """Note that a closing reply is in Slack.

        Args:
            kind: the kind of its job.
            outcome: how the job ended: "succeeded" or "failed".
            age: since the request.
            delay: since the end of the job.
        """
        self._reply.labels(kind, outcome).observe(max(age.total_seconds(), 0))
        self._reply_delay.labels(kind).observe(max(delay.total_seconds(), 0))

    async def watch_event_loop(self) -> None:
        """Measure how late the event loop is, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _LAG_INTERVAL_S
            await asyncio.sleep(_LAG_INTERVAL_S)
            self._lag.observe(max(loop.time() - due, 0))

    # ── How things stand ──────────────────────────────────────────────────────────────────────

    def set_readiness(self, *, ready: bool, blocked: Mapping[str, bool]) -> None:
        """Set what ``/readyz`` says, and what holds work back."""
        self._ready.set(ready)
        for name, is_blocked in blocked.items():
            self._blocked.labels(name).set(is_blocked)

    def set_jobs(self, jobs: Mapping[tuple[str, str], int]) -> None:
        """Set how many jobs there are, by kind and state; a pair that is left out has none."""
        self._seen_jobs |= jobs.keys()
        for kind, state in self._seen_jobs:
            self._jobs.labels(kind, state).set(jobs.get((kind, state), 0))

    def set_queue(self, queue: str, due: int, oldest_due: timedelta) -> None:
        """Set how many rows of a table are due, and for how long the oldest is."""
        self._due.labels(queue).set(due)
        self._oldest_due.labels(queue).set(oldest_due.total_seconds())

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)
