"""Counts and logs how the video service's answers differ from its interface."""

import contextlib
import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from bot.clock import Clock
from bot.errors import OutsideError
from bot.kinds import Kind, Unreadable
from bot.kinds.drift import Drift, DriftType, drift_in
from bot.log import reference
from bot.metrics import Metrics
from bot.store import DatabaseError, Store

_LOG: Final = logging.getLogger(__name__)
# A service with a new status in each answer must not fill the log.
_MAX_LOGGED: Final = 100
_EVENTS: Final = {
    DriftType.UNKNOWN_STATUS: "the service uses an unknown status",
    DriftType.MISSING_FIELD: "the service leaves out a field",
    DriftType.RENAMED_FIELD: "the service has renamed a field",
    DriftType.NEW_FIELD: "the service sends a new field",
    DriftType.OTHER_TYPE: "the service sends a field of another type",
    DriftType.ODD_TIME: "the service sends a time that cannot be read",
    DriftType.UNREADABLE: "the service sends an answer that cannot be read",
}


class DriftLog:
    """Notes each difference: as a metric, in the log once, and in the database by ``flush``."""

    def __init__(self, store: Store, metrics: Metrics, clock: Clock) -> None:
        self._store = store
        self._metrics = metrics
        self._clock = clock
        self._logged: set[tuple[str, Drift]] = set()
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def compare(self, kind: Kind, answer: Any, *, created: bool) -> None:  # noqa: ANN401 - any JSON
        """Note how the answer to a create call or a read differs from what is promised."""
        try:
            for drift in drift_in(kind, answer, created=created):
                self.note(kind.name, drift)
        except Exception:  # noqa: BLE001 - the answer may be that of a paid call: it goes on
            _LOG.exception("an answer could not be compared", extra={"reference": reference()})

    @contextlib.contextmanager
    def watching(self, kind: Kind) -> Iterator[None]:
        """Note an answer that cannot be read, and raise what it leads to."""
        try:
            yield
        except (OutsideError, Unreadable) as error:
            if isinstance(error, Unreadable) or _is_unreadable(error):
                self.note(kind.name, Drift(DriftType.UNREADABLE))
            raise

    def note(self, kind: str, drift: Drift) -> None:
        """Note one difference in an answer about a kind."""
        self._metrics.drifted(kind, drift.type.value)
        key = (kind, drift)
        if key not in self._logged:
            if len(self._logged) >= _MAX_LOGGED:
                return
            self._logged.add(key)
            about = "status" if drift.type is DriftType.UNKNOWN_STATUS else "field"
            # A further field does no harm.
            level = logging.INFO if drift.type is DriftType.NEW_FIELD else logging.WARNING
            _LOG.log(level, _EVENTS[drift.type], extra={"kind": kind, about: drift.field})
        self._counts[kind, drift.type.value, drift.field] += 1

    async def flush(self) -> None:
        """Store what was counted since the last time."""
        counts, self._counts = self._counts, Counter()
        if not counts:
            return
        try:
            await self._store.drift.add(counts, self._clock.now())
        except DatabaseError:  # which was logged
            self._counts += counts


def _is_unreadable(error: BaseException) -> bool:
    """Return whether an answer came that is no JSON."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, ValueError | RecursionError):
            return True
        found = found.__cause__
    return False
