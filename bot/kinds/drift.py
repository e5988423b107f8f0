"""Finds, counts and logs how the video service's answers differ from its interface."""

import contextlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from bot.errors import OutsideError
from bot.kinds import Kind, Unreadable
from bot.kinds.wire import moment
from bot.log import reference, word
from bot.metrics import Metrics

_LOG: Final = logging.getLogger(__name__)


class DriftType(StrEnum):
    """What differs."""

    UNKNOWN_STATUS = "unknown_status"
    """A status that is in no list: it counts as unfinished."""
    MISSING_FIELD = "missing_field"
    """A promised field is not there."""
    RENAMED_FIELD = "renamed_field"
    """The id is there under an alias."""
    NEW_FIELD = "new_field"
    """A field that was never seen."""
    OTHER_TYPE = "other_type"
    """A promised field is no text: it counts as empty, or a number as its digits."""
    ODD_TIME = "odd_time"
    """A time in a format that was never seen."""
    UNREADABLE = "unreadable"
    """An answer that cannot be used at all."""


_EVENTS: Final = {
    DriftType.UNKNOWN_STATUS: "the service uses an unknown status",
    DriftType.MISSING_FIELD: "the service leaves out a field",
    DriftType.RENAMED_FIELD: "the service has renamed a field",
    DriftType.NEW_FIELD: "the service sends a new field",
    DriftType.OTHER_TYPE: "the service sends a field of another type",
    DriftType.ODD_TIME: "the service sends a time that cannot be read",
    DriftType.UNREADABLE: "the service sends an answer that cannot be read",
}


@dataclass(frozen=True, slots=True)
class Drift:
    """One difference."""

    type: DriftType
    field: str = ""
    """The name of the field, or the unknown status: one short word, or "other"."""


def drift_in(kind: Kind, answer: Any, *, created: bool) -> Iterator[Drift]:  # noqa: ANN401 - any JSON
    """Yield how the answer to a create call or a read differs. null counts as a value."""
    if not isinstance(answer, dict):
        return
    promised = kind.promised_created if created else kind.promised_read
    alias = next((name for name in kind.id_aliases if answer.get(name)), None)
    for name in sorted(promised - answer.keys()):
        if name != kind.id_field or alias is None:
            yield Drift(DriftType.MISSING_FIELD, name)
        else:
            yield Drift(DriftType.RENAMED_FIELD, alias)
    known = promised | kind.promised_read | kind.seen_fields | set(kind.id_aliases)
    for name in answer.keys() - known:
        yield Drift(DriftType.NEW_FIELD, word(str(name)))
    for name in promised & answer.keys():
        yield from _drift_of_value(name, answer[name])


def _drift_of_value(name: str, value: object) -> Iterator[Drift]:
    if name == "data":
        if not isinstance(value, Mapping | None):
            yield Drift(DriftType.OTHER_TYPE, name)
    elif not isinstance(value, str | None):
        yield Drift(DriftType.OTHER_TYPE, name)
    elif value and name.endswith("_at") and moment(value) is None:
        yield Drift(DriftType.ODD_TIME, name)


class DriftLog:
    """Counts each difference as a metric, and logs the first of each type about each kind."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._logged: set[tuple[str, DriftType]] = set()

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
        if (kind, drift.type) in self._logged:
            return
        self._logged.add((kind, drift.type))
        about = "status" if drift.type is DriftType.UNKNOWN_STATUS else "field"
        # A further field does no harm.
        level = logging.INFO if drift.type is DriftType.NEW_FIELD else logging.WARNING
        _LOG.log(level, _EVENTS[drift.type], extra={"kind": kind, about: drift.field})


def _is_unreadable(error: BaseException) -> bool:
    """Return whether an answer came that is no JSON."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, ValueError | RecursionError):
            return True
        found = found.__cause__
    return False
