"""How an answer of the service differs from what its interface promises."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from bot.kinds import Kind
from bot.kinds.wire import moment
from bot.log import word


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
